/* SPDX-License-Identifier: MIT */

/* Views: other shapes over the same memory. Each view has a reference of its own to the buffer. */

#include <string.h>

#include "python/src/array/inside.h"

int shape_from(PyObject *o, int64_t *out)
{
	PyObject *fast;
	Py_ssize_t n;
	bool good;

	if (!PyTuple_Check(o) && !PyList_Check(o)) {
		if (PyIndex_Check(o))
			return arg_int64(o, &out[0]) ? 1 : -1;
		fast = PySequence_Tuple(o);
		if (!fast)
			return -1;
		o = fast;
	} else {
		fast = Py_NewRef(o);
	}
	n = PySequence_Size(fast);
	good = n >= 0 && n <= SHARE_TENSOR_MAX_DIMS;
	if (n > SHARE_TENSOR_MAX_DIMS)
		PyErr_Format(PyExc_ValueError, "an Array has at most %d dimensions",
			     SHARE_TENSOR_MAX_DIMS);
	for (Py_ssize_t i = 0; good && i < n; i++) {
		PyObject *item = PySequence_GetItem(fast, i);

		good = item && arg_int64(item, &out[i]);
		Py_XDECREF(item);
	}
	Py_DECREF(fast);
	return good ? (int)n : -1;
}

static void keep_dimension(share_tensor *t, int64_t size, int64_t stride)
{
	t->shape[t->ndim] = size;
	t->strides[t->ndim++] = stride;
}

/* Handles one number of a key. */
static bool pick(const struct array *a, uint32_t *dim, PyObject *key, int64_t *elements)
{
	int64_t at, size = a->t.shape[*dim];

	if (!arg_int64(key, &at))
		return false;
	if (at < -size || at >= size) {
		PyErr_Format(PyExc_IndexError,
			     "index %lld is outside of dimension %u, which has %lld", (long long)at,
			     *dim, (long long)size);
		return false;
	}
	*elements += (at < 0 ? at + size : at) * a->t.strides[(*dim)++];
	return true;
}

static bool slice(const struct array *a, uint32_t *dim, PyObject *key, share_tensor *t,
		  int64_t *elements)
{
	Py_ssize_t start, stop, step, n;

	if (PySlice_Unpack(key, &start, &stop, &step) < 0)
		return false;
	n = PySlice_AdjustIndices((Py_ssize_t)a->t.shape[*dim], &start, &stop, step);
	if (n > 0)
		*elements += start * a->t.strides[*dim];
	/* A slice with fewer than two elements never uses its step, so a huge step must not be
	 * multiplied. */
	keep_dimension(t, n, a->t.strides[(*dim)++] * (n > 1 ? step : 1));
	return true;
}

PyObject *array_subscript(PyObject *self, PyObject *key)
{
	struct array *a = (struct array *)self;
	bool many = PyTuple_Check(key), good = true, dots = false;
	Py_ssize_t n = many ? PyTuple_Size(key) : 1, consuming = 0;
	share_tensor t = SHARE_TENSOR_INIT;
	int64_t elements = 0;
	uint32_t dim = 0;

	t.dtype = a->t.dtype;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *k = many ? PyTuple_GetItem(key, i) : key;

		consuming += k != Py_None && k != Py_Ellipsis;
	}
	if (consuming > (Py_ssize_t)a->t.ndim) {
		PyErr_Format(PyExc_IndexError, "%zd indices for %u dimensions", consuming,
			     a->t.ndim);
		return NULL;
	}
	for (Py_ssize_t i = 0; good && i < n; i++) {
		PyObject *k = many ? PyTuple_GetItem(key, i) : key;

		if (k == Py_Ellipsis && !dots) {
			dots = true;
			for (Py_ssize_t skip = (Py_ssize_t)a->t.ndim - consuming; skip > 0;
			     skip--, dim++)
				keep_dimension(&t, a->t.shape[dim], a->t.strides[dim]);
		} else if (PySlice_Check(k)) {
			good = slice(a, &dim, k, &t, &elements);
		} else if (PyIndex_Check(k) && !PyBool_Check(k)) {
			good = pick(a, &dim, k, &elements);
		} else if (k == Py_None && t.ndim + a->t.ndim - dim < SHARE_TENSOR_MAX_DIMS) {
			keep_dimension(&t, 1, 0);
		} else {
			PyErr_SetString(PyExc_TypeError,
					PyUnicode_Check(k)
					    ? "an Array is indexed by numbers: a dict that was "
					      "published is found by lookup_dict()"
					    : "an Array is indexed by numbers, slices, ... and "
					      "None; frameworks can do more");
			good = false;
		}
	}
	if (!good)
		return NULL;
	for (; dim < a->t.ndim; dim++)
		keep_dimension(&t, a->t.shape[dim], a->t.strides[dim]);
	/* The offset is relative to the array's first element, and can be negative. */
	t.offset = (uint64_t)(elements * (int64_t)dtype_size(t.dtype));
	return (PyObject *)array_derive(a, &t);
}

