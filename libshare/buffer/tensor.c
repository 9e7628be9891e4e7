/* SPDX-License-Identifier: MIT */

/* Tensors: what the numbers of a buffer mean, kept under one key of its metadata. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "libshare/buffer/inside.h"

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
static int check(const share_tensor *t)
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
	r = check(&t);
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
	int r = check(t);

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

/* NULL when memory is short: half a description would be a wrong one. */
static json_t *to_json(const share_tensor *t)
{
	json_t *shape = json_array(), *strides = json_array();
	bool whole = shape && strides;

	for (uint32_t i = 0; whole && i < t->ndim; i++)
		whole = json_array_append_new(shape, json_integer(t->shape[i])) == 0 &&
			json_array_append_new(strides, json_integer(t->strides[i])) == 0;
	if (!whole) {
		json_decref(shape);
		json_decref(strides);
		return NULL;
	}
	return json_pack("{s:s, s:o, s:o, s:I}", "dtype", share_dtype_name(t->dtype), "shape",
			 shape, "strides", strides, "offset", (json_int_t)t->offset);
}

/* The buffer's metadata as an object; a new one when there is none. */
static int load(const share_buffer *b, json_t **out)
{
	json_t *root;
	char *text;
	int r;

	r = share_metadata_get(b, &text);
	if (r == SHARE_ENOENT) {
		root = json_object();
	} else if (r != 0) {
		return r;
	} else {
		root = json_loads(text, 0, NULL);
		free(text);
	}
	if (!root)
		return fail_system(-ENOMEM, "reading metadata");
	if (!json_is_object(root)) {
		json_decref(root);
		return fail(SHARE_EINVAL, "the buffer's metadata is an array: no room for a key");
	}
	*out = root;
	return 0;
}

int share_tensor_set(share_buffer *b, const share_tensor *t)
{
	share_buffer *found = b;
	share_tensor own;
	json_t *root;
	char *text;
	int r = buffer_resolve(&found);

	if (r == 0)
		r = tensor_read(t, &own);
	if (r == 0)
		r = tensor_check_fits(&own, found->size);
	if (r == 0)
		r = load(b, &root);
	if (r != 0)
		return r;
	text = json_object_set_new(root, "tensor", to_json(&own)) == 0
		   ? json_dumps(root, JSON_COMPACT)
		   : NULL;
	json_decref(root);
	if (!text)
		return fail_system(-ENOMEM, "writing metadata");
	r = share_metadata_set(b, text);
	free(text);
	return r;
}

static bool read_integers(const json_t *array, int64_t *out, uint32_t *n)
{
	size_t size = json_array_size(array);

	if (!json_is_array(array) || size > SHARE_TENSOR_MAX_DIMS)
		return false;
	for (size_t i = 0; i < size; i++) {
		if (!json_is_integer(json_array_get(array, i)))
			return false;
		out[i] = json_integer_value(json_array_get(array, i));
	}
	*n = (uint32_t)size;
	return true;
}

static int from_json(const json_t *json, uint64_t buffer_size, share_tensor *out)
{
	share_tensor t = SHARE_TENSOR_INIT;
	uint32_t n_strides;
	int r;

	t.dtype = share_dtype_from_name(json_string_value(json_object_get(json, "dtype")));
	if (!read_integers(json_object_get(json, "shape"), t.shape, &t.ndim) ||
	    !read_integers(json_object_get(json, "strides"), t.strides, &n_strides) ||
	    n_strides != t.ndim || json_integer_value(json_object_get(json, "offset")) < 0)
		return fail(SHARE_EINVAL, "the key \"tensor\" of the metadata is not a tensor's");
	t.offset = (uint64_t)json_integer_value(json_object_get(json, "offset"));
	r = tensor_check_fits(&t, buffer_size);
	if (r == 0)
		struct_out(share_tensor, out, &t);
	return r;
}

/* It came with the name or the token, from whoever could publish or export it. */
static int get_own(const share_buffer *b, share_tensor *out)
{
	share_tensor t = SHARE_TENSOR_INIT;
	int r = share_tensor_decode(b->tensor->bytes, b->tensor->size, &t);

	if (r == SHARE_ENOENT)
		return fail(SHARE_EINVAL, "what came with the buffer is not a tensor");
	r = r < 0 ? r : tensor_check_fits(&t, b->size);
	if (r == 0)
		struct_out(share_tensor, out, &t);
	return r;
}

int share_tensor_get(const share_buffer *b, share_tensor *out)
{
	json_t *root, *tensor;
	share_buffer *found = NULL;
	int r = buffer_find(b, &found);

	if (r == 0)
		r = struct_check(share_tensor, out);
	if (r == 0 && found->tensor)
		return get_own(found, out);
	if (r == 0)
		r = load(b, &root);
	if (r != 0)
		return r;
	tensor = json_object_get(root, "tensor");
	r = tensor ? from_json(tensor, found->size, out)
		   : fail(SHARE_ENOENT, "the buffer's metadata describes no tensor");
	json_decref(root);
	return r;
}
