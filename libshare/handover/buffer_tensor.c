/* SPDX-License-Identifier: MIT */

/* The tensor of a buffer: it came with its name or token, or is kept under one key of its metadata.
 */

#include <errno.h>
#include <stdlib.h>

#include <jansson.h>

#include "libshare/handover/inside.h"

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
	int r = share_metadata_get(b, &text);

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
