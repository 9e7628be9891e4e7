/* SPDX-License-Identifier: MIT */

/*
 * Seeds for the fuzzers: plays scripts against a real broker and records what goes over the socket,
 * in the form in which fuzz_broker, fuzz_journal and fuzz_client read it: without the numbers of
 * packets.
 *
 * usage: fuzz-seeds DIRECTORY; writes DIRECTORY/broker/..., DIRECTORY/journal/... and
 * DIRECTORY/client/...
 */

#include <string.h>
#include <sys/stat.h>

#include <share/channel.h>

#include "pages/channel_page.h"
#include "tests/themes/fuzz/fuzz.h"
#include "tests/themes/fuzz/script.h"
#include "wire/packet.h"

#define RECORD_MAX  (1 << 18)
#define PLACEHOLDER 0xee
#define PEER        77

/* As fuzz_client has them. A member's page is the same for all. */
#define CONTROL_PAGE         6
#define DOORBELL             7
#define CHANNEL_PAGE(member) ((uint8_t)(16 + (member) % 16))

struct recording {
	unsigned char bytes[RECORD_MAX];
	size_t size;
	size_t last; /* record, to the client; 0: none since the last packet that was sent */
};

static struct recording to_broker, to_broker_of_two, to_client, to_client_of_peer;
static bool greeted, peer_known;

int __real_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __real_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);
int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);

static void add(struct recording *r, const void *data, size_t size)
{
	expect(size <= RECORD_MAX - r->size);
	if (size > 0)
		memcpy(r->bytes + r->size, data, size);
	r->size += size;
}

static void add_record(struct recording *r, uint8_t head, const void *data, size_t size)
{
	add(r, &head, 1);
	add(r, &(uint16_t){(uint16_t)size}, 2);
	add(r, data, size);
}

/* Not what the scripts did, but what a fuzzer would find only by chance. */
static void add_event(struct recording *r, uint8_t head, uint16_t how_much)
{
	add(r, &head, 1);
	add(r, &how_much, 2);
}

/* What was signaled on a timeline, as the broker may see it some time later. */
static void add_signal(struct recording *r, uint64_t timeline, uint64_t value)
{
	unsigned char poke[9] = {(unsigned char)WIRE_TIMELINE_SLOT(timeline)};

	memcpy(poke + 1, &value, sizeof(value));
	if (timeline)
		add_record(r, 9, poke, sizeof(poke));
}

static void sent(const void *data, size_t size)
{
	unsigned char copy[WIRE_PACKET_MAX];
	struct wire_message m;

	memcpy(copy, data, size);
	expect(wire_decode(&m, WIRE_TO_BROKER, copy, size, 0) == 0);
	if (m.type == WIRE_HELLO || m.type == WIRE_READY)
		return; /* the fuzzer's own */
	/* the token is the variable field of these, and the last thing in them */
	if (m.type == WIRE_IMPORT || m.type == WIRE_REVOKE)
		memset(copy + size - 32, PLACEHOLDER, 32);
	add_record(&to_broker, 0, copy, size);
	add_record(&to_broker_of_two, 0, copy, size);
	/* the other recording is of two clients, one of which does what it can without leases */
	if (m.type == WIRE_LOOKUP || m.type == WIRE_IMPORT || m.type == WIRE_WATCH ||
	    m.type == WIRE_POOL_OPEN || m.type == WIRE_QUERY || m.type == WIRE_ALLOC)
		add_record(&to_broker_of_two, 1 << 4, copy, size);
	if (m.type == WIRE_RELEASE)
		add_signal(&to_broker_of_two, m.release.timeline, m.release.value);
	if (m.type == WIRE_PUBLISH)
		add_signal(&to_broker_of_two, m.publish.timeline, m.publish.value);
	if (m.type == WIRE_LOOKUP || m.type == WIRE_EXPORT)
		add_event(&to_broker_of_two, 14, 15); /* milliseconds */
	if (m.type == WIRE_PING) {
		add_event(&to_broker_of_two, 13, 0); /* stops reading */
		for (int i = 0; i < 12; i++)
			add_record(&to_broker_of_two, 0, copy, size);
		add_event(&to_broker_of_two, 13, 0);
	}
}

