/* SPDX-License-Identifier: MIT */

/*
 * Finds out what `stream=` means: a stream of any framework, by the attributes in which frameworks
 * keep its number, or a number. This file imports no framework: a program that has such an object
 * has imported its framework.
 */

#include <stdlib.h>

#include "python/src/base/args.h"
#include "python/src/order/order.h"

/* Reads a number, or an object that has or is one (of ctypes, of cuda-bindings). */
static bool number_from(PyObject *o, void **out)
{
	PyObject *value = NULL, *number;

	if (PyUnicode_Check(o) || PyBytes_Check(o) || PyFloat_Check(o)) {
		PyErr_SetString(PyExc_TypeError, "that is no stream");
		return false;
	}
	if (!PyLong_Check(o)) {
		value = PyObject_GetAttrString(o, "value");
		if (!value)
			PyErr_Clear();
	}
	if (value == Py_None) {
		Py_DECREF(value);
		*out = NULL;
		return true;
	}
	number = PyNumber_Long(value ? value : o);
	Py_XDECREF(value);
	if (!number)
		return false;
	*out = PyLong_AsVoidPtr(number);
	Py_DECREF(number);
	return !PyErr_Occurred();
}

/* Reads the stream from an attribute. Returns 1 if it was found, 0 if there is no such attribute,
 * -1 with an exception. */
static int from_attribute(PyObject *o, const char *name, void **out)
{
	PyObject *value = PyObject_GetAttrString(o, name);
	bool good;

	if (!value) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError))
			return -1;
		PyErr_Clear();
		return 0;
	}
	good = number_from(value, out);
	Py_DECREF(value);
	return good ? 1 : -1;
}

/* The same by the protocol of cuda.core, which answers a version and the number. */
static int from_protocol(PyObject *o, void **out)
{
	PyObject *method = PyObject_GetAttrString(o, "__cuda_stream__"), *pair, *number;
	bool good = false;

	if (!method) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError))
			return -1;
		PyErr_Clear();
		return 0;
	}
	pair = PyCallable_Check(method) ? PyObject_CallNoArgs(method) : Py_NewRef(method);
	Py_DECREF(method);
	if (!pair)
		return -1;
	number = PySequence_Check(pair) && PySequence_Size(pair) == 2 ? PySequence_GetItem(pair, 1)
								      : NULL;
	Py_DECREF(pair);
	if (number) {
		good = number_from(number, out);
		Py_DECREF(number);
	} else if (!PyErr_Occurred()) {
		PyErr_SetString(PyExc_TypeError,
				"__cuda_stream__() has to answer a version and a number");
	}
	return good ? 1 : -1;
}

static bool explicit_from(PyObject *given, struct stream *out)
{
	static const char *const names[] = {"cuda_stream", "ptr", "handle"};
	int r;

	*out = (struct stream){NULL, NULL};
	if (given == Py_None)
		return true;
	if (PyLong_Check(given)) {
		out->p = PyLong_AsVoidPtr(given);
		if (PyErr_Occurred() || (intptr_t)out->p == -1) {
			PyErr_Clear();
			PyErr_SetString(PyExc_ValueError, "that number is no stream");
			return false;
		}
		return true;
	}
	out->owner = given;
	if (PyObject_TypeCheck(given, core.host_stream)) {
		out->p = host_stream_of(given);
		return out->p != NULL;
	}
	r = from_protocol(given, &out->p);
	for (size_t i = 0; r == 0 && i < sizeof(names) / sizeof(names[0]); i++)
		r = from_attribute(given, names[i], &out->p);
	if (r == 0)
		r = number_from(given, &out->p) ? 1 : -1;
	if (r < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError,
			     "a stream is one of a CUDA framework, a HostStream, a number or None; "
			     "not %R",
			     Py_TYPE(given));
	}
	return r > 0;
}

/* Returns whether a framework that may have a stream was imported. If not, a call into Python is
 * saved. */
static bool may_have_stream(void)
{
	PyObject *modules = PyImport_GetModuleDict();

	for (Py_ssize_t i = 0; core.frameworks && i < PyTuple_Size(core.frameworks); i++)
		if (PyDict_GetItemWithError(modules, PyTuple_GetItem(core.frameworks, i)))
			return true;
	return false;
}

/* Keeps a reference to the framework's stream, because the caller only borrows it. The thread keeps
 * it until the next one. */
static bool keep_for_now(PyObject *stream)
{
	PyObject *of_thread = PyThreadState_GetDict();

	return PyLong_Check(stream) || !of_thread ||
	       PyDict_SetItemString(of_thread, "libshare.stream", stream) == 0;
}

bool stream_from(PyObject *given, bool on_gpu, int ordinal, struct stream home, struct stream *out)
{
	PyObject *number, *now;
	bool good = true;

	if (given)
		return explicit_from(given, out);
	*out = home;
	if (!on_gpu || !may_have_stream())
		return true;
	number = PyLong_FromLong(ordinal);
	now = number ? PyObject_CallFunctionObjArgs(core.current_stream, number, NULL) : NULL;
	Py_XDECREF(number);
	if (!now)
		return false;
	if (now != Py_None)
		good = explicit_from(now, out) && keep_for_now(now);
	Py_DECREF(now);
	return good;
}

PyObject *stream_owner(void *p, int ordinal)
{
	const struct stream none = {NULL, NULL};
	const uintptr_t per_thread = 2; /* the driver's own streams end with this number */
	struct stream now;

	if ((uintptr_t)p <= per_thread)
		return NULL;
	if (!stream_from(NULL, true, ordinal, none, &now)) {
		PyErr_Clear();
		return NULL;
	}
	return now.p == p ? now.owner : NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* Owners that are let go of where Python must not be called                                   */

struct dropped {
	struct dropped *next;
	PyObject *owner;
};

static struct dropped *dropped;

static int drop_all(void *Py_UNUSED(ignored))
{
	struct dropped *all = __atomic_exchange_n(&dropped, NULL, __ATOMIC_ACQUIRE), *next;

	for (; all; all = next) {
		next = all->next;
		Py_DECREF(all->owner);
		free(all);
	}
	return 0;
}

void stream_drop(void *owner)
{
	struct dropped *d;

	if (!owner || !Py_IsInitialized())
		return;
	d = malloc(sizeof(*d));
	if (!d)
		return;
	d->owner = owner;
	d->next = __atomic_load_n(&dropped, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&dropped, &d->next, d, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	/* If the interpreter cannot take one more pending call, the call for the next owner drops
	 * this one too. */
	(void)Py_AddPendingCall(drop_all, NULL);
}
