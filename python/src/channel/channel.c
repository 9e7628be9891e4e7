/* SPDX-License-Identifier: MIT */

/* Channels: producers and consumers. */

#include <stdlib.h>

#include <share/private/core.h>

#include "python/src/channel/inside.h"

static void close_channel(void *p)
{
	share_channel_close(p);
}

static PyObject *create_member(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	bool sends = type == core.producer;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct pool *pool;
	share_channel *ch;
	struct member *self;
	const char *name;
	share_client *c;
	int r, ok;

	if (!PyArg_ParseTuple(args, "O!sIIIIIIIIIIIIIIp", core.pool, &pool, &name, &options.mode,
			      &options.when_full, &options.depth, &options.in_flight,
			      &options.data_max, &options.producers, &options.consumers,
			      &options.deliveries, &options.history, &options.stall_ms,
			      &options.from, &options.flags, &options.wait_for, &options.buffers,
			      &ok))
		return NULL;
	c = member_begin(pool, &info);
	if (!c)
		return NULL;
	options.pool = info.name;
	UNLOCKED(r = share_channel_open(c, name, sends ? SHARE_PRODUCER : SHARE_CONSUMER, &options,
					&ch));
	self = member_made(type, pool, r, sends ? "producer" : "consumer", ch, close_channel);
	if (self) {
		self->readonly_ok = ok;
		self->buffers = options.buffers;
	}
	return (PyObject *)self;
}

static PyObject *stats(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	share_channel_stats s = SHARE_CHANNEL_STATS_INIT;
	struct member *self = (struct member *)o;
	share_channel *ch;
	int r;

	CALL(&self->handle, ch, r, share_channel_get_stats(ch, &s));
	if (r < 0)
		return NULL;
	return Py_BuildValue(
	    "{sKsKsKsKsKsKsKsKsKsIsIsIsI}", "sent", (unsigned long long)s.sent, "received",
	    (unsigned long long)s.received, "acknowledged", (unsigned long long)s.acknowledged,
	    "dropped", (unsigned long long)s.dropped, "redelivered",
	    (unsigned long long)s.redelivered, "set_aside", (unsigned long long)s.set_aside,
	    "rejected", (unsigned long long)s.rejected, "left_behind",
	    (unsigned long long)s.left_behind, "sleeps", (unsigned long long)s.sleeps, "in_flight",
	    s.in_flight, "producers", s.producers, "consumers", s.consumers, "waiting", s.waiting);
}

/* ------------------------------------------------------------------------------------------- */
/* Producers                                                                                   */

/* Of an Array, a list or a dict of them. */
static PyObject *release(PyObject *sent)
{
	PyObject *list, *done;

	if (PyDict_Check(sent))
		list = PyDict_Values(sent);
	else if (PyList_Check(sent))
		list = PySequence_List(sent);
	else
		return PyObject_CallMethod(sent, "release", NULL);
	done = list ? Py_NewRef(Py_None) : NULL;
	for (Py_ssize_t i = 0; list && done && i < PyList_Size(list); i++) {
		Py_DECREF(done);
		done = PyObject_CallMethod(PyList_GetItem(list, i), "release", NULL);
	}
	Py_XDECREF(list);
	return done;
}

