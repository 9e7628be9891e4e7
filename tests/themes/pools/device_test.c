/* SPDX-License-Identifier: MIT */

/*
 * Devices and their agents as clients see them, over the stand-in driver: what is there, and what
 * happens when the driver refuses, runs out of memory, hangs or takes its process with it. Whoever
 * asked is told by CUDA's own name for it, everybody else is served, and what there is stays.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/admin.h>

#include "base/system/process.h"
#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/support/drivers.h"

#define MIB (UINT64_C(1) << 20)

#define CONFIG(more)                                                                     \
	"{" more                                                                         \
	"\"create_pools\": [\"*\"],"                                                     \
	" \"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\"," \
	"              \"release_threshold\": 0},"                                       \
	"             {\"name\": \"auto\", \"limit\": \"64MiB\", \"release_threshold\": 0}]}"

static share_client *client;

struct looked_into {
	pid_t pid;
	bool dumpable;
};

static void start_with(const char *machine, const char *config)
{
	drivers_prepare();
	standin_configure(machine);
	fixture_start_with(config);
	client = connect_as("test");
}

static void start_on(const char *machine)
{
	start_with(machine, CONFIG(""));
}

static bool is_standin(void)
{
	const char *path = getenv("LD_LIBRARY_PATH");

	return path && strstr(path, "standin");
}

static void start(void)
{
	if (!is_standin())
		cr_skip_test("needs the stand-in driver");
	start_on("devices=2,memory=268435456");
}

/* Agents hang, and one that answers is to do so in this time. */
static void start_impatient(void)
{
	if (!is_standin())
		cr_skip_test("needs the stand-in driver");
	start_with("devices=2,memory=268435456", CONFIG("\"agent_timeout_ms\": 3000, "));
}

static void start_large(void)
{
	if (!is_standin())
		cr_skip_test("needs the stand-in driver");
	start_on("memory=68719476736");
}

static void start_on_instances(void)
{
	if (!is_standin())
		cr_skip_test("needs the stand-in driver");
	start_on("mig=1");
}

/* A machine whose driver cannot be found. */
static void start_without_driver(void)
{
	setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
	start_on("");
}

static void stop(void)
{
	share_disconnect(client);
	if (is_standin())
		fixture_uses_devices();
	fixture_stop();
	drivers_done();
}

/* One suite: Criterion leaks memory of its own with several that run in parallel. */
TestSuite(device, .timeout = 120);
#define Device(sentence)  Test(device, sentence, .init = start, .fini = stop)
#define Hanging(sentence) Test(device, sentence, .init = start_impatient, .fini = stop)

static int create(const char *kind, const char *device, share_pool **out)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.kind = kind;
	options.device = device;
	options.limit = 64 * MIB;
	options.segment_size = 2 * MIB;
	options.release_threshold = SHARE_KEEP_NONE;
	return share_pool_create(client, "test", &options, out);
}

static share_pool *pool_of(const char *kind)
{
	share_pool *p;

	check_ok(create(kind, NULL, &p));
	return p;
}

static void detail_says(const char *text)
{
	if (!strstr(share_error_detail(), text))
		check_failed(__FILE__, __LINE__, "'%s' does not say '%s'", share_error_detail(),
			     text);
}

/* The agent of the first device, 0: none. */
static pid_t agent(void)
{
	json_t *rows = report(client, "devices");
	pid_t pid = (pid_t)number_of(json_array_get(rows, 0), "agent");

	json_decref(rows);
	return pid;
}

/* ------------------------------------------------------------------------------------------- */

Device(devices_are_reported_with_what_they_can_do)
{
	json_t *rows = report(client, "devices");
	const json_t *first = json_array_get(rows, 0), *second = json_array_get(rows, 1);

	check_eq(json_array_size(rows), 2);
	check_eq(number_of(first, "ordinal"), 0);
	check_eq(number_of(second, "ordinal"), 1);
	check_eq(number_of(first, "total"), 256 * MIB);
	check_eq(number_of(first, "granularity"), 2 * MIB);
	check_eq(number_of(first, "agent"), 0);
	check(strncmp(json_string_value(json_object_get(first, "device")), "GPU-", 4) == 0);
	check(strcmp(json_string_value(json_object_get(first, "device")),
		     json_string_value(json_object_get(second, "device"))) != 0);
	json_decref(rows);
}

