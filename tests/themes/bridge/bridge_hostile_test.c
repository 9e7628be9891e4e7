/* SPDX-License-Identifier: MIT */

/*
 * A peer without the key gets nowhere. One that has it and breaks the rules is told of in the log
 * and loses its link, and the bridge serves others as before.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/themes/bridge/bridge_peer.h"

TestSuite(bridge_hostile, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define PIECE        (UINT64_C(1) << 20)

/* Whether the bridge still does what it is for. */
static void expect_served(struct sides *s, unsigned seed)
{
	content_publish(s->far, "w", 10000, seed);
	until(content_at(s->near, "w", 10000, seed));
}

static void begin(struct sides *s)
{
	setenv("UCX_TLS", "tcp,self", 1);
	setenv("UCX_NET_DEVICES", "lo", 1);
	sides_begin(s);
	peer_read_key(s);
	far_start(s, OPTIONS("--export", "*", "--import", "in/*", "--export-channel", "c*",
			     "--import-channel", "m", "--export-service", "s*"));
	near_start(s, OPTIONS("--import", "*"));
	expect_served(s, 1);
}

Test(bridge_hostile, without_the_key_nobody_gets_anywhere)
{
	struct sides s;
	struct peer p;
	int fd;

	begin(&s);
	peer_key[0] ^= 1;
	check(!peer_connect(&p, &s));
	until(bridge_said(&s.far_bridge, "no proof that both sides have the same key") == 1);
	peer_close(&p);
	fd = peer_connect_to(s.place);
	check(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
	until(bridge_said(&s.far_bridge, "no proof") == 2);
	close(fd);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_has_connected_and_says_nothing_is_hung_up_on)
{
	struct sides s;
	char c;
	int fd;

	sides_begin(&s);
	far_start(&s, OPTIONS("--timeout", "0.2"));
	fd = peer_connect_to(s.place);
	check(read(fd, &c, 1) <= 0);
	close(fd);
	sides_end(&s);
}

#define STRANGERS 200 /* the bridge has places for fewer */

Test(bridge_hostile, strangers_keep_no_peer_out_and_do_not_fill_the_log)
{
	struct sides s;
	int fds[STRANGERS];

	sides_begin(&s);
	far_start(&s, OPTIONS("--export", "*"));
	for (int i = 0; i < STRANGERS; i++)
		fds[i] = peer_connect_to(s.place);
	near_start(&s, OPTIONS("--import", "*"));
	expect_served(&s, 1);
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
	until(bridge_said(&s.far_bridge, "more of this within a minute is left out") == 1);
	sides_end(&s);
}

/* The names that the next bridges would have. */
static void takes_names(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	char name[64];

	(void)data;
	child_become(4711, 0);
	c = child_connect("squatter");
	b = allocate(open_pool(c), 1, NULL);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "bridge/far/%d", (int)getpid() + i);
		check_ok(share_publish(b, name, NULL));
	}
	child_point(self, "taken");
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

static void start_for_all(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": "
	    "\"64MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}");
}

TestSuite(bridge_among_users, .init = start_for_all, .fini = fixture_stop, .timeout = 120);

Test(bridge_among_users, who_has_taken_its_name_does_not_keep_a_bridge_from_serving)
{
	struct child *other;
	struct sides s;

	skip_unless_root();
	other = child_start(takes_names, NULL);
	child_wait(other, "taken");
	sides_begin(&s);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "w"));
	expect_served(&s, 1);
	until(sharectl_bridges_say(s.far, "", "near"));
	sides_end(&s);
	child_go(other);
	child_finish(other);
}

