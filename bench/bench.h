/* SPDX-License-Identifier: MIT */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <share/share.h>

#include "wire/wire.h"

/*
 * What the benchmarks share. A benchmark measures something and its floor (what the same would
 * cost without us) in turns, and reports figures. One that goes wrong has no figures: it says why
 * and ends the program, see must().
 */

struct run {
	bool quick;
};

/* In the files of their names. */
void bench_rpc(const struct run *run);
void bench_handoff(const struct run *run);
void bench_scale(const struct run *run);
void bench_fairness(const struct run *run);
void bench_import(const struct run *run);
void bench_gpu_alloc(const struct run *run);
void bench_alloc_magazine(const struct run *run);
void bench_device_memory(const struct run *run);
void bench_fence(const struct run *run);
void bench_stream_free(const struct run *run);
void bench_hand_over_gpu(const struct run *run);
void bench_channel(const struct run *run);
void bench_call(const struct run *run);
void bench_channel_broadcast(const struct run *run);
void bench_channel_peers(const struct run *run);
void bench_channel_gpu(const struct run *run);

/* ------------------------------------------------------------------------------------------- */
/* main.c: what can go wrong                                                                   */

/* Ends the program unless @r is 0, with libshare's words for it. */
void must(int r, const char *what);
/* The same for system calls, which have errno. */
void must_system(bool fine, const char *what);

/* A number of the broker's "status". */
int64_t broker_number(share_client *c, const char *key);

/* ------------------------------------------------------------------------------------------- */
/* figures.c: what comes out                                                                   */

#define NONE NAN

/* @floor and @target may be NONE. The target is the most that value / floor may be; where there is
 * no floor, that the value may be. Strings stay the caller's. */
struct figure {
	const char *name;
	const char *what; /* was measured, for a person */
	const char *unit;
	double value;
	double floor;
	double target;
};

/* Prints the table's heading, unless it is JSON that is wanted. */
void figures_start(bool as_json);
void figure_report(const struct figure *f);
/* How many this process has reported. */
unsigned figures_reported(void);

/* ------------------------------------------------------------------------------------------- */
/* stats.c: samples                                                                            */

struct samples {
	double *values;
	size_t n, room;
};

void samples_add(struct samples *s, double value);
/* The smallest sample that @percent of them do not exceed. There is one at least; sorts them. */
double samples_percentile(struct samples *s, unsigned percent);
double samples_median(struct samples *s);
void samples_clear(struct samples *s);
void samples_done(struct samples *s);

/* Many rounds of the same, each summed up by itself: a disturbance spoils a round, and the median
 * over the rounds does not see it. */
struct series {
	struct samples medians, p99s;
	struct samples round; /* the one under way */
};

void series_end_round(struct series *s);
void series_done(struct series *s);

/* Reports the median and the 99th percentile, as NAME and NAME.p99. @f says all but value and
 * floor; @p99_target is the second figure's target. @floor may be NULL. */
void series_report(struct series *value, struct series *floor, const struct figure *f,
		   double p99_target);
/* Where a sample is the mean of many, there are no percentiles: the median alone. */
void series_report_median(struct series *value, struct series *floor, const struct figure *f);

/* To let others get somewhere; nothing that is measured. */
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

/* ------------------------------------------------------------------------------------------- */
/* rpc.c: where processes run, and the floor of everything that is said over a socket           */

enum placement { ANYWHERE, APART, TOGETHER, PLACEMENTS };

struct placement_name {
	const char *suffix; /* of a figure's name */
	const char *words;
};
extern const struct placement_name placement_names[PLACEMENTS];

/* Pins this process to one core and @others to another, or to the same; or puts all on one, if
 * possible, and lets them go. False where a placement is not possible. */
bool place(enum placement placement, const pid_t *others, size_t n);
/* Says that @name's figures are missing for that reason. */
void skip(const char *name, enum placement placement);

/* Bytes of a request and of its reply; a reply of 0 bytes does not come. */
struct exchange {
	uint32_t request, reply;
};

/* With a process at the other end of a SOCK_SEQPACKET socket that knows nothing but to answer. */
struct ping_pong {
	int socket;
	pid_t pid;
};

void ping_pong_start(struct ping_pong *p);
void ping_pong_stop(struct ping_pong *p);
/* One after the other. */
void ping_pong_play(const struct ping_pong *p, const struct exchange *exchanges, size_t n);

/* Bytes of the packet that libshare or the broker would send for @m. */
uint32_t packet_size(const struct wire_message *m);

#endif