Device(an_agent_is_started_when_it_is_needed_and_not_before)
{
	share_pool *p = pool_of("vmm");
	share_buffer *b;

	check_eq(agent(), 0);
	b = allocate(p, 1, NULL);
	check(agent() > 0);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

/* Asked by somebody of the same user with no more rights than they have; /proc/PID/exe takes what
 * reading its memory takes. */
static void looks_into(struct child *self, void *data)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	const struct looked_into *l = data;
	char path[64], target[4096];

	(void)self;
	check(syscall(SYS_capset, &header, none) == 0);
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)l->pid);
	if (l->dumpable)
		check(readlink(path, target, sizeof(target)) > 0);
	else
		check(readlink(path, target, sizeof(target)) == -1 && errno == EACCES);
}

static void expect_dumpable(bool dumpable)
{
	struct looked_into b = {broker_pid(), dumpable}, a = {.dumpable = dumpable};
	share_pool *p = pool_of("vmm");
	share_buffer *buffer = allocate(p, 1, NULL);

	a.pid = agent();
	check(a.pid > 0);
	child_finish(child_start(looks_into, &b));
	child_finish(child_start(looks_into, &a));
	check_ok(share_release(buffer, NULL));
	share_pool_close(p);
}

static void start_hidden(void)
{
	setenv("SHARE_DUMPABLE", "0", 1);
	start();
}

Test(device, others_of_its_user_look_into_neither_broker_nor_agent, .init = start_hidden,
     .fini = stop, .timeout = 60)
{
	expect_dumpable(PROCESS_IS_INSTRUMENTED);
}

Device(who_says_so_may_look_into_both)
{
	expect_dumpable(true);
}

Device(auto_takes_vmm_and_says_why)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p;

	check_ok(share_pool_open(client, "auto", &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "vmm") == 0);
	check(info.device && strncmp(info.device, "GPU-", 4) == 0);
	check(strstr(info.reason, "best") != NULL);
	share_pool_close(p);
}

Device(a_pool_lies_on_the_device_it_names)
{
	json_t *rows = report(client, "devices");
	const char *uuid = json_string_value(json_object_get(json_array_get(rows, 1), "device"));
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_buffer_info where = SHARE_BUFFER_INFO_INIT;
	share_buffer *b;
	share_pool *p;

	check_ok(create("vmm", uuid, &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.device, uuid) == 0);
	b = allocate(p, 1, NULL);
	check_ok(share_buffer_get_info(b, &where));
	check_eq(where.ordinal, 1);
	check(strcmp(where.device, uuid) == 0);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	json_decref(rows);
}

/* A UUID alone does not say that it is one's. */
Test(device, an_instance_of_a_device_has_one_name_everywhere, .init = start_on_instances,
     .fini = stop)
{
	static const char *const kinds[] = {"vmm", "mempool"};

	for (size_t i = 0; i < 2; i++) {
		share_buffer_info where = SHARE_BUFFER_INFO_INIT;
		share_recipe recipe = SHARE_RECIPE_INIT;
		share_pool_info info = SHARE_POOL_INFO_INIT;
		share_pool *p = pool_of(kinds[i]);
		share_buffer *b = allocate(p, 1, NULL);
		share_event *e;

		check_ok(share_pool_get_info(p, &info));
		check(strncmp(info.device, "MIG-", 4) == 0);
		check_ok(share_buffer_get_info(b, &where));
		check(strcmp(where.device, info.device) == 0);
		check_ok(share_get_recipe(b, &recipe));
		check(strcmp(recipe.device, info.device) == 0);
		close(recipe.fd);
		check_ok(share_event_create(client, NULL, &e));
		check(strcmp(share_event_device(e), info.device) == 0);
		check_ok(share_event_record(e, NULL));
		share_event_release(e);
		check_ok(share_release(b, NULL));
		check_ok(share_pool_destroy(client, "test"));
		share_pool_close(p);
	}
}

Device(an_unknown_device_is_refused_with_those_there_are)
{
	share_pool *p;

	check_error(create("vmm", "GPU-00000000-0000-0000-0000-000000000000", &p), SHARE_ENODEV);
	detail_says("there is no device GPU-00000000-0000-0000-0000-000000000000");
	detail_says("there are: GPU-");
}