/* What is wrong before hello, and what is wrong after it. */
static const char *const before[] = {
    "",
    "{",
    "[]",
    "{\"say\":1}",
    "{\"say\":\"want\",\"id\":1,\"name\":\"w\"}",
    "{\"say\":\"hello\"}",
    "{\"say\":\"hello\",\"version\":1,\"site\":\"x\",\"run\":\"\",\"secret\":\"\",\"address\":\"\","
    "\"pieces\":false}",
    "{\"say\":\"hello\",\"version\":1,\"site\":\"x\",\"run\":\"\",\"secret\":\"\",\"address\":"
    "\"\"}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"far\",\"run\":\"\",\"secret\":\"\",\"address\":"
    "\"\",\"pieces\":false}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"a/"
    "b\",\"run\":\"\",\"secret\":\"\",\"address\":\"\",\"pieces\":false}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"a\\u001b[2J\",\"run\":\"\",\"secret\":\"\","
    "\"address\":\"\",\"pieces\":false}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"x\",\"run\":\"\",\"secret\":\"00\",\"address\":"
    "\"\",\"pieces\":false}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"x\",\"run\":\"\",\"secret\":\"\",\"address\":"
    "\"\"}",
};

static const char *const after[] = {
    "no JSON",
    "{\"say\":\"ping\"}",
    "{\"say\":\"name\"}",
    "{\"say\":\"name\",\"name\":\"in/x\",\"version\":0}",
    "{\"say\":\"name\",\"name\":[],\"version\":1}",
    "{\"say\":\"gone\"}",
    "{\"say\":\"content\",\"id\":1}",
    "{\"say\":\"content\",\"id\":1,\"version\":1,\"size\":-5}",
    "{\"say\":\"want\",\"name\":\"w\"}",
    "{\"say\":\"ready\",\"id\":77,\"take\":true}",
    "{\"say\":\"open\",\"name\":\"c\"}",
    "{\"say\":\"open\",\"which\":4294967296,\"name\":\"c\"}",
    "{\"say\":\"opened\",\"which\":12345,\"next\":1}",
    "{\"say\":\"closed\",\"which\":12345}",
    "{\"say\":\"begin\",\"which\":1,\"next\":0}",
    "{\"say\":\"call\",\"which\":-1,\"name\":\"s\"}",
    "{\"say\":\"called\",\"which\":1,\"name\":\"nobody wanted it\",\"open\":true}",
};

/* What is odd, but breaks no rule: names that were not asked for, answers that come too late. */
static const char *const harmless[] = {
    "{\"say\":\"something new\"}",
    "{\"say\":\"name\",\"name\":\"not wanted\",\"version\":1}",
    "{\"say\":\"gone\",\"name\":\"never was\"}",
    "{\"say\":\"failed\",\"id\":99}",
    "{\"say\":\"content\",\"id\":99,\"version\":1,\"size\":5,\"path\":[\"peer\"]}",
    "{\"say\":\"pong\",\"at\":-1}",
    "{\"say\":\"want\",\"id\":1,\"name\":\"bridge/far/1\"}",
    "{\"say\":\"open\",\"which\":9,\"name\":\"not exported\"}",
    "{\"say\":\"begin\",\"which\":9,\"next\":5}",
    "{\"say\":\"call\",\"which\":9,\"name\":\"not exported\"}",
    "{\"say\":\"listed\"}",
};

Test(bridge_hostile, who_breaks_the_rules_before_hello_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		check(peer_connect(&p, &s));
		peer_say(&p, before[i]);
		peer_expect_hung_up(&p);
		peer_close(&p);
	}
	check_eq(bridge_said(&s.far_bridge, "it is of another version"), 2);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_breaks_the_rules_after_hello_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
		check(peer_connect(&p, &s));
		peer_greet(&p);
		peer_say(&p, after[i]);
		peer_expect_hung_up(&p);
		peer_close(&p);
	}
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_talks_without_end_loses_the_link)
{
	struct sides s;
	struct peer p;
	char *text = malloc(300001);

	begin(&s);
	memset(text, ' ', 300000);
	text[300000] = 0;
	check(peer_connect(&p, &s));
	peer_greet(&p);
	SSL_write(p.ssl, text, 300000);
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "it talks without end") == 1);
	peer_close(&p);
	free(text);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, what_is_odd_and_breaks_no_rule_is_passed_over)
{
	struct sides s;
	struct peer p;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		peer_say(&p, harmless[i]);
	peer_say(&p, "{\"say\":\"ping\",\"at\":4711}");
	do
		peer_hear_word(&p, "pong");
	while (!strstr(p.line, "4711"));
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

/* Content that nobody asked for, of each kind and in each state, from who knows the secret and who
 * does not. */
Test(bridge_hostile, content_that_nobody_asked_for_gets_nowhere)
{
	struct sides s;
	struct peer p;
	static unsigned char memory[100000];

	begin(&s);
	for (uint32_t kind = 0; kind < 10; kind++)
		for (int way = 0; way < 8; way++) {
			struct data_header h = {.kind = kind, .which = 1, .id = 1};
			size_t n = BARE, size = 0;

			check(peer_connect(&p, &s));
			peer_greet(&p);
			memcpy(h.secret, p.secret, DATA_SECRET);
			if (way == 1)
				h.secret[3] ^= 1;
			else if (way == 2)
				n = BARE - 1;
			else if (way == 3)
				h.size = 5; /* and there is nothing */
			else if (way == 4)
				h.n_more = UINT32_MAX;
			else if (way == 5)
				h.size = size = sizeof(memory), h.flags = DATA_HAS_BUFFER;
			else if (way == 6)
				h.size = UINT64_MAX, h.flags = DATA_HAS_BUFFER | DATA_IN_PIECES;
			else if (way == 7) /* it is in pieces, and there is something */
				h.size = size = sizeof(memory), h.flags = DATA_IN_PIECES;
			peer_send(&p, &h, n, memory, size);
			peer_close(&p);
		}
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, content_of_another_size_than_was_said_ends_the_link)
{
	struct sides s;
	struct peer p;
	struct data_header h = {.kind = DATA_NAME, .size = 100};
	unsigned char memory[100] = {0};
	share_buffer *b;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	h.id = peer_offer(&p, 50);
	memcpy(h.secret, p.secret, DATA_SECRET);
	peer_send(&p, &h, BARE, memory, sizeof(memory));
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "content is of another size") == 1);
	check_error(share_lookup(s.far, "in/x", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_wants_too_much_at_a_time_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	for (int i = 0; i < 65; i++) {
		char text[80];

		snprintf(text, sizeof(text), "{\"say\":\"want\",\"id\":%d,\"name\":\"absent\"}", i);
		peer_say(&p, text);
	}
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "it wants too much at a time") == 1);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

