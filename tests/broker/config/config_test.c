/* SPDX-License-Identifier: MIT */
/*
 * The configuration file: what is read, what is assumed, and the exact words about what is wrong.
 * What JSON is, and which line something is in, is tested in config_reader_test.c; which pools are
 * possible in pool_config_test.c.
 *
 * Files are memfds, so nothing is left behind; "FILE" in an expected message stands for their path.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include <share/share.h>

#include "base/size.h"
#include "broker/config/config.h"

TestSuite(config, .timeout = 30);

static int write_file(const char *text, char path[static 32])
{
	const size_t size = strlen(text);
	int fd = memfd_create("broker.json", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, size), (ssize_t)size);
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static struct config *load(const char *text)
{
	char path[32], error[CONFIG_ERROR_MAX] = "";
	struct config *c = NULL;
	int fd = write_file(text, path);

	cr_assert_eq(config_load(path, &c, error, sizeof(error)), 0, "%s", error);
	cr_assert_str_eq(c->file, path);
	close(fd);
	return c;
}

static void expect_error(const char *text, const char *expected)
{
	char path[32], error[CONFIG_ERROR_MAX] = "", message[CONFIG_ERROR_MAX];
	struct config *untouched = (struct config *)path, *c = untouched;
	int fd = write_file(text, path);

	cr_assert_eq(strncmp(expected, "FILE:", 5), 0);
	snprintf(message, sizeof(message), "%s%s", path, expected + 4);
	cr_assert_eq(config_load(path, &c, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, message);
	cr_assert_eq(c, untouched);
	close(fd);
}

/* ------------------------------------------------------------------------------------------- */
/* What is right                                                                               */

Test(config, without_a_file_there_is_one_pool_for_the_own_user)
{
	struct config *c = NULL;

	cr_assert_eq(config_default(&c), 0);
	cr_assert_null(c->file);
	cr_assert_null(c->socket);
	cr_assert_eq(c->socket_mode, 0666);
	cr_assert(principal_match(&c->rights.admins, geteuid(), NULL, 0));
	cr_assert(principal_match(&c->rights.admins, 0, NULL, 0));
	cr_assert(principal_match(&c->rights.create_pools, geteuid(), NULL, 0));
	cr_assert_not(principal_match(&c->rights.create_pools, geteuid() + 1, NULL, 0));
	cr_assert_eq(c->n_users, 0);

	cr_assert_eq(c->n_pools, 1);
	cr_assert_str_eq(c->pools[0].name, "default");
	cr_assert_str_eq(c->pools[0].kind, "auto");
	cr_assert_eq(c->pools[0].limit, c->default_pool_limit);
	cr_assert_eq(c->pools[0].alignment, 512);
	cr_assert_eq(c->pools[0].segment_size, 64 * MIB);
	cr_assert_eq(c->pools[0].release_threshold, 64 * MIB);
	cr_assert_eq(access_check(&c->pools[0].access, geteuid(), NULL, 0), ACCESS_ALL);
	cr_assert_eq(access_check(&c->pools[0].access, geteuid() + 1, NULL, 0), 0);
	config_free(c);
}

