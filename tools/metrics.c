/* SPDX-License-Identifier: MIT */

/*
 * Metrics, made of reports by a table: for each metric, which report has it and under which key,
 * and which other keys of the row become labels. What is not one number of a row has a function of
 * its own. Nothing here knows the broker but by its reports; what a report lacks, because the
 * broker is older, is left out.
 *
 * Texts of users (names of pools and channels) become values of labels, and are escaped there.
 */

#include <stdbool.h>
#include <string.h>

#include "tools/metrics.h"

const struct snapshot_report metrics_reports[] = {
    {"status", 0}, {"pools", 4096},    {"users", 65536},
    {"agents", 0}, {"channels", 4096}, {"requests", 0},
};
const size_t metrics_n_reports = sizeof(metrics_reports) / sizeof(metrics_reports[0]);

enum type { GAUGE, COUNTER, HISTOGRAM };

/* The value of a key of the row, as a label. */
struct label {
	const char *name, *key;
};

struct metric {
	const char *name; /* without "_total", which counters get */
	enum type type;
	const char *unit; /* the end of the name; NULL: none */
	const char *help;
	const char *report, *key;
	const struct label *labels; /* up to one without a name; NULL: none */
	/* Prints what a row says; NULL: the number at the key. */
	void (*print)(FILE *out, const struct metric *m, const json_t *row);
};

/* ------------------------------------------------------------------------------------------- */
/* Samples                                                                                     */

static void print_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\\' || *text == '"')
			fputc('\\', out);
		if (*text == '\n')
			fputs("\\n", out);
		else
			fputc(*text, out);
	}
}

static void add_text(FILE *out, int *n, const char *name, const char *value)
{
	fprintf(out, "%s%s=\"", (*n)++ ? "," : "{", name);
	print_escaped(out, value);
	fputc('"', out);
}

static void add_label(FILE *out, int *n, const char *name, const json_t *value)
{
	char number[24];

	if (json_is_string(value)) {
		add_text(out, n, name, json_string_value(value));
	} else if (json_is_integer(value)) {
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
		add_text(out, n, name, number);
	}
}

/* Prints the name and those labels that the table has. Returns how many these are. */
static int begin(FILE *out, const struct metric *m, const char *suffix, const json_t *row)
{
	int n = 0;

	fprintf(out, "%s%s", m->name, m->type == COUNTER ? "_total" : suffix);
	for (const struct label *l = m->labels; l && l->name; l++)
		add_label(out, &n, l->name, json_object_get(row, l->key));
	return n;
}

static void end(FILE *out, int n, json_int_t value)
{
	fprintf(out, "%s %" JSON_INTEGER_FORMAT "\n", n ? "}" : "", value);
}

static void end_seconds(FILE *out, int n, double value)
{
	fprintf(out, "%s %.9g\n", n ? "}" : "", value);
}

static void print_number(FILE *out, const struct metric *m, const json_t *row)
{
	const json_t *value = json_object_get(row, m->key);

	if (json_is_boolean(value))
		end(out, begin(out, m, "", row), json_is_true(value));
	else if (json_is_integer(value))
		end(out, begin(out, m, "", row), json_integer_value(value));
}

/* ------------------------------------------------------------------------------------------- */
/* What is more than one number of a row                                                       */

static void print_version(FILE *out, const struct metric *m, const json_t *row)
{
	end(out, begin(out, m, "", row), 1);
}

static void print_is_running(FILE *out, const struct metric *m, const json_t *row)
{
	end(out, begin(out, m, "", row), json_integer_value(json_object_get(row, m->key)) > 0);
}

/* An object of counts: its keys become a label, which is called as the last one of the table. */
static void print_counts(FILE *out, const struct metric *m, const char *label, json_t *row)
{
	const char *key;
	json_t *count;

	json_object_foreach (json_object_get(row, m->key), key, count) {
		int n = begin(out, m, "", row);

		add_text(out, &n, label, key);
		end(out, n, json_integer_value(count));
	}
}