/* With what came since the last packet that was sent: perhaps nothing. */
static void end_answer(struct recording *r)
{
	if (r->last)
		r->bytes[r->last] &= 0xfe;
	else if (greeted)
		add_record(r, 0, NULL, 0);
	r->last = 0;
}

int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait)
{
	int r = __real_packet_send(socket, data, size, fds, n_fds, wait);

	if (r != 0)
		return r;
	sent(data, size);
	end_answer(&to_client);
	end_answer(&to_client_of_peer);
	greeted = true;
	return r;
}

static void received(struct recording *r, const void *data, size_t size, const uint8_t *kinds,
		     size_t n_fds)
{
	r->last = r->size;
	add(r, &(uint8_t){(uint8_t)(n_fds << 1 | 1)}, 1);
	add(r, &(uint16_t){(uint16_t)size}, 2);
	add(r, kinds, n_fds);
	add(r, data, size);
}

/* The same with a fence of some other process before each buffer. */
static void received_of_peer(struct wire_message *m, uint8_t *kinds, size_t n_fds)
{
	static const struct wire_fence fence = {WIRE_TIMELINE(PEER, 3), 5};
	static const uint64_t page = PEER;
	unsigned char packet[WIRE_PACKET_MAX];

	if (m->type == WIRE_GRANT) {
		m->grant.fences = (struct wire_bytes){&fence, sizeof(fence)};
		if (!peer_known) {
			m->grant.pages = (struct wire_bytes){&page, sizeof(page)};
			kinds[n_fds++] = 1;
			kinds[n_fds++] = 2;
		}
		peer_known = true;
	}
	received(&to_client_of_peer, packet, wire_encode(m, packet, sizeof(packet)), kinds, n_fds);
}

static void kinds_of_members(const struct wire_channel_members *m, uint8_t *kinds)
{
	struct wire_member member;

	for (size_t at = 0; at < m->members.size; at += sizeof(member)) {
		memcpy(&member, (const unsigned char *)m->members.data + at, sizeof(member));
		if (!(member.flags & WIRE_MEMBER_NEW))
			continue;
		*kinds++ = CHANNEL_PAGE(member.member);
		*kinds++ = 2;
		*kinds++ = DOORBELL;
	}
}

