/* SPDX-License-Identifier: MIT */

/*
 * What a core dump of a process would have of the memory that it shares: by default nothing, as it
 * would write others' data to the disk and would read what nobody has touched yet, for which the
 * system takes pages; with SHARE_DUMP=mine what the process may write. The kernel says of each
 * mapping whether a dump leaves it out ("dd" in smaps), and many systems write no core files, so
 * that is what is looked at.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/fence.h>

#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"

#define PAGE UINT64_C(4096)

struct mapping {
	uint64_t start, end;
	char path[128];
	bool left_out; /* of core dumps */
};

static FILE *open_smaps(pid_t pid)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	file = fopen(path, "re");
	check(file != NULL);
	return file;
}

/* The next one of @smaps; false after the last one. */
static bool next_mapping(FILE *smaps, struct mapping *m)
{
	uint64_t start, end;
	char line[1024];
	int at = 0;

	while (fgets(line, sizeof(line), smaps)) {
		if (strncmp(line, "VmFlags:", 8) == 0) {
			m->left_out = strstr(line, " dd ") || strstr(line, " dd\n");
			return true;
		}
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &start, &end, &at) <
		    2)
			continue;
		m->start = start;
		m->end = end;
		snprintf(m->path, sizeof(m->path), "%.*s", (int)strcspn(line + at, " \n"),
			 line + at);
	}
	return false;
}

static bool is_ours(const struct mapping *m)
{
	return strncmp(m->path, "/memfd:share-", 13) == 0;
}

/* How many mappings of @pid have such a path. All of them are left out of dumps. */
static int expect_left_out(pid_t pid, const char *path)
{
	FILE *smaps = open_smaps(pid);
	struct mapping m;
	int n = 0;

	while (next_mapping(smaps, &m)) {
		if (!is_ours(&m))
			continue;
		if (!m.left_out)
			check_failed(__FILE__, __LINE__, "a dump would have %s at %" PRIx64, m.path,
				     m.start);
		n += strcmp(m.path + strlen("/memfd:"), path) == 0;
	}
	fclose(smaps);
	return n;
}

/* Whether a dump of this process would have @size bytes at @address: all or nothing of them. */
static bool is_dumped(const void *address, uint64_t size)
{
	uint64_t at = (uintptr_t)address / PAGE * PAGE, end = (uintptr_t)address + size;
	uint64_t dumped = 0, pages = 0;
	FILE *smaps = open_smaps(getpid());
	struct mapping m;

	while (next_mapping(smaps, &m))
		for (; at >= m.start && at < m.end && at < end; at += PAGE) {
			dumped += !m.left_out;
			pages++;
		}
	fclose(smaps);
	check(at >= end && (dumped == 0 || dumped == pages));
	return dumped > 0;
}

TestSuite(dump, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */

Test(dump, has_no_memory_that_others_have_too)
{
	share_client *c = connect_as("test"), *other = connect_as("other");
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *producer = open_channel(c, SHARE_PRODUCER, &o);
	share_channel *consumer = open_channel(other, SHARE_CONSUMER, &o);
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 100, NULL), *read;

	check_ok(share_publish(b, "name", NULL));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &read));
	send_filled(producer, p, 1);
	expect_message(consumer, 1);
	check(expect_left_out(getpid(), "share-segment") >= 2);
	check(expect_left_out(getpid(), "share-timeline") >= 2);
	check(expect_left_out(getpid(), "share-ring") >= 2);
	check(expect_left_out(getpid(), "share-ledger") >= 2);
	check(expect_left_out(getpid(), "share-channel") >= 2);
	check_ok(share_release(read, NULL));
	check_ok(share_release(b, NULL));
	share_channel_close(consumer);
	share_channel_close(producer);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}

static char same_address;

/* Others find it under "name"; with @data in a pool that has one address everywhere. */
static void publishes(struct child *self, void *data)
{
	share_client *c = child_connect("publisher");
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b;
	share_pool *p;

	o.kind = "host";
	o.segment_size = 1 << 20;
	o.flags = SHARE_POOL_OPEN_OR_CREATE;
	if (data)
		o.flags |= SHARE_POOL_SAME_ADDRESS;
	check_ok(share_pool_create(c, data ? "same address" : "default", &o, &p));
	b = allocate(p, 100, NULL);
	check_ok(share_publish(b, "name", NULL));
	child_point(self, "published");
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(dump, has_none_of_it_when_a_reading_mapping_is_made_writable_either)
{
	struct child *child = child_start(publishes, &same_address);
	share_client *c = connect_as("test");
	share_buffer *read, *written;

	child_wait(child, "published");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &read));
	check_eq(expect_left_out(getpid(), "share-segment"), 1);
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &written));
	check(share_ptr(read) == share_ptr(written));
	check_eq(expect_left_out(getpid(), "share-segment"), 1);
	check_ok(share_release(written, NULL));
	check_ok(share_release(read, NULL));
	child_go(child);
	child_finish(child);
	share_disconnect(c);
}

