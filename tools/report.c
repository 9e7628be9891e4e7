/* SPDX-License-Identifier: MIT */

/*
 * Reports as tables: the columns of each report, and what a row shows there. libsmartcols finds the
 * widths, cuts what the terminal has no room for, and shows control characters as escapes; only
 * this file uses it.
 *
 * The report "status" is one object. Its members become lines in the order in which the broker
 * sends them. Members that this program does not know are shown as well, so that an older sharectl
 * hides nothing.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <libsmartcols.h>

#include "tools/latency.h"
#include "tools/links.h"
#include "tools/report.h"
#include "tools/value.h"

#define LEFT  0
#define RIGHT SCOLS_FL_RIGHT
#define CUT   SCOLS_FL_TRUNC /* cut when the terminal is too narrow */

struct column {
	const char *heading;
	const char *key;
	value_show *show;
	int flags;
};

/* ------------------------------------------------------------------------------------------- */

/* "9.0" */
static char *show_capability(const json_t *row, const char *key, bool exact)
{
	json_int_t value = json_integer_value(json_object_get(row, key));

	(void)exact;
	return show_format("%d.%d", (int)(value / 10), (int)(value % 10));
}

/* "13.0" */
static char *show_cuda_version(const json_t *row, const char *key, bool exact)
{
	json_int_t value = json_integer_value(json_object_get(row, key));

	(void)exact;
	return show_format("%d.%d", (int)(value / 1000), (int)(value % 1000 / 10));
}

/* Shows "-" for -1, which the broker sends when it does not know. */
static char *show_free(const json_t *row, const char *key, bool exact)
{
	if (json_integer_value(json_object_get(row, key)) < 0)
		return strdup("-");
	return show_size(row, key, exact);
}

/* Shows how much there is of something that is limited: a count of objects, or a size. */
static char *show_amount(const json_t *row, const char *key, bool exact)
{
	return json_is_true(json_object_get(row, "size")) ? show_size(row, key, exact)
							  : show_count(row, key, exact);
}

/* Shows "-" for 0: there is no agent. */
static char *show_agent(const json_t *row, const char *key, bool exact)
{
	if (json_integer_value(json_object_get(row, key)) == 0)
		return strdup("-");
	return show_count(row, key, exact);
}

static void put_word(FILE *out, const json_t *word)
{
	fputs(json_is_string(word) ? json_string_value(word) : "?", out);
}

/* "vmm mempool events" */
static char *show_words(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_list(json_object_get(row, key), put_word);
}

/* clang-format off */

static const struct column pool_columns[] = {
    {"POOL",         "pool",         show_text,       CUT},
    {"KIND",         "kind",         show_text,       LEFT},
    {"DEVICE",       "device",       show_text,       CUT},
    {"REUSE",        "reuse",        show_text,       LEFT},
    {"USED",         "used",         show_size,       RIGHT},
    {"MOST-USED",    "most_used",    show_size,       RIGHT},
    {"RESERVED",     "reserved",     show_size,       RIGHT},
    {"LIMIT",        "limit",        show_size,       RIGHT},
    {"LARGEST-FREE", "largest_free", show_size,       RIGHT},
    {"SEGMENTS",     "segments",     show_count,      RIGHT},
    {"BUFFERS",      "buffers",      show_count,      RIGHT},
    {"STATE",        "persistent",   show_pool_state, LEFT},
    {"OWNER",        "owner",        show_user,       LEFT},
};

static const struct column segment_columns[] = {
    {"SEGMENT",   "segment",   show_text,  RIGHT},
    {"KIND",      "kind",      show_text,  LEFT},
    {"STATE",     "state",     show_text,  LEFT},
    {"SIZE",      "size",      show_size,  RIGHT},
    {"USED",      "used",      show_size,  RIGHT},
    {"BUFFERS",   "buffers",   show_count, RIGHT},
    {"IMPORTERS", "importers", show_count, RIGHT},
    {"UNMAPPING", "unmapping", show_count, RIGHT},
    {"POOL",      "pool",      show_text,  CUT},
};

/* Clients are shown by number in decimal, as in the broker's log. */
static const struct column client_columns[] = {
    {"CLIENT",   "client",      show_count, RIGHT},
    {"PID",      "pid",         show_count, RIGHT},
    {"USER",     "uid",         show_user,  LEFT},
    {"STATE",    "state",       show_text,  LEFT},
    {"LEASES",   "leases",      show_count, RIGHT},
    {"OLDEST",   "oldest_lease_ms", show_time, RIGHT},
    {"BYTES",    "bytes",       show_size,  RIGHT},
    {"PARKED",   "parked",      show_count, RIGHT},
    {"NAMES",    "names",       show_count, RIGHT},
    {"TOKENS",   "tokens",      show_count, RIGHT},
    {"CHANNELS", "memberships", show_count, RIGHT},
    {"LABEL",    "label",       show_text,  CUT},
};

