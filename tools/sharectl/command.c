/* SPDX-License-Identifier: MIT */

/*
 * Commands that are neither reports nor end something: what has the broker do something, what looks
 * at something for as long as one likes, and what prints for other programs. "reload" prints its
 * changes as they arrive.
 */

#include "tools/sharectl/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <share/admin.h>

#include "tools/doctor/doctor.h"
#include "tools/metrics.h"
#include "tools/sharectl/arguments.h"
#include "tools/sharectl/recipe.h"
#include "tools/sharectl/show.h"
#include "tools/sharectl/watch.h"
#include "tools/snapshot.h"
#include "tools/top/top.h"

/* Prints one line for each change. The line of a setting that needs a restart says that it
 * stays. */
static int print_change(const char *json, bool exact)
{
	json_t *row = json_loads(json, 0, NULL);
	int n = printf("%s: %s\n", json_string_value(json_object_get(row, "key")),
		       json_string_value(json_object_get(row, "change")));

	(void)exact;
	json_decref(row);
	return n < 0 ? -errno : 0;
}

/* Each object, as JSON or for people. */
static int on_object(const char *json, void *data)
{
	struct output *o = data;
	const struct arguments *a = o->arguments;
	int r = a->json ? show_json(o, json) : o->print(json, a->options.exact);

	o->rows++;
	return -r;
}

static int reload(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a, .print = print_change};
	int r = share_reload(client, on_object, &o);

	if (r == 0 && a->json)
		show_json_end(&o);
	else if (r == 0 && o.rows == 0)
		puts("nothing has changed");
	return r;
}

static int print_upgrade(const char *json, bool exact)
{
	json_t *row = json_loads(json, 0, NULL);
	int n = printf("version %s (pid %" JSON_INTEGER_FORMAT ") goes on from version %s\n",
		       json_string_value(json_object_get(row, "to")),
		       json_integer_value(json_object_get(row, "pid")),
		       json_string_value(json_object_get(row, "from")));

	(void)exact;
	json_decref(row);
	return n < 0 ? -errno : 0;
}

static int upgrade(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a, .print = print_upgrade};
	int r = share_upgrade(client, on_object, &o);

	if (r == 0 && a->json)
		show_json_end(&o);
	return r;
}

static int show_metrics(const struct arguments *a, share_client *client)
{
	json_t *snapshot;
	int r = snapshot_take(client, metrics_reports, metrics_n_reports, &snapshot);

	(void)a;
	if (r != 0)
		return r;
	metrics_print(stdout, snapshot, (double)time(NULL));
	metrics_print_end(stdout);
	json_decref(snapshot);
	return 0;
}

static int show_recipes(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a, .print = recipe_print};
	int r = recipes_each(client, a->words, a->n_words, on_object, &o, a->failed);

	if (r == 0 && a->json)
		show_json_end(&o);
	return r;
}

static int examine(const struct arguments *a, share_client *client)
{
	json_t *findings = doctor_examine("", client, a->connected, share_error_detail());
	bool content = doctor_is_content(findings);

	if (!a->json)
		doctor_print(stdout, findings);
	else if (json_dumpf(findings, stdout, JSON_INDENT(1)) == 0)
		putchar('\n');
	json_decref(findings);
	*a->failed += !content;
	return 0;
}

static int watch_live(const struct arguments *a, share_client *client)
{
	const struct top_options shown = {.sort = a->sort,
					  .reverse = a->reverse,
					  .exact = a->options.exact,
					  .json = a->json,
					  .once = a->once,
					  .timeout_ms = a->timeout_ms};

	int r = top_run(client, &shown);

	if (r != ENOTTY)
		return r;
	fputs("sharectl: top draws on a terminal, and there is none; --once prints text\n", stderr);
	++*a->failed;
	return 0;
}

static int watch(const struct arguments *a, share_client *client)
{
	struct watch_options wanted = a->watch;

	wanted.seconds = a->timeout;
	return watch_run(client, &wanted, a->options.headings, a->options.exact, a->json);
}

static const struct command commands[] = {
    {"reload", reload, true, NULL},        {"upgrade", upgrade, true, NULL},
    {"metrics", show_metrics, true, NULL}, {"doctor", examine, false, NULL},
    {"top", watch_live, true, NULL},       {"watch", watch, true, NULL},
    {"recipe", show_recipes, true, "NAME"}};

const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}
