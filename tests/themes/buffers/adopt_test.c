/* SPDX-License-Identifier: MIT */

/*
 * Memory that a program has already becomes a buffer like any other: by name, token and message,
 * counted and limited, for as long as anybody has it. And what is no such memory is refused in
 * words, with nothing lost.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/support/channel_work.h"

#define PAGE     4096u
#define SIZE     (16 * PAGE)
#define SOMEBODY 4711

static const char config[] =
    "{\"limits\": {\"bytes\": \"8MiB\"},"
    "\"pools\": ["
    "{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", \"segment_size\": \"1MiB\","
    " \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"adopted\", \"kind\": \"adopted\", \"limit\": \"4MiB\","
    " \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("owner");
	check_ok(share_pool_open(client, "adopted", &pool));
}

static void stop(void)
{
	if (!check_has_failed()) {
		settle(client, s.buffers == 0 && s.segments == 0 && s.leases == 0);
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(adopt, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

/* A file in memory, mapped. */
struct file {
	int fd;
	unsigned char *at;
	size_t size;
};

static struct file mapped(int fd, size_t size, int protection)
{
	struct file f = {.fd = fd, .size = size};

	check(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	f.at = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	check(f.at != MAP_FAILED);
	return f;
}

static int new_memfd(void)
{
	return memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static struct file sealed_file(size_t size)
{
	struct file f = mapped(new_memfd(), size, PROT_READ | PROT_WRITE);

	check(fcntl(f.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	return f;
}

static void unmap(struct file *f)
{
	munmap(f->at, f->size);
	close(f->fd);
}

static share_buffer *adopted(const struct file *f, size_t offset, size_t size)
{
	share_buffer *b = NULL;

	check_ok(share_adopt(pool, f->at + offset, size, NULL, &b));
	check(share_ptr(b) == f->at + offset);
	check_eq(share_size(b), size);
	return b;
}

static void expect_bytes(const void *p, int value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		check_eq(((const unsigned char *)p)[i], (unsigned char)value);
}

/* ------------------------------------------------------------------------------------------- */

static void reads_and_writes(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	check_ok(share_lookup(c, "data", SHARE_RDWR, 0, NULL, &b));
	expect_bytes(share_ptr(b), 0x11, share_size(b));
	memset(share_ptr(b), 0x22, share_size(b));
	child_point(self, "written");
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

/* Another process has the same memory. */
static void expect_shared(share_buffer *b)
{
	struct child *other;

	memset(share_ptr(b), 0x11, share_size(b));
	check_ok(share_publish(b, "data", NULL));
	other = child_start(reads_and_writes, NULL);
	child_wait(other, "written");
	expect_bytes(share_ptr(b), 0x22, share_size(b));
	child_go(other);
	child_finish(other);
	check_ok(share_unpublish(client, "data"));
}

Test(adopt, memory_that_is_there_becomes_a_buffer_without_a_copy)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE);

	expect_shared(b);
	expect_bytes(f.at, 0x22, SIZE);
	settle(client, s.buffers == 1 && s.segments == 1 && s.buffer_bytes == SIZE);
	check_ok(share_release(b, NULL));
	/* it is still what it was for its owner */
	settle(client, s.segments == 0);
	expect_bytes(f.at, 0x22, SIZE);
	unmap(&f);
}

/* Which has no more of its parent's mappings. */
static void has_unmapped_it(struct child *self, void *data)
{
	const struct file *f = data;
	share_buffer *b, *again;
	struct file g;
	share_client *c;
	share_pool *p;

	(void)self;
	munmap(f->at, f->size);
	c = child_connect("other");
	check_ok(share_lookup(c, "data", SHARE_RDWR, 0, NULL, &b));
	expect_bytes(share_ptr(b), 0x11, share_size(b));
	check_ok(share_pool_open(c, "adopted", &p));
	/* what is there now is no buffer yet */
	g = sealed_file(f->size);
	check(mmap(f->at, f->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g.fd, 0) ==
	      f->at);
	check_ok(share_adopt(p, f->at, f->size, NULL, &again));
	check(share_ptr(again) == f->at);
	check_ok(share_release(again, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(adopt, a_forked_child_maps_what_its_parent_has_adopted)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE);

	memset(f.at, 0x11, SIZE);
	check_ok(share_publish(b, "data", NULL));
	child_finish(child_start(has_unmapped_it, &f));
	check_ok(share_unpublish(client, "data"));
	check_ok(share_release(b, NULL));
	unmap(&f);
}

Test(adopt, a_buffer_begins_and_ends_at_any_byte)
{
	static const size_t ranges[][2] = {{0, 1},        {1, 1},        {PAGE - 1, 2},
					   {511, 513},    {PAGE + 7, 3}, {SIZE - 1, 1},
					   {3, SIZE - 3}, {100, PAGE}};
	struct file f = sealed_file(SIZE);

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		size_t offset = ranges[i][0], size = ranges[i][1];
		share_buffer *b = adopted(&f, offset, size);

		memset(f.at, 0x77, SIZE);
		expect_shared(b);
		expect_bytes(f.at, 0x77, offset);
		expect_bytes(f.at + offset, 0x22, size);
		expect_bytes(f.at + offset + size, 0x77, SIZE - offset - size);
		check_ok(share_release(b, NULL));
	}
	unmap(&f);
}

/* The last page of a file may be a part of one. */
Test(adopt, a_file_has_any_size)
{
	struct file f = sealed_file(PAGE + 100);
	share_buffer *b = adopted(&f, 0, PAGE + 100);

	expect_shared(b);
	check_ok(share_release(b, NULL));
	unmap(&f);
}

Test(adopt, a_file_on_a_tmpfs_is_found_by_its_descriptor_or_its_name)
{
	struct file f;
	share_buffer *b;
	char name[64];

	snprintf(name, sizeof(name), "/share-adopt-%d", (int)getpid());
	f = mapped(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), SIZE, PROT_READ | PROT_WRITE);
	b = adopted(&f, 0, SIZE);
	expect_shared(b);
	check_ok(share_release(b, NULL));
	close(f.fd);
	b = adopted(&f, 0, SIZE);
	check_eq(shm_unlink(name), 0);
	expect_shared(b);
	check_ok(share_release(b, NULL));
	/* now there is neither */
	check_error(share_adopt(pool, f.at, SIZE, NULL, &b), SHARE_EINVAL);
	check_detail("descriptor");
	munmap(f.at, SIZE);
}

/* flock(2) locks what open() has returned, until the last copy of that is closed and the
 * last mapping is gone. */
Test(adopt, a_lock_of_the_owners_ends_with_its_descriptor)
{
	share_publish_options o = SHARE_PUBLISH_OPTIONS_INIT;
	struct file f;
	share_buffer *b;
	char name[64];
	int again;

	snprintf(name, sizeof(name), "/share-adopt-%d", (int)getpid());
	f = mapped(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), SIZE, PROT_READ | PROT_WRITE);
	check_eq(flock(f.fd, LOCK_EX), 0);
	b = adopted(&f, 0, SIZE);
	o.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "stays", &o, NULL, NULL));
	check_ok(share_release(b, NULL));
	unmap(&f);
	again = shm_open(name, O_RDWR, 0);
	check_eq(shm_unlink(name), 0);
	check_eq(flock(again, LOCK_EX | LOCK_NB), 0);
	close(again);
	check_ok(share_unpublish(client, "stays"));
}

