/* SPDX-License-Identifier: MIT */

/* Tensors: what the numbers of a buffer mean. */

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
	r = tensor_extent(&t, &extent);
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
	return r == 0 ? tensor_extent(&own, out) : r;
}

int tensor_extent(const share_tensor *t, uint64_t *out)
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

int tensor_check_fits(const share_tensor *t, uint64_t size)
{
	uint64_t extent;
	int r = tensor_extent(t, &extent);

	if (r == 0 && extent > size)
		r = fail(SHARE_EINVAL, "the tensor needs %llu byte%s, the buffer has %llu",
			 (unsigned long long)extent, plural(extent), (unsigned long long)size);
	return r;
}