static void print_by_reason(FILE *out, const struct metric *m, const json_t *row)
{
	print_counts(out, m, "reason", (json_t *)(uintptr_t)row);
}

static void print_by_error(FILE *out, const struct metric *m, const json_t *row)
{
	print_counts(out, m, "error", (json_t *)(uintptr_t)row);
}

static void print_users_of_pool(FILE *out, const struct metric *m, const json_t *row)
{
	const json_t *each;
	size_t i;

	json_array_foreach (json_object_get(row, "users"), i, each) {
		int n = begin(out, m, "", row);

		add_label(out, &n, "uid", json_object_get(each, "uid"));
		end(out, n, json_integer_value(json_object_get(each, m->key)));
	}
}

/* Sizes and counts of objects are two metrics, as they have two units. */
static void print_resource(FILE *out, const struct metric *m, const json_t *row)
{
	if (json_is_true(json_object_get(row, "size")) == (m->unit != NULL))
		print_number(out, m, row);
}

static void print_members(FILE *out, const struct metric *m, const json_t *row)
{
	const json_t *each, *value;
	size_t i;

	json_array_foreach (json_object_get(row, "members"), i, each) {
		int n;

		value = json_object_get(each, m->key);
		if (!json_is_integer(value))
			continue;
		n = begin(out, m, "", row);
		add_label(out, &n, "client", json_object_get(each, "client"));
		add_label(out, &n, "role", json_object_get(each, "role"));
		add_label(out, &n, "member", json_object_get(each, "member"));
		end(out, n, json_integer_value(value));
	}
}

static void print_histogram(FILE *out, const struct metric *m, const json_t *row)
{
	const json_t *each, *longest;
	json_int_t before = 0;
	char bound[32];
	size_t i;
	int n;

	json_array_foreach (json_object_get(row, "classes"), i, each) {
		longest = json_object_get(each, "longest_ns");
		before += json_integer_value(json_object_get(each, "answers"));
		snprintf(bound, sizeof(bound), "%.10g", (double)json_integer_value(longest) / 1e9);
		n = begin(out, m, "_bucket", row);
		add_text(out, &n, "le", json_is_integer(longest) ? bound : "+Inf");
		end(out, n, before);
	}
	/* of what was in the classes, so that it cannot be another number */
	end(out, begin(out, m, "_count", row), before);
	end_seconds(out, begin(out, m, "_sum", row),
		    (double)json_integer_value(json_object_get(row, m->key)) / 1e9);
}

/* ------------------------------------------------------------------------------------------- */
/* The table                                                                                   */

static const struct label of_broker[] = {{"version", "version"}, {NULL, NULL}};
static const struct label of_pool[] = {
    {"pool", "pool"}, {"kind", "kind"}, {"UUID", "device"}, {NULL, NULL}};
static const struct label of_user[] = {{"uid", "uid"}, {"resource", "resource"}, {NULL, NULL}};
static const struct label of_device[] = {{"UUID", "device"}, {NULL, NULL}};
static const struct label of_named_device[] = {
    {"UUID", "device"}, {"modelName", "name"}, {NULL, NULL}};
static const struct label of_channel[] = {{"channel", "channel"}, {NULL, NULL}};
static const struct label of_described_channel[] = {
    {"channel", "channel"}, {"pool", "pool"}, {"mode", "mode"}, {NULL, NULL}};
static const struct label of_request[] = {{"request", "request"}, {NULL, NULL}};

#define BYTES "bytes"

