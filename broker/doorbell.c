/* SPDX-License-Identifier: MIT */

/*
 * Doorbells. The socket that is rung has an address that the kernel made up, in no file system, by
 * which the others are connected to it. Strangers of this network namespace can find it, and ring:
 * whoever is rung looks whether there is something to do, and there is not.
 */

#include <errno.h>
#include <stddef.h>

#include "broker/doorbell.h"
#include "wire/fd.h"

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

/* An address of no path is one that the kernel chooses. */
static int give_address(int fd, struct doorbell *d)
{
	const struct sockaddr_un none = {.sun_family = AF_UNIX};

	d->size = sizeof(d->address);
	if (bind(fd, (const struct sockaddr *)&none, offsetof(struct sockaddr_un, sun_path)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&d->address, &d->size) < 0)
		return -errno;
	return 0;
}

int doorbell_new(struct doorbell *d, int *out_own)
{
	_cleanup_fd_ int own = new_socket();
	int r = own < 0 ? own : give_address(own, d);

	if (r < 0)
		return r;
	r = doorbell_connect(d);
	if (r < 0)
		return r;
	d->ringer = r;
	*out_own = own;
	own = -1;
	return 0;
}

int doorbell_connect(const struct doorbell *d)
{
	int fd = new_socket();

	/* Who has closed its end hears nothing, nor does who will not: its owner can connect it
	 * elsewhere, and a stranger take an address that is free again. One that leads nowhere is
	 * as good: nobody else must be kept waiting for it. */
	if (fd >= 0)
		(void)!connect(fd, (const struct sockaddr *)&d->address, d->size);
	return fd;
}

void doorbell_ring(const struct doorbell *d)
{
	if (d->ringer >= 0)
		send(d->ringer, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void doorbell_done(struct doorbell *d)
{
	d->ringer = fd_close(d->ringer);
}