Test(config, half_of_the_memory_is_the_default_pool_limit)
{
	struct config *c = NULL;

	cr_assert_eq(config_default(&c), 0);
	cr_assert_eq(c->default_pool_limit,
		     (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2);
	config_free(c);
}

Test(config, an_empty_object_means_the_defaults)
{
	struct config *built_in = NULL, *c = load("{}");

	cr_assert_eq(config_default(&built_in), 0);
	cr_assert_eq(c->n_pools, 1);
	cr_assert_str_eq(c->pools[0].name, "default");
	cr_assert_eq(c->pools[0].limit, built_in->pools[0].limit);
	cr_assert_eq(c->socket_mode, built_in->socket_mode);
	cr_assert_eq(c->rights.admins.n_entries, built_in->rights.admins.n_entries);
	cr_assert_eq(memcmp(&c->limits, &built_in->limits, sizeof(c->limits)), 0);
	config_free(c);
	config_free(built_in);
}

Test(config, freeing_nothing_is_fine)
{
	config_free(NULL);
}

Test(config, everything_that_can_be_said_is_read)
{
	struct config *c = load(
	    "{\n"
	    "  \"socket\": \"/run/share/broker.sock\",\n"
	    "  \"socket_mode\": \"0660\",\n"
	    "  \"admins\": [\"root\", \"@70044\", 70001],\n"
	    "  \"create_pools\": [\"*\"],\n"
	    "  \"limits\": {\"connections\": 10, \"leases\": 20, \"bytes\": \"1TiB\",\n"
	    "    \"names\": 30, \"tokens\": 40, \"watches\": 50, \"waits\": 60, \"pools\": 70,\n"
	    "    \"metadata\": \"64KiB\", \"unsent\": 80, \"events\": 90, \"channels\": 92,\n"
	    "    \"fences\": 95, \"segments\": 97, \"descriptors\": 99,\n"
	    "    \"broker_memory\": \"1MiB\"},\n"
	    "  \"broker_memory\": \"256MiB\",\n"
	    "  \"users\": {\"70001\": {\"limits\": {\"connections\": 1, \"bytes\": 0}},\n"
	    "    \"70002\": {}},\n"
	    "  \"pools\": [\n"
	    "    {\"name\": \"frames\", \"kind\": \"host\", \"limit\": \"4GiB\",\n"
	    "     \"segment_size\": \"32MiB\", \"alignment\": 4096, \"release_threshold\": 0,\n"
	    "     \"access\": [{\"user\": 70001, \"mode\": \"rw\"}, {\"user\": \"*\", \"mode\": "
	    "\"ro\"}]},\n"
	    "    {\"name\": \"weights\", \"reuse\": \"scrub\", \"prefault\": \"1GiB\",\n"
	    "     \"huge_pages\": \"require\", \"numa\": 1},\n"
	    "    {\"name\": \"pointers\", \"kind\": \"vmm\", \"same_address\": true,\n"
	    "     \"device\": \"GPU-5fd4f087-86f3-7a43-b711-4771313afc50\"}\n"
	    "  ],\n"
	    "  \"agent_timeout_ms\": 2500,\n"
	    "  \"drain_ms\": 0,\n"
	    "  \"hang_ms\": 1000,\n"
	    "  \"default_pool_limit\": \"1.5GiB\"\n"
	    "}\n");
	const gid_t groups[] = {70044};

	cr_assert_str_eq(c->socket, "/run/share/broker.sock");
	cr_assert_eq(c->socket_mode, 0660);
	cr_assert(principal_match(&c->rights.admins, 0, NULL, 0));
	cr_assert(principal_match(&c->rights.admins, geteuid(), NULL, 0));
	cr_assert(principal_match(&c->rights.admins, 70001, NULL, 0));
	cr_assert(principal_match(&c->rights.admins, 70009, groups, 1));
	cr_assert_not(principal_match(&c->rights.admins, 70009, NULL, 0));
	cr_assert(principal_match(&c->rights.create_pools, 70009, NULL, 0));
	cr_assert_eq(c->default_pool_limit, 3 * GIB / 2);

	const uint64_t expected[LIMIT_KINDS] = {10,    20, TIB, 30, 40, 50, 60, 70,
						65536, 80, 90,  92, 95, 97, 99, MIB};
	cr_assert_eq(memcmp(c->limits.max, expected, sizeof(expected)), 0);
	cr_assert_eq(config_limits_for(c, 70009), &c->limits);
	cr_assert_eq(config_limits_for(c, 70001)->max[LIMIT_CONNECTIONS], 1);
	cr_assert_eq(config_limits_for(c, 70001)->max[LIMIT_BYTES], LIMIT_NONE);
	cr_assert_eq(config_limits_for(c, 70001)->max[LIMIT_LEASES], 20);
	cr_assert_eq(memcmp(config_limits_for(c, 70002), &c->limits, sizeof(c->limits)), 0);

	cr_assert_eq(c->agent_timeout_ms, 2500);
	cr_assert_eq(c->drain_ms, 0);
	cr_assert_eq(c->hang_ms, 1000);
	cr_assert_eq(c->broker_memory, 256 * MIB);

	cr_assert_eq(c->n_pools, 3);
	const struct pool_config *p = &c->pools[0];
	cr_assert_str_eq(p->name, "frames");
	cr_assert_str_eq(p->kind, "host");
	cr_assert_eq(p->limit, 4 * GIB);
	cr_assert_eq(p->segment_size, 32 * MIB);
	cr_assert_eq(p->alignment, 4096);
	cr_assert_eq(p->release_threshold, 0);
	cr_assert_eq(access_check(&p->access, 70001, NULL, 0), ACCESS_RW);
	cr_assert_eq(access_check(&p->access, 70009, NULL, 0), ACCESS_RO);
	cr_assert_eq(access_check(&p->access, geteuid(), NULL, 0), ACCESS_ALL);
	p = &c->pools[1];
	cr_assert_str_eq(p->name, "weights");
	cr_assert_str_eq(p->kind, "auto");
	cr_assert_eq(p->limit, 3 * GIB / 2);
	cr_assert_eq(access_check(&p->access, geteuid(), NULL, 0), ACCESS_ALL);
	cr_assert_eq(access_check(&p->access, 70001, NULL, 0), 0);
	cr_assert_null(p->device);
	cr_assert_not(p->same_address);
	cr_assert_eq(p->reuse, SHARE_REUSE_SCRUB);
	cr_assert_eq(p->prefault, GIB);
	cr_assert_eq(p->huge_pages, SHARE_HUGE_PAGES_REQUIRE);
	cr_assert_eq(p->numa, SHARE_NUMA_NODE(1));
	p = &c->pools[2];
	cr_assert_str_eq(p->kind, "vmm");
	cr_assert_str_eq(p->device, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	cr_assert(p->same_address);
	cr_assert_eq(p->reuse, SHARE_REUSE_GATE);
	config_free(c);
}

Test(config, the_time_limit_of_agents_is_a_number_of_milliseconds)
{
	expect_error("{\"agent_timeout_ms\": 99}",
		     "FILE:1: agent_timeout_ms: 99 is not a time limit (100 to 600000 ms)");
	expect_error("{\"agent_timeout_ms\": \"1s\"}",
		     "FILE:1: agent_timeout_ms: \"1s\" is not a time limit (100 to 600000 ms)");
}

Test(config, the_broker_drains_for_less_than_service_managers_wait)
{
	struct config *c = load("{}");

	cr_assert_eq(c->drain_ms, 2000);
	config_free(c);
	expect_error("{\"drain_ms\": 60001}",
		     "FILE:1: drain_ms: 60001 is not a time limit (0 to 60000 ms)");
	expect_error("{\"drain_ms\": -1}",
		     "FILE:1: drain_ms: -1 is not a time limit (0 to 60000 ms)");
	expect_error("{\"hang_ms\": 600001}",
		     "FILE:1: hang_ms: 600001 is not a time limit (0 to 600000 ms)");
	expect_error("{\"broker_memory\": 4096}",
		     "FILE:1: broker_memory: 4KiB is less than a few processes need (1MiB)");
	expect_error("{\"hang_ms\": 999}",
		     "FILE:1: hang_ms: 999 ms are too few for a busy machine (at least 1000, or "
		     "0: never)");
}

Test(config, no_pool_is_larger_than_what_a_process_can_map)
{
	struct config *c = load("{\"default_pool_limit\": \"128TiB\"}");

	cr_assert_eq(c->pools[0].segment_size, 512 * MIB);
	config_free(c);
	expect_error("{\"default_pool_limit\": \"129TiB\"}",
		     "FILE:1: default_pool_limit: 129TiB is not possible (at most 128TiB)");
}

Test(config, an_empty_list_of_pools_means_none)
{
	struct config *c = load("{\"pools\": []}");

	cr_assert_eq(c->n_pools, 0);
	config_free(c);
}

Test(config, the_default_pool_takes_the_configured_limit)
{
	struct config *c = load("{\"default_pool_limit\": \"1MiB\"}");

	cr_assert_eq(c->pools[0].limit, MIB);
	cr_assert_eq(c->pools[0].segment_size, MIB);
	config_free(c);
}

Test(config, root_and_the_own_user_cannot_be_left_out)
{
	struct config *c = load("{\"admins\": [], \"create_pools\": []}");

	cr_assert(principal_match(&c->rights.admins, 0, NULL, 0));
	cr_assert(principal_match(&c->rights.admins, geteuid(), NULL, 0));
	cr_assert(principal_match(&c->rights.create_pools, 0, NULL, 0));
	cr_assert(principal_match(&c->rights.create_pools, geteuid(), NULL, 0));
	config_free(c);
}

Test(config, limits_have_names)
{
	static const char *const names[] = {
	    "connections", "leases",   "bytes",       "names",        "tokens", "watches",
	    "waits",       "pools",    "metadata",    "unsent",       "events", "channels",
	    "fences",      "segments", "descriptors", "broker_memory"};

	cr_assert_eq(sizeof(names) / sizeof(names[0]), LIMIT_KINDS);
	for (size_t i = 0; i < LIMIT_KINDS; i++) {
		cr_assert_str_eq(limit_name((enum limit_kind)i), names[i]);
		cr_assert_not_null(limit_noun((enum limit_kind)i, 1));
		cr_assert_not_null(limit_noun((enum limit_kind)i, 2));
	}
	cr_assert_str_eq(limit_noun(LIMIT_LEASES, 1), "lease");
	cr_assert_str_eq(limit_noun(LIMIT_LEASES, 2), "leases");
	cr_assert_str_eq(limit_noun(LIMIT_METADATA, 2), "metadata");
}

/* ------------------------------------------------------------------------------------------- */
/* What is not a file                                                                          */

Test(config, a_missing_file_is_named)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct config *c = NULL;

	cr_assert_eq(config_load("/no/such/broker.json", &c, error, sizeof(error)), -ENOENT);
	cr_assert_str_eq(error, "/no/such/broker.json: No such file or directory");
	cr_assert_null(c);
}

Test(config, a_directory_is_refused)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct config *c = NULL;

	cr_assert_eq(config_load("/", &c, error, sizeof(error)), -EISDIR);
	cr_assert_str_eq(error, "/: Is a directory");
	cr_assert_null(c);
}

