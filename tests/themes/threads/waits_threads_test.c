/* SPDX-License-Identifier: MIT */

/*
 * How waits end, for every function that waits for others: the program interrupts the connection
 * (another thread, or the handler of a signal in the thread that waits), or gives the handle up, or
 * the time is over. A function with a time limit that is in none of the lists does not compile:
 * waits.sh takes them from the headers.
 */

#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "libshare/client/client.h"
#include "tests/themes/threads/threads.h"
#include "tests/themes/threads/waits.h"

#include <share/admin.h>
#include <share/service.h>

#define MORE 1 /* ms */

/* What a row of the table works with: a connection of its own, and what it had of it. */
static struct scene {
	share_client *c;
	share_pool *p, *theirs;
	share_channel *ch, *peer, *other;
	share_service *s;
	share_pending *pending;
	share_host_stream *stream;
	share_buffer *b;
	share_fence fence;
	int timeout_ms;      /* of what says it before the call */
	atomic_bool goes_on; /* the work on the stream */
} t;

/* ------------------------------------------------------------------------------------------- */
/* What there is to wait for                                                                   */

static void work(void *data)
{
	(void)data;
	while (!atomic_load(&t.goes_on))
		sched_yield();
}

static void begin_work(share_client *c)
{
	check_ok(share_host_stream_create(c, &t.stream));
	check_ok(share_host_stream_launch(t.stream, work, NULL));
	check_ok(share_fence_record(c, -1, t.stream, &t.fence));
}

static share_channel *member(share_client *c, int role, uint32_t mode)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.mode = mode;
	o.depth = o.in_flight = 1;
	o.send_timeout_ms = t.timeout_ms;
	check_ok(share_channel_open(c, "channel", role, &o, &ch));
	return ch;
}

static void nothing_to_receive(void)
{
	t.ch = member(t.c, SHARE_CONSUMER, SHARE_BROADCAST);
	t.peer = member(second, SHARE_PRODUCER, SHARE_BROADCAST);
}

/* More than one word to wait for: it sleeps on its doorbell. */
static void nothing_of_two_producers(void)
{
	nothing_to_receive();
	t.other = member(second, SHARE_PRODUCER, SHARE_BROADCAST);
}

static void no_room(void)
{
	t.peer = member(second, SHARE_CONSUMER, SHARE_BROADCAST);
	t.ch = member(t.c, SHARE_PRODUCER, SHARE_BROADCAST);
	check_ok(share_send(t.ch, NULL, "1", 1, NULL));
}

static void nobody_to_receive(void)
{
	t.ch = member(t.c, SHARE_PRODUCER, SHARE_QUEUE);
	check_ok(share_send(t.ch, NULL, "1", 1, NULL));
}

static void join(int role)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;

	o.depth = 1;
	check_ok(share_service_open(t.c, "service", role, &o, &t.s));
}

static void nobody_to_answer(void)
{
	join(SHARE_CALLER);
}

static void no_answer(void)
{
	join(SHARE_CALLER);
	check_ok(share_call_start(t.s, NULL, NULL, 0, 0, NULL, &t.pending));
}

static void no_request(void)
{
	join(SHARE_WORKER);
}

static void no_name(void)
{
}

static int on_event(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static void nothing_happens(void)
{
	share_monitor_options o = SHARE_MONITOR_OPTIONS_INIT;

	o.prefix = "nothing of that name";
	check_ok(share_monitor(t.c, &o, 0, on_event, NULL));
}

static void work_of_others(void)
{
	begin_work(second);
}

static void own_work(void)
{
	begin_work(t.c);
}

static void others_have_it(void)
{
	check_ok(share_pool_open(t.c, "default", &t.p));
	check_ok(share_alloc(t.p, 4096, NULL, &t.b));
	check_ok(share_publish(t.b, "kept", NULL));
}

static void memory_in_use(void)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b;

	begin_work(second);
	o.kind = "host";
	o.reuse = SHARE_REUSE_CLEAN;
	o.limit = o.segment_size = 2 << 20;
	check_ok(share_pool_create(second, "small", &o, &t.theirs));
	check_ok(share_alloc(t.theirs, 2 << 20, NULL, &b));
	check_ok(share_release(b, t.stream));
	check_ok(share_pool_open(t.c, "small", &t.p));
}

