/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_SILENCE_H
#define BROKER_KEEPER_SILENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Whether another process hangs, by its beats (base/beat.h), at which one looks again and again.
 * Time is counted in looks of one's own and not in seconds: when both processes stood still, as in
 * a cgroup that is frozen or in a machine that is suspended, none of that time counts. A look that
 * comes late says that one stood still oneself, so the count starts again.
 */

struct silence {
	unsigned beat;      /* that the last look has found */
	uint64_t looked_ms; /* when that was */
	unsigned looks;     /* that have found the same one since then */
	bool is_reported;   /* that nothing can be done about it */
};

/* How long to wait between two looks, if one hangs that does not beat for @hang_ms. */
unsigned silence_look_ms(unsigned hang_ms);
/* From now on. */
void silence_begin(struct silence *s, unsigned beat, uint64_t now_ms);
/* How long to wait until it is time for the next look: other things may end the wait before. */
unsigned silence_left_ms(const struct silence *s, unsigned hang_ms, uint64_t now_ms);
/* A look, if it is time for one. True: it hangs. With @hang_ms 0 nobody does. */
bool silence_look(struct silence *s, unsigned beat, unsigned hang_ms, uint64_t now_ms);

/* Whether the process that hangs is to be killed, which the log then says, with what it was doing.
 * Not if it is traced, as somebody looks at it right now. Nor if it is in a call of the system that
 * cannot be interrupted, which the log says once. @who is for the log: "broker". */
bool silence_is_fatal(struct silence *s, const char *who, pid_t pid, unsigned hang_ms);

#endif
