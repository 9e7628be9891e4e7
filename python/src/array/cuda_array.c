/* SPDX-License-Identifier: MIT */

/*
 * The CUDA Array Interface. If the interface names a stream, consumers synchronise the host with
 * it. So this file orders the array's work before the consumer's next work on its current stream,
 * and names no stream.
 */

#include <string.h>

#include "python/src/array/inside.h"

static bool typestr_of(uint32_t dtype, char *out, size_t size)
{
	static const char letters[] = {'i', 'u', 'f', [5] = 'c', [6] = 'b'};
	char letter = dtype >> 8 < sizeof(letters) ? letters[dtype >> 8] : '\0';

	if (!letter)
		return false;
	PyOS_snprintf(out, size, "%c%c%u", dtype_size(dtype) > 1 ? '<' : '|', letter,
		      dtype_size(dtype));
	return true;
}

PyObject *array_cuda_interface(PyObject *self, void *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)self;
	PyObject *shape, *strides, *result = NULL;
	struct stream stream;
	char typestr[8];

	if (!a->on_gpu) {
		PyErr_SetString(PyExc_AttributeError, "this is host memory");
		return NULL;
	}
	if (!typestr_of(a->t.dtype, typestr, sizeof(typestr))) {
		PyErr_Format(
		    PyExc_AttributeError,
		    "the CUDA Array Interface has no %s: from_dlpack() of a framework that has",
		    share_dtype_name(a->t.dtype));
		return NULL;
	}
	if (a->readonly && !a->readonly_ok) {
		PyErr_SetString(
		    PyExc_BufferError,
		    "the Array is read-only, which frameworks on GPUs do not heed, and a kernel "
		    "that stores to it would take the context down: have readonly_ok=True, or "
		    "mode='rw'");
		return NULL;
	}
	if (!stream_from(NULL, true, array_ordinal(a), (struct stream){NULL, NULL}, &stream) ||
	    !array_order(a, stream.p))
		return NULL;
	shape = tuple_of(a->t.shape, a->t.ndim, 1);
	if (array_is_contiguous(a))
		strides = Py_NewRef(Py_None);
	else
		strides = tuple_of(a->t.strides, a->t.ndim, dtype_size(a->t.dtype));
	if (shape && strides)
		result = Py_BuildValue("{sOsss(KO)sOsOsi}", "shape", shape, "typestr", typestr,
				       "data", (unsigned long long)(uintptr_t)a->data,
				       a->readonly ? Py_True : Py_False, "strides", strides,
				       "stream", Py_None, "version", 3);
	Py_XDECREF(shape);
	Py_XDECREF(strides);
	return result;
}
