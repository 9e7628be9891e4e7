/* SPDX-License-Identifier: MIT */

/*
 * What share_dispatch() runs, while several threads dispatch, start, cancel and watch. The data of
 * a callback is freed as soon as the library has promised that the callback will not start any
 * more, so that a sanitizer sees a promise that was not kept.
 */

#include <poll.h>
#include <sched.h>
#include <stdio.h>

#include "tests/themes/threads/threads.h"

#define NAMES 3

static const char *const names[NAMES] = {"one", "two", "three"};
static struct crew crew;

/* Some do so when the descriptor says so, others all the time. */
static void dispatch(void *data, unsigned index)
{
	struct pollfd p = {.fd = share_get_fd(client), .events = POLLIN};

	(void)data;
	check(p.fd >= 0);
	while (crew_is_busy(&crew)) {
		if (index % 2)
			poll(&p, 1, 1);
		check(share_dispatch(client) >= 0);
	}
}

static void publish_now_and_then(void *data, unsigned index)
{
	uint32_t state = index + 77;

	(void)data;
	while (crew_is_busy(&crew)) {
		const char *name = names[dice(&state, NAMES)];
		share_buffer *b = marked_buffer(pool, 64, index);

		check_ok(share_publish(b, name, NULL));
		check_ok(share_release(b, NULL));
		if (dice(&state, 2))
			check_one_of(share_unpublish(client, name), SHARE_ENOENT);
	}
	for (unsigned at = 0; at < NAMES; at++)
		check_one_of(share_unpublish(client, names[at]), SHARE_ENOENT);
}

/* ------------------------------------------------------------------------------------------- */

struct question {
	atomic_uint answers;
	atomic_uint *pending; /* of all that nobody cancels */
};

static void answered(share_buffer *b, int error, void *data)
{
	struct question *q = data;

	check(atomic_fetch_add(&q->answers, 1) == 0);
	check((b != NULL) == (error == 0));
	check_one_of(error, SHARE_ENOENT, SHARE_ETIMEDOUT);
	if (b) {
		mark_of(b);
		check_ok(share_release(b, NULL));
	}
	if (q->pending) {
		atomic_fetch_sub(q->pending, 1);
		free(q);
	}
}

static void ask(struct question *q, uint32_t *state, share_operation **out)
{
	static const int limits[] = {0, 1, 5, 50};

	check_ok(share_lookup_async(client, names[dice(state, NAMES)], SHARE_RDONLY,
				    limits[dice(state, 4)], NULL, answered, q, out));
}

static void ask_and_cancel(void *data, unsigned index)
{
	uint32_t state = index + 1;
	atomic_uint pending = 0;

	(void)data;
	for (unsigned i = 0; i < steps(150); i++) {
		struct question *q = calloc(1, sizeof(*q));
		share_operation *o;

		if (dice(&state, 3) == 0) {
			atomic_fetch_add(&pending, 1);
			q->pending = &pending;
			ask(q, &state, NULL);
			continue;
		}
		ask(q, &state, &o);
		if (dice(&state, 3) == 0)
			while (atomic_load(&q->answers) == 0)
				check(share_dispatch(client) >= 0);
		share_cancel(o);
		free(q);
	}
	while (atomic_load(&pending) > 0)
		check(share_dispatch(client) >= 0);
	crew_done(&crew);
}

