/* SPDX-License-Identifier: MIT */

/*
 * Agents outlive the broker that has started them: the next one goes on with the same process, so
 * what that has made remains, events and memory of kind mempool among it. When an agent dies while
 * there is no broker, that is noticed afterwards; when there will be none any more, it ends. Over
 * the stand-in driver. The broker looks at its journal after each commit (audit.c). What is asked
 * of an agent just then is agent_step_test's.
 *
 * This process does not use the driver itself.
 */

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/event.h>

#include "tests/support/drivers.h"
#include "tests/support/free_memory.h"
#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"

static share_client *client;

static void start(void)
{
	skip_unless_standin();
	drivers_prepare();
	broker_use_program(DYING_BROKER);
	kinds_start_on("events=2", "{\"create_pools\": [\"*\"]}");
	fixture_uses_devices();
	free_memory_start();
	client = connect_as("test");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
	free_memory_stop();
	drivers_done();
}

TestSuite(agent_restart, .init = start, .fini = stop, .timeout = 120);

/* The agent is there, and is the one that it was. */
static void kill_broker(void)
{
	pid_t before = agent(client);

	check(before > 0);
	broker_kill_serving();
	check_eq(agent(client), before);
	check(broker_said("another one takes over") == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Memory                                                                                      */

static share_pool *make_pool_of(share_client *c, const char *kind)
{
	share_pool_options options = OPTIONS;

	options.segment_size = UNIT;
	options.limit = 4 * UNIT;
	options.release_threshold = SHARE_KEEP_NONE;
	return conformance_pool(c, kind, options);
}

static share_pool *make_pool(const char *kind)
{
	return make_pool_of(client, kind);
}

static void publishes(struct child *self, void *data)
{
	share_client *c = child_connect("owner");
	share_pool *p = open_test(c);
	share_buffer *b = allocate(p, UNIT, NULL);

	(void)data;
	buffer_write(b, "content");
	check_ok(share_publish(b, "name", NULL));
	child_point(self, "published");
	check(buffer_reads(b, "content"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* One that has nothing yet, so it imports all that it is shown. */
static void imports(struct child *self, void *data)
{
	share_client *c = child_connect("importer");
	share_pool *p = open_test(c);
	share_buffer *found, *more;

	(void)self, (void)data;
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &found));
	check(buffer_reads(found, "content"));
	more = allocate(p, UNIT, NULL);
	buffer_write(more, "more");
	check(buffer_reads(more, "more"));
	check_ok(share_release(more, NULL));
	check_ok(share_release(found, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void memory_remains(const char *kind)
{
	uint64_t before = free_memory();
	share_pool *p = make_pool(kind);
	struct child *owner = child_start(publishes, NULL);

	child_wait(owner, "published");
	kill_broker();
	child_finish(child_start(imports, NULL));
	kill_broker();
	child_go(owner);
	child_finish(owner);
	share_pool_close(p);
	settle(client, s.segments == 0 && s.pools == 1);
	/* the agent has been told, whoever has asked for it */
	until(free_memory() == before);
}

Test(agent_restart, memory_of_vmm_is_imported_and_made_as_before)
{
	memory_remains("vmm");
}

Test(agent_restart, memory_of_mempool_is_imported_and_made_as_before)
{
	memory_remains("mempool");
}

Test(agent_restart, memory_of_legacy_is_imported_and_made_as_before)
{
	memory_remains("legacy");
}

/* Of an empty segment the next broker knows as little who has written to it. */
static void is_zeroed(const char *kind)
{
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(client, kind);
	visit(ALICE, UNIT, ANYTHING, 0xaa);
	broker_kill_serving();
	visit(BOB, UNIT, 0, 0xbb);
	broker_kill_serving();
	visit(ALICE, UNIT, 0, 0xaa);
	share_pool_close(p);
	settle(client, s.segments == 0);
}

Test(agent_restart, what_others_left_in_vmm_memory_is_zeroed)
{
	is_zeroed("vmm");
}

Test(agent_restart, what_others_left_in_mempool_memory_is_zeroed)
{
	is_zeroed("mempool");
}

Test(agent_restart, what_others_left_in_host_memory_is_zeroed)
{
	is_zeroed("host");
}

/* A pool that nobody has any more stays as long as a segment is made for it. */
static void asks_and_waits(struct child *self, void *data)
{
	share_client *c = child_connect("asks");
	share_pool *p = make_pool_of(c, "vmm");
	share_buffer *b;

	(void)data;
	child_point(self, "asking");
	share_alloc(p, UNIT, NULL, &b);
}

Test(agent_restart, a_pool_that_waited_for_a_segment_only_ends)
{
	struct child *child;

	drivers_do("cuMemCreate hang\n");
	child = child_start(asks_and_waits, NULL);
	child_wait(child, "asking");
	child_go(child);
	until(standin_called(drivers_calls, cuMemCreate) > 0);
	child_kill(child);
	settle(client, s.clients == 1 && s.pools == 2);
	kill_broker();
	settle(client, s.pools == 1);
	check(kill(agent_there(client), SIGKILL) == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Events                                                                                      */

static share_event *create(const char *name)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_event *e;

	options.name = name;
	check_ok(share_event_create(client, &options, &e));
	return e;
}

static void expect_no_room(void)
{
	share_event *none;

	check_error(share_event_create(client, NULL, &none), SHARE_ENOMEM);
	check_detail("cuEventCreate");
}

static void records(struct child *self, void *data)
{
	share_client *c = child_connect("recorder");
	share_event *e;

	(void)data;
	check_ok(share_event_open(c, "event", &e));
	check_ok(share_event_record(e, NULL));
	child_point(self, "recorded");
	check_ok(share_event_record(e, NULL));
	share_event_release(e);
	share_disconnect(c);
}

Test(agent_restart, an_event_goes_on_with_its_name_its_token_and_its_leases)
{
	share_event *e = create("event"), *imported, *other;
	struct child *child = child_start(records, NULL);
	uint64_t id = share_event_id(e);
	share_token token;

	child_wait(child, "recorded");
	check_ok(share_event_export(e, &token));
	kill_broker();
	check_ok(share_event_import(client, &token, &imported));
	check_eq(share_event_id(imported), id);
	check(memcmp(share_event_handle(imported), share_event_handle(e), 64) == 0);
	share_event_release(imported);
	child_go(child);
	child_finish(child);
	child = child_start(records, NULL);
	child_wait(child, "recorded");
	child_go(child);
	child_finish(child);
	kill_broker();
	share_event_release(e);
	check_error(share_event_open(client, "event", &other), SHARE_ENOENT);
	/* identifiers do not come again, and the agent has room for two at a time */
	kill_broker();
	e = create("event");
	check(share_event_id(e) > id);
	other = create(NULL);
	expect_no_room();
	share_event_release(other);
	share_event_release(e);
}

static void dies_with_it(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_event *e;

	(void)data;
	check_ok(share_event_open(c, "event", &e));
	child_point(self, "has it");
}

Test(agent_restart, an_event_that_a_process_has_died_with_is_nobodys)
{
	share_event *e = create("event"), *other;
	struct child *child = child_start(dies_with_it, NULL);
	unsigned char handle[64];

	memcpy(handle, share_event_handle(e), sizeof(handle));
	child_wait(child, "has it");
	broker_kill_serving_for_now();
	child_kill(child);
	broker_let_keeper_go_on();
	settle(client, s.clients == 1);
	share_event_release(e);
	kill_broker();
	other = create("event");
	check(memcmp(share_event_handle(other), handle, sizeof(handle)) != 0);
	kill_broker();
	/* its slot is lost as long as the agent runs */
	expect_no_room();
	share_event_release(other);
}

/* ------------------------------------------------------------------------------------------- */
/* Ends                                                                                        */

Test(agent_restart, an_agent_that_dies_while_there_is_no_broker_is_replaced)
{
	share_pool *p = make_pool("vmm");
	struct child *owner = child_start(publishes, NULL);
	share_event *e = create("event"), *other;
	pid_t before;

	child_wait(owner, "published");
	before = agent_there(client);
	broker_kill_serving_for_now();
	check(kill(before, SIGKILL) == 0);
	broker_let_keeper_go_on();
	until(share_ping(client) == 0 && broker_said("has ended; another one takes over") == 1);
	check_error(share_event_open(client, "event", &other), SHARE_ESTALE);
	check_detail("ended with its agent");
	child_finish(child_start(imports, NULL));
	check(agent(client) > 0 && agent(client) != before);
	share_event_release(e);
	/* the next one's are not those that the dead one had */
	broker_kill_serving();
	e = create("event");
	share_event_release(e);
	child_go(owner);
	child_finish(owner);
	share_pool_close(p);
	settle(client, s.segments == 0 && s.pools == 1);
}

static int watch_agent(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, agent(client), 0);

	check(pidfd >= 0);
	return pidfd;
}

static void expect_end(int pidfd)
{
	struct pollfd p = {pidfd, POLLIN, 0};

	check(poll(&p, 1, HARNESS_LIMIT_MS) == 1);
	close(pidfd);
}

Test(agent_restart, without_a_broker_and_a_keeper_it_ends)
{
	int pidfd;

	share_event_release(create(NULL));
	kill_broker();
	pidfd = watch_agent();
	broker_kill();
	expect_end(pidfd);
}

static void asks_for_what_never_comes(struct child *self, void *data)
{
	share_client *c = child_connect("waits");
	share_pool *p = open_test(c);
	share_buffer *b;

	(void)self, (void)data;
	check_error(share_alloc(p, UNIT, NULL, &b), SHARE_EDISCONNECTED);
	share_pool_close(p);
	share_disconnect(c);
}

Test(agent_restart, without_them_it_ends_in_the_middle_of_a_call)
{
	struct child *child;
	share_pool *p;
	int pidfd;

	p = make_pool("vmm");
	share_event_release(create(NULL));
	pidfd = watch_agent();
	drivers_do("cuMemCreate hang\n");
	child = child_start(asks_for_what_never_comes, NULL);
	until(standin_called(drivers_calls, cuMemCreate) > 0);
	broker_kill();
	expect_end(pidfd);
	child_finish(child);
	share_pool_close(p);
}
