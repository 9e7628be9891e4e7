/* SPDX-License-Identifier: MIT */

/*
 * Floods: processes of other users that ask a broker for as much as they can. They do not use the
 * library, since it waits for each answer. On each connection one request is under way at any time,
 * and the next one is sent when it is answered.
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/load/flood.h"
#include "pages/timeline.h"
#include "wire/packet.h"

#define READY_AT_ONCE 64

static unsigned char packet[WIRE_PACKET_MAX];

struct visitor {
	int socket;
	struct timeline_page *page;
};

static int try_to_connect(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	must_system(s >= 0, "socket");
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(s, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return s;
	close(s);
	return -1;
}

/* Sends a request and receives the answer into @m, which refers to `packet`, and @fds. Returns
 * false when the broker has closed the connection. */
static bool ask(int socket, struct wire_message *m, struct fd_list *fds)
{
	static unsigned char out[WIRE_PACKET_MAX];
	size_t size = sizeof(packet);

	m->serial = 1;
	return packet_send(socket, out, wire_encode(m, out, sizeof(out)), NULL, 0, true) == 0 &&
	       packet_receive(socket, packet, &size, fds, true) == 0 &&
	       wire_decode(m, WIRE_TO_CLIENT, packet, size, fds->n) == 0;
}

static void must_ask(int socket, struct wire_message *m, enum wire_type type)
{
	struct fd_list fds;

	if (!ask(socket, m, &fds) || m->type != type) {
		errno = EPROTO;
		must_system(false, "a flood is refused");
	}
	fd_list_close(&fds);
}

static bool greet(struct visitor *v, const char *path)
{
	struct wire_message hello = {.type = WIRE_HELLO}, ready = {.type = WIRE_READY};
	struct fd_list fds;

	v->socket = try_to_connect(path, SOCK_SEQPACKET);
	if (v->socket < 0)
		return false;
	hello.hello.version = WIRE_VERSION;
	hello.hello.oldest = WIRE_VERSION_OLDEST;
	if (!ask(v->socket, &hello, &fds) || hello.type != WIRE_WELCOME ||
	    timeline_map(fds.fds[0], true, &v->page) < 0)
		return false;
	fd_list_close(&fds);
	return ask(v->socket, &ready, &fds) && ready.type == WIRE_DONE;
}

/* ------------------------------------------------------------------------------------------- */
/* Many connections that ask for the same all the time                                         */

static void send_for_ever(int *sockets, unsigned n, const void *out, size_t size,
			  _Atomic uint64_t *done)
{
	static unsigned char answer[WIRE_PACKET_MAX];
	struct epoll_event events[READY_AT_ONCE];
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	must_system(epoll >= 0 && size > 0, "epoll_create1");
	for (unsigned i = 0; i < n; i++) {
		struct epoll_event in = {.events = EPOLLIN, .data.fd = sockets[i]};

		must_system(epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[i], &in) == 0, "epoll_ctl");
		must_system(send(sockets[i], out, size, MSG_NOSIGNAL) == (ssize_t)size, "ask");
	}
	for (;;) {
		int k = epoll_wait(epoll, events, READY_AT_ONCE, -1);

		for (int i = 0; i < k; i++) {
			must_system(recv(events[i].data.fd, answer, sizeof(answer), 0) > 0,
				    "an answer");
			must_system(send(events[i].data.fd, out, size, MSG_NOSIGNAL) ==
					(ssize_t)size,
				    "ask again");
			(*done)++;
		}
	}
}

static void ask_for_ever(int *sockets, unsigned n, const struct wire_message *m,
			 _Atomic uint64_t *done)
{
	static unsigned char out[WIRE_PACKET_MAX];

	send_for_ever(sockets, n, out, wire_encode(m, out, sizeof(out)), done);
}

static uint64_t open_pool(int socket)
{
	struct wire_message m = {.type = WIRE_POOL_OPEN};

	m.pool_open.name = (struct wire_bytes){"default", 7};
	must_ask(socket, &m, WIRE_POOL);
	return m.pool.pool;
}

static uint64_t get_buffer(int socket)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = open_pool(socket);
	m.alloc.size = 4096;
	must_ask(socket, &m, WIRE_GRANT);
	return m.grant.buffer;
}

static void set_metadata(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	static char json[65536];
	struct wire_message m = {.type = WIRE_METADATA_SET, .serial = 1};
	struct visitor v;

	(void)f;
	memset(json, ' ', sizeof(json));
	memcpy(json, "[]", 2);
	must_system(greet(&v, path), "greet");
	m.metadata_set.buffer = get_buffer(v.socket);
	m.metadata_set.json = (struct wire_bytes){json, sizeof(json)};
	ask_for_ever(&v.socket, 1, &m, done);
}

