/* SPDX-License-Identifier: MIT */

/*
 * Forked children. A lease belongs to one process, so the child of one that uses libshare cannot
 * use its handles, cannot touch its memory, and cannot disturb it by trying.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;
static share_watch *name_watch;
static share_operation *operation;
static share_host_stream *stream;
static share_token token;
static share_fence fence;

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)b, (void)error, (void)data;
}

static void start(void)
{
	fixture_start();
	client = connect_as("parent");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
	strcpy(share_ptr(buffer), "the parent's");
	check_ok(share_watch_names(client, "", on_change, NULL, &name_watch));
	check_ok(share_lookup_async(client, "nothing", SHARE_RDONLY, -1, NULL, on_lookup, NULL,
				    &operation));
	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_export(buffer, NULL, &token));
	check_ok(share_fence_record(client, -1, stream, &fence));
}

static void stop(void)
{
	if (!check_has_failed()) {
		/* nothing has happened to the parent */
		check_ok(share_ping(client));
		check(strcmp(share_ptr(buffer), "the parent's") == 0);
		check_ok(share_buffer_status(buffer));
		check_ok(share_revoke(client, &token));
		settle(client, s.clients == 1 && s.leases == 1 && s.names == 0);
	}
	share_cancel(operation);
	share_unwatch(name_watch);
	share_host_stream_destroy(stream);
	share_release(buffer, NULL);
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(fork, .init = start, .fini = stop, .timeout = 60);

/* Returns the wait status of a child that has everything the parent has, and runs @function. */
static int in_a_fork(void (*function)(void))
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		check_in_child();
		function();
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	return status;
}

static void expect_good_end(void (*function)(void))
{
	int status = in_a_fork(function);

	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------------------------------- */

static int each_json(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static int each_name(const share_name_info *info, void *data)
{
	(void)info, (void)data;
	return 0;
}

static void nothing(void *data)
{
	(void)data;
}

static void on_reclaim(int status, void *data)
{
	(void)status, (void)data;
	check_failed(__FILE__, __LINE__, "it was told");
}

static void call_everything(void)
{
	static const int64_t shape[1] = {1};
	share_host_stream *s;
	share_client *c = client;
	share_operation *o;
	share_buffer *b;
	share_tensor t = SHARE_TENSOR_INIT;
	share_token other;
	share_watch *w;
	share_fence f;
	share_pool *p;
	char *text;
	void *bytes;
	size_t size;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, shape));
	check_error(share_ping(c), SHARE_EFORK);
	check_error(share_get_fd(c), SHARE_EFORK);
	check_error(share_dispatch(c), SHARE_EFORK);
	check_error(share_pool_open(c, "default", &p), SHARE_EFORK);
	check_error(share_pool_create(c, "new", NULL, &p), SHARE_EFORK);
	check_error(share_pool_destroy(c, "default"), SHARE_EFORK);
	check_error(share_alloc(pool, 1, NULL, &b), SHARE_EFORK);
	check_error(share_alloc(pool, 1, stream, &b), SHARE_EFORK);
	check_error(share_alloc_with(pool, 1, NULL, NULL, &b), SHARE_EFORK);
	check_error(share_release(buffer, NULL), SHARE_EFORK);
	check_error(share_release(buffer, stream), SHARE_EFORK);
	check_error(share_buffer_status(buffer), SHARE_EFORK);
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EFORK);
	check_error(share_reclaim_async(buffer, NULL, on_reclaim, NULL, &o), SHARE_EFORK);
	check_error(share_metadata_set(buffer, "{}"), SHARE_EFORK);
	check_error(share_metadata_get(buffer, &text), SHARE_EFORK);
	check_error(share_metadata_get_raw(buffer, &bytes, &size), SHARE_EFORK);
	check_error(share_tensor_set(buffer, &t), SHARE_EFORK);
	check_error(share_tensor_get(buffer, &t), SHARE_EFORK);
	check_error(share_publish(buffer, "name", NULL), SHARE_EFORK);
	check_error(share_publish_with(buffer, "name", NULL, stream, NULL), SHARE_EFORK);
	check_error(share_unpublish(c, "name"), SHARE_EFORK);
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b), SHARE_EFORK);
	check_error(share_lookup_async(c, "name", SHARE_RDONLY, 0, NULL, on_lookup, NULL, &o),
		    SHARE_EFORK);
	check_error(share_list(c, "", each_name, NULL), SHARE_EFORK);
	check_error(share_watch_names(c, "", on_change, NULL, &w), SHARE_EFORK);
	check_error(share_export(buffer, NULL, &other), SHARE_EFORK);
	check_error(share_export_with(buffer, NULL, stream, &other), SHARE_EFORK);
	check_error(share_import(c, &token, 0, NULL, &b), SHARE_EFORK);
	check_error(share_revoke(c, &token), SHARE_EFORK);
	check_error(share_revoke_id(c, 1), SHARE_EFORK);
	check_error(share_drop_client(c, 1), SHARE_EFORK);
	check_error(share_inspect(c, "status", each_json, NULL), SHARE_EFORK);
	check_error(share_fence_record(c, -1, stream, &f), SHARE_EFORK);
	check_error(share_fence_wait(c, &fence, -1, NULL), SHARE_EFORK);
	check_error(share_fence_query(c, &fence), SHARE_EFORK);
	check_error(share_fence_synchronize(c, &fence, 0), SHARE_EFORK);
	check_error(share_host_stream_create(c, &s), SHARE_EFORK);
	check_error(share_host_stream_launch(stream, nothing, NULL), SHARE_EFORK);
	check_error(share_host_stream_synchronize(stream), SHARE_EFORK);
	check_detail("connect again");
}