Device(a_pool_smaller_than_a_segment_of_its_kind_is_refused)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "vmm";
	options.limit = MIB;
	check_error(share_pool_create(client, "test", &options, &p), SHARE_EINVAL);
	detail_says("limit: 1048576 bytes are less than a segment");
}

Device(a_refusal_of_the_driver_reaches_the_caller_by_its_name)
{
	share_pool *p = pool_of("vmm");
	share_buffer *b;

	drivers_do("cuMemCreate fail CUDA_ERROR_NOT_SUPPORTED\n");
	check_error(share_alloc(p, 1, NULL, &b), SHARE_ENOTSUP);
	detail_says("cuMemCreate");
	detail_says("CUDA_ERROR_NOT_SUPPORTED");
	drivers_do("cuMemExportToShareableHandle fail CUDA_ERROR_INVALID_VALUE\n");
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EDEVICE);
	detail_says("cuMemExportToShareableHandle");
	detail_says("CUDA_ERROR_INVALID_VALUE");
	drivers_do("");
	b = allocate(p, 1, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Device(a_device_without_memory_says_so_and_a_smaller_segment_is_tried)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b, *large;
	share_pool *p, *other;

	options.kind = "vmm";
	options.limit = options.segment_size = 200 * MIB;
	options.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(client, "one", &options, &p));
	check_ok(share_pool_create(client, "other", &options, &other));
	large = allocate(p, 1, NULL);
	/* there is no room for 200 MiB more, but for this */
	b = allocate(other, 10 * MIB, NULL);
	check_ok(share_release(b, NULL));
	settle(client, s.segments == 1);
	check_error(share_alloc(other, 100 * MIB, NULL, &b), SHARE_ENOMEM);
	detail_says("CUDA_ERROR_OUT_OF_MEMORY");
	check_ok(share_release(large, NULL));
	settle(client, s.segments == 0);
	b = allocate(other, 100 * MIB, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(other);
	share_pool_close(p);
}

Test(device, buffers_too_large_for_a_mempool_are_refused_with_the_kind_that_can,
     .init = start_large, .fini = stop)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b;
	share_pool *p;

	options.kind = "mempool";
	options.limit = 16384 * MIB;
	check_ok(share_pool_create(client, "test", &options, &p));
	check_error(share_alloc(p, 5000 * MIB, NULL, &b), SHARE_ENOTSUP);
	detail_says("vmm");
	share_pool_close(p);
}

/* The limit is that of as many segments as a pool can have, of the size that the kind makes of what
 * is asked for; and of small ones that is less than this device has. */
Test(device, a_pool_without_a_limit_is_the_same_for_who_asks_again, .init = start_large,
     .fini = stop)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p, *q;

	options.kind = "vmm";
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	options.limit = UINT64_MAX;
	options.segment_size = 64 << 10;
	check_ok(share_pool_create(client, "test", &options, &p));
	check_ok(share_pool_create(client, "test", &options, &q));
	share_pool_close(q);
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */

static void use(share_pool *p)
{
	share_buffer *b = allocate(p, 1, NULL);

	check_ok(share_release(b, NULL));
	/* the next one needs another segment */
	settle(client, s.segments == 0);
}

Hanging(an_agent_that_hangs_is_replaced_and_holds_up_nobody_else)
{
	share_pool *p = pool_of("vmm"), *host;
	share_buffer *b;
	pid_t before;

	use(p);
	before = agent();
	drivers_do("cuMemCreate hang\n");
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EDEVICE);
	detail_says("did not answer within 3000 ms");
	check_ok(share_pool_open(client, "default", &host));
	use(host);
	drivers_do("");
	use(p);
	check(agent() != before);
	share_pool_close(host);
	share_pool_close(p);
}

Device(an_agent_that_dies_in_the_driver_is_replaced)
{
	share_pool *p = pool_of("vmm");
	share_buffer *b;

	drivers_do("cuMemCreate die\n");
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EDEVICE);
	detail_says("the agent has ended");
	drivers_do("");
	use(p);
	share_pool_close(p);
}

Device(a_broken_driver_costs_an_agent_and_no_more)
{
	share_pool *p = pool_of("vmm");
	share_buffer *b;
	pid_t before;

	use(p);
	before = agent();
	drivers_do("cuMemCreate fail CUDA_ERROR_ECC_UNCORRECTABLE\n");
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EDEVICE);
	detail_says("CUDA_ERROR_ECC_UNCORRECTABLE");
	check(agent() != before);
	drivers_do("");
	use(p);
	share_pool_close(p);
}

