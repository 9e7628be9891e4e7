/* SPDX-License-Identifier: MIT */

/*
 * A handle of each kind is given up while other threads are in calls with it, of which some have
 * just begun, and some sleep. These come back, what they have got stays theirs, and nothing that
 * they look at is gone.
 */

#include <sched.h>
#include <share/admin.h>
#include <share/service.h>

#include "tests/themes/threads/threads.h"

#define CALLERS 2

/* What a round works with; the handle that is given up is one of these. */
static struct scene {
	share_client *c;
	share_pool *p;
	share_channel *ch, *peer;
	share_service *s, *worker;
	share_pending *_Atomic pending;
	share_host_stream *stream;
	atomic_uint calls;
} t;

/* One kind: calls with its handle, which say what they were answered, and how it is given up. */
struct kind {
	void (*begin)(void);
	int (*calls[12])(void);
	void (*give_up)(void);
	void (*end)(void);
};
static const struct kind *kind;

/* ------------------------------------------------------------------------------------------- */

static void end_nothing(void)
{
}

static share_channel *member(share_client *c, int role, int send_timeout_ms)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.mode = SHARE_QUEUE;
	o.flags = SHARE_CHANNEL_TRANSIENT;
	o.depth = 2;
	o.in_flight = 4;
	o.stall_ms = UINT32_MAX;
	o.send_timeout_ms = send_timeout_ms;
	check_ok(share_channel_open(c, "channel", role, &o, &ch));
	return ch;
}

static int stats(void)
{
	share_channel_stats s = SHARE_CHANNEL_STATS_INIT;

	return share_channel_get_stats(t.ch, &s);
}

static int descriptor(void)
{
	int r = share_channel_get_fd(t.ch);

	return r < 0 ? r : 0;
}

static void close_channel(void)
{
	share_channel_close(t.ch);
}

static void close_peer(void)
{
	share_channel_close(t.peer);
}

/* Producers */

static void begin_sending(void)
{
	t.ch = member(client, SHARE_PRODUCER, -1);
	t.peer = member(second, SHARE_CONSUMER, -1);
}

/* Who waits for room would wait for ever. */
static void take_one(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	if (check_one_of(share_recv(t.peer, 0, NULL, &m), SHARE_EAGAIN, SHARE_EPIPE) == 0)
		check_ok(share_ack(&m, NULL));
}

static int send_data(void)
{
	int r = share_send(t.ch, NULL, "1", 1, NULL);

	take_one();
	return r;
}

static int send_waiting(void)
{
	return share_send(t.ch, NULL, "1", 1, NULL);
}

static int give(void)
{
	share_buffer *b = marked_buffer(pool, 4096, 1);
	int r = share_give(t.ch, b, NULL, 0, NULL);

	if (r != 0)
		check_ok(share_release(b, NULL));
	take_one();
	return r;
}

static int flush(void)
{
	return share_channel_flush(t.ch, 0);
}

static int drain(void)
{
	return share_channel_drain(t.ch, 1);
}

static int take_back(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	return share_channel_take_back(t.ch, &m);
}

/* Consumers */

static void begin_receiving(void)
{
	t.ch = member(client, SHARE_CONSUMER, -1);
	t.peer = member(second, SHARE_PRODUCER, 0);
	check_ok(share_pool_open(second, "default", &t.p));
}

static void send_one(void)
{
	share_buffer *b = marked_buffer(t.p, 4096, 1);

	if (check_one_of(share_give(t.peer, b, NULL, 0, NULL), SHARE_EAGAIN) != 0)
		check_ok(share_release(b, NULL));
}

static void close_sender(void)
{
	close_peer();
	share_pool_close(t.p);
}

static int receive_within(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_recv(t.ch, timeout_ms, NULL, &m);

	if (r == 0)
		check_ok(share_ack(&m, NULL));
	return r;
}

static int receive_now(void)
{
	send_one();
	return receive_within(0);
}

static int receive_waiting(void)
{
	return receive_within(-1);
}

static int receive_soon(void)
{
	return receive_within(1);
}

/* Services */

static share_service *join(share_client *c, int role)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	o.depth = 2;
	check_ok(share_service_open(c, "service", role, &o, &s));
	return s;
}

static void begin_calling(void)
{
	t.worker = join(second, SHARE_WORKER);
	t.s = join(client, SHARE_CALLER);
}

static void close_service(void)
{
	share_service_close(t.s);
}

static void end_service(void)
{
	share_service_close(t.worker);
}

static void answer_one(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	if (check_one_of(share_next_request(t.worker, 0, NULL, &m), SHARE_EAGAIN, SHARE_EPIPE) == 0)
		check_one_of(share_reply(&m, NULL, "2", 1, NULL), SHARE_ECANCELED,
			     SHARE_EOWNERDEAD);
}

static int call(void)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_call(t.s, NULL, "1", 1, 1, NULL, &m);

	answer_one();
	if (r == 0)
		check_ok(share_ack(&m, NULL));
	return r;
}

