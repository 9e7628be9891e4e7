/* SPDX-License-Identifier: MIT */

/*
 * sharectl: shows an operator what a broker knows. Most commands are a report of share_inspect(),
 * which arrives object by object. With --json each object is printed as it arrives, so that a
 * million buffers need no memory; a table needs all of them first, to know the widths of its
 * columns. "reload" prints its changes as they arrive, too. The commands that end something are in
 * act.c, and metrics.c makes text for programs that watch the broker.
 */

#include <argp.h>
#include <errno.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <share/admin.h>
#include <share/share.h>

#include "tools/doctor/doctor.h"
#include "tools/metrics.h"
#include "tools/order.h"
#include "tools/report.h"
#include "tools/sharectl/act.h"
#include "tools/sharectl/bridges.h"
#include "tools/sharectl/duration.h"
#include "tools/sharectl/recipe.h"
#include "tools/sharectl/watch.h"
#include "tools/snapshot.h"
#include "tools/top/top.h"

struct arguments {
	const char *socket;
	const struct report *report;
	const struct act *act; /* not NULL: end something instead */
	const char **words;    /* what to end, or the objects of the command */
	size_t n_words;
	bool yes;
	int *failed;                   /* how much of the command has failed and was told */
	int connected;                 /* 0, or why there is no client */
	const struct command *command; /* not NULL: do that instead */
	const char *prefix;            /* of names; NULL: show all */
	const char *sort;              /* the heading of a column; NULL: as the broker has them */
	bool reverse;
	bool once;         /* of top */
	double older_than; /* of leases, in seconds; 0: show all */
	double timeout;    /* in seconds; 0: none was given */
	struct report_options options;
	struct watch_options watch;
	bool json;
};

/* Commands that are neither reports nor end something. Each returns 0, an error of libshare, or a
 * positive errno. */
static int reload(const struct arguments *a, share_client *client);
static int upgrade(const struct arguments *a, share_client *client);
static int show_metrics(const struct arguments *a, share_client *client);
static int examine(const struct arguments *a, share_client *client);
static int watch_live(const struct arguments *a, share_client *client);
static int watch(const struct arguments *a, share_client *client);
static int show_recipes(const struct arguments *a, share_client *client);
static int64_t timeout_of(const struct arguments *a);

static const struct command {
	const char *name;
	int (*run)(const struct arguments *a, share_client *client);
	bool needs_broker;  /* else its client is NULL when there is none */
	const char *object; /* what its words are; NULL: it takes none */
} commands[] = {{"reload", reload, true, NULL},        {"upgrade", upgrade, true, NULL},
		{"metrics", show_metrics, true, NULL}, {"doctor", examine, false, NULL},
		{"top", watch_live, true, NULL},       {"watch", watch, true, NULL},
		{"recipe", show_recipes, true, "NAME"}};

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

enum {
	OPTION_JSON = 256,
	OPTION_NO_HEADINGS,
	OPTION_OLDER_THAN,
	OPTION_ONCE,
	OPTION_SORT,
	OPTION_TIMEOUT
};

/* For an answer of the broker, in milliseconds. An upgrade takes longer by its nature: the new
 * program has 10 seconds to rehearse, and takes over what may be millions of objects. */
#define TIMEOUT_MS         5000
#define UPGRADE_TIMEOUT_MS 60000

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

static void parse_argument(struct arguments *a, const char *value, struct argp_state *state)
{
	if (state->arg_num == 0) {
		a->report = report_find(value);
		a->act = act_find(value);
		a->command = command_find(value);
		if (!a->report && !a->act && !a->command)
			argp_error(state, "there is no command '%s'", value);
	} else if (a->act) {
		if (act_refuses(a->act, value))
			argp_error(state, "'%s' %s", value, act_refuses(a->act, value));
		a->words[a->n_words++] = value;
	} else if (a->command && a->command->object) {
		if (!*value)
			argp_error(state, "'' is empty");
		a->words[a->n_words++] = value;
	} else if (state->arg_num == 1 && a->report &&
		   strcmp(report_name(a->report), "names") == 0) {
		a->prefix = value;
	} else {
		argp_error(state, "'%s' is one argument too many", value);
	}
}

