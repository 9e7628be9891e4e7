/* SPDX-License-Identifier: MIT */

/* Trying a kind out, in a process of its own. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/standin/calls.h"
#include "tests/support/kinds.h"

static bool is_wanted(const char *kind)
{
	const char *at = getenv("SHARE_TEST_KINDS");
	size_t size = strlen(kind);

	if (!at)
		return true;
	for (; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
		if (strcspn(at, ",") == size && memcmp(at, kind, size) == 0)
			return true;
	return false;
}

/* The first @most of them. */
static struct kind *choose(size_t most, size_t *n)
{
	static const struct kind all[] = {{"host"},        {"vmm"},           {"mempool"},
					  {"pinned"},      {"legacy"},        {"adopted"},
					  {"adopted-vmm"}, {"adopted-legacy"}};
	static struct kind wanted[sizeof(all) / sizeof(all[0])];

	*n = 0;
	for (size_t i = 0; i < most; i++)
		if (is_wanted(all[i].name))
			wanted[(*n)++] = all[i];
	return wanted;
}

struct kind *kinds_to_test(size_t *n)
{
	return choose(5, n);
}

struct kind *kinds_without_legacy(size_t *n)
{
	return choose(4, n);
}

struct kind *kinds_with_adopted(size_t *n)
{
	return choose(8, n);
}

void kinds_start_on(const char *machine, const char *config)
{
	standin_configure(machine);
	fixture_start_with(config);
}

void kinds_start(void)
{
	kinds_start_on("", NULL);
}

void skip_unless_standin(void)
{
	const char *path = getenv("LD_LIBRARY_PATH");

	if (!path || !strstr(path, "standin"))
		cr_skip_test("needs the stand-in driver, which can be told to fail");
}

/* What is adopted is made as memory of pools is. */
static const char *made_as(const char *kind)
{
	return strncmp(kind, "adopted-", 8) == 0 ? kind + 8 : kind;
}

struct trial {
	int result;
	char detail[512];
};

/* Only what says that a kind is not for this machine is no failure. */
static void try_kind(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = child_connect("probe");
	struct trial trial = {.result = 0};
	share_buffer *b = NULL;
	share_pool *p = NULL;

	options.kind = data;
	trial.result = share_pool_create(c, "probe", &options, &p);
	if (trial.result == 0)
		trial.result = share_alloc(p, 4096, NULL, &b);
	if (trial.result != 0) {
		snprintf(trial.detail, sizeof(trial.detail), "%s", share_error_detail());
	} else {
		buffer_fill(b, 0x17);
		buffer_expect(b, 0x17);
		check_ok(share_release(b, NULL));
	}
	share_pool_close(p);
	share_disconnect(c);
	child_point_with(self, "tried", &trial, sizeof(trial));
}

void skip_unless_possible(const char *kind)
{
	struct child *child;
	struct trial trial;

	if (strcmp(kind, "adopted") == 0) /* host memory, which every machine has */
		return;
	child = child_start(try_kind, (void *)(uintptr_t)made_as(kind));
	child_wait_with(child, "tried", &trial, sizeof(trial));
	child_go(child);
	child_finish(child);
	if (trial.result == SHARE_ENODEV || trial.result == SHARE_ENOTSUP)
		cr_skip_test("kind %s cannot run here: %s", kind, trial.detail);
	if (trial.result != 0)
		check_failed(__FILE__, __LINE__, "kind %s: %s: %s", kind,
			     share_error_name(trial.result), trial.detail);
	if (!is_host(kind))
		fixture_uses_devices();
}