/* ------------------------------------------------------------------------------------------- */
/* The calls                                                                                   */

static int acknowledged(int r, share_message *m)
{
	if (m->channel)
		check_ok(share_ack(m, NULL));
	return r;
}

static int call_share_recv(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;

	return acknowledged(share_recv(t.ch, timeout_ms, NULL, &m), &m);
}

static int call_share_recv_many(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;

	return acknowledged(share_recv_many(t.ch, timeout_ms, NULL, &m, 1), &m);
}

/* The limit of the next three is the channel's. */
static int call_share_send(int timeout_ms)
{
	(void)timeout_ms;
	return share_send(t.ch, NULL, "2", 1, NULL);
}

static int call_share_give(int timeout_ms)
{
	(void)timeout_ms;
	return share_give(t.ch, NULL, "2", 1, NULL);
}

static int call_share_send_many(int timeout_ms)
{
	share_outgoing o = {.size = sizeof(o), .data = "2", .data_size = 1};

	(void)timeout_ms;
	return share_send_many(t.ch, &o, 1, NULL);
}

static int call_share_channel_flush(int timeout_ms)
{
	return share_channel_flush(t.ch, timeout_ms);
}

static int call_share_channel_drain(int timeout_ms)
{
	return share_channel_drain(t.ch, timeout_ms);
}

static int call_share_call(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;

	return share_call(t.s, NULL, NULL, 0, timeout_ms, NULL, &m);
}

static int call_share_call_start(int timeout_ms)
{
	share_pending *p;

	return share_call_start(t.s, NULL, NULL, 0, timeout_ms, NULL, &p);
}

static int call_share_call_with(int timeout_ms)
{
	share_outgoing request = SHARE_OUTGOING_INIT;
	share_message m = SHARE_MESSAGE_INIT;

	return share_call_with(t.s, &request, timeout_ms, NULL, &m);
}

static int call_share_call_start_with(int timeout_ms)
{
	share_outgoing request = SHARE_OUTGOING_INIT;
	share_pending *p;

	return share_call_start_with(t.s, &request, timeout_ms, NULL, &p);
}

static int call_share_call_finish(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_call_finish(t.pending, timeout_ms, NULL, &m);

	if (r == SHARE_ETIMEDOUT || r == SHARE_ECANCELED) /* else it stays */
		t.pending = NULL;
	return r;
}

static int call_share_next_request(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;

	return share_next_request(t.s, timeout_ms, NULL, &m);
}

static int call_share_lookup(int timeout_ms)
{
	share_buffer *b;

	return share_lookup(t.c, "nowhere", SHARE_RDONLY, timeout_ms, NULL, &b);
}

static int call_share_monitor(int timeout_ms)
{
	share_monitor_options o = SHARE_MONITOR_OPTIONS_INIT;

	o.prefix = "nothing of that name";
	return share_monitor(t.c, &o, timeout_ms, on_event, NULL);
}

static int call_share_fence_synchronize(int timeout_ms)
{
	return share_fence_synchronize(t.c, &t.fence, timeout_ms);
}

static int call_share_reclaim(int timeout_ms)
{
	return share_reclaim(t.b, timeout_ms, NULL);
}

/* More than a second is not waited for by itself. */
static int call_share_alloc_with(int timeout_ms)
{
	share_alloc_options o = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b;

	o.timeout_ms = timeout_ms < 0 ? HARNESS_LIMIT_MS : timeout_ms;
	return share_alloc_with(t.p, 2 << 20, &o, NULL, &b);
}

static int call_share_host_stream_synchronize(int timeout_ms)
{
	(void)timeout_ms;
	return share_host_stream_synchronize(t.stream);
}

/* ------------------------------------------------------------------------------------------- */

static void close_channel(void)
{
	share_channel_close(t.ch);
	t.ch = NULL;
}

static void close_service(void)
{
	share_service_close(t.s);
	t.s = NULL;
}

static void disconnect(void)
{
	share_disconnect(t.c);
	t.c = NULL;
}

