/* SPDX-License-Identifier: MIT */

/* The command line of sharectl: its options, which of them go together, and the text of --help. */

#include "tools/sharectl/arguments.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sharectl/act.h"
#include "tools/sharectl/command.h"
#include "tools/sharectl/duration.h"

/* For an answer of the broker. */
#define TIMEOUT_MS 5000

enum {
	OPTION_JSON = 256,
	OPTION_NO_HEADINGS,
	OPTION_OLDER_THAN,
	OPTION_ONCE,
	OPTION_SORT,
	OPTION_TIMEOUT
};

static const struct argp_option options[] = {
    {"socket", 's', "PATH", 0, "Ask the broker at PATH", 0},
    {"bytes", 'b', NULL, 0, "Show sizes in bytes", 0},
    {"json", OPTION_JSON, NULL, 0, "Print JSON, as the broker has it", 0},
    {"no-headings", OPTION_NO_HEADINGS, NULL, 0, "Print no headings above columns", 0},
    {"older-than", OPTION_OLDER_THAN, "TIME", 0, "Show leases that are older: 90s, 5m, 2h, 1d", 0},
    {"once", OPTION_ONCE, NULL, 0, "Let top print text once", 0},
    {"reverse", 'r', NULL, 0, "Sort the other way round", 0},
    {"sort", OPTION_SORT, "COLUMN", 0,
     "Show the largest numbers of COLUMN first, or texts from A on", 0},
    {"timeout", OPTION_TIMEOUT, "TIME", 0,
     "Wait so long for the broker's answer, instead of 5s; let watch end after TIME", 0},
    {"yes", 'y', NULL, 0, "Do it without asking", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

bool arguments_are_for(const struct arguments *a, const char *command)
{
	return a->command && strcmp(a->command->name, command) == 0;
}

static void parse_argument(struct arguments *a, const char *value, struct argp_state *state)
{
	if (state->arg_num == 0) {
		a->report = report_find(value);
		a->act = act_find(value);
		a->command = command_find(value);
		if (!a->report && !a->act && !a->command)
			argp_error(state, "there is no command '%s'", value);
	} else if (a->act) {
		if (!a->act->takes(value))
			argp_error(state, "'%s' %s", value, a->act->refusal);
		a->words[a->n_words++] = value;
	} else if (a->command && a->command->object) {
		if (!*value)
			argp_error(state, "'' is empty");
		a->words[a->n_words++] = value;
	} else if (state->arg_num == 1 && a->report && strcmp(a->report->name, "names") == 0) {
		a->prefix = value;
	} else {
		argp_error(state, "'%s' is one argument too many", value);
	}
}

static void check_rows_wanted(const struct arguments *a, struct argp_state *state)
{
	bool top = arguments_are_for(a, "top");
	const struct report *report = top ? report_find("clients") : a->report;
	char *columns = NULL;
	size_t size;
	FILE *out;

	if (a->once && !top)
		argp_error(state, "--once is for top");
	if (a->older_than > 0 && !(a->report && strcmp(a->report->name, "leases") == 0))
		argp_error(state, "--older-than is for leases");
	if (a->reverse && !a->sort)
		argp_error(state, "--reverse is for --sort");
	if (!a->sort)
		return;
	if (!report || !report->columns)
		argp_error(state, "--sort is for commands that list something");
	if (report_sort_key(report, a->sort))
		return;
	out = open_memstream(&columns, &size);
	if (!out)
		argp_failure(state, EXIT_FAILURE, errno, "--sort");
	report_list_sortable(report, out);
	fclose(out);
	argp_error(state, "%s cannot be sorted by '%s', but by: %s", report->name, a->sort,
		   columns);
}

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	if (a->act && a->n_words == 0)
		argp_error(state, "%s needs a %s", a->act->name, a->act->object);
	if (a->command && a->command->object && a->n_words == 0)
		argp_error(state, "%s needs a %s", a->command->name, a->command->object);
	if (a->act && a->json)
		argp_error(state, "--json is for commands that show something");
	if (arguments_are_for(a, "metrics") && a->json)
		argp_error(state, "metrics are OpenMetrics text, and no JSON");
	if (a->yes && !(a->act && a->act->asks))
		argp_error(state, "--yes is for commands that ask");
	if (a->watch.any && !arguments_are_for(a, "watch"))
		argp_error(state, "--count, --name, --pool and --user are for watch");
	check_rows_wanted(a, state);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->watch;
		return 0;
	case 's':
		/* libshare gives a meaning of its own to an empty path and to the word
		 * "embedded". */
		if (!*value)
			argp_error(state, "the path of the socket is empty");
		a->socket = strcmp(value, "embedded") == 0 ? "./embedded" : value;
		return 0;
	case 'b':
		a->options.exact = true;
		return 0;
	case OPTION_JSON:
		a->json = true;
		return 0;
	case OPTION_NO_HEADINGS:
		a->options.headings = false;
		return 0;
	case OPTION_OLDER_THAN:
		a->older_than = duration_read(value);
		if (a->older_than < 0)
			argp_error(state, "'%s' is no time like 90s, 5m, 2h or 1d", value);
		return 0;
	case OPTION_ONCE:
		a->once = true;
		return 0;
	case OPTION_SORT:
		a->sort = value;
		return 0;
	case OPTION_TIMEOUT:
		a->timeout = duration_read(value);
		if (a->timeout < 0.001)
			argp_error(state, "'%s' is no time like 90s, 5m, 2h or 1d", value);
		return 0;
	case 'r':
		a->reverse = true;
		return 0;
	case 'y':
		a->yes = true;
		return 0;
	case ARGP_KEY_ARG:
		parse_argument(a, value, state);
		return 0;
	case ARGP_KEY_END:
		check_arguments(a, state);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "there is no command");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Puts the reports before the other commands in the text of --help. argp frees the text that this
 * returns, if it is not argp's own. */
static char *add_reports(int key, const char *text, void *input)
{
	char *longer = NULL;
	size_t size;
	FILE *out;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC || !(out = open_memstream(&longer, &size)))
		return (char *)(uintptr_t)text;
	fputs("Commands:\n", out);
	report_list(out);
	fputs(text, out);
	if (fclose(out) == 0)
		return longer;
	free(longer);
	return (char *)(uintptr_t)text;
}

