/* SPDX-License-Identifier: MIT */

/*
 * Who may take part in a channel is what the list of its pool says: who may read receives, who may
 * write sends, and nobody's descriptors are good for more. Other users need root, who can be
 * anybody.
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

#define ALICE  4711
#define BOB    4712
#define CAMERA 4800 /* a group */

static const char config[] =
    "{\"limits\": {\"channels\": 4},"
    " \"pools\": ["
    "{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"4MiB\","
    " \"reuse\": \"gate\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"scrubbed\", \"kind\": \"host\", \"limit\": \"4MiB\", \"reuse\": \"scrub\","
    " \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"alices\", \"kind\": \"host\", \"limit\": \"4MiB\","
    " \"access\": [{\"user\": 4711, \"mode\": \"rw\"}, {\"group\": 4800, \"mode\": \"ro\"}]}]}";

static share_client *client;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("root");
}

static void stop(void)
{
	if (!check_has_failed())
		settle(client, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_access, .init = start, .fini = stop, .timeout = 60);

static void run_as(child_function function)
{
	child_finish(child_start(function, NULL));
}

static int open_in(share_client *c, int role, const char *pool, uint32_t flags, share_channel **out)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	o.pool = pool;
	o.flags = flags;
	return share_channel_open(c, "frames", role, &o, out);
}

/* Sends "alice's" in a channel of her pool, and stays until it is back. */
static void alice_sends(struct child *self, void *data)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;
	share_channel *ch;
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	check_ok(share_pool_open(c, "alices", &p));
	check_ok(open_in(c, SHARE_PRODUCER, "alices", 0, &ch));
	child_point(self, "open");
	b = allocate(p, 4096, NULL);
	strcpy(share_ptr(b), "alice's");
	check_ok(share_give(ch, b, NULL, 0, NULL));
	child_point(self, "sent");
	check_ok(share_channel_get_stats(ch, &stats));
	check_eq(stats.sent, 1);
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(c);
}

static struct child *start_alice(void)
{
	struct child *alice;

	skip_unless_root();
	alice = child_start(alice_sends, NULL);
	child_wait(alice, "open");
	return alice;
}

/* ------------------------------------------------------------------------------------------- */

static void bob_is_kept_out(struct child *self, void *data)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;
	share_client *c;
	json_t *rows;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_error(open_in(c, SHARE_CONSUMER, NULL, SHARE_CHANNEL_EXISTING, &ch), SHARE_ENOENT);
	/* he could make one of another name, so that this one is taken he has to learn */
	check_error(open_in(c, SHARE_CONSUMER, NULL, 0, &ch), SHARE_EEXIST);
	check_error(open_in(c, SHARE_CONSUMER, NULL, SHARE_CHANNEL_WRITABLE, &ch), SHARE_EEXIST);
	check_error(open_in(c, SHARE_PRODUCER, NULL, 0, &ch), SHARE_EEXIST);
	/* naming a pool of his own makes it no other channel */
	check_error(open_in(c, SHARE_CONSUMER, "default", 0, &ch), SHARE_EEXIST);
	/* nor can he make one in a pool that is not for him */
	o.pool = "alices";
	check_error(share_channel_open(c, "another", SHARE_CONSUMER, &o, &ch), SHARE_ENOENT);
	check_error(share_channel_open(c, "another", SHARE_PRODUCER, &o, &ch), SHARE_ENOENT);
	check(ch == NULL);
	rows = report(c, "channels");
	check_eq(json_array_size(rows), 0);
	json_decref(rows);
	share_disconnect(c);
}

Test(channel_access, who_may_not_use_a_pool_takes_part_in_none_of_its_channels_and_sees_none)
{
	struct child *alice = start_alice();
	json_t *rows;

	run_as(bob_is_kept_out);
	rows = report(client, "channels");
	check_eq(json_array_size(rows), 1);
	check_eq(number_of(json_array_get(rows, 0), "consumers"), 0);
	json_decref(rows);
	child_go(alice);
	child_wait(alice, "sent");
	child_go(alice);
	child_finish(alice);
}