Test(adopt, nobody_needs_the_mapping_and_the_descriptor_of_the_owner)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE), *found;

	memset(f.at, 0x44, SIZE);
	check_ok(share_publish_with(b, "stays",
				    &(share_publish_options){sizeof(share_publish_options),
							     SHARE_PUBLISH_PERSISTENT, 0, 0, NULL},
				    NULL, NULL));
	check_ok(share_release(b, NULL));
	close(f.fd);
	/* as long as this process has the segment, it is where it was */
	check_ok(share_lookup(client, "stays", SHARE_RDONLY, 0, NULL, &found));
	check(share_ptr(found) == f.at);
	expect_bytes(share_ptr(found), 0x44, SIZE);
	check_ok(share_release(found, NULL));
	check_ok(share_unpublish(client, "stays"));
	munmap(f.at, SIZE);
}

static void lends_and_dies(struct child *self, void *data)
{
	share_client *c = child_connect("owner");
	struct file f = sealed_file(SIZE);
	share_publish_options o = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b;
	share_pool *p;

	(void)data;
	o.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_pool_open(c, "adopted", &p));
	check_ok(share_adopt(p, f.at, SIZE, NULL, &b));
	memset(f.at, 0x66, SIZE);
	check_ok(share_publish_with(b, "left", &o, NULL, NULL));
	child_point(self, "published");
	child_point(self, "never");
}