int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait)
{
	int r = __real_packet_receive(socket, data, size, fds, wait);
	struct wire_message m;
	uint8_t kinds[WIRE_FDS_MAX] = {0};
	size_t message, segment;
	uint64_t number;

	if (r != 0)
		return r;
	message = *size;
	expect(wire_take_number(data, &message, &number) == 0);
	expect(wire_decode(&m, WIRE_TO_CLIENT, data, message, fds->n) == 0);
	if (m.type == WIRE_CHANNEL) {
		kinds[0] = CHANNEL_PAGE(m.channel.member);
		kinds[1] = CONTROL_PAGE;
		kinds[2] = DOORBELL;
	} else if (m.type == WIRE_CHANNEL_MEMBERS) {
		kinds_of_members(&m.channel_members, kinds);
	} else if (m.type != WIRE_RECIPE) {
		segment = m.type == WIRE_GRANT && m.grant.flags & WIRE_GRANT_SEGMENT;
		for (size_t i = segment; i < fds->n; i++)
			kinds[i] = (uint8_t)(1 + (i - segment) % 2);
	}
	received(&to_client, data, message, kinds, fds->n);
	received_of_peer(&m, kinds, fds->n);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Two members of a channel and what they write into their pages, for the broker to look at. Their
 * identifiers are those that a new broker gives. */

#define POOL     1
#define PRODUCER 1
#define CONSUMER 2
#define BUFFER   (UINT64_C(1) << 32)
#define SEGMENT  (UINT64_C(1) << 32)

static const struct channel_shape shape = {
    .mode = CHANNEL_QUEUE,
    .when_full = SHARE_FULL_BLOCK,
    .depth = 2,
    .in_flight = 4,
    .data_max = 64,
    .rows = 2,
    .consumers = 2,
    .deliveries = 2,
};

static void say(uint8_t who, struct wire_message m)
{
	unsigned char packet[1024];

	m.serial = wire_describe(m.type)->reply == WIRE_NOTHING ? 0 : 7;
	add_record(&to_broker, (uint8_t)(who << 4), packet,
		   wire_encode(&m, packet, sizeof(packet)));
}

static void join(uint8_t who, uint32_t role, uint64_t member)
{
	struct wire_message m = {.type = WIRE_CHANNEL_OPEN};

	m.channel_open = (struct wire_channel_open){
	    .role = role,
	    .mode = shape.mode,
	    .depth = shape.depth,
	    .in_flight = shape.in_flight,
	    .data_max = shape.data_max,
	    .producers = 1,
	    .consumers = shape.consumers,
	    .name = {"c", 1},
	};
	say(who, m);
	m = (struct wire_message){.type = WIRE_CHANNEL_READY, .channel_ready = {.member = member}};
	say(who, m);
}

static void poke(uint8_t who, const void *page, const void *at, const void *data, size_t size)
{
	unsigned char bytes[64];
	uint32_t offset = (uint32_t)((const unsigned char *)at - (const unsigned char *)page);

	memcpy(bytes, &offset, sizeof(offset));
	memcpy(bytes + sizeof(offset), data, size);
	add_record(&to_broker, (uint8_t)(who << 4 | 7), bytes, sizeof(offset) + size);
}

static void send_and_acknowledge(void)
{
	static _Alignas(64) unsigned char page[1 << 16];
	const struct channel_ticket ticket = {.buffer = BUFFER, .version = 1};
	const uint64_t consumer = CONSUMER, producer = PRODUCER,
		       ack[2] = {UINT64_C(1) << 32 | 3, 2};
	struct channel_row *row = channel_row_at(page, &shape, 0);

	expect(channel_ring_size(&shape, CHANNEL_WITH_COPIES) <= sizeof(page) &&
	       channel_ledger_size(&shape) <= sizeof(page));
	poke(0, page, channel_ticket_at(page, &shape, 0), &ticket, sizeof(ticket));
	poke(0, page, channel_admission_at(page, &shape, 0), &consumer, sizeof(consumer));
	poke(1, page, row, &producer, sizeof(producer));
	poke(1, page, &row->acks[0], ack, sizeof(ack));
}

/* One that the consumer has, and one that waits. */
static void send_with_copies(void)
{
	static _Alignas(64) unsigned char page[1 << 16];
	const uint64_t consumer = CONSUMER;

	poke(0, page, channel_admission_at(page, &shape, 0), &consumer, sizeof(consumer));
	for (uint32_t i = 0; i < 2; i++) {
		const struct channel_ticket ticket = {.buffer = i ? CHANNEL_NO_BUFFER : BUFFER,
						      .version = 1};
		struct channel_entry copy = {
		    .number = i,
		    .buffer = i ? 0 : BUFFER,
		    .size_deliveries = CHANNEL_PACK(0, 1),
		    .version = 1,
		};

		copy.sequence = i == 0;
		poke(0, page, channel_copy_at(page, &shape, i), &copy, 60);
		poke(0, page, channel_ticket_at(page, &shape, i), &ticket, sizeof(ticket));
	}
}

static void fetch(uint32_t had)
{
	say(1, (struct wire_message){
		   .type = WIRE_CHANNEL_SYNC,
		   .channel_sync = {CONSUMER, .flags = WIRE_CHANNEL_SYNC_FETCH, .had = had}});
}

static void play_orphans(bool acknowledges)
{
	static _Alignas(64) unsigned char page[1 << 16];
	struct channel_row *row = channel_row_at(page, &shape, 0);
	const uint64_t producer = PRODUCER, ack[2] = {UINT64_C(1) << 32, 0};

	to_broker.size = 0;
	say(0,
	    (struct wire_message){.type = WIRE_POOL_OPEN, .pool_open = {.name = {"default", 7}}});
	join(0, SHARE_PRODUCER, PRODUCER);
	join(1, SHARE_CONSUMER, CONSUMER);
	say(0, (struct wire_message){.type = WIRE_ALLOC, .alloc = {.pool = POOL, .size = 100}});
	send_with_copies();
	say(0, (struct wire_message){.type = WIRE_CHANNEL_CLOSE, .channel_close = {PRODUCER}});
	fetch(0);
	fetch(0);
	poke(1, page, row, &producer, sizeof(producer));
	if (acknowledges)
		poke(1, page, &row->acks[0], ack, sizeof(ack));
	fetch(1);
	add_event(&to_broker, 14, 60); /* milliseconds */
	say(1, (struct wire_message){.type = WIRE_CHANNEL_CLOSE, .channel_close = {CONSUMER}});
	join(1, SHARE_CONSUMER, CONSUMER + 1);
	say(1, (struct wire_message){.type = WIRE_DROP,
				     .drop = {.what = WIRE_DROP_MESSAGES, .channel = {"c", 1}}});
}

static void play_channel(bool closes)
{
	to_broker.size = 0;
	say(0,
	    (struct wire_message){.type = WIRE_POOL_OPEN, .pool_open = {.name = {"default", 7}}});
	join(0, SHARE_PRODUCER, PRODUCER);
	join(1, SHARE_CONSUMER, CONSUMER);
	say(0, (struct wire_message){.type = WIRE_CHANNEL_SYNC, .channel_sync = {PRODUCER}});
	say(1, (struct wire_message){.type = WIRE_CHANNEL_SYNC, .channel_sync = {CONSUMER}});
	say(0, (struct wire_message){.type = WIRE_ALLOC, .alloc = {.pool = POOL, .size = 100}});
	send_and_acknowledge();
	say(1, (struct wire_message){.type = WIRE_CHANNEL_SEGMENT,
				     .channel_segment = {CONSUMER, SEGMENT}});
	say(1, (struct wire_message){.type = WIRE_CHANNEL_RETAIN,
				     .channel_retain = {CONSUMER, PRODUCER, BUFFER, 50}});
	say(1, (struct wire_message){.type = WIRE_CHANNEL_METADATA,
				     .channel_metadata = {CONSUMER, PRODUCER, BUFFER}});
	say(0, (struct wire_message){.type = WIRE_CHANNEL_ABANDON,
				     .channel_abandon = {PRODUCER, CONSUMER, {"\377", 1}}});
	if (closes)
		say(0,
		    (struct wire_message){.type = WIRE_CHANNEL_CLOSE, .channel_close = {PRODUCER}});
	else
		add_event(&to_broker, 11, 0); /* it dies */
	say(1, (struct wire_message){.type = WIRE_CHANNEL_SYNC, .channel_sync = {CONSUMER}});
	say(1, (struct wire_message){.type = WIRE_QUERY, .query = {.what = {"channels", 8}}});
	say(1, (struct wire_message){.type = WIRE_CHANNEL_DRAINED,
				     .channel_drained = {CONSUMER, PRODUCER}});
	say(1, (struct wire_message){.type = WIRE_CHANNEL_CLOSE, .channel_close = {CONSUMER}});
	add_event(&to_broker, 14, 60); /* milliseconds */
	add_event(&to_broker, 1 << 4 | 10, 0);
}

/* ------------------------------------------------------------------------------------------- */

/* @first: flags, or a number of calls that follow. */
static void write_seed(const char *directory, const char *kind, const char *name, int first,
		       const uint8_t *calls, const struct recording *r)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, kind);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", directory, kind, name);
	file = fopen(path, "wb");
	if (!file) {
		perror(path);
		exit(1);
	}
	fputc(first, file);
	if (calls)
		fwrite(calls, 1, (size_t)first, file);
	fwrite(r->bytes, 1, r->size, file);
	if (strcmp(kind, "journal") == 0)
		fputc(0, file); /* damages */
	fclose(file);
}

