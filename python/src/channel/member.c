/* SPDX-License-Identifier: MIT */

/* What the members of channels and of services share: how they are opened, and how they receive. */

#include <share/private/core.h>

#include "python/src/channel/inside.h"

share_client *member_begin(struct pool *pool, share_pool_info *info)
{
	share_pool *p = handle_enter(&pool->handle);
	share_client *c = p ? handle_enter(&pool->client->handle) : NULL;
	int r = c ? share_pool_get_info(p, info) : 0;

	if (c && r == 0)
		return c;
	if (c)
		handle_leave(&pool->client->handle, r);
	if (p)
		handle_leave(&pool->handle, r);
	return NULL;
}

struct member *member_made(PyTypeObject *type, struct pool *pool, int r, const char *what, void *p,
			   void (*give_up)(void *))
{
	struct member *self;

	handle_leave(&pool->client->handle, r);
	if (!handle_leave(&pool->handle, r))
		return NULL;
	self = (struct member *)object_new(type, pool->client, what, p, give_up);
	if (!self)
		return NULL;
	self->on_gpu = pool->on_gpu;
	self->adopts = pool->adopts;
	self->ordinal = -1;
	return self;
}

PyMemberDef member_members[] = {
    {"client", T_OBJECT, offsetof(struct member, client), READONLY, DOC_PRODUCER_CLIENT},
    {NULL, 0, 0, 0, NULL},
};

PyObject *member_fileno(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct handle *h = &((struct object *)o)->handle;
	bool of_service = PyObject_TypeCheck(o, core.caller) || PyObject_TypeCheck(o, core.worker);
	void *p;
	int r;

	CALL(h, p, r, of_service ? share_service_get_fd(p) : share_channel_get_fd(p));
	return r < 0 ? NULL : PyLong_FromLong(r);
}

PyObject *member_untell(PyObject *Py_UNUSED(module), PyObject *o)
{
	struct handle *h = &((struct object *)o)->handle;
	bool sends = PyObject_TypeCheck(o, core.producer);
	void *p;
	int r;

	if ((!sends && !PyObject_TypeCheck(o, core.caller)) || !handle_is_usable(h))
		Py_RETURN_NONE;
	CALL(h, p, r, sends ? share_untell(p) : share_untell_calls(p));
	if (r < 0) /* whoever asks hears of it */
		PyErr_Clear();
	Py_RETURN_NONE;
}

static int receive(enum received what, void *p, int timeout_ms, void *stream, share_message *out)
{
	switch (what) {
	case MESSAGE:
		return share_recv(p, timeout_ms, stream, out);
	case REQUEST:
		return share_next_request(p, timeout_ms, stream, out);
	default:
		return share_channel_take_back(p, out);
	}
}

PyObject *member_receive(struct member *self, enum received what, PyObject *timeout,
			 PyObject *given)
{
	struct stream stream;
	struct message *m;
	struct wait w;
	void *p;
	int r, again = 0;

	if (!wait_begin(&w, timeout) ||
	    !stream_from(given, self->on_gpu, self->ordinal, (struct stream){NULL, NULL}, &stream))
		return NULL;
	m = message_new(self, stream, what == REQUEST);
	if (!m)
		return NULL;
	m->current = !given;
	p = handle_enter(&self->handle);
	if (!p) {
		message_discard(m);
		return NULL;
	}
	/* This takes no time, so releasing the GIL for it would cost more than it gains. */
	r = what == MESSAGE && !stream.p && !self->on_gpu ? share_try_recv(p, &m->m) : SHARE_EAGAIN;
	if (r == SHARE_EAGAIN)
		WAITING(&w, &self->handle, again, r,
			receive(what, p, wait_ms(&w), stream.p, &m->m));
	if (r == 0) /* in Python it is raised, with the message */
		r = m->m.error;
	handle_leave(&self->handle, r);
	if (again < 0) {
		message_discard(m);
		return NULL;
	}
	return message_or_raise(m, r);
}

PyObject *member_recv(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"recv", {"timeout", "stream", NULL}, 0, 1, {NULL}};
	PyObject *given[2];

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	return member_receive((struct member *)o, member_receives(o), given[0], given[1]);
}

enum received member_receives(PyObject *o)
{
	return PyObject_TypeCheck(o, core.worker) ? REQUEST : MESSAGE;
}
