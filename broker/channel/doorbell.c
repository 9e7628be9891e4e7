/* SPDX-License-Identifier: MIT */

/*
 * A doorbell is an eventfd that counts down from half of what it can count. Whoever rings takes
 * one, and whoever watches it with EPOLLET for reading and for writing is told of every change.
 *
 * Others have the same descriptor, and may mean harm with it. They cannot take what somebody else
 * has rung, as there is nothing in it to take: it is readable or writable, and mostly both,
 * whatever they do, and the change is what counts. They can make nobody wait: taking one waits for
 * nothing as long as there is one left, and taken by ones they last for longer than anybody lives.
 * Both hold whether it blocks or not, which is for all who share it and anybody's to change.
 *
 * It is not a socket: descriptors could be put into it, which its owner would have to close, and
 * one that lingers keeps it as long as its sender likes; and one end for all of them could be shut
 * down, while one for each needs an address, by which strangers find it. It is not a pipe: whoever
 * writes into it out of memory that is not there (that of a file system in a program, say) holds
 * its lock meanwhile.
 */

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>

#include "base/system/descriptor.h"
#include "broker/channel/channel_object.h"

#define RINGS (UINT64_C(1) << 63)

int doorbell_new(void)
{
	int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK), r;

	if (fd < 0 || eventfd_write(fd, RINGS) == 0)
		return fd < 0 ? -errno : fd;
	r = -errno;
	fd_close(fd);
	return r;
}

void doorbell_ring(int doorbell)
{
	eventfd_t one;

	if (doorbell >= 0)
		eventfd_read(doorbell, &one);
}
