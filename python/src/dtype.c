/* SPDX-License-Identifier: MIT */

/*
 * Numbers for dtypes. Each framework has objects of its own for them; Python code knows what they
 * are, and what it said of one is remembered.
 */

#include "python/src/core.h"

#define REMEMBERED_MAX 256

bool dtype_from(PyObject *o, uint32_t *out)
{
	PyObject *known = PyDict_GetItemWithError(core.dtype_codes, o);
	unsigned long code;

	if (known) {
		*out = (uint32_t)PyLong_AsUnsignedLong(known);
		return true;
	}
	if (PyErr_Occurred()) /* not hashable, and no dtype then */
		PyErr_Clear();
	if (!core.dtype_code) {
		PyErr_SetString(PyExc_RuntimeError, "the package libshare was not imported");
		return false;
	}
	known = PyObject_CallFunctionObjArgs(core.dtype_code, o, NULL);
	if (!known)
		return false;
	code = PyLong_AsUnsignedLong(known);
	if (!PyErr_Occurred() && (code > UINT32_MAX || !share_dtype_name((uint32_t)code)))
		PyErr_Format(PyExc_ValueError, "the library does not know the dtype %R", o);
	if (!PyErr_Occurred() && PyDict_Size(core.dtype_codes) < REMEMBERED_MAX &&
	    PyDict_SetItem(core.dtype_codes, o, known) < 0)
		PyErr_Clear();
	Py_DECREF(known);
	*out = (uint32_t)code;
	return !PyErr_Occurred();
}

const char *dtype_format(uint32_t dtype)
{
	switch (dtype) {
	case SHARE_INT8:
		return "b";
	case SHARE_INT16:
		return "h";
	case SHARE_INT32:
		return "i";
	case SHARE_INT64:
		return "q";
	case SHARE_UINT8:
		return "B";
	case SHARE_UINT16:
		return "H";
	case SHARE_UINT32:
		return "I";
	case SHARE_UINT64:
		return "Q";
	case SHARE_FLOAT16:
		return "e";
	case SHARE_FLOAT32:
		return "f";
	case SHARE_FLOAT64:
		return "d";
	case SHARE_BOOL:
		return "?";
	case 0x0540: /* pairs of floats, and of doubles */
		return "Zf";
	case 0x0580:
		return "Zd";
	}
	return NULL;
}
