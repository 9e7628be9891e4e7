/* SPDX-License-Identifier: MIT */

/*
 * The broker when it is out of memory, or the system says no: whichever allocation or call it is,
 * who asked for it has a clean error (or loses its connection, and the log says why), nobody else
 * notices, and nothing is left of it.
 *
 * The broker is linked so that its calls fail when a plan in shared memory says so
 * (failing_broker.c). It outlives all failures of a test; each is met by processes of its own, and
 * then a witness, which was there all the time, looks whether all is well (failing_sweep.h).
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/kinds.h"
#include "tests/support/visit.h"
#include "tests/themes/failure/failing_sweep.h"
#include "tests/themes/failure/scenario.h"

/* So few names that a scenario reaches the limit. */
static const char config[] =
    "{\"create_pools\": [\"*\"], \"limits\": {\"names\": 4}, \"pools\": [{\"name\": \"default\", "
    "\"kind\": \"host\", "
    "\"limit\": \"64MiB\", \"segment_size\": \"1MiB\", \"release_threshold\": 0, "
    "\"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static void start(void)
{
	sweep_prepare();
	fixture_start_with(config);
}

static void stop(void)
{
	fixture_stop();
}

TestSuite(broker_failure, .init = start, .fini = stop, .timeout = 3600);

/* ------------------------------------------------------------------------------------------- */

static int scenario_alone(void)
{
	return scenario_run(broker_socket());
}

Test(broker_failure, any_allocation_while_one_client_does_everything)
{
	sweep(scenario_alone, FAILING_MEMORY, ENOMEM, false);
}

/* What grows is kept for later: only a new broker makes all of it. */
Test(broker_failure, any_allocation_of_a_broker_that_is_new)
{
	unsigned long nth = 0, calls;
	struct witness w;

	do {
		if (nth > 0)
			fixture_start_with(config);
		witness_start(&w);
		calls = sweep_once(&w, scenario_alone, FAILING_MEMORY, ENOMEM, false, nth);
		witness_end(&w);
		broker_stop();
		nth += sweep_step(calls);
	} while (nth <= calls);
	fixture_start_with(config);
}

Test(broker_failure, all_allocations_from_some_point_on)
{
	sweep(scenario_alone, FAILING_MEMORY, ENOMEM, true);
}

Test(broker_failure, any_allocation_while_a_client_dies)
{
	sweep(scenario_death, FAILING_MEMORY, ENOMEM, false);
}

Test(broker_failure, any_allocation_while_a_client_hangs_up)
{
	sweep(scenario_hang_up, FAILING_MEMORY, ENOMEM, false);
}

Test(broker_failure, any_allocation_of_a_report_or_beyond_a_limit)
{
	sweep(scenario_operator, FAILING_MEMORY, ENOMEM, false);
}

/* ------------------------------------------------------------------------------------------- */

/* What a fence is kept in takes memory. */
Test(broker_failure, a_release_behind_unfinished_work_costs_no_memory_for_good)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	struct gate *gate = gate_new();
	share_client *c;
	share_pool *p;
	share_buffer *b;
	share_host_stream *s;

	setenv("SHARE_MAGAZINES", "0", 1);
	c = connect_as("test");
	o.kind = "host";
	o.reuse = SHARE_REUSE_CLEAN;
	o.limit = o.segment_size = 1 << 20;
	check_ok(share_pool_create(c, "small", &o, &p));
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_alloc(p, 1 << 20, s, &b));
	gate_hold(gate, s);
	failing_plan_set(sweep_plan, FAILING_MEMORY, 1, ENOMEM, true);
	check_ok(share_release(b, s));
	check_ok(share_ping(c));
	check(sweep_plan->count > 0);
	failing_plan_set(sweep_plan, FAILING_NOTHING, 0, 0, false);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	check_ok(share_alloc(p, 1 << 20, NULL, &b));
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}

/* What is in flight is kept with memory for each message. Who closes the channel is not kept
 * waiting for that; what it held stays until there is memory, and it is dead. */
static void close_without_memory(struct child *self, void *data)
{
	share_client *c = connect_as("producer"), *other = connect_as("consumer");
	share_channel *producer, *consumer;
	share_pool *pool = open_pool(c);
	share_message message = SHARE_MESSAGE_INIT;
	share_buffer *b;

	(void)self, (void)data;
	check_ok(share_channel_open(c, "c", SHARE_PRODUCER, NULL, &producer));
	check_ok(share_channel_open(other, "c", SHARE_CONSUMER, NULL, &consumer));
	check_ok(share_alloc(pool, 4096, NULL, &b));
	check_ok(share_give(producer, b, NULL, 0, NULL));
	failing_plan_set(sweep_plan, FAILING_MEMORY, 1, ENOMEM, true);
	share_channel_close(producer);
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	failing_plan_set(sweep_plan, FAILING_NOTHING, 0, 0, false);
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &message));
	check_ok(share_ack(&message, NULL));
	share_channel_close(consumer);
	share_disconnect(other);
	share_pool_close(pool);
	share_disconnect(c);
}

