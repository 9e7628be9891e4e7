/* SPDX-License-Identifier: MIT */

/*
 * The commands of sharectl that end something. The broker decides who may end what; this file finds
 * the object by what an operator may call it, and says what became of it.
 *
 * Dropping a client does not free its memory: its process could still be using the memory, so the
 * broker keeps it until the process ends. So sharectl first shows what will end and what will stay,
 * and asks. It drops clients by their numbers, which are never used again: whatever connects or
 * ends while the operator thinks, no other client is dropped. Of a channel it shows how many
 * messages are lost, and asks as well.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <share/admin.h>
#include <share/channel.h>

#include "tools/sharectl/act.h"
#include "tools/snapshot.h"
#include "tools/value.h"

/* Prints an error after what is on stdout already, as both may go to the same place. */
static void say_error(const char *what)
{
	fflush(stdout);
	fprintf(stderr, "sharectl: %s\n", what);
}

/* ------------------------------------------------------------------------------------------- */
/* Rows of reports                                                                             */

/* Returns all rows of a report as an array, which the caller frees with json_decref(). Returns NULL
 * after a failure, which it has printed. */
static json_t *rows_of(share_client *c, const char *report)
{
	json_t *rows;
	int r = snapshot_rows(c, report, &rows);

	if (r == 0)
		return rows;
	say_error(r < 0 ? share_error_detail() : strerror(r));
	json_decref(rows);
	return NULL;
}

static json_int_t number_of(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static const char *text_of(const json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	return text ? text : "";
}

/* ------------------------------------------------------------------------------------------- */
/* Names, pools, tokens                                                                        */

static bool takes_anything(const char *word)
{
	return *word != '\0';
}

static int end_name(share_client *c, const char *name, bool yes)
{
	int r = share_unpublish(c, name);

	(void)yes;
	if (r == 0)
		printf("'%s' is unpublished\n", name);
	return r;
}

/* Finds the last pool of that name that was destroyed and has not ended yet. Returns NULL when
 * there is none. */
static const json_t *find_destroyed(const json_t *rows, const char *pool)
{
	const json_t *found = NULL;
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(text_of(row, "pool"), pool) == 0 &&
		    json_is_true(json_object_get(row, "destroyed")))
			found = row;
	return found;
}

static void say_what_is_left(const json_t *pool)
{
	json_int_t buffers = number_of(pool, "buffers");
	char *used = show_size(pool, "used", false);

	if (buffers > 0)
		printf(": it ends with its last buffer, and %" JSON_INTEGER_FORMAT
		       " buffer%s (%s) %s in use",
		       buffers, buffers == 1 ? "" : "s", used ? used : "?",
		       buffers == 1 ? "is" : "are");
	free(used);
}

static int end_pool(share_client *c, const char *pool, bool yes)
{
	int r = share_pool_destroy(c, pool);
	json_t *rows;

	(void)yes;
	if (r != 0)
		return r;
	rows = rows_of(c, "pools");
	printf("pool '%s' is destroyed", pool);
	say_what_is_left(find_destroyed(rows, pool));
	putchar('\n');
	json_decref(rows);
	return 0;
}

static bool read_number(const char *text, int base, uint64_t *out)
{
	char *end;

	if (strspn(text, base == 16 ? "0123456789abcdefABCDEFx" : "0123456789") != strlen(text) ||
	    !*text)
		return false;
	errno = 0;
	*out = strtoull(text, &end, base);
	return errno == 0 && *end == '\0';
}

static bool takes_token(const char *word)
{
	uint64_t id;

	return read_number(word, 16, &id);
}

static int end_token(share_client *c, const char *word, bool yes)
{
	uint64_t id = 0;
	int r;

	(void)yes;
	read_number(word, 16, &id);
	r = share_revoke_id(c, id);
	if (r == 0)
		printf("token 0x%" PRIx64 " is revoked\n", id);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Clients                                                                                     */

/* What the operator wrote: "12", "client:12" or "pid:4711". */
struct wanted {
	uint64_t number;
	bool client, pid; /* whether the number may be that of a client, or of a process */
};

static bool read_wanted(const char *word, struct wanted *out)
{
	bool client = strncmp(word, "client:", 7) == 0, pid = strncmp(word, "pid:", 4) == 0;

	*out = (struct wanted){.client = !pid, .pid = !client};
	return read_number(word + (client ? 7 : pid ? 4 : 0), 10, &out->number);
}

static bool takes_client(const char *word)
{
	struct wanted w;

	return read_wanted(word, &w);
}

static bool is_connected(const json_t *row)
{
	return strcmp(text_of(row, "state"), "quarantined") != 0 &&
	       strcmp(text_of(row, "state"), "ending") != 0;
}

/* Puts the rows that are wanted into @out. Returns false if the number is that of a client and also
 * that of another client's process. */
static bool find_clients(const json_t *rows, const struct wanted *w, json_t *out)
{
	json_int_t number = (json_int_t)w->number;
	bool by_client = false, by_pid = false;
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		bool client = w->client && number_of(row, "client") == number;
		bool pid = w->pid && number_of(row, "pid") == number;

		if (!client && !pid)
			continue;
		by_client |= client && !pid;
		by_pid |= pid && !client;
		json_array_append(out, row);
	}
	return !by_client || !by_pid;
}

static void __attribute__((format(printf, 2, 3)))
add(const char **separator, const char *format, ...)
{
	va_list args;

	fputs(*separator, stdout);
	*separator = ", ";
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
}

static void add_count(const char **separator, const json_t *row, const char *key, const char *noun)
{
	json_int_t n = number_of(row, key);

	if (n > 0)
		add(separator, "%" JSON_INTEGER_FORMAT " %s%s", n, noun, n == 1 ? "" : "s");
}

