/* SPDX-License-Identifier: MIT */

/*
 * sharectl: shows an operator what a broker knows. Most commands are a report of share_inspect(),
 * which arrives object by object. With --json each object is printed as it arrives, so that a
 * million buffers need no memory; a table needs all of them first, to know the widths of its
 * columns. "reload" prints its changes as they arrive, too. The commands that end something are in
 * act.c.
 */

#include <argp.h>
#include <errno.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <share/share.h>

#include "tools/act.h"
#include "tools/report.h"

struct arguments {
	const char *socket;
	const struct report *report;
	const struct act *act; /* not NULL: end something instead */
	const char **words;    /* what to end */
	size_t n_words;
	bool yes;
	bool reload;        /* read the configuration instead */
	const char *prefix; /* of names; NULL: show all */
	struct report_options options;
	bool json;
};

enum { OPTION_JSON = 256, OPTION_NO_HEADINGS };

static const struct argp_option options[] = {
    {"socket", 's', "PATH", 0, "Ask the broker at PATH", 0},
    {"bytes", 'b', NULL, 0, "Show sizes in bytes", 0},
    {"json", OPTION_JSON, NULL, 0, "Print JSON, as the broker has it", 0},
    {"no-headings", OPTION_NO_HEADINGS, NULL, 0, "Print no headings above columns", 0},
    {"yes", 'y', NULL, 0, "Do it without asking", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void parse_argument(struct arguments *a, const char *value, struct argp_state *state)
{
	if (state->arg_num == 0) {
		a->report = report_find(value);
		a->act = act_find(value);
		a->reload = strcmp(value, "reload") == 0;
		if (!a->report && !a->act && !a->reload)
			argp_error(state, "there is no command '%s'", value);
	} else if (a->act) {
		if (act_refuses(a->act, value))
			argp_error(state, "'%s' %s", value, act_refuses(a->act, value));
		a->words[a->n_words++] = value;
	} else if (state->arg_num == 1 && a->report &&
		   strcmp(report_name(a->report), "names") == 0) {
		a->prefix = value;
	} else {
		argp_error(state, "'%s' is one argument too many", value);
	}
}

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	if (a->act && a->n_words == 0)
		argp_error(state, "%s needs a %s", act_name(a->act), act_object(a->act));
	if (a->act && a->json)
		argp_error(state, "--json is for commands that show something");
	if (a->yes && !(a->act && act_asks(a->act)))
		argp_error(state, "--yes is for commands that ask");
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
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

static const struct argp argp = {
    options,
    parse,
    "COMMAND\n"
    "names [PREFIX]\n"
    "unpublish NAME...\n"
    "destroy POOL...\n"
    "revoke TOKEN...\n"
    "drop-client CLIENT|PID...",
    "Shows what a share-broker knows, ends some of it, and has it read its configuration.\v"
    "Commands that end something, of one's own or for administrators:\n"
    "  unpublish    a name leads nowhere any more\n"
    "  destroy      a pool ends with its last buffer\n"
    "  revoke       a token, as tokens shows it, is good for nothing\n"
    "  drop-client  a process loses its connection; asks first\n"
    "For administrators:\n"
    "  reload  the broker reads its configuration again; shows what changes\n"
    "\n"
    "Without --socket, the broker is the one that programs find: at "
    "$SHARE_SOCKET when that is set, else at "
    "$XDG_RUNTIME_DIR/share/broker.sock or /run/share/broker.sock.",
    NULL,
    add_reports,
    NULL};

/* ------------------------------------------------------------------------------------------- */

struct output {
	const struct arguments *arguments;
	struct table *table; /* NULL: print JSON */
	size_t rows;
};

static bool is_wanted(const struct arguments *a, const char *json)
{
	const char *name;
	json_t *row;
	bool wanted;

	if (!a->prefix)
		return true;
	row = json_loads(json, 0, NULL);
	name = json_string_value(json_object_get(row, "name"));
	wanted = name && strncmp(name, a->prefix, strlen(a->prefix)) == 0;
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

/* Returns a positive errno to end a report, since the errors of libshare are negative. */
static int on_row(const char *json, void *data)
{
	struct output *o = data;
	int r;

	if (!is_wanted(o->arguments, json))
		return 0;
	r = o->table ? table_add(o->table, json) : print_json(o, json);
	o->rows++;
	return -r;
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
	if (r == 0)
		r = share_inspect(client, report_name(a->report), on_row, &o);
	if (r == 0 && o.table)
		r = -table_print(o.table);
	else if (r == 0)
		end_json(&o);
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

int main(int argc, char **argv)
{
	share_connect_options connect = SHARE_CONNECT_OPTIONS_INIT;
	struct arguments a = {.options.headings = true};
	share_client *client = NULL;
	int r, failed = 0;

	a.words = calloc((size_t)argc, sizeof(char *)); /* there cannot be more words */
	if (!a.words)
		return EXIT_FAILURE;
	/* For printable characters only: numbers and messages stay as they are. */
	setlocale(LC_CTYPE, "");
	argp_program_version = "sharectl " SHARE_VERSION;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	connect.flags = SHARE_CONNECT_OPERATOR;
	r = share_connect_with(a.socket, &connect, &client);
	if (r == 0 && a.act)
		failed = act_run(a.act, client, a.words, a.n_words, a.yes);
	else if (r == 0)
		r = a.reload ? reload(&a, client) : show(&a, client);
	/* Only after all is written does a full disk show. */
	if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = errno ? errno : EIO;
	if (r != 0)
		fprintf(stderr, "sharectl: %s\n", r < 0 ? share_error_detail() : strerror(r));
	share_disconnect(client);
	free((void *)a.words);
	return r == 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