/* It has never had anything of that memory. */
static void imports_for_the_first_time(struct child *self, void *data)
{
	share_buffer *seen;
	char out[6] = "";
	share_client *c;

	(void)data;
	child_point(self, "ready");
	c = child_connect("newcomer");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &seen));
	check_ok(share_copy_to_host(seen, 0, out, 6, NULL));
	check(strcmp(out, "hello") == 0);
	check_ok(share_release(seen, NULL));
	share_disconnect(c);
}

static void share_with_the_dead_agents_heirs(const char *kind)
{
	struct child *newcomer = child_start(imports_for_the_first_time, NULL);
	share_pool *p = pool_of(kind);
	share_buffer *b = allocate(p, 100, NULL), *other;
	char out[6] = "";
	pid_t dead = agent();

	check_ok(share_copy_from_host(b, 0, "hello", 6, NULL));
	check_ok(share_publish(b, "name", NULL));
	child_wait(newcomer, "ready");
	check(dead > 0 && kill(dead, SIGKILL) == 0);
	/* dead, and seen to be: the broker has let go of it */
	until(agent() != dead);
	/* it stays usable, and others can still get it */
	check_ok(share_copy_to_host(b, 0, out, 6, NULL));
	check(strcmp(out, "hello") == 0);
	child_go(newcomer);
	child_finish(newcomer);
	/* more comes from the next agent */
	other = allocate(p, 2 * MIB, NULL);
	check_ok(share_release(other, NULL));
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Device(vmm_memory_outlives_its_agent)
{
	share_with_the_dead_agents_heirs("vmm");
}

Device(mempool_memory_outlives_its_agent)
{
	share_with_the_dead_agents_heirs("mempool");
}

static void gives_what_it_gets(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = child_connect("giver");
	share_buffer *b;
	share_pool *p;

	(void)data;
	options.kind = "mempool";
	options.limit = 64 * MIB;
	check_ok(share_pool_create(c, "later", &options, &p));
	child_point(self, "asking");
	check_ok(share_alloc(p, 100, NULL, &b));
	check_ok(share_copy_from_host(b, 0, "hello", 6, NULL));
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
	child_point(self, "given");
	share_pool_close(p);
	share_disconnect(c);
}

static int64_t reserved(const char *pool)
{
	json_t *rows = report(client, "pools"), *row = row_named(rows, "pool", pool);
	int64_t bytes = row ? number_of(row, "reserved") : 0;

	json_decref(rows);
	return bytes;
}

/* The next agent begins with the very request that the last one ended with, and gets what was still
 * to be said to that one after it. */
Device(what_one_agent_had_to_destroy_means_nothing_to_the_next)
{
	struct child *child = child_start(gives_what_it_gets, NULL);
	share_pool *p = pool_of("mempool");
	share_buffer *b = allocate(p, 1, NULL), *seen;
	char out[6] = "";
	pid_t hangs;

	child_wait(child, "asking");
	drivers_do("cuMemPoolCreate hang\n");
	child_go(child);
	until(reserved("later") > 0);
	check_ok(share_release(b, NULL));
	settle(client, s.segments == 0);
	drivers_do("");
	hangs = agent();
	check(hangs > 0 && kill(hangs, SIGKILL) == 0);
	child_wait(child, "given");
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &seen));
	check_ok(share_copy_to_host(seen, 0, out, 6, NULL));
	check(strcmp(out, "hello") == 0);
	check_ok(share_release(seen, NULL));
	child_go(child);
	child_finish(child);
	share_pool_close(p);
}

Hanging(looking_for_devices_that_hangs_fails_within_its_limit_and_is_tried_again)
{
	share_pool *p;

	drivers_do("cuInit hang\n");
	check_error(create("vmm", NULL, &p), SHARE_EDEVICE);
	detail_says("did not answer");
	drivers_do("");
	/* the answer is kept for a second */
	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS); create("vmm", NULL, &p) != 0;)
		check(deadline_pause(&d));
	share_pool_close(p);
}

/* Asks which devices there are, until that is not answered at once: the last answer has become too
 * old, and somebody looks. */
