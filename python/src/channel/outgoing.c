/* SPDX-License-Identifier: MIT */

/* The data of a message that is sent: the description of its Array, and what the program adds. */

#include <stdlib.h>
#include <string.h>

#include "python/src/channel/inside.h"

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

static bool refuse(size_t n)
{
	PyErr_Format(PyExc_ValueError,
		     "%zu bytes are too much to go with a message, which has %d at most: what is "
		     "larger goes into an Array",
		     n, SHARE_CHANNEL_DATA_MAX);
	return false;
}

/* Returns false with an exception. */
static bool make_room(struct outgoing *o, size_t n)
{
	unsigned char *larger;
	size_t room;

	if (n <= o->room - o->size)
		return true;
	if (n > SHARE_CHANNEL_DATA_MAX - o->size)
		return refuse(o->size + n);
	room = o->n > 0 ? 2 * (o->size + n) : o->size + n; /* more comes, or this is the last */
	larger = malloc(room);
	if (!larger) {
		PyErr_NoMemory();
		return false;
	}
	memcpy(larger, o->data, o->size);
	if (o->data != o->small)
		free(o->data);
	o->data = larger;
	o->room = room;
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

/* ------------------------------------------------------------------------------------------- */
/* Several                                                                                     */

static bool append_name(struct outgoing *o, PyObject *key)
{
	unsigned char size[2];
	const char *text;
	Py_ssize_t n;

	if (!PyUnicode_Check(key)) {
		PyErr_Format(PyExc_TypeError, "the keys of a dict of Arrays are texts, not %R",
			     key);
		return false;
	}
	text = PyUnicode_AsUTF8AndSize(key, &n);
	if (!text)
		return false;
	if (n > UINT16_MAX)
		return refuse((size_t)n);
	size[0] = (unsigned char)n;
	size[1] = (unsigned char)(n >> 8);
	return append(o, size, sizeof(size)) && append(o, text, (size_t)n);
}

static bool append_array(struct outgoing *o, PyObject *array)
{
	unsigned char described[SHARE_TENSOR_ENCODED_MAX];
	int n;

	if (!array_check(array))
		return false;
	o->buffers[o->n] = array_enter((struct array *)array);
	if (!o->buffers[o->n])
		return false;
	o->arrays[o->n] = (struct array *)Py_NewRef(array);
	n = share_tensor_encode(&o->arrays[o->n++]->t, described, sizeof(described));
	if (n < 0) {
		raise_error(n);
		return false;
	}
	return append(o, described, (size_t)n);
}

/* @arrays: a list, or a dict. */
static bool append_several(struct outgoing *o, uint32_t most, PyObject *arrays)
{
	bool named = PyDict_Check(arrays), good = true;
	PyObject *items = named ? PyDict_Items(arrays) : PySequence_List(arrays);
	Py_ssize_t n = items ? PyList_Size(items) : 0;
	unsigned char head[SEVERAL_HEAD];

	if (!items)
		return false;
	if (most <= 1 || n < 1 || n > (Py_ssize_t)most) {
		PyErr_Format(
		    PyExc_ValueError,
		    most <= 1 ? "a list or a dict of Arrays goes with a message of a channel "
				"that was opened with buffers=, on both sides"
			      : "%zd Arrays cannot go with a message of this channel, but 1 to %u: "
				"buffers= says how many",
		    n, most);
		Py_DECREF(items);
		return false;
	}
	o->buffers = malloc((size_t)n * sizeof(*o->buffers));
	o->arrays = malloc((size_t)n * sizeof(*o->arrays));
	if (!o->buffers || !o->arrays) {
		PyErr_NoMemory();
		Py_DECREF(items);
		return false;
	}
	several_head(head, (uint32_t)n, named);
	append(o, head, sizeof(head));
	for (Py_ssize_t i = 0; good && i < n; i++) {
		PyObject *item = PyList_GetItem(items, i);

		good = (!named || append_name(o, PyTuple_GetItem(item, 0))) &&
		       append_array(o, named ? PyTuple_GetItem(item, 1) : item);
	}
	Py_DECREF(items);
	o->b = o->n > 0 ? o->buffers[0] : NULL;
	o->array = o->n > 0 ? o->arrays[0] : NULL;
	return good;
}

/* ------------------------------------------------------------------------------------------- */

bool outgoing_begin(struct outgoing *o, uint32_t most, PyObject *array, PyObject *meta,
		    PyObject *data)
{
	bool has_meta = meta && meta != Py_None, has_data = data && data != Py_None;
	bool good = true;

	o->b = NULL;
	o->array = NULL;
	o->buffers = NULL;
	o->arrays = NULL;
	o->n = 0;
	o->size = 0;
	o->room = sizeof(o->small);
	o->data = o->small;
	if (has_meta && has_data) {
		PyErr_SetString(PyExc_TypeError, "either meta or data goes with a message");
		return false;
	}
	if (array && (PyList_Check(array) || PyDict_Check(array))) {
		good = append_several(o, most, array);
	} else if (array && array != Py_None) {
		if (!array_check(array))
			return false;
		o->b = array_enter((struct array *)array);
		if (!o->b)
			return false;
		o->array = (struct array *)array;
		good = describe(o, has_data || has_meta);
	}
	if (good && append_object(o, meta, data))
		return true;
	outgoing_end(o, 0);
	return false;
}

bool outgoing_end(struct outgoing *o, int r)
{
	bool good = no_error(r);

	if (o->array && o->n == 0)
		array_leave(o->array, 0);
	for (uint32_t i = 0; i < o->n; i++) {
		array_leave(o->arrays[i], 0);
		Py_DECREF((PyObject *)o->arrays[i]);
	}
	free(o->buffers);
	free(o->arrays);
	o->buffers = NULL;
	o->arrays = NULL;
	o->n = 0;
	o->array = NULL;
	if (o->data != o->small)
		free(o->data);
	o->data = o->small;
	return good;
}

/* Not NULL, if any of them has another: with host memory the calling thread would have to wait. */
struct stream outgoing_home(const struct outgoing *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (o->arrays[i]->stream)
			return array_home(o->arrays[i]);
	return o->array ? array_home(o->array) : (struct stream){NULL, NULL};
}

static bool order(struct array *a, void *stream)
{
	return a->stream == stream || (!a->stream && !a->on_gpu) || array_order_any(a, stream);
}

bool outgoing_order(const struct outgoing *o, void *stream)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (!order(o->arrays[i], stream))
			return false;
	return o->n > 0 || !o->array || order(o->array, stream);
}

int outgoing_ordinal(const struct outgoing *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (o->arrays[i]->on_gpu)
			return array_ordinal(o->arrays[i]);
	return o->array ? array_ordinal(o->array) : -1;
}

bool outgoing_stream(const struct outgoing *o, PyObject *given, bool on_gpu, struct stream home,
		     struct stream *out)
{
	return stream_from(given, on_gpu, outgoing_ordinal(o), home, out) &&
	       (given || out->p != home.p || outgoing_order(o, out->p));
}

share_outgoing outgoing_raw(const struct outgoing *o)
{
	share_outgoing raw = SHARE_OUTGOING_INIT;

	if (o->n > 0) {
		raw.buffers = o->buffers;
		raw.n_buffers = o->n;
	} else {
		raw.buffer = o->b;
	}
	raw.data = o->data;
	raw.data_size = o->size;
	return raw;
}