static int call_by_steps(void)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_pending *p;
	int r = share_call_start(t.s, NULL, "1", 1, 0, NULL, &p);

	answer_one();
	if (r != 0)
		return r;
	r = share_call_finish(p, 0, NULL, &m);
	if (r == 0)
		check_ok(share_ack(&m, NULL));
	if (r == SHARE_EAGAIN)
		share_call_cancel(p);
	return r;
}

static int wait_for_answer(void)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_pending *p;
	int r = share_call_start(t.s, NULL, "1", 1, 0, NULL, &p);

	if (r == 0)
		r = share_call_finish(p, -1, NULL, &m);
	if (r == 0)
		check_ok(share_ack(&m, NULL));
	return r;
}

static int service_descriptor(void)
{
	int r = share_service_get_fd(t.s);

	return r < 0 ? r : 0;
}

static void begin_working(void)
{
	t.s = join(client, SHARE_WORKER);
	t.worker = join(second, SHARE_CALLER);
}

static void ask_for_one(void)
{
	share_pending *p;

	if (check_one_of(share_call_start(t.worker, NULL, "1", 1, 0, NULL, &p), SHARE_EAGAIN) == 0)
		share_call_cancel(p);
}

static int work_within(int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_next_request(t.s, timeout_ms, NULL, &m);

	if (r != 0)
		return r;
	check_one_of(share_request_status(&m), SHARE_ECANCELED, SHARE_EINVAL, SHARE_EOWNERDEAD);
	/* the service may have been given up meanwhile: what is had is acknowledged then */
	r = check_one_of(share_reply(&m, NULL, "2", 1, NULL), SHARE_ECANCELED, SHARE_EINVAL);
	if (r == SHARE_EINVAL)
		check_ok(share_ack(&m, NULL));
	return 0;
}

static int work_now(void)
{
	ask_for_one();
	return work_within(0);
}

static int work_waiting(void)
{
	return work_within(-1);
}

/* One call of a service, by all threads: one of them has it, or its service. */
static void begin_a_call(void)
{
	share_pending *p;

	begin_calling();
	check_ok(share_call_start(t.s, NULL, "1", 1, 0, NULL, &p));
	atomic_store(&t.pending, p);
}

static int finish_it(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	return share_call_finish(atomic_load(&t.pending), 0, NULL, &m);
}

static int finish_it_soon(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	return share_call_finish(atomic_load(&t.pending), 1, NULL, &m);
}

static void cancel_it(void)
{
	share_call_cancel(atomic_load(&t.pending));
}

static void end_a_call(void)
{
	share_service_close(t.s);
	end_service();
}

/* Pools */

static void begin_allocating(void)
{
	check_ok(share_pool_open(client, "default", &t.p));
}

static int allocate(void)
{
	share_buffer *b;
	int r = share_alloc(t.p, 4096, NULL, &b);

	if (r == 0)
		check_ok(share_release(b, NULL));
	return r;
}

static int allocate_large(void)
{
	share_buffer *b;
	int r = share_alloc(t.p, 200000, NULL, &b);

	if (r == 0)
		check_ok(share_release(b, NULL));
	return r;
}

static int pool_info(void)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;

	return share_pool_get_info(t.p, &info);
}

static int set_cache(void)
{
	return share_pool_set_cache(t.p, 1 << 20);
}

static void close_pool(void)
{
	share_pool_close(t.p);
}

/* Connections */

static void begin_connected(void)
{
	check_ok(share_connect(share_address(client), &t.c));
}

static int ping(void)
{
	return share_ping(t.c);
}

static int open_a_pool(void)
{
	share_pool *p;
	int r = share_pool_open(t.c, "default", &p);

	if (r == 0)
		share_pool_close(p);
	return r;
}

static int look_up(void)
{
	share_buffer *b;

	return share_lookup(t.c, "nowhere", SHARE_RDWR, 1, NULL, &b);
}

static int look_up_waiting(void)
{
	share_buffer *b;

	return share_lookup(t.c, "nowhere", SHARE_RDWR, -1, NULL, &b);
}

static int dispatch(void)
{
	int r = share_dispatch(t.c);

	return r < 0 ? r : 0;
}

static int clear_interrupt(void)
{
	return share_interrupt_clear(t.c);
}

static int address(void)
{
	return share_address(t.c) ? 0 : SHARE_EINVAL;
}

static void disconnect(void)
{
	share_disconnect(t.c);
}

/* Host streams */

static void begin_streaming(void)
{
	check_ok(share_host_stream_create(client, &t.stream));
}

static void nothing(void *data)
{
	(void)data;
}

static int launch(void)
{
	return share_host_stream_launch(t.stream, nothing, NULL);
}

static int synchronize(void)
{
	return share_host_stream_synchronize(t.stream);
}

static int record(void)
{
	share_fence fence;
	int r = share_fence_record(client, -1, t.stream, &fence);

	/* what was enqueued before it was given up is done */
	if (r == 0)
		check_ok(share_fence_synchronize(client, &fence, -1));
	return r;
}

