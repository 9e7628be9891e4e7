/* SPDX-License-Identifier: MIT */

/* What an Array can do as a buffer of the broker: names, tokens, metadata, and where it lies. */

#include <stdlib.h>
#include <unistd.h>

#include "python/src/array/inside.h"

static PyObject *publish(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "publish",
	    {"name", "stream", "persistent", "exclusive", "mode", "expected_version", NULL},
	    1,
	    1,
	    {NULL}};
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	struct array *a = (struct array *)o;
	int persistent = 0, exclusive = 0, r;
	struct stream stream;
	PyObject *given[6];
	uint64_t version;
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *b;
	const char *name;

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	name = arg_text(given[0]);
	if (!name || (given[2] && (persistent = PyObject_IsTrue(given[2])) < 0) ||
	    (given[3] && (exclusive = PyObject_IsTrue(given[3])) < 0) ||
	    !arg_uint64(given[5], &options.expected_version) ||
	    !mode_from(given[4], &options.mode) || !array_stream(a, given[1], &stream))
		return NULL;
	options.flags = (persistent ? SHARE_PUBLISH_PERSISTENT : 0u) |
			(exclusive ? SHARE_PUBLISH_EXCLUSIVE : 0u);
	b = array_enter(a);
	if (!b)
		return NULL;
	array_tensor(a, &t);
	options.tensor = &t;
	UNLOCKED(r = share_publish_with(b, name, &options, stream.p, &version));
	return array_leave(a, r) ? PyLong_FromUnsignedLongLong(version) : NULL;
}

static PyObject *export(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "export", {"stream", "mode", "uses", "timeout", NULL}, 0, 0, {NULL}};
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	struct array *a = (struct array *)o;
	struct stream stream;
	uint64_t uses = 1;
	PyObject *given[4];
	share_token token;
	share_buffer *b;
	double seconds = 0;
	bool good = true;
	int r;

	if (!args_spread(&s, args, n, names, given) || !arg_uint64(given[2], &uses) ||
	    !mode_from(given[1], &options.mode) || !array_stream(a, given[0], &stream))
		return NULL;
	if (given[3] && given[3] != Py_None) {
		seconds = PyFloat_AsDouble(given[3]);
		if (PyErr_Occurred())
			return NULL;
		/* NaN fails both comparisons, and is refused like a number out of range. */
		good = seconds >= 0.001 && seconds <= UINT32_MAX / 1000;
	}
	if (uses > UINT32_MAX || !good) {
		PyErr_SetString(PyExc_ValueError, "uses or timeout cannot be that");
		return NULL;
	}
	options.uses = uses ? (uint32_t)uses : SHARE_USES_UNLIMITED;
	options.timeout_ms = (uint32_t)(seconds * 1000);
	b = array_enter(a);
	if (!b)
		return NULL;
	array_tensor(a, &t);
	options.tensor = &t;
	UNLOCKED(r = share_export_with(b, &options, stream.p, &token));
	if (!array_leave(a, r))
		return NULL;
	return PyBytes_FromStringAndSize((const char *)token.bytes, sizeof(token.bytes));
}

/* ------------------------------------------------------------------------------------------- */

static PyObject *set_metadata(PyObject *o, PyObject *json)
{
	struct array *a = (struct array *)o;
	const char *text = NULL;
	share_buffer *b;
	int r;

	if (json != Py_None && !(text = PyUnicode_AsUTF8AndSize(json, NULL)))
		return NULL;
	b = array_enter(a);
	if (!b)
		return NULL;
	UNLOCKED(r = share_metadata_set(b, text));
	return none_if(array_leave(a, r));
}

static PyObject *get_metadata(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;
	share_buffer *b = array_enter(a);
	PyObject *text;
	char *json;
	int r;

	if (!b)
		return NULL;
	UNLOCKED(r = share_metadata_get(b, &json));
	if (!array_leave(a, r == SHARE_ENOENT ? 0 : r))
		return NULL;
	if (r == SHARE_ENOENT)
		Py_RETURN_NONE;
	text = PyUnicode_FromString(json);
	free(json);
	return text;
}

static PyObject *raw_metadata(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;
	share_buffer *b = array_enter(a);
	PyObject *copy;
	void *bytes;
	size_t size;
	int r;

	if (!b)
		return NULL;
	UNLOCKED(r = share_metadata_get_raw(b, &bytes, &size));
	if (!array_leave(a, r == SHARE_ENOENT ? 0 : r))
		return NULL;
	if (r == SHARE_ENOENT)
		Py_RETURN_NONE;
	copy = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
	free(bytes);
	return copy;
}

