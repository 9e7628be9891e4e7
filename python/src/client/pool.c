/* SPDX-License-Identifier: MIT */

/* Pools, and allocating Arrays from them. */

#include <string.h>

#include <share/private/core.h>

#include "python/src/array/dtype.h"
#include "python/src/client/inside.h"

static void close_pool(void *p)
{
	share_pool_close(p);
}

static PyObject *create_pool(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	unsigned long long limit, segment_size, alignment, prefault;
	PyObject *threshold;
	struct client *client;
	struct pool *self;
	const char *name;
	share_client *c;
	share_pool *p;
	int only_open, r;

	if (!PyArg_ParseTuple(args, "O!spzzKKKOzIIKII:Pool", core.client, &client, &name,
			      &only_open, &options.kind, &options.device, &limit, &segment_size,
			      &alignment, &threshold, &options.access, &options.flags,
			      &options.reuse, &prefault, &options.huge_pages, &options.numa))
		return NULL;
	options.limit = limit;
	options.segment_size = segment_size;
	options.alignment = alignment;
	options.prefault = prefault;
	if (threshold != Py_None) {
		if (!arg_uint64(threshold, &options.release_threshold))
			return NULL;
		if (options.release_threshold == 0)
			options.release_threshold = SHARE_KEEP_NONE;
	}
	CALL(&client->handle, c, r,
	     only_open ? share_pool_open(c, name, &p) : share_pool_create(c, name, &options, &p));
	if (r < 0)
		return NULL;
	self = (struct pool *)object_new(type, client, "pool", p, close_pool);
	if (!self)
		return NULL;
	self->ordinal = -1;
	if (share_pool_get_info(p, &info) == 0) {
		self->on_gpu = info.device;
		self->adopts = strcmp(info.kind, "adopted") == 0;
	}
	return (PyObject *)self;
}

/* ------------------------------------------------------------------------------------------- */
/* Arrays                                                                                      */

/* To be asked by who is about to use that device. */
static int ordinal_of(struct pool *self)
{
	if (self->on_gpu && !self->asked && handle_is_usable(&self->handle)) {
		self->ordinal = (int16_t)share_pool_ordinal(self->handle.p);
		self->asked = true;
	}
	return self->ordinal;
}

static PyObject *allocate(struct pool *self, const share_tensor *t, uint64_t size,
			  PyObject *alignment, PyObject *given, PyObject *timeout)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	struct stream stream;
	share_buffer *b;
	share_pool *p;
	struct wait w;
	int r, again = 0;

	if (!arg_uint64(alignment, &options.alignment) || !wait_begin(&w, timeout) ||
	    !stream_from(given, self->on_gpu, ordinal_of(self), (struct stream){NULL, NULL},
			 &stream))
		return NULL;
	p = handle_enter(&self->handle);
	if (!p)
		return NULL;
	if (size == 0) /* an array without elements needs an address too */
		size = 1;
	/* This takes no time, so releasing the GIL for it would cost more than it gains. */
	r = options.alignment || stream.p ? SHARE_EAGAIN : share_try_alloc(p, size, &b);
	if (r == SHARE_EAGAIN)
		WAITING(&w, &self->handle, again, r,
			(options.timeout_ms = wait_ms(&w),
			 share_alloc_with(p, size, &options, stream.p, &b)));
	if (!handle_leave(&self->handle, r))
		return NULL;
	return (PyObject *)array_make(self->client, b, t, stream, self->on_gpu);
}

static PyObject *alloc(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "alloc", {"nbytes", "alignment", "stream", "timeout", NULL}, 1, 1, {NULL}};
	PyObject *given[4];
	share_tensor t; /* only the used members are set, as this is called often */
	uint64_t size;

	if (!args_spread(&s, args, n, names, given) || !arg_uint64(given[0], &size))
		return NULL;
	if (size > INT64_MAX) {
		PyErr_SetString(PyExc_ValueError, "so many bytes are no size");
		return NULL;
	}
	t.size = sizeof(t);
	t.dtype = SHARE_UINT8;
	t.ndim = 1;
	t.offset = 0;
	t.shape[0] = (int64_t)size;
	t.strides[0] = 1;
	return allocate((struct pool *)o, &t, size, given[1], given[2], given[3]);
}

static PyObject *empty(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "empty", {"shape", "dtype", "alignment", "stream", "timeout", NULL}, 1, 2, {NULL}};
	PyObject *given[5];
	share_tensor t; /* only the used members are set, as this is called often */
	uint64_t size;
	int64_t count = 1;
	int ndim;

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	t.size = sizeof(t);
	t.dtype = SHARE_FLOAT64;
	t.offset = 0;
	if (given[1] && !dtype_from(given[1], &t.dtype))
		return NULL;
	ndim = shape_from(given[0], t.shape);
	if (ndim < 0)
		return NULL;
	t.ndim = (uint32_t)ndim;
	for (int i = ndim; i-- > 0;) {
		if (t.shape[i] < 0) {
			PyErr_SetString(PyExc_ValueError, "a dimension is negative");
			return NULL;
		}
		t.strides[i] = count;
		if (__builtin_mul_overflow(count, t.shape[i] ? t.shape[i] : 1, &count)) {
			PyErr_SetString(PyExc_ValueError, "the array is too large");
			return NULL;
		}
	}
	for (int i = 0; i < ndim; i++)
		if (t.shape[i] == 0)
			count = 0;
	if (__builtin_mul_overflow((uint64_t)count, (uint64_t)dtype_size(t.dtype), &size) ||
	    size > INT64_MAX) {
		PyErr_SetString(PyExc_ValueError, "the array is too large");
		return NULL;
	}
	return allocate((struct pool *)o, &t, size, given[2], given[3], given[4]);
}

