/* SPDX-License-Identifier: MIT */

/* Interprocess events of CUDA. <share/event.h> tells of their hazard; fences are better. */

#include "python/src/base/args.h"
#include "python/src/order/order.h"

static void close_event(void *p)
{
	share_event_release(p);
}

/* Event(client, device, name, open, token): creates an event, or opens one by its name (open) or by
 * its token. */
static PyObject *create_event(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	const char *open = NULL, *bytes = NULL;
	struct client *client;
	share_token token;
	share_event *e;
	share_client *c;
	Py_ssize_t n = 0;
	int r;

	if (!PyArg_ParseTuple(args, "O!zzzz#:Event", core.client, &client, &options.device,
			      &options.name, &open, &bytes, &n))
		return NULL;
	if (bytes && !token_from(bytes, n, &token))
		return NULL;
	CALL(&client->handle, c, r,
	     bytes  ? share_event_import(c, &token, &e)
	     : open ? share_event_open(c, open, &e)
		    : share_event_create(c, &options, &e));
	return r < 0 ? NULL : (PyObject *)object_new(type, NULL, "event", e, close_event);
}

static PyObject *on_stream(PyObject *o, PyObject *given, int (*function)(share_event *, void *))
{
	struct object *self = (struct object *)o;
	struct stream stream;
	share_event *e;
	int r;

	if (!stream_from(given, true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	CALL(&self->handle, e, r, function(e, stream.p));
	return none_if(r >= 0);
}

static PyObject *record(PyObject *o, PyObject *stream)
{
	return on_stream(o, stream, share_event_record);
}

static PyObject *wait_(PyObject *o, PyObject *stream)
{
	return on_stream(o, stream, share_event_wait);
}

static PyObject *export(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct object *self = (struct object *)o;
	share_event *e;
	share_token token;
	int r;

	CALL(&self->handle, e, r, share_event_export(e, &token));
	if (r < 0)
		return NULL;
	return PyBytes_FromStringAndSize((const char *)token.bytes, sizeof(token.bytes));
}

static PyObject *get(PyObject *o, void *which)
{
	struct object *self = (struct object *)o;

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
	    {"close", object_close, METH_NOARGS, DOC_EVENT_CLOSE},
	    {"record", record, METH_O, DOC_EVENT_RECORD},
	    {"wait", wait_, METH_O, DOC_EVENT_WAIT},
	    {"export", export, METH_NOARGS, DOC_EVENT_EXPORT},
	    {NULL, NULL, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"handle", get, NULL, DOC_EVENT_HANDLE, (void *)(intptr_t)'h'},
	    {"device", get, NULL, DOC_EVENT_DEVICE, (void *)(intptr_t)'d'},
	    {"id", get, NULL, DOC_EVENT_ID, (void *)(intptr_t)'i'},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.event = TYPE(module, core.object, "Event", struct object, 0, DOC(DOC_EVENT),
			  SLOT(Py_tp_new, create_event), SLOT(Py_tp_dealloc, object_dealloc),
			  {Py_tp_methods, methods}, {Py_tp_getset, getters});
	return core.event != NULL;
}
