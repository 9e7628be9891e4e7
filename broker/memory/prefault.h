/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * The pages of host pools that are to be there before anybody needs them. A thread makes them, as
 * the kernel takes a second for each gigabyte or two. The loop tells the thread which segments to
 * fill, and is told when one is done. Only the loop calls these functions.
 */
struct broker;
struct prefault;
struct segment;

/* Returns 0 or -ENOMEM. No thread runs before there is something to do. */
int prefault_new(struct broker *b, struct prefault **out);
/* Ends the thread, so that no segment is being filled any more. @p may be NULL. */
void prefault_free(struct prefault *p);

/* Has so much of the segment made soon, in pieces of MEMORY_HOST_PIECE. If there is no memory for
 * that, pages are made when they are touched. */
void prefault_start(struct broker *b, struct segment *s, uint64_t size);
/* Stops that, before the segment gives its pages back: from now on none of them is made. */
void prefault_stop(struct broker *b, struct segment *s);
/* Notes that some of the segment's pages were given back, as by memory_host_zero(). Whoever maps it
 * then makes no page tables ahead: that would make these pages as well, and charge them to whoever
 * maps it. */
void prefault_spoil(struct broker *b, struct segment *s);
/* Returns how many bytes of the segment have been made so far. */
uint64_t prefault_done(struct broker *b, const struct segment *s);
