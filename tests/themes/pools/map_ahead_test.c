/* SPDX-License-Identifier: MIT */

/*
 * A pool that was mapped ahead: no look-up brings or maps anything any more. What it has by now is
 * mapped, however much that is, for who may have it and as far as they may.
 */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libshare/segment/inside.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"
#include "tests/support/channel_work.h"

#define SEGMENT   65536
#define MANY      300
#define AT_A_TIME 128 /* that nobody has read */
#define BOB       4712

/* Segments of 64 KiB, which are returned when they are empty. */
#define POOL(name, access)                               \
	"{\"name\": \"" name                             \
	"\", \"kind\": \"host\", \"limit\": \"64MiB\", " \
	"\"segment_size\": \"64KiB\", \"release_threshold\": 0, \"access\": [" access "]}"
#define ANYBODY(mode) "{\"user\": \"*\", \"mode\": \"" mode "\"}"

static const char config[] =
    "{\"pools\": [" POOL("default", ANYBODY("rw")) ", "
    POOL("shown", "{\"user\": 0, \"mode\": \"rw\"}, " ANYBODY("ro")) ", "
    "{\"name\": \"adopted\", \"kind\": \"adopted\", \"limit\": \"64MiB\", \"access\": ["
    ANYBODY("rw") "]}]}";

static share_client *client, *other;
static share_pool *pool, *others_pool;
static share_buffer *buffers[MANY];

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("test");
	pool = open_pool(client);
	other = connect_as("other");
	others_pool = open_pool(other);
}

static void stop(void)
{
	share_pool_close(others_pool);
	share_disconnect(other);
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(map_ahead, .init = start, .fini = stop, .timeout = 60);

/* Each in a segment of its own. */
static void allocate_up_to(int from, int to)
{
	for (int i = from; i < to; i++) {
		buffers[i] = allocate(pool, SEGMENT, NULL);
		memset(share_ptr(buffers[i]), i, SEGMENT);
	}
}

static void release_all(int n)
{
	for (int i = 0; i < n; i++)
		check_ok(share_release(buffers[i], NULL));
}

static struct segments *segments_of(share_client *c)
{
	return client_of(c)->segments;
}

static int mapped_in(share_client *c, bool writable)
{
	struct segments *t = segments_of(c);
	int n = 0;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->room; i++)
		if (t->all[i])
			n += (writable ? &t->all[i]->writing : &t->all[i]->reading)
				 ->mapping.address != NULL;
	pthread_mutex_unlock(&t->lock);
	return n;
}

static uint64_t arrived_in(share_client *c)
{
	struct segments *t = segments_of(c);
	uint64_t n;

	pthread_mutex_lock(&t->lock);
	n = t->arrived;
	pthread_mutex_unlock(&t->lock);
	return n;
}

static void look_at(share_client *c, int i)
{
	share_buffer *b;

	check_ok(share_publish(buffers[i], "name", NULL));
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	expect_filled(share_ptr(b), i & 0xff, SEGMENT);
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(client, "name"));
}

Test(map_ahead, a_look_up_brings_and_maps_nothing)
{
	allocate_up_to(0, 5);
	check_eq(mapped_in(other, false), 0);
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
	check_eq(mapped_in(other, false), 5);
	check_eq(arrived_in(other), 5);
	for (int i = 0; i < 5; i++)
		look_at(other, i);
	check_eq(mapped_in(other, false), 5);
	check_eq(arrived_in(other), 5);
	check_eq(mapped_in(other, true), 0);
	/* once more, for writing */
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDWR));
	check_eq(mapped_in(other, true), 5);
	check_eq(arrived_in(other), 10);
	release_all(5);
}

Test(map_ahead, who_does_not_ask_for_it_maps_what_it_looks_up)
{
	allocate_up_to(0, 5);
	look_at(other, 2);
	check_eq(mapped_in(other, false), 1);
	check_eq(arrived_in(other), 1);
	release_all(5);
}