static void check_rows_wanted(const struct arguments *a, struct argp_state *state)
{
	bool top = a->command && a->command->run == watch_live;
	const struct report *report = top ? report_find("clients") : a->report;
	char *columns = NULL;
	size_t size;
	FILE *out;

	if (a->once && !top)
		argp_error(state, "--once is for top");
	if (a->older_than > 0 && !(a->report && strcmp(report_name(a->report), "leases") == 0))
		argp_error(state, "--older-than is for leases");
	if (a->reverse && !a->sort)
		argp_error(state, "--reverse is for --sort");
	if (!a->sort)
		return;
	if (!report || report_is_single(report))
		argp_error(state, "--sort is for commands that list something");
	if (report_sort_key(report, a->sort))
		return;
	out = open_memstream(&columns, &size);
	if (!out)
		argp_failure(state, EXIT_FAILURE, errno, "--sort");
	report_list_sortable(report, out);
	fclose(out);
	argp_error(state, "%s cannot be sorted by '%s', but by: %s", report_name(report), a->sort,
		   columns);
}

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	if (a->act && a->n_words == 0)
		argp_error(state, "%s needs a %s", act_name(a->act), act_object(a->act));
	if (a->command && a->command->object && a->n_words == 0)
		argp_error(state, "%s needs a %s", a->command->name, a->command->object);
	if (a->act && a->json)
		argp_error(state, "--json is for commands that show something");
	if (a->command && a->command->run == show_metrics && a->json)
		argp_error(state, "metrics are OpenMetrics text, and no JSON");
	if (a->yes && !(a->act && act_asks(a->act)))
		argp_error(state, "--yes is for commands that ask");
	if (a->watch.any && !(a->command && a->command->run == watch))
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

/* ------------------------------------------------------------------------------------------- */

struct output {
	const struct arguments *arguments;
	struct table *table; /* NULL: print JSON */
	size_t rows;
	json_t *sorted; /* rows that wait for all others; NULL: print each as it comes */
};

static bool is_wanted(const struct arguments *a, const char *json)
{
	const char *name;
	json_t *row;
	bool wanted = true;

	if (!a->prefix && a->older_than <= 0)
		return true;
	row = json_loads(json, 0, NULL);
	name = json_string_value(json_object_get(row, "name"));
	if (a->prefix)
		wanted = name && strncmp(name, a->prefix, strlen(a->prefix)) == 0;
	if (a->older_than > 0)
		wanted &= json_number_value(json_object_get(row, "age_ms")) > a->older_than * 1000;
	json_decref(row);
	return wanted;
}

/* Prints an array, one object in each line. After an error the array is not closed, so that nobody
 * takes the part for the whole. */
static int print_json(struct output *o, const char *json)
{
	if (!o->arguments->report || !report_is_single(o->arguments->report))
		fputs(o->rows == 0 ? "[\n" : ",\n", stdout);
	return fputs(json, stdout) < 0 ? -errno : 0;
}

static void end_json(const struct output *o)
{
	if (o->arguments->report && report_is_single(o->arguments->report))
		fputs("\n", stdout);
	else
		fputs(o->rows == 0 ? "[]\n" : "\n]\n", stdout);
}

static int show_row(struct output *o, const char *json)
{
	int r = o->table ? table_add(o->table, json) : print_json(o, json);

	o->rows++;
	return r;
}

static int show_sorted(struct output *o)
{
	const struct arguments *a = o->arguments;
	int r = order_rows(o->sorted, report_sort_key(a->report, a->sort), a->reverse);
	json_t *row;
	char *json;
	size_t i;

	json_array_foreach (o->sorted, i, row) {
		json = json_dumps(row, JSON_COMPACT);
		if (r == 0)
			r = json ? -show_row(o, json) : ENOMEM;
		free(json);
	}
	return r;
}

/* Returns a positive errno to end a report, since the errors of libshare are negative. */
static int on_row(const char *json, void *data)
{
	struct output *o = data;

	if (!is_wanted(o->arguments, json))
		return 0;
	if (o->sorted) /* a row that is no JSON is one that is missing, and not to be sorted */
		return json_array_append_new(o->sorted, json_loads(json, 0, NULL)) ? EPROTO : 0;
	return -show_row(o, json);
}

/* On stderr, as a program that reads the table is told by its exit code that nothing is missing. */
static void tell_of_nothing(const struct arguments *a)
{
	fprintf(stderr, "no %s", report_name(a->report));
	if (a->prefix)
		fprintf(stderr, " that start with '%s'", a->prefix);
	fputs(a->older_than > 0 ? " that are older\n" : "\n", stderr);
}

static int show(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a};
	int r = 0;

	if (!a->json) {
		o.table = table_new(a->report, &a->options);
		if (!o.table)
			return ENOMEM;
		if (report_is_single(a->report))
			r = -table_add_line(o.table, "address", share_address(client));
	}
	if (a->sort)
		o.sorted = json_array();
	if (r == 0 && strcmp(report_name(a->report), "bridges") == 0)
		r = bridges_each(client, on_row, &o);
	else if (r == 0)
		r = share_inspect(client, report_name(a->report), on_row, &o);
	if (r == 0 && o.sorted)
		r = show_sorted(&o);
	json_decref(o.sorted);
	if (r == 0 && o.table)
		r = -table_print(o.table);
	else if (r == 0)
		end_json(&o);
	if (r == 0 && o.table && o.rows == 0 && a->options.headings)
		tell_of_nothing(a);
	table_free(o.table);
	return r;
}

/* Prints one line for each change. The line of a setting that needs a restart says that it
 * stays. */
