/* SPDX-License-Identifier: MIT */

/*
 * Members of a channel that turn against the others with what they rightly have: their own
 * doorbell, their own pages, and a word about somebody else's buffer.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

#define IN_FLIGHT 128

static share_client *witness;

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\","
	    "  \"segment_size\": \"1MiB\", \"release_threshold\": 0}],"
	    " \"limits\": {\"fences\": 16, \"channels\": 6}}");
	witness = connect_as("witness");
}

static void stop(void)
{
	if (!check_has_failed())
		settle(witness, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(channel_bad_member, .init = start, .fini = stop, .timeout = 60);

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static int64_t estate_buffers(const char *channel)
{
	json_t *rows = report(witness, "channels");
	const json_t *row = row_named(rows, "channel", channel);
	int64_t n = row ? number_of(row, "kept_buffers") : -1;

	json_decref(rows);
	return n;
}

static int64_t channels(void)
{
	json_t *rows = report(witness, "channels");
	int64_t n = (int64_t)json_array_size(rows);

	json_decref(rows);
	return n;
}

/* ------------------------------------------------------------------------------------------- */
/* Doorbells                                                                                   */

/* How often it has rung since. */
static uint64_t count_of(const struct party *p)
{
	char path[64], line[128];
	uint64_t count = 0;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", p->bell);
	info = fopen(path, "re");
	check(info);
	while (fgets(line, sizeof(line), info))
		sscanf(line, "eventfd-count: %" SCNx64, &count);
	fclose(info);
	check(count > 0);
	return count;
}

Test(channel_bad_member, a_member_has_no_socket_that_strangers_could_find)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *consumer, *producer;
	struct sockaddr_un address;

	check_ok(share_channel_open(witness, "c", SHARE_CONSUMER, &options, &consumer));
	check_ok(share_channel_open(witness, "c", SHARE_PRODUCER, &options, &producer));
	for (int fd = 3; fd < 256; fd++) {
		socklen_t size = sizeof(address);
		struct stat st;

		if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) ||
		    getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
		    address.sun_family != AF_UNIX)
			continue;
		check_eq(size, offsetof(struct sockaddr_un, sun_path));
	}
	share_channel_close(producer);
	share_channel_close(consumer);
	settle(witness, s.leases == 0);
}

/* All that can be done to a bell by who has it. */
static void spoil(int bell)
{
	char control[CMSG_SPACE(sizeof(int))] = "";
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	eventfd_t taken;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	check(sendmsg(bell, &m, MSG_NOSIGNAL) < 0 && errno == ENOTSOCK);
	check(shutdown(bell, SHUT_RDWR) < 0 && errno == ENOTSOCK);
	/* so full that nothing more goes in */
	check(fcntl(bell, F_SETFL, O_NONBLOCK) == 0);
	for (int i = 63; i >= 0; i--)
		while (eventfd_write(bell, UINT64_C(1) << i) == 0)
			;
	check_eq(errno, EAGAIN);
	/* whoever had to wait for room would do so for ever */
	check(fcntl(bell, F_SETFL, 0) == 0);
	for (int i = 0; i < 1000; i++)
		check(eventfd_read(bell, &taken) == 0 && taken == 1);
	check(fcntl(bell, F_SETFL, O_NONBLOCK) == 0);
	while (eventfd_write(bell, 1) == 0)
		;
	check(fcntl(bell, F_SETFL, 0) == 0);
}