static const struct column buffer_columns[] = {
    {"BUFFER",     "buffer",     show_text,    RIGHT},
    {"SIZE",       "size",       show_size,    RIGHT},
    {"CAPACITY",   "capacity",   show_size,    RIGHT},
    {"REFERENCES", "references", show_count,   RIGHT},
    {"METADATA",   "metadata",   show_size,    RIGHT},
    {"SEGMENT",    "segment",    show_text,    RIGHT},
    {"OFFSET",     "offset",     show_hex,     RIGHT},
    {"POOL",       "pool",       show_text,    CUT},
    {"HOLDERS",    "holders",    show_holders, CUT},
};

static const struct column lease_columns[] = {
    {"CLIENT",     "client", show_count, RIGHT},
    {"PID",        "pid",    show_count, RIGHT},
    {"USER",       "uid",    show_user,  LEFT},
    {"AGE",        "age_ms", show_time,  RIGHT},
    {"BUFFER",     "buffer", show_text,  RIGHT},
    {"SIZE",       "size",   show_size,  RIGHT},
    {"REFERENCES", "count",  show_count, RIGHT},
    {"MODE",       "mode",   show_text,  LEFT},
    {"POOL",       "pool",   show_text,  CUT},
    {"LABEL",      "label",  show_text,  CUT},
};

static const struct column name_columns[] = {
    {"NAME",       "name",       show_text,   CUT},
    {"VERSION",    "version",    show_count,  RIGHT},
    {"BUFFER",     "buffer",     show_text,   RIGHT},
    {"SIZE",       "size",       show_size,   RIGHT},
    {"MODE",       "mode",       show_text,   LEFT},
    {"PERSISTENT", "persistent", show_yes_no, LEFT},
    {"POOL",       "pool",       show_text,   CUT},
    {"USER",       "uid",        show_user,   LEFT},
};

static const struct column token_columns[] = {
    {"TOKEN",     "token",   show_text,  RIGHT},
    {"BUFFER",    "buffer",  show_text,  RIGHT},
    {"SIZE",      "size",    show_size,  RIGHT},
    {"MODE",      "mode",    show_text,  LEFT},
    {"USES",      "uses",    show_count, RIGHT},
    {"TIME-LEFT", "left_ms", show_time,  RIGHT},
    {"POOL",      "pool",    show_text,  CUT},
    {"CLIENT",    "client",  show_count, RIGHT},
    {"PID",       "pid",     show_count, RIGHT},
    {"USER",      "uid",     show_user,  LEFT},
    {"LABEL",     "label",   show_text,  CUT},
};

static const struct column device_columns[] = {
    {"GPU",     "ordinal", show_count,        RIGHT},
    {"NAME",    "name",    show_text,         CUT},
    {"DEVICE",  "device",  show_text,         LEFT},
    {"PCI",     "pci",     show_text,         LEFT},
    {"COMPUTE", "compute", show_capability,   RIGHT},
    {"CUDA",    "driver",  show_cuda_version, RIGHT},
    {"MEMORY",  "total",   show_size,         RIGHT},
    {"FREE",    "free",    show_free,         RIGHT},
    {"AGENT",   "agent",   show_agent,        RIGHT},
    {"EVENTS",  "events",  show_count,        RIGHT},
    {"GONE",    "gone",    show_yes_no,       LEFT},
    {"CAN",     "can",     show_words,        CUT},
};

static const struct column agent_columns[] = {
    {"DEVICE",   "device",   show_text,   LEFT},
    {"AGENT",    "agent",    show_agent,  RIGHT},
    {"REPLACED", "replaced", show_count,  RIGHT},
    {"EVENTS",   "events",   show_count,  RIGHT},
    {"GONE",     "gone",     show_yes_no, LEFT},
    {"NAME",     "name",     show_text,   CUT},
};

static const struct column event_columns[] = {
    {"EVENT",  "event",  show_text,   RIGHT},
    {"NAME",   "name",   show_text,   CUT},
    {"LEASES", "leases", show_count,  RIGHT},
    {"WEDGED", "wedged", show_yes_no, LEFT},
    {"LOST",   "lost",   show_yes_no, LEFT},
    {"USER",   "uid",    show_user,   LEFT},
    {"DEVICE", "device", show_text,   LEFT},
};

