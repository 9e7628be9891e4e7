/* SPDX-License-Identifier: MIT */

/*
 * Lends Arrays to other frameworks through DLPack.
 *
 * Each tensor that is lent has a reference of its own to the buffer. It gives the reference up
 * behind the stream that the consumer named when it asked. The deleter can run in any thread, even
 * after the interpreter has ended, so it must not use Python.
 *
 * __dlpack__() must never fail with a TypeError: consumers would think that this is an older
 * version of the protocol, and ask again in other words.
 */

#include <stdlib.h>
#include <string.h>

#include "python/src/array/dlpack.h"
#include "python/src/array/inside.h"

#define LEGACY    "dltensor"
#define VERSIONED "dltensor_versioned"
#define HELD      "libshare.held"
#define NO_STREAM (-1)

/* What is behind a tensor that was lent, in either form of the protocol. */
struct lent {
	union {
		struct dl_managed managed;
		struct dl_versioned versioned;
	} as;
	struct by_address entry; /* the buffer, and the stream of its release */
	unsigned generation;
	int64_t shape[SHARE_TENSOR_MAX_DIMS], strides[SHARE_TENSOR_MAX_DIMS];
};

static void end_lent(struct lent *l)
{
	by_address_remove(&l->entry);
	if (l->generation == process_generation())
		stream_drop(release_behind(l->entry.b, l->entry.stream, l->entry.owner));
	free(l);
}

static void delete_managed(struct dl_managed *m)
{
	end_lent(m->context);
}

static void delete_versioned(struct dl_versioned *v)
{
	end_lent(v->context);
}

/* Where it is lent to: whoever has memory of a GPU, which the CPU may reach as well. */
static struct dl_device device_of(struct array *a, bool on_gpu)
{
	return on_gpu ? (struct dl_device){DL_CUDA, array_ordinal(a)}
		      : (struct dl_device){DL_CPU, 0};
}

static void fill(struct array *a, bool on_gpu, struct dl_tensor *t, int64_t *shape,
		 int64_t *strides)
{
	*t = (struct dl_tensor){
	    .data = a->data,
	    .device = device_of(a, on_gpu),
	    .ndim = (int32_t)a->t.ndim,
	    .dtype = {(uint8_t)(a->t.dtype >> 8), (uint8_t)a->t.dtype, 1},
	    .shape = shape,
	    .strides = strides,
	};
}

/* Lends the array, with a reference of its own. Returns NULL with an exception. It checks again
 * whether the array can be used, because code of the program may have run since, and have given the
 * array up. */
static struct lent *lend(struct array *a, bool on_gpu, struct stream stream, bool versioned)
{
	size_t n = a->t.ndim * sizeof(a->t.shape[0]);
	struct dl_tensor *t;
	struct lent *l;

	if (!array_is_usable(a))
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l) {
		PyErr_NoMemory();
		return NULL;
	}
	l->entry = (struct by_address){.client = a->client->handle.p,
				       .b = share_retain(a->b),
				       .stream = stream.p,
				       .owner = Py_XNewRef(stream.owner),
				       .on_gpu = a->on_gpu,
				       .source = a->source};
	by_address_add(&l->entry);
	l->generation = process_generation();
	memcpy(l->shape, a->t.shape, n);
	memcpy(l->strides, a->t.strides, n);
	if (versioned) {
		l->as.versioned = (struct dl_versioned){.version = {1, 1},
							.context = l,
							.deleter = delete_versioned,
							.flags = a->readonly ? DL_READ_ONLY : 0};
		t = &l->as.versioned.tensor;
	} else {
		l->as.managed.context = l;
		l->as.managed.deleter = delete_managed;
		t = &l->as.managed.tensor;
	}
	fill(a, on_gpu, t, l->shape, l->strides);
	return l;
}

static bool may_be_lent(struct array *a, bool on_gpu, bool versioned)
{
	if (!a->readonly || a->readonly_ok || (versioned && !on_gpu))
		return true;
	PyErr_SetString(
	    PyExc_BufferError,
	    on_gpu
		? "the Array is read-only, which frameworks on GPUs do not heed, and a kernel that "
		  "stores to it would take the context down: have readonly_ok=True, or mode='rw'"
		: "the Array is read-only, which this consumer cannot be told: have "
		  "readonly_ok=True, or mode='rw'");
	return false;
}

/* ------------------------------------------------------------------------------------------- */
/* Reading what the consumer asks for                                                          */

/* Reads the stream on which the consumer says it will work. The protocol forbids 0, because it is
 * ambiguous. */
static bool consumer_stream(PyObject *given, void **out, bool *ordered)
{
	long long number = 1;

	*ordered = true;
	if (given && given != Py_None) {
		number = PyLong_Check(given) ? PyLong_AsLongLong(given) : 0;
		if (PyErr_Occurred() || number == 0 || number < NO_STREAM) {
			PyErr_Clear();
			PyErr_SetString(PyExc_BufferError,
					"stream is None, -1 or the number of a stream");
			return false;
		}
	}
	*ordered = number != NO_STREAM;
	*out = *ordered ? (void *)(intptr_t)number : NULL;
	return true;
}

static bool wants_version_1(PyObject *max_version)
{
	PyObject *major;
	bool wants;

	if (!max_version || max_version == Py_None)
		return false;
	major = PySequence_GetItem(max_version, 0);
	wants = major && PyLong_Check(major) && PyLong_AsLong(major) >= 1;
	Py_XDECREF(major);
	PyErr_Clear();
	return wants;
}

/* Finds whether it is lent to a GPU, or to the CPU. Returns false with an exception if it does not
 * lie there. */
