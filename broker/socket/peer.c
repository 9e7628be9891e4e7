/* SPDX-License-Identifier: MIT */

/*
 * Peer identity. The pidfd is what proves a death later, so a peer without one is no client: its
 * memory could never be taken back.
 *
 * In a user namespace that has numbers for some users only, the kernel shows all others as one, the
 * overflow uid. They would be one account and have one another's names and pools, so they are
 * refused, and told why; a group that is the overflow gid is nobody's. In a namespace that has all
 * numbers (the first one, to begin with) that is a user like any other.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "broker/keeper/kept.h"
#include "broker/socket/peer.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* ------------------------------------------------------------------------------------------- */
/* User namespaces                                                                             */

#define NO_ID ((id_t)-1) /* the number of nobody */

/* The number that the kernel shows for those that have none here; NO_ID where all have one.
 * Without /proc to tell, it is taken to be a namespace of few. */
static id_t shown_as(const char *map_path, const char *overflow_path)
{
	unsigned long first = 1, outside = 1, n = 0, overflow = 65534;
	FILE *map = fopen(map_path, "re"), *f = fopen(overflow_path, "re");

	if (map && fscanf(map, "%lu %lu %lu", &first, &outside, &n) != 3)
		n = 0;
	if (f && fscanf(f, "%lu", &overflow) != 1)
		overflow = 65534;
	if (map)
		fclose(map);
	if (f)
		fclose(f);
	return first == 0 && outside == 0 && n == UINT32_MAX ? NO_ID : (id_t)overflow;
}

/* Neither file changes while this process lives, so each is read once. */
static id_t unknown_uid(void)
{
	static id_t uid;

	if (uid == 0)
		uid = shown_as("/proc/self/uid_map", "/proc/sys/kernel/overflowuid");
	return uid;
}

static id_t unknown_gid(void)
{
	static id_t gid;

	if (gid == 0)
		gid = shown_as("/proc/self/gid_map", "/proc/sys/kernel/overflowgid");
	return gid;
}

bool peer_all_have_numbers(void)
{
	return unknown_uid() == NO_ID;
}

/* ------------------------------------------------------------------------------------------- */

/* Without SO_PEERPIDFD the number has to be trusted. If the socket is not hung up afterwards, the
 * process was still there when its number was looked up. */
static int open_pidfd(int socket, pid_t pid)
{
	struct pollfd hup = {.fd = socket};
	int fd;

	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	if (poll(&hup, 1, 0) > 0 && hup.revents & POLLHUP) {
		fd_close(fd);
		return -ESRCH;
	}
	return fd;
}

static int peer_pidfd(int socket, pid_t pid)
{
	socklen_t size = sizeof(int);
	int fd;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
		return fd;
	if (errno != ENOPROTOOPT)
		return -errno;
	return pid > 0 ? open_pidfd(socket, pid) : -ESRCH;
}

static int peer_groups(int socket, gid_t primary, struct peer *p)
{
	socklen_t size = 0;
	gid_t *groups;

	/* asks for the size first: the list may have any length */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0 && errno != ERANGE)
		return -errno;
	groups = malloc(size + sizeof(gid_t));
	if (!groups)
		return -ENOMEM;
	if (size > 0 && getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0) {
		int r = -errno;

		free(groups);
		return r;
	}
	groups[size / sizeof(gid_t)] = primary;
	for (size_t i = 0; i <= size / sizeof(gid_t); i++)
		if (groups[i] != unknown_gid())
			groups[p->n_groups++] = groups[i];
	p->groups = groups;
	return 0;
}

int peer_identify(int socket, struct peer *out)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	struct peer p = {.pidfd = -1};
	int r;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.uid == unknown_uid())
		return -EOVERFLOW;
	p.pid = credentials.pid;
	p.uid = credentials.uid;
	p.pidfd = peer_pidfd(socket, p.pid);
	if (p.pidfd < 0)
		return p.pidfd;
	r = peer_groups(socket, credentials.gid, &p);
	if (r < 0) {
		fd_close(p.pidfd);
		return r;
	}
	*out = p;
	return 0;
}

int peer_identify_again(int socket, struct peer *out)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	return peer_groups(socket, credentials.gid, out);
}

void peer_deinit(struct peer *p)
{
	p->pidfd = kept_close(p->pidfd);
	free(p->groups);
	p->groups = NULL;
	p->n_groups = 0;
}
