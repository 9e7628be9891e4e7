/* SPDX-License-Identifier: MIT */

/*
 * share-checker: processes that share one small pool and use it as no program would, to find words
 * that are not their owner's, processes that do not get on, and memory that nobody has any more. It
 * is this program for every kind of memory, over the stand-in driver and on a GPU, for a second or
 * for a day.
 */

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/harness/status.h"
#include "tests/standin/calls.h"
#include "tests/themes/checker/supervisor.h"
#include "tests/themes/checker/traffic.h"

enum {
	OPTION_KILL = 256,
	OPTION_KILL_BROKER,
	OPTION_HANG_UP,
	OPTION_SECONDS,
	OPTION_STUCK,
	OPTION_POOL,
	OPTION_PAUSE,
	OPTION_REUSE,
	OPTION_FREEZE,
	OPTION_CHANNELS
};

static const struct argp_option described[] = {
    {"kind", 'k', "KIND", 0, "host (default), vmm, mempool or pinned", 0},
    {"processes", 'p', "N", 0, "how many share the pool (default 4)", 0},
    {"streams", 's', "N", 0, "each of them has (default 4)", 0},
    {"steps", 'n', "N", 0, "of all together; 0: until the time is over (default 2000)", 0},
    {"seed", 'S', "NUMBER", 0, "of everything that is random (default: another one each time)", 0},
    {"kill", OPTION_KILL, "STEPS", OPTION_ARG_OPTIONAL,
     "kill a random process, or the agent, each so many steps (60), more or less", 0},
    {"kill-broker", OPTION_KILL_BROKER, "PERCENT", 0,
     "of those who are killed: the broker; one in four hands over to the next one instead", 0},
    {"freeze", OPTION_FREEZE, "MILLISECONDS", 0,
     "stop the broker now and then, for so long at most", 0},
    {"hang-up", OPTION_HANG_UP, NULL, 0, "have some processes hang up and live on", 0},
    {"seconds", OPTION_SECONDS, "N", 0, "stop then, however many steps were made", 0},
    {"stuck-after", OPTION_STUCK, "SECONDS", 0,
     "who makes no step for so long is stuck (default 30)", 0},
    {"pool", OPTION_POOL, "BYTES", 0, "size of the pool (default 512 KiB, for GPUs 4 MiB)", 0},
    {"pause", OPTION_PAUSE, "MICROSECONDS", 0, "the longest that work takes (default 4000)", 0},
    {"reuse", OPTION_REUSE, "POLICY", 0, "of the pool: gate (default), clean or scrub", 0},
    {"channels", OPTION_CHANNELS, "PERCENT", 0, "of the steps: on channels (default 40)", 0},
    {0},
};

#define STEPS_TO_KILL 60

static const char *const policies[] = {"gate", "clean", "scrub"};

static uint64_t number(const char *text, uint64_t most, struct argp_state *state)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 0);

	if (end == text || *end || n > most)
		argp_error(state, "%s is not a number up to %" PRIu64, text, most);
	return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'k':
		if (strcmp(arg, "host") != 0 && strcmp(arg, "vmm") != 0 &&
		    strcmp(arg, "mempool") != 0 && strcmp(arg, "pinned") != 0)
			argp_error(state, "there is no kind %s", arg);
		snprintf(o->kind, sizeof(o->kind), "%s", arg);
		break;
	case 'p':
		o->processes = (unsigned)number(arg, WORKERS_MAX, state);
		break;
	case 's':
		o->streams = (unsigned)number(arg, STREAMS_MAX, state);
		break;
	case 'n':
		o->steps = number(arg, UINT64_MAX, state);
		break;
	case 'S':
		o->seed = number(arg, UINT64_MAX, state);
		break;
	case OPTION_KILL:
		o->kill = arg ? (unsigned)number(arg, 1000000, state) : STEPS_TO_KILL;
		break;
	case OPTION_KILL_BROKER:
		o->kill_broker = (unsigned)number(arg, 100, state);
		break;
	case OPTION_FREEZE:
		o->freeze_ms = (unsigned)number(arg, 5000, state);
		break;
	case OPTION_HANG_UP:
		o->hang_up = true;
		break;
	case OPTION_SECONDS:
		o->seconds = (unsigned)number(arg, 1000000, state);
		break;
	case OPTION_STUCK:
		o->stuck_seconds = (unsigned)number(arg, 1000000, state);
		break;
	case OPTION_POOL:
		o->pool_size = number(arg, UINT64_C(1) << 32, state);
		break;
	case OPTION_PAUSE:
		o->pause_us = (unsigned)number(arg, 900000, state);
		break;
	case OPTION_REUSE:
		o->reuse = 0;
		while (o->reuse < 3 && strcmp(arg, policies[o->reuse]) != 0)
			o->reuse++;
		if (o->reuse == 3)
			argp_error(state, "there is no policy %s", arg);
		break;
	case OPTION_CHANNELS:
		o->channels = (unsigned)number(arg, 100, state);
		break;
	case ARGP_KEY_END:
		if (o->processes == 0 || o->streams == 0)
			argp_error(state, "there has to be a process, and a stream");
		if (o->steps == 0 && o->seconds == 0)
			argp_error(state, "without --steps it takes --seconds");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static bool is_host(const struct options *o)
{
	return strcmp(o->kind, "host") == 0;
}