/* clang-format off */
static const struct metric metrics[] = {
    {"share_broker_info", GAUGE, NULL, "The broker's version.",
     "status", NULL, of_broker, print_version},
    {"share_clients", GAUGE, NULL, "Clients, with those in quarantine.", "status", "clients", NULL, NULL},
    {"share_quarantined_clients", GAUGE, NULL, "Clients that lost their connection while their process lives.",
     "status", "quarantined", NULL, NULL},
    {"share_connections", COUNTER, NULL, "Connections; from 0 with each broker.", "status", "connections", NULL, NULL},
    {"share_quarantines", COUNTER, NULL, "Clients that were put into quarantine; from 0 with each broker.",
     "status", "quarantines", NULL, NULL},
    {"share_poisonings", COUNTER, NULL, "Clients that died without a goodbye, so that their fences were poisoned; from 0 with each broker.",
     "status", "poisonings", NULL, NULL},
    {"share_consumers_left_behind", COUNTER, NULL,
     "Consumers that were left behind in their channels; from 0 with each broker.", "status", "left_behind", NULL, NULL},
    {"share_channel_stalls", COUNTER, NULL,
     "Waits of producers for room in their channels, for more than a second; from 0 with each broker.", "status", "stalls",
     NULL, NULL},
    {"share_channel_members_cut_off", COUNTER, NULL,
     "Members of channels whose processes lost their connection and lived on; from 0 with each broker.", "status",
     "cut_off", NULL, NULL},
    {"share_channel_messages_lost", COUNTER, NULL,
     "Messages of producers that were gone and that nobody had received; from 0 with each broker.", "status",
     "messages_lost", NULL, NULL},
    {"share_broker_deaths", COUNTER, NULL, "Brokers of this service that died, and were followed by another one.",
     "status", "brokers_died", NULL, NULL},
    {"share_broker_upgrades", COUNTER, NULL, "Brokers of this service that handed over to one of another program.",
     "status", "brokers_upgraded", NULL, NULL},
    {"share_keeper_deaths", COUNTER, NULL, "Keepers of this service that died, and were followed by their deputy.",
     "status", "keepers_died", NULL, NULL},
    {"share_protocol_violations", COUNTER, NULL, "Connections that were ended because they broke the protocol; from 0 with each broker.",
     "status", "dropped", NULL, NULL},
    {"share_buffers", GAUGE, NULL, "Buffers in all pools.", "status", "buffers", NULL, NULL},
    {"share_leases", GAUGE, NULL, "Leases of all clients.", "status", "leases", NULL, NULL},
    {"share_names", GAUGE, NULL, "Published names.", "status", "names", NULL, NULL},
    {"share_tokens", GAUGE, NULL, "Tokens that can be used.", "status", "tokens", NULL, NULL},
    {"share_segments", GAUGE, NULL, "Segments of all pools.", "status", "segments", NULL, NULL},
    {"share_agents", GAUGE, NULL, "Running agents.", "status", "agents", NULL, NULL},
    {"share_descriptors", GAUGE, NULL, "Descriptors of the broker that users have.", "status", "descriptors", NULL, NULL},
    {"share_descriptors_limit", GAUGE, NULL, "Descriptors that users may have together.",
     "status", "descriptors_limit", NULL, NULL},
    {"share_broker_memory_bytes", GAUGE, BYTES, "Memory of the broker and its journal that users need.",
     "status", "broker_memory", NULL, NULL},
    {"share_broker_memory_limit_bytes", GAUGE, BYTES, "Memory of the broker and its journal that users may need together.",
     "status", "broker_memory_limit", NULL, NULL},

    {"share_pool_limit_bytes", GAUGE, BYTES, "How large the pool may be.", "pools", "limit", of_pool, NULL},
    {"share_pool_reserved_bytes", GAUGE, BYTES, "Memory that the pool has taken from the system or a device.",
     "pools", "reserved", of_pool, NULL},
    {"share_pool_used_bytes", GAUGE, BYTES, "Memory of buffers.", "pools", "used", of_pool, NULL},
    {"share_pool_most_used_bytes", GAUGE, BYTES, "The most that it has been, since the pool was made.", "pools",
     "most_used", of_pool, NULL},
    {"share_pool_gated_bytes", GAUGE, BYTES, "Memory that was released, and on which work still runs.",
     "pools", "gated", of_pool, NULL},
    {"share_pool_retiring_bytes", GAUGE, BYTES, "Memory of empty segments that clients have not unmapped yet.",
     "pools", "retiring", of_pool, NULL},
    {"share_pool_largest_free_bytes", GAUGE, BYTES, "The largest buffer for which there is room.",
     "pools", "largest_free", of_pool, NULL},
    {"share_pool_buffers", GAUGE, NULL, "Buffers in the pool.", "pools", "buffers", of_pool, NULL},
    {"share_pool_segments", GAUGE, NULL, "Segments of the pool.", "pools", "segments", of_pool, NULL},
    {"share_pool_user_bytes", GAUGE, BYTES, "Memory of the pool that is charged to a user.",
     "pools", "bytes", of_pool, print_users_of_pool},
    {"share_pool_allocation_failures", COUNTER, NULL, "Allocations that failed, by reason.",
     "pools", "failed", of_pool, print_by_reason},

    {"share_user_used_bytes", GAUGE, BYTES, "What a user has of a limited resource.",
     "users", "used", of_user, print_resource},
    {"share_user_limit_bytes", GAUGE, BYTES, "What a user may have of it.",
     "users", "limit", of_user, print_resource},
    {"share_user_used", GAUGE, NULL, "How many objects of a limited resource a user has.",
     "users", "used", of_user, print_resource},
    {"share_user_limit", GAUGE, NULL, "How many of them a user may have.",
     "users", "limit", of_user, print_resource},

    {"share_device_info", GAUGE, NULL, "What a device is called.", "agents", NULL, of_named_device, print_version},
    {"share_device_memory_bytes", GAUGE, BYTES, "Memory of the device.", "agents", "total", of_device, NULL},
    {"share_device_gone", GAUGE, NULL, "1 when the device was not found any more.", "agents", "gone", of_device, NULL},
    {"share_device_events", GAUGE, NULL, "Interprocess events that are leased.", "agents", "events", of_device, NULL},
    {"share_device_events_lost", GAUGE, NULL, "Events that ended with the processes that used them.",
     "agents", "events_lost", of_device, NULL},
    {"share_agent_up", GAUGE, NULL, "1 while a process serves the device; none is needed before the first use.",
     "agents", "agent", of_device, print_is_running},
    {"share_agent_restarts", COUNTER, NULL, "Agents of the device that failed, and were replaced.",
     "agents", "replaced", of_device, NULL},

    {"share_channel_info", GAUGE, NULL, "The pool and the mode of a channel.",
     "channels", NULL, of_described_channel, print_version},
    {"share_channel_producers", GAUGE, NULL, "Producers of the channel.", "channels", "producers", of_channel, NULL},
    {"share_channel_consumers", GAUGE, NULL, "Consumers of the channel.", "channels", "consumers", of_channel, NULL},
    {"share_channel_depth", GAUGE, NULL, "Messages that may wait for a consumer.", "channels", "depth", of_channel, NULL},
    {"share_channel_in_flight_limit", GAUGE, NULL, "Messages that a producer may have in flight.",
     "channels", "in_flight", of_channel, NULL},
    {"share_channel_waiting_messages", GAUGE, NULL, "Messages of producers that are gone, which wait for a consumer.",
     "channels", "waiting", of_channel, NULL},
    {"share_channel_kept_bytes", GAUGE, BYTES, "Memory of messages of producers that are gone.",
     "channels", "kept_bytes", of_channel, NULL},
    {"share_channel_sent", COUNTER, NULL, "Messages that a producer has sent.",
     "channels", "sent", of_channel, print_members},
    {"share_channel_in_flight", GAUGE, NULL, "Messages of a producer that are not back from all consumers.",
     "channels", "in_flight", of_channel, print_members},
    {"share_channel_awaited", GAUGE, NULL,
     "Messages of a producer that consumers have yet to receive or to acknowledge.", "channels", "awaited", of_channel,
     print_members},
    {"share_channel_dropped", COUNTER, NULL, "Messages that a producer dropped for newer ones.",
     "channels", "dropped", of_channel, print_members},
    {"share_channel_redelivered", COUNTER, NULL, "Messages that a producer gave to another consumer.",
     "channels", "redelivered", of_channel, print_members},
    {"share_channel_set_aside", COUNTER, NULL, "Messages of a producer that were delivered too often.",
     "channels", "set_aside", of_channel, print_members},
    {"share_channel_rejected", COUNTER, NULL, "Messages that a consumer gave back, or of a producer that were given back.",
     "channels", "rejected", of_channel, print_members},
    {"share_channel_left_behind", GAUGE, NULL, "Consumers that a producer does not wait for any more, and the reverse.",
     "channels", "left_behind", of_channel, print_members},
    {"share_channel_waiting", GAUGE, NULL, "Messages that wait for a consumer: how far it lags.",
     "channels", "waiting", of_channel, print_members},
    {"share_channel_received", COUNTER, NULL, "Messages that a consumer has received.",
     "channels", "received", of_channel, print_members},
    {"share_channel_held", GAUGE, NULL, "Messages that a consumer has not acknowledged.",
     "channels", "held", of_channel, print_members},
    {"share_channel_lost", COUNTER, NULL, "Messages that were dropped before a consumer received them.",
     "channels", "lost", of_channel, print_members},

    {"share_requests", COUNTER, NULL, "Requests that have arrived, by message of the protocol; from 0 with each broker.",
     "requests", "arrived", of_request, NULL},
    {"share_request_errors", COUNTER, NULL, "Requests that were answered with an error; from 0 with each broker.",
     "requests", "refused", of_request, print_by_error},
    {"share_request_duration_seconds", HISTOGRAM, "seconds",
     "From the arrival of a request to its answer, unless it waits for other programs; from 0 with each broker.",
     "requests", "total_ns", of_request, print_histogram},
};
/* clang-format on */

