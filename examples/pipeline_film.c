/* SPDX-License-Identifier: MIT */

/*
 * The work of the pipeline example: makes a film of a picture, and computes something of each
 * frame. This file does not know that memory is shared.
 */
#include "pipeline.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads a number of a PNM header: white space and comments before it, one white space after it. */
static bool read_number(FILE *f, int64_t *out)
{
	int c;

	while (isspace(c = getc(f)) || c == '#')
		if (c == '#')
			while ((c = getc(f)) != '\n' && c != EOF)
				;
	ungetc(c, f);
	return fscanf(f, "%8" SCNd64, out) == 1 && *out > 0 && isspace(getc(f));
}

/* Reads a PGM (P5) or PPM (P6) picture. Any other file is taken as one row of bytes. */
void read_picture(const char *path, struct picture *p)
{
	FILE *f = fopen(path, "re");
	char type[2], next[2];
	struct stat st;
	int64_t most;
	size_t left;

	check_system(f && fstat(fileno(f), &st) == 0, path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		fail("%s: not a file with something in it", path);
	if (fscanf(f, "P%1[56]%1[# \t\r\n]", type, next) == 2 && ungetc(*next, f) != EOF &&
	    read_number(f, &p->shape[1]) && read_number(f, &p->shape[0]) && read_number(f, &most) &&
	    most <= 65535) {
		/* A sample of two bytes counts as two channels, because only bytes are used
		 * here. */
		p->shape[2] = (*type == '6' ? 3 : 1) * (most > 255 ? 2 : 1);
	} else {
		rewind(f);
		p->shape[0] = p->shape[2] = 1;
		p->shape[1] = st.st_size;
	}
	p->size = (size_t)(p->shape[0] * p->shape[1] * p->shape[2]);
	left = (size_t)(st.st_size - ftell(f));
	if (p->size > left)
		fail("the picture ends after %zu of %zu bytes", left, p->size);
	p->samples = malloc(p->size);
	check_system(p->samples && fread(p->samples, p->size, 1, f) == 1, path);
	fclose(f);
}

/* Draws frame @k of the film: every row @k higher, every sample @k brighter. */
void draw(const struct picture *p, int k, unsigned char *frame)
{
	size_t height = (size_t)p->shape[0], row = p->size / height;

	for (size_t y = 0; y < height; y++) {
		const unsigned char *from = p->samples + (y + (size_t)k) % height * row;

		for (size_t x = 0; x < row; x++)
			frame[y * row + x] = (unsigned char)(from[x] + k);
	}
}

void compute(const unsigned char *samples, size_t size, struct result *out)
{
	memset(out, 0, sizeof(*out));
	out->hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < size; i++) {
		out->histogram[samples[i]]++;
		out->hash = (out->hash ^ samples[i]) * 0x100000001b3;
	}
}