static int wait_on_it(void)
{
	share_fence fence;

	check_ok(share_fence_record(second, -1, NULL, &fence));
	return share_fence_wait(client, &fence, -1, t.stream);
}

static int release_on_it(void)
{
	share_buffer *b = marked_buffer(pool, 4096, 1);
	int r = share_release(b, t.stream);

	if (r == SHARE_EINVAL)
		check_ok(share_release(b, NULL));
	return r;
}

static void destroy_stream(void)
{
	share_host_stream_destroy(t.stream);
}

/* ------------------------------------------------------------------------------------------- */

static unsigned n_calls(void)
{
	unsigned n = 0;

	while (kind->calls[n])
		n++;
	return n;
}

/* Until it is given up, which is an answer of the calls that waited, and of those that come late.
 */
static void call_until_given_up(void *data, unsigned index)
{
	unsigned round = *(const unsigned *)data;
	int (*function)(void) = kind->calls[(round + index) % n_calls()];
	int r;

	do {
		r = check_one_of(function(), SHARE_EAGAIN, SHARE_ETIMEDOUT, SHARE_ENOENT,
				 SHARE_ECANCELED, SHARE_EINVAL);
		atomic_fetch_add(&t.calls, 1);
	} while (r != SHARE_ECANCELED && r != SHARE_EINVAL);
}

static void give_up_in_the_middle(const struct kind *of)
{
	start();
	kind = of;
	for (unsigned i = 0; i < steps(32) && !check_has_failed(); i++) {
		struct crew crew = {.n = 0};

		atomic_store(&t.calls, 0);
		kind->begin();
		crew_add(&crew, CALLERS, call_until_given_up, &i);
		crew_start(&crew);
		/* in whichever call they are then, or not in any yet */
		for (unsigned looks = 0; looks < 200 && atomic_load(&t.calls) < i % 16; looks++)
			sched_yield();
		kind->give_up();
		crew_join(&crew);
		kind->end();
	}
	stop();
}

static void a_producer_is_given_up_in_the_middle(void)
{
	static const struct kind of = {
	    begin_sending,
	    {send_data, send_waiting, give, flush, drain, take_back, stats, descriptor},
	    close_channel,
	    close_peer};

	give_up_in_the_middle(&of);
}

static void a_consumer_is_given_up_in_the_middle(void)
{
	static const struct kind of = {
	    begin_receiving,
	    {receive_now, receive_waiting, receive_soon, stats, descriptor},
	    close_channel,
	    close_sender};

	give_up_in_the_middle(&of);
}

static void a_caller_is_given_up_in_the_middle(void)
{
	static const struct kind of = {begin_calling,
				       {call, call_by_steps, wait_for_answer, service_descriptor},
				       close_service,
				       end_service};

	give_up_in_the_middle(&of);
}

static void a_worker_is_given_up_in_the_middle(void)
{
	static const struct kind of = {begin_working,
				       {work_now, work_waiting, service_descriptor},
				       close_service,
				       end_service};

	give_up_in_the_middle(&of);
}

static void a_call_is_given_up_in_the_middle(void)
{
	static const struct kind of = {
	    begin_a_call, {finish_it, finish_it_soon}, cancel_it, end_a_call};

	give_up_in_the_middle(&of);
}

static void a_service_is_given_up_in_the_middle_of_a_call(void)
{
	static const struct kind of = {
	    begin_a_call, {finish_it, finish_it_soon}, close_service, end_service};

	give_up_in_the_middle(&of);
}

static void a_pool_is_given_up_in_the_middle(void)
{
	static const struct kind of = {begin_allocating,
				       {allocate, allocate_large, pool_info, set_cache},
				       close_pool,
				       end_nothing};

	give_up_in_the_middle(&of);
}

static void a_connection_is_given_up_in_the_middle(void)
{
	static const struct kind of = {
	    begin_connected,
	    {ping, open_a_pool, look_up, look_up_waiting, dispatch, clear_interrupt, address},
	    disconnect,
	    end_nothing};

	give_up_in_the_middle(&of);
}

static void a_host_stream_is_given_up_in_the_middle(void)
{
	static const struct kind of = {begin_streaming,
				       {launch, synchronize, record, wait_on_it, release_on_it},
				       destroy_stream,
				       end_nothing};

	give_up_in_the_middle(&of);
}

/* ------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(a_producer_is_given_up_in_the_middle),
	    TEST(a_consumer_is_given_up_in_the_middle),
	    TEST(a_caller_is_given_up_in_the_middle),
	    TEST(a_worker_is_given_up_in_the_middle),
	    TEST(a_call_is_given_up_in_the_middle),
	    TEST(a_service_is_given_up_in_the_middle_of_a_call),
	    TEST(a_pool_is_given_up_in_the_middle),
	    TEST(a_connection_is_given_up_in_the_middle),
	    TEST(a_host_stream_is_given_up_in_the_middle),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
