/* SPDX-License-Identifier: MIT */

/*
 * Times calls of the library as a C program makes them, for libshare.bench. What Python adds to a
 * call is less than what a call varies from one day to the next. So libshare.bench measures both in
 * one process, with the same objects, right after each other. The loops must not use Python.
 */

#include <stdlib.h>
#include <time.h>

#include "python/src/channel/inside.h"

struct loop {
	void *p; /* the object whose calls are measured */
	const char *name;
	uint64_t size;
	share_buffer *buffer;
	share_message *messages;
	uint64_t n;
};

static int look_up(const struct loop *l)
{
	share_buffer *b;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->n; i++) {
		r = share_lookup(l->p, l->name, SHARE_RDONLY, 0, NULL, &b);
		if (r == 0)
			r = share_release(b, NULL);
	}
	return r;
}

static int allocate(const struct loop *l)
{
	share_buffer *b;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->n; i++) {
		r = share_alloc(l->p, l->size, NULL, &b);
		if (r == 0)
			r = share_release(b, NULL);
	}
	return r;
}

static int send_one(const struct loop *l)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->n; i++)
		r = share_send(l->p, l->buffer, NULL, 0, NULL);
	return r;
}

static int receive_all(const struct loop *l)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->n; i++)
		r = share_recv(l->p, 0, NULL, &l->messages[i]);
	return r;
}

static int acknowledge_all(const struct loop *l)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->n; i++)
		r = share_ack(&l->messages[i], NULL);
	return r;
}

/* Returns the seconds that the loop took, or NULL with an exception. */
static PyObject *run(struct handle *h, struct loop *l, int (*loop)(const struct loop *))
{
	struct timespec start, end;
	int r;

	l->p = handle_enter(h);
	if (!l->p)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	clock_gettime(CLOCK_MONOTONIC, &start);
	r = loop(l);
	clock_gettime(CLOCK_MONOTONIC, &end);
	Py_END_ALLOW_THREADS;
	if (!handle_leave(h, r))
		return NULL;
	return PyFloat_FromDouble((double)(end.tv_sec - start.tv_sec) +
				  (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
}

/* Receives and then acknowledges, and returns the seconds of both as a pair. */
static PyObject *run_both(struct handle *h, struct loop *l)
{
	PyObject *received, *acknowledged, *both = NULL;

	l->messages = calloc(l->n ? l->n : 1, sizeof(*l->messages));
	if (!l->messages)
		return PyErr_NoMemory();
	for (uint64_t i = 0; i < l->n; i++)
		l->messages[i] = (share_message)SHARE_MESSAGE_INIT;
	received = run(h, l, receive_all);
	if (!received) /* there were fewer than n messages */
		for (uint64_t i = 0; i < l->n && l->messages[i].channel; i++)
			share_ack(&l->messages[i], NULL);
	acknowledged = received ? run(h, l, acknowledge_all) : NULL;
	if (acknowledged)
		both = PyTuple_Pack(2, received, acknowledged);
	Py_XDECREF(received);
	Py_XDECREF(acknowledged);
	free(l->messages);
	return both;
}

PyObject *measure(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *of, *with = Py_None, *seconds = NULL;
	struct loop l = {.name = NULL};
	unsigned int n;

	if (!PyArg_ParseTuple(args, "OI|O", &of, &n, &with))
		return NULL;
	l.n = n;
	if (PyObject_TypeCheck(of, core.client)) {
		l.name = arg_text(with);
		return l.name ? run(&((struct client *)of)->handle, &l, look_up) : NULL;
	}
	if (PyObject_TypeCheck(of, core.pool))
		return arg_uint64(with, &l.size) ? run(&((struct pool *)of)->handle, &l, allocate)
						 : NULL;
	if (PyObject_TypeCheck(of, core.consumer))
		return run_both(&((struct member *)of)->handle, &l);
	if (!PyObject_TypeCheck(of, core.producer)) {
		PyErr_Format(PyExc_TypeError, "nothing of %R is measured", Py_TYPE(of));
		return NULL;
	}
	if (!array_check(with) || !(l.buffer = array_enter((struct array *)with)))
		return NULL;
	seconds = run(&((struct member *)of)->handle, &l, send_one);
	array_leave((struct array *)with, 0);
	return seconds;
}
