/* SPDX-License-Identifier: MIT */

/*
 * The lines of sharectl top. Everything is drawn with what every terminal has, 80 columns and the
 * characters of ASCII; names and labels come from users and are cleaned of what would move the
 * cursor. Rates are differences of two snapshots, member by member, because a member that comes or
 * goes takes its counters along.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#include "tools/order.h"
#include "tools/top/view.h"
#include "tools/value.h"

/* A million buffers are more than a map can show. */
const struct snapshot_report view_reports[] = {
    {"status", 0}, {"pools", 256},    {"segments", 2048}, {"buffers", 4096},
    {"agents", 0}, {"channels", 256}, {"clients", 1024},
};
const size_t view_n_reports = sizeof(view_reports) / sizeof(view_reports[0]);

#define MAP_CELLS     20
#define HOLDERS_SHOWN 3 /* of a pool, those that hold most */

struct view {
	FILE *out;
	const json_t *now, *before;
	double seconds;
	const struct view_options *options;
	int column; /* of the line, behind what was printed */
	int blanks; /* before there, which are printed only if something follows */
};

static json_int_t number(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key)
{
	const char *value = json_string_value(json_object_get(row, key));

	return value ? value : "-";
}

/* ------------------------------------------------------------------------------------------- */
/* Cells                                                                                       */

static void pad(struct view *v, int n)
{
	if (n > 0) {
		v->blanks += n;
		v->column += n;
	}
}

/* How many columns @what takes, if what takes none or cannot be shown is a question mark. @out
 * NULL: nothing is printed. */
static int print_clean(FILE *out, const char *what, int most)
{
	mbstate_t state = {0};
	int used = 0, width;
	size_t n;
	wchar_t c;

	for (; *what; what += n, used += width) {
		n = mbrtowc(&c, what, MB_CUR_MAX, &state);
		if (n == (size_t)-1 || n == (size_t)-2) {
			memset(&state, 0, sizeof(state));
			n = 1;
			c = L'\0';
		}
		width = iswprint((wint_t)c) ? wcwidth(c) : -1;
		if (used + (width > 0 ? width : 1) > most)
			break;
		if (out && width > 0)
			fwrite(what, 1, n, out);
		else if (out)
			fputc('?', out);
		width = width > 0 ? width : 1;
	}
	return used;
}

/* A cell of @width columns and a blank; what is longer is cut. Less than 0: at the right. */
static void cell(struct view *v, int width, const char *what)
{
	int room = abs(width), used;

	if (room > v->options->width - v->column)
		room = v->options->width - v->column;
	if (room <= 0)
		return;
	used = print_clean(NULL, what, room);
	if (width < 0)
		pad(v, room - used);
	if (used > 0) {
		fprintf(v->out, "%*s", v->blanks, "");
		v->blanks = 0;
	}
	v->column += print_clean(v->out, what, room);
	if (width > 0)
		pad(v, room - used);
	if (v->column < v->options->width)
		pad(v, 1);
}

/* The same for a text that is freed. */
static void take_cell(struct view *v, int width, char *what)
{
	cell(v, width, what ? what : "?");
	free(what);
}

static void end_line(struct view *v)
{
	fputc('\n', v->out);
	v->column = v->blanks = 0;
}

static void size_cell(struct view *v, int width, const json_t *row, const char *key)
{
	take_cell(v, width, show_size(row, key, v->options->exact));
}

static void rate_cell(struct view *v, int width, double difference)
{
	double rate = v->seconds > 0 ? difference / v->seconds : 0;

	if (!v->before)
		cell(v, width, "-");
	else if (rate >= 99999.5)
		take_cell(v, width, show_format("%.1fM", rate / 1e6));
	else if (rate >= 999.5)
		take_cell(v, width, show_format("%.1fk", rate / 1e3));
	else
		take_cell(v, width, show_format("%.0f", rate));
}

/* A line of one cell. */
static void line(struct view *v, char *what)
{
	take_cell(v, v->options->width, what);
	end_line(v);
}

static void heading(struct view *v, const char *what)
{
	fputc('\t', v->out);
	cell(v, v->options->width, what);
	end_line(v);
}

/* ------------------------------------------------------------------------------------------- */
/* The broker and its devices                                                                  */

static void print_status(struct view *v)
{
	const json_t *status = json_array_get(json_object_get(v->now, "status"), 0);
	const json_t *was = json_array_get(json_object_get(v->before, "status"), 0);
	char *uptime = show_time(status, "uptime_ms", false), rate[64] = "";

	if (was)
		snprintf(rate, sizeof(rate), ", %.0f requests/s",
			 (double)(number(status, "requests") - number(was, "requests")) /
			     v->seconds);
	line(v, show_format("share-broker %s, pid %lld, up %s%s", text(status, "version"),
			    number(status, "pid"), uptime ? uptime : "?", rate));
	line(v, show_format("%lld clients, %lld quarantined, %lld poisoned; %lld buffers, %lld "
			    "leases, %lld names",
			    number(status, "clients"), number(status, "quarantined"),
			    number(status, "poisonings"), number(status, "buffers"),
			    number(status, "leases"), number(status, "names")));
	free(uptime);
}

