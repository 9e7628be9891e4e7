/* SPDX-License-Identifier: MIT */

/*
 * Services: callers and workers.
 *
 * A call waits on the service's descriptor, and not in the library: the library's own wait gives
 * the call up when its time is over, and here each wait has to be short, so that signals of Python
 * are noticed.
 */

#include "python/src/channel/inside.h"

/* How long to wait before trying again to find room for a request, since no descriptor signals
 * that. */
#define FULL_MS 10

struct pending {
	PyObject_HEAD PyObject *weak;
	struct member *of; /* as long as @p is set, the call is a user of its handle */
	share_pending *p;
	unsigned users, generation;
	bool canceled;
	void *stream;
	PyObject *owner;
};

static void close_service(void *p)
{
	share_service_close(p);
}

static PyObject *create_service(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	bool calls = type == core.caller;
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct member *self;
	share_service *s;
	struct pool *pool;
	const char *name;
	share_client *c;
	int r, ok;

	if (!PyArg_ParseTuple(args, "O!sIIIIIIp", core.pool, &pool, &name, &options.depth,
			      &options.callers, &options.workers, &options.deliveries,
			      &options.buffers, &options.data_max, &ok))
		return NULL;
	c = member_begin(pool, &info);
	if (!c)
		return NULL;
	options.pool = info.name;
	UNLOCKED(
	    r = share_service_open(c, name, calls ? SHARE_CALLER : SHARE_WORKER, &options, &s));
	self = member_made(type, pool, r, calls ? "caller" : "worker", s, close_service);
	if (self) {
		self->readonly_ok = ok;
		self->buffers = options.buffers;
	}
	return (PyObject *)self;
}

/* ------------------------------------------------------------------------------------------- */
/* Calls                                                                                       */

/* Notes that the call is over or was given up. */
static void forget(struct pending *self)
{
	if (!self->p)
		return;
	self->p = NULL;
	handle_leave(&self->of->handle, 0);
}

static void cancel_now(struct pending *self)
{
	share_pending *p = self->p;

	if (p && self->generation == process_generation())
		UNLOCKED(share_call_cancel(p));
	forget(self);
}

static void pending_dealloc(PyObject *o)
{
	struct pending *self = (struct pending *)o;
	PyTypeObject *type = Py_TYPE(o);

	if (self->weak)
		PyObject_ClearWeakRefs(o);
	cancel_now(self);
	Py_XDECREF(self->owner);
	Py_XDECREF((PyObject *)self->of);
	PyObject_Free(o);
	Py_DECREF(type);
}

static bool is_pending(struct pending *self)
{
	struct handle h = {.what = "call", .generation = self->generation};

	if (self->p && !self->canceled && self->generation == process_generation())
		return true;
	handle_refuse(&h);
	return false;
}

/* Starts a call; with @w it waits until there is room for the request. Returns NULL with an
 * exception. */
static struct pending *start(struct member *self, PyObject *const *given, const struct wait *w)
{
	struct stream stream;
	struct wait now = w ? *w : (struct wait){.once = true};
	struct pending *pending;
	struct outgoing out;
	share_outgoing raw;
	share_service *s;
	int r, again = 0;

	if (!outgoing_begin(&out, self->buffers, given[0], given[1], given[2]))
		return NULL;
	pending = (struct pending *)PyType_GenericAlloc(core.pending, 0);
	if (!pending ||
	    !outgoing_stream(&out, given[3], self->on_gpu, outgoing_home(&out), &stream)) {
		outgoing_end(&out, 0);
		Py_XDECREF((PyObject *)pending);
		return NULL;
	}
	s = handle_enter(&self->handle);
	if (!s) {
		outgoing_end(&out, 0);
		Py_DECREF((PyObject *)pending);
		return NULL;
	}
	raw = outgoing_raw(&out);
	for (;;) {
		WAITING(&now, &self->handle, again, r,
			share_call_start_with(s, &raw, wait_ms(&now), stream.p, &pending->p));
		if (again < 0 || r != SHARE_EAGAIN || !w || wait_is_over(w))
			break;
		/* as many as there may be: other threads of this program may finish some */
		wait_a_moment(FULL_MS);
		again = PyErr_CheckSignals();
		if (again < 0)
			break;
	}
	if (!outgoing_end(&out, r == SHARE_EAGAIN && w && !w->once ? SHARE_ETIMEDOUT : r)) {
		pending->p = NULL;
		handle_leave(&self->handle, 0);
		Py_DECREF((PyObject *)pending);
		return NULL;
	}
	/* From now on the pending call is the user of the handle. */
	pending->of = (struct member *)Py_NewRef((PyObject *)self);
	pending->generation = process_generation();
	pending->stream = stream.p;
	pending->owner = Py_XNewRef(stream.owner);
	return pending;
}

