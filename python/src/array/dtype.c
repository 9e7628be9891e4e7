/* SPDX-License-Identifier: MIT */

/*
 * Numbers for dtypes. Each framework has its own objects for dtypes. Python code of the package
 * turns them into numbers, and this file remembers its answers.
 */

#include <string.h>

#include "python/src/array/dtype.h"

#define REMEMBERED_MAX 256
#define COMPLEX64      0x0540 /* a pair of floats, and below a pair of doubles */
#define COMPLEX128     0x0580

bool dtype_from(PyObject *o, uint32_t *out)
{
	PyObject *known = PyDict_GetItemWithError(core.dtype_codes, o);
	unsigned long code;

	if (known) {
		*out = (uint32_t)PyLong_AsUnsignedLong(known);
		return true;
	}
	if (PyErr_Occurred()) /* not hashable, so it is no dtype */
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

/* The names of the buffer protocol. Of several names for one dtype, the first is the one that is
 * exported. */
static const struct {
	uint32_t dtype;
	const char *format;
} formats[] = {
    {SHARE_INT8, "b"},    {SHARE_INT16, "h"},   {SHARE_INT32, "i"},  {SHARE_INT64, "q"},
    {SHARE_INT64, "l"},   {SHARE_UINT8, "B"},   {SHARE_UINT8, "c"},  {SHARE_UINT16, "H"},
    {SHARE_UINT32, "I"},  {SHARE_UINT64, "Q"},  {SHARE_UINT64, "L"}, {SHARE_FLOAT16, "e"},
    {SHARE_FLOAT32, "f"}, {SHARE_FLOAT64, "d"}, {SHARE_BOOL, "?"},   {COMPLEX64, "Zf"},
    {COMPLEX128, "Zd"},
};

const char *dtype_format(uint32_t dtype)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].dtype == dtype)
			return formats[i].format;
	return NULL;
}

uint32_t dtype_of_buffer(const Py_buffer *b, bool *swapped)
{
	const char *foreign = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ">!" : "<";
	const char *format = b->format ? b->format : "B"; /* as the protocol says */

	*swapped = *format && strchr(foreign, *format) && b->itemsize > 1;
	if (*format && strchr("@=|<>!", *format))
		format++;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (strcmp(formats[i].format, format) == 0 &&
		    (Py_ssize_t)dtype_size(formats[i].dtype) == b->itemsize)
			return formats[i].dtype;
	return 0;
}

PyObject *dtype_name_of_buffer(PyObject *Py_UNUSED(module), PyObject *o)
{
	uint32_t dtype;
	bool swapped;
	Py_buffer b;

	if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0)
		return NULL;
	dtype = dtype_of_buffer(&b, &swapped);
	PyBuffer_Release(&b);
	if (dtype == 0 || swapped)
		Py_RETURN_NONE;
	return PyUnicode_InternFromString(share_dtype_name(dtype));
}