/* name, what there is to wait for, how the handle is given up, the answers with a limit of 0 and
 * one that is over */
#define WAITS(W)                                                                                   \
	W(share_recv, nothing_to_receive, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)            \
	W(share_recv_many, nothing_of_two_producers, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT) \
	W(share_send, no_room, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)                       \
	W(share_give, no_room, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)                       \
	W(share_send_many, no_room, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)                  \
	W(share_channel_flush, nobody_to_receive, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)    \
	W(share_channel_drain, no_room, close_channel, SHARE_EAGAIN, SHARE_ETIMEDOUT)              \
	W(share_call, nobody_to_answer, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)              \
	W(share_call_start, no_answer, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)               \
	W(share_call_with, nobody_to_answer, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)         \
	W(share_call_start_with, no_answer, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)          \
	W(share_call_finish, no_answer, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)              \
	W(share_next_request, no_request, close_service, SHARE_EAGAIN, SHARE_ETIMEDOUT)            \
	W(share_lookup, no_name, disconnect, SHARE_ENOENT, SHARE_ETIMEDOUT)                        \
	W(share_monitor, nothing_happens, disconnect, 0, 0)                                        \
	W(share_fence_synchronize, work_of_others, disconnect, SHARE_ETIMEDOUT, SHARE_ETIMEDOUT)   \
	W(share_reclaim, others_have_it, NULL, SHARE_EBUSY, SHARE_ETIMEDOUT)                       \
	W(share_alloc_with, memory_in_use, NULL, SHARE_EAGAIN, SHARE_EAGAIN)                       \
	W(share_host_stream_synchronize, own_work, NULL, 1, 1) /* without a limit */

/* Takes a time limit, and ends with a callback. */
static int (*const call_share_lookup_async)(int timeout_ms);

#define IS_THERE(name) (void)call_##name;
static void each_function_with_a_time_limit_is_in_the_table(void)
{
	TIME_LIMITS(IS_THERE)
}

static const struct row {
	const char *name;
	void (*prepare)(void);
	int (*call)(int timeout_ms);
	void (*give_up)(void);
	int at_once, late;
} rows[] = {
#define ROW(name, prepare, give_up, at_once, late) \
	{#name, prepare, call_##name, give_up, at_once, late},
    WAITS(ROW)};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void begin(const struct row *row, int timeout_ms)
{
	memset(&t, 0, sizeof(t));
	t.timeout_ms = timeout_ms;
	check_ok(share_connect(share_address(client), &t.c));
	row->prepare();
}

static void end(void)
{
	atomic_store(&t.goes_on, true);
	share_call_cancel(t.pending);
	share_service_close(t.s);
	share_channel_close(t.ch);
	share_channel_close(t.peer);
	share_channel_close(t.other);
	if (t.b) {
		check_ok(share_unpublish(t.c, "kept"));
		check_ok(share_release(t.b, NULL));
	}
	share_host_stream_destroy(t.stream);
	share_pool_close(t.p);
	share_pool_close(t.theirs);
	share_disconnect(t.c);
	end_messages(second);
}

/* ------------------------------------------------------------------------------------------- */

static void *waiting(void *row)
{
	/* ThreadSanitizer of GCC 12 can lose a signal that comes in a thread's first call that
	 * blocks. */
	poll(NULL, 0, 0);
	return (void *)(intptr_t)((const struct row *)row)->call(-1);
}

static pthread_t start_waiting(const struct row *row)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, waiting, (void *)(uintptr_t)row) == 0);
	return thread;
}

/* Some thread says where it sleeps, or is about to. */
static bool somebody_waits(void)
{
	const struct waiters *all = &client_of(t.c)->waiters;

	for (struct waiter *w = atomic_load(&all->all); w; w = w->next)
		if (atomic_load(&w->taken) &&
		    (atomic_load(&w->bell) || atomic_load(&w->word) || atomic_load(&w->polls)))
			return true;
	return false;
}

static void check_answer(const struct row *row, int r, int expected)
{
	check_result(__FILE__, __LINE__, row->name, r, expected);
}