Test(map_ahead, what_a_pool_has_grown_by_is_mapped_by_the_next_call)
{
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
	check_eq(mapped_in(other, false), 0);
	allocate_up_to(0, 3);
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
	check_eq(mapped_in(other, false), 3);
	allocate_up_to(3, 5);
	look_at(other, 4);
	check_eq(mapped_in(other, false), 4);
	for (int i = 0; i < 2; i++) {
		check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
		check_eq(mapped_in(other, false), 5);
		check_eq(arrived_in(other), 5);
	}
	/* and given back with its last buffer, as all is */
	release_all(5);
	until(share_ping(other) == 0 && mapped_in(other, false) == 0);
	settle(client, s.segments == 0);
}

Test(map_ahead, however_many_segments_there_are_all_are_mapped_and_take_no_descriptors)
{
	int before;

	/* the first wait in the broker takes a descriptor to be woken by, which later ones have */
	allocate_up_to(0, 1);
	before = descriptors_count(0);
	allocate_up_to(1, MANY);
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
	check_eq(mapped_in(other, false), MANY);
	check_eq(descriptors_count(0), before);
	for (int i = 0; i < MANY; i += 7)
		look_at(other, i);
	check_eq(arrived_in(other), MANY);
	release_all(MANY);
}

Test(map_ahead, consumers_map_what_comes_later_when_it_comes)
{
	share_channel *ch = open_channel(other, SHARE_CONSUMER, NULL);
	int early;

	allocate_up_to(0, 2);
	expect_nothing(ch);
	early = mapped_in(other, false);
	check_eq(arrived_in(other), 2);
	check_eq(early, 0);
	check_ok(share_pool_map_ahead(others_pool, SHARE_RDONLY));
	check_eq(mapped_in(other, false), 2);
	allocate_up_to(2, 4);
	expect_nothing(ch);
	check_eq(mapped_in(other, false), 4);
	check_eq(arrived_in(other), 4);
	share_channel_close(ch);
	release_all(4);
}