static int print_change(const char *json)
{
	json_t *row = json_loads(json, 0, NULL);
	int n = printf("%s: %s\n", json_string_value(json_object_get(row, "key")),
		       json_string_value(json_object_get(row, "change")));

	json_decref(row);
	return n < 0 ? -errno : 0;
}

static int on_change(const char *json, void *data)
{
	struct output *o = data;
	int r = o->arguments->json ? print_json(o, json) : print_change(json);

	o->rows++;
	return -r;
}

static int reload(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a};
	int r = share_reload(client, on_change, &o);

	if (r == 0 && a->json)
		end_json(&o);
	else if (r == 0 && o.rows == 0)
		puts("nothing has changed");
	return r;
}

static int print_upgrade(const char *json)
{
	json_t *row = json_loads(json, 0, NULL);
	int n = printf("version %s (pid %" JSON_INTEGER_FORMAT ") goes on from version %s\n",
		       json_string_value(json_object_get(row, "to")),
		       json_integer_value(json_object_get(row, "pid")),
		       json_string_value(json_object_get(row, "from")));

	json_decref(row);
	return n < 0 ? -errno : 0;
}

static int on_upgrade(const char *json, void *data)
{
	struct output *o = data;
	int r = o->arguments->json ? print_json(o, json) : print_upgrade(json);

	o->rows++;
	return -r;
}

static int upgrade(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a};
	int r = share_upgrade(client, on_upgrade, &o);

	if (r == 0 && a->json)
		end_json(&o);
	return r;
}

static int show_metrics(const struct arguments *a, share_client *client)
{
	json_t *snapshot;
	int r;

	(void)a;
	r = snapshot_take(client, metrics_reports, metrics_n_reports, &snapshot);

	if (r != 0)
		return r;
	metrics_print(stdout, snapshot, (double)time(NULL));
	metrics_print_end(stdout);
	json_decref(snapshot);
	return 0;
}

static int on_recipe(const char *json, void *data)
{
	struct output *o = data;
	const struct arguments *a = o->arguments;
	int r = a->json ? print_json(o, json) : recipe_print(json, a->options.exact);

	o->rows++;
	return -r;
}

static int show_recipes(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a};
	int r = recipes_each(client, a->words, a->n_words, on_recipe, &o, a->failed);

	if (r == 0 && a->json)
		end_json(&o);
	return r;
}

static int examine(const struct arguments *a, share_client *client)
{
	json_t *findings = doctor_examine("", client, a->connected, share_error_detail());
	bool content = doctor_is_content(findings);

	if (a->json)
		json_dumpf(findings, stdout, JSON_INDENT(1));
	else
		doctor_print(stdout, findings);
	if (a->json)
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
					  .timeout_ms = timeout_of(a)};

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

/* When one was given, it is for all that a command asks; of watch it is another one. */
static int64_t timeout_of(const struct arguments *a)
{
	bool given = a->timeout > 0 && !(a->command && a->command->run == watch);

	return !given ? TIMEOUT_MS : a->timeout < 1e9 ? (int64_t)(a->timeout * 1000) : INT64_MAX;
}

static int connect_for(const struct arguments *a, int64_t timeout_ms, share_client **out)
{
	share_connect_options wanted = SHARE_CONNECT_OPTIONS_INIT;

	wanted.flags = SHARE_CONNECT_OPERATOR;
	wanted.timeout_ms = timeout_ms;
	return share_connect_with(a->socket, &wanted, out);
}

/* Who hangs is not waited for as long as an upgrade may take. */
static int connect_to_broker(const struct arguments *a, share_client **out)
{
	int r = connect_for(a, timeout_of(a), out);

	if (r != 0 || a->timeout > 0 || !a->command || a->command->run != upgrade)
		return r;
	share_disconnect(*out);
	*out = NULL;
	return connect_for(a, UPGRADE_TIMEOUT_MS, out);
}

static int run(const struct arguments *a, share_client *client)
{
	return a->command ? a->command->run(a, client) : show(a, client);
}

int main(int argc, char **argv)
{
	int r, failed = 0;
	struct arguments a = {.options.headings = true, .failed = &failed};
	share_client *client = NULL;

	a.words = calloc((size_t)argc, sizeof(char *)); /* there cannot be more words */
	if (!a.words)
		return EXIT_FAILURE;
	/* For printable characters only: numbers and messages stay as they are. */
	setlocale(LC_CTYPE, "");
	argp_program_version = "sharectl " SHARE_VERSION;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	r = a.connected = connect_to_broker(&a, &client);
	if (a.command && !a.command->needs_broker)
		r = 0;
	if (r == 0 && a.act)
		failed = act_run(a.act, client, a.words, a.n_words, a.yes);
	else if (r == 0)
		r = run(&a, client);
	/* Only after all is written does a full disk show. */
	if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = errno ? errno : EIO;
	if (r != 0)
		fprintf(stderr, "sharectl: %s\n", r < 0 ? share_error_detail() : strerror(r));
	share_disconnect(client);
	free((void *)a.words);
	return r == 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
