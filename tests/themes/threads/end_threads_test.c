/* SPDX-License-Identifier: MIT */

/*
 * Ends: of connections with something pending, of the last handle in whatever thread that is given
 * up, and of the broker in the middle of everything.
 */

#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include <share/admin.h>

#include "tests/harness/broker_process.h"
#include "tests/themes/threads/threads.h"

static struct crew crew;

/* ------------------------------------------------------------------------------------------- */

static void ignore_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static void never(share_buffer *b, int error, void *data)
{
	(void)b, (void)error;
	check_failed(__FILE__, __LINE__, "the callback of %s runs after all", (const char *)data);
}

/* Look-ups that nobody can cancel; what can be canceled and watches are handles, and given up in
 * some other thread. */
struct handles {
	share_client *client;
	share_operation *operation;
	share_watch *watch;
	share_pool *pool;
	share_buffer *buffer;
};

static void give_one_up(void *data, unsigned index)
{
	struct handles *h = data;

	switch (index) {
	case 0:
		share_disconnect(h->client);
		break;
	case 1:
		share_cancel(h->operation);
		break;
	case 2:
		share_unwatch(h->watch);
		break;
	case 3:
		share_pool_close(h->pool);
		break;
	default:
		check_eq(mark_of(h->buffer), 7);
		check_ok(share_release(h->buffer, NULL));
	}
}

