/* SPDX-License-Identifier: MIT */

/*
 * Connecting: where the broker is found, how it is greeted, and what the program wants; and
 * disconnecting.
 *
 * A program may run with more rights than who has started it (setuid, setgid, capabilities of its
 * file). The environment is then a stranger's, who must not say which broker the program trusts nor
 * which program it starts. So the library reads the environment by secure_getenv() alone, and
 * starts no private broker there.
 */

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/failure.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"
#include "libshare/program/embedded.h"
#include "libshare/program/range.h"
#include "libshare/program/struct.h"

#define ADVICE        "; start share-broker, or run the program under share-run"
#define ATTEMPTS_MAX  8 /* none of them waits: a socket whose broker is to come queues */
#define SYSTEM_SOCKET "/run/share/broker.sock"

/* How long connect() may wait for room among those whom the broker has yet to accept. */
static void limit_connect(int fd, int64_t deadline)
{
	int left = deadline_left(deadline);
	struct timeval time = {left / 1000, left % 1000 * 1000L};

	if (left == 0) /* which would mean no limit */
		time.tv_usec = 1;
	if (left >= 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

static int fail_to_connect(const char *path, int error)
{
	struct stat st;

	if (error == EACCES)
		return fail(SHARE_EACCES, "%s: %s", path, strerror(error));
	if (error == EAGAIN)
		return fail(
		    SHARE_ETIMEDOUT,
		    "the broker at %s accepts nobody, and thousands wait to be: it hangs; ps -C "
		    "share-keeper,share-broker shows its processes",
		    path);
	if (error == ECONNREFUSED && stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return fail(SHARE_ENOBROKER, "no broker answers at %s, which is no socket", path);
	return fail(SHARE_ENOBROKER, "no broker answers at %s (%s)%s" ADVICE, path, strerror(error),
		    strchr(path, '/') ? ""
				      : ", which is a path; \"embedded\" is a broker of one's own");
}

static int connect_socket(const char *path, int64_t deadline, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = -1;

	if (strlen(path) >= sizeof(address.sun_path))
		return fail(SHARE_EINVAL, "%s: the path of a socket has at most %zu bytes", path,
			    sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_system(-errno, "socket");
	for (;;) {
		limit_connect(fd, deadline);
		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
			break;
		if (errno != EINTR)
			return fail_to_connect(path, errno);
	}
	*out = fd;
	fd = -1;
	return 0;
}

/* The usual places, when no address is given. */
static int find_broker(const char *address, int64_t deadline, int *socket, char **path)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char user[PATH_MAX] = "";
	const char *place = address;
	int r;

	if (!address && runtime) {
		snprintf(user, sizeof(user), "%s/share/broker.sock", runtime);
		place = user;
	} else if (!address) {
		place = SYSTEM_SOCKET;
	}
	r = connect_socket(place, deadline, socket);
	if (r != 0 && r != SHARE_ETIMEDOUT && place == user) {
		place = SYSTEM_SOCKET;
		r = connect_socket(place, deadline, socket);
		if (r == SHARE_ENOBROKER)
			r = fail(r, "no broker answers at %s or %s" ADVICE, user, place);
	}
	if (r != 0)
		return r;
	*path = strdup(place);
	return *path ? 0 : fail_system(-ENOMEM, "connecting");
}

static int start_embedded(share_client *c, const share_connect_options *options)
{
	int r;

	if (getauxval(AT_SECURE))
		return fail(SHARE_EACCES,
			    "a program with more rights than who has started it (setuid, setgid, "
			    "capabilities of its file) starts no private broker, which would have "
			    "these rights as well; give it the socket of a broker that runs");
	r = embedded_start(options->config, &c->connection->embedded);
	if (r != 0)
		return r;
	c->connection->address = strdup(embedded_address(c->connection->embedded));
	if (!c->connection->address)
		return fail_system(-ENOMEM, "connecting");
	return connect_socket(c->connection->address, c->connection->answer_by,
			      &c->connection->socket);
}

static int greet(share_client *c, const share_connect_options *options)
{
	const char *label = options->label ? options->label : program_invocation_short_name;
	struct wire_message hello = {.type = WIRE_HELLO}, ready = {.type = WIRE_READY};
	_cleanup_reply_ struct reply welcome;
	_cleanup_fd_ int fd = -1;
	int r, error;

	hello.hello.version = WIRE_VERSION;
	hello.hello.oldest = WIRE_VERSION_OLDEST;
	hello.hello.label = (struct wire_bytes){label, (uint32_t)strnlen(label, SHARE_LABEL_MAX)};
	if (options->flags & SHARE_CONNECT_OPERATOR)
		hello.hello.flags |= WIRE_HELLO_OPERATOR;
	r = rpc(c, &hello, &welcome);
	if (r != 0)
		return r;
	if (welcome.m.welcome.slots != TIMELINE_SLOTS)
		return fail(SHARE_EPROTO, "the broker has another layout of timelines");
	fd = fd_list_take(&welcome.fds, 0);
	error = timeline_map(fd, true, &c->page);
	if (error < 0)
		return fail_system(error, "mapping the timelines");
	c->page_id = welcome.m.welcome.page;
	c->page_file = timeline_file(fd);
	c->version = welcome.m.welcome.version;
	return rpc(c, &ready, NULL);
}

static int begin(share_client *c, const share_connect_options *options)
{
	int r = 0;

	for (size_t i = 0; r == 0 && client_rooms[i]; i++)
		if (client_rooms[i]->begin)
			r = client_rooms[i]->begin(c, options);
	return r;
}

static int reach_broker(share_client *c, const char *address, const share_connect_options *options)
{
	if (!address || !*address)
		address = secure_getenv("SHARE_SOCKET");
	if (address && !*address)
		address = NULL;
	if (address && strcmp(address, "embedded") == 0)
		return start_embedded(c, options);
	return find_broker(address, c->connection->answer_by, &c->connection->socket,
			   &c->connection->address);
}

static int in_int(int64_t ms)
{
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* @again: it was hung up without a word, and the socket is somebody else's than a private
 * broker's. */
static int connect_once(const char *address, const share_connect_options *options, int64_t deadline,
			bool *again, share_client **out)
{
	char file[FAILURE_LIMIT_TEXT], addresses[FAILURE_LIMIT_TEXT];
	share_client *c = client_new();
	int r;

	*again = false;
	if (!c)
		return fail_system(-ENOMEM, "connecting");
	c->connection->answer_by = deadline;
	r = begin(c, options);
	if (r == 0)
		r = reach_broker(c, address, options);
	if (r == 0)
		r = greet(c, options);
	if (c->connection->embedded && (r == SHARE_EDISCONNECTED || r == SHARE_ENOBROKER))
		r = fail(SHARE_ENOBROKER,
			 "the private broker ended before it served; its reason is on stderr%s%s",
			 failure_limit(EFBIG, file), failure_limit(ENOMEM, addresses));
	else if (r == SHARE_EDISCONNECTED && c->connection->lost_error)
		r = c->connection->lost_error; /* refused, with the reason in the detail */
	else
		*again = r == SHARE_EDISCONNECTED && c->connection->hung_up;
	c->connection->answer_by = -1;
	if (options->flags & SHARE_CONNECT_OPERATOR && options->timeout_ms > 0)
		c->connection->patience_ms = in_int(options->timeout_ms);
	if (r == 0)
		*out = c;
	else
		client_free(c);
	return r;
}

int share_connect_with(const char *address, const share_connect_options *options,
		       share_client **out)
{
	RANGE("share_connect", 0);
	share_connect_options o;
	share_client *c = NULL;
	int64_t deadline = -1;
	int attempts = 0, r;
	bool again;

	if (!out)
		return fail(SHARE_EINVAL, "out is NULL");
	if (struct_in(share_connect_options, &o, options) != 0)
		return SHARE_EINVAL;
	if (o.flags & ~(uint32_t)(SHARE_CONNECT_HOST_FENCES | SHARE_CONNECT_NEVER_BLOCK |
				  SHARE_CONNECT_OPERATOR))
		return fail(SHARE_EINVAL, "unknown flags 0x%x", o.flags);
	if (o.label && strlen(o.label) > SHARE_LABEL_MAX)
		return fail(SHARE_EINVAL, "a label has at most %d bytes", SHARE_LABEL_MAX);
	if (o.timeout_ms < -1)
		return fail(SHARE_EINVAL, "%lld ms is no time limit", (long long)o.timeout_ms);
	if (o.timeout_ms >= 0)
		deadline = deadline_from(in_int(o.timeout_ms));
	/* a broker that goes on for one that died does not know who was about to connect */
	do
		r = connect_once(address, &o, deadline, &again, &c);
	while (again && ++attempts < ATTEMPTS_MAX);
	if (r == 0)
		*out = handle_give(c);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* The program's reference, when nobody is in a call about it, who might make something from it. */
static void let_go(void *client)
{
	client_unref(client);
}

void share_disconnect(share_client *c)
{
	RANGE("share_disconnect", 0);
	HAZARDS;
	DETAIL_STAYS;

	c = handle_take(c, HANDLE_CLIENT);
	if (!c)
		return;
	if (client_is_forked(c)) {
		handle_keep(c);
		return;
	}
	atomic_store(&c->waiters.given_up, true);
	waiters_wake(c, true);
	operations_abandon(c);
	for (size_t i = 0; client_rooms[i]; i++)
		if (client_rooms[i]->leave)
			client_rooms[i]->leave(c);
	hazard_end(c, let_go);
}
