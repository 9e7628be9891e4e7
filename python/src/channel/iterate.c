/* SPDX-License-Identifier: MIT */

/* Iterators over what a consumer or a worker receives. */

#include "python/src/channel/inside.h"

struct messages {
	PyObject_HEAD struct member *of;
	struct message *last;
	PyObject *stream; /* NULL: the caller named none */
};

static PyObject *messages_new(PyObject *of, PyObject *stream)
{
	struct messages *self = (struct messages *)PyType_GenericAlloc(core.messages, 0);

	if (!self)
		return NULL;
	self->of = (struct member *)Py_NewRef(of);
	self->stream = Py_XNewRef(stream);
	return (PyObject *)self;
}

static void messages_dealloc(PyObject *o)
{
	struct messages *self = (struct messages *)o;
	PyTypeObject *type = Py_TYPE(o);

	Py_XDECREF((PyObject *)self->last);
	Py_XDECREF((PyObject *)self->of);
	Py_XDECREF(self->stream);
	PyObject_Free(o);
	Py_DECREF(type);
}

/* Ends a step of the iterator: acknowledges its message. */
static bool end_step(struct messages *self)
{
	struct message *last = self->last;
	bool good;

	self->last = NULL;
	good = !last || !last->m.channel || last->done || message_ack(last, self->stream);
	Py_XDECREF((PyObject *)last);
	return good;
}

static PyObject *messages_next(PyObject *o)
{
	struct messages *self = (struct messages *)o;
	PyObject *m;

	if (!end_step(self))
		return NULL;
	m = member_receive(self->of, member_receives((PyObject *)self->of), NULL, self->stream);
	if (m) {
		self->last = (struct message *)Py_NewRef(m);
		return m;
	}
	/* The last producer (or caller) has left, and that is the end of the iteration. */
	if (PyErr_ExceptionMatches(error_class(SHARE_EPIPE)))
		PyErr_Clear();
	return NULL;
}

PyObject *member_iterate(PyObject *o)
{
	return messages_new(o, NULL);
}

PyObject *member_messages(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"messages", {"stream", NULL}, 0, 0, {NULL}};
	PyObject *given[1];

	return args_spread(&s, args, n, names, given) ? messages_new(o, given[0]) : NULL;
}

bool messages_ready(PyObject *module)
{
	core.messages =
	    TYPE(module, NULL, "Messages", struct messages, Py_TPFLAGS_DISALLOW_INSTANTIATION,
		 DOC("Messages, one after the other."), SLOT(Py_tp_dealloc, messages_dealloc),
		 SLOT(Py_tp_iter, PyObject_SelfIter), SLOT(Py_tp_iternext, messages_next));
	return core.messages != NULL;
}
