/* SPDX-License-Identifier: MIT */

/*
 * Packets that no honest client sends, for every message of the table: cut off anywhere, with sizes
 * that lie, with descriptors, in the wrong order. Whoever sends one is told why and dropped; nobody
 * else notices, and the broker keeps nothing of it.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *witness;

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_packets, .init = start, .fini = stop, .timeout = 120);

/* Connected as far as this message needs it. */
static void open_for(struct raw *r, unsigned type)
{
	struct wire_message hello = {.type = WIRE_HELLO};

	raw_connect(r);
	if (type == WIRE_HELLO)
		return;
	hello.hello.version = hello.hello.oldest = WIRE_VERSION;
	raw_ask(r, &hello, WIRE_WELCOME);
	if (type != WIRE_READY)
		raw_ask(r, &(struct wire_message){.type = WIRE_READY}, WIRE_DONE);
}

/* A packet with this many bytes in each variable field; the fixed ones are zero. */
static size_t sample(unsigned type, uint32_t variable, unsigned char *out)
{
	const struct wire_description *d = wire_describe(type);
	size_t size = WIRE_HEADER_SIZE + (size_t)d->fixed_size, at = WIRE_HEADER_SIZE;

	memset(out, 0, size);
	memcpy(out, &(uint16_t){(uint16_t)type}, 2);
	memcpy(out + 2, &d->fixed_size, 2);
	memcpy(out + 4, &(uint32_t){77}, 4);
	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];
		uint32_t n = f->max < variable ? f->max : variable;

		if (f->max) {
			memcpy(out + at, &n, 4);
			memset(out + size, 'a', n);
			size += n;
		}
		at += f->size;
	}
	return size;
}

static void expect_dropped(struct raw *r)
{
	check_error(raw_farewell(r), SHARE_EPROTO);
	raw_close(r);
	check_ok(share_ping(witness));
}

#define FOR_EACH_REQUEST(type)                                  \
	for (unsigned type = 1; type < WIRE_TYPE_COUNT; type++) \
		if (wire_describe(type) && wire_describe(type)->direction == WIRE_TO_BROKER)

/* ------------------------------------------------------------------------------------------- */

Test(hostile_packets, a_message_cut_off_anywhere_is_the_last)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		size_t size = sample(type, 3, packet);

		for (size_t n = 1; n < size; n++) {
			open_for(&r, type);
			check_eq(raw_send_bytes(&r, packet, n, NULL, 0), 0);
			expect_dropped(&r);
		}
	}
	settle(witness, s.clients == 1);
}

Test(hostile_packets, an_empty_packet_is_a_hang_up)
{
	struct raw r;

	raw_open(&r, "raw");
	check(send(r.socket, "", 0, MSG_NOSIGNAL) == 0);
	check_eq(raw_farewell(&r), 0);
	raw_close(&r);
	check_ok(share_ping(witness));
}

Test(hostile_packets, a_field_larger_than_its_maximum_is_the_last)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		const struct wire_description *d = wire_describe(type);
		size_t at = WIRE_HEADER_SIZE;

		for (size_t i = 0; i < d->n_fields; at += d->fields[i++].size) {
			uint32_t max = d->fields[i].max;
			uint32_t sizes[] = {max + 1, 0x80000000, UINT32_MAX - 7, UINT32_MAX};

			for (size_t k = 0; max && k < sizeof(sizes) / sizeof(sizes[0]); k++) {
				size_t size = sample(type, 3, packet);

				memcpy(packet + at, &sizes[k], 4);
				/* as many bytes as fit behind it: it is not only too short */
				memset(packet + size, 'b', sizeof(packet) - size);
				open_for(&r, type);
				check_eq(raw_send_bytes(&r, packet, sizeof(packet), NULL, 0), 0);
				expect_dropped(&r);
			}
		}
	}
}

Test(hostile_packets, a_fixed_part_that_is_too_short_or_too_long_is_the_last)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		const struct wire_description *d = wire_describe(type);
		uint16_t sizes[] = {0xffff, 0x8000, (uint16_t)(d->fixed_size_min - 1), 0};

		for (size_t k = 0; k < 4; k++) {
			size_t size = sample(type, 3, packet);

			if (d->fixed_size_min == 0 && k >= 2)
				continue;
			memcpy(packet + 2, &sizes[k], 2);
			open_for(&r, type);
			check_eq(raw_send_bytes(&r, packet, size, NULL, 0), 0);
			expect_dropped(&r);
		}
	}
}