/* Waits for the answer. Returns the message, or NULL with an exception. */
static PyObject *finish_call(struct pending *self, const struct wait *w, PyObject *given)
{
	struct member *of = self->of;
	struct wait now = *w;
	struct stream stream;
	struct message *m;
	int r, again = 0;

	if (!is_pending(self))
		return NULL;
	if (self->users > 0) {
		PyErr_SetString(PyExc_ValueError, "the call is being waited for by another thread");
		return NULL;
	}
	if (!stream_from(given, of->on_gpu, of->ordinal, (struct stream){self->stream, self->owner},
			 &stream))
		return NULL;
	m = message_new(of, stream, false);
	if (!m)
		return NULL;
	m->current = !given;
	self->users++;
	do {
		wait_starts(&now, &of->handle);
		if (self->canceled)
			r = SHARE_EINTR;
		else
			UNLOCKED(r = share_call_await(self->p, wait_ms(w), stream.p, &m->m));
		again = wait_again(&now, &of->handle, r);
		if (r == SHARE_EINTR && again >= 0 && self->canceled) {
			wait_ends(&now);
			again = -1;
			raise_closed("call");
		}
	} while (again > 0);
	self->users--;
	no_error(r);
	if (r == SHARE_EAGAIN || r == SHARE_ETIMEDOUT || r == SHARE_EINVAL || r == SHARE_EFORK ||
	    r == SHARE_EINTR) {
		if (self->canceled)
			cancel_now(self);
	} else {
		forget(self);
	}
	if (again < 0) {
		message_discard(m);
		return NULL;
	}
	return message_or_raise(m, r);
}

static PyObject *call(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "call", {"array", "meta", "data", "stream", "timeout", NULL}, 0, 2, {NULL}};
	struct pending *pending;
	PyObject *given[5], *answer;
	struct wait w;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[4]))
		return NULL;
	pending = start((struct member *)o, given, &w);
	if (!pending)
		return NULL;
	answer = finish_call(pending, &w, NULL);
	Py_DECREF((PyObject *)pending);
	return answer;
}

static PyObject *start_(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "start", {"array", "meta", "data", "stream", NULL}, 0, 2, {NULL}};
	PyObject *given[4];

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	return (PyObject *)start((struct member *)o, given, NULL);
}

static PyObject *finish_(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"finish", {"timeout", "stream", NULL}, 0, 1, {NULL}};
	PyObject *given[2];
	struct wait w;

	if (!args_spread(&s, args, n, names, given) || !wait_begin(&w, given[0]))
		return NULL;
	return finish_call((struct pending *)o, &w, given[1]);
}

static PyObject *cancel(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct pending *self = (struct pending *)o;

	self->canceled = true;
	if (self->users == 0)
		cancel_now(self);
	else if (self->of->handle.waits)
		share_wake_early(self->of->handle.waits);
	Py_RETURN_NONE;
}

static PyObject *get_done(PyObject *o, void *Py_UNUSED(ignored))
{
	struct pending *self = (struct pending *)o;

	return PyBool_FromLong(!self->p || self->canceled);
}

/* ------------------------------------------------------------------------------------------- */

bool service_ready(PyObject *module)
{
	static PyMethodDef caller_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_CALLER_CLOSE},
	    {"fileno", member_fileno, METH_NOARGS, DOC_CALLER_FILENO},
	    {"call", METHOD(call), METH_FASTCALL | METH_KEYWORDS, DOC_CALLER_CALL},
	    {"start", METHOD(start_), METH_FASTCALL | METH_KEYWORDS, DOC_CALLER_START},
	    {NULL, NULL, 0, NULL},
	};
	static PyMethodDef worker_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_WORKER_CLOSE},
	    {"fileno", member_fileno, METH_NOARGS, DOC_WORKER_FILENO},
	    {"recv", METHOD(member_recv), METH_FASTCALL | METH_KEYWORDS, DOC_WORKER_RECV},
	    {"messages", METHOD(member_messages), METH_FASTCALL | METH_KEYWORDS,
	     DOC_RECEIVES_MESSAGES},
	    {NULL, NULL, 0, NULL},
	};
	static PyMethodDef pending_methods[] = {
	    {"finish", METHOD(finish_), METH_FASTCALL | METH_KEYWORDS, DOC_PENDING_FINISH},
	    {"cancel", cancel, METH_NOARGS, DOC_PENDING_CANCEL},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef pending_members[] = {
	    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct pending, weak), READONLY, NULL},
	    {"caller", T_OBJECT, offsetof(struct pending, of), READONLY, DOC_PENDING_CALLER},
	    {NULL, 0, 0, 0, NULL},
	};
	static PyGetSetDef pending_getters[] = {
	    {"done", get_done, NULL, DOC_PENDING_DONE, NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.caller = TYPE(module, core.object, "Caller", struct member, 0, DOC(DOC_CALLER),
			   SLOT(Py_tp_new, create_service), SLOT(Py_tp_dealloc, object_dealloc),
			   {Py_tp_methods, caller_methods}, {Py_tp_members, member_members});
	core.worker = TYPE(module, core.object, "Worker", struct member, 0, DOC(DOC_WORKER),
			   SLOT(Py_tp_new, create_service), SLOT(Py_tp_dealloc, object_dealloc),
			   SLOT(Py_tp_iter, member_iterate), {Py_tp_methods, worker_methods},
			   {Py_tp_members, member_members});
	core.pending = TYPE(module, NULL, "Pending", struct pending,
			    Py_TPFLAGS_DISALLOW_INSTANTIATION, DOC(DOC_PENDING),
			    SLOT(Py_tp_dealloc, pending_dealloc), {Py_tp_methods, pending_methods},
			    {Py_tp_members, pending_members}, {Py_tp_getset, pending_getters});
	return core.caller && core.worker && core.pending;
}