static void any_thread_may_give_up_the_last_handle(void)
{
	start();
	for (unsigned i = 0; i < steps(40); i++) {
		struct handles h;

		check_ok(share_connect(share_address(client), &h.client));
		check_ok(share_pool_open(h.client, "default", &h.pool));
		h.buffer = marked_buffer(h.pool, 4096, 7);
		check_ok(share_watch_names(h.client, "", ignore_change, NULL, &h.watch));
		check_ok(share_lookup_async(h.client, "nowhere", SHARE_RDWR, -1, NULL, never,
					    (void *)(uintptr_t) "one that was canceled",
					    &h.operation));
		for (unsigned n = 0; n < 3; n++)
			check_ok(
			    share_lookup_async(h.client, "nowhere", SHARE_RDWR, -1, NULL, never,
					       (void *)(uintptr_t) "one that was abandoned", NULL));
		together(5, give_one_up, &h);
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void connect_and_leave(void *data, unsigned index)
{
	(void)data;
	for (unsigned i = 0; i < steps(25); i++) {
		share_client *c;
		share_pool *p;
		share_buffer *b;

		check_ok(share_connect(share_address(client), &c));
		check_ok(share_pool_open(c, "default", &p));
		b = marked_buffer(p, 1000, index);
		if (i % 2)
			check_ok(share_publish(b, "mine", NULL));
		share_pool_close(p);
		check_eq(mark_of(b), index);
		if (i % 3) {
			share_disconnect(c);
			check_ok(share_release(b, NULL));
		} else {
			check_ok(share_release(b, NULL));
			share_disconnect(c);
		}
	}
}

static void connections_come_and_go_at_once(void)
{
	start();
	together(4, connect_and_leave, NULL);
	stop();
}

static void private_broker(void *data, unsigned index)
{
	(void)data, (void)index;
	for (unsigned i = 0; i < steps(3); i++) {
		share_client *c;

		check_ok(share_connect("embedded", &c));
		check_ok(share_ping(c));
		share_disconnect(c);
	}
}

static void each_thread_may_have_a_broker_of_its_own(void)
{
	together(3, private_broker, NULL);
}

/* ------------------------------------------------------------------------------------------- */

static struct {
	pid_t keeper, deputy, serving;
} broker;
static atomic_uint at_work; /* how many times somebody was served */
static atomic_uint told;    /* look-ups that were told of the end */

static int find_processes(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);

	(void)data;
	broker.keeper = (pid_t)number_of(row, "keeper");
	broker.deputy = (pid_t)number_of(row, "deputy");
	broker.serving = (pid_t)number_of(row, "pid");
	json_decref(row);
	return 0;
}

static void kill_all(void)
{
	broker_kill_all(broker.keeper, broker.deputy, broker.serving);
}

static bool served(int r)
{
	atomic_fetch_add(&at_work, 1);
	return check_one_of(r, SHARE_EDISCONNECTED) == 0;
}

static void allocate_on(void *data, unsigned index)
{
	share_buffer *b;
	share_pool *p = data;

	while (served(share_alloc(p, 4096, NULL, &b))) {
		mark(share_ptr(b), share_size(b), index);
		mark_of(b);
		served(share_release(b, NULL));
	}
}

static void publish_on(void *data, unsigned index)
{
	share_buffer *b = NULL;
	share_pool *p = data;

	(void)index;
	check_one_of(share_alloc(p, 4096, NULL, &b), SHARE_EDISCONNECTED);
	while (b && served(share_publish(b, "name", NULL)) &&
	       served(share_unpublish(client, "name")))
		;
	if (b) {
		/* what is mapped stays */
		mark(share_ptr(b), share_size(b), 3);
		mark_of(b);
		check_one_of(share_release(b, NULL), SHARE_EDISCONNECTED);
	}
}

static void wait_for_ever(void *data, unsigned index)
{
	share_buffer *b;

	(void)data, (void)index;
	check_error(share_lookup(client, "nowhere", SHARE_RDONLY, -1, NULL, &b),
		    SHARE_EDISCONNECTED);
}

static void look_up_on(void *data, unsigned index)
{
	share_buffer *b;
	int r;

	(void)data, (void)index;
	do {
		r = share_lookup(second, "name", SHARE_RDONLY, 5, NULL, &b);
		check_one_of(r, SHARE_ETIMEDOUT, SHARE_EDISCONNECTED);
		if (r == 0)
			check_one_of(share_release(b, NULL), SHARE_EDISCONNECTED);
	} while (r != SHARE_EDISCONNECTED);
}

static void use_streams_on(void *data, unsigned index)
{
	share_host_stream *s;
	share_buffer *b;
	share_pool *p = data;

	(void)index;
	check_ok(share_host_stream_create(client, &s));
	while (served(share_alloc(p, 4096, s, &b)))
		served(share_release(b, s));
	share_host_stream_destroy(s);
}

static void tell(share_buffer *b, int error, void *data)
{
	(void)data;
	check(b == NULL);
	check_error(error, SHARE_EDISCONNECTED);
	atomic_fetch_add(&told, 1);
}

static void dispatch_on(void *data, unsigned index)
{
	struct pollfd p = {.fd = share_get_fd(client), .events = POLLIN};

	(void)data, (void)index;
	while (poll(&p, 1, -1) >= 0)
		if (share_dispatch(client) == SHARE_EDISCONNECTED)
			break;
}

static void kill_it(void *data, unsigned index)
{
	unsigned enough = *(unsigned *)data;

	(void)index;
	until(atomic_load(&at_work) >= enough);
	kill_all();
}

static void kill_the_broker(unsigned enough)
{
	share_operation *o;
	share_watch *w;

	check_ok(share_connect("embedded", &client));
	check_ok(share_connect(share_address(client), &second));
	check_ok(share_pool_open(client, "default", &pool));
	check_ok(share_inspect(client, "status", find_processes, NULL));
	check_ok(share_watch_names(client, NULL, ignore_change, NULL, &w));
	atomic_store(&at_work, 0);
	atomic_store(&told, 0);
	check_ok(share_lookup_async(client, "nowhere", SHARE_RDONLY, -1, NULL, tell, NULL, &o));
	check_ok(share_lookup_async(client, "nowhere", SHARE_RDONLY, -1, NULL, tell, NULL, NULL));
	crew = (struct crew){.n = 0};
	crew_add(&crew, 2, allocate_on, pool);
	crew_add(&crew, 1, publish_on, pool);
	crew_add(&crew, 2, wait_for_ever, NULL);
	crew_add(&crew, 1, look_up_on, NULL);
	crew_add(&crew, 1, use_streams_on, pool);
	crew_add(&crew, 2, dispatch_on, NULL);
	crew_add(&crew, 1, kill_it, &enough);
	crew_start(&crew);
	crew_join(&crew);
	check_eq(atomic_load(&told), 2);
	check_error(share_ping(client), SHARE_EDISCONNECTED);
	check_error(share_dispatch(client), SHARE_EDISCONNECTED);
	share_cancel(o);
	share_unwatch(w);
	share_pool_close(pool);
	share_disconnect(second);
	share_disconnect(client);
}

static void everybody_is_told_that_the_broker_was_killed(void)
{
	for (unsigned i = 0; i < steps(10); i++)
		kill_the_broker(20 + 37 * i);
}

/* ------------------------------------------------------------------------------------------- */

static atomic_bool may_end;

static void work_until_told(void *data)
{
	(void)data;
	while (!atomic_load(&may_end))
		;
}

static void wait_for_the_giver(void *data, unsigned index)
{
	share_fence *fence = data;

	/* they wait for a stream, not for the broker */
	if (index % 2)
		check_ok(share_fence_synchronize(index % 4 == 1 ? client : second, fence, -1));
	else
		check_ok(share_fence_wait(index % 4 == 0 ? client : second, fence, -1, NULL));
	check(atomic_load(&may_end));
}

static void kill_it_and_end(void *data, unsigned index)
{
	(void)data, (void)index;
	kill_all();
	until(share_ping(second) == SHARE_EDISCONNECTED);
	atomic_store(&may_end, true);
}

static void fences_of_the_living_outlive_the_broker(void)
{
	share_host_stream *s;
	share_fence fence;

	check_ok(share_connect("embedded", &client));
	check_ok(share_connect(share_address(client), &second));
	check_ok(share_inspect(client, "status", find_processes, NULL));
	check_ok(share_host_stream_create(client, &s));
	check_ok(share_host_stream_launch(s, work_until_told, NULL));
	check_ok(share_fence_record(client, -1, s, &fence));
	check_error(share_fence_query(second, &fence), SHARE_EAGAIN);
	crew = (struct crew){.n = 0};
	crew_add(&crew, 4, wait_for_the_giver, &fence);
	crew_add(&crew, 1, kill_it_and_end, NULL);
	crew_start(&crew);
	crew_join(&crew);
	share_host_stream_destroy(s);
	share_disconnect(second);
	share_disconnect(client);
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(any_thread_may_give_up_the_last_handle),
	    TEST(connections_come_and_go_at_once),
	    TEST(each_thread_may_have_a_broker_of_its_own),
	    TEST(everybody_is_told_that_the_broker_was_killed),
	    TEST(fences_of_the_living_outlive_the_broker),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