static void an_operation_answers_once_or_is_canceled(void)
{
	start();
	crew = (struct crew){.busy = 3};
	crew_add(&crew, 3, ask_and_cancel, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_add(&crew, 1, publish_now_and_then, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

struct self_made {
	share_operation *operation;
	atomic_bool started; /* `operation` is there */
	atomic_uint *left;
	unsigned again; /* how often the callback asks again */
};

static void ask_again(share_buffer *b, int error, void *data)
{
	struct self_made *m = data;

	check_one_of(error, SHARE_ENOENT, SHARE_ETIMEDOUT);
	if (b)
		check_ok(share_release(b, NULL));
	while (!atomic_load(&m->started))
		;
	share_cancel(m->operation); /* the one that runs */
	if (m->again-- == 0) {
		atomic_fetch_sub(m->left, 1);
		free(m);
		return;
	}
	atomic_store(&m->started, false);
	check_ok(share_lookup_async(client, names[m->again % NAMES], SHARE_RDWR, (int)m->again % 3,
				    NULL, ask_again, m, &m->operation));
	atomic_store(&m->started, true);
}

static void ask_in_callbacks(void *data, unsigned index)
{
	atomic_uint left = steps(10);

	(void)data;
	for (unsigned i = 0; i < steps(10); i++) {
		struct self_made *m = calloc(1, sizeof(*m));

		m->left = &left;
		m->again = 10 + index;
		check_ok(share_lookup_async(client, names[i % NAMES], SHARE_RDWR, 1, NULL,
					    ask_again, m, &m->operation));
		atomic_store(&m->started, true);
	}
	while (atomic_load(&left) > 0)
		check(share_dispatch(client) >= 0);
	crew_done(&crew);
}

static void callbacks_may_start_and_cancel(void)
{
	start();
	crew = (struct crew){.busy = 2};
	crew_add(&crew, 2, ask_in_callbacks, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_add(&crew, 1, publish_now_and_then, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static atomic_uint may_finish; /* so much of the giver's work */

static void work_until_told(void *data)
{
	while (atomic_load(&may_finish) < (unsigned)(uintptr_t)data)
		sched_yield();
}

/* Publishes what will be done a little later. */
static void give_before_it_is_done(void *data, unsigned index)
{
	uint32_t state = index + 9;
	share_host_stream *s;
	share_buffer *b;
	share_pool *p;

	(void)data;
	check_ok(share_host_stream_create(second, &s));
	check_ok(share_pool_open(second, "default", &p));
	for (uintptr_t n = 1; crew_is_busy(&crew); n++) {
		b = marked_buffer(p, 64, n);
		check_ok(share_host_stream_launch(s, work_until_told, (void *)n));
		check_ok(share_publish(b, "slow", s));
		check_ok(share_release(b, s));
		for (unsigned pings = dice(&state, 20); pings > 0; pings--)
			check_ok(share_ping(second));
		atomic_store(&may_finish, (unsigned)n);
	}
	check_one_of(share_unpublish(second, "slow"), SHARE_ENOENT);
	share_pool_close(p);
	share_host_stream_destroy(s);
}

static void look_up_what_is_not_done(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(60); i++) {
		struct question *q = calloc(1, sizeof(*q));
		share_host_stream *s = NULL;
		share_operation *o;

		if (dice(&state, 2))
			check_ok(share_host_stream_create(client, &s));
		check_ok(share_lookup_async(client, "slow", SHARE_RDONLY, dice(&state, 2) ? -1 : 10,
					    s, answered, q, &o));
		/* anywhere between the question and its answer */
		for (unsigned n = dice(&state, 4); n > 0; n--)
			check(share_dispatch(client) >= 0);
		share_cancel(o);
		share_host_stream_destroy(s);
		free(q);
	}
	crew_done(&crew);
}

static void what_is_not_done_can_be_canceled(void)
{
	start();
	crew = (struct crew){.busy = 2};
	crew_add(&crew, 2, look_up_what_is_not_done, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_add(&crew, 1, give_before_it_is_done, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

static void told(int status, void *data)
{
	struct question *q = data;

	check_ok(status);
	check(atomic_fetch_add(&q->answers, 1) == 0);
	if (q->pending) {
		atomic_fetch_sub(q->pending, 1);
		free(q);
	}
}

static void watch_what_is_not_done(void *data, unsigned index)
{
	atomic_uint pending = 0;
	uint32_t state = index + 1;
	share_host_stream *s;

	(void)data;
	check_ok(share_host_stream_create(client, &s));
	for (unsigned i = 0; i < steps(60); i++) {
		struct question *q = calloc(1, sizeof(*q));
		share_operation *o = NULL;
		bool keep = dice(&state, 2);
		share_buffer *b;

		check_ok(share_lookup(client, "slow", SHARE_RDONLY, -1, s, &b));
		if (!keep) {
			atomic_fetch_add(&pending, 1);
			q->pending = &pending;
		}
		check_ok(share_buffer_watch(b, told, q, keep ? &o : NULL));
		check_ok(share_release(b, s));
		for (unsigned n = dice(&state, 4); n > 0; n--)
			check(share_dispatch(client) >= 0);
		share_cancel(o);
		if (keep)
			free(q);
	}
	while (atomic_load(&pending) > 0)
		check(share_dispatch(client) >= 0);
	share_host_stream_destroy(s);
	crew_done(&crew);
}

static void a_buffer_is_watched_until_it_is_done_or_the_watch_canceled(void)
{
	start();
	crew = (struct crew){.busy = 2};
	crew_add(&crew, 2, watch_what_is_not_done, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_add(&crew, 1, give_before_it_is_done, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

struct view {
	char prefix[8];
	atomic_uint seen;
};

static void changed(const share_name_event *event, void *data)
{
	struct view *v = data;

	atomic_fetch_add(&v->seen, 1);
	if (event->change != SHARE_OVERFLOW)
		check(strncmp(event->name, v->prefix, strlen(v->prefix)) == 0);
}

static void watch_and_unwatch(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(60); i++) {
		struct view *v = calloc(1, sizeof(*v));
		share_watch *w;

		if (dice(&state, 2))
			strcpy(v->prefix, "t");
		check_ok(share_watch_names(client, v->prefix, changed, v, &w));
		for (unsigned n = dice(&state, 5); n > 0; n--)
			check(share_dispatch(client) >= 0);
		share_unwatch(w);
		free(v);
	}
	crew_done(&crew);
}

static void no_callback_starts_after_unwatch(void)
{
	start();
	crew = (struct crew){.busy = 3};
	crew_add(&crew, 3, watch_and_unwatch, NULL);
	crew_add(&crew, 2, dispatch, NULL);
	crew_add(&crew, 2, publish_now_and_then, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static uint64_t last_seen[NAMES];
static bool overflowed;

static void follow(const share_name_event *event, void *data)
{
	(void)data;
	overflowed |= event->change == SHARE_OVERFLOW;
	for (unsigned at = 0; at < NAMES; at++) {
		if (strcmp(event->name, names[at]) != 0)
			continue;
		/* a name that is gone had a version, too */
		check(event->change == SHARE_UNPUBLISHED ? event->version >= last_seen[at]
							 : event->version > last_seen[at]);
		last_seen[at] = event->version;
	}
}

static void publish_and_remember(void *data, unsigned index)
{
	uint64_t *last = data;

	for (unsigned i = 0; i < steps(150); i++) {
		share_buffer *b = marked_buffer(pool, 64, i);

		check_ok(share_publish_with(b, names[index], NULL, NULL, &last[index]));
		check_ok(share_release(b, NULL));
		if (i % 5 == 0)
			check_ok(share_unpublish(client, names[index]));
	}
	crew_done(&crew);
}

/* One thread dispatches, others make requests and so read the changes for it. */
static void a_watch_reports_changes_in_order(void)
{
	uint64_t last[NAMES];
	share_watch *w;

	start();
	check_ok(share_watch_names(client, NULL, follow, NULL, &w));
	crew = (struct crew){.busy = NAMES};
	crew_add(&crew, 1, dispatch, NULL);
	crew_add(&crew, NAMES, publish_and_remember, last);
	crew_start(&crew);
	crew_join(&crew);
	check_ok(share_ping(client));
	while (share_dispatch(client) > 0)
		;
	for (unsigned at = 0; at < NAMES; at++) {
		check(overflowed || last_seen[at] >= last[at]);
		check_one_of(share_unpublish(client, names[at]), SHARE_ENOENT);
	}
	share_unwatch(w);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(an_operation_answers_once_or_is_canceled),
	    TEST(callbacks_may_start_and_cancel),
	    TEST(what_is_not_done_can_be_canceled),
	    TEST(a_buffer_is_watched_until_it_is_done_or_the_watch_canceled),
	    TEST(no_callback_starts_after_unwatch),
	    TEST(a_watch_reports_changes_in_order),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
