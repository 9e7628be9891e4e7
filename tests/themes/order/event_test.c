/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events: leases that are counted, shared by name or token, and returned by whoever
 * releases them, disconnects or dies; and handles that CUDA takes. This process does not use the
 * driver itself.
 */

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/support/kinds.h"
#include "tests/support/visit.h"

static share_client *client;

static void start_with(const char *machine, const char *config)
{
	share_event *e;
	int r;

	kinds_start_on(machine, config);
	client = connect_as("test");
	r = share_event_create(client, NULL, &e);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP)
		cr_skip_test("there are no events here: %s", share_error_detail());
	check_ok(r);
	share_event_release(e);
	check_ok(share_ping(client));
	fixture_uses_devices();
}

static void start(void)
{
	start_with("devices=2", NULL);
}

static void start_with_limit(void)
{
	start_with("",
		   "{\"limits\": {\"events\": 3}, \"pools\": [{\"name\": \"default\", "
		   "\"kind\": \"host\"}]}");
}

static void start_without_limit(void)
{
	start_with("",
		   "{\"limits\": {\"events\": 10000}, \"pools\": [{\"name\": \"default\", "
		   "\"kind\": \"host\"}]}");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(event, .fini = stop, .timeout = 120); /* each test says how it starts */

static share_event *create(const char *name)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_event *e;

	options.name = name;
	check_ok(share_event_create(client, &options, &e));
	return e;
}

/* How many events are leased, and how often altogether. */
static void expect_leases(int events, int leases)
{
	int64_t counted;
	json_t *rows, *row;
	size_t i, n;

	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS);;) {
		rows = report(client, "events");
		n = json_array_size(rows);
		counted = 0;
		json_array_foreach (rows, i, row)
			counted += number_of(row, "leases");
		json_decref(rows);
		if (n == (size_t)events && counted == leases)
			return;
		if (!deadline_pause(&d))
			break;
	}
	check_failed(__FILE__, __LINE__, "%zu events with %d leases, not %d with %d", n,
		     (int)counted, events, leases);
}

/* ------------------------------------------------------------------------------------------- */

Test(event, events_are_different_and_belong_to_a_device, .init = start)
{
	share_event *a = create(NULL), *b = create(NULL);
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;

	check(share_event_id(a) != 0 && share_event_id(a) != share_event_id(b));
	check(memcmp(share_event_handle(a), share_event_handle(b), 64) != 0);
	check(strncmp(share_event_device(a), "GPU-", 4) == 0 ||
	      strncmp(share_event_device(a), "MIG-", 4) == 0);
	expect_leases(2, 2);
	share_event_release(a);
	options.device = share_event_device(b);
	check_ok(share_event_create(client, &options, &a));
	check(strcmp(share_event_device(a), share_event_device(b)) == 0);
	share_event_release(a);
	share_event_release(b);
	expect_leases(0, 0);
}

Test(event, a_device_that_is_not_there_has_no_events, .init = start)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_event *e = NULL;

	options.device = "GPU-00000000-0000-0000-0000-000000000000";
	check_error(share_event_create(client, &options, &e), SHARE_ENODEV);
	check_detail(options.device);
	check(e == NULL);
}

Test(event, a_name_leads_to_the_same_event_until_its_last_lease_is_gone, .init = start)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_client *other = connect_as("other");
	share_event *e = create("frames/done"), *v, *none = NULL;
	uint64_t id = share_event_id(e);

	check_ok(share_event_open(other, "frames/done", &v));
	check_eq(share_event_id(v), id);
	check(memcmp(share_event_handle(v), share_event_handle(e), 64) == 0);
	expect_leases(1, 2);
	options.name = "frames/done";
	check_error(share_event_create(other, &options, &none), SHARE_EEXIST);
	share_event_release(e);
	expect_leases(1, 1);
	/* the other's lease keeps it, and its name */
	check_ok(share_event_open(client, "frames/done", &e));
	check_eq(share_event_id(e), id);
	share_event_release(v);
	share_event_release(e);
	expect_leases(0, 0);
	check_error(share_event_open(client, "frames/done", &none), SHARE_ENOENT);
	check(none == NULL);
	/* the name is free again */
	e = create("frames/done");
	check(share_event_id(e) != id);
	share_event_release(e);
	share_disconnect(other);
}

Test(event, who_has_the_token_can_have_the_event, .init = start)
{
	share_client *other = connect_as("other");
	share_event *e = create(NULL), *v, *none = NULL;
	share_token token, second, wrong;

	check_ok(share_event_export(e, &token));
	wrong = token;
	wrong.bytes[7] ^= 1;
	check_error(share_event_import(other, &wrong, &none), SHARE_ENOENT);
	check_ok(share_event_import(other, &token, &v));
	check_eq(share_event_id(v), share_event_id(e));
	check(memcmp(share_event_handle(v), share_event_handle(e), 64) == 0);
	check_ok(share_event_export(v, &second));
	check(memcmp(&token, &second, sizeof(token)) == 0);
	share_event_release(e);
	share_event_release(v);
	expect_leases(0, 0);
	/* it was the right to that event, and that is over */
	check_error(share_event_import(other, &token, &none), SHARE_ENOENT);
	check(none == NULL);
	share_disconnect(other);
}

