/* SPDX-License-Identifier: MIT */

/*
 * How many requests a second the broker answers when many ask at once: 32 connections, on each of
 * which a ping is under way at any time. The floor is a Redis server, which is one thread with one
 * event loop as well, and is asked the same ("PING") by the same processes over a Unix socket. The
 * other floor is a loop that does nothing but receive and send packets of these sizes. The three
 * are asked in turns; who is not asked sleeps.
 *
 * The server has the first core for itself, where there are two, and those who ask have the others.
 * Of what a machine does else, the time that a server itself runs for each request says most.
 */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/load/flood.h"
#include "bench/load/kept_broker.h"

#define CONNECTIONS 32
#define ASKERS      4 /* processes */

struct server {
	pid_t pid;
	pid_t askers[ASKERS];
	_Atomic uint64_t *done;    /* of each of these */
	struct samples us, cpu_us; /* for a request */
};

static void signal_askers(const struct server *s, int signal)
{
	for (int i = 0; i < ASKERS; i++)
		kill(s->askers[i], signal);
}

static void start_askers(struct server *s, const struct flood *f, const char *socket)
{
	s->done = mmap(NULL, ASKERS * sizeof(*s->done), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must_system(s->done != MAP_FAILED, "mmap");
	for (int i = 0; i < ASKERS; i++)
		s->askers[i] = flood_start(f, socket, geteuid(), CONNECTIONS / ASKERS, &s->done[i]);
	signal_askers(s, SIGSTOP);
}

static void end_askers(struct server *s)
{
	signal_askers(s, SIGKILL);
	for (int i = 0; i < ASKERS; i++)
		waitpid(s->askers[i], NULL, 0);
	samples_deinit(&s->us);
	samples_deinit(&s->cpu_us);
}

/* Where there is one core, all are on it. */
static void place_apart(const struct server *s)
{
	cpu_set_t all, first, rest;
	int cpu = 0;

	CPU_ZERO(&first);
	must_system(sched_getaffinity(0, sizeof(all), &all) == 0, "sched_getaffinity");
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_SET(cpu, &first);
	CPU_XOR(&rest, &all, &first);
	if (CPU_COUNT(&rest) == 0)
		return;
	must_system(sched_setaffinity(s->pid, sizeof(first), &first) == 0, "place a server");
	for (int i = 0; i < ASKERS; i++)
		sched_setaffinity(s->askers[i], sizeof(rest), &rest);
}

/* ------------------------------------------------------------------------------------------- */

static uint64_t done_by_all(const struct server *s)
{
	uint64_t n = 0;

	for (int i = 0; i < ASKERS; i++)
		n += s->done[i];
	return n;
}

/* Where processors do something else for a while, a turn takes longer: until the server has run,
 * and some requests were answered. */
static void play(struct server *s, long us)
{
	double began, before_us, ran, took;
	uint64_t before, n;

	signal_askers(s, SIGCONT);
	pause_us(us / 10);
	before = done_by_all(s);
	began = now_us();
	before_us = processor_us(s->pid);
	do {
		pause_us(us);
		took = now_us() - began;
		n = done_by_all(s) - before;
		ran = processor_us(s->pid) - before_us;
	} while ((n == 0 || ran <= 0) && took < HANGS_MS * 1e3);
	signal_askers(s, SIGSTOP);
	errno = ETIMEDOUT;
	must_system(n > 0, "a server that answers");
	samples_add(&s->us, took / (double)n);
	samples_add(&s->cpu_us, ran / (double)n);
}

/* ------------------------------------------------------------------------------------------- */

/* Where clients of a floor connect. */
static void folder_make(char folder[32], char socket[64])
{
	strcpy(folder, "/tmp/share-bench-XXXXXX");
	must_system(mkdtemp(folder), "mkdtemp");
	snprintf(socket, 64, "%s/socket", folder);
}

struct redis {
	char folder[32], socket[64];
	pid_t pid;
};

static void redis_end(const struct redis *r)
{
	kill(r->pid, SIGTERM);
	waitpid(r->pid, NULL, 0);
}

/* Returns false if there is none. Nobody else can reach it, and it writes nothing. */
static bool redis_start(struct redis *r)
{
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	bool ended = false;

	folder_make(r->folder, r->socket);
	r->pid = fork();
	must_system(r->pid >= 0, "fork");
	if (r->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid(); /* as brokers have; see ping_pong_start() */
		dup2(nowhere, STDOUT_FILENO);
		dup2(nowhere, STDERR_FILENO);
		execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", r->socket,
		       "--save", "", "--appendonly", "no", (char *)NULL);
		_exit(127);
	}
	close(nowhere);
	for (int i = 0; i < HANGS_MS && !ended && access(r->socket, F_OK) < 0; i++) {
		ended = waitpid(r->pid, NULL, WNOHANG) != 0;
		pause_us(1000);
	}
	if (!ended && access(r->socket, F_OK) == 0)
		return true;
	if (!ended)
		redis_end(r);
	rmdir(r->folder);
	return false;
}