Test(config, files_are_limited_to_1_mib)
{
	char *text = malloc(CONFIG_MAX_FILE + 2);

	memset(text, ' ', CONFIG_MAX_FILE + 1);
	text[0] = '{';
	text[1] = '}';
	text[CONFIG_MAX_FILE + 1] = '\0';
	expect_error(text, "FILE: larger than 1 MiB");

	text[CONFIG_MAX_FILE] = '\0';
	config_free(load(text));
	free(text);
}

Test(config, a_pipe_can_be_read)
{
	char path[32], error[CONFIG_ERROR_MAX] = "";
	struct config *c = NULL;
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(write(ends[1], "{}", 2), 2);
	close(ends[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
	cr_assert_eq(config_load(path, &c, error, sizeof(error)), 0, "%s", error);
	close(ends[0]);
	config_free(c);
}

Test(config, descriptors_are_closed)
{
	char error[CONFIG_ERROR_MAX];
	struct config *c;
	int before = dup(0), after;

	close(before);
	config_free(load("{}"));
	expect_error("{", "FILE:1: not JSON: string or '}' expected near end of file (column 1)");
	config_load("/", &c, error, sizeof(error));
	after = dup(0);
	close(after);
	cr_assert_eq(before, after);
}

/* ------------------------------------------------------------------------------------------- */
/* What is wrong                                                                               */

Test(config, an_unknown_key_is_an_error_with_a_suggestion)
{
	expect_error("{\n\n  \"sokcet\": \"/a\"}",
		     "FILE:3: sokcet: unknown key (did you mean \"socket\"?)");
	expect_error("{\"pools\": [{\"name\": \"a\",\n\"segmentSize\": 1}]}",
		     "FILE:2: pools[0].segmentSize: unknown key (did you mean \"segment_size\"?)");
	expect_error("{\"limits\": {\"conections\": 1}}",
		     "FILE:1: limits.conections: unknown key (did you mean \"connections\"?)");
	expect_error("{\"users\": {\"root\": {\"limit\": {}}}}",
		     "FILE:1: users.root.limit: unknown key (did you mean \"limits\"?)");
	expect_error("{\"colour\": 1}",
		     "FILE:1: colour: unknown key (known here: socket, socket_mode, admins, "
		     "create_pools, limits, users, pools, default_pool_limit, agent_timeout_ms, "
		     "names, drain_ms, hang_ms, broker_memory)");
	expect_error("{\"\\u001b[2J\": 1}",
		     "FILE:1: \\u001b[2J: unknown key (known here: socket, socket_mode, admins, "
		     "create_pools, limits, users, pools, default_pool_limit, agent_timeout_ms, "
		     "names, drain_ms, hang_ms, broker_memory)");
}

Test(config, a_value_of_the_wrong_type_is_an_error)
{
	expect_error("[]",
		     "FILE:1: an array is not an object (like {\"pools\": [{\"name\": "
		     "\"frames\"}]})");
	expect_error("{\"socket\": 5}",
		     "FILE:1: socket: 5 is not a path (like \"/run/share/broker.sock\")");
	expect_error("{\"admins\": \"root\"}",
		     "FILE:1: admins: \"root\" is not a list (like "
		     "[\"alice\", \"@video\", 1000])");
	expect_error("{\"create_pools\": true}",
		     "FILE:1: create_pools: true is not a list (like "
		     "[\"alice\", \"@video\", 1000])");
	expect_error("{\"limits\": 3}",
		     "FILE:1: limits: 3 is not an object (like {\"connections\": 1024})");
	expect_error("{\"users\": []}",
		     "FILE:1: users: an array is not an object (like {\"alice\": "
		     "{\"limits\": {\"connections\": 16}}})");
	expect_error("{\"users\": {\"root\": 1}}",
		     "FILE:1: users.root: 1 is not an object (like "
		     "{\"limits\": {\"connections\": 16}})");
}

Test(config, a_bad_size_is_an_error)
{
	expect_error(
	    "{\n\"pools\": [\n{\"name\": \"a\"},\n{\"name\": \"b\",\n"
	    "\"limit\": \"10 parsecs\"}]}",
	    "FILE:5: pools[1].limit: \"10 parsecs\" is not a size (an integer of bytes, or "
	    "a string like \"64MiB\")");
	expect_error("{\"default_pool_limit\": -1}",
		     "FILE:1: default_pool_limit: -1 is not a size (an integer of bytes, or a "
		     "string like \"64MiB\")");
	expect_error("{\"limits\": {\"bytes\": 1.5}}",
		     "FILE:1: limits.bytes: 1.5 is not a size (an integer of bytes, or a string "
		     "like \"64MiB\")");
	expect_error("{\"limits\": {\"metadata\": \"1.3KiB\"}}",
		     "FILE:1: limits.metadata: \"1.3KiB\" is not a whole number of bytes");
	expect_error("{\"limits\": {\"bytes\": \"16777216TiB\"}}",
		     "FILE:1: limits.bytes: \"16777216TiB\" is too large (less than 16777216TiB)");
	expect_error("{\"default_pool_limit\": \"4KiB\"}",
		     "FILE:1: default_pool_limit: 4KiB is less than the smallest segment (64KiB)");
}

Test(config, nothing_is_not_a_limit_unless_it_means_none)
{
	expect_error("{\"limits\": {\"connections\": 0}}",
		     "FILE:1: limits.connections: 0 is not a limit (an integer from 1 to "
		     "2147483647)");
	expect_error("{\"limits\": {\"leases\": 2147483648}}",
		     "FILE:1: limits.leases: 2147483648 is not a limit (an integer from 1 to "
		     "2147483647)");
	expect_error("{\"limits\": {\"leases\": \"4MiB\"}}",
		     "FILE:1: limits.leases: \"4MiB\" is not a limit (an integer from 1 to "
		     "2147483647)");
	expect_error("{\"limits\": {\"metadata\": 0}}",
		     "FILE:1: limits.metadata: 0 is not possible (leave it out for the default)");
	expect_error("{\"default_pool_limit\": \"0KiB\"}",
		     "FILE:1: default_pool_limit: \"0KiB\" is not possible (leave it out for the "
		     "default)");
	expect_error("{\"pools\": [{\"name\": \"a\", \"segment_size\": 0}]}",
		     "FILE:1: pools[0].segment_size: 0 is not possible (leave it out for the "
		     "default)");
}

Test(config, unknown_users_and_groups_are_errors)
{
	expect_error("{\"admins\": [\n\"root\",\n\"no-such\"]}",
		     "FILE:3: admins[1]: \"no-such\" is unknown here: there is no such user");
	expect_error(
	    "{\"create_pools\": [\"@no-such\"]}",
	    "FILE:1: create_pools[0]: \"@no-such\" is unknown here: there is no such group");
	expect_error("{\"users\": {\"root\": {},\n\"no-such\": {}}}",
		     "FILE:2: users.no-such: there is no such user");
	expect_error(
	    "{\"pools\": [{\"name\": \"a\", \"access\": [\n{\"user\": \"no-such\",\n"
	    "\"mode\": \"ro\"}]}]}",
	    "FILE:2: pools[0].access[0].user: \"no-such\" is unknown here: there is no "
	    "such user");
}

Test(config, one_user_under_two_names_is_an_error)
{
	expect_error("{\"users\": {\"root\": {},\n\"0\": {}}}",
		     "FILE:2: users.0: this user is here twice (uid 0)");
}

Test(config, a_bad_socket_is_an_error)
{
	char text[256];

	expect_error("{\"socket\": \"broker.sock\"}",
		     "FILE:1: socket: \"broker.sock\" is not an absolute path");
	snprintf(text, sizeof(text), "{\"socket\": \"/%0107d\"}", 0);
	expect_error(text, "FILE:1: socket: 108 bytes are too many for a socket (at most 107)");
	snprintf(text, sizeof(text), "{\"socket\": \"/%0106d\"}", 0);
	config_free(load(text));
}

Test(config, a_bad_socket_mode_is_an_error)
{
	static const char *const wrong[] = {"438",    "\"0o666\"", "\"888\"", "\"1777\"",
					    "\"66\"", "\"00666\"", "\"\""};
	char text[64], message[256];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "{\"socket_mode\": %s}", wrong[i]);
		snprintf(message, sizeof(message),
			 "FILE:1: socket_mode: %s is not a file mode (an octal string like "
			 "\"0666\")",
			 wrong[i]);
		expect_error(text, message);
	}
	expect_error("{\"socket_mode\": \"0555\"}",
		     "FILE:1: socket_mode: \"0555\" lets nobody connect (which takes write "
		     "permission)");
}