static PyObject *send(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "send", {"array", "meta", "data", "stream", "timeout", "give", NULL}, 0, 2, {NULL}};
	struct member *self = (struct member *)o;
	PyObject *given[6];
	share_outgoing raw;
	struct outgoing out;
	struct source *source = NULL;
	struct stream stream;
	share_channel *ch;
	struct wait w;
	int r, again = 0, gives = 0;
	bool give;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[4]) ||
	    (given[5] && (gives = PyObject_IsTrue(given[5])) < 0) ||
	    !outgoing_begin(&out, self->buffers, given[0], given[1], given[2]))
		return NULL;
	/* Bytes are copied at once. Only memory can have work on a stream that the caller did not
	 * name. */
	if (!outgoing_stream(&out, given[3], out.array && out.array->on_gpu, outgoing_home(&out),
			     &stream)) {
		outgoing_end(&out, 0);
		return NULL;
	}
	ch = handle_enter(&self->handle);
	if (!ch) {
		outgoing_end(&out, 0);
		return NULL;
	}
	/* Only the single user of an array can give it away. Otherwise it is sent, and the message
	 * has its own reference. */
	give = gives && out.array && out.n == 0 && out.array->users == 1 && !out.array->borrowed &&
	       !out.array->recorded && !out.array->closed;
	/* The array counts as closed meanwhile, so that nobody begins to use it while it is being
	 * sent. */
	if (give) {
		out.array->closed = true;
		source = source_leave(out.array);
	}
	raw = outgoing_raw(&out);
	raw.flags = give ? SHARE_OUTGOING_GIVE : 0;
	WAITING(&w, &self->handle, again, r, share_send_within(ch, &raw, 1, wait_ms(&w), stream.p));
	if (r > 0)
		r = 0;
	if (give && r == 0) {
		array_given(out.array);
	} else if (give) {
		out.array->closed = false;
		source_join(out.array, source);
	}
	handle_leave(&self->handle, r);
	if (!outgoing_end(&out, r))
		return NULL;
	if (gives && !give && given[0] && given[0] != Py_None)
		return release(given[0]);
	Py_RETURN_NONE;
}

/* Of all together. Returns false with an exception. */
static bool stream_of_many(const struct outgoing *out, Py_ssize_t n, PyObject *given, bool on_gpu,
			   struct stream *stream)
{
	struct stream home = {NULL, NULL};
	int ordinal = -1;

	for (Py_ssize_t i = 0; i < n && !home.p; i++)
		home = outgoing_home(&out[i]);
	for (Py_ssize_t i = 0; i < n && ordinal < 0; i++)
		ordinal = outgoing_ordinal(&out[i]);
	if (!stream_from(given, on_gpu, ordinal, home, stream))
		return false;
	for (Py_ssize_t i = 0; i < n && !given && stream->p == home.p; i++)
		if (!outgoing_order(&out[i], stream->p))
			return false;
	return true;
}

static PyObject *send_many(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "send_many", {"messages", "stream", "timeout", NULL}, 1, 1, {NULL}};
	struct member *self = (struct member *)o;
	struct outgoing *out = NULL;
	share_outgoing *raw = NULL;
	PyObject *given[3], *list;
	struct stream stream;
	Py_ssize_t count, ready = 0, sent = 0;
	share_channel *ch;
	struct wait w;
	int r = 0, again = 0;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[2]))
		return NULL;
	list = PySequence_List(given[0]);
	if (!list)
		return NULL;
	count = PyList_Size(list);
	out = malloc((size_t)(count ? count : 1) * sizeof(*out));
	raw = calloc((size_t)(count ? count : 1), sizeof(*raw));
	if (!out || !raw)
		PyErr_NoMemory();
	for (; !PyErr_Occurred() && ready < count; ready++) {
		PyObject *item = PyList_GetItem(list, ready), *array = item, *meta = NULL;

		if (PyTuple_Check(item) && !PyArg_ParseTuple(item, "OO", &array, &meta))
			break;
		if (!outgoing_begin(&out[ready], self->buffers, array, meta, NULL))
			break;
		raw[ready] = outgoing_raw(&out[ready]);
	}
	ch = NULL;
	if (!PyErr_Occurred() && stream_of_many(out, ready, given[1], self->on_gpu, &stream))
		ch = handle_enter(&self->handle);
	while (ch && sent < count) {
		WAITING(&w, &self->handle, again, r,
			share_send_within(ch, raw + sent, (size_t)(count - sent), wait_ms(&w),
					  stream.p));
		if (r <= 0)
			break;
		sent += r;
	}
	if (ch)
		handle_leave(&self->handle, sent == 0 ? r : 0);
	for (Py_ssize_t i = 0; i < ready; i++)
		outgoing_end(&out[i], 0);
	free(out);
	free(raw);
	Py_DECREF(list);
	if (PyErr_Occurred() || again < 0)
		return NULL;
	return PyLong_FromSsize_t(sent);
}

