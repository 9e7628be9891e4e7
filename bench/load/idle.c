/* SPDX-License-Identifier: MIT */

/*
 * What it costs to wait. How often the threads of a process wake up whose channel and service have
 * nothing to do; and how long it takes from the close of a handle until the thread is out that
 * waits with it, against a thread that waits for a condition and is told by another.
 */

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/service.h>

#include "base/clock.h"
#include "bench/bench.h"

#define CHANNEL    "bench/idle"
#define SERVICE    "bench/idle-service"
#define SETTLES_US 1500000 /* what somebody new does at first is no waiting */

/* How often the threads of this process, but for the one that asks, have begun to wait. */
static long waits_begun(void)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[400], line[256];
	struct dirent *e;
	long all = 0, one;

	must_system(tasks, "/proc/self/task");
	while ((e = readdir(tasks))) {
		FILE *f;

		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &one) == 1)
				all += one;
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return all;
}

/* A thread that waits for a message, until there is something else to say. One that did not get to
 * its wait in time finds a handle that was closed before, which is no sample. */
struct waiter {
	pthread_t thread;
	share_channel *channel;
	share_service *service;
	pthread_mutex_t lock; /* of who waits for a condition */
	pthread_cond_t told;
	bool is_told;
	atomic_bool begun;
	bool late;
	uint64_t out_ns;
};

static void out(struct waiter *w, int r, const char *what)
{
	w->out_ns = clock_ns();
	w->late = r == SHARE_EINVAL;
	if (!w->late && r != SHARE_ECANCELED)
		must(SHARE_EPROTO, what);
}

static void *receive(void *data)
{
	share_message m = SHARE_MESSAGE_INIT;
	struct waiter *w = data;

	atomic_store(&w->begun, true);
	out(w, share_recv(w->channel, -1, NULL, &m), "share_recv");
	return NULL;
}

static void *next_request(void *data)
{
	share_message m = SHARE_MESSAGE_INIT;
	struct waiter *w = data;

	atomic_store(&w->begun, true);
	out(w, share_next_request(w->service, -1, NULL, &m), "share_next_request");
	return NULL;
}

static void *wait_to_be_told(void *data)
{
	struct waiter *w = data;

	pthread_mutex_lock(&w->lock);
	atomic_store(&w->begun, true);
	while (!w->is_told)
		pthread_cond_wait(&w->told, &w->lock);
	pthread_mutex_unlock(&w->lock);
	w->out_ns = clock_ns();
	return NULL;
}

static void start(struct waiter *w, void *(*wait)(void *data))
{
	must_system(pthread_create(&w->thread, NULL, wait, w) == 0, "pthread_create");
	while (!atomic_load(&w->begun))
		pause_us(100);
	pause_us(2000); /* until it sleeps */
}

/* In microseconds, or NONE. */
static double out_after(struct waiter *w, uint64_t told_ns)
{
	pthread_join(w->thread, NULL);
	return w->late ? NONE : (double)(w->out_ns - told_ns) / 1000;
}

static double close_channel(share_client *c)
{
	struct waiter w = {.begun = false};
	uint64_t told_ns;

	must(share_channel_open(c, CHANNEL, SHARE_CONSUMER, NULL, &w.channel),
	     "share_channel_open");
	start(&w, receive);
	told_ns = clock_ns();
	share_channel_close(w.channel);
	return out_after(&w, told_ns);
}

static double close_service(share_client *c)
{
	struct waiter w = {.begun = false};
	uint64_t told_ns;

	must(share_service_open(c, SERVICE, SHARE_WORKER, NULL, &w.service), "share_service_open");
	start(&w, next_request);
	told_ns = clock_ns();
	share_service_close(w.service);
	return out_after(&w, told_ns);
}

static double tell(void)
{
	struct waiter w = {
	    .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER, .begun = false};
	uint64_t told_ns;

	start(&w, wait_to_be_told);
	told_ns = clock_ns();
	pthread_mutex_lock(&w.lock);
	w.is_told = true;
	pthread_cond_signal(&w.told);
	pthread_mutex_unlock(&w.lock);
	return out_after(&w, told_ns);
}

static void add(struct series *s, double (*close)(share_client *c), share_client *c)
{
	double us;

	do
		us = close(c);
	while (isnan(us));
	samples_add(&s->round, us);
}

static void report(struct series *s, const char *name, const char *what, double target)
{
	series_report(s, NULL,
		      &(struct figure){.name = name, .what = what, .unit = "us", .target = target},
		      NONE);
}

static void measure_closing(const struct run *run, share_client *c)
{
	struct series channel = {0}, service = {0}, told = {0};

	for (int i = 0; i < (run->quick ? 3 : 21); i++) {
		for (int k = 0; k < (run->quick ? 5 : 20); k++) {
			samples_add(&told.round, tell());
			add(&channel, close_channel, c);
			add(&service, close_service, c);
		}
		series_end_round(&told);
		series_end_round(&channel);
		series_end_round(&service);
	}
	report(&channel, "idle.close.channel", "close until who waits for a message is out", 1000);
	report(&service, "idle.close.service", "close until who waits for a request is out", 1000);
	report(&told, "idle.told", "for comparison: until who waits for a condition is out", NONE);
	series_deinit(&channel);
	series_deinit(&service);
	series_deinit(&told);
}

/* A channel with both its ends and a service with both are open, and a thread waits with each. */
static void measure_waiting(const struct run *run, share_client *c, share_client *d)
{
	struct waiter messages = {.begun = false}, requests = {.begun = false};
	int seconds = run->quick ? 2 : 10;
	share_service *caller;
	share_channel *producer;
	char what[96];
	long before;

	must(share_channel_open(d, CHANNEL, SHARE_PRODUCER, NULL, &producer), "share_channel_open");
	must(share_service_open(d, SERVICE, SHARE_CALLER, NULL, &caller), "share_service_open");
	must(share_channel_open(c, CHANNEL, SHARE_CONSUMER, NULL, &messages.channel),
	     "share_channel_open");
	must(share_service_open(c, SERVICE, SHARE_WORKER, NULL, &requests.service),
	     "share_service_open");
	start(&messages, receive);
	start(&requests, next_request);
	pause_us(SETTLES_US);
	before = waits_begun();
	pause_us(seconds * 1000000L);
	snprintf(what, sizeof(what), "how often a process with nothing to do wakes up in %d s",
		 seconds);
	figure_report(&(struct figure){.name = "idle.wakeups",
				       .what = what,
				       .unit = "",
				       .value = (double)(waits_begun() - before),
				       .floor = NONE,
				       .target = 0});
	share_channel_close(messages.channel);
	share_service_close(requests.service);
	pthread_join(messages.thread, NULL);
	pthread_join(requests.thread, NULL);
	share_service_close(caller);
	share_channel_close(producer);
}

void bench_idle(const struct run *run)
{
	share_client *c, *d;

	must(share_connect("embedded", &c), "share_connect");
	must(share_connect(share_address(c), &d), "share_connect");
	measure_waiting(run, c, d);
	measure_closing(run, c);
	share_disconnect(d);
	share_disconnect(c);
}
