/* SPDX-License-Identifier: MIT */

/*
 * Host streams: a thread of the library calls Python functions, one after the other.
 *
 * Ending a stream waits for everything that was enqueued on it. If a function on the stream drops
 * the last reference to the stream, its thread cannot wait for itself, and another thread ends the
 * stream.
 */

#include <pthread.h>
#include <stdlib.h>

#include "python/src/base/args.h"
#include "python/src/order/order.h"

struct held {
	share_host_stream *stream;
	struct client *client; /* a reference to it, and a user of its handle */
};

/* Under the handle of a HostStream. */

static __thread share_host_stream *runs_on;

static void *end(void *argument)
{
	struct held *held = argument;
	PyGILState_STATE state;

	share_host_stream_destroy(held->stream);
	state = PyGILState_Ensure();
	handle_leave(&held->client->handle, 0);
	Py_DECREF(held->client);
	PyGILState_Release(state);
	free(held);
	return NULL;
}

static void close_host_stream(void *p)
{
	struct held *held = p;
	pthread_t thread;

	if (runs_on != held->stream)
		end(held);
	else if (pthread_create(&thread, NULL, end, held) == 0)
		pthread_detach(thread);
}

bool host_stream_is_here(const void *p)
{
	return p && p == runs_on;
}

bool host_stream_is_over(PyObject *owner)
{
	return owner && PyObject_TypeCheck(owner, core.host_stream) &&
	       !handle_is_open(&((struct object *)owner)->handle);
}

void *host_stream_of(PyObject *o)
{
	struct object *self = (struct object *)o;

	if (!handle_is_usable(&self->handle))
		return handle_refuse(&self->handle);
	return ((struct held *)self->handle.p)->stream;
}

static PyObject *create_host_stream(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {(char *)(uintptr_t) "client", NULL};
	struct object *self;
	struct client *client;
	struct held *held;
	share_client *c;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:HostStream", names, core.client,
					 &client))
		return NULL;
	c = handle_enter(&client->handle);
	if (!c)
		return NULL;
	held = malloc(sizeof(*held));
	if (!held) {
		handle_leave(&client->handle, 0);
		return PyErr_NoMemory();
	}
	UNLOCKED(r = share_host_stream_create(c, &held->stream));
	if (r != 0) {
		handle_leave(&client->handle, r);
		free(held);
		return NULL;
	}
	held->client = (struct client *)Py_NewRef((PyObject *)client);
	self = object_new(type, NULL, "host stream", held, close_host_stream);
	if (self)
		self->handle.waits = client->handle.waits;
	return (PyObject *)self;
}

struct job {
	PyObject *function;
	share_host_stream *stream;
};

/* Runs in the stream's thread. */
static void run(void *data)
{
	struct job *job = data;
	PyGILState_STATE state = PyGILState_Ensure();
	PyObject *result;

	runs_on = job->stream;
	result = PyObject_CallNoArgs(job->function);
	if (!result)
		PyErr_WriteUnraisable(job->function);
	Py_XDECREF(result);
	Py_DECREF(job->function);
	runs_on = NULL;
	PyGILState_Release(state);
	free(job);
}

static PyObject *launch(PyObject *o, PyObject *function)
{
	struct object *self = (struct object *)o;
	struct held *held;
	struct job *job;
	int r;

	if (!PyCallable_Check(function)) {
		PyErr_SetString(PyExc_TypeError, "launch() takes a function");
		return NULL;
	}
	job = malloc(sizeof(*job));
	if (!job)
		return PyErr_NoMemory();
	held = handle_enter(&self->handle);
	if (!held) {
		free(job);
		return NULL;
	}
	*job = (struct job){Py_NewRef(function), held->stream};
	UNLOCKED(r = share_host_stream_launch(held->stream, run, job));
	if (handle_leave(&self->handle, r))
		Py_RETURN_NONE;
	Py_DECREF(function);
	free(job);
	return NULL;
}

static PyObject *synchronize(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {(char *)(uintptr_t) "timeout", NULL};
	struct object *self = (struct object *)o;
	PyObject *timeout = Py_None;
	share_fence fence;
	struct held *held;
	share_client *c;
	struct wait w;
	int r, again = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:synchronize", names, &timeout) ||
	    !wait_begin(&w, timeout))
		return NULL;
	held = handle_enter(&self->handle);
	if (!held)
		return NULL;
	c = held->client->handle.p; /* the stream is a user of this handle */
	/* A function on the stream would wait for itself: the library says so. */
	if (host_stream_is_here(held->stream))
		r = share_host_stream_synchronize(held->stream);
	else
		UNLOCKED(r = share_fence_record(c, -1, held->stream, &fence));
	if (r == 0)
		WAITING(&w, &self->handle, again, r,
			share_fence_synchronize(c, &fence, wait_ms(&w)));
	return none_if(handle_leave(&self->handle, r));
}

/* What is enqueued is done before it is closed: an Array does not ask one that is for its work. */
static PyObject *close_(PyObject *o, PyObject *ignored)
{
	struct handle *h = &((struct object *)o)->handle;
	struct held *held = handle_is_usable(h) ? handle_enter(h) : NULL;

	if (held) {
		if (!host_stream_is_here(held->stream))
			UNLOCKED(share_host_stream_synchronize(held->stream));
		handle_leave(h, 0);
	}
	return object_close(o, ignored);
}

bool host_stream_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"launch", launch, METH_O, DOC_HOSTSTREAM_LAUNCH},
	    {"synchronize", METHOD(synchronize), METH_VARARGS | METH_KEYWORDS,
	     DOC_HOSTSTREAM_SYNCHRONIZE},
	    {"close", close_, METH_NOARGS, DOC_HOSTSTREAM_CLOSE},
	    {NULL, NULL, 0, NULL},
	};

	core.host_stream = TYPE(module, core.object, "HostStream", struct object, 0,
				DOC(DOC_HOSTSTREAM), SLOT(Py_tp_new, create_host_stream),
				SLOT(Py_tp_dealloc, object_dealloc), {Py_tp_methods, methods});
	return core.host_stream != NULL;
}
