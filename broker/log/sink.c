/* SPDX-License-Identifier: MIT */

/*
 * Where the lines of the log go: to stderr, which may be a pipe that nobody reads, a terminal that
 * somebody has stopped, or the socket of a journal that hangs. The broker has one thread, and it
 * waits for none of them: what does not fit is left out, and log.c says later how much that was.
 *
 * O_NONBLOCK belongs to the open file, which others have as well (the shell, the agents, whoever
 * has started all of them), and they would find their own writing fail. So a pipe or a terminal is
 * opened once more, for an open file of the broker's own; a socket can be told with each message. A
 * pipe of another user cannot be opened: there the broker asks whether there is room, and writes if
 * so. Between the two somebody else could take that room, but only those could who were given the
 * same pipe. A stream takes a part of a line at times: the next line then ends that one first.
 * Files are written to as they are; they have their own position, and no reader.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/log/log.h"
#include "broker/log/sink.h"

static enum { SINK_PLAIN, SINK_OWN, SINK_SOCKET, SINK_ASKED } sink = SINK_PLAIN;
static int own = -1;   /* SINK_OWN: stderr once more */
static bool is_broken; /* what was written last is a part of a line */

void log_sink_open(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) < 0 || S_ISREG(st.st_mode))
		return;
	if (S_ISSOCK(st.st_mode)) {
		sink = SINK_SOCKET;
		return;
	}
	if (own >= 0)
		close(own);
	own = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	sink = own >= 0 ? SINK_OWN : SINK_ASKED;
}

int log_descriptor(void)
{
	return own;
}

static ssize_t write_once(const char *line, size_t size)
{
	struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

	switch (sink) {
	case SINK_OWN:
		return write(own, line, size);
	case SINK_SOCKET:
		return send(STDERR_FILENO, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	case SINK_ASKED:
		if (poll(&room, 1, 0) <= 0 || !(room.revents & POLLOUT)) {
			errno = EAGAIN;
			return -1;
		}
		return write(STDERR_FILENO, line, size);
	case SINK_PLAIN:
		break;
	}
	return write(STDERR_FILENO, line, size);
}

static ssize_t write_some(const char *text, size_t size)
{
	ssize_t n;

	do
		n = write_once(text, size);
	while (n < 0 && errno == EINTR);
	return n;
}

bool log_sink_write(const char *line, size_t size)
{
	ssize_t n;

	if (is_broken && write_some("\n", 1) != 1)
		return false;
	is_broken = false;
	n = write_some(line, size);
	is_broken = n > 0 && n < (ssize_t)size;
	return n == (ssize_t)size;
}