Test(hostile_packets, what_a_newer_client_says_more_is_ignored)
{
	unsigned char packet[256] = {WIRE_PING, 0, 24, 0, 9, 0, 0, 0};
	struct raw r;

	raw_open(&r, "newer one");
	check_eq(raw_send_bytes(&r, packet, 100, NULL, 0), 0);
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check(r.m.type == WIRE_DONE && r.m.serial == 9);
	raw_close(&r);
}

Test(hostile_packets, a_packet_larger_than_any_message_is_the_last)
{
	unsigned char *packet = calloc(1, 150000);
	struct raw r;

	packet[0] = WIRE_PING;
	packet[4] = 1;
	for (size_t size = WIRE_PACKET_MAX + 1; size <= 150000; size += 25000) {
		raw_open(&r, "raw");
		check_eq(raw_send_bytes(&r, packet, size, NULL, 0), 0);
		expect_dropped(&r);
	}
	free(packet);
}

Test(hostile_packets, an_unknown_type_or_one_of_the_brokers_own_is_the_last)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	for (unsigned type = 0; type < 0x10000; type = type < 300 ? type + 1 : type * 2 + 1) {
		const struct wire_description *d = wire_describe(type);
		size_t size = WIRE_HEADER_SIZE;

		if (d && d->direction == WIRE_TO_BROKER)
			continue;
		memset(packet, 0, size);
		if (d)
			size = sample(type, 3, packet);
		memcpy(packet, &(uint16_t){(uint16_t)type}, 2);
		raw_open(&r, "raw");
		check_eq(raw_send_bytes(&r, packet, size, NULL, 0), 0);
		expect_dropped(&r);
	}
}

/* ------------------------------------------------------------------------------------------- */

/* False when the broker has hung up already, or the kernel lets no descriptors in. */
static bool send_with_descriptors(struct raw *r, const void *data, size_t size, int fd, size_t n)
{
	char control[CMSG_SPACE(253 * sizeof(int))] = "";
	struct iovec iov = {(void *)(uintptr_t)data, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (size_t i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(int));
	return sendmsg(r->socket, &m, MSG_NOSIGNAL) == (ssize_t)size;
}

Test(hostile_packets, descriptors_that_nobody_asked_for_are_the_last)
{
	/* one, what fits, one more (MSG_CTRUNC), the most the kernel lets through */
	static const size_t counts[] = {1, 2, WIRE_FDS_MAX, WIRE_FDS_MAX + 1, 253};
	unsigned char packet[WIRE_PACKET_MAX];
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		size_t size = sample(type, 3, packet);

		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			open_for(&r, type);
			if (send_with_descriptors(&r, packet, size, fd, counts[i])) {
				expect_dropped(&r);
			} else {
				check_eq(errno, EPERM);
				raw_close(&r);
			}
		}
	}
	close(fd);
}

Test(hostile_packets, descriptors_with_nonsense_are_closed)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct raw r;

	for (int i = 0; i < 100; i++) {
		raw_connect(&r);
		for (int k = 0; k < 3; k++)
			send_with_descriptors(&r, "nonsense", 8, fd, WIRE_FDS_MAX);
		raw_send_bytes(&r, "nonsense", 8, NULL, 0);
		expect_dropped(&r);
	}
	close(fd);
}

/* ------------------------------------------------------------------------------------------- */

Test(hostile_packets, nothing_but_hello_is_understood_before_hello)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		if (type == WIRE_HELLO)
			continue;
		raw_connect(&r);
		check_eq(raw_send_bytes(&r, packet, sample(type, 3, packet), NULL, 0), 0);
		expect_dropped(&r);
	}
}

Test(hostile_packets, nothing_but_ready_is_understood_before_ready)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;

	FOR_EACH_REQUEST(type)
	{
		if (type == WIRE_READY)
			continue;
		open_for(&r, WIRE_READY);
		check_eq(raw_send_bytes(&r, packet, sample(type, 3, packet), NULL, 0), 0);
		expect_dropped(&r);
	}
}