Test(adopt, the_memory_outlives_its_owner)
{
	struct child *owner = child_start(lends_and_dies, NULL);
	share_buffer *before, *after;

	child_wait(owner, "published");
	check_ok(share_lookup(client, "left", SHARE_RDONLY, 0, NULL, &before));
	child_go(owner);
	child_wait(owner, "never");
	child_kill(owner);
	settle(client, s.clients == 1);
	expect_bytes(share_ptr(before), 0x66, SIZE);
	check_ok(share_lookup(client, "left", SHARE_RDWR, 0, NULL, &after));
	memset(share_ptr(after), 0x67, SIZE);
	expect_bytes(share_ptr(before), 0x67, SIZE);
	check_ok(share_unpublish(client, "left"));
	check_ok(share_release(before, NULL));
	check_ok(share_release(after, NULL));
}

Test(adopt, a_token_leads_to_it)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE), *found;
	share_client *other = connect_as("other");
	share_token token;

	memset(f.at, 0x33, SIZE);
	check_ok(share_export(b, NULL, &token));
	check_ok(share_import(other, &token, SHARE_RDONLY, NULL, &found));
	expect_bytes(share_ptr(found), 0x33, SIZE);
	check_ok(share_release(found, NULL));
	check_ok(share_release(b, NULL));
	share_disconnect(other);
	unmap(&f);
}

Test(adopt, the_owner_is_told_when_nobody_else_has_it)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE), *found;
	share_client *other = connect_as("other");

	check_ok(share_publish(b, "data", NULL));
	check_ok(share_lookup(other, "data", SHARE_RDONLY, 0, NULL, &found));
	check_error(share_reclaim(b, 0, NULL), SHARE_EBUSY);
	check_ok(share_unpublish(client, "data"));
	check_error(share_reclaim(b, 0, NULL), SHARE_EBUSY);
	check_ok(share_release(found, NULL));
	check_ok(share_reclaim(b, HARNESS_LIMIT_MS, NULL));
	check_ok(share_release(b, NULL));
	share_disconnect(other);
	unmap(&f);
}

/* The consumer has its segment ahead, or asks for it: each message is received. */
Test(adopt, messages_carry_it)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	struct file f = sealed_file(SIZE);
	share_client *other = connect_as("other");
	share_channel *producer, *consumer;
	share_buffer *all[4];

	o.pool = "adopted";
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &producer));
	all[0] = adopted(&f, 0, PAGE);
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, &o, &consumer));
	for (size_t i = 1; i < 4; i++)
		all[i] = adopted(&f, i * PAGE, PAGE);
	for (size_t i = 0; i < 4; i++) {
		share_message m = SHARE_MESSAGE_INIT;

		memset(f.at + i * PAGE, 0x50 + (int)i, PAGE);
		check_ok(share_send(producer, all[i], NULL, 0, NULL));
		check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
		expect_bytes(share_ptr(m.buffer), 0x50 + (int)i, PAGE);
		check_ok(share_ack(&m, NULL));
	}
	for (size_t i = 0; i < 4; i++) {
		check_ok(share_reclaim(all[i], HARNESS_LIMIT_MS, NULL));
		check_ok(share_release(all[i], NULL));
	}
	share_channel_close(consumer);
	share_channel_close(producer);
	share_disconnect(other);
	unmap(&f);
}