static PyObject *status(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;
	int r;

	if (!array_is_usable(a))
		return NULL;
	r = share_buffer_status(a->b);
	if (r == SHARE_EAGAIN)
		Py_RETURN_FALSE;
	if (r != 0)
		return raise_error(r);
	Py_RETURN_TRUE;
}

static PyObject *reclaim(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"reclaim", {"timeout", "stream", NULL}, 0, 2, {NULL}};
	struct array *a = (struct array *)o;
	struct stream stream;
	PyObject *given[2], *zero;
	share_buffer *b;
	struct wait w;
	bool others;
	int r, again;

	if (!args_spread(&s, args, n, names, given) || !array_stream(a, given[1], &stream))
		return NULL;
	zero = PyLong_FromLong(0);
	again = zero && wait_begin(&w, given[0] ? given[0] : zero);
	Py_XDECREF(zero);
	if (!again)
		return NULL;
	b = array_enter(a);
	if (!b)
		return NULL;
	do {
		wait_starts(&w, &a->client->handle);
		UNLOCKED(r = share_reclaim(b, wait_ms(&w), stream.p));
		again = wait_again(&w, &a->client->handle, r);
	} while (again > 0 && array_is_usable(a));
	if (again > 0)
		wait_ends(&w);
	others = r == SHARE_ETIMEDOUT || r == SHARE_EBUSY;
	if (!array_leave(a, others || again != 0 ? 0 : r) || again != 0)
		return NULL;
	return PyBool_FromLong(!others);
}

static PyObject *info(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	static const char *const ordered[] = {"nothing", "stream", "host"};
	share_buffer_info i = SHARE_BUFFER_INFO_INIT;
	struct array *a = (struct array *)o;
	int r;

	if (!array_is_usable(a))
		return NULL;
	r = share_buffer_get_info(a->b, &i);
	if (r != 0)
		return raise_error(r);
	return Py_BuildValue(
	    "{sKszszsisKsKsKsz}", "size", (unsigned long long)share_size(a->b), "kind", i.kind,
	    "device", i.device, "ordinal", i.ordinal, "segment", (unsigned long long)i.segment,
	    "segment_size", (unsigned long long)i.segment_size, "offset",
	    (unsigned long long)i.offset, "ordered", i.ordered < 3 ? ordered[i.ordered] : NULL);
}

static PyObject *recipe(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	share_recipe got = SHARE_RECIPE_INIT;
	struct array *a = (struct array *)o;
	share_buffer *b = array_enter(a);
	PyObject *result;
	int r;

	if (!b)
		return NULL;
	UNLOCKED(r = share_get_recipe(b, &got));
	if (!array_leave(a, r))
		return NULL;
	result =
	    Py_BuildValue("{szsisOsKsKszsy#}", "kind", got.kind, "fd", got.fd, "readonly",
			  got.mode == SHARE_RDWR ? Py_False : Py_True, "segment_size",
			  (unsigned long long)got.segment_size, "offset",
			  (unsigned long long)(got.offset + a->t.offset), "device", got.device,
			  "pointer", (const char *)got.pointer, (Py_ssize_t)sizeof(got.pointer));
	if (!result)
		close(got.fd);
	return result;
}

PyMethodDef array_share_methods[] = {
    {"__arrow_c_device_array__", METHOD(array_arrow_device), METH_FASTCALL | METH_KEYWORDS,
     "__arrow_c_device_array__(requested_schema=None)\n--\n\n"
     "For libraries of Arrow that take memory of devices: a flat Array of numbers as an array "
     "without nulls, in\n"
     "place. Waits for the work on it. TypeError: Arrow has no such dtype. ValueError: it is not "
     "flat."},
    {"publish", METHOD(publish), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_PUBLISH},
    {"export", METHOD(export), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_EXPORT},
    {"_set_metadata", set_metadata, METH_O, NULL},
    {"_get_metadata", get_metadata, METH_NOARGS, NULL},
    {"raw_metadata", raw_metadata, METH_NOARGS, DOC_ARRAY_RAW_METADATA},
    {"status", status, METH_NOARGS, DOC_ARRAY_STATUS},
    {"reclaim", METHOD(reclaim), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_RECLAIM},
    {"info", info, METH_NOARGS, DOC_ARRAY_INFO},
    {"recipe", recipe, METH_NOARGS, DOC_ARRAY_RECIPE},
    {NULL, NULL, 0, NULL},
};
