/* SPDX-License-Identifier: MIT */

/*
 * How other users who flood the broker slow down a user who asks for little: the latencies of the
 * quiet user beside each kind of flood (flood.c), by one user and by three, compared with those
 * without a flood. Both are measured by turns in one run: the flood is stopped and continued. The
 * broker has a core of its own, and all other processes share the rest, so that the scheduler does
 * not decide the result.
 *
 * Users are uids, so this needs root.
 */

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#include "bench/bench.h"
#include "bench/load/flood.h"

#define FIRST_UID   54000
#define USERS       3
#define THINKS_US   200 /* how long the quiet user waits between two operations */
#define SETTLES_US  20000
#define DESCRIPTORS 16384

struct scene {
	char directory[32];
	char socket[64], config[64];
	pid_t broker;
	share_client *client, *other;
	share_pool *pool;
	share_buffer *shown;
	pid_t floods[USERS];
	unsigned n_floods;
	_Atomic uint64_t *done; /* requests done, of each flood */
};

/* ------------------------------------------------------------------------------------------- */

static void write_config(struct scene *s)
{
	FILE *f;

	strcpy(s->directory, "/tmp/share-bench-XXXXXX");
	must_system(mkdtemp(s->directory) && chmod(s->directory, 0755) == 0, "make a directory");
	snprintf(s->socket, sizeof(s->socket), "%s/socket", s->directory);
	snprintf(s->config, sizeof(s->config), "%s/config", s->directory);
	f = fopen(s->config, "w");
	must_system(f, "write a configuration");
	fputs(
	    "{\"socket_mode\": \"0666\", \"limits\": {\"connections\": 4096}, \"pools\": "
	    "[{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\", \"access\": "
	    "[{\"user\": \"*\", \"mode\": \"rw\"}]}]}\n",
	    f);
	must_system(fclose(f) == 0, "write a configuration");
}

static void __attribute__((noreturn)) become_broker(const struct scene *s)
{
	const struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
	const char *given = getenv("SHARE_BROKER");
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	must_system(n > 0, "find the broker");
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/share-broker");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_NOFILE, &limit);
	must_system(freopen("/dev/null", "w", stderr), "/dev/null");
	execl(given ? given : path, "share-broker", "--config", s->config, "--socket", s->socket,
	      (char *)NULL);
	_exit(127);
}

static void connect_both(struct scene *s)
{
	int r = -1;

	for (int i = 0; r != 0 && i < HANGS_MS; i++) {
		r = share_connect(s->socket, &s->client);
		must_system(waitpid(s->broker, NULL, WNOHANG) == 0, "the broker has ended");
		if (r != 0)
			pause_us(1000);
	}
	must(r, "share_connect");
	must(share_connect(s->socket, &s->other), "share_connect");
	must(share_pool_open(s->client, "default", &s->pool), "share_pool_open");
	must(share_alloc(s->pool, 4096, NULL, &s->shown), "share_alloc");
	must(share_publish(s->shown, "bench/shown", NULL), "share_publish");
}

/* Gives the broker the first core, and all other processes the others. */
static void share_cores(const struct scene *s)
{
	int n = (int)sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t first, others;

	if (n < 2)
		return;
	CPU_ZERO(&first);
	CPU_ZERO(&others);
	CPU_SET(0, &first);
	for (int i = 1; i < n; i++)
		CPU_SET(i, &others);
	sched_setaffinity(s->broker, sizeof(first), &first);
	sched_setaffinity(0, sizeof(others), &others);
}

static void open_scene(struct scene *s)
{
	write_config(s);
	s->done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must_system(s->done != MAP_FAILED, "mmap");
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){DESCRIPTORS, DESCRIPTORS});
	fflush(stdout);
	s->broker = fork();
	must_system(s->broker >= 0, "fork");
	if (s->broker == 0)
		become_broker(s);
	connect_both(s);
	share_cores(s);
}

static void close_scene(struct scene *s)
{
	share_disconnect(s->client);
	share_disconnect(s->other);
	kill(s->broker, SIGTERM);
	waitpid(s->broker, NULL, 0);
	unlink(s->config);
	unlink(s->socket);
	rmdir(s->directory);
}

/* ------------------------------------------------------------------------------------------- */
/* What the quiet user does                                                                    */

static void alloc(struct scene *s)
{
	share_buffer *b;

	must(share_alloc(s->pool, 4096, NULL, &b), "share_alloc");
	must(share_release(b, NULL), "share_release");
}

