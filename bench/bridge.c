/* SPDX-License-Identifier: MIT */

/*
 * What a bridge costs: two brokers, two bridges on the loopback device, and this process as client
 * of both brokers, so one clock sees both ends.
 *
 * Throughput: buffers are published here, all at once, and waited for over there. Their pages were
 * used before, on both sides, as those of a program that has run for a while; ucx_perftest sends
 * the same memory again and again, too. The time ends when the last of them has been published over
 * there. Every byte is compared then, which is not measured.
 *
 * Latency: a message of 64 bytes through a channel that is mirrored, from share_send() to
 * share_recv(). Everybody sleeps until something comes, as ucx_perftest is told to.
 *
 * A bridge shares its processors with everybody. So it is also measured what it uses of them.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#include "bench/bench.h"
#include "bench/bridge.h"

#define POOL    "bench"
#define CHANNEL "bench/messages"
#define MIB     (UINT64_C(1) << 20)
#define BUFFERS 16 /* of 4 MiB, under way at a time */
#define MESSAGE 64
#define WAIT_MS 120000

struct side {
	share_client *client;
	share_pool *pool;
	pid_t bridge;
};

struct pair {
	struct side here, there;
	share_watch *watch;
	unsigned arrived; /* names, over there */
	char directory[PATH_MAX], key[PATH_MAX + 8], log[PATH_MAX + 8], program[PATH_MAX];
};

/* What is measured of buffers of one size. */
struct load {
	const char *name; /* of the figures: "4MiB" */
	uint64_t size;
	unsigned buffers; /* at a time */
	unsigned rounds;
	unsigned messages; /* of the floors, in a round */
	bool puts;         /* that floor, too: over TCP it takes minutes if they are large */
};

/* ------------------------------------------------------------------------------------------- */
/* Two brokers, two bridges                                                                    */

static bool find_bridge(char program[PATH_MAX])
{
	const char *said = getenv("SHARE_BRIDGE");
	ssize_t n;

	if (said) {
		snprintf(program, PATH_MAX, "%s", said);
		return access(program, X_OK) == 0;
	}
	n = readlink("/proc/self/exe", program, PATH_MAX - 16);
	must_system(n > 0, "/proc/self/exe");
	program[n] = '\0';
	snprintf(strrchr(program, '/'), 16, "/share-bridge");
	return access(program, X_OK) == 0;
}

static void make_key(struct pair *p)
{
	const char *tmp = getenv("TMPDIR");
	unsigned char bytes[64];
	int fd;

	snprintf(p->directory, sizeof(p->directory), "%s/share-bench-XXXXXX", tmp ? tmp : "/tmp");
	must_system(mkdtemp(p->directory), "mkdtemp");
	snprintf(p->key, sizeof(p->key), "%s/key", p->directory);
	snprintf(p->log, sizeof(p->log), "%s/log", p->directory);
	must_system(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)('a' + bytes[i] % 26);
	fd = open(p->key, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	must_system(fd >= 0 && write(fd, bytes, sizeof(bytes)) == sizeof(bytes), p->key);
	close(fd);
}

static void open_side(struct side *s, uint64_t room)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	must(share_connect("embedded", &s->client), "share_connect");
	options.kind = "host";
	options.limit = room;
	options.release_threshold = room;
	must(share_pool_create(s->client, POOL, &options, &s->pool), "share_pool_create");
}

