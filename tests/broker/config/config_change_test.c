/* SPDX-License-Identifier: MIT */
/*
 * What a configuration that is read again changes: the exact words, for every key; and that what
 * was told to stay is what is in force afterwards.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "broker/config/change.h"

TestSuite(config_change, .timeout = 30);

/* Which allocation fails; 0: none. */
static unsigned long failing, counted;

static bool fails(void)
{
	return ++counted == failing;
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

void *__real_reallocarray(void *old, size_t n, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(old, n, size);
}

static struct config *load(const char *text)
{
	char path[32], error[CONFIG_ERROR_MAX] = "";
	int fd = memfd_create("broker.json", MFD_CLOEXEC);
	struct config *c = NULL;

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(config_load(path, &c, error, sizeof(error)), 0, "%s", error);
	close(fd);
	return c;
}

/* All that is told, a line each; what takes a restart begins with "! ". For free(). */
static char *lines_of(const struct config_changes *changes, bool also_now)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	for (size_t i = 0; i < changes->n; i++) {
		const struct config_change *c = &changes->entries[i];

		if (also_now || !c->now)
			fprintf(f, "%s%s: %s\n", c->now ? "" : "! ", c->key, c->text);
	}
	fclose(f);
	return text;
}

#define POOL(keys) "{\"pools\": [{\"name\": \"frames\"" keys "}]}"
#define GPU        "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
#define GPU_2      "GPU-00000000-0000-0000-0000-000000000000"