static void write_broker_seed(const char *directory, const char *name, int flags,
			      const struct recording *r)
{
	write_seed(directory, "broker", name, flags, NULL, r);
	write_seed(directory, "journal", name, flags, NULL, r);
}

static void record(const char *directory, const char *name, const uint8_t *calls, size_t n)
{
	char other[256];
	share_client *c;

	to_broker.size = to_broker_of_two.size = to_client.size = to_client_of_peer.size = 0;
	to_client.last = to_client_of_peer.last = 0;
	greeted = peer_known = false;
	expect(share_connect("embedded", &c) == 0);
	script_run(c, calls, n);
	share_ping(c); /* an embedded broker is not told goodbye */
	write_seed(directory, "client", name, (int)n, calls, &to_client);
	write_broker_seed(directory, name, 1 << 5 | 1 << 6, &to_broker);
	snprintf(other, sizeof(other), "%s-of-two", name);
	write_broker_seed(directory, other, 1 << 6, &to_broker_of_two);
	snprintf(other, sizeof(other), "%s-of-peer", name);
	write_seed(directory, "client", other, (int)n, calls, &to_client_of_peer);
	share_disconnect(c);
}

#define C(call, which) SCRIPT(SCRIPT_##call, which)
#define M(call, which) SCRIPT(SCRIPT_MORE, 0), SCRIPT(MORE_##call, which)
#define SEED(name, ...)                                       \
	record(argv[1], name, (const uint8_t[]){__VA_ARGS__}, \
	       sizeof((const uint8_t[]){__VA_ARGS__}))

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
		return 2;
	}
	SEED("ping", C(PING, 0), C(DISPATCH, 0), M(GET_FD, 0), C(DISPATCH, 0), M(ADMIN, 0),
	     M(ADMIN, 1), M(ADMIN, 7), C(PING, 0));
	SEED("alloc", C(POOL_OPEN, 0), C(ALLOC, 0), C(TOUCH, 0), C(ALLOC, 0), C(RELEASE, 0),
	     C(ALLOC, 0), C(RELEASE, 1), C(RELEASE, 2), C(POOL_CLOSE, 0));
	SEED("pools", C(POOL_CREATE, 1), C(POOL_CREATE, 2), C(POOL_CREATE, 1), C(ALLOC, 1),
	     C(ALLOC, 2), C(POOL_DESTROY, 1), C(ALLOC, 1), C(POOL_CLOSE, 1), C(RELEASE, 0),
	     C(RELEASE, 1), C(POOL_DESTROY, 2), C(POOL_OPEN, 2), C(PING, 0), C(DISPATCH, 0));
	SEED("retire", C(POOL_CREATE, 1), C(ALLOC, 1), C(ALLOC, 1), C(RELEASE, 0), C(RELEASE, 1),
	     C(PING, 0), C(DISPATCH, 0), C(ALLOC, 1), C(PING, 0));
	SEED("names", C(POOL_OPEN, 0), C(ALLOC, 0), C(PUBLISH, 0), C(LOOKUP, 0), C(LOOKUP, 1),
	     C(TOUCH, 1), C(PUBLISH, 1), C(UNPUBLISH, 0), C(LOOKUP, 0), C(LIST, 0), C(STATUS, 1),
	     C(UNPUBLISH, 7));
	SEED("replace", C(POOL_OPEN, 0), C(ALLOC, 0), C(PUBLISH_IF, 0), C(LOOKUP, 0), C(ALLOC, 0),
	     C(PUBLISH_IF, 1), C(PUBLISH_IF, 2), C(PUBLISH, 2), C(LOOKUP, 2), C(LIST, 1),
	     C(PUBLISH_IF, 3));
	SEED("wait", C(POOL_OPEN, 0), C(LOOKUP_WAIT, 0), C(LOOKUP_ASYNC, 1), C(ALLOC, 0),
	     C(PUBLISH, 0), C(LOOKUP_ASYNC, 0), C(DISPATCH, 0), C(CANCEL, 1), C(CANCEL, 0));
	SEED("async", C(POOL_OPEN, 0), C(LOOKUP_ASYNC, 0), C(LOOKUP_ASYNC, 3), C(LOOKUP_ABANDON, 2),
	     C(ALLOC, 0), C(PUBLISH, 0), C(DISPATCH, 0), C(CANCEL, 3), C(LOOKUP_ABANDON, 0),
	     C(PING, 0), C(DISPATCH, 0));
	SEED("watch", C(WATCH, 0), C(WATCH, 1), C(POOL_OPEN, 0), C(ALLOC, 0), C(ALLOC, 0),
	     C(PUBLISH, 0), C(PUBLISH, 1), C(PUBLISH, 1), C(DISPATCH, 0), C(PING, 0),
	     C(UNPUBLISH, 0), C(UNWATCH, 0), C(UNPUBLISH, 1), C(DISPATCH, 0), C(UNWATCH, 1));
	SEED("tokens", C(POOL_OPEN, 0), C(ALLOC, 0), C(EXPORT, 0), C(IMPORT, 0), C(IMPORT, 1),
	     C(REVOKE, 0), C(IMPORT, 0), C(EXPORT, 0), C(REVOKE, 0), C(REVOKE, 0), C(ALLOC, 0),
	     C(ALLOC, 0), C(ALLOC, 0), C(EXPORT, 4), C(IMPORT, 0), C(EXPORT, 5));
	SEED("metadata", C(POOL_OPEN, 0), C(ALLOC, 0), C(ALLOC, 0), C(ALLOC, 0), C(METADATA_GET, 0),
	     C(METADATA_SET, 1), C(METADATA_GET, 1), C(METADATA_SET, 0), C(TENSOR_GET, 0),
	     C(TENSOR_SET, 1), C(TENSOR_GET, 1), C(METADATA_SET, 1), C(TENSOR_SET, 2),
	     C(TENSOR_GET, 2), C(METADATA_GET, 2), C(RELEASE, 1));
	SEED("lent", C(POOL_OPEN, 0), M(CHANNEL_OPEN, 0), M(CHANNEL_OPEN, 1), C(ALLOC, 0),
	     C(ALLOC, 0), C(METADATA_SET, 1), M(SEND, 1), M(RECV, 5), C(METADATA_GET, 5),
	     C(TENSOR_GET, 5), M(ACK, 5), C(METADATA_GET, 5));
	SEED("reports", C(POOL_CREATE, 1), C(ALLOC, 1), C(PUBLISH, 0), C(EXPORT, 0), C(INSPECT, 0),
	     C(INSPECT, 1), C(INSPECT, 2), C(INSPECT, 3), C(INSPECT, 4), C(INSPECT, 5),
	     C(INSPECT, 7));
	SEED("streams", C(POOL_OPEN, 3), C(POOL_OPEN, 0), C(STREAM, 0), C(POOL_CREATE, 3),
	     C(ALLOC, 3), C(RELEASE, 0), C(ALLOC, 3), C(PUBLISH, 2), C(RELEASE, 1), C(LOOKUP, 2),
	     C(FENCE, 1), C(FENCE, 2), C(FENCE, 4), C(STREAM, 1), C(STATUS, 1));
	SEED("gates", C(POOL_OPEN, 0), C(STREAM, 0), C(ALLOC, 0), C(ALLOC, 0), C(ALLOC, 0),
	     C(RELEASE, 1), C(ALLOC, 0), C(FENCE, 1), C(FENCE, 3), C(RELEASE, 3), C(ALLOC, 0),
	     C(ALLOC, 0), C(RELEASE, 5), C(EXPORT, 2), C(IMPORT, 2), C(RELEASE, 6));
	SEED("fences", C(STREAM, 0), C(FENCE, 6), C(FENCE, 2), C(FENCE, 4), C(FENCE, 7),
	     C(FENCE, 3), C(FENCE, 2), C(STREAM, 1), C(FENCE, 0), C(FENCE, 4));
	SEED("try", C(POOL_OPEN, 0), M(CACHE, 0), M(TRY, 0), M(COPY, 0), M(COPY, 7), C(ALLOC, 0),
	     C(RELEASE, 1), M(TRY, 0), M(COPY, 1), C(RELEASE, 0), C(PUBLISH, 1), M(BUFFER_WATCH, 1),
	     C(STATUS, 1), C(DISPATCH, 0));
	SEED("events", M(EVENT, 0), M(EVENT, 3), M(EVENT, 2), M(EVENT, 1), M(EVENT, 4), M(EVENT, 5),
	     M(EVENT, 6), C(PING, 0));
	SEED("broadcast", C(POOL_OPEN, 0), M(CHANNEL_OPEN, 0), M(CHANNEL_OPEN, 1), C(ALLOC, 0),
	     M(SEND, 0), M(RECV, 0), M(RETAIN, 0), M(ACK, 0), M(SEND_MANY, 0), M(RECV_MANY, 2),
	     M(ACK_MANY, 2), M(CHANNEL_LOOK, 0), M(CHANNEL_LOOK, 1), M(GIVE, 0), M(TRY_RECV, 4),
	     M(CHANNEL_CLOSE, 0), M(TRY_ACK, 4), M(RECV, 5), M(CHANNEL_CLOSE, 1));
	SEED("broadcast-full", C(POOL_OPEN, 0), M(CHANNEL_OPEN, 0), M(CHANNEL_OPEN, 1), C(ALLOC, 0),
	     M(SEND, 0), M(SEND, 0), M(SEND, 0), M(SEND, 0), M(RECV, 0), M(SEND, 7),
	     M(CHANNEL_CLOSE, 1), M(FLUSH, 0), M(ACK, 0), M(RECV, 1), M(CHANNEL_OPEN, 1),
	     M(SEND, 0), M(RECV, 1));
	SEED("queue", C(POOL_OPEN, 0), M(CHANNEL_OPEN, 2), C(ALLOC, 0), M(SEND, 0), M(SEND, 0),
	     M(CHANNEL_OPEN, 3), M(RECV, 0), M(CHANNEL_CLOSE, 3), M(CHANNEL_OPEN, 3), M(RECV, 1),
	     M(RECV, 2), M(FLUSH, 0), M(ACK, 0), M(ACK, 1), M(ACK, 2), M(TAKE_BACK, 3),
	     M(FLUSH, 0));
	SEED("drops", C(POOL_OPEN, 0), M(CHANNEL_OPEN, 4), M(CHANNEL_OPEN, 5), C(ALLOC, 0),
	     M(SEND, 0), M(SEND, 0), M(SEND, 0), M(RECV, 0), M(SEND, 0), M(SEND, 0), M(SEND, 0),
	     M(RECV, 1), M(RECV, 2), M(ACK, 0), M(CHANNEL_LOOK, 4));
	SEED("service", C(POOL_OPEN, 0), M(SERVICE_OPEN, 1), M(SERVICE_OPEN, 0), C(ALLOC, 0),
	     M(CALL_START, 0), M(NEXT_REQUEST, 1), M(SERVICE_LOOK, 1), M(REPLY, 1),
	     M(CALL_FINISH, 0), C(ALLOC, 0), M(CALL_START, 1), M(CALL_CANCEL, 1),
	     M(NEXT_REQUEST, 2), M(ACK, 2), M(CALL, 3), M(SERVICE_LOOK, 0), M(SERVICE_CLOSE, 1),
	     M(SERVICE_CLOSE, 0));
	SEED("service-left", C(POOL_OPEN, 0), M(SERVICE_OPEN, 0), M(CALL_START, 1),
	     M(SERVICE_OPEN, 1), M(NEXT_REQUEST, 3), M(SERVICE_CLOSE, 1), M(CALL_FINISH, 1),
	     M(ACK, 3), M(SERVICE_OPEN, 1), M(CALL_START, 2), M(NEXT_REQUEST, 1), M(REPLY, 1),
	     M(SERVICE_CLOSE, 0));
	play_channel(true);
	write_broker_seed(argv[1], "channel-closed", 1 << 6, &to_broker);
	play_channel(false);
	write_broker_seed(argv[1], "channel-dead", 1 << 6, &to_broker);
	play_orphans(true);
	write_broker_seed(argv[1], "orphan-acknowledged", 1 << 6, &to_broker);
	play_orphans(false);
	write_broker_seed(argv[1], "orphan-lost", 1 << 6, &to_broker);
	return 0;
}
