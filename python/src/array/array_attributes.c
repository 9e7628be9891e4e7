/* SPDX-License-Identifier: MIT */

/* What an Array says of itself. */

#include "python/src/array/inside.h"

PyObject *tuple_of(const int64_t *values, uint32_t n, int64_t factor)
{
	PyObject *tuple = PyTuple_New(n);

	for (uint32_t i = 0; tuple && i < n; i++) {
		PyObject *value = PyLong_FromLongLong(values[i] * factor);

		if (!value || PyTuple_SetItem(tuple, i, value) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

static PyObject *get_shape(PyObject *o, void *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;

	return tuple_of(a->t.shape, a->t.ndim, 1);
}

static PyObject *get_strides(PyObject *o, void *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;

	return tuple_of(a->t.strides, a->t.ndim, dtype_size(a->t.dtype));
}

static PyObject *get_dtype(PyObject *o, void *Py_UNUSED(ignored))
{
	return PyUnicode_InternFromString(share_dtype_name(((struct array *)o)->t.dtype));
}

static PyObject *get_number(PyObject *o, void *which)
{
	struct array *a = (struct array *)o;

	switch ((intptr_t)which) {
	case 'i':
		return PyLong_FromUnsignedLong(dtype_size(a->t.dtype));
	case 's':
		return PyLong_FromLongLong(array_items(a));
	default:
		return PyLong_FromLongLong(array_bytes(a));
	}
}

static PyObject *get_flag(PyObject *o, void *which)
{
	struct array *a = (struct array *)o;

	switch ((intptr_t)which) {
	case 'o':
		return PyBool_FromLong(a->readonly_ok);
	case 'c':
		return PyBool_FromLong(array_is_contiguous(a));
	default:
		return PyBool_FromLong(!a->b || a->closed);
	}
}

/* Attributes that only an Array with a buffer has. */
static PyObject *get_of_buffer(PyObject *o, void *which)
{
	struct array *a = (struct array *)o;
	struct handle h = {
	    .p = a->b, .what = "array", .generation = a->generation, .closed = a->closed};

	/* Only where it lies means nothing in a forked child, where the memory is not mapped. */
	if (!handle_is_open(&h) ||
	    (((intptr_t)which == 'p' || (intptr_t)which == 'h') && !handle_is_usable(&h)))
		return handle_refuse(&h);
	switch ((intptr_t)which) {
	case 'i':
		return PyLong_FromUnsignedLongLong(share_id(a->b));
	case 'v':
		return PyLong_FromUnsignedLongLong(share_name_version(a->b));
	case 'h':
		return PyBool_FromLong(array_on_host(a));
	case 'o':
		return PyLong_FromUnsignedLongLong(a->t.offset);
	default:
		return PyLong_FromUnsignedLongLong((uintptr_t)a->data);
	}
}

static PyObject *get_device(PyObject *o, void *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)o;

	if (!a->on_gpu)
		return PyUnicode_InternFromString("cpu");
	return PyUnicode_FromFormat("cuda:%d", array_ordinal(a));
}

static int set_readonly_ok(PyObject *o, PyObject *value, void *Py_UNUSED(ignored))
{
	int ok = value ? PyObject_IsTrue(value) : 0;

	if (ok < 0)
		return -1;
	((struct array *)o)->readonly_ok = ok;
	return 0;
}

PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct array, weak), READONLY, NULL},
    {"ndim", T_UINT, offsetof(struct array, t.ndim), READONLY, DOC_ARRAY_NDIM},
    {"readonly", T_BOOL, offsetof(struct array, readonly), READONLY, DOC_ARRAY_READONLY},
    {"on_gpu", T_BOOL, offsetof(struct array, on_gpu), READONLY, DOC_ARRAY_ON_GPU},
    {"client", T_OBJECT, offsetof(struct array, client), READONLY, DOC_ARRAY_CLIENT},
    {NULL, 0, 0, 0, NULL},
};

PyGetSetDef array_getters[] = {
    {"shape", get_shape, NULL, DOC_ARRAY_SHAPE, NULL},
    {"strides", get_strides, NULL, DOC_ARRAY_STRIDES, NULL},
    {"dtype", get_dtype, NULL, DOC_ARRAY_DTYPE, NULL},
    {"itemsize", get_number, NULL, DOC_ARRAY_ITEMSIZE, (void *)(intptr_t)'i'},
    {"size", get_number, NULL, "Elements.", (void *)(intptr_t)'s'},
    {"nbytes", get_number, NULL, DOC_ARRAY_NBYTES, (void *)(intptr_t)'b'},
    {"readonly_ok", get_flag, set_readonly_ok, DOC_ARRAY_READONLY_OK, (void *)(intptr_t)'o'},
    {"on_host", get_of_buffer, NULL, DOC_ARRAY_ON_HOST, (void *)(intptr_t)'h'},
    {"contiguous", get_flag, NULL, DOC_ARRAY_CONTIGUOUS, (void *)(intptr_t)'c'},
    {"closed", get_flag, NULL, DOC_ARRAY_CLOSED, (void *)(intptr_t)'x'},
    {"id", get_of_buffer, NULL, DOC_ARRAY_ID, (void *)(intptr_t)'i'},
    {"version", get_of_buffer, NULL, DOC_ARRAY_VERSION, (void *)(intptr_t)'v'},
    {"offset", get_of_buffer, NULL, DOC_ARRAY_OFFSET, (void *)(intptr_t)'o'},
    {"ptr", get_of_buffer, NULL, DOC_ARRAY_PTR, (void *)(intptr_t)'p'},
    {"device", get_device, NULL, DOC_ARRAY_DEVICE, NULL},
    {"__cuda_array_interface__", array_cuda_interface, NULL,
     "For CuPy, numba and others. Work goes on the current stream, which waits for the "
     "array.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