Test(hostile_packets, hello_and_ready_are_said_once)
{
	struct raw r;

	raw_open(&r, "raw");
	check_eq(raw_send(&r, &(struct wire_message){.type = WIRE_HELLO, .serial = 5}), 0);
	expect_dropped(&r);
	raw_open(&r, "raw");
	check_eq(raw_send(&r, &(struct wire_message){.type = WIRE_READY, .serial = 5}), 0);
	expect_dropped(&r);
}

Test(hostile_packets, versions_without_one_in_common_are_refused)
{
	static const uint32_t versions[][2] = {
	    {0, 0},
	    {WIRE_VERSION + 1, WIRE_VERSION + 1},
	    {WIRE_VERSION, WIRE_VERSION + 1},
	    {0, 1},
	    {WIRE_VERSION_OLDEST - 1, 1},
	    {UINT32_MAX, UINT32_MAX},
	    {UINT32_MAX, WIRE_VERSION + 1},
	    {0, 5},
	};
	struct raw r;

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		struct wire_message hello = {.type = WIRE_HELLO};

		raw_connect(&r);
		hello.hello.version = versions[i][0];
		hello.hello.oldest = versions[i][1];
		raw_ask_error(&r, &hello, SHARE_EPROTO);
		expect_dropped(&r);
	}
}

Test(hostile_packets, a_newer_client_that_knows_our_version_gets_it)
{
	struct wire_message hello = {.type = WIRE_HELLO};
	struct raw r;

	raw_connect(&r);
	hello.hello.version = 1000;
	hello.hello.oldest = 1;
	hello.hello.label = (struct wire_bytes){"a\0b\xff\n", 5};
	hello.hello.unused = raw_text("features, as once was thought");
	raw_ask(&r, &hello, WIRE_WELCOME);
	check_eq(r.m.welcome.version, WIRE_VERSION);
	raw_close(&r);
}

Test(hostile_packets, an_older_client_is_spoken_to_in_its_version)
{
	struct wire_message hello = {.type = WIRE_HELLO};
	struct raw r;

	raw_connect(&r);
	hello.hello.version = hello.hello.oldest = WIRE_VERSION_OLDEST;
	raw_ask(&r, &hello, WIRE_WELCOME);
	check_eq(r.m.welcome.version, WIRE_VERSION_OLDEST);
	raw_close(&r);
}

Test(hostile_packets, a_request_needs_a_serial)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct raw r;
	size_t size;

	FOR_EACH_REQUEST(type)
	{
		if (type == WIRE_RELEASE || type == WIRE_EVENT_RELEASE ||
		    wire_describe(type)->reply == WIRE_NOTHING)
			continue;
		open_for(&r, type);
		size = sample(type, 3, packet);
		memset(packet + 4, 0, 4);
		check_eq(raw_send_bytes(&r, packet, size, NULL, 0), 0);
		expect_dropped(&r);
	}
}

static int64_t journal_size(void)
{
	json_t *rows = report(witness, "status");
	int64_t size = number_of(json_array_get(rows, 0), "journal_bytes");

	json_decref(rows);
	return size;
}

/* A serial asks for an answer, and to these there is none. What is asked for is kept until it is
 * answered, which would be for ever. */
Test(hostile_packets, what_has_no_answer_is_not_kept_for_one)
{
	static const enum wire_type types[] = {WIRE_CANCEL, WIRE_TRIMMED, WIRE_CHANNEL_STALLED};
	struct wire_message m = {.serial = 1000}, ping = {.type = WIRE_PING};
	int64_t before;
	struct raw r;

	raw_open(&r, "raw");
	before = journal_size();
	for (uint32_t i = 0; i < 60000; i++) {
		m.type = types[i % 3];
		m.serial++;
		check_eq(raw_send(&r, &m), 0);
		if (i % 64 == 0)
			raw_ask(&r, &ping, WIRE_DONE);
	}
	raw_ask(&r, &ping, WIRE_DONE);
	/* not one record for each; a few chunks it may take for others */
	check(journal_size() - before < 1 << 20);
	ping.type = WIRE_BYE;
	raw_ask(&r, &ping, WIRE_DONE);
	raw_close(&r);
}