static pid_t start_bridge(const struct pair *p, const struct side *s, const char *site,
			  const char *what, const char *where, const char *role)
{
	char names[32], channels[32];
	pid_t pid = fork();
	int log;

	must_system(pid >= 0, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* stdout is for figures, and UCX says there what it has to say */
	log = open(p->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0 || dup2(log, 1) != 1 || dup2(log, 2) != 2)
		_exit(127);
	snprintf(names, sizeof(names), "--%s", role);
	snprintf(channels, sizeof(channels), "--%s-channel", role);
	execl(p->program, "share-bridge", "--socket", share_address(s->client), "--site", site,
	      what, where, "--key", p->key, "--pool", POOL, names, "bench/*", channels, CHANNEL,
	      (char *)NULL);
	_exit(127);
}

static void on_change(const share_name_event *event, void *data)
{
	struct pair *p = data;

	if (event->change == SHARE_PUBLISHED || event->change == SHARE_REPLACED)
		p->arrived++;
	if (event->change == SHARE_OVERFLOW) {
		errno = EOVERFLOW;
		must_system(false, "changes were lost");
	}
}

static void must_live(const struct pair *p, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, WNOHANG) == 0)
		return;
	fprintf(stderr, "share-bench: a bridge has ended: status %#x; see %s\n", (unsigned)status,
		p->log);
	exit(1);
}

/* Until @n names have come over there since the last time. */
static void await(struct pair *p, unsigned n)
{
	struct pollfd fd = {.fd = share_get_fd(p->there.client), .events = POLLIN};
	double end = now_us() + WAIT_MS * 1e3;

	while (p->arrived < n) {
		int r = poll(&fd, 1, 1000);

		must_system(r >= 0 || errno == EINTR, "poll");
		must_live(p, p->here.bridge);
		must_live(p, p->there.bridge);
		errno = ETIMEDOUT;
		must_system(now_us() < end, "names that do not come over the bridges");
		r = share_dispatch(p->there.client);
		must(r < 0 ? r : 0, "share_dispatch");
	}
	p->arrived = 0;
}

static void open_pair(struct pair *p, uint64_t room)
{
	char where[32];
	share_buffer *b;

	make_key(p);
	open_side(&p->here, room);
	open_side(&p->there, 2 * room);
	must(share_watch_names(p->there.client, "bench/", on_change, p, &p->watch),
	     "share_watch_names");
	snprintf(where, sizeof(where), "127.0.0.1:%u", bridge_free_port());
	p->here.bridge = start_bridge(p, &p->here, "here", "--listen", where, "export");
	p->there.bridge = start_bridge(p, &p->there, "there", "--peer", where, "import");
	must(share_alloc(p->here.pool, MESSAGE, NULL, &b), "share_alloc");
	must(share_publish(b, "bench/first", NULL), "share_publish");
	must(share_release(b, NULL), "share_release");
	await(p, 1);
}