static const struct {
	const char *now, *file, *told;
} table[] = {
    {"{}", "{}", ""},
    {"{\"pools\": []}", "{\"pools\": []}", ""},
    /* what is not said is as if the default were */
    {"{\"socket_mode\": \"0666\", \"limits\": {\"names\": 65536}, \"agent_timeout_ms\": 30000}",
     "{}", ""},

    {"{\"socket\": \"/a\"}", "{\"socket\": \"/b\"}", "! socket: stays /a; /b takes a restart\n"},
    {"{}", "{\"socket\": \"/b\"}", "! socket: stays the default; /b takes a restart\n"},
    {"{\"socket\": \"/a\"}", "{}", "! socket: stays /a; the default takes a restart\n"},
    {"{}", "{\"socket_mode\": \"0660\"}", "! socket_mode: stays 0666; 0660 takes a restart\n"},
    {"{\"socket_mode\": \"660\"}", "{\"socket_mode\": \"0660\"}", ""},

    {"{\"admins\": [70001, \"@70044\"]}", "{\"admins\": [\"@70044\", \"*\"]}",
     "admins: user 70001: removed\nadmins: everyone: added\n"},
    {"{}", "{\"create_pools\": [\"@70044\"]}", "create_pools: group 70044: added\n"},
    {"{\"names\": {\"a/\": [70001], \"b/\": [70002]}}",
     "{\"names\": {\"b/\": [\"*\"], \"c/\": []}}",
     "names[\"a/\"]: removed\nnames[\"a/\"].use: everyone: removed\n"
     "names[\"a/\"].publish: user 70001: removed\nnames[\"a/\"].create: user 70001: removed\n"
     "names[\"b/\"].publish: user 70002: removed\nnames[\"b/\"].publish: everyone: added\n"
     "names[\"b/\"].create: user 70002: removed\nnames[\"b/\"].create: everyone: added\n"
     "names[\"c/\"]: added\nnames[\"c/\"].use: everyone: added\n"},
    {"{\"names\": {\"a/\": [70001]}}",
     "{\"names\": {\"a/\": {\"use\": [70002], \"publish\": [70001], \"manage\": [\"@70044\"]}}}",
     "names[\"a/\"].use: everyone: removed\nnames[\"a/\"].use: user 70002: added\n"
     "names[\"a/\"].create: user 70001: removed\nnames[\"a/\"].manage: group 70044: added\n"},
    /* it is one already */
    {"{}", "{\"admins\": [0], \"create_pools\": [0]}", ""},

    {"{}", "{\"limits\": {\"bytes\": \"8GiB\"}}", "limits.bytes: none -> 8GiB\n"},
    {"{\"limits\": {\"bytes\": \"8GiB\"}}", "{\"limits\": {\"bytes\": 0}}",
     "limits.bytes: 8GiB -> none\n"},
    {"{}",
     "{\"limits\": {\"connections\": 1, \"leases\": 2, \"names\": 3, \"tokens\": 4, \"watches\": "
     "5, "
     "\"waits\": 6, \"pools\": 7, \"metadata\": 8, \"unsent\": 9, \"events\": 10, "
     "\"channels\": 11, \"fences\": 12, "
     "\"segments\": 13, \"descriptors\": 14}}",
     "limits.connections: 1024 -> 1\nlimits.leases: 4194304 -> 2\nlimits.names: 65536 -> 3\n"
     "limits.tokens: 65536 -> 4\nlimits.watches: 1024 -> 5\nlimits.waits: 4096 -> 6\n"
     "limits.pools: 64 -> 7\nlimits.metadata: 64MiB -> 8\nlimits.unsent: 16MiB -> 9\n"
     "limits.events: 1024 -> 10\nlimits.channels: 1024 -> 11\nlimits.fences: 4194304 -> 12\n"
     "limits.segments: 16384 -> 13\nlimits.descriptors: 65536 -> 14\n"},

    {"{}", "{\"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}",
     "users[70001].limits.names: 65536 -> 3\n"},
    {"{\"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}", "{}",
     "users[70001].limits.names: 3 -> 65536\n"},
    {"{\"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}",
     "{\"users\": {\"70001\": {\"limits\": {\"names\": 4}}, \"70002\": {}}}",
     "users[70001].limits.names: 3 -> 4\n"},
    /* what the user has as all have is told once */
    {"{\"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}",
     "{\"limits\": {\"tokens\": 5}, \"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}",
     "limits.tokens: 65536 -> 5\n"},
    {"{\"limits\": {\"names\": 3}}",
     "{\"limits\": {\"names\": 4}, \"users\": {\"70001\": {\"limits\": {\"names\": 3}}}}",
     "limits.names: 3 -> 4\n"},

    {"{\"default_pool_limit\": \"1GiB\", \"pools\": []}",
     "{\"default_pool_limit\": \"2GiB\", \"pools\": []}", "default_pool_limit: 1GiB -> 2GiB\n"},
    {"{}", "{\"agent_timeout_ms\": 500}", "agent_timeout_ms: 30000 -> 500\n"},
    {"{}", "{\"drain_ms\": 500}", "drain_ms: 2000 -> 500\n"},
    {"{}", "{\"hang_ms\": 0}", "hang_ms: 15000 -> 0\n"},
    {"{}", "{\"broker_memory\": \"64MiB\"}", "broker_memory: 640MiB -> 64MiB\n"},

    {"{\"pools\": []}", POOL(""), "pools[\"frames\"]: added\n"},
    {POOL(""), "{\"pools\": []}",
     "pools[\"frames\"]: removed: it ends when nobody has it open and its last buffer is "
     "released\n"},
    {"{\"pools\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}",
     "{\"pools\": [{\"name\": \"b\"}, {\"name\": \"a\"}]}", ""},

    {POOL(""), POOL(", \"kind\": \"host\""),
     "! pools[\"frames\"].kind: stays auto; host takes a restart\n"},
    {POOL(", \"kind\": \"vmm\", \"device\": \"" GPU "\""),
     POOL(", \"kind\": \"vmm\", \"device\": \"" GPU_2 "\""),
     "! pools[\"frames\"].device: stays " GPU "; " GPU_2 " takes a restart\n"},
    {POOL(", \"kind\": \"vmm\""), POOL(", \"kind\": \"vmm\", \"device\": \"" GPU "\""),
     "! pools[\"frames\"].device: stays the default; " GPU " takes a restart\n"},
    {POOL(""), POOL(", \"same_address\": true"),
     "! pools[\"frames\"].same_address: stays false; true takes a restart\n"},
    {POOL(", \"reuse\": \"gate\""), POOL(", \"reuse\": \"scrub\""),
     "! pools[\"frames\"].reuse: stays gate; scrub takes a restart\n"},
    {POOL(", \"limit\": \"1GiB\""), POOL(", \"limit\": \"2GiB\""),
     "pools[\"frames\"].limit: 1GiB -> 2GiB\n"},
    {POOL(", \"release_threshold\": 0"), POOL(", \"release_threshold\": \"1MiB\""),
     "pools[\"frames\"].release_threshold: 0 -> 1MiB\n"},
    {POOL(", \"release_threshold\": 0"),
     POOL(", \"release_threshold\": 0, \"segment_size\": "
	  "\"1MiB\""),
     "! pools[\"frames\"].segment_size: stays 64MiB; 1MiB takes a restart\n"},
    {POOL(""), POOL(", \"alignment\": 4096"),
     "! pools[\"frames\"].alignment: stays 512; 4KiB takes a restart\n"},
    {POOL(", \"prefault\": \"1MiB\""), POOL(""),
     "! pools[\"frames\"].prefault: stays 1MiB; 0 takes a restart\n"},
    {POOL(""), POOL(", \"huge_pages\": \"advise\""),
     "! pools[\"frames\"].huge_pages: stays system; advise takes a restart\n"},
    {POOL(", \"numa\": \"interleave\""), POOL(", \"numa\": 3"),
     "! pools[\"frames\"].numa: stays interleave; 3 takes a restart\n"},
    {POOL(", \"access\": [{\"user\": 70001, \"mode\": \"rw\"}, {\"user\": \"*\", \"mode\": "
	  "\"ro\"}]"),
     POOL(", \"access\": [{\"group\": 70044, \"mode\": \"manage\"}, {\"user\": 70001, \"mode\": "
	  "\"ro\"}]"),
     /* which several may write to now, and that is asked for scrubbing */
     "! pools[\"frames\"].reuse: stays gate; scrub takes a restart\n"
     "pools[\"frames\"].access: user 70001: rw -> ro\n"
     "pools[\"frames\"].access: everyone: ro -> nothing\n"
     "pools[\"frames\"].access: group 70044: nothing -> manage\n"},
};

