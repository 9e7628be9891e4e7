/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include <share/share.h>

/*
 * Work on a host stream that lasts until the test says so, in whatever process: a gate lies in
 * memory that the test shares with its children.
 */
struct gate {
	atomic_int open;
	atomic_int started; /* how many have come to it */
	atomic_int done;    /* how much of the work behind it is done */
};

struct gate *gate_new(void);
void gate_free(struct gate *g);
void gate_open(struct gate *g);

/* Enqueues a wait for the gate. */
void gate_hold(struct gate *g, share_host_stream *s);

/* Enqueues: fill @size bytes with @value, then count one up in `done`. */
void gate_fill(struct gate *g, share_host_stream *s, void *memory, int value, size_t size);
/* Enqueues: expect that `done` is at least this, and @size bytes are @value. */
void gate_expect(struct gate *g, share_host_stream *s, const void *memory, int value, size_t size,
		 int done);
void expect_filled(const void *memory, int value, size_t size);
