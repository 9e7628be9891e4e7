/* SPDX-License-Identifier: MIT */

/*
 * The library's errors as exceptions. Python code says which class belongs to which number; a
 * number without a class becomes a RuntimeError.
 */

#include "python/src/base/core.h"

PyObject *error_class(int r)
{
	PyObject *number = PyLong_FromLong(r);
	PyObject *class =
	    number && core.errors ? PyDict_GetItemWithError(core.errors, number) : NULL;

	Py_XDECREF(number);
	if (!class)
		PyErr_Clear();
	return class ? class : PyExc_RuntimeError;
}

PyObject *raise_error(int r)
{
	return raise_named(r, share_error_detail());
}

PyObject *raise_named(int r, const char *detail)
{
	PyObject *class = error_class(r);

	if (detail && *detail)
		PyErr_Format(class, "%s: %s", share_strerror(r), detail);
	else
		PyErr_SetString(class, share_strerror(r));
	return NULL;
}

bool no_error(int r)
{
	if (r < 0 && !PyErr_Occurred())
		raise_error(r);
	return r >= 0;
}

PyObject *raise_closed(const char *what)
{
	PyErr_Format(core.closed ? core.closed : PyExc_ValueError, "the %s was given up", what);
	return NULL;
}
