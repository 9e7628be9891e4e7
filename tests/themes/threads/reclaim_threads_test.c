/* SPDX-License-Identifier: MIT */

/*
 * Memory that is used again by who has handed it out, once nobody else has it: what readers see of
 * it never changes under them, whichever way they got it, and whoever is told that it is the last
 * one writes without another lock.
 */

#include <sched.h>
#include <stdio.h>

#include <share/channel.h>

#include "tests/themes/threads/threads.h"

#define OWNERS  2u
#define READERS 2u
#define SIZE    4096u

static struct crew crew;

static void name_of(unsigned owner, char name[static 16])
{
	snprintf(name, 16, "owner/%u", owner);
}

/* What it was allocated with, all of it; and a while later still. */
static void read_twice(share_buffer *b)
{
	uint64_t value = mark_of(b);

	sched_yield();
	check(is_marked(share_ptr(b), SIZE, value));
}

static void look_up_and_read(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	while (crew_is_busy(&crew)) {
		share_client *c = dice(&state, 2) ? client : second;
		share_buffer *b;
		char name[16];

		name_of(dice(&state, OWNERS), name);
		if (check_one_of(share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT))
			continue;
		read_twice(b);
		check_ok(share_release(b, NULL));
	}
}

static void publish_reclaim_and_write(void *data, unsigned index)
{
	share_buffer *b = marked_buffer(pool, SIZE, index);
	char name[16];

	(void)data;
	name_of(index, name);
	for (unsigned i = 0; i < steps(150); i++) {
		check_ok(share_publish(b, name, NULL));
		sched_yield();
		check_ok(share_unpublish(client, name));
		check_ok(share_reclaim(b, SHARE_WAIT_FOREVER, NULL));
		mark(share_ptr(b), SIZE, (uint64_t)(i + 1) * OWNERS + index);
	}
	check_ok(share_release(b, NULL));
	crew_done(&crew);
}

static void the_last_holder_writes_again(void)
{
	start();
	crew = (struct crew){.busy = OWNERS};
	crew_add(&crew, OWNERS, publish_reclaim_and_write, NULL);
	crew_add(&crew, READERS, look_up_and_read, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

struct question {
	share_buffer *buffer;
	atomic_int times, status;
};

static void answered(int status, void *data)
{
	struct question *q = data;

	atomic_store(&q->status, status);
	atomic_fetch_add(&q->times, 1);
}

static void dispatch(void *data, unsigned index)
{
	(void)data, (void)index;
	while (crew_is_busy(&crew)) {
		check(share_dispatch(client) >= 0);
		sched_yield();
	}
}

/* One that is canceled is told nothing any more; the others are told once. */
static void ask_and_cancel(void *data, unsigned index)
{
	share_buffer *b = marked_buffer(pool, SIZE, index);
	uint32_t state = index + 1;
	char name[16];

	(void)data;
	name_of(index, name);
	for (unsigned i = 0; i < steps(150); i++) {
		struct question q = {.buffer = b, .status = 1};
		bool early = dice(&state, 2);
		share_operation *o;

		check_ok(share_publish(b, name, NULL));
		check_ok(share_reclaim_async(b, NULL, answered, &q, &o));
		if (early)
			share_cancel(o);
		check_eq(atomic_load(&q.times), 0);
		check_ok(share_unpublish(client, name));
		if (atomic_load(&q.times) == 0)
			check_ok(share_reclaim(b, SHARE_WAIT_FOREVER, NULL));
		if (!early)
			share_cancel(o);
		check(atomic_load(&q.times) <= !early);
		if (atomic_load(&q.times) == 1)
			check_ok(atomic_load(&q.status));
		mark(share_ptr(b), SIZE, (uint64_t)(i + 1) * OWNERS + index);
	}
	check_ok(share_release(b, NULL));
	crew_done(&crew);
}

static void who_is_told_writes_while_others_dispatch_and_cancel(void)
{
	start();
	crew = (struct crew){.busy = OWNERS};
	crew_add(&crew, OWNERS, ask_and_cancel, NULL);
	crew_add(&crew, READERS, look_up_and_read, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_channel *open_channel(share_client *c, int role)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.pool = "default";
	check_ok(share_channel_open(c, "frames", role, &o, &ch));
	return ch;
}

/* Until its producer has left. Some are kept for a while beyond their messages. */
static void receive(void *data, unsigned index)
{
	share_channel *ch = data;
	uint32_t state = index + 1;
	share_message m = SHARE_MESSAGE_INIT;

	while (check_one_of(share_recv(ch, SHARE_WAIT_FOREVER, NULL, &m), SHARE_EPIPE) == 0) {
		share_buffer *kept = dice(&state, 3) ? NULL : share_retain(m.buffer);

		read_twice(m.buffer);
		check_ok(share_ack(&m, NULL));
		if (kept) {
			read_twice(kept);
			check_ok(share_release(kept, NULL));
		}
	}
	share_channel_close(ch);
}

/* The next message has the same memory, as soon as nobody has that of the one before. */
static void send_and_write(void *data, unsigned index)
{
	share_channel *ch = open_channel(client, SHARE_PRODUCER);
	share_buffer *b = marked_buffer(pool, SIZE, 0);

	(void)data, (void)index;
	for (unsigned i = 1; i <= steps(10); i++) {
		check_ok(share_send(ch, b, NULL, 0, NULL));
		check_ok(share_reclaim(b, SHARE_WAIT_FOREVER, NULL));
		mark(share_ptr(b), SIZE, i);
	}
	share_channel_close(ch);
	check_ok(share_release(b, NULL));
}

static void what_was_sent_is_written_again(void)
{
	start();
	crew = (struct crew){.n = 0};
	crew_add(&crew, 1, receive, open_channel(second, SHARE_CONSUMER));
	crew_add(&crew, 1, receive, open_channel(client, SHARE_CONSUMER));
	crew_add(&crew, 1, send_and_write, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(the_last_holder_writes_again),
	    TEST(who_is_told_writes_while_others_dispatch_and_cancel),
	    TEST(what_was_sent_is_written_again),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