/* Whatever allocation of jansson's fails, nothing leaks and nothing crashes. jansson itself ignores
 * some of its failures, so that the file can look wrong or even right then. */
static size_t allocations_left;

static void *scarce_malloc(size_t size)
{
	return allocations_left > 0 ? (allocations_left--, malloc(size)) : NULL;
}

Test(config, running_out_of_memory_is_survived)
{
	static const char text[] =
	    "{\"admins\": [0], \"limits\": {\"bytes\": \"1GiB\"}, \"users\": {\"0\": {}}, "
	    "\"pools\": "
	    "[{\"name\": \"a\", \"access\": [{\"user\": 1, \"mode\": \"rw\"}]}]}";
	char path[32], error[CONFIG_ERROR_MAX];
	int fd = write_file(text, path);
	size_t n = 0, failures = 0;

	json_set_alloc_funcs(scarce_malloc, free);
	for (; allocations_left == 0 && n < 10000; n++) {
		struct config *c = NULL;

		allocations_left = n;
		strcpy(error, "");
		cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
		int e = config_load(path, &c, error, sizeof(error));
		cr_assert_eq(e == 0, c != NULL);
		cr_assert_eq(e == 0, error[0] == '\0');
		failures += e != 0;
		config_free(c);
	}
	cr_assert_gt(failures, 10);
	cr_assert_lt(n, 10000);
	close(fd);
}
