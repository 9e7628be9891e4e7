/* SPDX-License-Identifier: MIT */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <share/share.h>

#include "wire/wire.h"

/*
 * What the benchmarks share. A benchmark measures something and its floor (what the same costs
 * without a broker) in turns, and reports figures. If something goes wrong in it, it says why and
 * ends the program; see must().
 */

struct run {
	bool quick;
};

/* For so long is waited for what always comes, however late on a machine that does something else:
 * only so that a bug does not hang. */
#define HANGS_MS 120000

/* Each is in the file of its name, in the folder of its subject. */
void bench_rpc(const struct run *run);
void bench_requests(const struct run *run);
void bench_handoff(const struct run *run);
void bench_scale(const struct run *run);
void bench_fairness(const struct run *run);
void bench_import(const struct run *run);
void bench_adopt(const struct run *run);
void bench_gpu_alloc(const struct run *run);
void bench_alloc_magazine(const struct run *run);
void bench_device_memory(const struct run *run);
void bench_idle(const struct run *run);
void bench_fence(const struct run *run);
void bench_stream_free(const struct run *run);
void bench_hand_over_gpu(const struct run *run);
void bench_channel(const struct run *run);
void bench_call(const struct run *run);
void bench_channel_broadcast(const struct run *run);
void bench_channel_churn(const struct run *run);
void bench_channel_peers(const struct run *run);
void bench_channel_gpu(const struct run *run);
void bench_bridge(const struct run *run);
void bench_bridge_gpu(const struct run *run);
void bench_survival(const struct run *run);

/* ------------------------------------------------------------------------------------------- */
/* must.c: what can go wrong                                                                   */

/* Ends the program with the library's error text unless @r is 0. */
void must(int r, const char *what);
/* The same for system calls, with errno. */
void must_system(bool fine, const char *what);

/* Returns the bytes of memory that belong to the process, including shared memory that it uses. */
double resident(pid_t pid);

/* Returns a number of the broker's report "status". */
int64_t broker_number(share_client *c, const char *key);

/* ------------------------------------------------------------------------------------------- */
/* figures.c: what comes out                                                                   */

#define NONE NAN

/* @floor and @target may be NONE. The target is the largest value that value / floor may have, or,
 * if there is no floor, that the value may have. The strings stay the caller's. */
struct figure {
	const char *name;
	const char *what; /* what was measured, as text for a person */
	const char *unit;
	double value;
	double floor;
	double target;
};

/* Prints the heading of the table, unless JSON is wanted. */
void figures_start(bool as_json);
void figure_report(const struct figure *f);
/* Returns how many figures this process has reported. */
unsigned figures_reported(void);

/* ------------------------------------------------------------------------------------------- */
/* stats.c: samples                                                                            */

struct samples {
	double *values;
	size_t n, room;
};

void samples_add(struct samples *s, double value);
/* Returns the smallest sample that @percent of the samples do not exceed. There must be a sample.
 * Sorts them. */
double samples_percentile(struct samples *s, unsigned percent);
double samples_median(struct samples *s);
void samples_clear(struct samples *s);
void samples_deinit(struct samples *s);

/* Many rounds of the same measurement. Each round has a median of its own, so a disturbance spoils
 * one round, and the median of the rounds is not affected. */
struct series {
	struct samples medians, p99s;
	struct samples round; /* the round that is being measured */
};

void series_end_round(struct series *s);
void series_deinit(struct series *s);

/* Reports the median and the 99th percentile, as NAME and NAME.p99. @f has everything but value and
 * floor; @p99_target is the target of the second figure. @floor may be NULL. */
void series_report(struct series *value, struct series *floor, const struct figure *f,
		   double p99_target);
/* Reports the median alone, for samples that are means of many calls and so have no percentiles. */
void series_report_median(struct series *value, struct series *floor, const struct figure *f);

/* Gives other processes time; never part of what is measured. */
static inline void pause_us(long us)
{
	nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The time that processors have run a process which lives; 0: this one. */
static inline double processor_us(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	must_system(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0,
		    "the processor time of a process");
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ------------------------------------------------------------------------------------------- */
/* other.c: a second process                                                                   */

/*
 * The other process of a benchmark, which does what the first one tells it over a socket. It is
 * forked, so it is started before this process has threads or uses the driver.
 */
struct other {
	pid_t pid;
	int socket; /* of whoever looks at it; packets */
};

/* Starts a process that calls serve(@data) and ends; it also ends with this one. @o is its own as
 * well, with its end of the socket. */
void other_start(struct other *o, void (*serve)(void *data), void *data);
/* Waits for its end. serve() returns when other_is_asked() does not return true any more. */
void other_end(const struct other *o);

/* Both processes say and hear packets of one size. Whoever does not get what was to be heard ends
 * its program. */
void other_tell(const struct other *o, const void *what, size_t size);
void other_hear(const struct other *o, void *what, size_t size);
/* Says nothing but that something is done, and waits for that. */
void other_done(const struct other *o);
void other_wait(const struct other *o);
/* Returns false if the first process has ended this one. */
bool other_is_asked(const struct other *o, void *what, size_t size);

/* Tells the other process where the broker of @c is, and connects there. */
void other_tell_address(const struct other *o, share_client *c);
/* Ends the process if there is nothing to measure. */
share_client *other_connect(const struct other *o);

/* ------------------------------------------------------------------------------------------- */
/* rpc.c: where processes run, and the floor of everything that is said over a socket           */

enum placement { ANYWHERE, APART, TOGETHER, PLACEMENTS };

struct placement_name {
	const char *suffix; /* added to the name of a figure */
	const char *words;
};
extern const struct placement_name placement_names[PLACEMENTS];

/* Pins this process to one core, and the processes @others to another core or to the same one; with
 * ANYWHERE, starts all of them on one core and then lets them run on all. Returns false if the
 * placement is not possible. */
bool place(enum placement placement, const pid_t *others, size_t n);
/* Says that the figures of @name are missing because the placement is not possible. */
void skip(const char *name, enum placement placement);

/* The bytes of a request and of its reply. 0: there is no reply. */
struct exchange {
	uint32_t request, reply;
};

/* Starts a process that does nothing but answer. */
void ping_pong_start(struct other *o);
/* Plays the exchanges, one after the other. */
void ping_pong_play(const struct other *o, const struct exchange *exchanges, size_t n);

/* Returns the size of the packet that the library or the broker would send for @m. */
uint32_t packet_size(const struct wire_message *m);