Test(event, a_handle_is_one_lease, .init = start)
{
	share_event *e = create("name"), *more[5];

	for (int i = 0; i < 5; i++)
		check_ok(share_event_open(client, "name", &more[i]));
	expect_leases(1, 6);
	for (int i = 0; i < 5; i++)
		share_event_release(more[i]);
	expect_leases(1, 1);
	share_event_release(e);
	share_event_release(NULL);
	expect_leases(0, 0);
}

Test(event, a_handle_is_given_up_once, .init = start)
{
	share_event *old = create("old"), *e;
	share_token token;

	share_event_release(old);
	e = create("name");
	check(e != old);
	share_event_release(old);
	check_error(share_event_export(old, &token), SHARE_EINVAL);
	check_detail("given up");
	check_error(share_event_record(old, NULL), SHARE_EINVAL);
	check_error(share_event_wait(old, NULL), SHARE_EINVAL);
	check(!share_event_handle(old) && !share_event_device(old) && share_event_id(old) == 0);
	expect_leases(1, 1);
	share_event_release(e);
	share_event_release(e);
	expect_leases(0, 0);
}

Test(event, wrong_arguments_are_refused, .init = start)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_event *e = create(NULL), *none = NULL;
	share_token token;

	check_error(share_event_create(NULL, NULL, &none), SHARE_EINVAL);
	check_error(share_event_create(client, NULL, NULL), SHARE_EINVAL);
	options.name = "";
	check_error(share_event_create(client, &options, &none), SHARE_EINVAL);
	options.name = "line\nfeed";
	check_error(share_event_create(client, &options, &none), SHARE_EINVAL);
	options.size = 0;
	check_error(share_event_create(client, &options, &none), SHARE_EINVAL);
	check_error(share_event_open(client, NULL, &none), SHARE_EINVAL);
	check_error(share_event_open(client, "nothing", &none), SHARE_ENOENT);
	check_error(share_event_import(client, NULL, &none), SHARE_EINVAL);
	check_error(share_event_export(NULL, &token), SHARE_EINVAL);
	check_error(share_event_export(e, NULL), SHARE_EINVAL);
	check(share_event_handle(NULL) == NULL && share_event_device(NULL) == NULL);
	check(none == NULL);
	share_event_release(e);
}

static void uses_its_parents(struct child *self, void *data)
{
	share_event *none = NULL;
	share_token token;

	(void)self;
	check_error(share_event_create(client, NULL, &none), SHARE_EFORK);
	check_error(share_event_open(client, "name", &none), SHARE_EFORK);
	check_error(share_event_export(data, &token), SHARE_EFORK);
	share_event_release(data); /* does nothing */
}

Test(event, a_forked_child_has_no_leases, .init = start)
{
	share_event *e = create("name");

	child_finish(child_start(uses_its_parents, e));
	expect_leases(1, 1);
	share_event_release(e);
}

/* ------------------------------------------------------------------------------------------- */
/* Ends                                                                                        */

static void leaves_a_lease(struct child *self, void *data)
{
	share_client *c = child_connect("leaver");
	share_event *e;

	(void)data;
	check_ok(share_event_open(c, "name", &e));
	child_point(self, "has it");
	share_disconnect(c); /* the handle keeps the connection, as every handle does */
	child_point(self, "keeps it");
	share_event_release(e);
}

Test(event, leases_go_with_their_process, .init = start)
{
	share_event *e = create("name"), *next;
	struct child *child = child_start(leaves_a_lease, NULL);
	unsigned char handle[64];
	json_t *rows;

	child_wait(child, "has it");
	expect_leases(1, 2);
	child_go(child);
	child_wait(child, "keeps it");
	expect_leases(1, 2);
	child_go(child);
	child_finish(child);
	expect_leases(1, 1);

	child = child_start(leaves_a_lease, NULL);
	child_wait(child, "has it");
	child_kill(child);
	expect_leases(1, 1);
	/* it may have been recorded and never complete: nobody else gets it */
	rows = report(client, "events");
	check(json_is_true(json_object_get(json_array_get(rows, 0), "wedged")));
	json_decref(rows);
	memcpy(handle, share_event_handle(e), sizeof(handle));
	share_event_release(e);
	expect_leases(0, 0);
	next = create("name");
	check(memcmp(share_event_handle(next), handle, sizeof(handle)) != 0);
	share_event_release(next);
}