static const struct column limit_columns[] = {
    {"USER",     "uid",      show_user,   LEFT},
    {"RESOURCE", "resource", show_text,   LEFT},
    {"USED",     "used",     show_amount, RIGHT},
    {"LIMIT",    "limit",    show_amount, RIGHT},
};

static const struct column channel_columns[] = {
    {"CHANNEL",   "channel",        show_text,    CUT},
    {"POOL",      "pool",           show_text,    CUT},
    {"MODE",      "mode",           show_text,    LEFT},
    {"WHEN-FULL", "when_full",      show_text,    LEFT},
    {"DEPTH",     "depth",          show_count,   RIGHT},
    {"IN-FLIGHT", "in_flight",      show_count,   RIGHT},
    {"WAITING",   "waiting",        show_count,   RIGHT},
    {"LEFT",      "kept_buffers", show_count,   RIGHT},
    {"BYTES",     "kept_bytes",   show_size,    RIGHT},
    {"MEMBERS",   "members",        show_members, CUT},
};

static const struct column request_columns[] = {
    {"REQUEST", "request",  show_text,      LEFT},
    {"ARRIVED", "arrived",  show_count,     RIGHT},
    {"MEAN",    "total_ns", show_mean,      RIGHT},
    {"MEDIAN",  "classes",  show_median,    RIGHT},
    {"99%",     "classes",  show_hundredth, RIGHT},
    {"REFUSED", "refused",  show_refused,   CUT},
};

static const struct column bridge_columns[] = {
    {"SITE",     "site",      show_text,    LEFT},
    {"PID",      "pid",       show_count,   RIGHT},
    {"PEER",     "peer",      show_text,    LEFT},
    {"UP",       "up",        show_yes_no,  LEFT},
    {"GPU",      "gpu",       show_text,    LEFT},
    {"RTT",      "rtt_us",    show_microseconds, RIGHT},
    {"NAMES",    "names",     show_count,   RIGHT},
    {"STALE",    "stale",     show_count,   RIGHT},
    {"COMING",   "coming",    show_count,   RIGHT},
    {"IN",       "bytes_in",  show_size,    RIGHT},
    {"OUT",      "bytes_out", show_size,    RIGHT},
    {"CHANNELS", "channels",  show_credits, CUT},
    {"SERVICES", "services",  show_calls,   CUT},
    {"WHY NOT",  "why",       show_text,    CUT},
};

/* The members of "status" that are times or sizes, and not plain numbers. */
static const struct column status_lines[] = {
    {"uptime",        "uptime_ms",     show_time, LEFT},
    {"oldest_lease",  "oldest_lease_ms", show_time, LEFT},
    {"segment_bytes", "segment_bytes", show_size, LEFT},
    {"buffer_bytes",  "buffer_bytes",  show_size, LEFT},
    {"broker_memory", "broker_memory", show_size, LEFT},
    {"broker_memory_limit", "broker_memory_limit", show_size, LEFT},
    {"broker_memory_wanted", "broker_memory_wanted", show_size, LEFT},
    {"journal_bytes", "journal_bytes", show_size, LEFT},
};

/* clang-format on */

#define COLUMNS(c) c, sizeof(c) / sizeof((c)[0])

static const struct report reports[] = {
    {"status", "the broker as a whole", NULL, 0},
    {"pools", "how full they are", COLUMNS(pool_columns)},
    {"segments", "the memory that pools consist of", COLUMNS(segment_columns)},
    {"clients", "connections, and what their processes hold", COLUMNS(client_columns)},
    {"buffers", "where each is, and who holds it", COLUMNS(buffer_columns)},
    {"leases", "who holds each buffer, and for how long", COLUMNS(lease_columns)},
    {"names", "what is published, all or what starts with PREFIX", COLUMNS(name_columns)},
    {"tokens", "buffers that may be imported, by whose permission", COLUMNS(token_columns)},
    {"devices", "GPUs, and what they can do", COLUMNS(device_columns)},
    {"agents", "processes that serve GPUs, and how often each was replaced",
     COLUMNS(agent_columns)},
    {"events", "interprocess events that are leased", COLUMNS(event_columns)},
    {"channels", "who takes part, who is slow, and what the dead left", COLUMNS(channel_columns)},
    {"users", "what each has of what is limited", COLUMNS(limit_columns)},
    {"requests", "what was asked of the broker, and how long it took", COLUMNS(request_columns)},
    {"bridges", "links to other hosts, and what passes there", COLUMNS(bridge_columns)},
};

