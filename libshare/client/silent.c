/* SPDX-License-Identifier: MIT */

/*
 * Who it is that does not answer. The kernel says which process has called listen() on the socket
 * last, which each broker does when it begins to serve; /proc says what has become of that process.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "libshare/client/inside.h"

/* What /proc/PID/stat says of a process. */
struct process {
	char name[32];
	char state;
	unsigned long long started; /* in ticks after the machine */
};

static bool read_proc(pid_t pid, const char *file, char *out, size_t size)
{
	_cleanup_fd_ int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	out[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* The name is in parentheses, and may have some itself. */
static bool read_process(pid_t pid, struct process *out)
{
	char text[1024], *name, *end;

	if (!read_proc(pid, "stat", text, sizeof(text)))
		return false;
	name = strchr(text, '(');
	end = strrchr(text, ')');
	if (!name || !end || strlen(end) < 3)
		return false;
	*end = '\0';
	snprintf(out->name, sizeof(out->name), "%s", name + 1);
	out->state = end[2];
	end += 2;
	for (int field = 3; end && field < 22; field++)
		end = strchr(end + 1, ' ');
	out->started = end ? strtoull(end, NULL, 10) : 0;
	return true;
}

/* When it was started, for people. */
static void show_start(const struct process *p, char *out, size_t size)
{
	time_t start = time(NULL);
	struct timespec up;
	struct tm local;

	clock_gettime(CLOCK_BOOTTIME, &up);
	start -= up.tv_sec - (time_t)(p->started / (unsigned long long)sysconf(_SC_CLK_TCK));
	if (!localtime_r(&start, &local) || strftime(out, size, "%F %T", &local) == 0)
		snprintf(out, size, "an unknown time");
}

static const char *show_state(char state)
{
	switch (state) {
	case 'T':
		return "it is stopped (state T)";
	case 't':
		return "a debugger holds it (state t)";
	case 'D':
		return "it hangs in a call of the kernel (state D)";
	case 'R':
		return "it computes (state R)";
	default:
		return "it waits for something else (state S)";
	}
}

static int fail_by_process(const char *at_whom, pid_t pid)
{
	char start[32], wchan[64] = "";
	struct process p;

	if (pid <= 0)
		return fail(SHARE_ETIMEDOUT,
			    "%s; its process is not to be seen from here: look for share-broker "
			    "and share-keeper where it runs",
			    at_whom);
	if (!read_process(pid, &p) || p.state == 'Z' || p.state == 'X')
		return fail(
		    SHARE_ETIMEDOUT,
		    "%s; its process %d has ended, and no broker has followed: look whether "
		    "its share-keeper is stopped, or start the service again",
		    at_whom, (int)pid);
	show_start(&p, start, sizeof(start));
	if (!read_proc(pid, "wchan", wchan, sizeof(wchan)) || strcmp(wchan, "0") == 0)
		wchan[0] = '\0';
	return fail(SHARE_ETIMEDOUT,
		    "%s; process %d (%s) serves there, since %s, and %s%s%s%s; its keeper ends it "
		    "after hang_ms, kill -KILL %d does so now, and the next broker goes on with "
		    "all clients",
		    at_whom, (int)pid, p.name, start, show_state(p.state), *wchan ? ", in " : "",
		    wchan, p.state == 'T' ? "; kill -CONT lets it go on" : "", (int)pid);
}

/* Another broker may have gone on since @socket was connected: who serves there now. 0: not known.
 */
static pid_t find_server(const char *address, int socket_before)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct ucred peer = {.pid = 0};
	socklen_t size = sizeof(peer);
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && strlen(address) < sizeof(at.sun_path)) {
		strcpy(at.sun_path, address);
		if (connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 &&
		    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0)
			return peer.pid;
	}
	size = sizeof(peer);
	return getsockopt(socket_before, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

int fail_silent(const char *address, int socket, int64_t waited_ms)
{
	char at_whom[256];

	snprintf(at_whom, sizeof(at_whom), "the broker at %s has not answered for %.3g s", address,
		 (double)waited_ms / 1000);
	return fail_by_process(at_whom, find_server(address, socket));
}
