/* SPDX-License-Identifier: MIT */

/*
 * The floors of bridges. ucx_perftest is what UCX measures itself with: the same transport, the
 * same engine, and memory that was registered before. Its server ends with its client.
 */

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/bridge/bridge.h"

#define MIB      1048576.0
#define ATTEMPTS 500 /* of a client to reach a server that was just started */

void bridge_transport(void)
{
	if (!getenv("UCX_TLS"))
		must_system(setenv("UCX_TLS", "tcp", 1) == 0 &&
				setenv("UCX_NET_DEVICES", "lo", 0) == 0,
			    "setenv");
}

int bridge_reserve_port(unsigned *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
	socklen_t size = sizeof(address);

	must_system(s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
			bind(s, (struct sockaddr *)&address, size) == 0 &&
			getsockname(s, (struct sockaddr *)&address, &size) == 0,
		    "a port of the loopback device");
	*port = ntohs(address.sin_port);
	return s;
}

static int listen_anywhere(unsigned *port)
{
	int s = bridge_reserve_port(port);

	must_system(listen(s, 1) == 0, "listen at the loopback device");
	return s;
}

/* ------------------------------------------------------------------------------------------- */
/* ucx_perftest                                                                                */

/* @out: its stdout, or -1 for nowhere; ends with this process */
static pid_t start(const char *const argv[], int out)
{
	pid_t pid = fork();
	int nowhere;

	must_system(pid >= 0, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	nowhere = open("/dev/null", O_RDWR);
	if (dup2(out < 0 ? nowhere : out, 1) == 1 && dup2(nowhere, 2) == 2)
		execvp(argv[0], (char *const *)(uintptr_t)argv); /* which does not write there */
	_exit(127);
}

/* Returns the number that is the sixth in the last line: megabytes (of 2^20 bytes) a second or, in
 * a test of latency, the fourth: microseconds. */
static double read_figure(int from, bool latency)
{
	char text[4096];
	size_t n = 0;
	ssize_t got;
	double v[6];
	char *last;

	while (n < sizeof(text) - 1 && (got = read(from, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	last = strrchr(text, '\n');
	if (sscanf(last ? last + 1 : text, "%lf,%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5]) != 6)
		return NONE;
	return latency ? v[3] : v[5];
}

/* The server may not listen yet, and then the client fails. */
static double ask_server(const char *const client[], pid_t server, bool latency)
{
	double figure = NONE;

	for (int i = 0; i < ATTEMPTS && isnan(figure); i++) {
		int ends[2], status;
		pid_t pid;

		if (waitpid(server, &status, WNOHANG) != 0)
			return NONE; /* it does not know the test, or is not there at all */
		must_system(pipe2(ends, O_CLOEXEC) == 0, "pipe");
		pid = start(client, ends[1]);
		close(ends[1]);
		figure = read_figure(ends[0], latency);
		close(ends[0]);
		must_system(waitpid(pid, &status, 0) == pid, "waiting for ucx_perftest");
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			figure = NONE;
		if (isnan(figure))
			pause_us(10000);
	}
	return figure;
}

double bridge_perftest(const char *memory, const char *test, uint64_t size, unsigned n,
		       unsigned how)
{
	char port[16], bytes[32], times[16], warm[16], name[32];
	bool latency = strstr(test, "_lat") != NULL;
	const char *const server[] = {"ucx_perftest", "-p", port, NULL};
	const char *client[] = {
	    "ucx_perftest", "127.0.0.1", "-p", port,
	    "-t",           name,        "-s", bytes,
	    "-n",           times,       "-w", warm,
	    "-f",           "-v",        "-E", how & BRIDGE_ASLEEP ? "sleep" : "poll",
	    NULL,           NULL,        NULL, NULL};
	size_t last = 0;
	unsigned number;
	double figure;
	pid_t pid;
	int reserved = bridge_reserve_port(&number);

	snprintf(port, sizeof(port), "%u", number);
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)size);
	snprintf(times, sizeof(times), "%u", n);
	snprintf(warm, sizeof(warm), "%u", n / 10 + 1);
	snprintf(name, sizeof(name), "%s", test);
	while (client[last])
		last++;
	if (how & BRIDGE_ERRORS)
		client[last++] = "-e";
	if (memory) {
		client[last++] = "-m";
		client[last++] = memory;
	}
	pid = start(server, -1);
	figure = ask_server(client, pid, latency);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(reserved);
	return latency || isnan(figure) ? figure : (double)size / MIB / figure * 1e6;
}

/* ------------------------------------------------------------------------------------------- */
/* TCP                                                                                         */

static char *map(uint64_t size)
{
	int fd = memfd_create("share-bench", MFD_CLOEXEC);
	char *p;

	must_system(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "memfd");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must_system(p != MAP_FAILED, "mmap");
	close(fd);
	memset(p, 1, size); /* its pages are there, as those of a pool that was used before */
	return p;
}

static void send_all(int s, const char *p, uint64_t size)
{
	while (size > 0) {
		ssize_t n = send(s, p, size, MSG_NOSIGNAL);

		must_system(n > 0, "send");
		p += n;
		size -= (uint64_t)n;
	}
}

static void receive_all(int s, char *p, uint64_t size)
{
	while (size > 0) {
		ssize_t n = recv(s, p, size, MSG_WAITALL);

		must_system(n > 0, "recv");
		p += n;
		size -= (uint64_t)n;
	}
}

/* The other side: receives, and tells at the end what that has cost it. */
static void receive_and_tell(int listener, uint64_t size, unsigned n)
{
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char *to = map(size);
	double cost;

	must_system(s >= 0, "accept");
	send_all(s, "", 1); /* it is ready */
	cost = processor_us(0);
	for (unsigned i = 0; i < n; i++)
		receive_all(s, to, size);
	cost = processor_us(0) - cost;
	send_all(s, (const char *)&cost, sizeof(cost));
	_exit(0);
}

struct bridge_cost bridge_tcp(uint64_t size, unsigned n)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct bridge_cost cost;
	double theirs, begin;
	unsigned port;
	int listener = listen_anywhere(&port);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *from, ready;
	pid_t pid = fork();

	must_system(s >= 0 && pid >= 0, "fork");
	if (pid == 0)
		receive_and_tell(listener, size, n);
	address.sin_port = htons((uint16_t)port);
	must_system(connect(s, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	close(listener);
	from = map(size);
	receive_all(s, &ready, 1);
	cost.cpu_us = processor_us(0);
	begin = now_us();
	for (unsigned i = 0; i < n; i++)
		send_all(s, from, size);
	receive_all(s, (char *)&theirs, sizeof(theirs));
	cost.us = (now_us() - begin) / n;
	cost.cpu_us = (processor_us(0) - cost.cpu_us + theirs) / n;
	close(s);
	munmap(from, size);
	must_system(waitpid(pid, NULL, 0) == pid, "waiting for the other side");
	return cost;
}