Test(broker_failure, a_producer_that_closes_does_not_wait_for_memory)
{
	share_client *c = connect_as("witness");

	child_finish(child_start(close_without_memory, NULL));
	settle(c, s.clients == 1);
	end_messages(c);
	settle(c, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

#define ANY_NEW_DESCRIPTOR \
	(FAILING_SOCKET | FAILING_MEMFD | FAILING_ACCEPT | FAILING_DUP | FAILING_PIDFD)

Test(broker_failure, any_new_descriptor)
{
	sweep(scenario_alone, ANY_NEW_DESCRIPTOR, EMFILE, false);
}

Test(broker_failure, any_new_descriptor_while_a_client_dies)
{
	sweep(scenario_death, ANY_NEW_DESCRIPTOR, EMFILE, false);
}

Test(broker_failure, any_mapping_or_page)
{
	sweep(scenario_alone, FAILING_MMAP | FAILING_SEAL | FAILING_RESIZE, ENOMEM, false);
}

Test(broker_failure, any_look_at_a_peer)
{
	sweep(scenario_alone, FAILING_PEER, ENOMEM, false);
}

Test(broker_failure, any_event_of_the_loop)
{
	sweep(scenario_alone, FAILING_EVENT | FAILING_EPOLL, ENOMEM, false);
}

Test(broker_failure, any_event_of_the_loop_while_a_client_dies)
{
	sweep(scenario_death, FAILING_EVENT | FAILING_EPOLL, ENOMEM, false);
}

Test(broker_failure, any_event_of_the_loop_while_a_client_hangs_up)
{
	sweep(scenario_hang_up, FAILING_EVENT | FAILING_EPOLL, ENOMEM, false);
}

Test(broker_failure, any_send_for_want_of_memory)
{
	sweep(scenario_alone, FAILING_SEND, ENOBUFS, false);
}

Test(broker_failure, any_send_for_want_of_room)
{
	sweep(scenario_alone, FAILING_SEND, EAGAIN, false);
}

/* To wait for room takes no memory; for the kernel's memory, a timer. */
Test(broker_failure, any_send_for_want_of_memory_that_cannot_be_waited_for)
{
	sweep(scenario_alone, FAILING_SEND | FAILING_EVENT, ENOBUFS, true);
}

Test(broker_failure, any_receive_for_want_of_memory)
{
	sweep(scenario_alone, FAILING_RECVMSG, ENOMEM, false);
}

Test(broker_failure, any_receive_that_finds_nothing)
{
	sweep(scenario_alone, FAILING_RECVMSG, EAGAIN, false);
}

/* ------------------------------------------------------------------------------------------- */
/* The configuration is read again                                                             */

#define RELOADED(limits, pools)                                                                 \
	"{\"admins\": [4711], \"create_pools\": [\"*\"], \"limits\": {\"names\": 4" limits      \
	"}, "                                                                                   \
	"\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\", "        \
	"\"segment_size\": \"1MiB\", \"release_threshold\": 0, \"access\": [{\"user\": \"*\", " \
	"\"mode\": \"rw\"}]}" pools "]}"

static void start_reload(void)
{
	static const char base[] = RELOADED("", "");

	sweep_prepare();
	fixture_start_with(base);
	check(chmod(broker_config(), 0666) == 0);
	scenario_reload_with(
	    base, RELOADED(", \"bytes\": \"1GiB\"",
			   ", {\"name\": \"extra\", \"kind\": \"host\", \"reuse\": \"scrub\", "
			   "\"access\": [{\"user\": \"root\", \"mode\": \"rw\"}, {\"user\": \"*\", "
			   "\"mode\": \"ro\"}]}"));
}

#define ReloadTest(sentence) \
	Test(broker_failure_reload, sentence, .init = start_reload, .fini = stop, .timeout = 3600)

ReloadTest(any_allocation)
{
	sweep(scenario_reload, FAILING_MEMORY, ENOMEM, false);
}

ReloadTest(all_allocations_from_some_point_on)
{
	sweep(scenario_reload, FAILING_MEMORY, ENOMEM, true);
}

ReloadTest(any_file_or_descriptor)
{
	sweep(scenario_reload, FAILING_OPEN | ANY_NEW_DESCRIPTOR, EMFILE, false);
}

ReloadTest(any_thread)
{
	sweep(scenario_reload, FAILING_THREAD, EAGAIN, false);
}

ReloadTest(any_event_of_the_loop)
{
	sweep(scenario_reload, FAILING_EVENT, ENOMEM, false);
}

/* ------------------------------------------------------------------------------------------- */
/* Devices, over the stand-in driver                                                           */

static void start_devices(void)
{
	sweep_prepare();
	kinds_start_on("", config);
}

#define DeviceTest(sentence) \
	Test(broker_failure_devices, sentence, .init = start_devices, .fini = stop, .timeout = 3600)

static void fail_on_devices(unsigned what, int error)
{
	share_client *c;
	share_pool *p;

	skip_unless_root();
	skip_unless_standin();
	skip_unless_possible("vmm");
	c = connect_as("owner");
	p = scrubbed_pool(c, "vmm");
	sweep(scenario_devices, what, error, false);
	share_pool_close(p);
	share_disconnect(c);
}

DeviceTest(any_allocation)
{
	fail_on_devices(FAILING_MEMORY, ENOMEM);
}

DeviceTest(any_new_descriptor)
{
	fail_on_devices(ANY_NEW_DESCRIPTOR, EMFILE);
}

DeviceTest(any_event_of_the_loop)
{
	fail_on_devices(FAILING_EVENT, ENOMEM);
}

DeviceTest(any_allocation_while_an_agent_is_replaced)
{
	sweep_lose_agents();
	fail_on_devices(FAILING_MEMORY, ENOMEM);
}

DeviceTest(any_event_of_the_loop_while_an_agent_is_replaced)
{
	sweep_lose_agents();
	fail_on_devices(FAILING_EVENT, ENOMEM);
}

DeviceTest(any_new_descriptor_or_process_while_an_agent_is_replaced)
{
	sweep_lose_agents();
	fail_on_devices(ANY_NEW_DESCRIPTOR | FAILING_SPAWN, EMFILE);
}