Test(adopt, a_recipe_says_where_in_the_file_it_lies)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, PAGE + 5, 100);
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	unsigned char *again;

	check_ok(share_buffer_get_info(b, &info));
	check(strcmp(info.kind, "adopted") == 0 && info.device == NULL && info.ordinal == -1);
	check_ok(share_get_recipe(b, &recipe));
	check(strcmp(recipe.kind, "adopted") == 0);
	check_eq(recipe.offset, PAGE + 5);
	again = mmap(NULL, recipe.segment_size, PROT_READ, MAP_SHARED, recipe.fd, 0);
	check(again != MAP_FAILED);
	memset(share_ptr(b), 0x29, 100);
	expect_bytes(again + recipe.offset, 0x29, 100);
	munmap(again, recipe.segment_size);
	close(recipe.fd);
	check_ok(share_release(b, NULL));
	unmap(&f);
}

/* ------------------------------------------------------------------------------------------- */
/* What is refused                                                                             */

static void expect_refused(void *memory, size_t size, int error, const char *why)
{
	share_buffer *b = NULL;

	check_error(share_adopt(pool, memory, size, NULL, &b), error);
	check_detail(why);
	check(b == NULL);
	settle(client, s.buffers == 0 && s.segments == 0);
}

Test(adopt, memory_of_the_process_alone_is_refused)
{
	unsigned char *own = malloc(SIZE), on_stack[64];
	struct file f = sealed_file(SIZE);
	void *private = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f.fd, 0);
	void *anonymous =
	    mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	expect_refused(own, SIZE, SHARE_EINVAL, "process's own");
	expect_refused(on_stack, sizeof(on_stack), SHARE_EINVAL, "process's own");
	expect_refused(private, SIZE, SHARE_EINVAL, "process's own");
	expect_refused(anonymous, SIZE, SHARE_EINVAL, "descriptor");
	free(own);
	munmap(private, SIZE);
	munmap(anonymous, SIZE);
	unmap(&f);
}

Test(adopt, what_is_not_mapped_is_refused)
{
	struct file f = sealed_file(SIZE);
	struct file g = sealed_file(SIZE);

	expect_refused(NULL, SIZE, SHARE_EINVAL, "the memory to adopt is NULL");
	expect_refused(f.at, 0, SHARE_EINVAL, "no memory has 0 bytes");
	expect_refused(f.at, SIZE_MAX, SHARE_EINVAL, "no memory has");
	munmap(f.at + SIZE / 2, SIZE / 2);
	expect_refused(f.at, SIZE, SHARE_EINVAL, "only 32768 bytes are mapped");
	/* another file where it went on */
	check(mmap(f.at + SIZE / 2, SIZE / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g.fd,
		   SIZE / 2) != MAP_FAILED);
	expect_refused(f.at, SIZE, SHARE_EINVAL, "more than one mapping");
	/* and the same file in another order */
	check(mmap(f.at + SIZE / 2, SIZE / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.fd,
		   0) != MAP_FAILED);
	expect_refused(f.at, SIZE, SHARE_EINVAL, "more than one mapping");
	munmap(f.at, SIZE);
	expect_refused(f.at, SIZE, SHARE_EINVAL, "nothing is mapped");
	close(f.fd);
	unmap(&g);
}