static void ask_with_all(unsigned n, const char *path, const struct wire_message *m,
			 _Atomic uint64_t *done)
{
	int *sockets = calloc(n, sizeof(int));
	struct visitor v;

	must_system(sockets, "memory for sockets");
	for (unsigned i = 0; i < n; i++) {
		must_system(greet(&v, path), "greet");
		sockets[i] = v.socket;
	}
	ask_for_ever(sockets, n, m, done);
}

static void ping(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	ask_with_all(f->connections, path, &(struct wire_message){.type = WIRE_PING, .serial = 1},
		     done);
}

/* To a server that wants no greeting, and may have been started just now. */
static void connect_all(int *sockets, unsigned n, const char *path, int type)
{
	for (unsigned i = 0; i < n; i++)
		while ((sockets[i] = try_to_connect(path, type)) < 0)
			pause_us(1000);
}

static void ping_redis(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	int *sockets = calloc(f->connections, sizeof(int));

	must_system(sockets, "memory for sockets");
	connect_all(sockets, f->connections, path, SOCK_STREAM);
	send_for_ever(sockets, f->connections, "PING\r\n", 6, done);
}

static void ping_bare(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	const struct wire_message m = {.type = WIRE_PING, .serial = 1};
	int *sockets = calloc(f->connections, sizeof(int));

	must_system(sockets, "memory for sockets");
	connect_all(sockets, f->connections, path, SOCK_SEQPACKET);
	ask_for_ever(sockets, f->connections, &m, done);
}

static void query(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	struct wire_message m = {.type = WIRE_QUERY, .serial = 1};

	m.query.what = (struct wire_bytes){"clients", 7};
	ask_with_all(f->connections, path, &m, done);
}

/* Asks for memory of a pool that does not exist. */
static void ask_in_vain(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1};

	m.alloc.pool = 0x77777777;
	m.alloc.size = 1;
	ask_with_all(f->connections, path, &m, done);
}

/* ------------------------------------------------------------------------------------------- */
/* One connection after the other                                                              */

static void come_and_go(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	struct visitor v;

	(void)f;
	for (;;) {
		*done += greet(&v, path);
		timeline_unmap(v.page);
		v.page = NULL;
		close(v.socket);
	}
}

/* The broker closes each of these connections, and writes the reason to its log. */
static void talk_nonsense(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	char answer[1024];
	int s;

	(void)f;
	for (;;) {
		s = try_to_connect(path, SOCK_SEQPACKET);
		if (s < 0)
			continue;
		send(s, "nonsense", 8, MSG_NOSIGNAL);
		*done += recv(s, answer, sizeof(answer), 0) >= 0;
		close(s);
	}
}

/* If the kernel refuses the descriptors to the sender, nothing else happens. */
static void send_descriptors(const struct flood *f, const char *path, _Atomic uint64_t *done)
{
	int fds[WIRE_FDS_MAX];
	char answer[1024];
	int s;

	(void)f;
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (;;) {
		s = try_to_connect(path, SOCK_SEQPACKET);
		if (s < 0)
			continue;
		if (packet_send(s, "\6\0\0\0\1\0\0", 8, fds, WIRE_FDS_MAX, true) == 0)
			recv(s, answer, sizeof(answer), 0);
		(*done)++;
		close(s);
	}
}

/* ------------------------------------------------------------------------------------------- */

const struct flood floods[] = {
    {"ping.64", "64 connections that ping", ping, 64},
    {"ping.1000", "1000 connections that ping", ping, 1000},
    {"query", "64 connections that ask for the clients", query, 64},
    {"metadata", "metadata of 64 KiB, set again and again", set_metadata, 0},
    {"connect", "connecting and hanging up", come_and_go, 0},
    {"descriptors", "packets with descriptors", send_descriptors, 0},
    {"refused", "64 connections that ask in vain", ask_in_vain, 64},
    {"log", "nonsense, which the log tells of", talk_nonsense, 0},
};
const unsigned n_floods = sizeof(floods) / sizeof(floods[0]);
const struct flood flood_ping = {"ping", "connections that ping", ping, 0};
const struct flood flood_redis = {"redis", "connections that ping Redis", ping_redis, 0};
const struct flood flood_bare = {"bare", "connections that ping a loop", ping_bare, 0};

/* Floods of others have a lower priority, as the broker is to be measured and not the scheduler. */
static void become_other(uid_t uid)
{
	if (uid == geteuid())
		return;
	setpriority(PRIO_PROCESS, 0, 10);
	must_system(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
			setresuid(uid, uid, uid) == 0,
		    "become another user");
}

pid_t flood_start(const struct flood *f, const char *socket, uid_t uid, unsigned connections,
		  _Atomic uint64_t *done)
{
	struct flood mine = *f;
	pid_t pid;

	mine.connections = connections;
	*done = 0;
	pid = fork();
	must_system(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		become_other(uid);
		mine.step(&mine, socket, done);
		_exit(0);
	}
	while (*done == 0) {
		must_system(waitpid(pid, NULL, WNOHANG) == 0, "a flood has ended");
		pause_us(1000);
	}
	return pid;
}