Test(channel_bad_member, a_bell_that_one_has_spoilt_is_heard_when_others_ring)
{
	struct party bad, good, late, c;
	struct raw r, others;
	struct listing l;
	eventfd_t one;
	int bell;

	raw_open(&r, "consumer");
	raw_open(&others, "producers");
	party_join(&c, &r, "c", SHARE_CONSUMER);
	party_join(&bad, &others, "c", SHARE_PRODUCER);
	party_join(&good, &others, "c", SHARE_PRODUCER);
	party_sync(&bad, &l);
	check_eq(others.fds.n, 3);
	bell = fd_list_take(&others.fds, 2);
	fd_list_close(&others.fds);
	party_sync(&good, &l);
	check_eq(others.fds.n, 3);
	for (int i = 0; i < 100; i++) {
		spoil(bell);
		party_was_rung(&c);
		check(eventfd_read(others.fds.fds[2], &one) == 0);
		check(party_was_rung(&c));
		check(!party_was_rung(&c));
		/* it takes what there is, before it is heard */
		check(eventfd_read(others.fds.fds[2], &one) == 0);
		for (int k = 0; k < 100; k++)
			check(eventfd_read(bell, &one) == 0);
		check(party_was_rung(&c));
	}
	fd_list_close(&others.fds);
	fd_close(bell);
	/* nor does the broker wait for it */
	party_join(&late, &others, "c", SHARE_PRODUCER);
	party_wait_for_ring(&c);
	check_ok(share_ping(witness));
	party_close(&late);
	party_close(&good);
	party_close(&bad);
	party_sync(&c, &l);
	for (uint32_t i = 0; i < l.n; i++)
		party_drained(&c, l.members[i].member);
	fd_list_close(&r.fds);
	party_close(&c);
	goodbye(&others);
	goodbye(&r);
}

/* Five memberships, and a connection that ends with all of them. */
static void hangs_up(struct child *self, void *data)
{
	struct party p[5];
	struct raw r;

	(void)data;
	raw_open(&r, "producers");
	for (int i = 0; i < 5; i++)
		party_join(&p[i], &r, "c", SHARE_PRODUCER);
	raw_alloc(&r, raw_pool(&r, "default"), 4096); /* so that it is not over with that */
	child_point(self, "joined");
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(channel_bad_member, one_that_leaves_in_many_places_at_once_rings_once)
{
	struct child *child;
	struct listing l;
	struct party c;
	struct raw r;
	uint64_t count;

	raw_open(&r, "consumer");
	party_join(&c, &r, "c", SHARE_CONSUMER);
	child = child_start(hangs_up, NULL);
	child_wait(child, "joined");
	count = count_of(&c);
	child_go(child);
	child_wait(child, "hung up");
	settle(witness, s.quarantined == 1);
	check_eq(count_of(&c), count - 1);
	check(party_was_rung(&c));
	party_sync(&c, &l);
	check_eq(l.n, 5);
	for (uint32_t i = 0; i < l.n; i++)
		check_eq(l.members[i].state, WIRE_MEMBER_LEFT);
	fd_list_close(&r.fds);
	child_kill(child);
	settle(witness, s.clients == 2);
	party_close(&c);
	goodbye(&r);
}

/* ------------------------------------------------------------------------------------------- */
/* What others have                                                                            */

static void retain(struct party *consumer, const struct party *producer, uint64_t buffer,
		   uint64_t size)
{
	struct wire_message m = {.type = WIRE_CHANNEL_RETAIN};

	m.channel_retain.member = consumer->id;
	m.channel_retain.producer = producer->id;
	m.channel_retain.buffer = buffer;
	m.channel_retain.size = size;
	raw_ask(consumer->r, &m, WIRE_GRANT);
	fd_list_close(&consumer->r->fds);
}

static void release(struct raw *r, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(r, &m, WIRE_DONE);
}

static void publish(struct raw *r, uint64_t buffer, uint64_t size, uint32_t flags)
{
	struct wire_message m = {.type = WIRE_PUBLISH};

	m.publish.buffer = buffer;
	m.publish.size = size;
	m.publish.flags = flags;
	m.publish.name = raw_text("name");
	raw_ask(r, &m, WIRE_PUBLISHED);
}

static uint64_t size_of_name(struct raw *r)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	uint64_t size;

	m.lookup.mode = SHARE_RDONLY;
	m.lookup.name = raw_text("name");
	raw_ask(r, &m, WIRE_GRANT);
	fd_list_close(&r->fds);
	size = r->m.grant.size;
	release(r, r->m.grant.buffer);
	return size;
}

