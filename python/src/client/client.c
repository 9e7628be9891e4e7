/* SPDX-License-Identifier: MIT */

/* The connection, and the requests that concern all of it: names and tokens. What the broker
 * reports is in report.c. */

#include <share/admin.h>

#include "python/src/client/inside.h"

static struct client *clients;

static void give_up(void *p)
{
	share_disconnect(p);
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
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
	self = (struct client *)object_new(type, NULL, "client", c, give_up);
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

static void dealloc(PyObject *o)
{
	struct client *self = (struct client *)o;

	for (struct client **at = &clients; *at; at = &(*at)->next)
		if (*at == self) {
			*at = self->next;
			break;
		}
	object_dealloc(o);
}

PyDoc_STRVAR(close_doc,
	     "close()\n--\n\n"
	     "Give the connection up. It ends when the last thing made from it is gone: "
	     "memory in use stays.\nMay be called again.");

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

PyDoc_STRVAR(fileno_doc,
	     "fileno()\n--\n\n"
	     "A descriptor that is readable when dispatch() has something to do. For "
	     "event loops; not to be\nread or closed.");
static PyObject *fileno_(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return call(o, share_get_fd, true);
}

PyDoc_STRVAR(ping_doc,
	     "ping()\n--\n\n"
	     "One request and its reply: the broker is there, and has seen all before.");
static PyObject *ping(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return call(o, share_ping, false);
}

PyDoc_STRVAR(ending_doc,
	     "ending()\n--\n\n"
	     "Whether the broker is about to end, and tells its clients before: then the seconds "
	     "until it does at the latest, in which to release everything and to close; else 0.");
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

PyDoc_STRVAR(dispatch_doc,
	     "dispatch()\n--\n\n"
	     "Handle what the broker sent unasked; never blocks. How many look-ups and "
	     "watches it served.");
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

PyDoc_STRVAR(
    lookup_doc,
    "lookup(name, mode='r', *, timeout=None, stream=..., readonly_ok=False)\n--\n\n"
    "The Array that a name leads to, waiting up to timeout seconds (None: without limit) for "
    "it to be\npublished. Work enqueued on the stream afterwards comes after what its "
    "publisher enqueued before;\nwith host memory and no HostStream the call waits for "
    "that, within the same time.\n\nmode: 'r' or 'rw'. readonly_ok: let frameworks have it "
    "that cannot be told that it is read-only.\n\nFileNotFoundError: not there (timeout 0). "
    "TimeoutError: still not there, or not finished.\nPermissionError. OwnerDiedError: the "
    "publisher died before its work was done.");
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

PyDoc_STRVAR(monitor_doc, "_monitor(pool, prefix, user, timeout_ms)\n--\n\nSee Client.monitor.");

/* ------------------------------------------------------------------------------------------- */
/* Tokens, pools by name, statistics                                                           */

PyDoc_STRVAR(import_doc, "_import(token, mode, stream)\n--\n\nSee Client.import_.");
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

PyDoc_STRVAR(unpublish_doc,
	     "unpublish(name)\n--\n\n"
	     "Remove a name. FileNotFoundError, PermissionError.");
static PyObject *unpublish(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_unpublish);
}

PyDoc_STRVAR(
    end_channel_doc,
    "end_channel(name)\n--\n\n"
    "End the messages that wait in a queue though their producers are gone. NotFoundError: there "
    "are none of this\nuser's.");
static PyObject *end_channel(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_end_channel);
}

PyDoc_STRVAR(destroy_doc,
	     "destroy_pool(name)\n--\n\n"
	     "Remove a pool's name. It takes no new buffers, and ends with its last one.");
static PyObject *destroy_pool(PyObject *o, PyObject *name)
{
	return by_name(o, name, share_pool_destroy);
}

PyDoc_STRVAR(stats_doc,
	     "fence_stats()\n--\n\n"
	     "What ordering has cost this client so far, as a dictionary of counts.");
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
	    {"close", object_close, METH_NOARGS, close_doc},
	    {"fileno", fileno_, METH_NOARGS, fileno_doc},
	    {"ping", ping, METH_NOARGS, ping_doc},
	    {"dispatch", dispatch, METH_NOARGS, dispatch_doc},
	    {"ending", ending, METH_NOARGS, ending_doc},
	    {"lookup", METHOD(lookup), METH_FASTCALL | METH_KEYWORDS, lookup_doc},
	    {"unpublish", unpublish, METH_O, unpublish_doc},
	    {"_names", client_names, METH_O, NULL},
	    {"_inspect", client_inspect, METH_O, NULL},
	    {"_monitor", client_monitor, METH_VARARGS, monitor_doc},
	    {"_import", import, METH_VARARGS, import_doc},
	    {"_revoke", revoke_token, METH_VARARGS, NULL},
	    {"_revoke_id", revoke_id, METH_O, NULL},
	    {"_drop", drop_client, METH_O, NULL},
	    {"end_channel", end_channel, METH_O, end_channel_doc},
	    {"_reload", client_reload, METH_NOARGS, NULL},
	    {"_upgrade", client_upgrade, METH_NOARGS, NULL},
	    {"destroy_pool", destroy_pool, METH_O, destroy_doc},
	    {"fence_stats", fence_stats, METH_NOARGS, stats_doc},
	    {NULL, NULL, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"address", get_address, NULL,
	     "Path of the broker's socket. It can be read in a forked child, which connects to it.",
	     NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.client =
	    TYPE(module, core.object, "Client", struct client, 0,
		 DOC("A connection to a broker: see libshare.connect()."), SLOT(Py_tp_new, create),
		 SLOT(Py_tp_dealloc, dealloc), {Py_tp_methods, methods}, {Py_tp_getset, getters});
	return core.client != NULL;
}