static void print_devices(struct view *v)
{
	const json_t *rows = json_object_get(v->now, "agents");
	json_t *row;
	size_t i;

	if (json_array_size(rows) == 0)
		return;
	heading(
	    v,
	    "DEVICE                                   NAME             MEMORY    AGENT REPLACED");
	json_array_foreach (rows, i, row) {
		cell(v, 40, text(row, "device"));
		cell(v, 14, text(row, "name"));
		size_cell(v, -8, row, "total");
		take_cell(v, -8,
			  json_is_true(json_object_get(row, "gone"))
			      ? strdup("gone")
			      : show_count(row, "agent", false));
		take_cell(v, -6, show_count(row, "replaced", false));
		end_line(v);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

/* Adds what lies from @from to @to, of memory of @size bytes, to the cells that it lies in. */
static void fill(double cells[MAP_CELLS], double from, double to, double size)
{
	for (int i = 0; i < MAP_CELLS; i++) {
		double begin = size * i / MAP_CELLS, end = size * (i + 1) / MAP_CELLS;
		double part = (to < end ? to : end) - (from > begin ? from : begin);

		if (part > 0)
			cells[i] += part / (end - begin);
	}
}

/* Draws the segments of a pool, one behind the other: '#' is in use, '.' free, '+' partly. */
static void draw_map(const json_t *now, const char *pool, char map[MAP_CELLS + 1])
{
	const json_t *segments = json_object_get(now, "segments");
	json_t *bases = json_object(), *row;
	double cells[MAP_CELLS] = {0}, size = 0, from;
	size_t i;

	json_array_foreach (segments, i, row)
		if (strcmp(text(row, "pool"), pool) == 0) {
			json_object_set_new(bases, text(row, "segment"), json_real(size));
			size += (double)number(row, "size");
		}
	json_array_foreach (json_object_get(now, "buffers"), i, row) {
		const json_t *base = json_object_get(bases, text(row, "segment"));

		from = json_real_value(base) + (double)number(row, "offset");
		if (base)
			fill(cells, from, from + (double)number(row, "capacity"), size);
	}
	for (i = 0; i < MAP_CELLS; i++)
		map[i] = (char)(size == 0 ? ' ' : cells[i] > 0.99 ? '#' : cells[i] > 0 ? '+' : '.');
	map[MAP_CELLS] = '\0';
	json_decref(bases);
}

/* The sum of what the broker counts there by reasons. */
static json_int_t failures_of(const json_t *pool)
{
	json_t *failed = json_object_get(pool, "failed"), *count;
	json_int_t sum = 0;
	const char *reason;

	json_object_foreach (failed, reason, count)
		sum += json_integer_value(count);
	return sum;
}

/* Finds the row of a client that holds something, or adds it. */
static json_t *row_of_holder(json_t *rows, const json_t *holder)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (number(row, "client") == number(holder, "client"))
			return row;
	row = json_pack("{s:O, s:O, s:i}", "client", json_object_get(holder, "client"), "pid",
			json_object_get(holder, "pid"), "bytes", 0);
	json_array_append_new(rows, row);
	return row;
}

/* Adds up what each client holds of a pool. */
static json_t *holders_of(const json_t *now, const char *pool)
{
	json_t *rows = json_array(), *buffer, *holder, *row;
	size_t i, j;

	json_array_foreach (json_object_get(now, "buffers"), i, buffer) {
		if (strcmp(text(buffer, "pool"), pool) != 0)
			continue;
		json_array_foreach (json_object_get(buffer, "holders"), j, holder) {
			row = row_of_holder(rows, holder);
			json_object_set_new(
			    row, "bytes",
			    json_integer(number(row, "bytes") + number(buffer, "capacity")));
		}
	}
	return rows;
}

/* A line about the clients that hold most. */
static void print_holders(struct view *v, const char *pool)
{
	json_t *holders = holders_of(v->now, pool), *row;
	char *bytes;
	size_t i;

	order_rows(holders, "bytes", false);
	if (json_array_size(holders) > 0)
		cell(v, 9, "  held by");
	json_array_foreach (holders, i, row) {
		bytes = show_size(row, "bytes", v->options->exact);
		if (i < HOLDERS_SHOWN)
			take_cell(v, 22,
				  show_format("%lld: %s", number(row, "pid"), bytes ? bytes : "?"));
		free(bytes);
	}
	if (json_array_size(holders) > HOLDERS_SHOWN)
		cell(v, 4, "...");
	if (json_array_size(holders) > 0)
		end_line(v);
	json_decref(holders);
}

static void print_pools(struct view *v)
{
	const json_t *rows = json_object_get(v->now, "pools");
	char map[MAP_CELLS + 1];
	json_t *row;
	size_t i;

	heading(v, "POOL           KIND        USED    LIMIT  LARGEST FAILED SEGMENTS");
	json_array_foreach (rows, i, row) {
		draw_map(v->now, text(row, "pool"), map);
		cell(v, 14, text(row, "pool"));
		cell(v, 7, text(row, "kind"));
		size_cell(v, -8, row, "used");
		size_cell(v, -8, row, "limit");
		size_cell(v, -8, row, "largest_free");
		take_cell(v, -6, show_format("%lld", failures_of(row)));
		take_cell(v, MAP_CELLS + 2, show_format("[%s]", map));
		end_line(v);
		print_holders(v, text(row, "pool"));
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Channels                                                                                    */

static const json_t *find_by_text(const json_t *rows, const char *key, const char *value)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(text(row, key), value) == 0)
			return row;
	return NULL;
}

static const json_t *find_member(const json_t *channel, json_int_t member)
{
	json_t *row;
	size_t i;

	json_array_foreach (json_object_get(channel, "members"), i, row)
		if (number(row, "member") == member)
			return row;
	return NULL;
}

/* How much the members' counter @key has grown. */
static double growth(const json_t *channel, const json_t *before, const char *key)
{
	double sum = 0;
	json_t *row;
	size_t i;

	json_array_foreach (json_object_get(channel, "members"), i, row)
		sum += (double)(number(row, key) -
				number(find_member(before, number(row, "member")), key));
	return sum;
}

static json_int_t lag_of(const json_t *consumer)
{
	return number(consumer, "waiting") + number(consumer, "held");
}

/* The consumer that has most messages before it or in its hands. NULL: there is no consumer. */
static const json_t *find_slowest(const json_t *channel)
{
	const json_t *slowest = NULL;
	json_t *row;
	size_t i;

	json_array_foreach (json_object_get(channel, "members"), i, row)
		if (strcmp(text(row, "role"), "consumer") == 0 &&
		    (!slowest || lag_of(row) > lag_of(slowest)))
			slowest = row;
	return slowest;
}

static json_int_t most_in_flight(const json_t *channel)
{
	json_int_t most = 0;
	json_t *row;
	size_t i;

	json_array_foreach (json_object_get(channel, "members"), i, row)
		if (number(row, "in_flight") > most)
			most = number(row, "in_flight");
	return most;
}

static void print_channels(struct view *v)
{
	const json_t *rows = json_object_get(v->now, "channels");
	const json_t *before, *slowest;
	json_t *row;
	size_t i;

	if (json_array_size(rows) == 0)
		return;
	heading(v,
		"CHANNEL        MODE       SENT/s  RECV/s DROPS/s IN-FLIGHT SLOWEST WAITING HELD");
	json_array_foreach (rows, i, row) {
		before = find_by_text(json_object_get(v->before, "channels"), "channel",
				      text(row, "channel"));
		cell(v, 14, text(row, "channel"));
		cell(v, 9, text(row, "mode"));
		rate_cell(v, -7, growth(row, before, "sent"));
		rate_cell(v, -7, growth(row, before, "received"));
		rate_cell(v, -7, growth(row, before, "dropped"));
		take_cell(v, -9,
			  show_format("%lld/%lld", most_in_flight(row), number(row, "in_flight")));
		slowest = find_slowest(row);
		take_cell(v, -7, show_count(slowest, "pid", false));
		take_cell(v, -7, show_count(slowest, "waiting", false));
		take_cell(v, -4, show_count(slowest, "held", false));
		end_line(v);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Clients                                                                                     */

static void print_clients(struct view *v)
{
	const json_t *rows = json_object_get(v->now, "clients");
	json_t *row;
	size_t i;

	heading(v, "CLIENT     PID USER     STATE        LEASES      OLDEST    BYTES LABEL");
	json_array_foreach (rows, i, row) {
		take_cell(v, -6, show_count(row, "client", false));
		take_cell(v, -7, show_count(row, "pid", false));
		take_cell(v, 8, show_user(row, "uid", false));
		cell(v, 11, text(row, "state"));
		take_cell(v, -7, show_count(row, "leases", false));
		take_cell(v, -11, show_time(row, "oldest_lease_ms", false));
		size_cell(v, -8, row, "bytes");
		if (json_integer_value(json_object_get(row, "parked")) > 0) {
			take_cell(v, 2, show_count(row, "parked", false));
			cell(v, 7, "parked:");
		}
		cell(v, 40, text(row, "label"));
		end_line(v);
	}
}

int view_print(FILE *out, const json_t *now, const json_t *before, double seconds,
	       const struct view_options *options)
{
	struct view v = {out, now, before, seconds, options, 0, 0};
	int r = order_rows(json_object_get(now, "clients"), options->sort_key, options->reverse);
	const json_t *left_out = json_object_get(now, "left_out");
	json_t *report;
	size_t i;

	print_status(&v);
	print_devices(&v);
	print_pools(&v);
	print_channels(&v);
	print_clients(&v);
	json_array_foreach (left_out, i, report)
		line(&v,
		     show_format("there are more %s than are shown", json_string_value(report)));
	return r ? r : ferror(out) ? EIO : 0;
}