static void publish(struct scene *s)
{
	must(share_publish(s->shown, "bench/new", NULL), "share_publish");
	must(share_unpublish(s->client, "bench/new"), "share_unpublish");
}

static void look_up(struct scene *s)
{
	share_buffer *b;

	must(share_lookup(s->other, "bench/shown", SHARE_RDONLY, 0, NULL, &b), "share_lookup");
	must(share_release(b, NULL), "share_release");
}

/* Opens a channel and sends its first message. */
static void first_message(struct scene *s)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *in, *out;
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	must(share_channel_open(s->other, "bench/channel", SHARE_CONSUMER, &options, &in),
	     "open a consumer");
	must(share_channel_open(s->client, "bench/channel", SHARE_PRODUCER, &options, &out),
	     "open a producer");
	must(share_alloc(s->pool, 4096, NULL, &b), "share_alloc");
	must(share_give(out, b, NULL, 0, NULL), "share_give");
	must(share_recv(in, -1, NULL, &m), "share_recv");
	must(share_ack(&m, NULL), "share_ack");
	share_channel_close(out);
	share_channel_close(in);
}

static const struct act {
	const char *name;
	void (*step)(struct scene *s);
} acts[] = {
    {"alloc", alloc}, {"publish", publish}, {"lookup", look_up}, {"message", first_message}};

#define N_ACTS (sizeof(acts) / sizeof(acts[0]))

static void measure(struct scene *s, struct series *out, unsigned n)
{
	for (unsigned a = 0; a < N_ACTS; a++) {
		for (unsigned i = 0; i < n; i++) {
			double start = now_us();

			acts[a].step(s);
			samples_add(&out[a].round, now_us() - start);
			pause_us(THINKS_US);
		}
		series_end_round(&out[a]);
	}
}

static void signal_floods(const struct scene *s, int signal)
{
	for (unsigned i = 0; i < s->n_floods; i++)
		kill(s->floods[i], signal);
	pause_us(SETTLES_US);
}

static uint64_t done_by_all(const struct scene *s)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->n_floods; i++)
		n += s->done[i];
	return n;
}

static void report(const struct flood *f, unsigned users, struct series *flooded,
		   struct series *quiet, double rate)
{
	char name[64], what[128];

	for (unsigned a = 0; a < N_ACTS; a++) {
		snprintf(name, sizeof(name), "fairness.%s.%u.%s", f->name, users, acts[a].name);
		snprintf(what, sizeof(what), "%s beside %s, %u user%s (%.0f/s)", acts[a].name,
			 f->words, users, users == 1 ? "" : "s", rate);
		series_report(&flooded[a], &quiet[a],
			      &(struct figure){name, what, "us", NONE, NONE, 3}, 3);
		series_deinit(&flooded[a]);
		series_deinit(&quiet[a]);
	}
}

static void compare(struct scene *s, const struct flood *f, unsigned users, const struct run *run)
{
	unsigned rounds = run->quick ? 3 : 9, n = run->quick ? 100 : 300;
	struct series flooded[N_ACTS] = {0}, quiet[N_ACTS] = {0};
	double began, lasted = 0;
	uint64_t done = 0;

	s->n_floods = 0;
	for (unsigned i = 0; i < users; i++, s->n_floods++)
		s->floods[i] =
		    flood_start(f, s->socket, FIRST_UID + i, f->connections / users, &s->done[i]);
	for (unsigned i = 0; i < rounds; i++) {
		signal_floods(s, SIGSTOP);
		measure(s, quiet, n);
		signal_floods(s, SIGCONT);
		began = now_us();
		done -= done_by_all(s);
		measure(s, flooded, n);
		done += done_by_all(s);
		lasted += now_us() - began;
	}
	for (unsigned i = 0; i < users; i++) {
		must_system(waitpid(s->floods[i], NULL, WNOHANG) == 0, "a flood has ended");
		kill(s->floods[i], SIGKILL);
		waitpid(s->floods[i], NULL, 0);
	}
	report(f, users, flooded, quiet, (double)done / lasted * 1e6);
	while (broker_number(s->client, "clients") > 2)
		pause_us(SETTLES_US);
}

void bench_fairness(const struct run *run)
{
	struct scene s = {.n_floods = 0};

	if (geteuid() != 0) {
		fprintf(stderr,
			"share-bench: fairness: skipped: users are uids, and only root can "
			"start processes of several\n");
		return;
	}
	open_scene(&s);
	for (unsigned i = 0; i < n_floods; i++) {
		compare(&s, &floods[i], 1, run);
		compare(&s, &floods[i], USERS, run);
	}
	close_scene(&s);
}