static void redis_stop(const struct redis *r)
{
	redis_end(r);
	unlink(r->socket);
	rmdir(r->folder);
}

/* ------------------------------------------------------------------------------------------- */

/* Answers whatever comes by a packet of @reply bytes. */
static void serve_bare(int listener, size_t reply)
{
	static unsigned char packet[1024];
	struct epoll_event events[CONNECTIONS], in = {.events = EPOLLIN, .data.fd = listener};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	must_system(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &in) == 0, "epoll");
	for (;;) {
		int n = epoll_wait(epoll, events, CONNECTIONS, -1);

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == listener) {
				in.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
				must_system(in.data.fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD,
									 in.data.fd, &in) == 0,
					    "accept");
			} else if (recv(fd, packet, sizeof(packet), 0) <= 0) {
				close(fd);
			} else {
				send(fd, packet, reply, MSG_NOSIGNAL);
			}
		}
	}
}

static pid_t bare_start(const char *path)
{
	const struct wire_message done = {.type = WIRE_DONE, .serial = 1};
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pid_t pid;

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	must_system(s >= 0 && bind(s, (struct sockaddr *)&address, sizeof(address)) == 0 &&
			listen(s, CONNECTIONS) == 0,
		    "listen");
	pid = fork();
	must_system(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid(); /* as brokers have; see ping_pong_start() */
		serve_bare(s, packet_size(&done));
	}
	close(s);
	return pid;
}

static void bare_stop(pid_t pid, const char *folder, const char *socket)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(socket);
	rmdir(folder);
}

/* ------------------------------------------------------------------------------------------- */

/* @redis: NULL without one. Redis is to be asked a fifth more than it can answer. */
static void report(struct server *ours, struct server *redis, struct server *bare)
{
	double us = samples_median(&ours->us);
	double floor = redis ? samples_median(&redis->us) : NONE;
	double cpu_us = samples_median(&ours->cpu_us);

	figure_report(&(struct figure){"requests.ping", "a ping, 32 clients that ask all the time",
				       "us", us, floor, redis ? 1 / 1.2 : NONE});
	figure_report(&(struct figure){"requests.ping.rate", "the same, pings a second", "/s",
				       1e6 / us, 1e6 / floor, NONE});
	figure_report(&(struct figure){"requests.ping.cpu", "what the server runs for a ping", "us",
				       cpu_us, redis ? samples_median(&redis->cpu_us) : NONE,
				       NONE});
	figure_report(&(struct figure){"requests.ping.bare",
				       "a ping; floor: a loop that receives and sends", "us", us,
				       samples_median(&bare->us), 1.5});
	figure_report(&(struct figure){"requests.ping.bare.cpu",
				       "what the server runs for a ping; the same floor", "us",
				       cpu_us, samples_median(&bare->cpu_us), NONE});
}

void bench_requests(const struct run *run)
{
	int rounds = run->quick ? 5 : 21;
	long us = run->quick ? 100000 : 300000;
	struct server ours = {0}, theirs = {0}, bare = {0};
	char folder[32], socket[64];
	struct kept_broker broker;
	struct redis redis;
	bool has_redis = redis_start(&redis);
	share_client *c;

	if (!has_redis)
		fprintf(stderr,
			"share-bench: requests: SKIPPED against Redis: there is no "
			"redis-server (package redis-server) that works\n");
	kept_broker_start(&broker, NULL, NULL);
	must(share_connect(broker.socket, &c), "share_connect");
	ours.pid = kept_broker_serving(c);
	share_disconnect(c);
	start_askers(&ours, &flood_ping, broker.socket);
	place_apart(&ours);
	if (has_redis) {
		theirs.pid = redis.pid;
		start_askers(&theirs, &flood_redis, redis.socket);
		place_apart(&theirs);
	}
	folder_make(folder, socket);
	bare.pid = bare_start(socket);
	start_askers(&bare, &flood_bare, socket);
	place_apart(&bare);
	for (int i = 0; i < rounds; i++) {
		play(&ours, us);
		play(&bare, us);
		if (has_redis)
			play(&theirs, us);
	}
	report(&ours, has_redis ? &theirs : NULL, &bare);
	end_askers(&ours);
	kept_broker_stop(&broker);
	end_askers(&bare);
	bare_stop(bare.pid, folder, socket);
	if (has_redis) {
		end_askers(&theirs);
		redis_stop(&redis);
	}
}