Test(channel_bad_member, a_consumer_that_lies_about_a_size_makes_no_buffer_smaller_for_others)
{
	struct raw r, bad_one, good_one;
	struct party p, bad, good;
	uint64_t buffer;

	raw_open(&r, "producer");
	raw_open(&bad_one, "bad consumer");
	raw_open(&good_one, "good consumer");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_join(&bad, &bad_one, "c", SHARE_CONSUMER);
	party_join(&good, &good_one, "c", SHARE_CONSUMER);
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	fd_list_close(&r.fds);
	party_put(&p, 0, buffer, 1);
	retain(&bad, &p, buffer, 1);
	/* who may write in it says what is in use */
	publish(&r, buffer, 3000, 0);
	check_eq(size_of_name(&good_one), 3000);
	/* and who got it, too, and publishes it */
	retain(&bad, &p, buffer, 1);
	check_eq(size_of_name(&good_one), 3000);
	release(&bad_one, buffer);
	release(&bad_one, buffer);
	raw_ask(&r, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
	party_close(&p);
	goodbye(&r);

	raw_open(&r, "producer");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	fd_list_close(&r.fds);
	party_put(&p, 0, buffer, 1);
	retain(&bad, &p, buffer, 1);
	retain(&good, &p, buffer, 3000);
	publish(&good_one, buffer, 0, 0);
	check_eq(size_of_name(&bad_one), 3000);
	release(&good_one, buffer);
	release(&bad_one, buffer);
	party_close(&bad);
	party_close(&good);
	party_close(&p);
	goodbye(&r);
	goodbye(&bad_one);
	goodbye(&good_one);
}

/* ------------------------------------------------------------------------------------------- */
/* Acknowledgements                                                                            */

struct place {
	uint64_t id;
	uint32_t row, reserved;
};

/* A fence on every stream it can have, none of them reached, all for what is one buffer. */
static void acknowledges_on_all_streams(struct child *self, void *data)
{
	struct place producer;
	const bool *closes = data;
	struct party c, p = {.role = SHARE_PRODUCER};
	struct raw r;

	raw_open(&r, "consumer");
	party_join(&c, &r, "c", SHARE_CONSUMER);
	child_exchange(self, "there", &c.id, sizeof(c.id), &producer, sizeof(producer));
	p.id = producer.id;
	p.row = producer.row;
	for (uint32_t i = 0; i < c.shape.in_flight; i++)
		party_acknowledge(&c, &p, i, 1, i + 1, 1);
	if (*closes)
		party_close(&c);
	child_point(self, "acknowledged");
}

/* How many fences whoever writes next has to wait for. */
static uint32_t gate_of_name(struct raw *r)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	uint32_t n;

	m.lookup.mode = SHARE_RDWR;
	m.lookup.name = raw_text("name");
	raw_ask(r, &m, WIRE_GRANT);
	fd_list_close(&r->fds);
	n = r->m.grant.fences.size / (uint32_t)sizeof(struct wire_fence);
	release(r, r->m.grant.buffer);
	return n;
}