/* ------------------------------------------------------------------------------------------- */

static PyObject *set_cache(PyObject *o, PyObject *nbytes)
{
	struct pool *self = (struct pool *)o;
	uint64_t size;
	share_pool *p;
	int r;

	if (!arg_uint64(nbytes, &size))
		return NULL;
	CALL(&self->handle, p, r, share_pool_set_cache(p, size));
	return none_if(r >= 0);
}

static PyObject *map_ahead(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"map_ahead", {"mode", NULL}, 0, 1, {NULL}};
	struct pool *self = (struct pool *)o;
	uint32_t mode = SHARE_RDONLY;
	PyObject *given[1];
	share_pool *p;
	int r;

	if (!args_spread(&s, args, n, names, given) || !mode_from(given[0], &mode))
		return NULL;
	CALL(&self->handle, p, r, share_pool_map_ahead(p, (int)mode));
	return none_if(r >= 0);
}

static PyObject *get_info(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	static const char *const reuses[] = {"gate", "clean", "scrub"};
	struct pool *self = (struct pool *)o;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	PyObject *result = NULL;
	int r;

	if (!handle_is_open(&self->handle))
		return handle_refuse(&self->handle);
	/* The GIL is held for all of this, so nobody gives the handle up meanwhile. */
	r = share_pool_get_info(self->handle.p, &info);
	if (r == 0)
		result = Py_BuildValue(
		    "{szszszsKsKsKsOsOsOsOszsz}", "name", info.name, "kind", info.kind, "device",
		    info.device, "limit", (unsigned long long)info.limit, "segment_size",
		    (unsigned long long)info.segment_size, "alignment",
		    (unsigned long long)info.alignment, "readonly",
		    info.mode == SHARE_RDWR ? Py_False : Py_True, "manage",
		    info.manage ? Py_True : Py_False, "persistent",
		    info.flags & SHARE_POOL_PERSISTENT ? Py_True : Py_False, "same_address",
		    info.flags & SHARE_POOL_SAME_ADDRESS ? Py_True : Py_False, "reuse",
		    info.reuse < 3 ? reuses[info.reuse] : NULL, "reason", info.reason);
	else
		raise_error(r);
	return result;
}

static PyObject *stats(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct pool *self = (struct pool *)o;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	int r;

	if (!handle_is_open(&self->handle))
		return handle_refuse(&self->handle);
	r = share_pool_get_info(self->handle.p, &info);
	if (r != 0)
		return raise_error(r);
	return Py_BuildValue("{sKsKsKsIsI}", "used", (unsigned long long)info.used, "kept",
			     (unsigned long long)info.kept, "cache", (unsigned long long)info.cache,
			     "used_buffers", info.used_buffers, "kept_buffers", info.kept_buffers);
}

static PyObject *get_ordinal(PyObject *o, void *Py_UNUSED(ignored))
{
	struct pool *self = (struct pool *)o;

	return PyLong_FromLong(ordinal_of(self));
}

/* Whether the Array lies in this pool, and is of its client. */
static PyObject *has(PyObject *o, PyObject *given)
{
	struct pool *self = (struct pool *)o;
	share_buffer *b;
	share_pool *p;
	int r;

	if (!array_check(given) || !(p = handle_enter(&self->handle)))
		return NULL;
	b = array_enter((struct array *)given);
	r = b ? share_pool_has(p, b) : 0;
	if (b)
		array_leave((struct array *)given, 0);
	if (!handle_leave(&self->handle, r < 0 ? r : 0) || !b)
		return NULL;
	return PyBool_FromLong(r);
}

bool pool_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_POOL_CLOSE},
	    {"alloc", METHOD(alloc), METH_FASTCALL | METH_KEYWORDS, DOC_POOL_ALLOC},
	    {"empty", METHOD(empty), METH_FASTCALL | METH_KEYWORDS, DOC_POOL_EMPTY},
	    {"_adopt", pool_adopt, METH_VARARGS, NULL},
	    {"_has", has, METH_O, NULL},
	    {"set_cache", set_cache, METH_O, DOC_POOL_SET_CACHE},
	    {"map_ahead", METHOD(map_ahead), METH_FASTCALL | METH_KEYWORDS, DOC_POOL_MAP_AHEAD},
	    {"info", get_info, METH_NOARGS, DOC_POOL_INFO},
	    {"stats", stats, METH_NOARGS, DOC_POOL_STATS},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"on_gpu", T_BOOL, offsetof(struct pool, on_gpu), READONLY, DOC_POOL_ON_GPU},
	    {"client", T_OBJECT, offsetof(struct pool, client), READONLY, DOC_POOL_CLIENT},
	    {NULL, 0, 0, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"_ordinal", get_ordinal, NULL, "CUDA's number of its device; -1: it has none.", NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.pool =
	    TYPE(module, core.object, "Pool", struct pool, 0, DOC(DOC_POOL),
		 SLOT(Py_tp_new, create_pool), SLOT(Py_tp_dealloc, object_dealloc),
		 {Py_tp_methods, methods}, {Py_tp_members, members}, {Py_tp_getset, getters});
	return core.pool != NULL;
}
