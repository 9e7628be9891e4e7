/* SPDX-License-Identifier: MIT */

/*
 * Fences. A fence is two numbers, so the object is a value that a program can send by any means. In
 * the process that has recorded it, it knows the connection as well, by which it waits.
 */

#include <limits.h>

#include "python/src/base/args.h"
#include "python/src/order/order.h"

struct fence {
	PyObject_HEAD share_fence fence;
	struct client *client; /* NULL: it came from elsewhere */
};

static PyObject *create_fence(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {(char *)(uintptr_t) "timeline", (char *)(uintptr_t) "value", NULL};
	unsigned long long timeline = 0, value = 0;
	struct fence *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KK:Fence", names, &timeline, &value))
		return NULL;
	self = (struct fence *)PyType_GenericAlloc(type, 0);
	if (self)
		self->fence = (share_fence){timeline, value};
	return (PyObject *)self;
}

static void dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);

	Py_XDECREF((PyObject *)((struct fence *)o)->client);
	PyObject_Free(o);
	Py_DECREF(type);
}

static PyObject *reduce(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	const share_fence *f = &((struct fence *)o)->fence;

	return Py_BuildValue("O(KK)", core.fence, (unsigned long long)f->timeline,
			     (unsigned long long)f->value);
}

/* ------------------------------------------------------------------------------------------- */
/* Functions of the module, which are methods of Client in Python                              */

static int number_of(PyObject *o, const char *name)
{
	PyObject *found = o ? PyObject_GetAttrString(o, name) : NULL;
	long n = found && PyLong_Check(found) ? PyLong_AsLong(found) : -1;

	Py_XDECREF(found);
	PyErr_Clear();
	return n >= 0 && n < INT_MAX ? (int)n : -1;
}

/* As PyTorch, cuda.core and CuPy say it of their streams; -1: it does not say. */
static int device_of(PyObject *given)
{
	PyObject *device = PyObject_GetAttrString(given, "device");
	int n = number_of(device, "index");

	PyErr_Clear();
	if (n < 0)
		n = number_of(device, "device_id");
	Py_XDECREF(device);
	return n < 0 ? number_of(given, "device_id") : n;
}

/* Which device the stream is of: -1, it is a HostStream, or there is none. A stream that was made
 * is in a context, which says it itself; a default stream is one of each device. */
static int ordinal_of(PyObject *given, const struct stream *stream)
{
	int n;

	if (stream->owner && PyObject_TypeCheck(stream->owner, core.host_stream))
		return -1;
	if (!stream->p && !stream->owner && !(given && PyLong_Check(given)))
		return -1;
	n = given ? device_of(given) : -1;
	return n < 0 ? 0 : n;
}

static bool parts(PyObject *args, struct client **client, struct fence **fence, PyObject **last)
{
	*last = NULL;
	return PyArg_ParseTuple(args, "O!O!|O", core.client, client, core.fence, fence, last);
}

PyObject *fence_record(PyObject *Py_UNUSED(module), PyObject *args)
{
	struct client *client;
	PyObject *given = NULL;
	struct stream stream;
	struct fence *self;
	share_client *c;
	int r, ordinal;

	if (!PyArg_ParseTuple(args, "O!|O", core.client, &client, &given) ||
	    !stream_from(given, true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	self = (struct fence *)PyType_GenericAlloc(core.fence, 0);
	if (!self)
		return NULL;
	c = handle_enter(&client->handle);
	if (!c) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	ordinal = ordinal_of(given, &stream);
	UNLOCKED(r = share_fence_record(c, ordinal, stream.p, &self->fence));
	if (!handle_leave(&client->handle, r))
		Py_CLEAR(self);
	else
		self->client = (struct client *)Py_NewRef((PyObject *)client);
	return (PyObject *)self;
}

/* Waits for the fence. If there is no stream, the calling thread waits; a stream is only given the
 * wait, which takes no time. */
static int wait_on(struct client *client, const share_fence *fence, int ordinal, void *stream,
		   struct wait *w)
{
	share_client *c = client->handle.p;
	int r, again;

	if (stream || ordinal >= 0) {
		UNLOCKED(r = share_fence_wait(c, fence, ordinal, stream));
		return r;
	}
	WAITING(w, &client->handle, again, r, share_fence_synchronize(c, fence, wait_ms(w)));
	return r;
}

static PyObject *wait_for_fence(PyObject *args, bool on_stream)
{
	struct client *client;
	struct fence *fence;
	struct stream stream = {NULL, NULL};
	PyObject *last;
	struct wait w;
	int r;

	if (!parts(args, &client, &fence, &last) || !wait_begin(&w, on_stream ? NULL : last) ||
	    (on_stream && !stream_from(last, true, -1, stream, &stream)) ||
	    !handle_enter(&client->handle))
		return NULL;
	r = wait_on(client, &fence->fence, on_stream ? ordinal_of(last, &stream) : -1, stream.p,
		    &w);
	return none_if(handle_leave(&client->handle, r));
}

PyObject *fence_wait(PyObject *Py_UNUSED(module), PyObject *args)
{
	return wait_for_fence(args, true);
}

PyObject *fence_synchronize(PyObject *Py_UNUSED(module), PyObject *args)
{
	return wait_for_fence(args, false);
}

PyObject *fence_query(PyObject *Py_UNUSED(module), PyObject *args)
{
	struct client *client;
	struct fence *fence;
	PyObject *last;
	share_client *c;
	int r;

	if (!parts(args, &client, &fence, &last))
		return NULL;
	c = handle_enter(&client->handle);
	if (!c)
		return NULL;
	UNLOCKED(r = share_fence_query(c, &fence->fence));
	if (!handle_leave(&client->handle, r == SHARE_EAGAIN ? 0 : r))
		return NULL;
	return PyBool_FromLong(r == 0);
}

bool fence_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"__reduce__", reduce, METH_NOARGS, NULL},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"timeline", T_ULONGLONG, offsetof(struct fence, fence.timeline), READONLY,
	     DOC_FENCE_TIMELINE},
	    {"client", T_OBJECT, offsetof(struct fence, client), READONLY, DOC_FENCE_CLIENT},
	    {"value", T_ULONGLONG, offsetof(struct fence, fence.value), READONLY, DOC_FENCE_VALUE},
	    {NULL, 0, 0, 0, NULL},
	};

	core.fence = TYPE(module, NULL, "Fence", struct fence, 0, DOC(DOC_FENCE),
			  SLOT(Py_tp_new, create_fence), SLOT(Py_tp_dealloc, dealloc),
			  {Py_tp_methods, methods}, {Py_tp_members, members});
	return core.fence != NULL;
}