static const struct argp_child children[] = {{&watch_argp, 0, NULL, 0}, {NULL, 0, NULL, 0}};

static const struct argp argp = {
    options,
    parse,
    "COMMAND\n"
    "names [PREFIX]\n"
    "recipe NAME...\n"
    "unpublish NAME...\n"
    "destroy POOL...\n"
    "revoke TOKEN...\n"
    "drop-client CLIENT|PID...\n"
    "end-channel CHANNEL...",
    "Shows what a share-broker knows, ends some of it, and has it read its configuration.\v"
    "Commands that end something, of one's own or for administrators:\n"
    "  unpublish    a name leads nowhere any more\n"
    "  destroy      a pool ends with its last buffer\n"
    "  revoke       a token, as tokens shows it, is good for nothing\n"
    "  drop-client  a process loses its connection; asks first\n"
    "  end-channel  messages of producers that are gone are lost; asks first\n"
    "For who looks for what is wrong:\n"
    "  top     pools, channels and clients, live\n"
    "  watch   allocations, hand-overs, deaths and so on, as they happen\n"
    "  doctor  rights, limits and features of this machine, what they cost, and what to do\n"
    "For programs that do without libshare:\n"
    "  recipe  handle, offset and size of what is published\n"
    "For programs that watch the broker:\n"
    "  metrics  what it counts, as OpenMetrics text\n"
    "For administrators:\n"
    "  reload   the broker reads its configuration again; shows what changes\n"
    "  upgrade  the broker's program is the one on the disk; nobody is disconnected\n"
    "\n"
    "Without --socket, the broker is the one that programs find: at "
    "$SHARE_SOCKET when that is set, else at "
    "$XDG_RUNTIME_DIR/share/broker.sock or /run/share/broker.sock.",
    children,
    add_reports,
    NULL};

/* When one was given, it is for all that a command asks; of watch it is another one. */
static int64_t timeout_of(const struct arguments *a)
{
	bool given = a->timeout > 0 && !arguments_are_for(a, "watch");

	return !given ? TIMEOUT_MS : a->timeout < 1e9 ? (int64_t)(a->timeout * 1000) : INT64_MAX;
}

void arguments_parse(int argc, char **argv, struct arguments *a)
{
	argp_program_version = "sharectl " SHARE_VERSION;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, a);
	a->timeout_ms = timeout_of(a);
}