static pid_t parent_of(pid_t pid)
{
	char path[64];
	FILE *file;
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	check(file && fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1);
	fclose(file);
	return parent;
}

Test(dump, of_a_broker_or_its_keeper_has_no_memory_of_their_clients)
{
	share_client *c = connect_as("test");
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *producer = open_channel(c, SHARE_PRODUCER, &o);

	for (int i = 0; i < 2; i++) { /* one that made all of it, and one that came after */
		check(expect_left_out(broker_pid(), "share-journal") >= 1);
		check(expect_left_out(broker_pid(), "share-timeline") >= 1);
		check(expect_left_out(broker_pid(), "share-channel") >= 1);
		check(expect_left_out(parent_of(broker_pid()), "share-timeline") >= 1);
		if (i == 0)
			broker_kill_serving();
		check_ok(share_ping(c));
	}
	share_channel_close(producer);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

static void start_with_mine(void)
{
	setenv("SHARE_DUMP", "mine", 1);
	fixture_start();
}

TestSuite(dump_mine, .init = start_with_mine, .fini = fixture_stop, .timeout = 120);

Test(dump_mine, has_what_this_process_may_write_for_as_long_as_it_may)
{
	struct child *child = child_start(publishes, NULL);
	share_client *c = connect_as("test");
	share_pool *p = open_pool(c);
	share_buffer *b, *read, *written;
	const char *mine, *readable, *writable;

	child_wait(child, "published");
	b = allocate(p, 10 * PAGE, NULL);
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &read));
	mine = share_ptr(b);
	readable = share_ptr(read);
	check(is_dumped(mine, 10 * PAGE));
	check(!is_dumped(readable, 100));
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &written));
	writable = share_ptr(written);
	check(writable != readable);
	check(is_dumped(writable, 100));
	check(!is_dumped(readable, 100));
	check_ok(share_release(written, NULL));
	check_ok(share_release(b, NULL));
	check(!is_dumped(writable, 100));
	check(!is_dumped(mine, 10 * PAGE));
	check(expect_left_out(getpid(), "share-segment") >= 2);
	check_ok(share_release(read, NULL));
	share_pool_close(p);
	child_go(child);
	child_finish(child);
	share_disconnect(c);
}

Test(dump_mine, has_a_page_for_as_long_as_one_of_its_buffers_is_there)
{
	share_client *c = connect_as("test");
	share_pool *p = open_pool(c);
	share_buffer *b[12]; /* of 512 bytes: in two pages */
	const char *at[12];

	for (int i = 0; i < 12; i++) {
		b[i] = allocate(p, 512, NULL);
		at[i] = share_ptr(b[i]);
	}
	for (int i = 0; i < 12; i++) {
		for (int k = i; k < 12; k++)
			check(is_dumped(at[k], 512));
		check_ok(share_release(b[i], NULL));
	}
	for (int i = 0; i < 12; i++)
		check(!is_dumped(at[i], 512));
	share_pool_close(p);
	share_disconnect(c);
}

Test(dump_mine, has_a_message_that_its_consumer_may_write)
{
	share_client *c = connect_as("test"), *other = connect_as("other");
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *producer, *consumer;
	share_pool *p = open_pool(c);
	share_message m = SHARE_MESSAGE_INIT;
	const char *at;

	o.flags = SHARE_CHANNEL_WRITABLE;
	producer = open_channel(c, SHARE_PRODUCER, &o);
	consumer = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 3; i++) {
		send_filled(producer, p, i);
		check_ok(share_recv(consumer, 0, NULL, &m));
		at = share_ptr(m.buffer);
		check(is_dumped(at, 4096));
		check_ok(share_ack(&m, NULL));
		check(!is_dumped(at, 4096));
	}
	share_channel_close(consumer);
	share_channel_close(producer);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}