/* As mprotect() and mbind() leave it. */
Test(adopt, one_file_may_be_mapped_in_several_parts)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b;

	check(mmap(f.at + SIZE / 2, SIZE / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.fd,
		   SIZE / 2) != MAP_FAILED);
	check(mprotect(f.at + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	b = adopted(&f, 10, SIZE - 20);
	expect_shared(b);
	check_ok(share_release(b, NULL));
	unmap(&f);
}

Test(adopt, what_cannot_be_written_is_refused)
{
	struct file f = mapped(new_memfd(), SIZE, PROT_READ);
	struct file g = mapped(new_memfd(), SIZE, PROT_READ | PROT_WRITE);

	expect_refused(f.at, SIZE, SHARE_EINVAL, "not mapped for reading and writing");
	check(fcntl(g.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) == 0);
	expect_refused(g.at, SIZE, SHARE_EINVAL, "sealed against writing");
	unmap(&f);
	unmap(&g);
}

/* Where this test's folder is not on a tmpfs. */
Test(adopt, a_file_on_a_disk_is_refused)
{
	char path[] = "/var/tmp/share-adopt-XXXXXX";
	int fd = mkstemp(path), seals;
	struct file f;

	if (fd < 0)
		cr_skip_test("there is no /var/tmp to write in");
	unlink(path);
	seals = fcntl(fd, F_GET_SEALS);
	f = mapped(fd, SIZE, PROT_READ | PROT_WRITE);
	if (seals < 0)
		expect_refused(f.at, SIZE, SHARE_EINVAL, "tmpfs");
	unmap(&f);
}

Test(adopt, what_is_a_buffer_already_is_refused_and_can_be_one_again)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, PAGE, PAGE), *again = NULL, *beside;

	check_error(share_adopt(pool, f.at + PAGE, PAGE, NULL, &again), SHARE_EEXIST);
	check_error(share_adopt(pool, f.at, PAGE + 1, NULL, &again), SHARE_EEXIST);
	check_error(share_adopt(pool, f.at + 2 * PAGE - 1, 1, NULL, &again), SHARE_EEXIST);
	check(again == NULL);
	beside = adopted(&f, 2 * PAGE, PAGE);
	check_ok(share_release(beside, NULL));
	for (int i = 0; i < 100; i++) {
		check_ok(share_release(b, NULL));
		b = adopted(&f, PAGE, PAGE);
	}
	/* somebody else's handle keeps it a buffer */
	check_ok(share_publish(b, "data", NULL));
	check_ok(share_release(b, NULL));
	check_error(share_adopt(pool, f.at + PAGE, PAGE, NULL, &again), SHARE_EEXIST);
	check_ok(share_unpublish(client, "data"));
	check_ok(share_release(adopted(&f, PAGE, PAGE), NULL));
	unmap(&f);
}

/* It would be counted twice, and freed by one owner for the other. */
Test(adopt, one_file_is_one_memory_wherever_it_is_mapped)
{
	struct file f = sealed_file(SIZE);
	unsigned char *other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	share_buffer *b = adopted(&f, PAGE, PAGE), *again = NULL;

	check(other != MAP_FAILED);
	check_error(share_adopt(pool, other + PAGE, PAGE, NULL, &again), SHARE_EEXIST);
	check_error(share_adopt(pool, other, PAGE + 1, NULL, &again), SHARE_EEXIST);
	check_ok(share_adopt(pool, other, PAGE, NULL, &again));
	check(share_ptr(again) == other);
	check_ok(share_release(again, NULL));
	check_ok(share_release(b, NULL));
	munmap(other, SIZE);
	unmap(&f);
}

Test(adopt, options_that_mean_nothing_for_it_are_refused)
{
	share_alloc_options o = SHARE_ALLOC_OPTIONS_INIT;
	struct file f = sealed_file(SIZE);
	share_buffer *b = NULL;

	o.memory = f.at;
	o.alignment = PAGE;
	check_error(share_alloc_with(pool, SIZE, &o, NULL, &b), SHARE_EINVAL);
	check_detail("alignment");
	o.alignment = 0;
	o.timeout_ms = 0;
	check_error(share_alloc_with(pool, SIZE, &o, NULL, &b), SHARE_EINVAL);
	o.timeout_ms = -1;
	check_ok(share_alloc_with(pool, SIZE, &o, NULL, &b));
	check_ok(share_release(b, NULL));
	unmap(&f);
}