/* ------------------------------------------------------------------------------------------- */

static bool resolve_unknown(const struct array *a, share_tensor *t)
{
	int64_t known = 1, items = array_items(a);
	int unknown = -1;

	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->shape[i] == -1 && unknown < 0) {
			unknown = (int)i;
		} else if (t->shape[i] < 0 || __builtin_mul_overflow(known, t->shape[i], &known)) {
			PyErr_SetString(PyExc_ValueError, "that is no shape");
			return false;
		}
	}
	if (unknown >= 0) {
		t->shape[unknown] = known > 0 ? items / known : 0;
		known *= t->shape[unknown];
	}
	if (known != items) {
		PyErr_Format(PyExc_ValueError, "%lld elements do not have that shape",
			     (long long)items);
		return false;
	}
	return true;
}

static PyObject *reshape(PyObject *o, PyObject *args)
{
	struct array *a = (struct array *)o;
	share_tensor t = SHARE_TENSOR_INIT;
	PyObject *shape = args;
	int n, r;

	if (PyTuple_Size(args) == 1)
		shape = PyTuple_GetItem(args, 0);
	n = shape_from(shape, t.shape);
	if (n < 0)
		return NULL;
	t.ndim = (uint32_t)n;
	if (!array_is_contiguous(a)) {
		PyErr_SetString(PyExc_ValueError,
				"only an Array that is contiguous has other shapes without a copy");
		return NULL;
	}
	if (!resolve_unknown(a, &t))
		return NULL;
	r = share_tensor_init(&t, a->t.dtype, t.ndim, t.shape);
	return r == 0 ? (PyObject *)array_derive(a, &t) : raise_error(r);
}

static PyObject *view(PyObject *o, PyObject *dtype)
{
	struct array *a = (struct array *)o;
	uint32_t code, from = dtype_size(a->t.dtype), to;
	share_tensor t = SHARE_TENSOR_INIT;

	if (!dtype_from(dtype, &code))
		return NULL;
	array_tensor(a, &t);
	t.offset = 0;
	t.dtype = code;
	to = dtype_size(code);
	if (from != to) {
		uint32_t last = t.ndim - 1;

		if (t.ndim == 0 || (t.strides[last] != 1 && t.shape[last] > 1) ||
		    t.shape[last] * from % to != 0) {
			PyErr_SetString(
			    PyExc_ValueError,
			    "the last dimension has to be contiguous, and of a whole number of "
			    "elements of the new dtype");
			return NULL;
		}
		for (uint32_t i = 0; i < last; i++) {
			if (t.strides[i] * from % to != 0 && t.shape[i] > 1) {
				PyErr_SetString(
				    PyExc_ValueError,
				    "the strides are no whole number of elements of the new "
				    "dtype");
				return NULL;
			}
			t.strides[i] = t.strides[i] * (int64_t)from / (int64_t)to;
		}
		t.shape[last] = t.shape[last] * from / to;
		t.strides[last] = 1;
	}
	return (PyObject *)array_derive(a, &t);
}

