/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/export.h"

/*
 * The pages of host memory: how large they are, on which NUMA node, and that they are made before
 * anybody needs them. Numbers are those of share_pool_options. The functions may be called in any
 * thread, and return 0 or a SHARE_E... number with a sentence in @failure.
 */
struct memory_host_pages {
	uint32_t huge_pages; /* enum share_huge_pages */
	uint32_t numa;       /* SHARE_NUMA_... */
};

/* SHARE_ENOTSUP, SHARE_EINVAL: this machine cannot have such pages. */
int memory_host_check(const struct memory_host_pages *pages, struct failure *failure);

/* What comes of them on this machine, as a part of a sentence: "; huge pages: ..."; "": nothing was
 * asked for. */
void memory_host_describe(const struct memory_host_pages *pages, char *out, size_t size);

/* The size of a segment is a multiple of it. */
uint64_t memory_host_granularity(const struct memory_host_pages *pages);

/* As memory_host_exporter's, of such pages. Of those that are to be huge in any case, SHARE_ENOMEM:
 * there are not enough; those that there are are its own from then on. */
int memory_host_create(const struct memory_host_pages *pages, uint64_t size, uint64_t address,
		       struct memory_segment *out, struct failure *failure);

/*
 * Making pages ahead, a piece of MEMORY_HOST_PIECE bytes after the other, each in two steps: so
 * that who wants to close the descriptor, or to give all pages back, has to keep out the first of
 * them alone, which is short. What is in the memory stays.
 */
#define MEMORY_HOST_PIECE MEMORY_ALIGNMENT

struct memory_host_window {
	char *reserved, *address;
	uint64_t size; /* of the piece that is mapped */
};

int memory_host_window_open(struct memory_host_window *w); /* 0 or negative errno */
void memory_host_window_close(struct memory_host_window *w);
/* Maps the piece at @offset, which may be shorter at the end. 0 or negative errno. */
int memory_host_window_move(struct memory_host_window *w, const struct memory_segment *segment,
			    uint64_t offset);
/* Makes its pages. 0 or negative errno: -ENOMEM where there is no memory. */
int memory_host_window_fill(struct memory_host_window *w);
/* Gives its pages back: of memory that has come to its end meanwhile. */
void memory_host_window_discard(struct memory_host_window *w);

/* All of the segment reads as zeros from now on, and its pages go back to the system: nobody needs
 * it any more. 0 or negative errno. */
int memory_host_discard(const struct memory_segment *segment);
