/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

/* How many descriptors @pid has open, 0: this process. -1 when it is gone. */
int descriptors_count(pid_t pid);

/* What they are, on stderr. */
void descriptors_list(pid_t pid);

/* Closes all of this process but stdin, stdout, stderr and @keep. */
void descriptors_close_but(int keep);

/* Resident memory of @pid, bytes. */
size_t resident_bytes(pid_t pid);
