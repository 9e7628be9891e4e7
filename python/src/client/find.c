/* SPDX-License-Identifier: MIT */

/*
 * Finds the Array that a tensor of a framework lies in. The framework says where the tensor lies.
 * If its types have DLPack's C functions, those are used, because they make no objects.
 */

#include "python/src/array/by_address.h"
#include "python/src/array/dlpack.h"
#include "python/src/array/dtype.h"
#include "python/src/client/inside.h"

/* @order: the stream behind which its content is, as the framework says, or None. NULL is fine for
 * @a. */
static PyObject *made(struct array *a, struct source *source, PyObject *order)
{
	struct stream behind;

	if (!a)
		return NULL;
	source_join(a, source);
	if (!a->on_gpu || order == Py_None ||
	    (stream_from(order, true, -1, (struct stream){NULL, NULL}, &behind) &&
	     array_follow(a, behind.p)))
		return (PyObject *)a;
	Py_DECREF((PyObject *)a);
	return NULL;
}

/* Returns a new Array for the tensor @t at the address @at, from whichever client the memory comes;
 * None if the byte at @at was not lent by any. */
static PyObject *array_at(uint64_t at, share_tensor *t, PyObject *order)
{
	struct by_address found;
	struct client *client;
	PyObject *array = NULL;
	uint64_t extent;
	int r;

	if (!by_address_find((void *)(uintptr_t)at, &found))
		Py_RETURN_NONE;
	client = client_with(found.client);
	Py_XINCREF((PyObject *)found.owner);
	t->offset = at - (uintptr_t)share_ptr(found.b);
	r = share_tensor_extent(t, &extent);
	if (client && r == 0 && extent <= share_size(found.b)) {
		struct stream stream = {found.stream, found.owner};

		array =
		    made(array_make(client, found.b, t, stream, found.on_gpu), found.source, order);
	} else {
		if (!client)
			array = Py_NewRef(Py_None);
		else if (no_error(r))
			PyErr_SetString(PyExc_ValueError, "it goes beyond its buffer");
		UNLOCKED(share_release(found.b, found.stream));
	}
	Py_XDECREF((PyObject *)found.owner);
	Py_XDECREF((PyObject *)client);
	return array;
}

PyObject *find_at(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *address, *dtype, *shape, *strides, *order = Py_None;
	share_tensor t = SHARE_TENSOR_INIT;
	uint64_t at;
	uint32_t code;
	int n, r;

	if (!PyArg_ParseTuple(args, "OOOO|O:_array_at", &address, &dtype, &shape, &strides,
			      &order) ||
	    !arg_uint64(address, &at) || !dtype_from(dtype, &code))
		return NULL;
	n = shape_from(shape, t.shape);
	if (n < 0)
		return NULL;
	r = share_tensor_init(&t, code, (uint32_t)n, t.shape);
	if (r == 0 && strides != Py_None && shape_from(strides, t.strides) != n &&
	    !PyErr_Occurred())
		r = SHARE_EINVAL;
	if (PyErr_Occurred())
		return NULL;
	if (r != 0)
		return raise_error(r);
	return array_at(at, &t, order);
}

/* Asks the type of @thing where the tensor lies. Returns 1 and fills @out; 0 if the type does not
 * say; -1 with an exception. */
static int describe(PyObject *thing, struct dl_tensor *out)
{
	static PyObject *name;
	struct dl_exchange *api;
	PyObject *capsule;

	if (!name && !(name = PyUnicode_InternFromString("__dlpack_c_exchange_api__")))
		return -1;
	capsule = PyObject_GetAttr((PyObject *)Py_TYPE(thing), name);
	if (!capsule) {
		PyErr_Clear();
		return 0;
	}
	api = PyCapsule_IsValid(capsule, "dlpack_exchange_api")
		  ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
		  : NULL;
	Py_DECREF(capsule); /* the type keeps it */
	if (!api || api->version.major != 1 || !api->tensor_from)
		return 0;
	if (api->tensor_from(thing, out) != 0) {
		if (!PyErr_ExceptionMatches(PyExc_MemoryError))
			PyErr_Clear();
		return PyErr_Occurred() ? -1 : 0;
	}
	return out->ndim >= 0 && out->ndim <= SHARE_TENSOR_MAX_DIMS && out->dtype.lanes == 1;
}

PyObject *find_of(PyObject *Py_UNUSED(module), PyObject *thing)
{
	share_tensor t = SHARE_TENSOR_INIT;
	struct dl_tensor lies;
	int r = describe(thing, &lies);

	if (r < 0)
		return NULL;
	if (r == 0 || share_tensor_init(&t, (uint32_t)lies.dtype.code << 8 | lies.dtype.bits,
					(uint32_t)lies.ndim, lies.shape) != 0)
		return Py_NewRef(Py_NotImplemented);
	for (int i = 0; lies.strides && i < lies.ndim; i++)
		t.strides[i] = lies.strides[i];
	return array_at((uint64_t)(uintptr_t)lies.data + lies.byte_offset, &t, Py_None);
}