static int result_of(pthread_t thread)
{
	void *result;

	check(pthread_join(thread, &result) == 0);
	return (int)(intptr_t)result;
}

static void an_interruption_ends_each_wait_until_it_is_cleared(void)
{
	start();
	for (const struct row *row = rows; row < rows + N_ROWS; row++) {
		pthread_t thread;

		begin(row, -1);
		thread = start_waiting(row);
		until(somebody_waits());
		check_ok(share_interrupt(t.c));
		check_answer(row, result_of(thread), SHARE_EINTR);
		check_answer(row, row->call(-1), SHARE_EINTR);
		check_ok(share_interrupt_clear(t.c));
		thread = start_waiting(row);
		until(somebody_waits());
		check_ok(share_interrupt(t.c));
		check_answer(row, result_of(thread), SHARE_EINTR);
		end();
	}
	stop();
}

static share_client *volatile to_interrupt;
static atomic_uint heard;

static void on_signal(int signal)
{
	if (signal == SIGUSR1)
		share_interrupt(to_interrupt);
	atomic_fetch_add(&heard, 1);
}

static void so_does_the_handler_of_a_signal_in_the_thread_that_waits(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	start();
	check(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
	for (const struct row *row = rows; row < rows + N_ROWS; row++) {
		pthread_t thread;

		begin(row, -1);
		to_interrupt = t.c;
		atomic_store(&heard, 0);
		thread = start_waiting(row);
		until(somebody_waits());
		/* one that does nothing ends nothing */
		check(pthread_kill(thread, SIGUSR2) == 0);
		until(atomic_load(&heard) == 1);
		until(somebody_waits());
		check(pthread_kill(thread, SIGUSR1) == 0);
		check_answer(row, result_of(thread), SHARE_EINTR);
		end();
	}
	stop();
}

static void who_gives_a_handle_up_ends_the_waits_with_it(void)
{
	start();
	for (const struct row *row = rows; row < rows + N_ROWS; row++) {
		pthread_t threads[2];

		if (!row->give_up)
			continue;
		begin(row, -1);
		threads[0] = start_waiting(row);
		until(somebody_waits());
		row->give_up();
		check_answer(row, result_of(threads[0]), SHARE_ECANCELED);
		end();
	}
	stop();
}

static void a_time_limit_of_0_waits_for_nothing_though_it_is_interrupted(void)
{
	start();
	for (const struct row *row = rows; row < rows + N_ROWS; row++) {
		if (row->at_once == 1)
			continue;
		begin(row, 0);
		check_answer(row, row->call(0), row->at_once);
		check_ok(share_interrupt(t.c));
		check_answer(row, row->call(0), row->at_once);
		end();
		begin(row, MORE);
		check_answer(row, row->call(MORE), row->late);
		end();
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static int result;

static void on_lookup(share_buffer *b, int error, void *row)
{
	(void)b, (void)error;
	result = ((const struct row *)row)->call(-1);
}

static void *dispatching(void *row)
{
	result = 1;
	check_ok(share_lookup_async(t.c, "nowhere", SHARE_RDONLY, 0, NULL, on_lookup, row, NULL));
	while (result == 1)
		check(share_dispatch(t.c) >= 0);
	return NULL;
}

static void in_a_callback_waits_end_as_well(void)
{
	start();
	for (const struct row *row = rows; row < rows + N_ROWS; row++) {
		pthread_t thread;

		begin(row, -1);
		check(pthread_create(&thread, NULL, dispatching, (void *)(uintptr_t)row) == 0);
		until(somebody_waits());
		check_ok(share_interrupt(t.c));
		check(pthread_join(thread, NULL) == 0);
		check_answer(row, result, SHARE_EINTR);
		end();
	}
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(each_function_with_a_time_limit_is_in_the_table),
	    TEST(an_interruption_ends_each_wait_until_it_is_cleared),
	    TEST(so_does_the_handler_of_a_signal_in_the_thread_that_waits),
	    TEST(who_gives_a_handle_up_ends_the_waits_with_it),
	    TEST(a_time_limit_of_0_waits_for_nothing_though_it_is_interrupted),
	    TEST(in_a_callback_waits_end_as_well),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
