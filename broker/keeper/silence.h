/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Finds out whether another process hangs, by looking again and again at its beats (base/beat.h).
 * Time is counted in the looks of this process and not in seconds: when both processes stood still,
 * as in a cgroup that is frozen or in a machine that is suspended, none of that time counts. A look
 * that comes late says that this process stood still itself, so the count starts again.
 */

struct silence {
	unsigned beat;      /* the beat that the last look has found */
	uint64_t looked_ms; /* when the last look was */
	unsigned looks;     /* how many looks, one after the other, have found that beat again */
	bool is_reported;   /* it was logged that nothing can be done about it */
};

/* Returns how long to wait between two looks, if a process hangs that does not beat for
 * @hang_ms. */
unsigned silence_look_ms(unsigned hang_ms);
/* Begins to count looks at a process whose beat is @beat now. */
void silence_begin(struct silence *s, unsigned beat, uint64_t now_ms);
/* Returns how long to wait until it is time for the next look; the caller may wake before that. */
unsigned silence_left_ms(const struct silence *s, unsigned hang_ms, uint64_t now_ms);
/* Looks at the beat, if it is time for that. True: the process hangs. With @hang_ms 0 none does. */
bool silence_look(struct silence *s, unsigned beat, unsigned hang_ms, uint64_t now_ms);

/* Decides whether the process that hangs is to be killed; if so, the log says that, and what the
 * process was doing. It is not killed if it is traced, as somebody looks at it right now; nor if it
 * is in a system call that cannot be interrupted, which the log says once. @who names the process
 * in the log: "broker". */
bool silence_is_fatal(struct silence *s, const char *who, pid_t pid, unsigned hang_ms);
