/* SPDX-License-Identifier: MIT */

/*
 * What a message contains: Arrays, and data.
 *
 * The data of a message begins with a description of the Array, unless the Array is simply all
 * bytes of the buffer. After that comes what the program gave, as JSON (`meta`) or as bytes
 * (`data`).
 */

#include <stdlib.h>

#include "python/src/channel/inside.h"

/* How the Arrays of a message were sent; @s is at the first of them. False: one, or none, or by
 * somebody who describes none of them. */
static bool look_several(const struct message *m, struct several *s)
{
	const unsigned char *bytes;
	size_t size = message_bytes(m, &bytes);

	return m->of->buffers > 1 && (m->m.n_buffers > 0 || m->m.error != 0) &&
	       several_begin(s, bytes, size) && (m->m.n_buffers == 0 || s->n == m->m.n_buffers);
}

/* The bytes that it takes; 0: it does not fit. */
static size_t extent_several(const struct message *m, struct several s)
{
	const unsigned char *bytes;
	size_t size = message_bytes(m, &bytes), n;
	share_tensor t;
	const char *name;
	uint64_t extent;

	for (uint32_t i = 0; i < s.n; i++)
		if (!several_next(&s, &name, &n, &t) || share_tensor_extent(&t, &extent) != 0 ||
		    (m->m.n_buffers > 0 && extent > share_size(m->m.buffers[i])))
			return 0;
	return size - s.left;
}

/* @b NULL: there are none. */
static void describe_bytes(const share_buffer *b, share_tensor *t)
{
	*t = (share_tensor)SHARE_TENSOR_INIT;
	t->dtype = SHARE_UINT8;
	t->ndim = 1;
	t->shape[0] = b ? (int64_t)share_size(b) : 0;
	t->strides[0] = 1;
}

void message_look(struct message *m, share_tensor *t)
{
	share_buffer *b = m->m.buffer;
	const unsigned char *bytes;
	size_t size = message_bytes(m, &bytes), several;
	struct several s;
	const char *name;
	uint64_t extent;
	int n;

	m->header = 0;
	if (look_several(m, &s) && (several = extent_several(m, s)) > 0) {
		m->header = (int)several;
		several_next(&s, &name, &several, t);
		return;
	}
	/* of memory that is not there because of an error it was sent, too */
	n = b || m->m.error != 0 ? share_tensor_decode(bytes, size, t) : 0;
	if (n > 0 && share_tensor_extent(t, &extent) == 0 && (!b || extent <= share_size(b)))
		m->header = n;
	else
		describe_bytes(b, t);
}

/* In a pool of kind adopted each buffer is where its owner had it. */
static bool lies_on_gpu(const struct message *m, const share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	return m->of->on_gpu ||
	       (m->of->adopts && share_buffer_get_info(b, &info) == 0 && info.ordinal >= 0);
}

/* The first message of a member is received on the current stream of whichever GPU is current: it
 * and its Array go on on that of their own. */
static bool settle_stream(struct message *m, struct array *a)
{
	if (a->on_gpu && a->ordinal < 0 && m->current) {
		if (!array_move_to_current(a))
			return false;
		Py_XDECREF(m->owner);
		m->stream = a->stream;
		m->owner = Py_XNewRef(a->owner);
	}
	if (m->of->on_gpu)
		m->of->ordinal = (int16_t)array_ordinal(a);
	return true;
}

static struct array *array_of_message(struct message *m, share_buffer *b, const share_tensor *t)
{
	struct array *a =
	    array_new(m->of->client, b, t, (struct stream){m->stream, m->owner}, lies_on_gpu(m, b));

	if (!a)
		return NULL;
	a->borrowed = true;
	a->readonly_ok = m->of->readonly_ok;
	a->ordinal = m->of->ordinal;
	if (!settle_stream(m, a)) {
		Py_DECREF((PyObject *)a);
		return NULL;
	}
	return a;
}

static PyObject *get_array(PyObject *o, void *Py_UNUSED(ignored))
{
	share_tensor t = SHARE_TENSOR_INIT;
	struct message *m = (struct message *)o;

	if (m->array)
		return Py_NewRef((PyObject *)m->array);
	if (!message_is_usable(m))
		return NULL;
	if (m->users > 0) /* another thread is acknowledging it */
		return message_refuse(m);
	if (!m->m.buffer)
		Py_RETURN_NONE;
	message_look(m, &t);
	m->array = array_of_message(m, m->m.buffer, &t);
	return Py_XNewRef((PyObject *)m->array);
}

