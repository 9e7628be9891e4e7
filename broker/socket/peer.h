/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Who is at the other end of a socket, as the kernel says. */
struct peer {
	pid_t pid;
	uid_t uid;
	gid_t *groups; /* the primary one included */
	size_t n_groups;
	int pidfd; /* readable once the process is dead */
};

/* Finds out who the peer is. 0 or negative errno: -ESRCH when the process is gone or cannot be
 * named from here, -EOVERFLOW when the broker's user namespace has no number for its user. */
int peer_identify(int socket, struct peer *out);
/* Finds out again the groups, at least, of a peer that was identified before. */
int peer_identify_again(int socket, struct peer *out);
void peer_deinit(struct peer *p);
/* How many bytes its groups take, which are many if the process has many groups. */
static inline uint64_t peer_size(const struct peer *p)
{
	return p->n_groups * sizeof(gid_t);
}
/* Whether the broker's user namespace has a number for every user. */
bool peer_all_have_numbers(void);