Test(fork, every_function_answers_efork_in_a_child)
{
	expect_good_end(call_everything);
}

static void ask_for_the_address(void)
{
	check(share_ptr(buffer) == NULL);
}

Test(fork, a_buffer_has_no_address_in_a_child)
{
	expect_good_end(ask_for_the_address);
}

static void give_everything_up(void)
{
	share_cancel(operation);
	share_unwatch(name_watch);
	share_host_stream_destroy(stream);
	share_release(buffer, NULL);
	share_pool_close(pool);
	share_disconnect(client);
}

Test(fork, a_child_that_gives_everything_up_takes_nothing_from_its_parent)
{
	expect_good_end(give_everything_up);
}

static volatile char *address;

static void read_it(void)
{
	signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler of their own */
	(void)*address;
}

Test(fork, shared_memory_is_not_inherited)
{
	int status;

	address = share_ptr(buffer);
	status = in_a_fork(read_it);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void connect_anew(void)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_client *c;
	share_buffer *b;
	share_pool *p;

	/* where to, and what to open there, the parent's handles say */
	check_ok(share_connect(share_address(client), &c));
	check_ok(share_pool_get_info(pool, &info));
	check(info.used == 0 && info.kept == 0); /* those of the parent */
	check_ok(share_pool_open(c, info.name, &p));
	share_pool_close(p);
	check_ok(share_import(c, &token, 0, NULL, &b));
	check(strcmp(share_ptr(b), "the parent's") == 0);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(fork, a_child_connects_for_itself)
{
	expect_good_end(connect_anew);
	/* the token was for one use */
	check_ok(share_export(buffer, NULL, &token));
}

/* ------------------------------------------------------------------------------------------- */

static atomic_bool enough;

static void *keep_busy(void *data)
{
	(void)data;
	while (!enough) {
		share_buffer *b = allocate(pool, 1000, stream);

		check_ok(share_release(b, stream));
	}
	return NULL;
}

/* The library's locks may be held by a thread that the child does not have. */
Test(fork, no_function_hangs_in_the_child_of_a_busy_process)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		check(pthread_create(&threads[i], NULL, keep_busy, NULL) == 0);
	for (int i = 0; i < 30; i++) {
		expect_good_end(call_everything);
		expect_good_end(give_everything_up);
	}
	enough = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	check_ok(share_host_stream_synchronize(stream));
}
