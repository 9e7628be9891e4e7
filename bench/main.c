/* SPDX-License-Identifier: MIT */

/*
 * share-bench: the arguments, the list of benchmarks, and what happens when one fails. Each
 * benchmark runs in a process of its own, because what a process has of the GPU's driver does not
 * survive a fork, and some benchmarks fork.
 *
 * Most benchmarks are about the broker, so their processes have no magazines (SHARE_MAGAZINES=0).
 * Those that measure what programs get by default have them.
 */

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/compare.h"

const char *argp_program_version = "share-bench " SHARE_VERSION;

static const struct benchmark {
	const char *name;
	void (*run)(const struct run *run);
	const char *what;
	bool keeps; /* the process has magazines */
} benchmarks[] = {
    {"rpc", bench_rpc, "one request and its reply, against a bare ping-pong of the same bytes",
     false},
    {"requests", bench_requests, "requests a second of 32 clients, against Redis", false},
    {"handoff", bench_handoff, "4 KiB from process to process, by name and by token", false},
    {"scale", bench_scale, "1,000 clients and 1,000,000 buffers: latency, memory, clean-up", false},
    {"fairness", bench_fairness, "a quiet user beside others that flood the broker; needs root",
     false},
    {"import", bench_import, "the first and later look-ups of a segment, by kind and size", false},
    {"adopt", bench_adopt, "data that a program has already to another process, against a copy",
     true},
    {"alloc-magazine", bench_alloc_magazine,
     "allocating what the process keeps, against malloc and the driver", true},
    {"gpu-alloc", bench_gpu_alloc, "allocating GPU memory, against the driver in one process",
     false},
    {"device-memory", bench_device_memory, "what the broker itself takes of a GPU's memory", false},
    {"fence", bench_fence, "signals, waits and wake-ups, of streams and of the CPU", false},
    {"stream-free", bench_stream_free, "allocating on a busy stream, and that the host never waits",
     false},
    {"hand-over-gpu", bench_hand_over_gpu,
     "a buffer to and fro between the GPU work of two processes", false},
    {"channel", bench_channel, "a message through a channel, against bare memory and futexes",
     true},
    {"call", bench_call, "a request to a service and its answer, against two messages", true},
    {"idle", bench_idle, "how often who waits wakes up, and how soon a close ends a wait", true},
    {"channel-broadcast", bench_channel_broadcast, "what 1 to 16 consumers cost a producer", true},
    {"channel-churn", bench_channel_churn,
     "members that come and go while a message is held: time and memory", true},
    {"channel-peers", bench_channel_peers,
     "64 B to 64 MiB to another process, against ZeroMQ, nng, a pipe and Boost", true},
    {"channel-gpu", bench_channel_gpu,
     "a tensor to another process and an answer back, against torch.multiprocessing", true},
    {"survival", bench_survival,
     "the broker is killed: the next one's first answer, pauses, and what the journal costs",
     false},
    {"bridge", bench_bridge, "buffers and messages from broker to broker, against UCX and TCP",
     true},
    {"bridge-gpu", bench_bridge_gpu, "memory of GPUs from broker to broker, against UCX", true},
};

#define N_BENCHMARKS (sizeof(benchmarks) / sizeof(benchmarks[0]))

/* ------------------------------------------------------------------------------------------- */

struct arguments {
	struct run run;
	bool chosen[N_BENCHMARKS];
	bool any;
	bool json;
	const char *other;
	unsigned turns;
};

enum { OPTION_JSON = 256, OPTION_QUICK, OPTION_LIST, OPTION_COMPARE, OPTION_TURNS };

static const struct argp_option options[] = {
    {"json", OPTION_JSON, NULL, 0, "Print each figure as a JSON object on a line of its own", 0},
    {"quick", OPTION_QUICK, NULL, 0, "Seconds instead of minutes; the figures are rough", 0},
    {"compare", OPTION_COMPARE, "PROGRAM", 0,
     "Run the share-bench of another tree and this one in turns, and print the medians of both", 0},
    {"turns", OPTION_TURNS, "N", 0, "How many runs of each --compare makes (default: 5)", 0},
    {"list", OPTION_LIST, NULL, 0, "List the benchmarks and exit", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void list(void)
{
	for (size_t i = 0; i < N_BENCHMARKS; i++)
		printf("%-17s %s\n", benchmarks[i].name, benchmarks[i].what);
	exit(0);
}

static void choose(struct arguments *a, const char *name, struct argp_state *state)
{
	for (size_t i = 0; i < N_BENCHMARKS; i++) {
		if (strcmp(benchmarks[i].name, name) == 0) {
			a->chosen[i] = a->any = true;
			return;
		}
	}
	argp_error(state, "there is no benchmark '%s' (see --list)", name);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case OPTION_JSON:
		a->json = true;
		return 0;
	case OPTION_QUICK:
		a->run.quick = true;
		return 0;
	case OPTION_LIST:
		list();
		return 0;
	case OPTION_COMPARE:
		a->other = value;
		return 0;
	case OPTION_TURNS:
		if (sscanf(value, "%u", &a->turns) != 1 || a->turns == 0 || a->turns > 1000)
			argp_error(state, "'%s' is no number of turns", value);
		return 0;
	case ARGP_KEY_ARG:
		choose(a, value, state);
		return 0;
	case ARGP_KEY_END:
		if (!a->any)
			argp_error(state, "which benchmark? (see --list)");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
    options,
    parse,
    "NAME...",
    "Measures what sharing memory costs, beside what the same would cost without a broker.",
    NULL,
    NULL,
    NULL};

/* Returns the exit code: 0, 1 or NOTHING_RAN. */
static int run_benchmark(const struct benchmark *b, const struct run *run)
{
	pid_t pid = fork();
	int status;

	must_system(pid >= 0, "fork");
	if (pid == 0) {
		must_system(b->keeps || setenv("SHARE_MAGAZINES", "0", 1) == 0, "setenv");
		b->run(run);
		exit(figures_reported() > 0 ? 0 : NOTHING_RAN);
	}
	must_system(waitpid(pid, &status, 0) == pid, "waiting for a benchmark");
	if (WIFSIGNALED(status))
		fprintf(stderr, "share-bench: %s: %s\n", b->name, strsignal(WTERMSIG(status)));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void compare_chosen(const struct arguments *a)
{
	char rest[1024];
	int n = snprintf(rest, sizeof(rest), "%s", a->run.quick ? "--quick" : "");

	for (size_t i = 0; i < N_BENCHMARKS; i++)
		if (a->chosen[i])
			n +=
			    snprintf(rest + n, sizeof(rest) - (size_t)n, " %s", benchmarks[i].name);
	compare(a->other, a->turns, rest);
}

int main(int argc, char **argv)
{
	struct arguments a = {.any = false, .turns = 5};
	unsigned ran = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.run.quick && !getenv("SHARE_BENCH_PROGRAM")) /* --compare says it once */
		fprintf(stderr, "share-bench: --quick: these figures are rough\n");
	if (a.other) {
		compare_chosen(&a);
		return 0;
	}
	figures_start(a.json);
	for (size_t i = 0; i < N_BENCHMARKS; i++) {
		int code = a.chosen[i] ? run_benchmark(&benchmarks[i], &a.run) : NOTHING_RAN;

		if (code != 0 && code != NOTHING_RAN)
			return code;
		ran += code == 0;
	}
	return ran > 0 ? 0 : NOTHING_RAN;
}
