/* SPDX-License-Identifier: MIT */

/*
 * Lends Arrays by Arrow's C Device Data Interface: a flat Array is an Arrow array of numbers
 * without nulls.
 *
 * What is lent has a reference of its own to the buffer, as in DLPack, and whoever has it may
 * release it in any thread. Arrow's arrays are never written, so read-only memory is lent as well.
 */

#include <stdlib.h>
#include <string.h>

#include "python/src/array/dlpack.h"
#include "python/src/array/inside.h"

#define SCHEMA       "arrow_schema"
#define DEVICE_ARRAY "arrow_device_array"
#define CPU          1
#define CUDA         2
#define CUDA_HOST    3 /* the CPU and GPUs have it in place */

struct arrow_schema {
	const char *format, *name, *metadata;
	int64_t flags, n_children;
	struct arrow_schema **children, *dictionary;
	void (*release)(struct arrow_schema *);
	void *context;
};

struct arrow_array {
	int64_t length, null_count, offset, n_buffers, n_children;
	const void **buffers;
	struct arrow_array **children, *dictionary;
	void (*release)(struct arrow_array *);
	void *context;
};

struct arrow_device_array {
	struct arrow_array array;
	int64_t device_id;
	int32_t device_type;
	void *sync_event;
	int64_t reserved[3];
};

/* What is behind an array that was lent. */
struct lent_to_arrow {
	struct dl_versioned *held;
	const void *buffers[2]; /* which values there are: all; and the values */
};

static void release_schema(struct arrow_schema *s)
{
	s->release = NULL;
}

static void release_array(struct arrow_array *a)
{
	struct lent_to_arrow *l = a->context;

	l->held->deleter(l->held);
	free(l);
	a->release = NULL;
}

static void schema_gone(PyObject *capsule)
{
	struct arrow_schema *s = PyCapsule_GetPointer(capsule, SCHEMA);

	if (s->release)
		s->release(s);
	free(s);
}

static void array_gone(PyObject *capsule)
{
	struct arrow_device_array *d = PyCapsule_GetPointer(capsule, DEVICE_ARRAY);

	if (d->array.release)
		UNLOCKED(d->array.release(&d->array));
	free(d);
}

/* What Arrow calls the dtype; NULL: it has none. */
static const char *format_of(uint16_t dtype)
{
	static const char *const formats[3][4] = {
	    {"c", "s", "i", "l"}, {"C", "S", "I", "L"}, {NULL, "e", "f", "g"}};
	unsigned code = dtype >> 8, bits = dtype & 0xff;

	for (unsigned i = 0; i < 4 && code < 3; i++)
		if (bits == 8u << i)
			return formats[code][i];
	return NULL;
}

static PyObject *schema_make(const char *format)
{
	struct arrow_schema *s = calloc(1, sizeof(*s));
	PyObject *capsule;

	if (!s)
		return PyErr_NoMemory();
	*s = (struct arrow_schema){.format = format, .name = "", .release = release_schema};
	capsule = PyCapsule_New(s, SCHEMA, schema_gone);
	if (!capsule)
		free(s);
	return capsule;
}

static PyObject *device_array_make(struct array *a)
{
	struct arrow_device_array *d = calloc(1, sizeof(*d));
	struct lent_to_arrow *l = calloc(1, sizeof(*l));
	PyObject *capsule;

	if (!d || !l) {
		free(d), free(l);
		return PyErr_NoMemory();
	}
	l->held = dlpack_lend(a);
	if (!l->held) {
		free(d), free(l);
		return NULL;
	}
	l->buffers[1] = a->data;
	*d = (struct arrow_device_array){
	    .array = {.length = a->t.shape[0],
		      .n_buffers = 2,
		      .buffers = l->buffers,
		      .release = release_array,
		      .context = l},
	    .device_id = a->on_gpu ? array_ordinal(a) : -1,
	    .device_type = !a->on_gpu         ? CPU
			   : array_on_host(a) ? CUDA_HOST
					      : CUDA,
	};
	capsule = PyCapsule_New(d, DEVICE_ARRAY, array_gone);
	if (!capsule) {
		UNLOCKED(release_array(&d->array));
		free(d);
	}
	return capsule;
}

PyObject *array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "__arrow_c_device_array__", {"requested_schema", NULL}, 0, 1, {NULL}};
	struct array *a = (struct array *)self;
	PyObject *given[1], *schema, *array;
	const char *format;

	if (!args_spread(&s, args, n, names, given) || !array_is_usable(a))
		return NULL;
	format = format_of((uint16_t)a->t.dtype);
	if (!format)
		return PyErr_Format(PyExc_TypeError,
				    "Arrow has no numbers of this dtype: "
				    "view(\"uint8\") has their bytes");
	if (a->t.ndim != 1 || (a->t.shape[0] > 1 && a->t.strides[0] != 1))
		return PyErr_Format(
		    PyExc_ValueError,
		    "an array of Arrow is flat, and in C order: reshape(-1) of a contiguous Array");
	if (a->on_gpu && !array_wait(a, true)) /* consumers are told of no event to wait for */
		return NULL;
	schema = schema_make(format);
	array = schema ? device_array_make(a) : NULL;
	if (!array) {
		Py_XDECREF(schema);
		return NULL;
	}
	return Py_BuildValue("(NN)", schema, array);
}