Test(event, a_user_has_as_many_as_the_limit_says, .init = start_with_limit)
{
	share_event *e[3], *none = NULL;

	for (int i = 0; i < 3; i++)
		e[i] = create(NULL);
	check_error(share_event_create(client, NULL, &none), SHARE_EQUOTA);
	check_detail("limit of 3 events");
	check(none == NULL);
	share_event_release(e[0]);
	e[0] = create(NULL);
	for (int i = 0; i < 3; i++)
		share_event_release(e[i]);
	expect_leases(0, 0);
}

static void dies_with_all_it_may_have(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_event *e;

	(void)data;
	for (int i = 0; i < 3; i++)
		check_ok(share_event_create(c, NULL, &e));
	child_point(self, "has them");
}

static int64_t lost_events(void)
{
	json_t *rows = report(client, "agents");
	int64_t n = number_of(json_array_get(rows, 0), "events_lost");

	json_decref(rows);
	return n;
}

/* Nobody else gets them, and they take slots of the agent's, until it ends. */
Test(event, what_a_user_has_died_with_counts_until_the_agent_has_ended, .init = start_with_limit)
{
	struct child *victim = child_start(dies_with_all_it_may_have, NULL);
	share_event *e = NULL;

	child_wait(victim, "has them");
	child_kill(victim);
	until(lost_events() == 3);
	check_error(share_event_create(client, NULL, &e), SHARE_EQUOTA);
	check(kill(agent_there(client), SIGKILL) == 0);
	until(lost_events() == 0);
	check_ok(share_event_create(client, NULL, &e));
	share_event_release(e);
}

Test(event, who_has_an_event_has_it_once_more_beyond_its_limit, .init = start_with_limit)
{
	share_event *e = create("has"), *other = create("has not"), *first, *again;
	share_client *c = connect_as("opens");

	check_ok(share_event_open(c, "has", &first));
	broker_write_config(
	    "{\"limits\": {\"events\": 3, \"broker_memory\": 1024}, \"pools\": "
	    "[{\"name\": \"default\", \"kind\": \"host\"}]}");
	check_ok(share_reload(client, NULL, NULL));
	check_error(share_event_open(c, "has not", &again), SHARE_EQUOTA);
	check_ok(share_event_open(c, "has", &again));
	share_event_release(again);
	share_event_release(first);
	share_event_release(other);
	share_event_release(e);
	share_disconnect(c);
	expect_leases(0, 0);
	broker_write_config("{\"pools\": [{\"name\": \"default\", \"kind\": \"host\"}]}");
	check_ok(share_reload(client, NULL, NULL));
}

Test(event, a_device_has_4096_at_a_time, .init = start_without_limit)
{
	static share_event *events[4096];
	share_event *none = NULL;

	for (int i = 0; i < 4096; i++)
		events[i] = create(NULL);
	check_error(share_event_create(client, NULL, &none), SHARE_EQUOTA);
	check_detail("4096");
	check(none == NULL);
	share_event_release(events[17]);
	events[17] = create(NULL);
	for (int i = 0; i < 4096; i++)
		share_event_release(events[i]);
	expect_leases(0, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* What they are for                                                                           */

static void enter_device(const struct cuda **cu)
{
	struct failure failure;
	CUcontext context;
	CUdevice device;

	check_ok(cuda_get(cu, &failure));
	check((*cu)->DeviceGet(&device, 0) == CUDA_SUCCESS);
	check((*cu)->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check((*cu)->CtxPushCurrent(context) == CUDA_SUCCESS);
}

static void opens(struct child *self, void *data)
{
	share_client *c = child_connect("user");
	bool records = data;
	const struct cuda *cu;
	CUipcEventHandle handle;
	CUstream stream;
	share_event *e;
	CUevent event;

	enter_device(&cu);
	check_ok(share_event_open(c, "work", &e));
	memcpy(&handle, share_event_handle(e), sizeof(handle));
	check(cu->IpcOpenEventHandle(&event, handle) == CUDA_SUCCESS);
	check(cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	child_point(self, "open");
	if (records)
		check(cu->EventRecord(event, stream) == CUDA_SUCCESS);
	else
		check(cu->StreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
	check(cu->StreamSynchronize(stream) == CUDA_SUCCESS);
	check(cu->EventQuery(event) == CUDA_SUCCESS);
	child_point(self, "done");
	check(cu->StreamDestroy(stream) == CUDA_SUCCESS);
	check(cu->EventDestroy(event) == CUDA_SUCCESS);
	share_event_release(e);
	share_disconnect(c);
}

Test(event, a_handle_opens_in_other_processes_which_record_and_wait, .init = start)
{
	share_event *e = create("work");
	struct child *recorder = child_start(opens, (void *)1), *waiter = child_start(opens, NULL);

	child_wait(recorder, "open");
	child_wait(waiter, "open");
	expect_leases(1, 3);
	child_go(recorder);
	child_wait(recorder, "done");
	child_go(waiter);
	child_wait(waiter, "done");
	child_go(recorder);
	child_go(waiter);
	child_finish(recorder);
	child_finish(waiter);
	expect_leases(1, 1);
	share_event_release(e);
}