/* Those behind the first, @s is at the first of them. @s NULL: nobody has described them. */
static bool make_rest(struct message *m, struct several *s)
{
	uint32_t n = m->m.n_buffers;
	share_tensor t;
	const char *name;
	size_t size;

	if (n < 2 || m->n_rest == n - 1)
		return true;
	if (!m->rest)
		m->rest = malloc((n - 1) * sizeof(struct array *));
	if (!m->rest) {
		PyErr_NoMemory();
		return false;
	}
	if (s)
		several_next(s, &name, &size, &t);
	for (uint32_t i = 1; i < n; i++) {
		if (!s || !several_next(s, &name, &size, &t))
			describe_bytes(m->m.buffers[i], &t);
		if (i <= m->n_rest) /* there was no memory for those behind it */
			continue;
		m->rest[i - 1] = array_of_message(m, m->m.buffers[i], &t);
		if (!m->rest[i - 1])
			return false;
		m->n_rest = i;
	}
	return true;
}

/* Puts @first and those of the message behind it into @all, as they were sent. Its sender may have
 * written anything for a name. */
static bool collect(struct message *m, PyObject *first, struct several *s, PyObject *all)
{
	share_tensor t;
	const char *name;
	size_t size;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < m->m.n_buffers; i++) {
		PyObject *array = i == 0 ? first : (PyObject *)m->rest[i - 1], *key;

		if (!s || !s->named) {
			r = PyList_Append(all, array);
			continue;
		}
		several_next(s, &name, &size, &t);
		key = PyUnicode_DecodeUTF8(name, (Py_ssize_t)size, "replace");
		r = key ? PyDict_SetItem(all, key, array) : -1;
		Py_XDECREF(key);
	}
	return r == 0;
}

static PyObject *get_arrays(PyObject *o, void *ignored)
{
	struct message *m = (struct message *)o;
	struct several s = {.n = 0}, at, *described = NULL;
	PyObject *first, *all;
	bool good;

	if (!message_is_usable(m))
		return NULL;
	if (look_several(m, &s) && extent_several(m, s) > 0)
		described = &at;
	/* Nothing of the message is taken before this, as it may collect garbage, whose finalizers
	 * may give the message up. */
	all = described && s.named ? PyDict_New() : PyList_New(0);
	first = all ? get_array(o, ignored) : NULL;
	if (!first) {
		Py_XDECREF(all);
		return NULL;
	}
	at = s;
	good = make_rest(m, described);
	at = s;
	if (!good || !collect(m, first, described, all))
		Py_CLEAR(all);
	Py_DECREF(first);
	return all;
}

static Py_ssize_t data_of(struct message *m, const char **out)
{
	share_tensor t = SHARE_TENSOR_INIT;
	const unsigned char *bytes;
	size_t size;

	if (m->header < 0)
		message_look(m, &t);
	size = message_bytes(m, &bytes);
	*out = (const char *)bytes + m->header;
	return (Py_ssize_t)size - m->header;
}

static PyObject *get_data(PyObject *o, void *Py_UNUSED(ignored))
{
	const char *data;
	Py_ssize_t n = data_of((struct message *)o, &data);

	return PyBytes_FromStringAndSize(data, n);
}

static PyObject *get_meta(PyObject *o, void *Py_UNUSED(ignored))
{
	const char *data;
	Py_ssize_t n = data_of((struct message *)o, &data);
	PyObject *text, *meta;

	if (n == 0)
		Py_RETURN_NONE;
	text = PyUnicode_DecodeUTF8(data, n, NULL);
	if (!text)
		return NULL;
	meta = PyObject_CallFunctionObjArgs(core.loads, text, NULL);
	Py_DECREF(text);
	return meta;
}

static PyObject *get_closed(PyObject *o, void *Py_UNUSED(ignored))
{
	struct message *m = (struct message *)o;

	return PyBool_FromLong(!m->m.channel || m->done);
}

PyGetSetDef message_getters[] = {
    {"array", get_array, NULL, DOC_MESSAGE_ARRAY, NULL},
    {"arrays", get_arrays, NULL, DOC_MESSAGE_ARRAYS, NULL},
    {"meta", get_meta, NULL, DOC_MESSAGE_META, NULL},
    {"data", get_data, NULL, DOC_MESSAGE_DATA, NULL},
    {"closed", get_closed, NULL, DOC_MESSAGE_CLOSED, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
