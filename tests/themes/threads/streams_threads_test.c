/* SPDX-License-Identifier: MIT */

/*
 * Host streams of two clients that pass memory to each other. Nothing here waits where the fences
 * should: whoever enqueues gives the handle back at once, and each job looks whether the jobs it
 * has to come after have run.
 */

#include <sched.h>

#include "tests/themes/threads/threads.h"

static struct crew crew;

static share_client *client_of(unsigned index)
{
	return index % 2 ? client : second;
}

/* Memory outlives its handle until the job is done: that is what the fence of a release is for. */
struct job {
	void *memory;
	uint64_t size, value, *last;
};

/*
 * Often it is the broker that sees a fence reached, and so lets somebody come after it: an order
 * that goes through another process, where ThreadSanitizer does not see it. So each job says it
 * again.
 */
static atomic_uint jobs_done;

static struct job *job_begin(void *data)
{
	atomic_load_explicit(&jobs_done, memory_order_acquire);
	return data;
}

static void job_end(struct job *job)
{
	free(job);
	atomic_fetch_add_explicit(&jobs_done, 1, memory_order_release);
}

static void launch(share_host_stream *s, void (*function)(void *data), share_buffer *b,
		   uint64_t value, uint64_t *last)
{
	struct job *job = malloc(sizeof(*job));

	*job = (struct job){share_ptr(b), share_size(b), value, last};
	check_ok(share_host_stream_launch(s, function, job));
}

static void fill(void *data)
{
	struct job *job = job_begin(data);

	mark(job->memory, job->size, job->value);
	job_end(job);
}

static void expect(void *data)
{
	struct job *job = job_begin(data);

	check(is_marked(job->memory, job->size, job->value));
	job_end(job);
}

/* ------------------------------------------------------------------------------------------- */

/* A block is given back long before it has been used, and the next user may be somebody else. */
static void use_and_give_back(share_client *c, share_pool *p, unsigned index)
{
	uint32_t state = index + 1;
	share_host_stream *s;

	check_ok(share_host_stream_create(c, &s));
	for (unsigned i = 0; i < steps(120); i++) {
		uint64_t value = (uint64_t)(index + 1) << 32 | i;
		share_buffer *b;

		check_ok(share_alloc(p, 4096 << dice(&state, 4), s, &b));
		launch(s, fill, b, value, NULL);
		launch(s, expect, b, value, NULL);
		check_ok(share_release(b, s));
		if (i % 16 == 0)
			check_ok(share_host_stream_synchronize(s));
	}
	share_host_stream_destroy(s);
}

static void use_large_segments(void *data, unsigned index)
{
	share_pool *p;

	(void)data;
	check_ok(share_pool_open(client_of(index), "default", &p));
	use_and_give_back(client_of(index), p, index);
	share_pool_close(p);
}

static void the_next_user_of_a_block_comes_after_the_last(void)
{
	start();
	together(6, use_large_segments, NULL);
	stop();
}

static void use_small_segments(void *data, unsigned index)
{
	share_pool *p = data;

	if (index % 2)
		check_ok(share_pool_open(second, "small", &p));
	use_and_give_back(index % 2 ? second : client, p, index);
	if (index % 2)
		share_pool_close(p);
}

static void a_segment_is_not_retired_while_streams_use_it(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *small;

	start();
	/* without a limit it may be so large that segments have to be larger, too */
	options.limit = 16 << 20;
	options.segment_size = 64 << 10;
	options.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(client, "small", &options, &small));
	together(4, use_small_segments, small);
	settle(client, (share_ping(second), s.segment_bytes == 0));
	share_pool_close(small);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

#define NAMES 3

static const char *const names[NAMES] = {"red", "green", "blue"};

static void publish_what_is_not_written_yet(void *data, unsigned index)
{
	share_client *c = client_of(index);
	share_host_stream *s;
	share_pool *p;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_pool_open(c, "default", &p));
	for (unsigned i = 1; i <= steps(80); i++) {
		share_buffer *b;

		check_ok(share_alloc(p, 8192, s, &b));
		launch(s, fill, b, (uint64_t)index << 32 | i, NULL);
		check_ok(share_publish(b, names[index], s));
		check_ok(share_release(b, s));
		if (i % 16 == 0)
			check_ok(share_host_stream_synchronize(s));
	}
	crew_done(&crew);
	share_pool_close(p);
	share_host_stream_destroy(s);
	/* a name goes with its publisher: not before the others have read it */
	while (crew_is_busy(&crew))
		sched_yield();
}

static void expect_no_older(void *data)
{
	struct job *job = job_begin(data);
	uint64_t value;

	memcpy(&value, job->memory, sizeof(value));
	check(is_marked(job->memory, job->size, value));
	check_eq(value >> 32, job->value);
	check(value >= *job->last);
	*job->last = value;
	job_end(job);
}

static void read_on_a_stream(void *data, unsigned index)
{
	share_client *c = client_of(index);
	uint64_t last[NAMES] = {0};
	uint32_t state = index + 1;
	share_host_stream *s;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	for (unsigned i = 0; crew_is_busy(&crew); i++) {
		unsigned at = dice(&state, NAMES);
		/* now and then the thread waits itself */
		void *on = dice(&state, 4) ? s : NULL;
		share_buffer *b;

		check_ok(share_lookup(c, names[at], SHARE_RDONLY, -1, on, &b));
		if (!on) {
			check_eq(mark_of(b) >> 32, at);
			check_ok(share_buffer_status(b));
		}
		launch(s, expect_no_older, b, at, &last[at]);
		check_ok(share_release(b, s));
		if (i % 16 == 0)
			check_ok(share_host_stream_synchronize(s));
	}
	share_host_stream_destroy(s);
}

