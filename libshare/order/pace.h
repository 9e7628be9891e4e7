/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/*
 * How long waits for a timeline take that a GPU writes. It wakes nobody, so who waits has to look,
 * and a look is as late as the sleep before it was long. Programs wait for the same work again and
 * again: so when a wait has lasted about as long as the ones before, its thread looks without a
 * pause. Waits of which no two are alike are not expected to end at any time.
 *
 * All zeros: there were none.
 */
struct pace {
	_Atomic uint64_t word; /* a length and how far lengths are from it, in units of 256 ns */
};

/* When a wait that begins at @now is expected to end, as points in time in ns; from equal to until:
 * that is not known. */
void pace_expect(const struct pace *p, uint64_t now, uint64_t *from, uint64_t *until);
/* A wait has taken so long, in ns. */
void pace_note(struct pace *p, uint64_t took);
