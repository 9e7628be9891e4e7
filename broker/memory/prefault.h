/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_PREFAULT_H
#define BROKER_MEMORY_PREFAULT_H

#include <stdint.h>

/*
 * The pages of host pools that are to be there before anybody needs them. A thread makes them, as
 * that takes the kernel a second for each gigabyte or two; the loop tells it which segments, and is
 * told when one is over. All functions are the loop's.
 */
struct broker;
struct filling;
struct prefault;
struct segment;

/* 0 or -ENOMEM. No thread runs before there is something to do. */
int prefault_new(struct broker *b, struct prefault **out);
/* No segment is being filled any more. NULL is fine. */
void prefault_free(struct prefault *p);

/* So much of it is made, soon, in pieces of MEMORY_HOST_PIECE; if there is no memory for that, it
 * comes as it is touched. */
void prefault_start(struct broker *b, struct segment *s, uint64_t size);
/* Before the segment gives its pages back: from now on none of them is made. */
void prefault_stop(struct broker *b, struct segment *s);
/* Some of its pages were given back, as memory_host_zero() does. Who maps it makes no page tables
 * ahead any more: that would make these pages as well, and whoever maps it would pay for them. */
void prefault_spoil(struct broker *b, struct segment *s);
/* How much of the segment has been made so far, bytes. */
uint64_t prefault_done(struct broker *b, const struct segment *s);

#endif
