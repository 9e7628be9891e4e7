/* SPDX-License-Identifier: MIT */

/*
 * Who does not need the broker does not notice that it dies: messages through a channel go on, and
 * so does allocating what the process keeps. Each goes on all the time, in processes of its own,
 * and what is measured is the longest time between two of its steps: in windows in which the broker
 * is killed, and by turns with them in windows in which it is not.
 *
 * Others hold so many buffers that the next broker needs a while: who had to wait for it would be
 * seen to.
 *
 * This is not about who gets the cores while the next broker works: a step is made every 100 us,
 * and who makes it has a real-time priority where that is allowed (root).
 */

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#include "bench/channel/channel.h"
#include "bench/load/crowd.h"
#include "bench/load/kept_broker.h"
#include "bench/survival/survival.h"

#define CHANNEL "bench/survival"
#define SIZE    4096
#define STOCK   60 /* buffers */
#define STEP_US 100

/* What is measured, in memory that all processes have. */
struct pauses {
	_Atomic uint64_t steps;
	_Atomic uint64_t longest; /* ns, since it was last taken */
	double last;              /* us, of the process that measures */
};

static void step(struct pauses *p)
{
	double now = now_us();
	uint64_t took = (uint64_t)((now - p->last) * 1000);

	if (p->last > 0 && took > atomic_load(&p->longest))
		atomic_store(&p->longest, took);
	p->last = now;
	atomic_fetch_add(&p->steps, 1);
}

static share_pool *connect_to_pool(const char *address, share_client **c)
{
	share_pool *pool;

	must(share_connect(address, c), "share_connect");
	must(share_pool_open(*c, CROWD_POOL, &pool), "share_pool_open");
	return pool;
}

static share_channel *open_channel(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = CROWD_POOL;
	must(share_channel_open(c, CHANNEL, role, &options, &ch), "share_channel_open");
	return ch;
}

/* As many as a late consumer can make the producer need: who keeps too few asks the broker for
 * more. */
static void stock_up(share_pool *pool)
{
	share_buffer *buffers[STOCK];

	for (int i = 0; i < STOCK; i++)
		must(share_alloc(pool, SIZE, NULL, &buffers[i]), "share_alloc");
	for (int i = 0; i < STOCK; i++)
		must(share_release(buffers[i], NULL), "share_release");
}

static void produce(const char *address, struct pauses *p)
{
	share_client *c;
	share_pool *pool = connect_to_pool(address, &c);
	share_channel *ch = open_channel(c, SHARE_PRODUCER);
	share_buffer *b;

	(void)p;
	stock_up(pool);
	for (;;) {
		must(share_alloc(pool, SIZE, NULL, &b), "share_alloc");
		must(share_give(ch, b, NULL, 0, NULL), "share_give");
		pause_us(STEP_US);
	}
}

static void consume(const char *address, struct pauses *p)
{
	share_client *c;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	connect_to_pool(address, &c);
	ch = open_channel(c, SHARE_CONSUMER);
	for (;;) {
		must(share_recv(ch, HANGS_MS, NULL, &m), "share_recv");
		must(share_ack(&m, NULL), "share_ack");
		step(p);
	}
}

static void allocate(const char *address, struct pauses *p)
{
	share_client *c;
	share_pool *pool = connect_to_pool(address, &c);
	share_buffer *b;

	stock_up(pool);
	for (;;) {
		must(share_alloc(pool, SIZE, NULL, &b), "share_alloc");
		must(share_release(b, NULL), "share_release");
		step(p);
		pause_us(STEP_US);
	}
}

/* ------------------------------------------------------------------------------------------- */

typedef void play(const char *address, struct pauses *p);

/* It keeps what it releases, as programs do. The connection that it inherits it never uses. */
static pid_t start(play *what, const struct kept_broker *broker, struct pauses *p)
{
	pid_t pid = fork();

	must_system(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1});
		unsetenv("SHARE_MAGAZINES");
		what(broker->socket, p);
	}
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* In microseconds, of a window in which each has made some steps. */
static double longest(struct pauses *p, share_client *c, long window_us, bool kills)
{
	uint64_t before = atomic_load(&p->steps);
	pid_t serving = kept_broker_serving(c);

	atomic_store(&p->longest, 0);
	pause_us(window_us / 4);
	if (kills) {
		kept_broker_kill(serving);
		must_system(kept_broker_serving(c) != serving, "kill the broker");
	}
	pause_us(window_us * 3 / 4);
	while (atomic_load(&p->steps) < before + 3)
		pause_us(STEP_US);
	return (double)atomic_load(&p->longest) / 1e3;
}

static void report(const char *name, const char *what, struct samples *killed,
		   struct samples *quiet, unsigned percent)
{
	figure_report(&(struct figure){name, what, "us", samples_percentile(killed, percent),
				       samples_percentile(quiet, percent), NONE});
}

static void measure(const struct run *run, struct pauses *p, share_client *c, const char *name,
		    const char *worst, const char *what)
{
	int rounds = run->quick ? 2 : 15;
	long window_us = run->quick ? 20000 : 200000;
	struct samples killed = {NULL, 0, 0}, quiet = killed;

	longest(p, c, window_us, false); /* until all are there */
	for (int i = 0; i < rounds; i++) {
		samples_add(&quiet, longest(p, c, window_us, false));
		samples_add(&killed, longest(p, c, window_us, true));
	}
	report(name, what, &killed, &quiet, 50);
	report(worst, "the longest of all windows, of either", &killed, &quiet, 100);
	samples_deinit(&killed);
	samples_deinit(&quiet);
}

static void make_pool(const struct kept_broker *broker, share_client **c, share_pool **pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	must(share_connect(broker->socket, c), "share_connect");
	options.kind = "host";
	must(share_pool_create(*c, CROWD_POOL, &options, pool), "share_pool_create");
}

static void measure_all(const struct run *run, const struct kept_broker *broker, share_client *c)
{
	struct pauses *p = shared_memory(2 * sizeof(*p));
	pid_t one = start(produce, broker, &p[0]), other = start(consume, broker, &p[0]);

	measure(run, &p[0], c, "survival.pause.channel", "survival.pause.channel.worst",
		"longest time between two messages, with a kill; floor: without");
	stop(other);
	stop(one);
	one = start(allocate, broker, &p[1]);
	measure(run, &p[1], c, "survival.pause.alloc", "survival.pause.alloc.worst",
		"longest between two share_alloc + share_release, likewise");
	stop(one);
}

void survival_pause(const struct run *run)
{
	char config_path[] = "/tmp/share-bench-XXXXXX";
	struct kept_broker broker;
	struct worker holder;
	share_client *c;
	share_pool *pool;

	crowd_start(&holder, 1);
	crowd_write_config(config_path);
	kept_broker_start(&broker, NULL, config_path);
	make_pool(&broker, &c, &pool);
	crowd_connect(&holder, 1, c, 1);
	crowd_fill(&holder, 1, run->quick ? 1000 : 200000);
	measure_all(run, &broker, c);
	crowd_kill(&holder, 1);
	crowd_forget(&holder, 1);
	share_pool_close(pool);
	share_disconnect(c);
	kept_broker_stop(&broker);
	unlink(config_path);
}
