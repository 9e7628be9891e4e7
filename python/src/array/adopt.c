/* SPDX-License-Identifier: MIT */

/*
 * Memory of an object of Python's becomes a buffer. The object is kept until nobody has the buffer
 * any more, in whatever process; meanwhile its memory is found by its address, as that of the
 * frameworks is.
 */

#include <stdlib.h>

#include "python/src/array/inside.h"

/* In any thread, without the GIL. */
static void let_go(void *data)
{
	struct source *s = data;

	by_address_remove(&s->entry);
	stream_drop(s->object);
	free(s);
}

/* Where an object with the buffer protocol lies. The object, a memoryview, keeps it there. */
static bool look(PyObject *object, char **address, share_tensor *t)
{
	Py_buffer b;

	if (PyObject_GetBuffer(object, &b, PyBUF_STRIDED_RO) < 0)
		return false;
	*address = b.buf;
	t->ndim = (uint32_t)b.ndim;
	for (int i = 0; i < b.ndim && i < SHARE_TENSOR_MAX_DIMS; i++) {
		t->shape[i] = b.shape[i];
		t->strides[i] = b.strides[i] / (Py_ssize_t)dtype_size(t->dtype);
		if (b.strides[i] % (Py_ssize_t)dtype_size(t->dtype) != 0)
			t->ndim = SHARE_TENSOR_MAX_DIMS + 1;
	}
	PyBuffer_Release(&b);
	if (t->ndim > SHARE_TENSOR_MAX_DIMS) {
		PyErr_SetString(PyExc_ValueError,
				"its strides are no whole elements, or it has "
				"too many dimensions");
		return false;
	}
	return true;
}

/* What a framework says of an object: what @order is then, the stream behind which its content is,
 * counts if there is one. */
struct said {
	bool on_gpu, ordered;
	struct stream order;
};

/* The same of one that says so itself: its address, shape and strides, in elements; whether it lies
 * on a GPU, and the stream or None. */
static bool read_layout(PyObject *layout, char **address, share_tensor *t, struct said *said)
{
	PyObject *shape, *strides, *order;
	unsigned long long at;
	int n, gpu;

	if (!PyArg_ParseTuple(layout, "KOOpO", &at, &shape, &strides, &gpu, &order))
		return false;
	n = shape_from(shape, t->shape);
	if (n < 0 || share_tensor_init(t, t->dtype, (uint32_t)n, t->shape) != 0 ||
	    (strides != Py_None && shape_from(strides, t->strides) != n)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "that is no shape");
		return false;
	}
	*address = (char *)(uintptr_t)at;
	said->on_gpu = gpu;
	said->ordered = order != Py_None;
	return !said->ordered ||
	       stream_from(order, true, -1, (struct stream){NULL, NULL}, &said->order);
}

/* From the address of the first element to the range of all; @t->offset is where the first is in
 * it. */
static bool find_range(char **address, share_tensor *t, uint64_t *size)
{
	int64_t before = 0, after = 0;

	for (uint32_t i = 0; i < t->ndim; i++) {
		int64_t reach;

		if (t->shape[i] <= 0 ||
		    __builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &reach) ||
		    __builtin_add_overflow(reach < 0 ? before : after, reach,
					   reach < 0 ? &before : &after)) {
			PyErr_SetString(PyExc_ValueError, "it has no elements, and so no memory");
			return false;
		}
	}
	if (__builtin_mul_overflow(-before, (int64_t)dtype_size(t->dtype), (int64_t *)&t->offset) ||
	    __builtin_add_overflow(after - before, 1, &after) ||
	    __builtin_mul_overflow(after, (int64_t)dtype_size(t->dtype), (int64_t *)size)) {
		PyErr_SetString(PyExc_ValueError, "nothing is so large");
		return false;
	}
	*address -= t->offset;
	return true;
}

static struct source *keep_source(PyObject *object, share_client *client)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s) {
		PyErr_NoMemory();
		return NULL;
	}
	s->object = Py_NewRef(object);
	s->entry.client = client;
	s->entry.source = s;
	by_address_add(&s->entry); /* of no buffer yet */
	return s;
}

static share_buffer *adopt(struct pool *self, PyObject *object, void *memory, uint64_t size,
			   void *stream, bool on_gpu, struct source **source)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b = NULL;
	struct source *s;
	share_pool *p = handle_enter(&self->handle);
	int r;

	if (!p)
		return NULL;
	s = keep_source(object, self->client->handle.p);
	if (!s) {
		handle_leave(&self->handle, 0);
		return NULL;
	}
	s->entry.on_gpu = on_gpu;
	options.memory = memory;
	options.done = let_go;
	options.data = s;
	UNLOCKED(r = share_alloc_with(p, size, &options, stream, &b));
	*source = s;
	if (handle_leave(&self->handle, r))
		return b;
	if (r != 0)
		let_go(s);
	else
		UNLOCKED(share_release(b, stream));
	return NULL;
}

/* Which GPU the memory is of is known only now. */
static bool begin_on_own_gpu(struct array *a, PyObject *given, const struct said *said)
{
	struct stream stream;

	if (!a->on_gpu)
		return true;
	if (!array_stream(a, given, &stream))
		return false;
	array_begin_on(a, stream);
	return !said->ordered || array_follow(a, said->order.p);
}

PyObject *pool_adopt(PyObject *o, PyObject *args)
{
	PyObject *object, *dtype, *layout, *given = NULL;
	struct pool *self = (struct pool *)o;
	share_tensor t = SHARE_TENSOR_INIT;
	struct said said = {.on_gpu = false};
	struct stream stream;
	struct source *source;
	struct array *a;
	share_buffer *b;
	uint64_t size;
	char *address;

	if (!PyArg_ParseTuple(args, "OOO|O:_adopt", &object, &dtype, &layout, &given) ||
	    !dtype_from(dtype, &t.dtype) ||
	    !(layout == Py_None ? look(object, &address, &t)
				: read_layout(layout, &address, &t, &said)) ||
	    !stream_from(given, false, -1, (struct stream){NULL, NULL}, &stream) ||
	    !find_range(&address, &t, &size))
		return NULL;
	b = adopt(self, object, address, size, stream.p, said.on_gpu, &source);
	a = b ? array_make(self->client, b, &t, stream, said.on_gpu) : NULL;
	if (!a)
		return NULL;
	source_join(a, source);
	if (!begin_on_own_gpu(a, given, &said))
		Py_CLEAR(a);
	return (PyObject *)a;
}
