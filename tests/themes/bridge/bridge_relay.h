/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

/*
 * A process between two bridges that passes on what they say to each other (TLS), as a network does
 * that is slow or breaks. Content does not come by: the bridges tell each other where UCX is to be
 * reached, and connect there by themselves. It ends with a connection that is cut, though.
 */

struct relay {
	pid_t pid;
	int orders;
	char place[64]; /* HOST:PORT where it listens */
};

void relay_start(struct relay *r, const char *to);
/* Nothing passes, and nothing is lost. */
void relay_hold(struct relay *r);
void relay_pass(struct relay *r);
/* Ends the connections that there are. New ones pass. */
void relay_cut(struct relay *r);
void relay_stop(struct relay *r);
