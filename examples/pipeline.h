/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <share/share.h>

struct options {
	const char *file, *kind;
	int consumers, frames;
};

/* pipeline.c: what every process does when something fails. */
void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...);
void check(int result, const char *what);
void check_system(bool fine, const char *what);

/* pipeline_film.c */
struct picture {
	unsigned char *samples;
	size_t size;
	int64_t shape[3]; /* height, width, channels */
};

struct result {
	uint64_t hash; /* FNV-1a */
	uint64_t histogram[256];
};

void read_picture(const char *path, struct picture *p);
void draw(const struct picture *p, int k, unsigned char *frame);
void compute(const unsigned char *samples, size_t size, struct result *out);

/* pipeline_proof.c */

/* A place in a file, or on a GPU. If `number` is 0, the memory is not part of a segment, or it is
 * private to the process. */
struct place {
	uint64_t device; /* of the file; for a GPU, a hash of its UUID */
	uint64_t number; /* of the inode, or of the segment */
	uint64_t offset;
};

/* What a process knows of a frame. All processes write their reports into one table, in memory that
 * they inherit: it has a row for the producer, and one for each consumer, numbered from 1. */
struct report {
	int64_t shape[3];
	struct place place;
	/* The mark that the process wrote or found; it lies behind the picture in the frame. */
	uint64_t mark;
	struct result result; /* the producer has none */
};

struct report *make_reports(const struct options *o);
struct report *report_of(struct report *reports, const struct options *o, int row, int frame);

/* Finds where the frame lies. Returns the UUID of its GPU, or NULL for host memory. */
const char *find_frame(share_buffer *frame, struct place *out);

/* Writes a random mark and releases the frame. */
void leave_mark(share_buffer *frame, struct report *r);
void read_mark(share_buffer *frame, struct report *r);

/* Computes everything again, in private memory. Returns how many results differ. */
int judge(const struct options *o, const struct picture *p, struct report *reports, int *copies);

#endif
