/* SPDX-License-Identifier: MIT */

/* What an Array can do as a buffer of the broker: names, tokens, metadata, and where it lies. */

#include <stdlib.h>
#include <unistd.h>

#include "python/src/array/inside.h"

PyDoc_STRVAR(
    publish_doc,
    "publish(name, *, stream=..., persistent=False, exclusive=False, mode='rw', "
    "expected_version=0)\n--\n\n"
    "Make the name lead to this Array, with its dtype, shape, strides and offset, atomically "
    "in place of\nwhat it led to. Who looks it up is ordered after what was enqueued on the "
    "stream before. The name has a\nreference of its own, and goes when this process ends "
    "unless persistent. Returns its version, larger than\nall earlier ones.\n\n"
    "The right to a view is the right to its whole buffer.\n\n"
    "mode: at most this for those who look it up. exclusive: FileExistsError rather than "
    "replace.\nexpected_version: BusyError unless that is what is replaced.");
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

PyDoc_STRVAR(
    export_doc,
    "export(*, stream=..., mode='r', uses=1, timeout=None)\n--\n\n"
    "A token of 32 bytes: the right to import this Array, with its dtype, shape, strides and "
    "offset. It\nhas a reference of its own, and ends after so many uses (0: never), after "
    "timeout seconds (None: never),\nwith Client.revoke(), or with this process. Send it over "
    "what is private. "
    "The right to a view is the right to its whole buffer.");
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

PyDoc_STRVAR(
    raw_metadata_doc,
    "raw_metadata()\n--\n\n"
    "The bytes of the buffer's metadata as somebody has set them, JSON or not; None: there are "
    "none.");
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

PyDoc_STRVAR(status_doc,
	     "status()\n--\n\n"
	     "Whether the content of its buffer is good: True; False while its giver's work still "
	     "runs. Does "
	     "not wait. OwnerDiedError:\nthe giver died first, and the content means nothing.");
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

PyDoc_STRVAR(
    reclaim_doc,
    "reclaim(timeout=0, stream=...)\n--\n\n"
    "Whether this process is the only one that has the buffer, with no name, token or message "
    "that leads\nto it; waits so many seconds for that (None: without limit). Work enqueued on the "
    "stream afterwards then\ncomes after all that others did with the memory, so it can be used "
    "again.");
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

PyDoc_STRVAR(info_doc,
	     "info()\n--\n\n"
	     "Where its whole buffer lies, also for a view of a part, as a dictionary: size, "
	     "segment_size, offset\n(bytes; Array.offset is to be added), kind, device (UUID, or "
	     "None for host memory), ordinal (of the\ndevice here, or -1), segment, ordered "
	     "('nothing', 'stream' or 'host': how it came after the work of\nothers when it was "
	     "acquired).");
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

PyDoc_STRVAR(
    recipe_doc,
    "recipe()\n--\n\n"
    "How to reach the Array's first element without this library, as a dictionary: kind, fd "
    "(the caller's,\nto be closed), readonly, segment_size, offset (bytes), device (UUID or ''), "
    "pointer (64 bytes, for\nmempool and legacy). Good as long as the Array. The fd leads to the "
    "whole "
    "segment, whichever part of it the Array\nis.");
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
    {"publish", METHOD(publish), METH_FASTCALL | METH_KEYWORDS, publish_doc},
    {"export", METHOD(export), METH_FASTCALL | METH_KEYWORDS, export_doc},
    {"_set_metadata", set_metadata, METH_O, NULL},
    {"_get_metadata", get_metadata, METH_NOARGS, NULL},
    {"raw_metadata", raw_metadata, METH_NOARGS, raw_metadata_doc},
    {"status", status, METH_NOARGS, status_doc},
    {"reclaim", METHOD(reclaim), METH_FASTCALL | METH_KEYWORDS, reclaim_doc},
    {"info", info, METH_NOARGS, info_doc},
    {"recipe", recipe, METH_NOARGS, recipe_doc},
    {NULL, NULL, 0, NULL},
};
