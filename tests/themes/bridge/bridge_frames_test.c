/* SPDX-License-Identifier: MIT */

/*
 * Messages of several frames, with a peer that does not take them, as it is of an earlier version,
 * and with one that breaks their rules: it loses its link, what it has sent of them is given up,
 * and the bridge serves others as before.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_peer.h"

TestSuite(bridge_frames, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEPTH        4
#define BUFFERS      3
#define DATA         5000
#define TRIES        20

static void begin(struct sides *s)
{
	setenv("UCX_TLS", "tcp,self", 1);
	setenv("UCX_NET_DEVICES", "lo", 1);
	sides_begin(s);
	peer_read_key(s);
	far_start(s, OPTIONS("--export", "*", "--export-channel", "c", "--import-channel", "m",
			     "--export-service", "s"));
	near_start(s, OPTIONS("--import", "*"));
}

/* Ends when the bridge has shown that it still does what it is for. */
static void end(struct sides *s)
{
	content_publish(s->far, "w", 10000, 2);
	until(content_at(s->near, "w", 10000, 2));
	sides_end(s);
}

static void greet(struct peer *p, const struct sides *s, bool takes_parts)
{
	check(peer_connect(p, s));
	p->takes_parts = takes_parts;
	peer_greet(p);
}

/* ------------------------------------------------------------------------------------------- */
/* A peer of an earlier version                                                                */

/* Neither is the bridge one of its consumers, not even for as long as it takes to look: a producer
 * that waits for one (wait_for) would have sent something then. Members are counted. */
static void expect_no_channel(struct sides *s, const share_channel_options *options)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch, *later, *c;
	struct peer p;
	uint64_t first;

	check_ok(share_channel_open(s->far, "c", SHARE_PRODUCER, options, &ch));
	greet(&p, s, false);
	peer_say(&p, "{\"say\":\"open\",\"which\":9,\"name\":\"c\"}");
	peer_hear_word(&p, "closed");
	check_ok(share_channel_open(s->far, "c", SHARE_PRODUCER, options, &later));
	check_ok(share_channel_open(s->far, "c", SHARE_CONSUMER, options, &c));
	check_ok(share_send(ch, NULL, "x", 1, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	first = m.producer;
	check_ok(share_ack(&m, NULL));
	check_ok(share_send(later, NULL, "x", 1, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.producer, first + 1);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(later);
	share_channel_close(ch);
	peer_close(&p);
}

Test(bridge_frames, a_peer_of_an_earlier_version_has_no_channel_whose_messages_take_several)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct sides s;

	begin(&s);
	options.mode = SHARE_QUEUE;
	options.data_max = 1000;
	expect_no_channel(&s, &options);
	check_eq(bridge_said(&s.far_bridge, "channel 'c' stays here"), 1);
	options.data_max = 0;
	options.buffers = 2;
	expect_no_channel(&s, &options);
	check_eq(bridge_said(&s.far_bridge, "channel 'c' stays here"), 2);
	end(&s);
}

Test(bridge_frames, a_peer_of_an_earlier_version_calls_no_service_whose_messages_take_several)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *worker;
	struct sides s;
	struct peer p;

	begin(&s);
	options.buffers = 2;
	check_ok(share_service_open(s.far, "s", SHARE_WORKER, &options, &worker));
	greet(&p, &s, false);
	peer_say(&p, "{\"say\":\"call\",\"which\":9,\"name\":\"s\"}");
	peer_hear_word(&p, "called");
	check(strstr(p.line, "\"open\":false"));
	peer_close(&p);
	greet(&p, &s, true);
	peer_say(&p, "{\"say\":\"call\",\"which\":9,\"name\":\"s\"}");
	peer_hear_word(&p, "called");
	check(strstr(p.line, "\"open\":true") && strstr(p.line, "\"buffers\":2"));
	peer_close(&p);
	share_service_close(worker);
	end(&s);
}