static void print_head(FILE *out, const char *name, enum type type, const char *unit,
		       const char *help)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};

	fprintf(out, "# TYPE %s %s\n", name, types[type]);
	if (unit)
		fprintf(out, "# UNIT %s %s\n", name, unit);
	fprintf(out, "# HELP %s %s\n", name, help);
}

static bool is_destroyed(const json_t *row)
{
	return json_is_true(json_object_get(row, "destroyed"));
}

/* Pools that lost their names can have the name of another pool: they are told in one sum. */
static void print_destroyed(FILE *out, const json_t *snapshot)
{
	json_int_t bytes = 0;
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(snapshot, "pools"), i, row)
		if (is_destroyed(row))
			bytes += json_integer_value(json_object_get(row, "used"));
	print_head(
	    out, "share_destroyed_pools_used_bytes", GAUGE, BYTES,
	    "Memory of buffers of pools that were destroyed, and end with their last buffers.");
	fprintf(out, "share_destroyed_pools_used_bytes %" JSON_INTEGER_FORMAT "\n", bytes);
}

void metrics_print(FILE *out, const json_t *snapshot, double now)
{
	const json_t *status = json_array_get(json_object_get(snapshot, "status"), 0);

	const json_t *oldest = json_object_get(status, "oldest_lease_ms");

	print_head(
	    out, "share_oldest_lease_age_seconds", GAUGE, "seconds",
	    "For how long somebody has had the lease that is the oldest; nothing without leases.");
	if (json_is_integer(oldest))
		fprintf(out, "share_oldest_lease_age_seconds %.3f\n",
			(double)json_integer_value(oldest) / 1000);
	print_head(out, "share_start_time_seconds", GAUGE, "seconds",
		   "When the service started, in seconds since 1970; brokers that go on keep it.");
	fprintf(out, "share_start_time_seconds %.3f\n",
		now - (double)json_integer_value(json_object_get(status, "uptime_ms")) / 1000);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const struct metric *m = &metrics[i];
		const json_t *row;
		size_t k;

		print_head(out, m->name, m->type, m->unit, m->help);
		json_array_foreach (json_object_get(snapshot, m->report), k, row)
			if (!is_destroyed(row))
				(m->print ? m->print : print_number)(out, m, row);
	}
	print_destroyed(out, snapshot);
}

void metrics_print_flag(FILE *out, const char *name, const char *help, int value)
{
	print_head(out, name, GAUGE, NULL, help);
	fprintf(out, "%s %d\n", name, value);
}

void metrics_print_end(FILE *out)
{
	fputs("# EOF\n", out);
}