/* UCX promises no order. The worker sees the other request alone. */
Test(bridge_hostile, a_cancellation_that_comes_before_its_request_is_heeded)
{
	struct sides s;
	struct peer p;
	struct data_header h = {.which = 9};
	share_service *worker;
	share_message m = SHARE_MESSAGE_INIT;

	begin(&s);
	check_ok(share_service_open(s.far, "s", SHARE_WORKER, NULL, &worker));
	check(peer_connect(&p, &s));
	peer_greet(&p);
	peer_say(&p, "{\"say\":\"call\",\"which\":9,\"name\":\"s\"}");
	peer_hear_word(&p, "called");
	memcpy(h.secret, p.secret, DATA_SECRET);
	h.id = 1;
	h.kind = DATA_CANCEL;
	peer_send(&p, &h, BARE, NULL, 0);
	h.kind = DATA_REQUEST;
	peer_send(&p, &h, BARE, NULL, 0);
	h.id = 2;
	h.n_more = 1;
	h.more[0] = 'b';
	peer_send(&p, &h, BARE + 1, NULL, 0);
	check_ok(share_next_request(worker, HARNESS_LIMIT_MS, NULL, &m));
	check(m.data_size == 1 && m.data[0] == 'b');
	check_ok(share_ack(&m, NULL));
	share_service_close(worker);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

/* Each byte of it is written once, or the peer has lost its link. */
Test(bridge_hostile, a_piece_that_comes_twice_does_not_stand_for_another)
{
	static const struct {
		uint64_t offset, size;
	} second[] = {{0, PIECE}, {PIECE / 2, PIECE}, {PIECE, PIECE / 2}, {PIECE + 1, PIECE - 1}};
	static unsigned char memory[PIECE];
	struct sides s;
	struct peer p;

	begin(&s);
	for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
		struct data_header h = {0};
		share_buffer *b;

		check(peer_connect(&p, &s));
		peer_greet(&p);
		memcpy(h.secret, p.secret, DATA_SECRET);
		h.id = peer_offer(&p, 2 * PIECE);
		h.kind = DATA_NAME;
		h.flags = DATA_IN_PIECES;
		h.number = 1;
		h.size = 2 * PIECE;
		peer_send(&p, &h, BARE, NULL, 0);
		peer_hear_content(&p, DATA_GO);
		h.kind = DATA_PIECE;
		h.flags = 0;
		h.size = PIECE;
		peer_send(&p, &h, BARE, memory, PIECE);
		h.offset = second[i].offset;
		h.size = second[i].size;
		peer_send(&p, &h, BARE, memory, h.size);
		peer_expect_hung_up(&p);
		until(bridge_said(&s.far_bridge, "a piece that has no place") == (int)i + 1);
		check_error(share_lookup(s.far, "in/x", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
		peer_close(&p);
	}
	expect_served(&s, 2);
	sides_end(&s);
}

static share_channel *open_impatient(share_client *c)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.mode = SHARE_BROADCAST;
	options.depth = 2;
	options.stall_ms = 1;
	check_ok(share_channel_open(c, "c", SHARE_PRODUCER, &options, &ch));
	return ch;
}

static uint64_t left_behind(share_channel *ch)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &stats));
	return stats.left_behind;
}