#define N_OF_TABLE (sizeof(table) / sizeof(table[0]))

Test(config_change, every_key_is_told_in_its_words)
{
	for (size_t i = 0; i < N_OF_TABLE; i++) {
		struct config *now = load(table[i].now), *file = load(table[i].file);
		struct config_changes changes = {0};
		char *told;

		cr_assert_eq(config_compare(now, file, &changes), 0);
		told = lines_of(&changes, true);
		cr_expect_str_eq(told, table[i].told, "from %s to %s: %s", table[i].now,
				 table[i].file, told);
		free(told);
		config_changes_deinit(&changes);
		config_free(now);
		config_free(file);
	}
}

/* Read once more, a file changes nothing; what took a restart takes it still. */
Test(config_change, what_stays_is_in_force_afterwards_and_told_again)
{
	for (size_t i = 0; i < N_OF_TABLE; i++) {
		struct config *now = load(table[i].now), *file = load(table[i].file);
		struct config *again = load(table[i].file);
		struct config_changes first = {0}, second = {0};
		char *wanted, *told;

		cr_assert_eq(config_compare(now, file, &first), 0);
		cr_assert_eq(config_replace(now, file), 0);
		config_free(file);
		cr_assert_eq(config_compare(now, again, &second), 0);
		wanted = lines_of(&first, false);
		told = lines_of(&second, true);
		cr_expect_str_eq(told, wanted, "from %s to %s, again: %s", table[i].now,
				 table[i].file, told);
		free(told);
		free(wanted);
		config_changes_deinit(&first);
		config_changes_deinit(&second);
		config_free(now);
		config_free(again);
	}
}

Test(config_change, a_pool_that_is_back_in_the_file_stays)
{
	struct config *now = load(POOL(", \"limit\": \"1GiB\"")), *file = load("{\"pools\": []}");
	struct config_changes changes = {0};
	char *told;

	cr_assert_eq(config_replace(now, file), 0);
	config_free(file);
	cr_assert_eq(now->n_pools, 1);
	cr_assert(now->pools[0].leaving);
	file = load(POOL(", \"limit\": \"2GiB\", \"kind\": \"host\""));
	cr_assert_eq(config_compare(now, file, &changes), 0);
	told = lines_of(&changes, true);
	cr_assert_str_eq(told,
			 "pools[\"frames\"]: in the file again: stays\n"
			 "! pools[\"frames\"].kind: stays auto; host takes a restart\n"
			 "pools[\"frames\"].limit: 1GiB -> 2GiB\n");
	cr_assert_eq(config_replace(now, file), 0);
	cr_assert_eq(now->n_pools, 1);
	cr_assert_not(now->pools[0].leaving);
	cr_assert_str_eq(now->pools[0].kind, "auto");
	cr_assert_eq(now->pools[0].limit, UINT64_C(2) << 30);
	free(told);
	config_changes_deinit(&changes);
	config_free(now);
	config_free(file);
}

Test(config_change, without_memory_nothing_is_half_done)
{
	int told = -ENOMEM, replaced = -ENOMEM;
	unsigned long nth;

	for (nth = 1; told != 0 || replaced != 0; nth++) {
		struct config *now = load(POOL("")),
			      *file = load("{\"socket\": \"/b\", \"pools\": []}");
		struct config_changes changes = {0};

		counted = 0;
		failing = nth;
		told = config_compare(now, file, &changes);
		counted = 0;
		replaced = config_replace(now, file);
		failing = 0;
		cr_assert(told == 0 || told == -ENOMEM);
		cr_assert_eq(changes.n == 2, told == 0);
		if (replaced != 0) {
			cr_assert_eq(replaced, -ENOMEM);
			cr_assert_eq(now->n_pools, 1);
			cr_assert_str_eq(now->pools[0].name, "frames");
			cr_assert_eq(file->n_pools, 0);
			cr_assert_str_eq(file->socket, "/b");
		}
		config_changes_deinit(&changes);
		config_free(now);
		config_free(file);
	}
	cr_assert(nth > 6); /* two changes take three each */
}