void report_list(FILE *out)
{
	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++)
		fprintf(out, "  %-9s %s\n", reports[i].name, reports[i].shows);
}

const struct report *report_find(const char *name)
{
	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++)
		if (strcmp(reports[i].name, name) == 0)
			return &reports[i];
	return NULL;
}

/* Whether rows can be put in order by the value that @show has: a number, or one text. */
static bool has_order(value_show *show)
{
	static value_show *const ordered[] = {show_text,   show_count,        show_size,
					      show_hex,    show_user,         show_time,
					      show_yes_no, show_microseconds, show_free,
					      show_agent,  show_capability,   show_cuda_version};

	for (size_t i = 0; i < sizeof(ordered) / sizeof(ordered[0]); i++)
		if (ordered[i] == show)
			return true;
	return false;
}

const char *report_sort_key(const struct report *r, const char *heading)
{
	for (size_t i = 0; i < r->n_columns; i++)
		if (strcasecmp(r->columns[i].heading, heading) == 0)
			return has_order(r->columns[i].show) ? r->columns[i].key : NULL;
	return NULL;
}

void report_list_sortable(const struct report *r, FILE *out)
{
	const char *separator = "";

	for (size_t i = 0; i < r->n_columns; i++)
		if (has_order(r->columns[i].show)) {
			fprintf(out, "%s%s", separator, r->columns[i].heading);
			separator = ", ";
		}
}

/* ------------------------------------------------------------------------------------------- */

struct table {
	const struct report *report;
	struct libscols_table *lines;
	bool exact;
};

static bool add_columns(struct table *t)
{
	const struct report *r = t->report;

	if (!r->columns)
		return scols_table_set_column_separator(t->lines, "  ") == 0 &&
		       scols_table_new_column(t->lines, "KEY", 0, LEFT) &&
		       scols_table_new_column(t->lines, "VALUE", 0, LEFT);
	for (size_t i = 0; i < r->n_columns; i++)
		if (!scols_table_new_column(t->lines, r->columns[i].heading, 0,
					    r->columns[i].flags))
			return false;
	return true;
}

struct table *table_new(const struct report *r, const struct report_options *options)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->report = r;
	t->exact = options->exact;
	t->lines = scols_new_table();
	if (!t->lines || !add_columns(t))
		return table_free(t);
	scols_table_enable_noheadings(t->lines, !r->columns || !options->headings);
	return t;
}

struct table *table_free(struct table *t)
{
	if (t)
		scols_unref_table(t->lines);
	free(t);
	return NULL;
}

/* Puts @text into a cell. The cell owns @text then; after a failure it is freed. */
static int set_cell(struct libscols_line *line, size_t column, char *text)
{
	if (!text)
		return -ENOMEM;
	if (scols_line_refer_data(line, column, text) == 0)
		return 0;
	free(text);
	return -ENOMEM;
}

int table_add_line(struct table *t, const char *key, const char *value)
{
	struct libscols_line *line = scols_table_new_line(t->lines, NULL);
	int r = line ? set_cell(line, 0, strdup(key)) : -ENOMEM;

	return r < 0 ? r : set_cell(line, 1, strdup(value));
}

static int add_member(struct table *t, const json_t *object, const char *key)
{
	struct column column = {key, key, show_any, LEFT};
	char *value;
	int r;

	for (size_t i = 0; i < sizeof(status_lines) / sizeof(status_lines[0]); i++)
		if (strcmp(status_lines[i].key, key) == 0)
			column = status_lines[i];
	value = column.show(object, key, t->exact);
	r = value ? table_add_line(t, column.heading, value) : -ENOMEM;
	free(value);
	return r;
}

static int add_members(struct table *t, json_t *object)
{
	const char *key;
	json_t *value;
	int r;

	json_object_foreach (object, key, value) {
		r = add_member(t, object, key);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_cells(struct table *t, const json_t *row)
{
	struct libscols_line *line = scols_table_new_line(t->lines, NULL);
	const struct column *columns = t->report->columns;
	int r = line ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < t->report->n_columns; i++)
		r = set_cell(line, i, columns[i].show(row, columns[i].key, t->exact));
	return r;
}

int table_add(struct table *t, const char *json)
{
	json_t *row = json_loads(json, 0, NULL);
	int r = -EPROTO;

	if (json_is_object(row))
		r = !t->report->columns ? add_members(t, row) : add_cells(t, row);
	json_decref(row);
	return r;
}

int table_print(struct table *t)
{
	return scols_print_table(t->lines);
}
