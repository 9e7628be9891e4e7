/* SPDX-License-Identifier: MIT */

/* The connection, and the requests that concern all of it: names and tokens. What the broker
 * reports is in report.c. */

#include <share/admin.h>

#include "python/src/client/inside.h"

static struct client *clients;

static void disconnect(void *p)
{
	share_disconnect(p);
}

static PyObject *create_client(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {(char *)(uintptr_t) "address",    (char *)(uintptr_t) "label",
				(char *)(uintptr_t) "config",     (char *)(uintptr_t) "flags",
				(char *)(uintptr_t) "timeout_ms", NULL};
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	const char *address = NULL;
	struct client *self;
	long long timeout_ms = -1;
	unsigned flags = 0;
	share_client *c;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zzzIL:Client", names, &address,
					 &options.label, &options.config, &flags, &timeout_ms))
		return NULL;
	options.flags = flags;
	options.timeout_ms = timeout_ms;
	UNLOCKED(r = share_connect_with(address, &options, &c));
	if (!no_error(r))
		return NULL;
	self = (struct client *)object_new(type, NULL, "client", c, disconnect);
	if (!self)
		return NULL;
	self->handle.waits = share_waits_of(c);
	self->next = clients;
	clients = self;
	return (PyObject *)self;
}

struct client *client_with(share_client *p)
{
	for (struct client *c = clients; c; c = c->next)
		if (c->handle.p == p && handle_is_usable(&c->handle))
			return (struct client *)Py_NewRef((PyObject *)c);
	return NULL;
}

static void dealloc_client(PyObject *o)
{
	struct client *self = (struct client *)o;

	for (struct client **at = &clients; *at; at = &(*at)->next)
		if (*at == self) {
			*at = self->next;
			break;
		}
	object_dealloc(o);
}

static PyObject *get_address(PyObject *o, void *Py_UNUSED(ignored))
{
	struct client *self = (struct client *)o;

	if (!handle_is_open(&self->handle))
		return handle_refuse(&self->handle);
	return PyUnicode_DecodeFSDefault(share_address(self->handle.p));
}

static PyObject *call(PyObject *o, int (*function)(share_client *), bool counts)
{
	struct client *self = (struct client *)o;
	share_client *c;
	int r;

	CALL(&self->handle, c, r, function(c));
	return r < 0 || !counts ? none_if(r >= 0) : PyLong_FromLong(r);
}

static PyObject *fileno_(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return call(o, share_get_fd, true);
}

static PyObject *ping(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return call(o, share_ping, false);
}

static PyObject *ending(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	PyObject *ms = call(o, share_ending, true);
	double seconds;

	if (!ms)
		return NULL;
	seconds = PyFloat_AsDouble(ms) / 1000;
	Py_DECREF(ms);
	return PyFloat_FromDouble(seconds);
}

static PyObject *dispatch(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return call(o, dispatch_in_order, true);
}

/* ------------------------------------------------------------------------------------------- */
/* Names                                                                                       */

/* Makes the Array for a buffer that was looked up or imported: as its sender described it, or as
 * bytes. @given: the stream that the caller named, or NULL. */
static struct array *found(struct client *self, share_buffer *b, PyObject *given,
			   struct stream stream)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	bool on_gpu = share_buffer_get_info(b, &info) == 0 && info.ordinal >= 0;
	struct array *a;

	a = array_found(self, b, stream, on_gpu);
	if (a)
		a->ordinal = (int16_t)info.ordinal;
	if (a && !given && !array_move_to_current(a))
		Py_CLEAR(a);
	return a;
}

/* Returns whether a call failed because the stream, a framework's current one, is not one for host
 * memory, and removes that stream. Whether a name or a token leads to memory of a GPU is known only
 * after the call. */
static bool was_no_stream(int r, PyObject *given, struct stream *stream)
{
	if (r != SHARE_EINVAL || given || !stream->p)
		return false;
	*stream = (struct stream){NULL, NULL};
	return true;
}