static void stop(pid_t pid)
{
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

static void close_pair(struct pair *p)
{
	stop(p->there.bridge);
	stop(p->here.bridge);
	share_unwatch(p->watch);
	share_pool_close(p->here.pool);
	share_pool_close(p->there.pool);
	share_disconnect(p->here.client);
	share_disconnect(p->there.client);
	unlink(p->key);
	unlink(p->log);
	rmdir(p->directory);
}

/* ------------------------------------------------------------------------------------------- */
/* Buffers                                                                                     */

/* Of a process that lives, in microseconds. */
static double processor_us(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	must_system(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0,
		    "the processor time of a bridge");
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double bridges_us(const struct pair *p)
{
	return processor_us(p->here.bridge) + processor_us(p->there.bridge);
}

static void fill(share_buffer *b, uint64_t seed)
{
	uint64_t *words = share_ptr(b);

	for (uint64_t i = 0; i < share_size(b) / sizeof(*words); i++)
		words[i] = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
}

static void must_equal(struct pair *p, const char *name, uint64_t seed, uint64_t size)
{
	const uint64_t *words;
	share_buffer *b;

	must(share_lookup(p->there.client, name, SHARE_RDONLY, 0, NULL, &b), "share_lookup");
	words = share_ptr(b);
	errno = EBADMSG;
	must_system(share_size(b) == size, "another size came over the bridges");
	for (uint64_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != (seed + i) * UINT64_C(0x9e3779b97f4a7c15))
			must_system(false, "another content came over the bridges");
	must(share_release(b, NULL), "share_release");
}

/* Publishes all buffers of a load anew, and waits until they have come. */
static struct bridge_cost send_round(struct pair *p, const struct load *l, share_buffer **buffers,
				     uint64_t seed)
{
	double begin, cpu;
	char name[64];

	for (unsigned i = 0; i < l->buffers; i++)
		fill(buffers[i], seed + i);
	cpu = bridges_us(p);
	begin = now_us();
	for (unsigned i = 0; i < l->buffers; i++) {
		snprintf(name, sizeof(name), "bench/%s/%u", l->name, i);
		must(share_publish(buffers[i], name, NULL), "share_publish");
	}
	await(p, l->buffers);
	begin = now_us() - begin;
	cpu = bridges_us(p) - cpu;
	for (unsigned i = 0; i < l->buffers; i++) {
		snprintf(name, sizeof(name), "bench/%s/%u", l->name, i);
		must_equal(p, name, seed + i, l->size);
	}
	return (struct bridge_cost){begin / l->buffers, cpu / l->buffers};
}

static void report(const char *load, const char *suffix, const char *what, const char *unit,
		   double value, double floor, double target)
{
	char name[64];

	snprintf(name, sizeof(name), "bridge.%s%s", load, suffix);
	figure_report(&(struct figure){name, what, unit, value, floor, target});
}

static double median_or_none(struct samples *s)
{
	double value = s->n > 0 ? samples_median(s) : NONE;

	samples_done(s);
	return value;
}

static void add(struct samples *s, double value)
{
	if (!isnan(value))
		samples_add(s, value);
}

/* On a busy machine it is faster when it sleeps, else when it polls. */
static double fastest(const char *test, uint64_t size, unsigned n)
{
	return fmin(bridge_perftest(test, size, n, false), bridge_perftest(test, size, n, true));
}

/* The ratio is one of times: what 0.9 times the throughput takes is 1.11 times the time. */
static void measure_load(struct pair *p, const struct load *l)
{
	struct samples own = {0}, own_cpu = {0}, am = {0}, put = {0}, tag = {0}, tcp = {0},
		       tcp_cpu = {0};
	share_buffer *buffers[BUFFERS];
	double value, kib = (double)l->size / 1024;
	char what[128];

	for (unsigned i = 0; i < l->buffers; i++)
		must(share_alloc(p->here.pool, l->size, NULL, &buffers[i]), "share_alloc");
	for (unsigned r = 0; r < 2; r++)
		send_round(p, l, buffers,
			   r); /* both versions that there are at a time have pages */
	for (unsigned r = 0; r < l->rounds; r++) {
		struct bridge_cost cost = send_round(p, l, buffers, 100 * (r + 1));
		struct bridge_cost floor = bridge_tcp(l->size, l->messages);

		add(&own, cost.us);
		add(&own_cpu, cost.cpu_us);
		add(&tcp, floor.us);
		add(&tcp_cpu, floor.cpu_us);
		add(&am, fastest("ucp_am_bw", l->size, l->messages));
		add(&tag, fastest("tag_bw", l->size, l->messages));
		if (r == 0 && l->puts)
			add(&put, fastest("ucp_put_bw", l->size, l->messages / 10 + 1));
	}
	for (unsigned i = 0; i < l->buffers; i++)
		must(share_release(buffers[i], NULL), "share_release");
	value = median_or_none(&own);
	snprintf(what, sizeof(what), "a buffer, published to published: %.0f MiB/s; ucp_am_bw",
		 (double)l->size / (double)MIB / value * 1e6);
	report(l->name, "", what, "us", value, median_or_none(&am), 1 / 0.9);
	report(l->name, ".tag", "the same; tag_bw", "us", value, median_or_none(&tag), NONE);
	if (l->puts)
		report(l->name, ".put", "the same; ucp_put_bw", "us", value, median_or_none(&put),
		       NONE);
	report(l->name, ".tcp", "the same; TCP from memfd to memfd", "us", value,
	       median_or_none(&tcp), NONE);
	report(l->name, ".cpu", "processor time for a KiB, both bridges; both ends of TCP", "ns",
	       median_or_none(&own_cpu) * 1e3 / kib, median_or_none(&tcp_cpu) * 1e3 / kib, NONE);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static double one_way(share_channel *out, share_channel *in)
{
	unsigned char data[MESSAGE] = {0};
	share_message m;
	double begin = now_us();

	must(share_send(out, NULL, data, sizeof(data), NULL), "share_send");
	must(share_recv(in, WAIT_MS, NULL, &m), "share_recv");
	begin = now_us() - begin;
	must(share_ack(&m, NULL), "share_ack");
	return begin;
}

/* The bridge makes it, when it has heard of the channel. */
static share_channel *open_mirror(struct pair *p)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	double end = now_us() + WAIT_MS * 1e3;
	share_channel *in;
	int r;

	options.flags = SHARE_CHANNEL_EXISTING;
	while ((r = share_channel_open(p->there.client, CHANNEL, SHARE_CONSUMER, &options, &in)) ==
		   SHARE_ENOENT &&
	       now_us() < end) {
		must_live(p, p->here.bridge);
		must_live(p, p->there.bridge);
		pause_us(10000);
	}
	must(r, "opening the mirror of a channel");
	return in;
}

static void measure_messages(struct pair *p, const struct run *run)
{
	unsigned rounds = run->quick ? 3 : 15, n = run->quick ? 200 : 2000;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct series own = {0};
	struct samples asleep = {0}, polls = {0}, cpu = {0};
	share_channel *out, *in;
	double value, before;

	options.pool = POOL;
	options.mode = SHARE_QUEUE; /* so the first message waits until the bridge has come */
	must(share_channel_open(p->here.client, CHANNEL, SHARE_PRODUCER, &options, &out),
	     "share_channel_open");
	in = open_mirror(p);
	for (unsigned i = 0; i < n; i++)
		one_way(out, in);
	for (unsigned r = 0; r < rounds; r++) {
		before = bridges_us(p);
		for (unsigned i = 0; i < n; i++)
			samples_add(&own.round, one_way(out, in));
		samples_add(&cpu, (bridges_us(p) - before) / n);
		series_end_round(&own);
		add(&asleep, bridge_perftest("ucp_am_lat", MESSAGE, n, true));
		add(&polls, bridge_perftest("ucp_am_lat", MESSAGE, n, false));
	}
	share_channel_close(in);
	share_channel_close(out);
	value = samples_median(&own.medians);
	report("message", "", "64 B, sent to received; ucp_am_lat asleep", "us", value,
	       median_or_none(&asleep), 1.5);
	report("message", ".polling", "the same; ucp_am_lat that polls", "us", value,
	       median_or_none(&polls), NONE);
	report("message", ".p99", "the same", "us", samples_median(&own.p99s), NONE, NONE);
	report("message", ".cpu", "processor time for a message, both bridges", "us",
	       median_or_none(&cpu), NONE, NONE);
	series_done(&own);
}

void bench_bridge(const struct run *run)
{
	const struct load small = {
	    "4MiB", 4 * MIB, BUFFERS, run->quick ? 3 : 15, run->quick ? 50 : 200, true};
	const struct load large = {run->quick ? "256MiB" : "1GiB",
				   (run->quick ? 256 : 1024) * MIB,
				   1,
				   run->quick ? 2 : 5,
				   run->quick ? 4 : 3,
				   !run->quick};
	struct pair p = {.arrived = 0};

	if (!find_bridge(p.program)) {
		fprintf(stderr, "bridge: SKIPPED: there is no share-bridge beside this program\n");
		return;
	}
	bridge_transport();
	if (isnan(bridge_perftest("ucp_am_lat", MESSAGE, 10, false)))
		fprintf(stderr,
			"bridge: there is no ucx_perftest (package ucx-utils) that works: its "
			"figures are missing\n");
	open_pair(&p, 2 * large.size);
	measure_load(&p, &small);
	measure_load(&p, &large);
	measure_messages(&p, run);
	close_pair(&p);
}
