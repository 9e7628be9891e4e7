/* SPDX-License-Identifier: MIT */

/* Tensors: what the numbers of a buffer mean, and how that is written in bytes. */

#include <string.h>

#include "libshare/handover/inside.h"

static const struct {
	const char *name;
	uint32_t dtype;
} dtypes[] = {
    {"int8", SHARE_INT8},
    {"int16", SHARE_INT16},
    {"int32", SHARE_INT32},
    {"int64", SHARE_INT64},
    {"uint8", SHARE_UINT8},
    {"uint16", SHARE_UINT16},
    {"uint32", SHARE_UINT32},
    {"uint64", SHARE_UINT64},
    {"float16", SHARE_FLOAT16},
    {"float32", SHARE_FLOAT32},
    {"float64", SHARE_FLOAT64},
    {"bfloat16", SHARE_BFLOAT16},
    {"bool", SHARE_BOOL},
    {"complex32", SHARE_COMPLEX32},
    {"complex64", SHARE_COMPLEX64},
    {"complex128", SHARE_COMPLEX128},
    {"float8_e3m4", SHARE_FLOAT8_E3M4},
    {"float8_e4m3", SHARE_FLOAT8_E4M3},
    {"float8_e4m3b11fnuz", SHARE_FLOAT8_E4M3B11FNUZ},
    {"float8_e4m3fn", SHARE_FLOAT8_E4M3FN},
    {"float8_e4m3fnuz", SHARE_FLOAT8_E4M3FNUZ},
    {"float8_e5m2", SHARE_FLOAT8_E5M2},
    {"float8_e5m2fnuz", SHARE_FLOAT8_E5M2FNUZ},
    {"float8_e8m0fnu", SHARE_FLOAT8_E8M0FNU},
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *share_dtype_name(uint32_t dtype)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].name;
	return NULL;
}

uint32_t share_dtype_from_name(const char *name)
{
	for (size_t i = 0; name && i < N_DTYPES; i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return dtypes[i].dtype;
	return 0;
}

int tensor_read(const share_tensor *from, share_tensor *out)
{
	if (!from)
		return fail(SHARE_EINVAL, "the share_tensor is NULL");
	return struct_in(share_tensor, out, from);
}

/* 0, or SHARE_EINVAL: what is wrong with it. */
static int check_tensor(const share_tensor *t)
{
	if (!share_dtype_name(t->dtype))
		return fail(SHARE_EINVAL, "0x%x is no dtype", t->dtype);
	if (t->ndim > SHARE_TENSOR_MAX_DIMS)
		return fail(SHARE_EINVAL, "a tensor has at most %d dimensions",
			    SHARE_TENSOR_MAX_DIMS);
	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->shape[i] < 0)
			return fail(SHARE_EINVAL, "dimension %u is negative", i);
	return 0;
}

static int extent_of(const share_tensor *t, uint64_t *out)
{
	int64_t low = 0, high = 0, step;
	uint64_t item, end, bytes;
	int r = check_tensor(t);

	if (r != 0)
		return r;
	item = (t->dtype & 0xff) / 8;
	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->shape[i] == 0) { /* no element at all */
			*out = t->offset;
			return 0;
		}
		if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &step) ||
		    __builtin_add_overflow(step < 0 ? low : high, step, step < 0 ? &low : &high))
			return fail(SHARE_EINVAL, "the tensor is larger than 2^63 elements");
	}
	/* elements may lie on each other, and be more than there is memory */
	bytes = item;
	for (uint32_t i = 0; i < t->ndim; i++)
		if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[i], &bytes) ||
		    bytes > INT64_MAX)
			return fail(SHARE_EINVAL, "the tensor is larger than 2^63 bytes");
	if (0 - (uint64_t)low > t->offset / item)
		return fail(SHARE_EINVAL, "an element would lie before the buffer");
	if (__builtin_mul_overflow((uint64_t)high + 1, item, &end) ||
	    __builtin_add_overflow(end, t->offset, &end) || end > INT64_MAX)
		return fail(SHARE_EINVAL, "the tensor is larger than 2^63 bytes");
	*out = end;
	return 0;
}

int share_tensor_init(share_tensor *out, uint32_t dtype, uint32_t ndim, const int64_t *shape)
{
	share_tensor t = {.size = sizeof(t), .dtype = dtype, .ndim = ndim};
	int64_t stride = 1;
	uint64_t extent;
	int r = struct_check(share_tensor, out);

	if (r != 0)
		return r;
	if (ndim && !shape)
		return fail(SHARE_EINVAL, "shape is NULL");
	for (uint32_t i = 0; i < ndim && i < SHARE_TENSOR_MAX_DIMS; i++)
		t.shape[i] = shape[i];
	r = check_tensor(&t);
	if (r != 0)
		return r;
	for (uint32_t i = ndim; i-- > 0;) {
		t.strides[i] = stride;
		if (t.shape[i] > 1 && __builtin_mul_overflow(stride, t.shape[i], &stride))
			return fail(SHARE_EINVAL, "the tensor is larger than 2^63 elements");
	}
	r = extent_of(&t, &extent);
	if (r == 0)
		struct_out(share_tensor, out, &t);
	return r;
}

int share_tensor_extent(const share_tensor *t, uint64_t *out)
{
	share_tensor own;
	int r = tensor_read(t, &own);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	return r == 0 ? extent_of(&own, out) : r;
}

int tensor_check_fits(const share_tensor *t, uint64_t size)
{
	uint64_t extent;
	int r = extent_of(t, &extent);

	if (r == 0 && extent > size)
		r = fail(SHARE_EINVAL, "the tensor needs %llu byte%s, the buffer has %llu",
			 (unsigned long long)extent, plural(extent), (unsigned long long)size);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* In bytes: the same wherever it goes, with a name, a token or a message. Left out is what    */
/* most tensors do not need to say, as a message has 256 bytes for all that its program wants  */
/* to say. Whoever wrote the bytes may be anybody, so all of them are checked                  */

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
	int r = extent_of(t, &extent);

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
	return extent_of(out, &extent);
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