static void start_look(struct raw *r)
{
	struct wire_message query = {.type = WIRE_QUERY}, ping = {.type = WIRE_PING};

	query.query.what = raw_text("devices");
	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS); deadline_pause(&d);) {
		query.serial = ++r->serial;
		ping.serial = ++r->serial;
		check(raw_send(r, &query) == 0 && raw_send(r, &ping) == 0);
		check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		if (r->m.serial == ping.serial)
			return;
		check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	}
	check(!"the devices were never looked for again");
}

Hanging(a_look_that_hangs_keeps_nobody_from_the_devices_that_are_known)
{
	static struct raw r;
	share_pool *p = pool_of("vmm");

	share_pool_close(p);
	drivers_do("cuInit hang\n");
	raw_open(&r, "curious one");
	start_look(&r);
	check_ok(create("vmm", NULL, &p));
	share_pool_close(p);
	/* nor does its failure, but for whoever wanted to know */
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_ERROR);
	check_ok(create("vmm", NULL, &p));
	share_pool_close(p);
	drivers_do("");
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* More than are handled again in one turn. */
#define MANY 1000

Device(requests_that_waited_for_a_look_are_all_answered_once)
{
	struct wire_message query = {.type = WIRE_QUERY};
	static struct raw r;
	bool has_answer[MANY] = {false};
	uint32_t first, last;

	raw_open(&r, "curious one");
	query.query.what = raw_text("devices");
	first = r.serial + 1;
	last = r.serial + MANY;
	for (int answers = 0; answers < MANY;) {
		query.serial = r.serial + 1;
		if (r.serial < last && raw_send(&r, &query) == 0) {
			r.serial++;
			continue;
		}
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		check_eq(r.m.type, WIRE_REPORT);
		check(r.m.serial >= first && r.m.serial <= last && !has_answer[r.m.serial - first]);
		has_answer[r.m.serial - first] = true;
		answers++;
	}
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

static void asks_and_waits(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = child_connect("asker");
	share_buffer *b;
	share_pool *p;

	(void)data;
	options.kind = "vmm";
	options.limit = 64 * MIB;
	check_ok(share_pool_create(c, "asked", &options, &p));
	child_point(self, "asking");
	share_alloc(p, 1, NULL, &b);
	child_point(self, "answered");
}

Hanging(who_dies_while_its_agent_hangs_leaves_nothing_behind)
{
	struct child *child;

	drivers_do("cuMemCreate hang\n");
	child = child_start(asks_and_waits, NULL);
	child_wait(child, "asking");
	child_go(child);
	settle(client, agent() > 0);
	child_kill(child);
	settle(client, s.clients == 1 && s.pools == 2 && s.segments == 0);
}

Hanging(who_dies_before_its_segment_is_made_leaves_nothing_behind)
{
	struct child *child;

	drivers_do("cuMemCreate hang\n");
	child = child_start(asks_and_waits, NULL);
	child_wait(child, "asking");
	child_go(child);
	settle(client, agent() > 0);
	drivers_do("");
	child_kill(child);
	settle(client, s.clients == 1 && s.pools == 2 && s.segments == 0);
}

/* ------------------------------------------------------------------------------------------- */

Test(device, gpu_kinds_are_refused_with_the_reason, .init = start_without_driver, .fini = stop)
{
	share_pool *p;

	check_error(create("vmm", NULL, &p), SHARE_ENODEV);
	detail_says("libcuda.so.1");
	check_error(create("mempool", NULL, &p), SHARE_ENODEV);
	check_error(create("auto", "GPU-00000000-0000-0000-0000-000000000000", &p), SHARE_ENODEV);
}

Test(device, auto_takes_host_memory_and_says_why, .init = start_without_driver, .fini = stop)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p;

	check_ok(share_pool_open(client, "auto", &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "host") == 0);
	check(!info.device);
	check(strstr(info.reason, "libcuda.so.1") != NULL);
	use(p);
	share_pool_close(p);
}

static int no_row(const char *json, void *data)
{
	(void)data;
	check_failed(__FILE__, __LINE__, "there is a device: %s", json);
	return 1;
}

Test(device, the_report_fails_with_what_was_looked_for, .init = start_without_driver, .fini = stop)
{
	check_error(share_inspect(client, "devices", no_row, NULL), SHARE_ENODEV);
	detail_says("libcuda.so.1");
}

Test(device, there_are_no_events, .init = start_without_driver, .fini = stop)
{
	share_event *e;

	check_error(share_event_create(client, NULL, &e), SHARE_ENODEV);
}
