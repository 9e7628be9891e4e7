/* SPDX-License-Identifier: MIT */

/* Interprocess events of CUDA. <share/event.h> tells of their hazard; fences are better. */

#include <string.h>

#include "python/src/core.h"

struct event {
	PyObject_HEAD struct handle handle;
	PyObject *weak;
};

static void give_up(void *p)
{
	share_event_release(p);
}

/* Event(client, device, name, open, token): creates an event, or opens one by its name (open) or by
 * its token. */
static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	const char *open = NULL, *bytes = NULL;
	struct client *client;
	struct event *self;
	share_token token;
	share_event *e;
	share_client *c;
	Py_ssize_t n = 0;
	int r;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "O!zzzz#:Event", core.client, &client, &options.device,
			      &options.name, &open, &bytes, &n))
		return NULL;
	if (bytes && n != sizeof(token.bytes)) {
		PyErr_SetString(PyExc_ValueError, "a token has 32 bytes");
		return NULL;
	}
	if (bytes)
		memcpy(token.bytes, bytes, sizeof(token.bytes));
	c = handle_enter(&client->handle);
	if (!c)
		return NULL;
	if (bytes)
		UNLOCKED(r = share_event_import(c, &token, &e));
	else if (open)
		UNLOCKED(r = share_event_open(c, open, &e));
	else
		UNLOCKED(r = share_event_create(c, &options, &e));
	if (!handle_leave(&client->handle, r))
		return NULL;
	self = (struct event *)PyType_GenericAlloc(type, 0);
	if (!self) {
		share_event_release(e);
		return NULL;
	}
	handle_init(&self->handle, "event", e, give_up);
	return (PyObject *)self;
}

static void dealloc(PyObject *o)
{
	struct event *self = (struct event *)o;
	PyTypeObject *type = Py_TYPE(o);

	if (self->weak)
		PyObject_ClearWeakRefs(o);
	handle_close(&self->handle);
	PyObject_Free(o);
	Py_DECREF(type);
}

static PyObject *close_(PyObject *o, PyObject *ignored)
{
	(void)ignored;
	handle_close(&((struct event *)o)->handle);
	Py_RETURN_NONE;
}

static PyObject *on_stream(PyObject *o, PyObject *given, int (*function)(share_event *, void *))
{
	struct event *self = (struct event *)o;
	struct stream stream;
	share_event *e;
	int r;

	if (!stream_from(given, true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	e = handle_enter(&self->handle);
	if (!e)
		return NULL;
	UNLOCKED(r = function(e, stream.p));
	if (!handle_leave(&self->handle, r))
		return NULL;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(record_doc,
	     "record(stream)\n--\n\n"
	     "Waits that are called from now on, in any process, are for what was enqueued on "
	     "the CUDA stream until\nnow.");
static PyObject *record(PyObject *o, PyObject *stream)
{
	return on_stream(o, stream, share_event_record);
}

PyDoc_STRVAR(wait_doc,
	     "wait(stream)\n--\n\n"
	     "What is enqueued on the stream from now on waits for what the event stands for. "
	     "When the process that\nrecorded it is killed before, it waits for ever: have a "
	     "stream of its own for it.");
static PyObject *wait_(PyObject *o, PyObject *stream)
{
	return on_stream(o, stream, share_event_wait);
}

PyDoc_STRVAR(export_doc,
	     "export()\n--\n\n"
	     "Its token, for Client.event(token=…) of any user; good as long as the event.");
static PyObject *export(PyObject *o, PyObject *ignored)
{
	struct event *self = (struct event *)o;
	share_event *e = handle_enter(&self->handle);
	share_token token;
	int r;

	(void)ignored;
	if (!e)
		return NULL;
	UNLOCKED(r = share_event_export(e, &token));
	if (!handle_leave(&self->handle, r))
		return NULL;
	return PyBytes_FromStringAndSize((const char *)token.bytes, sizeof(token.bytes));
}

static PyObject *get(PyObject *o, void *which)
{
	struct event *self = (struct event *)o;

	if ((intptr_t)which == 'c')
		return PyBool_FromLong(!handle_is_usable(&self->handle));
	if (!handle_is_open(&self->handle))
		return handle_refuse(&self->handle);
	switch ((intptr_t)which) {
	case 'h':
		return PyBytes_FromStringAndSize(share_event_handle(self->handle.p), 64);
	case 'd':
		return PyUnicode_FromString(share_event_device(self->handle.p));
	default:
		return PyLong_FromUnsignedLongLong(share_event_id(self->handle.p));
	}
}

bool event_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"close", close_, METH_NOARGS,
	     "close()\n--\n\nGive the handle up. Work that was enqueued goes on. May be called "
	     "again."},
	    {"record", record, METH_O, record_doc},
	    {"wait", wait_, METH_O, wait_doc},
	    {"export", export, METH_NOARGS, export_doc},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct event, weak), READONLY, NULL},
	    {NULL, 0, 0, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"closed", get, NULL, "Whether it was closed.", (void *)(intptr_t)'c'},
	    {"handle", get, NULL, "64 bytes: a CUipcEventHandle.", (void *)(intptr_t)'h'},
	    {"device", get, NULL, "UUID of its device.", (void *)(intptr_t)'d'},
	    {"id", get, NULL, "What all processes call it.", (void *)(intptr_t)'i'},
	    {NULL, NULL, NULL, NULL, NULL},
	};
	PyType_Slot slots[] = {
	    SLOT(Py_tp_new, create),
	    SLOT(Py_tp_dealloc, dealloc),
	    {Py_tp_methods, methods},
	    {Py_tp_members, members},
	    {Py_tp_getset, getters},
	    {Py_tp_doc, (void *)(uintptr_t) "An interprocess event of CUDA: see Client.event()."},
	    {0, NULL},
	};
	PyType_Spec spec = {"libshare._core.Event", sizeof(struct event), 0, Py_TPFLAGS_DEFAULT,
			    slots};

	core.event = make_type(module, &spec);
	return core.event != NULL;
}
