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

/* pipeline.c: what every process does with what fails. */
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

/* A place in a file, or on a GPU. number 0: the memory is not that of a segment, or private to the
 * process. */
struct place {
	uint64_t device; /* of the file; the hash of a GPU's UUID */
	uint64_t number; /* inode, or the segment's */
	uint64_t offset;
};

/* What a process knows of a frame. All write theirs into one table, of memory that they inherit: a
 * row for the producer, and one for each consumer, numbered from 1. */
struct report {
	int64_t shape[3];
	struct place place;
	uint64_t mark;        /* that it wrote, or found; behind the picture in the frame */
	struct result result; /* not the producer's */
};

struct report *make_reports(const struct options *o);
struct report *report_of(struct report *reports, const struct options *o, int row, int frame);

/* Where it lies; returns the UUID of the GPU that it is on, NULL: host memory. */
const char *find_frame(share_buffer *frame, struct place *out);

/* Writes a random mark, and gives the frame up. */
void leave_mark(share_buffer *frame, struct report *r);
void read_mark(share_buffer *frame, struct report *r);

/* The computation once more, on memory that nobody shares. Returns how many results differ. */
int judge(const struct options *o, const struct picture *p, struct report *reports, int *copies);

#endif