static void never_get_there(bool closes)
{
	struct place producer = {0};
	struct wire_message open = party_request("c", SHARE_PRODUCER);
	struct wire_message unpublish = {.type = WIRE_UNPUBLISH};
	struct child *child = child_start(acknowledges_on_all_streams, &closes);
	struct raw r, other;
	struct party p, c = {.role = SHARE_CONSUMER};
	struct listing l;
	uint64_t buffer;

	child_wait_with(child, "there", &c.id, sizeof(c.id));
	raw_open(&other, "other");
	raw_open(&r, "producer");
	party_open(&p, &r, &open);
	party_ready(&p);
	party_sync(&p, &l);
	fd_list_close(&r.fds);
	check_eq(l.n, 1);
	check_eq(p.shape.in_flight, IN_FLIGHT);
	c.slot = l.members[0].slot;
	party_admit(&p, &c);
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	fd_list_close(&r.fds);
	publish(&r, buffer, 0, SHARE_PUBLISH_PERSISTENT);
	for (uint32_t i = 0; i < p.shape.in_flight; i++)
		party_put(&p, i, buffer, 1);
	producer.id = p.id;
	producer.row = l.members[0].row;
	child_go_with(child, &producer, sizeof(producer));
	child_wait(child, "acknowledged");
	party_close(&p);
	goodbye(&r);

	/* as if it had not acknowledged them yet, until nobody can use it any more */
	until(estate_buffers("c") == IN_FLIGHT);
	check_eq(gate_of_name(&other), 0);
	child_kill(child);
	until(channels() == 0);
	check_eq(gate_of_name(&other), 0);
	unpublish.unpublish.name = raw_text("name");
	raw_ask(&other, &unpublish, WIRE_DONE);
	goodbye(&other);
}

Test(channel_bad_member, what_is_acknowledged_behind_work_without_end_is_kept_until_its_death)
{
	never_get_there(false);
}

Test(channel_bad_member, so_it_is_when_the_consumer_has_closed_the_channel)
{
	never_get_there(true);
}

/* ------------------------------------------------------------------------------------------- */
/* Memory                                                                                      */

static int64_t bytes_behind(int fd)
{
	struct stat st;

	check(fstat(fd, &st) == 0);
	return (int64_t)st.st_blocks * 512;
}

Test(channel_bad_member, what_its_owner_never_wrote_takes_no_memory_when_the_broker_looks)
{
	struct wire_message open = party_request("c", SHARE_PRODUCER);
	struct wire_message again = party_request("c", SHARE_CONSUMER);
	struct party p, c[5];
	int ring, ledger;
	int64_t touched;
	struct raw r;

	raw_open(&r, "all");
	open.channel_open.in_flight = CHANNEL_IN_FLIGHT_MAX;
	party_open(&p, &r, &open);
	party_ready(&p);
	for (int i = 0; i < 5; i++)
		party_join(&c[i], &r, "c", SHARE_CONSUMER);
	ring = fcntl(p.page_fd, F_DUPFD_CLOEXEC, 0);
	ledger = fcntl(c[0].page_fd, F_DUPFD_CLOEXEC, 0);
	/* an acknowledgement for every producer there can be: one page of each */
	for (uint32_t i = 0; i < c[0].shape.rows; i++) {
		struct channel_row *row = channel_row_at(c[0].page, &c[0].shape, i);

		atomic_store(&row->producer, i == 0 ? p.id : UINT64_MAX);
	}
	touched = bytes_behind(ledger);
	check(touched <= c[0].shape.rows * 4096);
	party_close(&c[0]);
	/* when it may be joined again, its ledger was read */
	do
		raw_request(&r, &again);
	while (r.m.type != WIRE_CHANNEL);
	fd_list_close(&r.fds);
	check(bytes_behind(ledger) <= touched);
	fd_close(ledger);

	/* nor does a ring in which nothing is in flight, or a ledger in which nothing is said */
	ledger = fcntl(c[1].page_fd, F_DUPFD_CLOEXEC, 0);
	party_admit(&p, &c[1]);
	party_put(&p, 0, raw_alloc(&r, raw_pool(&r, "default"), 4096), 1);
	fd_list_close(&r.fds);
	party_close(&p);
	check(bytes_behind(ring) <= 2 * 4096);
	check(bytes_behind(ledger) <= 4096);
	fd_close(ring);
	fd_close(ledger);
	for (int i = 1; i < 5; i++)
		party_close(&c[i]);
	goodbye(&r);
}
