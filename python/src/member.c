/* SPDX-License-Identifier: MIT */

/* What the members of channels and of services share: a handle, and how they receive. */

#include "python/src/core.h"

PyObject *member_new(PyTypeObject *type, struct pool *pool, const char *what, void *handle,
		     void (*give_up)(void *))
{
	struct member *self = (struct member *)PyType_GenericAlloc(type, 0);

	if (!self) {
		UNLOCKED(give_up(handle));
		return NULL;
	}
	handle_init(&self->handle, what, handle, give_up);
	self->handle.waits = pool->handle.waits;
	self->client = (struct client *)Py_NewRef((PyObject *)pool->client);
	self->on_gpu = pool->on_gpu;
	self->adopts = pool->adopts;
	return (PyObject *)self;
}

void member_dealloc(PyObject *o)
{
	struct member *self = (struct member *)o;
	PyTypeObject *type = Py_TYPE(o);

	if (self->weak)
		PyObject_ClearWeakRefs(o);
	handle_close(&self->handle);
	Py_XDECREF((PyObject *)self->client);
	PyObject_Free(o);
	Py_DECREF(type);
}

PyObject *member_close(PyObject *o, PyObject *ignored)
{
	(void)ignored;
	handle_close(&((struct member *)o)->handle);
	Py_RETURN_NONE;
}

static PyObject *get_closed(PyObject *o, void *ignored)
{
	(void)ignored;
	return PyBool_FromLong(!handle_is_usable(&((struct member *)o)->handle));
}

static PyObject *get_client(PyObject *o, void *ignored)
{
	(void)ignored;
	return Py_NewRef((PyObject *)((struct member *)o)->client);
}

PyMemberDef member_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct member, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyGetSetDef member_getters[] = {
    {"closed", get_closed, NULL, "Whether it was closed.", NULL},
    {"client", get_client, NULL, "The client that it was opened with.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *member_receive(struct member *self, PyObject *timeout, PyObject *given, bool is_request,
			 int (*function)(void *, int, void *, share_message *),
			 int (*at_once)(share_channel *, share_message *))
{
	struct stream stream;
	struct message *m;
	struct wait w;
	void *p;
	int r, again = 0;

	if (!wait_begin(&w, timeout) ||
	    !stream_from(given, self->on_gpu, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	m = message_new(self, stream, is_request);
	if (!m)
		return NULL;
	p = handle_enter(&self->handle);
	if (!p) {
		message_discard(m);
		return NULL;
	}
	/* This takes no time, so releasing the GIL for it would cost more than it gains. */
	r = at_once && !stream.p && !self->on_gpu ? at_once(p, &m->m) : SHARE_EAGAIN;
	if (r == SHARE_EAGAIN)
		WAITING(&w, &self->handle, again, r, function(p, wait_ms(&w), stream.p, &m->m));
	if (r == 0) /* in Python it is raised, with the message */
		r = m->m.error;
	handle_leave(&self->handle, r);
	if (again < 0) {
		message_discard(m);
		return NULL;
	}
	return message_or_raise(m, r);
}