/* What the later one has taken of a queue is for it to have when it comes back. */
Test(bridge_frames, a_peer_that_comes_back_with_an_earlier_version_is_sent_nothing)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_channel *ch;
	struct sides s;
	struct peer p;
	char data[1000] = "", text[80];

	begin(&s);
	options.mode = SHARE_QUEUE;
	options.data_max = sizeof(data);
	check_ok(share_channel_open(s.far, "c", SHARE_PRODUCER, &options, &ch));
	out.data = data;
	out.data_size = sizeof(data);
	check_eq(share_send_many(ch, &out, 1, NULL), 1);
	greet(&p, &s, true);
	peer_say(&p, "{\"say\":\"open\",\"which\":9,\"name\":\"c\"}");
	peer_hear_word(&p, "opened");
	snprintf(text, sizeof(text), "{\"say\":\"begin\",\"which\":9,\"next\":%llu}",
		 strtoull(strstr(p.line, "\"next\":") + 7, NULL, 10));
	peer_say(&p, text);
	peer_hear_content(&p, DATA_MESSAGE);
	peer_hear_content(&p, DATA_MESSAGE); /* the rest of the data */
	peer_close(&p);
	until(bridge_said(&s.far_bridge, "the link to peer") == 1);
	greet(&p, &s, false);
	peer_say(&p, "{\"say\":\"open\",\"which\":9,\"name\":\"c\"}");
	peer_hear_word(&p, "closed");
	peer_close(&p);
	until(bridge_said(&s.far_bridge, "the link to peer") == 2);
	greet(&p, &s, true);
	peer_say(&p, "{\"say\":\"open\",\"which\":9,\"name\":\"c\"}");
	peer_hear_word(&p, "opened");
	peer_say(&p, text);
	peer_hear_content(&p, DATA_MESSAGE);
	peer_hear_content(&p, DATA_MESSAGE);
	peer_close(&p);
	share_channel_close(ch);
	end(&s);
}

/* ------------------------------------------------------------------------------------------- */
/* A peer that breaks the rules                                                                */

/* Its channel "m", of which the bridge is the mirror: its number. */
static uint32_t offer_channel(struct peer *p)
{
	char text[240];
	uint32_t which;

	peer_hear_word(p, "open");
	which = (uint32_t)strtoul(strstr(p->line, "\"which\":") + 8, NULL, 10);
	snprintf(text, sizeof(text),
		 "{\"say\":\"opened\",\"which\":%u,\"next\":1,\"shape\":{\"mode\":\"queue\","
		 "\"depth\":%d,\"in_flight\":64,\"buffers\":%d,\"data_max\":%d}}",
		 which, DEPTH, BUFFERS, DATA);
	peer_say(p, text);
	peer_hear_word(p, "begin");
	return which;
}

struct frame {
	uint32_t part, parts, n_more;
	uint64_t size;
	uint32_t flags;
};

static unsigned char bytes[100000];

static void send_frame(struct peer *p, enum data_kind kind, uint32_t which, uint64_t id,
		       const struct frame *f)
{
	struct data_header h = {.kind = kind,
				.which = which,
				.id = id,
				.part = f->part,
				.parts = f->parts,
				.n_more = f->n_more,
				.size = f->size,
				.flags = f->flags,
				.number = id * 100 + f->part};
	bool later = f->flags & DATA_IN_PIECES;

	memcpy(h.secret, p->secret, DATA_SECRET);
	memset(h.more, 'd', f->n_more);
	peer_send(p, &h, BARE + f->n_more, later ? NULL : bytes, later ? 0 : f->size);
}

#define BUFFER    DATA_HAS_BUFFER
#define IN_PIECES (DATA_HAS_BUFFER | DATA_IN_PIECES)
#define NO_SENSE  "a frame that it sends makes no sense"
#define NO_PLACE  "a frame that it sends has no place in its message"
#define TOO_LARGE "its message is larger than its channel lets it be"