static void bob_reads(struct child *self, void *data)
{
	share_channel *ch, *none = NULL;
	share_export_options writing = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *kept, *written = NULL;
	share_client *c;
	share_token token;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	writing.mode = SHARE_RDWR;
	child_become(BOB, CAMERA);
	c = child_connect("bob");
	check_error(open_in(c, SHARE_PRODUCER, NULL, 0, &none), SHARE_EACCES);
	check_error(open_in(c, SHARE_CONSUMER, NULL, SHARE_CHANNEL_WRITABLE, &none), SHARE_EACCES);
	check(none == NULL);
	check_ok(open_in(c, SHARE_CONSUMER, NULL, SHARE_CHANNEL_EXISTING, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	check(strcmp(share_ptr(m.buffer), "alice's") == 0);
	/* what he keeps of it he may read, and so may those to whom he gives it */
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check_ok(share_publish(kept, "bob/frame", NULL));
	check_error(share_lookup(c, "bob/frame", SHARE_RDWR, 0, NULL, &written), SHARE_EACCES);
	check_error(share_export_with(kept, &writing, NULL, &token), SHARE_EACCES);
	check_ok(share_unpublish(c, "bob/frame"));
	check_ok(share_release(kept, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

Test(channel_access, who_may_read_receives_and_does_not_send)
{
	struct child *alice = start_alice(), *bob = child_start(bob_reads, NULL);

	child_wait(bob, "open");
	child_go(alice);
	child_wait(alice, "sent");
	child_go(bob);
	child_finish(bob);
	child_go(alice);
	child_finish(alice);
}

/* ------------------------------------------------------------------------------------------- */

static void expect_read_only(int fd, size_t size)
{
	char path[64];
	void *map;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check(open(path, O_RDWR | O_CLOEXEC) < 0);
	check(open(path, O_WRONLY | O_CLOEXEC) < 0);
	check(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	check(ftruncate(fd, 0) < 0);
	check(write(fd, "x", 1) < 0);
	check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	check(map != MAP_FAILED);
	check(mprotect(map, size, PROT_READ | PROT_WRITE) < 0);
	check(madvise(map, size, MADV_REMOVE) < 0);
	munmap(map, size);
}

/* Whatever he gets of hers: her ring, the control page, a segment. */
static void bob_tries_the_descriptors(struct child *self, void *data)
{
	struct wire_message open = party_request("frames", SHARE_CONSUMER);
	struct wire_message segment = {.type = WIRE_CHANNEL_SEGMENT};
	struct wire_message retain = {.type = WIRE_CHANNEL_RETAIN};
	struct wire_message sync = {.type = WIRE_CHANNEL_SYNC, .serial = 1000};
	struct wire_member her;
	struct party p;
	uint64_t given;
	struct raw r;

	(void)self, (void)data;
	child_become(BOB, CAMERA);
	raw_open(&r, "bob");
	raw_ask(&r, &open, WIRE_CHANNEL);
	expect_read_only(r.fds.fds[1], CHANNEL_CONTROL_SIZE);
	fd_list_close(&r.fds);
	party_join(&p, &r, "frames", SHARE_CONSUMER);
	expect_read_only(p.page_fd, 4096); /* his own, now that it is sealed */
	sync.channel_sync.member = p.id;
	check_eq(raw_send(&r, &sync), 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	check_eq(r.m.grant.mode, SHARE_RDONLY);
	check_eq(r.fds.n, 1);
	expect_read_only(r.fds.fds[0], 4096);
	given = r.m.grant.segment;
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_CHANNEL_MEMBERS);
	check_eq(r.fds.n, 3);
	expect_read_only(r.fds.fds[0], channel_ring_size(&p.shape, p.layout));
	memcpy(&her, r.m.channel_members.members.data, sizeof(her));
	fd_list_close(&r.fds);

	child_exchange(self, "joined", NULL, 0, &segment.channel_segment.segment, 8);
	check_eq(given, segment.channel_segment.segment);
	segment.channel_segment.member = p.id;
	raw_ask(&r, &segment, WIRE_GRANT);
	check_eq(r.m.grant.mode, SHARE_RDONLY);
	check_eq(r.fds.n, 0);
	/* a buffer of hers that is not in flight is none of his business */
	retain.channel_retain.member = p.id;
	retain.channel_retain.producer = her.member;
	child_exchange(self, "mapped", NULL, 0, &retain.channel_retain.buffer, 8);
	raw_ask_error(&r, &retain, SHARE_ENOENT);
}

static void alice_waits(struct child *self, void *data)
{
	struct wire_message open = party_request("frames", SHARE_PRODUCER);
	uint64_t what[2];
	struct party p;
	struct raw r;

	(void)data;
	child_become(ALICE, 0);
	raw_open(&r, "alice");
	open.channel_open.pool = raw_text("alices");
	party_open(&p, &r, &open);
	party_ready(&p);
	what[0] = raw_alloc(&r, raw_pool(&r, "alices"), 4096);
	what[1] = r.m.grant.segment;
	child_point_with(self, "there", what, sizeof(what));
}

Test(channel_access, descriptors_of_others_pages_and_memory_cannot_be_made_ones_for_writing)
{
	struct child *alice, *bob;
	uint64_t what[2];

	skip_unless_root();
	alice = child_start(alice_waits, NULL);
	child_wait_with(alice, "there", what, sizeof(what));
	bob = child_start(bob_tries_the_descriptors, NULL);
	child_wait(bob, "joined");
	child_go_with(bob, &what[1], 8);
	child_wait(bob, "mapped");
	child_go_with(bob, &what[0], 8);
	child_finish(bob);
	child_go(alice);
	child_finish(alice);
}

/* ------------------------------------------------------------------------------------------- */

static void joins_all_it_may(struct child *self, void *data)
{
	struct wire_message m;
	struct raw r;
	char name[16];

	child_become(*(uid_t *)data, 0);
	raw_open(&r, "user");
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "%d", i);
		m = party_request(name, SHARE_PRODUCER);
		raw_ask(&r, &m, WIRE_CHANNEL);
		fd_list_close(&r.fds);
	}
	m = party_request("one more", SHARE_CONSUMER);
	raw_ask_error(&r, &m, SHARE_EQUOTA);
	child_point(self, "full");
}

Test(channel_access, each_user_has_memberships_of_its_own)
{
	struct child *alice, *bob;

	skip_unless_root();
	alice = child_start(joins_all_it_may, &(uid_t){ALICE});
	child_wait(alice, "full");
	bob = child_start(joins_all_it_may, &(uid_t){BOB});
	child_wait(bob, "full");
	child_kill(alice);
	child_kill(bob);
}

/* What is scrubbed is what somebody else may have written: whoever writes has to be known. */
Test(channel_access, consumers_that_write_are_refused_in_a_pool_that_scrubs)
{
	share_channel *producer, *reader, *none = NULL;
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_pool *p;
	share_message m = SHARE_MESSAGE_INIT;

	/* on the way to a new channel, and to one that is there */
	check_error(open_in(client, SHARE_CONSUMER, "scrubbed", SHARE_CHANNEL_WRITABLE, &none),
		    SHARE_ENOTSUP);
	check_ok(open_in(client, SHARE_PRODUCER, "scrubbed", 0, &producer));
	check_error(open_in(client, SHARE_CONSUMER, NULL, SHARE_CHANNEL_WRITABLE, &none),
		    SHARE_ENOTSUP);
	check_detail("scrubs");
	check(none == NULL);
	/* those that read are welcome */
	check_ok(open_in(client, SHARE_CONSUMER, NULL, 0, &reader));
	check_ok(share_pool_open(client, "scrubbed", &p));
	check_ok(share_give(producer, allocate(p, 4096, NULL), NULL, 0, NULL));
	check_ok(share_recv(reader, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
	share_channel_close(reader);
	share_channel_close(producer);
	/* and elsewhere those that write, too */
	o.flags = SHARE_CHANNEL_WRITABLE;
	check_ok(share_channel_open(client, "writers", SHARE_CONSUMER, &o, &reader));
	share_channel_close(reader);
	share_pool_set_cache(p, 0);
	share_pool_close(p);
}