/* ------------------------------------------------------------------------------------------- */
/* Who is told that it is the owner's alone again                                              */

static void unmaps(void *data)
{
	struct file *f = data;

	check(f->at != NULL);
	unmap(f);
	f->at = NULL;
}

static share_buffer *adopted_until(struct file *f, void (*done)(void *))
{
	share_alloc_options o = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b = NULL;

	o.memory = f->at;
	o.done = done;
	o.data = f;
	check_ok(share_alloc_with(pool, f->size, &o, NULL, &b));
	return b;
}

Test(adopt, the_owner_may_unmap_it_when_nobody_has_it)
{
	share_client *other = connect_as("other");
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted_until(&f, unmaps), *found;

	check_ok(share_publish(b, "data", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(other, "data", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_unpublish(client, "data"));
	check_ok(share_ping(client));
	check(f.at != NULL);
	check_ok(share_release(found, NULL));
	share_disconnect(other);
	until(share_ping(client) == 0 && f.at == NULL);
}

/* Others have it all the same. */
Test(adopt, the_owner_may_unmap_it_when_its_connection_has_ended)
{
	share_client *other = connect_as("other");
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted_until(&f, unmaps), *found;
	struct child *reader;

	memset(f.at, 0x11, SIZE);
	check_ok(share_publish_with(b, "data",
				    &(share_publish_options){sizeof(share_publish_options),
							     SHARE_PUBLISH_PERSISTENT, 0, 0, NULL},
				    NULL, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
	share_disconnect(client);
	check(f.at == NULL);
	client = other;
	check_ok(share_pool_open(client, "adopted", &pool));
	reader = child_start(reads_and_writes, NULL);
	child_wait(reader, "written");
	check_ok(share_lookup(client, "data", SHARE_RDONLY, 0, NULL, &found));
	expect_bytes(share_ptr(found), 0x22, SIZE);
	child_go(reader);
	child_finish(reader);
	check_ok(share_unpublish(client, "data"));
	check_ok(share_release(found, NULL));
}

static void is_never_called(void *data)
{
	check(data == NULL);
}

Test(adopt, nobody_is_told_of_what_was_not_adopted)
{
	share_alloc_options o = SHARE_ALLOC_OPTIONS_INIT;
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE), *again = NULL;

	o.done = is_never_called;
	o.data = &f;
	check_error(share_alloc_with(pool, SIZE, &o, NULL, &again), SHARE_EINVAL);
	check_detail("no memory");
	o.memory = f.at;
	check_error(share_alloc_with(pool, SIZE, &o, NULL, &again), SHARE_EEXIST);
	check_error(share_alloc_with(pool, 0, &o, NULL, &again), SHARE_EINVAL);
	check_ok(share_release(b, NULL));
	unmap(&f);
}

struct inherited {
	share_client *client;
	share_buffer *b;
	struct file *f;
};

static void gives_up_what_it_has_not(struct child *self, void *data)
{
	const struct inherited *i = data;

	(void)self;
	share_release(i->b, NULL);
	share_disconnect(i->client);
	check(i->f->at != NULL);
}

Test(adopt, a_forked_child_is_not_told)
{
	struct file f = sealed_file(SIZE);
	struct inherited all = {client, adopted_until(&f, unmaps), &f};

	child_finish(child_start(gives_up_what_it_has_not, &all));
	check(f.at != NULL);
	check_ok(share_release(all.b, NULL));
	until(share_ping(client) == 0 && f.at == NULL);
}

Test(adopt, limits_are_for_it_as_well)
{
	struct file f = sealed_file(8 << 20);
	share_buffer *half = adopted(&f, 0, 2 << 20), *b = NULL;

	check_error(share_adopt(pool, f.at + (2 << 20), 3 << 20, NULL, &b), SHARE_ENOMEM);
	check_detail("has no room");
	check_error(share_adopt(pool, f.at + (2 << 20), 5 << 20, NULL, &b), SHARE_ENOMEM);
	check_detail("can never hold");
	check_eq(used_of(client, "bytes"), 2 << 20);
	check_ok(share_release(half, NULL));
	b = adopted(&f, 0, 4 << 20);
	check_ok(share_release(b, NULL));
	settle(client, s.segments == 0);
	check_eq(used_of(client, "bytes"), 0);
	unmap(&f);
}

static void adopts_a_little(struct child *self, void *data)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = NULL;
	share_client *c;
	share_pool *p;

	(void)data;
	child_become(SOMEBODY, 0);
	c = child_connect("somebody");
	check_ok(share_pool_open(c, "adopted", &p));
	for (size_t i = 0; i < 2; i++) {
		check_ok(share_adopt(p, f.at, SIZE, NULL, &b));
		child_point(self, i == 0 ? "has some" : "has more");
		check_ok(share_release(b, NULL));
	}
	share_pool_close(p);
	share_disconnect(c);
}

Test(adopt, who_has_more_than_its_share_leaves_an_eighth_to_others)
{
	struct file f = sealed_file(4 << 20);
	share_buffer *most, *b = NULL;
	struct child *somebody;

	skip_unless_root();
	somebody = child_start(adopts_a_little, NULL);
	child_wait(somebody, "has some");
	most = adopted(&f, 0, 3 << 20);
	check_error(share_adopt(pool, f.at + (3 << 20), 768 << 10, NULL, &b), SHARE_EQUOTA);
	check_detail("which has 3MiB and wants 768KiB: its share is 2MiB, as 2 users");
	child_go(somebody);
	child_wait(somebody, "has more");
	child_go(somebody);
	child_finish(somebody);
	check_ok(share_release(most, NULL));
	unmap(&f);
}

Test(adopt, memory_comes_into_a_pool_in_one_way)
{
	struct file f = sealed_file(SIZE);
	unsigned char on_stack[64];
	share_buffer *b = NULL;
	share_pool *host = open_pool(client);

	check_error(share_alloc(pool, 100, NULL, &b), SHARE_ENOTSUP);
	check_detail("share_adopt");
	check_error(share_adopt(host, f.at, SIZE, NULL, &b), SHARE_ENOTSUP);
	check_detail("kind host");
	check_error(share_adopt(host, on_stack, sizeof(on_stack), NULL, &b), SHARE_ENOTSUP);
	check_detail("kind host");
	check_error(share_adopt(pool, f.at, SIZE, NULL, NULL), SHARE_EINVAL);
	check_error(share_adopt(NULL, f.at, SIZE, NULL, &b), SHARE_EINVAL);
	share_pool_close(host);
	unmap(&f);
}

/* Connections of one process have it where it is. */
Test(adopt, the_owner_has_it_once_whatever_it_gets_it_by)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE), *found;
	share_client *other = connect_as("same process");

	check_ok(share_publish(b, "data", NULL));
	check_ok(share_lookup(other, "data", SHARE_RDONLY, 0, NULL, &found));
	check(share_ptr(found) == f.at);
	check_ok(share_release(b, NULL));
	check_ok(share_release(found, NULL));
	check_ok(share_unpublish(client, "data"));
	share_disconnect(other);
	memset(f.at, 0x12, SIZE);
	unmap(&f);
}

/* Its library knows of no such kind, and would take the broker for broken. */
Test(adopt, a_program_that_is_too_old_is_told_so)
{
	struct file f = sealed_file(SIZE);
	share_buffer *b = adopted(&f, 0, SIZE);
	struct wire_message m = {.type = WIRE_LOOKUP};
	static struct raw old;

	check_ok(share_publish(b, "data", NULL));
	raw_connect(&old);
	old.version = WIRE_VERSION_ADOPT - 1;
	raw_greet(&old, "old");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.name = raw_text("data");
	raw_ask_error(&old, &m, SHARE_ENOTSUP);
	raw_ask(&old, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&old);
	check_ok(share_unpublish(client, "data"));
	check_ok(share_release(b, NULL));
	unmap(&f);
}