static void complete(struct options *o)
{
	if (o->seed == 0 && getrandom(&o->seed, sizeof(o->seed), 0) != sizeof(o->seed))
		o->seed = (uint64_t)getpid();
	if (o->pool_size == 0)
		o->pool_size = is_host(o) ? UINT64_C(512) << 10 : UINT64_C(4) << 20;
}

/* As CTest has it; else those beside this program. */
static void find_programs(void)
{
	const char *bin = getenv("SHARE_TEST_BIN");
	char path[4096];

	if (!bin || getenv("SHARE_BROKER"))
		return;
	snprintf(path, sizeof(path), "%s/share-broker", bin);
	setenv("SHARE_BROKER", path, 1);
}

/* A stand-in driver is a machine of this run's own. */
static void configure_standin(void)
{
	const char *options = getenv("SHARE_STANDIN");
	char copy[256];

	snprintf(copy, sizeof(copy), "%s", options ? options : "");
	standin_configure(copy);
}

/* 0, or 77 when this machine has no such memory. */
static int create_pool(share_client *client, const struct options *o, share_pool **out)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	int r;

	options.kind = o->kind;
	options.limit = o->pool_size;
	/* half of the runs have segments come and go, and agents that are asked for them */
	options.segment_size = o->pool_size / (o->seed & 1 ? 4 : 2);
	options.reuse = o->reuse;
	options.release_threshold = o->seed & 1 ? SHARE_KEEP_NONE : o->pool_size;
	r = share_pool_create(client, "checker", &options, out);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP) {
		fprintf(stderr, "SKIPPED: kind %s cannot be had here: %s\n", o->kind,
			share_error_detail());
		return 77;
	}
	check_ok(r);
	return 0;
}

/* For memory that workers had before. That of a device is kept by whole allocations, of 2 MiB. */
static share_pool *create_adopted(share_client *client, const struct options *o)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p = NULL;

	options.kind = "adopted";
	options.limit = is_host(o) ? o->pool_size : 4 * o->pool_size;
	check_ok(share_pool_create(client, "adopted", &options, &p));
	return p;
}

static size_t count_channels(share_client *client)
{
	json_t *rows = report(client, "channels");
	size_t n = json_array_size(rows);

	json_decref(rows);
	return n;
}

/* What is counted of a channel is the channel's, which lasts as long as it has a member. */
static void pin_channels(share_client *client, share_channel **pins)
{
	for (unsigned i = 0; i < CHANNELS; i++) {
		share_channel_options options = channel_options(i);

		pins[i] = NULL;
		if (channel_is_counted(i))
			check_ok(share_channel_open(client, channel_sorts[i].name, SHARE_PRODUCER,
						    &options, &pins[i]));
	}
}

static uint64_t lost_in(share_client *client, const char *name)
{
	json_t *rows = report(client, "channels"), *row;
	uint64_t n = 0;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "channel")), name) == 0)
			n = (uint64_t)number_of(row, "lost");
	json_decref(rows);
	return n;
}

/* False: a message came to nobody, and the broker has not said so. */
static bool tell_missing(struct board *board, share_client *client)
{
	uint64_t known = 0, missing = 0, lost = 0, unexplained = 0;

	for (unsigned i = 0; i < CHANNELS; i++) {
		uint64_t k, m, l;

		if (!channel_is_counted(i))
			continue;
		fates_count(board, i, false, &k, &m);
		l = lost_in(client, channel_sorts[i].name);
		known += k;
		missing += m;
		lost += l;
		if (m > l) {
			unexplained += m - l;
			fates_count(board, i, true, &k, &m);
		}
	}
	printf("queues: of the last %" PRIu64 " messages %" PRIu64
	       " came to nobody; the broker has counted %" PRIu64 " as lost\n",
	       known, missing, lost);
	if (unexplained > 0)
		fprintf(stderr, "WRONG: %" PRIu64 " messages of queues came to nobody\n",
			unexplained);
	return unexplained == 0;
}