static const struct {
	const char *said;
	struct frame frames[BUFFERS + 2]; /* up to one of nothing, if that is not the first */
} wrong[] = {
    /* more than there can be, also of pieces that never come */
    {NO_SENSE, {{0, DATA_PARTS + 1, 0, 10, BUFFER}}},
    {NO_SENSE, {{0, UINT32_MAX, 0, 10, BUFFER}}},
    {NO_SENSE, {{0, DATA_PARTS + 1, 0, 1 << 20, IN_PIECES}}},
    /* a frame beyond the last one */
    {NO_SENSE, {{0, 2, 0, 10, BUFFER}, {2, 2, 0, 10, BUFFER}}},
    {NO_SENSE, {{0, 2, 0, 10, BUFFER}, {UINT32_MAX, 2, 0, 10, BUFFER}}},
    {NO_SENSE, {{0, DATA_PARTS, 0, 10, BUFFER}, {DATA_PARTS - 1, DATA_PARTS, 0, 10, BUFFER}}},
    /* lengths that do not fit */
    {NO_SENSE, {{0, 2, 0, 10, 0}}},
    {NO_SENSE, {{0, 2, 0, 0, BUFFER}}},
    {NO_SENSE, {{0, 2, 0, 10, BUFFER}, {1, 2, 5, 10, BUFFER}}},
    {NO_PLACE, {{0, 2, DATA_MORE, 10, BUFFER}, {1, 2, 0, DATA_REST + 1, 0}}},
    {NO_PLACE, {{0, 2, DATA_MORE, 10, BUFFER}, {1, 2, 0, UINT64_MAX, DATA_IN_PIECES}}},
    {NO_PLACE, {{0, 2, DATA_MORE, 10, BUFFER}, {1, 2, 0, 0, 0}}},
    /* the rest of what is not full, or not at the end */
    {NO_PLACE, {{0, 2, DATA_MORE - 1, 10, BUFFER}, {1, 2, 0, 10, 0}}},
    {NO_PLACE, {{0, 3, DATA_MORE, 10, BUFFER}, {1, 3, 0, 10, 0}}},
    /* of another message, or twice */
    {NO_PLACE, {{0, 3, 0, 10, BUFFER}, {1, 2, 0, 10, BUFFER}}},
    {NO_PLACE, {{0, 3, 0, 10, BUFFER}, {1, 3, 0, 10, BUFFER}, {1, 3, 0, 10, BUFFER}}},
    {NO_PLACE, {{0, 3, 0, 10, BUFFER}, {1, 3, 0, 1 << 20, IN_PIECES}, {1, 3, 0, 10, BUFFER}}},
    {NO_PLACE, {{0, 2, 0, 0, 0}, {1, 2, 0, 10, BUFFER}}},
    {NO_PLACE, {{0, 2, DATA_MORE, 0, 0}, {1, 2, 0, 10, BUFFER}}},
    {"a message that has no place", {{1, 2, 0, 10, BUFFER}}},
    /* more than the channel has */
    {TOO_LARGE,
     {{0, 4, 0, 10, BUFFER}, {1, 4, 0, 10, BUFFER}, {2, 4, 0, 10, BUFFER}, {3, 4, 0, 10, BUFFER}}},
    {TOO_LARGE, {{0, 2, DATA_MORE, 10, BUFFER}, {1, 2, 0, DATA - DATA_MORE + 1, 0}}},
};

static int64_t buffers_of(struct sides *s)
{
	struct status now;

	status_read(s->far, &now);
	return now.buffers;
}

static int64_t begin_counting(struct sides *s)
{
	begin(s);
	content_publish(s->far, "v", 10000, 1);
	until(content_at(s->near, "v", 10000, 1));
	return buffers_of(s);
}

/* @hold: the bridge stands still while the last frame comes, until it would also look whether there
 * is room in the channel. */
static void break_rules(struct sides *s, size_t which_of, bool hold)
{
	const char *wanted = wrong[which_of].said;
	int said = bridge_said(&s->far_bridge, wanted);
	const struct frame *f = wrong[which_of].frames;
	struct peer p;
	uint32_t which;

	greet(&p, s, true);
	which = offer_channel(&p);
	for (; f->parts > 0; f++) {
		bool is_last = f[1].parts == 0;

		if (hold && is_last)
			kill(s->far_bridge.pid, SIGSTOP);
		send_frame(&p, DATA_MESSAGE, which, 1, f);
		if (hold && is_last) {
			usleep(4000);
			kill(s->far_bridge.pid, SIGCONT);
		}
	}
	peer_expect_hung_up(&p);
	until(bridge_said(&s->far_bridge, wanted) == said + 1);
	peer_close(&p);
}

Test(bridge_frames, who_breaks_their_rules_loses_the_link)
{
	struct sides s;
	int64_t before = begin_counting(&s);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		break_rules(&s, i, false);
	until(buffers_of(&s) == before);
	end(&s);
}

/* Neither while the link is about to end, whatever else is to be done then. Not every try meets the
 * turn of the bridge's loop in which that is so. */
Test(bridge_frames, nothing_is_allocated_for_what_is_too_large)
{
	struct sides s;
	int64_t before = begin_counting(&s);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		for (int k = 0; k < TRIES && strcmp(wrong[i].said, TOO_LARGE) == 0; k++)
			break_rules(&s, i, true);
	until(buffers_of(&s) == before);
	end(&s);
}