static void what_is_published_on_a_stream_is_read_after_it_was_written(void)
{
	start();
	crew = (struct crew){.busy = NAMES};
	crew_add(&crew, NAMES, publish_what_is_not_written_yet, NULL);
	crew_add(&crew, 4, read_on_a_stream, NULL);
	crew_start(&crew);
	crew_join(&crew);
	for (unsigned at = 0; at < NAMES; at++)
		check_ok(share_unpublish(client_of(at), names[at]));
	stop();
}

/* ------------------------------------------------------------------------------------------- */

#define RING 4

/* Each station takes the token on its stream, counts one up in it, and hands it on. */
struct ring {
	share_token token[RING];
	pthread_barrier_t turn;
};

static void count_up(void *data)
{
	struct job *job = job_begin(data);
	uint64_t *counter = job->memory;

	check_eq(*counter, job->value);
	*counter = job->value + 1;
	job_end(job);
}

static void station(void *data, unsigned index)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	struct ring *ring = data;
	share_host_stream *s;

	options.mode = SHARE_RDWR;
	check_ok(share_host_stream_create(client_of(index), &s));
	for (unsigned i = 0; i < steps(40) * RING; i++) {
		share_buffer *b;

		if (i % RING == index) {
			check_ok(
			    share_import(client_of(index), &ring->token[index], SHARE_RDWR, s, &b));
			launch(s, count_up, b, i, NULL);
			check_ok(
			    share_export_with(b, &options, s, &ring->token[(index + 1) % RING]));
			check_ok(share_release(b, s));
		}
		pthread_barrier_wait(&ring->turn);
	}
	share_host_stream_destroy(s);
}

static void a_token_carries_its_makers_fence(void)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	struct ring ring;
	share_buffer *b;

	start();
	options.mode = SHARE_RDWR;
	b = marked_buffer(pool, 64, 0);
	check_ok(share_export_with(b, &options, NULL, &ring.token[0]));
	pthread_barrier_init(&ring.turn, NULL, RING);
	together(RING, station, &ring);
	check_eq(mark_of(b), steps(40) * RING);
	check_ok(share_release(b, NULL));
	check_ok(share_revoke(client_of(RING - 1), &ring.token[0]));
	pthread_barrier_destroy(&ring.turn);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

#define POSTS 8

/* Fences and how far their owners had got, for everybody to look at. */
static struct {
	pthread_mutex_t lock;
	struct {
		share_fence fence;
		atomic_uint *done;
		unsigned wanted;
	} posts[POSTS];
	atomic_uint done[4];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void do_one(void *data)
{
	atomic_fetch_add((atomic_uint *)data, 1);
}

static void record_and_wait(void *data, unsigned index)
{
	share_client *c = client_of(index);
	uint32_t state = index + 1;
	unsigned launched = 0;
	share_host_stream *s;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	for (unsigned i = 0; i < steps(100); i++) {
		unsigned at = dice(&state, POSTS), wanted;
		atomic_uint *done;
		share_fence fence;

		check_ok(share_host_stream_launch(s, do_one, &board.done[index]));
		launched++;
		check_ok(share_fence_record(c, -1, s, &fence));
		pthread_mutex_lock(&board.lock);
		board.posts[at].fence = fence;
		board.posts[at].done = &board.done[index];
		board.posts[at].wanted = launched;
		at = dice(&state, POSTS);
		fence = board.posts[at].fence;
		done = board.posts[at].done;
		wanted = board.posts[at].wanted;
		pthread_mutex_unlock(&board.lock);
		if (!done)
			continue;
		switch (dice(&state, 4)) {
		case 0:
			check_ok(share_fence_synchronize(c, &fence, -1));
			check(atomic_load(done) >= wanted);
			break;
		case 1:
			if (check_one_of(share_fence_synchronize(c, &fence, 1), SHARE_ETIMEDOUT) ==
			    0)
				check(atomic_load(done) >= wanted);
			break;
		case 2:
			if (check_one_of(share_fence_query(c, &fence), SHARE_EAGAIN) == 0)
				check(atomic_load(done) >= wanted);
			break;
		default:
			check_ok(share_fence_wait(c, &fence, -1, s));
		}
	}
	share_host_stream_destroy(s);
}

static void a_fence_is_reached_when_the_work_before_it_is_done(void)
{
	start();
	together(4, record_and_wait, NULL);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void create_and_destroy(void *data, unsigned index)
{
	share_client *c = client_of(index);
	atomic_uint done = 0;
	unsigned launched = 0;

	(void)data;
	for (unsigned i = 0; i < steps(25); i++) {
		share_host_stream *s;
		share_fence fence;

		check_ok(share_host_stream_create(c, &s));
		for (unsigned n = 0; n < i % 4; n++, launched++)
			check_ok(share_host_stream_launch(s, do_one, &done));
		check_ok(share_fence_record(c, -1, s, &fence));
		share_host_stream_destroy(s);
		check_eq(atomic_load(&done), launched);
		check_ok(share_fence_query(client, &fence));
		check_ok(share_fence_query(second, &fence));
	}
}

static void streams_come_and_go_at_once(void)
{
	start();
	together(4, create_and_destroy, NULL);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(the_next_user_of_a_block_comes_after_the_last),
	    TEST(a_segment_is_not_retired_while_streams_use_it),
	    TEST(what_is_published_on_a_stream_is_read_after_it_was_written),
	    TEST(a_token_carries_its_makers_fence),
	    TEST(a_fence_is_reached_when_the_work_before_it_is_done),
	    TEST(streams_come_and_go_at_once),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
