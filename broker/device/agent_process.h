/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <sys/types.h>

struct agent_process {
	pid_t pid;
	int pidfd;
	int socket; /* the broker's end */
};

/* Starts share-agent for @device (UUID as text, "": none). 0, or negative errno with nothing
 * started. @program is set to which one that is, as far as it is known. */
int agent_process_start(const char *device, char program[PATH_MAX], struct agent_process *out);