static bool is_where_it_lies(struct array *a, PyObject *device, bool *on_gpu)
{
	struct dl_device there;
	int type = 0, id = 0;

	*on_gpu = a->on_gpu;
	if (!device || device == Py_None)
		return true;
	if (PyArg_ParseTuple(device, "ii", &type, &id)) {
		*on_gpu = a->on_gpu && !(type == DL_CPU && array_on_host(a));
		there = device_of(a, *on_gpu);
		if (type == there.type && id == there.id)
			return true;
	}
	PyErr_Clear();
	PyErr_SetString(PyExc_BufferError, "the Array is on another device, and is not copied");
	return false;
}

static void capsule_gone(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, LEGACY)) {
		struct dl_managed *m = PyCapsule_GetPointer(capsule, LEGACY);

		UNLOCKED(m->deleter(m));
	} else if (PyCapsule_IsValid(capsule, VERSIONED)) {
		struct dl_versioned *v = PyCapsule_GetPointer(capsule, VERSIONED);

		UNLOCKED(v->deleter(v));
	}
}

PyObject *array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "__dlpack__", {"stream", "max_version", "dl_device", "copy", NULL}, 0, 1, {NULL}};
	struct array *a = (struct array *)self;
	bool on_gpu, ordered, versioned;
	void *consumer;
	PyObject *given[4], *capsule;
	struct stream stream = array_home(a);
	struct lent *l;

	if (!args_spread(&s, args, n, names, given)) {
		PyErr_Clear();
		PyErr_SetString(PyExc_BufferError,
				"__dlpack__() takes stream, max_version, dl_device "
				"and copy");
		return NULL;
	}
	if (!array_is_usable(a) || !is_where_it_lies(a, given[2], &on_gpu))
		return NULL;
	if (given[3] == Py_True) {
		PyErr_SetString(PyExc_BufferError, "the Array is shared, and is not copied");
		return NULL;
	}
	versioned = wants_version_1(given[1]);
	if (!may_be_lent(a, on_gpu, versioned))
		return NULL;
	if (!on_gpu) {
		if (!array_settle(a))
			return NULL;
	} else {
		if (!consumer_stream(given[0], &consumer, &ordered) ||
		    (ordered && !array_order(a, consumer)))
			return NULL;
		if (ordered)
			stream =
			    (struct stream){consumer, stream_owner(consumer, array_ordinal(a))};
	}
	l = lend(a, on_gpu, stream, versioned);
	if (!l)
		return NULL;
	capsule = versioned ? PyCapsule_New(&l->as.versioned, VERSIONED, capsule_gone)
			    : PyCapsule_New(&l->as.managed, LEGACY, capsule_gone);
	if (!capsule)
		UNLOCKED(end_lent(l));
	return capsule;
}

struct dl_versioned *dlpack_lend(struct array *a)
{
	struct lent *l = lend(a, a->on_gpu, array_home(a), true);

	return l ? &l->as.versioned : NULL;
}

static void held_gone(PyObject *capsule)
{
	struct dl_versioned *v = PyCapsule_GetPointer(capsule, HELD);

	UNLOCKED(v->deleter(v));
}

/* For a framework that is given an address: returns an object that the framework holds while it
 * uses the memory. */
PyObject *array_lend(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct dl_versioned *v = dlpack_lend((struct array *)self);
	PyObject *capsule = v ? PyCapsule_New(v, HELD, held_gone) : NULL;

	if (v && !capsule)
		UNLOCKED(v->deleter(v));
	return capsule;
}

PyObject *array_dlpack_device(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct array *a = (struct array *)self;
	struct dl_device device = device_of(a, a->on_gpu);

	return Py_BuildValue("(ii)", device.type, device.id);
}

/* ------------------------------------------------------------------------------------------- */
/* The same from C, without capsules, for consumers that order for themselves                  */

static int no_memory_of_ours(struct dl_tensor *prototype, struct dl_versioned **out, void *context,
			     void (*fail)(void *, const char *, const char *))
{
	(void)prototype, (void)out;
	fail(context, "BufferError", "libshare allocates in a pool only: Pool.empty()");
	return -1;
}

static int managed_from(void *object, struct dl_versioned **out)
{
	struct array *a = object;

	if (!array_check(object) || !array_is_usable(a) || !may_be_lent(a, a->on_gpu, true))
		return -1;
	*out = dlpack_lend(a);
	return *out ? 0 : -1;
}

static int managed_to(struct dl_versioned *tensor, void **object)
{
	(void)tensor, (void)object;
	PyErr_SetString(PyExc_BufferError,
			"only memory of a pool can be an Array: copy it into one");
	return -1;
}

static int tensor_from(void *object, struct dl_tensor *out)
{
	struct array *a = object;

	if (!array_check(object) || !array_is_usable(a) || !may_be_lent(a, a->on_gpu, true))
		return -1;
	fill(a, a->on_gpu, out, a->t.shape, a->t.strides);
	return 0;
}

static int current_stream(int32_t device_type, int32_t device_id, void **stream)
{
	struct stream now;

	if (!stream_from(NULL, device_type == DL_CUDA, device_id, (struct stream){NULL, NULL},
			 &now))
		return -1;
	*stream = now.p;
	return 0;
}

bool exchange_ready(void)
{
	static struct dl_exchange exchange = {
	    .version = {1, 3},
	    .allocate = no_memory_of_ours,
	    .managed_from = managed_from,
	    .managed_to = managed_to,
	    .tensor_from = tensor_from,
	    .current_stream = current_stream,
	};

	PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
	int r = capsule ? PyObject_SetAttrString((PyObject *)core.array,
						 "__dlpack_c_exchange_api__", capsule)
			: -1;

	Py_XDECREF(capsule);
	return r == 0;
}
