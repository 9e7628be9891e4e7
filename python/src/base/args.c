/* SPDX-License-Identifier: MIT */

/* Reads the arguments of functions that programs call often. They come as an array (METH_FASTCALL),
 * so no tuple, no dictionary and no format string is needed. */

#include <string.h>

#include "python/src/base/args.h"

static bool intern(struct signature *s)
{
	for (int i = 0; s->names[i]; i++)
		if (!s->interned[i] && !(s->interned[i] = PyUnicode_InternFromString(s->names[i])))
			return false;
	return true;
}

static int place_of(const struct signature *s, PyObject *name)
{
	for (int i = 0; s->names[i]; i++)
		if (s->interned[i] == name)
			return i;
	for (int i = 0; s->names[i]; i++)
		if (PyUnicode_Compare(s->interned[i], name) == 0)
			return i;
	return -1;
}

bool args_spread(struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
		 PyObject **out)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;
	int count = 0;

	while (s->names[count])
		out[count++] = NULL;
	if (count > 0 && !s->interned[0] && !intern(s))
		return false;
	if (n > s->keyword_only) {
		PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments",
			     s->function, s->keyword_only);
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		out[i] = args[i];
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *name = PyTuple_GetItem(names, i);
		int place = place_of(s, name);

		if (place < 0 || out[place]) {
			PyErr_Format(PyExc_TypeError, "%s(): %s argument '%U'", s->function,
				     place < 0 ? "there is no" : "more than one", name);
			return false;
		}
		out[place] = args[n + i];
	}
	for (int i = 0; i < s->required; i++)
		if (!out[i]) {
			PyErr_Format(PyExc_TypeError, "%s() lacks the argument '%s'", s->function,
				     s->names[i]);
			return false;
		}
	return true;
}

const char *arg_text(PyObject *o)
{
	const char *text;
	Py_ssize_t n;

	if (!PyUnicode_Check(o)) {
		PyErr_Format(PyExc_TypeError, "a name is a text, not %.200R", o);
		return NULL;
	}
	text = PyUnicode_AsUTF8AndSize(o, &n);
	if (text && strlen(text) != (size_t)n) {
		PyErr_SetString(PyExc_ValueError, "there is a NUL in the name");
		return NULL;
	}
	return text;
}

bool arg_uint64(PyObject *o, uint64_t *out)
{
	PyObject *number;
	unsigned long long value;

	if (!o)
		return true;
	number = PyLong_CheckExact(o) ? Py_NewRef(o) : PyNumber_Index(o);
	if (!number)
		return false;
	value = PyLong_AsUnsignedLongLong(number);
	Py_DECREF(number);
	if (value == (unsigned long long)-1 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
			PyErr_Clear();
			PyErr_SetString(PyExc_ValueError, "the number is negative or too large");
		}
		return false;
	}
	*out = value;
	return true;
}

bool arg_int64(PyObject *o, int64_t *out)
{
	PyObject *number;
	long long value;

	if (!o)
		return true;
	number = PyLong_CheckExact(o) ? Py_NewRef(o) : PyNumber_Index(o);
	if (!number)
		return false;
	value = PyLong_AsLongLong(number);
	Py_DECREF(number);
	if (value == -1 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
			PyErr_Clear();
			PyErr_SetString(PyExc_ValueError, "the number is too large");
		}
		return false;
	}
	*out = value;
	return true;
}

bool mode_from(PyObject *o, uint32_t *out)
{
	if (!o)
		return true;
	if (PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, "r") == 0) {
		*out = SHARE_RDONLY;
	} else if (PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, "rw") == 0) {
		*out = SHARE_RDWR;
	} else {
		PyErr_SetString(PyExc_ValueError, "a mode is 'r' or 'rw'");
		return false;
	}
	return true;
}

bool token_from(const char *bytes, Py_ssize_t n, share_token *out)
{
	if (n == sizeof(out->bytes)) {
		memcpy(out->bytes, bytes, sizeof(out->bytes));
		return true;
	}
	PyErr_SetString(PyExc_ValueError, "a token has 32 bytes");
	return false;
}
