/* SPDX-License-Identifier: MIT */

/* A pipe in each direction, as large as the kernel allows an ordinary user. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/peers/carrier.h"

#define NAME    "pipe"
#define LARGEST (1 << 20) /* the default of /proc/sys/fs/pipe-max-size */

struct end {
	int writes, reads;
	size_t sent, received; /* bytes of a payload or an answer */
	unsigned char *outgoing, *incoming;
};

static void must(bool fine, const char *what)
{
	carrier_must(fine, NAME, what, strerror(errno));
}

/* Opens it for reading and writing, so that neither process has to wait for the other to open
 * it. */
static int open_pipe(const struct carrier_setup *s, const char *name, bool make)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", s->folder, name);
	must(!make || mkfifo(path, 0600) == 0, "mkfifo");
	fd = open(path, O_RDWR | O_CLOEXEC);
	must(fd >= 0, "open");
	if (!make)
		unlink(path);
	else
		(void)fcntl(fd, F_SETPIPE_SZ, LARGEST); /* a smaller pipe is only slower */
	return fd;
}

static void *open_end(const struct carrier_setup *s, bool first)
{
	struct end *e = calloc(1, sizeof(*e));

	must(e, "memory for an end");
	e->writes = open_pipe(s, first ? "there" : "back", first);
	e->reads = open_pipe(s, first ? "back" : "there", first);
	e->sent = first ? s->size : CARRIER_ANSWER;
	e->received = first ? CARRIER_ANSWER : s->size;
	e->outgoing = malloc(e->sent);
	e->incoming = malloc(e->received);
	must(e->outgoing && e->incoming, "memory for a payload");
	return e;
}

static void close_end(void *end)
{
	struct end *e = end;

	close(e->writes);
	close(e->reads);
	free(e->outgoing);
	free(e->incoming);
	free(e);
}

static void *prepare(void *end)
{
	return ((struct end *)end)->outgoing;
}

static void send_it(void *end)
{
	struct end *e = end;
	ssize_t n;

	for (size_t done = 0; done < e->sent; done += (size_t)n) {
		n = write(e->writes, e->outgoing + done, e->sent - done);
		must(n > 0, "write");
	}
}

static const void *receive(void *end)
{
	struct end *e = end;
	ssize_t n;

	for (size_t done = 0; done < e->received; done += (size_t)n) {
		n = read(e->reads, e->incoming + done, e->received - done);
		must(n > 0, "read");
	}
	return e->incoming;
}

static void release(void *end)
{
	(void)end;
}

const struct carrier carrier_pipe = {
    .name = NAME,
    .what = "a pipe",
    .open = open_end,
    .close = close_end,
    .prepare = prepare,
    .send = send_it,
    .receive = receive,
    .release = release,
};