static PyObject *flush(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"flush", {"timeout", NULL}, 0, 1, {NULL}};
	struct member *self = (struct member *)o;
	PyObject *given[1];
	share_channel *ch;
	struct wait w;
	int r, again = 0;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[0]))
		return NULL;
	ch = handle_enter(&self->handle);
	if (!ch)
		return NULL;
	WAITING(&w, &self->handle, again, r, share_channel_flush(ch, wait_ms(&w)));
	return none_if(handle_leave(&self->handle, r));
}

static PyObject *drain(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"drain", {"timeout", "before", NULL}, 0, 1, {NULL}};
	share_channel_stats begun = SHARE_CHANNEL_STATS_INIT;
	struct member *self = (struct member *)o;
	PyObject *given[2];
	share_channel *ch;
	struct wait w;
	uint64_t before = UINT64_MAX;
	int r, again = 0;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[0]) ||
	    !arg_uint64(given[1] == Py_None ? NULL : given[1], &before))
		return NULL;
	ch = handle_enter(&self->handle);
	if (!ch)
		return NULL;
	UNLOCKED(r = share_channel_get_stats(ch, &begun));
	if (before > begun.sent)
		before = begun.sent;
	if (r == 0)
		WAITING(&w, &self->handle, again, r, share_drain_before(ch, before, wait_ms(&w)));
	return none_if(handle_leave(&self->handle, r));
}

static PyObject *take_back(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	PyObject *zero = PyLong_FromLong(0), *m;

	m = zero ? member_receive((struct member *)o, TAKEN_BACK, zero, Py_None) : NULL;
	Py_XDECREF(zero);
	if (m || !PyErr_ExceptionMatches(error_class(SHARE_EAGAIN)))
		return m;
	PyErr_Clear();
	Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------- */

bool channel_ready(PyObject *module)
{
	static PyMethodDef producer_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_PRODUCER_CLOSE},
	    {"fileno", member_fileno, METH_NOARGS, DOC_PRODUCER_FILENO},
	    {"stats", stats, METH_NOARGS, DOC_PRODUCER_STATS},
	    {"send", METHOD(send), METH_FASTCALL | METH_KEYWORDS, DOC_PRODUCER_SEND},
	    {"send_many", METHOD(send_many), METH_FASTCALL | METH_KEYWORDS, DOC_PRODUCER_SEND_MANY},
	    {"flush", METHOD(flush), METH_FASTCALL | METH_KEYWORDS, DOC_PRODUCER_FLUSH},
	    {"drain", METHOD(drain), METH_FASTCALL | METH_KEYWORDS, DOC_PRODUCER_DRAIN},
	    {"take_back", take_back, METH_NOARGS, DOC_PRODUCER_TAKE_BACK},
	    {NULL, NULL, 0, NULL},
	};
	static PyMethodDef consumer_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_CONSUMER_CLOSE},
	    {"fileno", member_fileno, METH_NOARGS, DOC_CONSUMER_FILENO},
	    {"stats", stats, METH_NOARGS, DOC_CONSUMER_STATS},
	    {"recv", METHOD(member_recv), METH_FASTCALL | METH_KEYWORDS, DOC_CONSUMER_RECV},
	    {"messages", METHOD(member_messages), METH_FASTCALL | METH_KEYWORDS,
	     DOC_RECEIVES_MESSAGES},
	    {NULL, NULL, 0, NULL},
	};

	core.producer = TYPE(module, core.object, "Producer", struct member, 0, DOC(DOC_PRODUCER),
			     SLOT(Py_tp_new, create_member), SLOT(Py_tp_dealloc, object_dealloc),
			     {Py_tp_methods, producer_methods}, {Py_tp_members, member_members});
	core.consumer = TYPE(module, core.object, "Consumer", struct member, 0, DOC(DOC_CONSUMER),
			     SLOT(Py_tp_new, create_member), SLOT(Py_tp_dealloc, object_dealloc),
			     SLOT(Py_tp_iter, member_iterate), {Py_tp_methods, consumer_methods},
			     {Py_tp_members, member_members});
	return core.producer && core.consumer && messages_ready(module);
}
