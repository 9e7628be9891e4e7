/* SPDX-License-Identifier: MIT */

/*
 * What the data of a message of several Arrays begin with. C programs may read and write it.
 *
 *   0   "ShS1": what it is, and which version of it
 *   4   2 bytes: how many Arrays
 *   6   1 byte: 1 if they have names, else 0; 1 byte: 0
 *   8   for each Array: with names, 2 bytes for the length of its name in UTF-8, and the name; then
 * its description, as share_tensor_encode() writes it
 *
 * Numbers are little-endian. The program's own data come behind it.
 */

#include <string.h>

#include "python/src/channel/inside.h"

static const unsigned char magic[] = {'S', 'h', 'S', '1'};

void several_head(unsigned char *out, uint32_t n, bool named)
{
	memcpy(out, magic, sizeof(magic));
	out[4] = (unsigned char)n;
	out[5] = (unsigned char)(n >> 8);
	out[6] = named;
	out[7] = 0;
}

bool several_begin(struct several *s, const unsigned char *data, size_t size)
{
	if (size < SEVERAL_HEAD || memcmp(data, magic, sizeof(magic)) != 0 || data[6] > 1 ||
	    data[7] != 0)
		return false;
	s->at = data + SEVERAL_HEAD;
	s->left = size - SEVERAL_HEAD;
	s->n = data[4] | (uint32_t)data[5] << 8;
	s->named = data[6];
	return true;
}

static void skip(struct several *s, size_t n)
{
	s->at += n;
	s->left -= n;
}

bool several_next(struct several *s, const char **name, size_t *size, share_tensor *t)
{
	int n;

	*size = 0;
	if (s->named) {
		if (s->left < 2)
			return false;
		*size = s->at[0] | (size_t)s->at[1] << 8;
		skip(s, 2);
		if (s->left < *size)
			return false;
		*name = (const char *)s->at;
		skip(s, *size);
	}
	*t = (share_tensor)SHARE_TENSOR_INIT;
	n = share_tensor_decode(s->at, s->left, t);
	if (n <= 0)
		return false;
	skip(s, (size_t)n);
	return true;
}