/* Nobody has anything any more, and the broker knows. */
static void expect_nothing_left(share_client *client, share_pool *pool, share_pool *adopted)
{
	for (unsigned i = 0; i < NAMES; i++) {
		char name[32];
		int r;

		snprintf(name, sizeof(name), "checker/%u", i);
		r = share_unpublish(client, name);
		if (r != SHARE_ENOENT)
			check_ok(r);
	}
	/* producers that go leave messages in queues, which nobody comes for any more */
	settle(client, (end_messages(client), s.clients == 1) && s.names == 0 && s.tokens == 0 &&
			   s.leases == 0 && s.buffers == 0 && s.buffer_bytes == 0);
	until(count_channels(client) == 0);
	share_pool_close(pool);
	share_pool_close(adopted);
	settle(client, s.segments == 0 && s.segment_bytes == 0);
}

static void tell_result(const struct board *board, const struct supervisor *s, enum ending ending)
{
	const struct options *o = &board->options;
	uint64_t steps = atomic_load(&board->claimed); /* each worker tries one too many */

	if (o->channels)
		printf("channels: %" PRIu64 " sent, %" PRIu64 " received, %" PRIu64
		       " of them again; %" PRIu64 " dropped, %" PRIu64 " set aside, %" PRIu64
		       " rejected, %" PRIu64 " left behind\n",
		       atomic_load(&board->sent), atomic_load(&board->received),
		       atomic_load(&board->again), atomic_load(&board->lost),
		       atomic_load(&board->set_aside), atomic_load(&board->rejected),
		       atomic_load(&board->stale));
	printf("tokens: %" PRIu64 " exported, %" PRIu64 " imported, %" PRIu64
	       " of them when their makers were dead\n",
	       atomic_load(&board->exported), atomic_load(&board->imported),
	       atomic_load(&board->imported_late));
	printf(
	    "%s: %" PRIu64 " steps, %" PRIu64 " fillings, %" PRIu64 " readings of %" PRIu64
	    " words, %" PRIu64 " of them void; %" PRIu64 " by kernels; %" PRIu64
	    " adopted; full %" PRIu64
	    " times; killed: %u processes, %u agents, %u brokers, %u keepers, and %u handed over; "
	    "hung up: %" PRIu64 ": %s\n",
	    o->kind, o->steps && steps > o->steps ? o->steps : steps, atomic_load(&board->fills),
	    atomic_load(&board->reads), atomic_load(&board->words), atomic_load(&board->discarded),
	    atomic_load(&board->kernels), atomic_load(&board->adopted), atomic_load(&board->full),
	    supervisor_kills(s), supervisor_agent_kills(s), supervisor_broker_kills(s),
	    supervisor_keeper_kills(s), supervisor_upgrades(s), atomic_load(&board->hang_ups),
	    ending == ENDING_WELL      ? "ok"
	    : ending == ENDING_STUCK   ? "stuck"
	    : ending == ENDING_SKIPPED ? "skipped"
				       : "wrong");
}

static int run(struct options *o)
{
	struct supervisor *supervisor;
	share_channel *pins[CHANNELS];
	share_client *client;
	enum ending ending;
	struct board *board;
	share_pool *pool, *adopted;
	int fd;

	complete(o);
	printf("seed %" PRIu64 "\n", o->seed);
	fflush(stdout);
	board = board_new(&fd);
	board->options = *o;
	check_ok(share_connect("embedded", &client));
	snprintf(board->address, sizeof(board->address), "%s", share_address(client));
	if (create_pool(client, o, &pool) != 0) {
		share_disconnect(client);
		return ENDING_SKIPPED;
	}
	adopted = create_adopted(client, o);
	pin_channels(client, pins);
	supervisor = supervisor_start(board, fd, client);
	ending = supervisor_run(supervisor);
	if (ending == ENDING_WELL && board->options.channels > 0 && !tell_missing(board, client))
		ending = ENDING_WRONG;
	for (unsigned i = 0; i < CHANNELS; i++)
		share_channel_close(pins[i]);
	if (ending == ENDING_WELL)
		expect_nothing_left(client, pool, adopted);
	else
		share_pool_close(adopted), share_pool_close(pool);
	tell_result(board, supervisor, ending);
	share_disconnect(client);
	return (int)ending;
}

int main(int argc, char **argv)
{
	const struct argp argp = {
	    .options = described,
	    .parser = parse,
	    .doc =
		"Processes share a small pool at random, and check every word they read. Exit "
		"code 0: nothing was wrong; 1: a word was, or something was left over; 2: "
		"somebody did not get on; 77: this machine cannot do it.",
	};
	struct options o = {.kind = "host",
			    .processes = 4,
			    .streams = 4,
			    .steps = 2000,
			    .stuck_seconds = 30,
			    .pause_us = 4000,
			    .channels = 40};

	if (argc == 7 && strcmp(argv[1], "--worker") == 0)
		return worker_run(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]),
				  (unsigned)atoi(argv[5]), (unsigned)atoi(argv[6]));
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	find_programs();
	configure_standin();
	return run(&o);
}