/* The bridge notices it as it goes on for a peer that has taken something at last. */
Test(bridge_hostile, a_channel_that_leaves_the_bridge_behind_is_closed)
{
	struct data_header h = {.kind = DATA_TAKEN, .which = 9};
	share_channel *ch;
	struct sides s;
	struct peer p;
	char text[80];

	begin(&s);
	ch = open_impatient(s.far);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	memcpy(h.secret, p.secret, DATA_SECRET);
	peer_say(&p, "{\"say\":\"open\",\"which\":9,\"name\":\"c\"}");
	peer_hear_word(&p, "opened");
	h.id = strtoull(strstr(p.line, "\"next\":") + 7, NULL, 10);
	snprintf(text, sizeof(text), "{\"say\":\"begin\",\"which\":9,\"next\":%llu}",
		 (unsigned long long)h.id);
	peer_say(&p, text);
	for (int i = 0; i < 2; i++)
		check_ok(share_send(ch, NULL, NULL, 0, NULL));
	peer_hear_content(&p, DATA_MESSAGE);
	peer_hear_content(&p, DATA_MESSAGE);
	/* as many as there is room for, and one */
	for (int i = 0; i < 3; i++)
		check_ok(share_send(ch, NULL, NULL, 0, NULL));
	check_eq(left_behind(ch), 1);
	h.id += 2;
	peer_send(&p, &h, BARE, NULL, 0);
	peer_hear_word(&p, "closed");
	until(bridge_said(&s.far_bridge, "has left the bridge behind") == 1);
	share_channel_close(ch);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

/* Asks for it, and is told that it comes in pieces. */
static void want(struct peer *p, const char *name, uint64_t id)
{
	char text[80];

	snprintf(text, sizeof(text), "{\"say\":\"want\",\"id\":%u,\"name\":\"%s\"}", (unsigned)id,
		 name);
	peer_say(p, text);
	peer_hear_word(p, "content");
	snprintf(text, sizeof(text), "{\"say\":\"ready\",\"id\":%u,\"take\":true}", (unsigned)id);
	peer_say(p, text);
	peer_hear_content(p, DATA_NAME);
}

/* No more pieces are sent than were heard here, so it is known what the bridge has begun. */
Test(bridge_hostile, what_is_large_does_not_hold_up_what_is_small)
{
	struct sides s;
	struct peer p;

	begin(&s);
	content_publish(s.far, "large", 32 * PIECE, 1);
	content_publish(s.far, "small", PIECE, 2);
	check(peer_connect(&p, &s));
	p.wants_pieces = true;
	peer_greet(&p);
	want(&p, "large", 1);
	want(&p, "small", 2);
	for (uint64_t number = 1; number <= 2; number++) {
		struct data_header h = {.kind = DATA_GO, .number = number};

		memcpy(h.secret, p.secret, DATA_SECRET);
		peer_send(&p, &h, BARE, NULL, 0);
	}
	while (p.pieces[2] == 0)
		peer_hear_content(&p, DATA_PIECE);
	check(p.pieces[1] < 32);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}
