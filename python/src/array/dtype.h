/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/core.h"

/* Reads a dtype of any framework. Returns false with an exception. */
bool dtype_from(PyObject *o, uint32_t *out);
const char *dtype_format(uint32_t dtype); /* in the buffer protocol; NULL: it has none */
/* Returns the dtype of a buffer that was got with its format, or 0 if the library has no such
 * dtype. Sets @swapped if the elements are in the other byte order. */
uint32_t dtype_of_buffer(const Py_buffer *b, bool *swapped);
/* A function of the module: returns the name of an object's dtype by the buffer protocol, or
 * None. */
PyObject *dtype_name_of_buffer(PyObject *module, PyObject *o);
static inline uint32_t dtype_size(uint32_t dtype)
{
	return (dtype & 0xff) / 8;
}