static void show_client(const json_t *row)
{
	char *user = show_user(row, "uid", false), *bytes = show_size(row, "bytes", false);
	char *label = show_text(row, "label", false);
	json_int_t pid = number_of(row, "pid"), leases = number_of(row, "leases");
	const char *separator = " ";

	printf("client %" JSON_INTEGER_FORMAT " (pid %" JSON_INTEGER_FORMAT ", %s, '%s')\n",
	       number_of(row, "client"), pid, user ? user : "?", label ? label : "?");
	if (is_connected(row)) {
		printf("  ends at once:");
		add(&separator, "its connection");
		add_count(&separator, row, "names", "name");
		add_count(&separator, row, "tokens", "token");
	} else {
		printf("  has lost its connection already");
	}
	printf("\n  stays until process %" JSON_INTEGER_FORMAT " ends, which could still use it:",
	       pid);
	separator = " ";
	if (leases > 0)
		add(&separator, "%" JSON_INTEGER_FORMAT " lease%s (%s)", leases,
		    leases == 1 ? "" : "s", bytes ? bytes : "?");
	add_count(&separator, row, "memberships", "channel membership");
	add_count(&separator, row, "events", "event");
	printf("%swhat it has mapped", separator[0] == ',' ? " and " : separator);
	putchar('\n');
	free(user);
	free(bytes);
	free(label);
}

/* Asks the operator. Returns whether to go on. */
static bool ask(const char *what)
{
	char answer[16];

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fflush(stdout);
		fprintf(stderr,
			"sharectl: nobody can be asked here whether to do that: --yes "
			"does it without\n");
		return false;
	}
	printf("%s? [y/N] ", what);
	fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) &&
	    (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0))
		return true;
	puts("nothing has happened");
	return false;
}

static int drop_all(share_client *c, const json_t *clients)
{
	int failed = 0;
	json_t *row;
	size_t i;

	json_array_foreach (clients, i, row) {
		json_int_t id = number_of(row, "client");

		if (share_drop_client(c, (uint64_t)id) == 0) {
			printf("client %" JSON_INTEGER_FORMAT " is dropped\n", id);
			continue;
		}
		say_error(share_error_detail());
		failed = 1;
	}
	return failed;
}

static int drop_found(share_client *c, const char *word, const json_t *clients, bool yes)
{
	size_t n = json_array_size(clients);
	char what[64] = "drop this client";
	bool any = false;
	json_t *row;
	size_t i;

	if (n == 0) {
		fprintf(stderr,
			"sharectl: %s is no client that you may drop, nor a process that has one\n",
			word);
		return 1;
	}
	json_array_foreach (clients, i, row) {
		show_client(row);
		any |= is_connected(row);
	}
	/* If none of them is connected, the broker will refuse, so there is no need to ask. */
	if (n > 1)
		snprintf(what, sizeof(what), "drop these %zu clients", n);
	return yes || !any || ask(what) ? drop_all(c, clients) : 1;
}

static int end_client(share_client *c, const char *word, bool yes)
{
	json_t *rows = rows_of(c, "clients"), *found = json_array();
	struct wanted w;
	int r = 1;

	read_wanted(word, &w);
	if (!rows) {
		/* rows_of() has printed why */
	} else if (!find_clients(rows, &w, found)) {
		fprintf(stderr,
			"sharectl: %s is one client, and the process of another: say client:%s or "
			"pid:%s\n",
			word, word, word);
	} else {
		r = drop_found(c, word, found, yes);
	}
	json_decref(found);
	json_decref(rows);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Messages of channels                                                                        */

/* What is not listed, or nothing waits in, the broker refuses. */
static json_int_t show_waiting(share_client *c, const char *channel)
{
	json_t *rows = rows_of(c, "channels"), *row;
	json_int_t n = 0, owned = 0;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(text_of(row, "channel"), channel) == 0) {
			n = number_of(row, "waiting");
			owned = number_of(row, "owned");
		}
	json_decref(rows);
	if (n > 0)
		printf(
		    "channel '%s'\n"
		    "  are lost: %" JSON_INTEGER_FORMAT
		    " message%s of producers that are gone, which wait for a consumer\n",
		    channel, n, n == 1 ? "" : "s");
	if (n > 0 && owned > 0)
		printf("  stay: %" JSON_INTEGER_FORMAT " message%s that consumers have\n", owned,
		       owned == 1 ? "" : "s");
	return n;
}

static int end_channel(share_client *c, const char *channel, bool yes)
{
	json_int_t n = show_waiting(c, channel);
	int r;

	if (n > 0 && !yes && !ask(n == 1 ? "end this message" : "end these messages"))
		return 1;
	r = share_end_channel(c, channel);
	if (r == 0)
		printf("what waited in '%s' is lost\n", channel);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

static const char empty[] = "is empty";

static const struct act acts[] = {
    {"unpublish", "NAME", empty, false, takes_anything, end_name},
    {"destroy", "POOL", empty, false, takes_anything, end_pool},
    {"revoke", "TOKEN", "is no identifier of a token, as 'sharectl tokens' shows it", false,
     takes_token, end_token},
    {"drop-client", "CLIENT or PID", "is no number of a client or of a process", true, takes_client,
     end_client},
    {"end-channel", "CHANNEL", empty, true, takes_anything, end_channel},
};

const struct act *act_find(const char *name)
{
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		if (strcmp(acts[i].name, name) == 0)
			return &acts[i];
	return NULL;
}

int act_run(const struct act *a, share_client *client, const char *const *words, size_t n, bool yes)
{
	int failed = 0, r;

	for (size_t i = 0; i < n; i++) {
		r = a->run(client, words[i], yes);
		if (r < 0)
			say_error(share_error_detail());
		failed += r != 0;
	}
	return failed;
}
