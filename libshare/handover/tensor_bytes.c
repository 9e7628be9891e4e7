/* SPDX-License-Identifier: MIT */

/*
 * A tensor in bytes: the same wherever it goes, with a name, a token or a message. Left out is what
 * most tensors do not need to say, as a message has 256 bytes for all that its program wants to
 * say. Whoever wrote the bytes may be anybody, so all of them are checked.
 */

#include <string.h>

#include "libshare/handover/inside.h"

_Static_assert(SHARE_TENSOR_ENCODED_MAX <= WIRE_TENSOR_MAX,
	       "the protocol has room for every tensor");
_Static_assert(SHARE_TENSOR_ENCODED_MAX == 16 + 16 * SHARE_TENSOR_MAX_DIMS, "all parts of it");

enum parts {
	PART_OFFSET = 1 << 0,
	PART_STRIDES = 1 << 1, /* else they are those of a C-contiguous tensor */
};

/* The whole is little-endian, as the protocol is (wire/codec.c). */
struct head {
	char magic[4];
	uint16_t dtype;
	uint8_t ndim;
	uint8_t parts;
};
_Static_assert(sizeof(struct head) == 8, "part of the format");

static const char magic[4] = {'S', 'h', 'T', '1'};

static bool is_contiguous(const share_tensor *t)
{
	share_tensor contiguous = SHARE_TENSOR_INIT;

	return share_tensor_init(&contiguous, t->dtype, t->ndim, t->shape) == 0 &&
	       memcmp(contiguous.strides, t->strides, t->ndim * sizeof(t->strides[0])) == 0;
}

static unsigned parts_of(const share_tensor *t)
{
	return (t->offset ? PART_OFFSET : 0u) | (is_contiguous(t) ? 0u : PART_STRIDES);
}

static size_t size_with(unsigned parts, uint32_t ndim)
{
	size_t numbers = (size_t)ndim * (parts & PART_STRIDES ? 2 : 1);

	return sizeof(struct head) + (numbers + (parts & PART_OFFSET ? 1 : 0)) * sizeof(int64_t);
}

static unsigned char *put(unsigned char *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return to + size;
}

static int encode(const share_tensor *t, void *data, size_t room)
{
	struct head head = {.ndim = 0};
	unsigned char *to = data;
	uint64_t extent;
	unsigned parts;
	size_t size;
	int r = tensor_extent(t, &extent);

	if (r != 0)
		return r;
	parts = parts_of(t);
	size = size_with(parts, t->ndim);
	if (size > room)
		return fail(SHARE_EINVAL, "the tensor takes %zu byte%s, and there is room for %zu",
			    size, plural(size), room);
	memcpy(head.magic, magic, sizeof(magic));
	head.dtype = (uint16_t)t->dtype;
	head.ndim = (uint8_t)t->ndim;
	head.parts = (uint8_t)parts;
	to = put(to, &head, sizeof(head));
	if (parts & PART_OFFSET)
		to = put(to, &t->offset, sizeof(t->offset));
	to = put(to, t->shape, t->ndim * sizeof(t->shape[0]));
	if (parts & PART_STRIDES)
		put(to, t->strides, t->ndim * sizeof(t->strides[0]));
	return (int)size;
}

int share_tensor_encode(const share_tensor *t, void *data, size_t room)
{
	share_tensor own;
	int r = tensor_read(t, &own);

	if (r == 0 && !data)
		r = fail(SHARE_EINVAL, "data is NULL");
	return r == 0 ? encode(&own, data, room) : r;
}

static const unsigned char *take(const unsigned char *from, void *to, size_t size)
{
	memcpy(to, from, size);
	return from + size;
}

static int read_numbers(const struct head *head, const unsigned char *from, share_tensor *out)
{
	uint64_t extent, offset = 0;
	int64_t shape[SHARE_TENSOR_MAX_DIMS];
	int r;

	if (head->parts & PART_OFFSET)
		from = take(from, &offset, sizeof(offset));
	from = take(from, shape, head->ndim * sizeof(shape[0]));
	if (head->parts & PART_STRIDES) {
		out->dtype = head->dtype;
		out->ndim = head->ndim;
		memcpy(out->shape, shape, head->ndim * sizeof(shape[0]));
		take(from, out->strides, head->ndim * sizeof(out->strides[0]));
	} else {
		r = share_tensor_init(out, head->dtype, head->ndim, shape);
		if (r != 0)
			return r;
	}
	out->offset = offset;
	return tensor_extent(out, &extent);
}

int share_tensor_decode(const void *data, size_t size, share_tensor *out)
{
	share_tensor t = SHARE_TENSOR_INIT;
	struct head head;
	size_t whole;
	int r = struct_check(share_tensor, out);

	if (r == 0 && !data && size > 0)
		r = fail(SHARE_EINVAL, "data is NULL");
	if (r != 0)
		return r;
	if (size < sizeof(head) || memcmp(data, magic, sizeof(magic)) != 0)
		return fail_constant(SHARE_ENOENT, "the data does not begin with a tensor");
	memcpy(&head, data, sizeof(head));
	whole = size_with(head.parts, head.ndim);
	if (head.ndim > SHARE_TENSOR_MAX_DIMS || whole > size ||
	    head.parts & ~(unsigned)(PART_OFFSET | PART_STRIDES))
		return fail(SHARE_EINVAL, "the tensor that the data begins with makes no sense");
	r = read_numbers(&head, (const unsigned char *)data + sizeof(head), &t);
	if (r != 0)
		return r;
	struct_out(share_tensor, out, &t);
	return (int)whole;
}

int tensor_for_request(share_buffer *b, const share_tensor *t, unsigned char *room,
		       struct wire_bytes *out)
{
	share_tensor own;
	int r;

	*out = (struct wire_bytes){NULL, 0};
	if (!t)
		return 0;
	r = tensor_read(t, &own);
	if (r == 0)
		r = tensor_check_fits(&own, b->size);
	if (r != 0)
		return r;
	r = encode(&own, room, SHARE_TENSOR_ENCODED_MAX);
	if (r < 0)
		return r;
	*out = (struct wire_bytes){room, (uint32_t)r};
	return 0;
}