static PyObject *transpose(PyObject *o, PyObject *args)
{
	struct array *a = (struct array *)o;
	int64_t axes[SHARE_TENSOR_MAX_DIMS];
	share_tensor t = SHARE_TENSOR_INIT;
	PyObject *order = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : args;
	uint32_t seen = 0;
	int n = PyTuple_Size(args) == 0 ? 0 : shape_from(order, axes);

	if (n < 0)
		return NULL;
	t.dtype = a->t.dtype;
	t.ndim = a->t.ndim;
	for (uint32_t i = 0; n == 0 && i < t.ndim; i++)
		axes[i] = (int64_t)(t.ndim - 1 - i);
	if (n != 0 && (uint32_t)n != t.ndim) {
		PyErr_SetString(PyExc_ValueError, "there is one axis for each dimension");
		return NULL;
	}
	for (uint32_t i = 0; i < t.ndim; i++) {
		int64_t axis = axes[i] < 0 ? axes[i] + (int64_t)t.ndim : axes[i];

		if (axis < 0 || axis >= (int64_t)t.ndim || seen & 1u << axis) {
			PyErr_SetString(PyExc_ValueError, "each axis is named once");
			return NULL;
		}
		seen |= 1u << axis;
		t.shape[i] = a->t.shape[axis];
		t.strides[i] = a->t.strides[axis];
	}
	return (PyObject *)array_derive(a, &t);
}

static PyObject *as_strided(PyObject *o, PyObject *args)
{
	struct array *a = (struct array *)o;
	PyObject *shape, *strides, *dtype;
	unsigned long long offset, size;
	share_tensor t = SHARE_TENSOR_INIT;
	uint64_t extent;
	share_buffer *b;
	struct array *v;
	int n, m;

	if (!PyArg_ParseTuple(args, "OOOK:as_strided", &shape, &strides, &dtype, &offset) ||
	    !dtype_from(dtype, &t.dtype))
		return NULL;
	n = shape_from(shape, t.shape);
	m = n < 0 ? -1 : shape_from(strides, t.strides);
	if (m < 0)
		return NULL;
	t.ndim = (uint32_t)n;
	t.offset = offset;
	for (int i = 0; i < n && n == m; i++) {
		if (t.strides[i] % dtype_size(t.dtype) != 0)
			m = -1;
		t.strides[i] /= (int64_t)dtype_size(t.dtype);
	}
	if (n != m) {
		PyErr_SetString(PyExc_ValueError,
				"there is a stride for each dimension, of whole "
				"elements");
		return NULL;
	}
	b = array_enter(a);
	if (!b)
		return NULL;
	size = share_size(b);
	if (share_tensor_extent(&t, &extent) != 0) {
		array_leave(a, SHARE_EINVAL);
		return NULL;
	}
	if (extent > size) {
		array_leave(a, 0);
		PyErr_Format(PyExc_ValueError, "the view ends at byte %llu of a buffer of %llu",
			     (unsigned long long)extent, size);
		return NULL;
	}
	t.offset = offset - a->t.offset;
	v = array_derive(a, &t);
	array_leave(a, 0);
	return (PyObject *)v;
}

PyMethodDef array_view_methods[] = {
    {"reshape", reshape, METH_VARARGS, DOC_ARRAY_RESHAPE},
    {"view", view, METH_O, DOC_ARRAY_VIEW},
    {"transpose", transpose, METH_VARARGS, DOC_ARRAY_TRANSPOSE},
    {"as_strided", as_strided, METH_VARARGS, DOC_ARRAY_AS_STRIDED},
    {NULL, NULL, 0, NULL},
};