Test(map_ahead, is_refused_where_it_makes_no_sense_or_the_broker_is_too_old)
{
	share_pool *p = open_pool(other);

	check_error(share_pool_map_ahead(NULL, SHARE_RDONLY), SHARE_EINVAL);
	check_error(share_pool_map_ahead(others_pool, 0), SHARE_EINVAL);
	check_error(share_pool_map_ahead(others_pool, 2), SHARE_EINVAL);
	share_pool_close(p);
	check_error(share_pool_map_ahead(p, SHARE_RDONLY), SHARE_EINVAL);
	client_of(other)->version = WIRE_VERSION_POOL_SEGMENTS - 1;
	check_error(share_pool_map_ahead(others_pool, SHARE_RDONLY), SHARE_ENOTSUP);
	check_detail("too old");
	client_of(other)->version = WIRE_VERSION;
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker sends                                                                       */

static struct wire_message segments_request(uint64_t id, uint32_t mode)
{
	struct wire_message m = {.type = WIRE_POOL_SEGMENTS};

	m.pool_segments.pool = id;
	m.pool_segments.mode = mode;
	return m;
}

/* How many come before the answer. */
static int count_segments(struct raw *r, uint64_t id, uint32_t mode)
{
	struct wire_message m = segments_request(id, mode);
	int n = 0;

	m.serial = ++r->serial;
	check_eq(raw_send(r, &m), 0);
	while (raw_receive(r, HARNESS_LIMIT_MS) == RAW_MESSAGE && r->m.type == WIRE_GRANT) {
		check_eq(r->m.serial, 0);
		check_eq(r->m.grant.buffer, 0);
		check_eq(r->m.grant.mode, mode);
		check_eq(r->fds.n, 1);
		n++;
	}
	check_eq(r->m.type, WIRE_DONE);
	return n;
}

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

Test(map_ahead, each_segment_is_sent_once_for_reading_and_once_for_writing)
{
	struct wire_message look_up = {.type = WIRE_LOOKUP};
	struct raw r;
	uint64_t id;

	raw_open(&r, "raw");
	id = raw_pool(&r, "default");
	check_eq(count_segments(&r, id, SHARE_RDONLY), 0);
	allocate_up_to(0, 3);
	check_eq(count_segments(&r, id, SHARE_RDONLY), 3);
	check_eq(count_segments(&r, id, SHARE_RDONLY), 0);
	check_eq(count_segments(&r, id, SHARE_RDWR), 3);
	check_eq(count_segments(&r, id, SHARE_RDWR), 0);
	check_ok(share_publish(buffers[1], "name", NULL));
	look_up.lookup.mode = SHARE_RDWR;
	look_up.lookup.name = raw_text("name");
	raw_ask(&r, &look_up, WIRE_GRANT);
	check_eq(r.fds.n, 0);
	check_ok(share_unpublish(client, "name"));
	release_all(3);
	goodbye(&r);
}

Test(map_ahead, so_many_are_sent_at_a_time_and_the_rest_when_it_is_asked_for)
{
	int n = 0, sent, rounds = 0;
	struct raw r;
	uint64_t id;

	raw_open(&r, "raw");
	id = raw_pool(&r, "default");
	allocate_up_to(0, MANY);
	do {
		sent = count_segments(&r, id, SHARE_RDONLY);
		check(sent <= AT_A_TIME);
		n += sent;
		rounds++;
	} while (sent > 0);
	check_eq(n, MANY);
	check(rounds <= 5);
	release_all(MANY);
	goodbye(&r);
}

/* ------------------------------------------------------------------------------------------- */
/* Who gets it                                                                                 */

static void bob_reads(struct child *self, void *data)
{
	struct wire_message m;
	share_client *c;
	share_pool *p;
	struct raw r;
	uint64_t id;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_pool_open(c, "shown", &p));
	check_error(share_pool_map_ahead(p, SHARE_RDWR), SHARE_EACCES);
	check_detail("may only read in pool 'shown'");
	check_eq(arrived_in(c), 0);
	check_ok(share_pool_map_ahead(p, SHARE_RDONLY));
	check_eq(mapped_in(c, false), 1);
	check_eq(mapped_in(c, true), 0);
	share_pool_close(p);
	share_disconnect(c);

	raw_open(&r, "bob");
	id = raw_pool(&r, "shown");
	m = segments_request(id, SHARE_RDWR);
	raw_ask_error(&r, &m, SHARE_EACCES);
	check_eq(r.fds.n, 0);
	check_eq(count_segments(&r, id, SHARE_RDONLY), 1);
	/* what is not open is nobody's business */
	m = (struct wire_message){.type = WIRE_POOL_CLOSE};
	m.pool_close.pool = id;
	raw_ask(&r, &m, WIRE_DONE);
	m = segments_request(id, SHARE_RDONLY);
	raw_ask_error(&r, &m, SHARE_ESTALE);
	goodbye(&r);
}

Test(map_ahead, who_may_only_read_gets_it_for_reading)
{
	share_buffer *b;
	share_pool *p;

	skip_unless_root();
	check_ok(share_pool_open(client, "shown", &p));
	b = allocate(p, SEGMENT, NULL);
	child_finish(child_start(bob_reads, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

static void bob_maps_what_was_adopted(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_pool_open(c, "adopted", &p));
	check_ok(share_pool_map_ahead(p, SHARE_RDONLY));
	check_eq(arrived_in(c), 0);
	share_pool_close(p);
	share_disconnect(c);
}

/* The file may become smaller, so it is for processes of the same user. */
Test(map_ahead, adopted_memory_that_is_not_for_a_user_is_left_out)
{
	int fd = memfd_create("data", MFD_CLOEXEC);
	share_pool *p, *again;
	share_buffer *b;
	void *at;

	skip_unless_root();
	check(ftruncate(fd, SEGMENT) == 0);
	at = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check_ok(share_pool_open(client, "adopted", &p));
	check_ok(share_adopt(p, at, SEGMENT, NULL, &b));
	child_finish(child_start(bob_maps_what_was_adopted, NULL));
	check_ok(share_pool_open(other, "adopted", &again));
	check_ok(share_pool_map_ahead(again, SHARE_RDONLY));
	check_eq(arrived_in(other), 1);
	share_pool_close(again);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	munmap(at, SEGMENT);
	close(fd);
}