/* What a newer client says more is not kept with what it asks for, which a hundred bytes are
 * charged for. */
Test(hostile_packets, what_waits_is_kept_as_it_was_understood)
{
	struct wire_message m = {.type = WIRE_LOOKUP, .serial = 1000}, ping = {.type = WIRE_PING};
	static unsigned char packet[WIRE_PACKET_MAX];
	int64_t before;
	struct raw r;

	raw_open(&r, "raw");
	before = journal_size();
	m.lookup.name = raw_text("nobody's");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	for (int i = 0; i < 100; i++) {
		m.serial++;
		check(wire_encode(&m, packet, sizeof(packet)) > 0);
		check_eq(raw_send_bytes(&r, packet, sizeof(packet), NULL, 0), 0);
		raw_ask(&r, &ping, WIRE_DONE);
	}
	check(journal_size() - before < 1 << 20);
	raw_close(&r);
}

Test(hostile_packets, what_is_said_after_goodbye_is_not_heard)
{
	struct wire_message bye = {.type = WIRE_BYE, .serial = 1},
			    alloc = {.type = WIRE_ALLOC, .serial = 2};
	struct raw r;

	raw_open(&r, "raw");
	alloc.alloc.pool = raw_pool(&r, "default");
	alloc.alloc.size = 1;
	/* in one go, so that the broker reads them together */
	broker_freeze();
	check_eq(raw_send(&r, &bye), 0);
	check_eq(raw_send(&r, &alloc), 0);
	check_eq(raw_send(&r, &bye), 0);
	broker_thaw();
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check(r.m.type == WIRE_DONE && r.m.serial == 1);
	check_eq(raw_farewell(&r), 0);
	raw_close(&r);
	settle(witness, s.clients == 1 && s.buffers == 0);
}

/* ------------------------------------------------------------------------------------------- */

/* What would end the connection by itself is said elsewhere. */
static bool ends_the_connection(unsigned type)
{
	return type == WIRE_BYE || type == WIRE_HELLO || type == WIRE_READY ||
	       type == WIRE_SEGMENT_RETIRED ||
	       type ==
		   WIRE_UPGRADE; /* which those in the middle of a handshake do not live through */
}

/* Well-formed on the outside: a type of the table, sizes that fit, and noise within. */
static size_t noise(unsigned *seed, unsigned char *out)
{
	const struct wire_description *d;
	unsigned type;
	size_t size;

	do {
		type = 1 + (unsigned)rand_r(seed) % (WIRE_TYPE_COUNT - 1);
		d = wire_describe(type);
	} while (!d || d->direction != WIRE_TO_BROKER || ends_the_connection(type));
	size = sample(type, (uint32_t)rand_r(seed) % 40, out);
	for (size_t i = 0, at = WIRE_HEADER_SIZE; i < d->n_fields; at += d->fields[i++].size)
		for (size_t k = 0; !d->fields[i].max && k < d->fields[i].size; k++)
			out[at + k] =
			    (unsigned char)(rand_r(seed) % 4 ? rand_r(seed) % 3 : rand_r(seed));
	for (int i = 0; i < 5; i++) {
		size_t at = WIRE_HEADER_SIZE + d->fixed_size;

		if (size > at)
			out[at + (size_t)rand_r(seed) % (size - at)] = (unsigned char)rand_r(seed);
	}
	return size;
}

static void makes_noise(struct child *self, void *data)
{
	unsigned char packet[WIRE_PACKET_MAX];
	unsigned seed = *(unsigned *)data;
	struct raw r;

	(void)self;
	for (int i = 0; i < 20; i++) {
		raw_open(&r, "noisy one");
		raw_alloc(&r, raw_pool(&r, "default"), 1000);
		for (int k = 0; k < 100; k++) {
			if (raw_send_bytes(&r, packet, noise(&seed, packet), NULL, 0) != 0)
				break;
			while (raw_receive(&r, 0) == RAW_MESSAGE)
				;
		}
		raw_hang_up(&r);
	}
}

Test(hostile_packets, noise_does_no_harm)
{
	for (unsigned seed = 1; seed <= 30; seed++) {
		child_finish(child_start(makes_noise, &seed));
		check_ok(share_ping(witness));
	}
}
