/* SPDX-License-Identifier: MIT */

/* The data of a message that is sent: the description of its Array, and what the program adds. */

#include <stdlib.h>
#include <string.h>

#include "python/src/core.h"

/* Returns whether the Array is all bytes of its buffer. The receiver assumes this if there is no
 * description. */
static bool is_plain(const share_tensor *t, share_buffer *b)
{
	return t->ndim == 1 && t->dtype == SHARE_UINT8 && t->offset == 0 && t->strides[0] == 1 &&
	       (uint64_t)t->shape[0] == share_size(b);
}

static bool describe(struct outgoing *o, bool has_data)
{
	const struct array *a = o->array;
	int n;

	if (!has_data && is_plain(&a->t, o->b))
		return true;
	n = share_tensor_encode(&a->t, o->data, o->room);
	if (n < 0) {
		raise_error(n);
		return false;
	}
	o->size = (size_t)n;
	return true;
}

/* Returns false with an exception. */
static bool make_room(struct outgoing *o, size_t n)
{
	unsigned char *larger;

	if (n <= o->room - o->size)
		return true;
	if (n > SHARE_CHANNEL_DATA_MAX - o->size) {
		PyErr_Format(PyExc_ValueError, "%zu bytes are too much to go with a message", n);
		return false;
	}
	/* this is the last that is appended */
	larger = malloc(o->size + n);
	if (!larger) {
		PyErr_NoMemory();
		return false;
	}
	memcpy(larger, o->data, o->size);
	o->data = larger;
	o->room = o->size + n;
	return true;
}

static bool append(struct outgoing *o, const void *bytes, size_t n)
{
	if (!make_room(o, n))
		return false;
	if (n > 0)
		memcpy(o->data + o->size, bytes, n);
	o->size += n;
	return true;
}

static bool append_object(struct outgoing *o, PyObject *meta, PyObject *data)
{
	Py_buffer bytes;
	PyObject *json;
	Py_ssize_t n;
	const char *text;
	bool good;

	if (data && data != Py_None) {
		if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
			return false;
		good = append(o, bytes.buf, (size_t)bytes.len);
		PyBuffer_Release(&bytes);
		return good;
	}
	if (!meta || meta == Py_None)
		return true;
	json = PyObject_CallFunctionObjArgs(core.dumps, meta, NULL);
	if (!json)
		return false;
	text = PyUnicode_AsUTF8AndSize(json, &n);
	good = text && append(o, text, (size_t)n);
	Py_DECREF(json);
	return good;
}

bool outgoing_begin(struct outgoing *o, PyObject *array, PyObject *meta, PyObject *data)
{
	bool has_meta = meta && meta != Py_None, has_data = data && data != Py_None;

	o->b = NULL;
	o->array = NULL;
	o->size = 0;
	o->room = sizeof(o->small);
	o->data = o->small;
	if (has_meta && has_data) {
		PyErr_SetString(PyExc_TypeError, "either meta or data goes with a message");
		return false;
	}
	if (array && array != Py_None) {
		if (!array_check(array))
			return false;
		o->b = array_enter((struct array *)array);
		if (!o->b)
			return false;
		o->array = (struct array *)array;
	}
	if ((!o->b || describe(o, has_data || has_meta)) && append_object(o, meta, data))
		return true;
	outgoing_end(o, 0);
	return false;
}

bool outgoing_end(struct outgoing *o, int r)
{
	bool good = no_error(r);

	if (o->array)
		array_leave(o->array, 0);
	o->array = NULL;
	if (o->data != o->small)
		free(o->data);
	o->data = o->small;
	return good;
}