static share_channel *open_mirror(struct sides *s)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.flags = SHARE_CHANNEL_EXISTING;
	options.buffers = BUFFERS;
	options.data_max = DATA;
	check_ok(share_channel_open(s->far, "m", SHARE_CONSUMER, &options, &ch));
	return ch;
}

/* Nothing is allocated for them, and there are no more of them than the channel is deep. The next
 * link begins anew. */
Test(bridge_frames, messages_that_never_end_keep_nothing)
{
	static const struct frame frames[] = {
	    {0, 3, DATA_MORE, 8000, BUFFER}, {1, 3, 0, 1 << 20, IN_PIECES}, {2, 3, 0, 1000, 0}};
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;
	struct sides s;
	struct peer p;
	uint32_t which;
	int64_t before;

	begin(&s);
	greet(&p, &s, true);
	which = offer_channel(&p);
	ch = open_mirror(&s);
	before = buffers_of(&s);
	for (uint64_t id = 1; id <= DEPTH; id++) {
		send_frame(&p, DATA_MESSAGE, which, id, &frames[0]);
		send_frame(&p, DATA_MESSAGE, which, id, &frames[1 + id % 2]); /* or the other */
	}
	peer_say(&p, "{\"say\":\"ping\",\"at\":4711}");
	peer_hear_word(&p, "pong");
	check_eq(buffers_of(&s), before);
	send_frame(&p, DATA_MESSAGE, which, DEPTH + 1, &frames[0]);
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "a message that has no place") == 1);
	peer_close(&p);
	check_error(share_recv(ch, 0, NULL, &m), SHARE_EAGAIN);

	greet(&p, &s, true);
	which = offer_channel(&p);
	send_frame(&p, DATA_MESSAGE, which, 1, &frames[0]);
	send_frame(&p, DATA_MESSAGE, which, 1, &frames[2]); /* before the one that is missing */
	send_frame(&p, DATA_MESSAGE, which, 1, &(struct frame){1, 3, 0, 7, BUFFER});
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	check(m.n_buffers == 2 && share_size(m.buffers[0]) == 8000 &&
	      share_size(m.buffers[1]) == 7 && m.data_size == DATA_MORE + 1000);
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	peer_close(&p);
	end(&s);
}

/* What comes of a request that was canceled is passed over. What comes before the first frame of
 * its request ends the link, as its caller would wait for ever else. */
Test(bridge_frames, what_comes_of_a_request_that_is_over_is_passed_over)
{
	static const struct frame first = {0, 2, 1, 8000, BUFFER}, second = {1, 2, 0, 10, BUFFER},
				  later = {1, 2, 0, 1 << 20, IN_PIECES}, none = {0, 0, 0, 0, 0};
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;
	share_service *worker;
	struct sides s;
	struct peer p;

	begin(&s);
	options.buffers = 2;
	check_ok(share_service_open(s.far, "s", SHARE_WORKER, &options, &worker));
	greet(&p, &s, true);
	peer_say(&p, "{\"say\":\"call\",\"which\":9,\"name\":\"s\"}");
	peer_hear_word(&p, "called");
	send_frame(&p, DATA_REQUEST, 9, 1, &first); /* is canceled half way */
	send_frame(&p, DATA_CANCEL, 9, 1, &none);
	send_frame(&p, DATA_REQUEST, 9, 1, &second);
	send_frame(&p, DATA_CANCEL, 9, 2, &none); /* before it comes */
	send_frame(&p, DATA_REQUEST, 9, 2, &first);
	send_frame(&p, DATA_REQUEST, 9, 2, &later);
	peer_hear_content(&p, DATA_GO); /* that nobody wants it */
	send_frame(&p, DATA_REQUEST, 9, 3, &first);
	send_frame(&p, DATA_REQUEST, 9, 3, &second);
	check_ok(share_next_request(worker, HARNESS_LIMIT_MS, NULL, &m));
	check(m.n_buffers == 2 && m.data_size == 1 && share_size(m.buffers[1]) == 10);
	check_ok(share_reply(&m, NULL, NULL, 0, NULL));
	peer_hear_content(&p, DATA_ANSWER);
	check_error(share_next_request(worker, 0, NULL, &m), SHARE_EAGAIN);
	send_frame(&p, DATA_REQUEST, 9, 4, &second);
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "the first frame of a message after others") == 1);
	share_service_close(worker);
	peer_close(&p);
	end(&s);
}