static PyObject *lookup(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static struct signature s = {
	    "lookup", {"name", "mode", "timeout", "stream", "readonly_ok", NULL}, 1, 2, {NULL}};
	struct client *self = (struct client *)o;
	uint32_t mode = SHARE_RDONLY;
	struct stream stream;
	PyObject *given[5];
	struct array *a;
	share_buffer *b;
	share_client *c;
	const char *name;
	struct wait w;
	int r, again, ok = 0;

	if (!args_spread(&s, args, n, kwnames, given))
		return NULL;
	name = arg_text(given[0]);
	if (!name || !mode_from(given[1], &mode) ||
	    (given[4] && (ok = PyObject_IsTrue(given[4])) < 0) || !wait_begin(&w, given[2]) ||
	    !stream_from(given[3], true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	c = handle_enter(&self->handle);
	if (!c)
		return NULL;
	/* With a time limit of 0, the library returns SHARE_ENOENT for a name that does not exist.
	 */
	do
		WAITING(&w, &self->handle, again, r,
			share_lookup(c, name, (int)mode, wait_ms(&w), stream.p, &b));
	while (again == 0 && was_no_stream(r, given[3], &stream));
	if (!handle_leave(&self->handle, r))
		return NULL;
	a = found(self, b, given[3], stream);
	if (a)
		a->readonly_ok = ok;
	return (PyObject *)a;
}

/* ------------------------------------------------------------------------------------------- */
/* Tokens, pools by name, statistics                                                           */

/* _import(token, mode, stream): Client.import_(). */
static PyObject *import(PyObject *o, PyObject *args)
{
	struct client *self = (struct client *)o;
	PyObject *given = NULL;
	struct stream stream;
	const char *bytes;
	share_token token;
	share_buffer *b;
	share_client *c;
	Py_ssize_t n;
	int mode, r;

	if (!PyArg_ParseTuple(args, "y#i|O", &bytes, &n, &mode, &given) ||
	    !token_from(bytes, n, &token) ||
	    !stream_from(given ? given : Py_None, true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	/* Perhaps the token can be used only once: without a stream that cannot fail for the wrong
	 * one. */
	CALL(&self->handle, c, r, share_import(c, &token, mode, stream.p, &b));
	if (r < 0)
		return NULL;
	return (PyObject *)found(self, b, given, stream);
}

static PyObject *revoke_token(PyObject *o, PyObject *args)
{
	struct client *self = (struct client *)o;
	const char *bytes;
	share_token token;
	share_client *c;
	Py_ssize_t n;
	int r;

	if (!PyArg_ParseTuple(args, "y#:_revoke", &bytes, &n) || !token_from(bytes, n, &token))
		return NULL;
	CALL(&self->handle, c, r, share_revoke(c, &token));
	return none_if(r >= 0);
}

static PyObject *by_identifier(PyObject *o, PyObject *number,
			       int (*function)(share_client *, uint64_t))
{
	struct client *self = (struct client *)o;
	share_client *c;
	uint64_t id;
	int r;

	if (!arg_uint64(number, &id))
		return NULL;
	CALL(&self->handle, c, r, function(c, id));
	return none_if(r >= 0);
}

static PyObject *revoke_id(PyObject *o, PyObject *id)
{
	return by_identifier(o, id, share_revoke_id);
}

static PyObject *drop_client(PyObject *o, PyObject *id)
{
	return by_identifier(o, id, share_drop_client);
}

static PyObject *by_name(PyObject *o, PyObject *name, int (*function)(share_client *, const char *))
{
	const char *text = arg_text(name);
	struct client *self = (struct client *)o;
	share_client *c;
	int r;

	if (!text)
		return NULL;
	CALL(&self->handle, c, r, function(c, text));
	return none_if(r >= 0);
}

static PyObject *unpublish(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_unpublish);
}

static PyObject *end_channel(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_end_channel);
}

static PyObject *destroy_pool(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_pool_destroy);
}

static PyObject *fence_stats(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct client *self = (struct client *)o;
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;
	share_client *c;
	int r;

	CALL(&self->handle, c, r, share_fence_get_stats(c, &stats));
	if (r < 0)
		return NULL;
	return Py_BuildValue(
	    "{sKsKsKsKsKsK}", "signals", (unsigned long long)stats.signals, "waits",
	    (unsigned long long)stats.waits, "waits_saved", (unsigned long long)stats.waits_saved,
	    "host_signals", (unsigned long long)stats.host_signals, "host_waits",
	    (unsigned long long)stats.host_waits, "parked", (unsigned long long)stats.parked);
}

bool client_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_CLIENT_CLOSE},
	    {"fileno", fileno_, METH_NOARGS, DOC_CLIENT_FILENO},
	    {"ping", ping, METH_NOARGS, DOC_CLIENT_PING},
	    {"dispatch", dispatch, METH_NOARGS, DOC_CLIENT_DISPATCH},
	    {"ending", ending, METH_NOARGS, DOC_CLIENT_ENDING},
	    {"lookup", METHOD(lookup), METH_FASTCALL | METH_KEYWORDS, DOC_CLIENT_LOOKUP},
	    {"unpublish", unpublish, METH_O, DOC_CLIENT_UNPUBLISH},
	    {"_names", client_names, METH_O, NULL},
	    {"_inspect", client_inspect, METH_O, NULL},
	    {"_monitor", client_monitor, METH_VARARGS, NULL},
	    {"_import", import, METH_VARARGS, NULL},
	    {"_revoke", revoke_token, METH_VARARGS, NULL},
	    {"_revoke_id", revoke_id, METH_O, NULL},
	    {"_drop", drop_client, METH_O, NULL},
	    {"end_channel", end_channel, METH_O, DOC_CLIENT_END_CHANNEL},
	    {"_reload", client_reload, METH_NOARGS, NULL},
	    {"_upgrade", client_upgrade, METH_NOARGS, NULL},
	    {"destroy_pool", destroy_pool, METH_O, DOC_CLIENT_DESTROY_POOL},
	    {"fence_stats", fence_stats, METH_NOARGS, DOC_CLIENT_FENCE_STATS},
	    {NULL, NULL, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"address", get_address, NULL, DOC_CLIENT_ADDRESS, NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.client = TYPE(module, core.object, "Client", struct client, 0, DOC(DOC_CLIENT),
			   SLOT(Py_tp_new, create_client), SLOT(Py_tp_dealloc, dealloc_client),
			   {Py_tp_methods, methods}, {Py_tp_getset, getters});
	return core.client != NULL;
}
