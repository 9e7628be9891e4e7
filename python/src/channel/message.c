/* SPDX-License-Identifier: MIT */

/*
 * Messages. A message is a loan: acknowledging it gives its memory back, without waiting, and that
 * is cheap as long as nobody keeps the memory. So the Array of a message is a loan too, and only
 * the message refers to it. If something else refers to the Array when the message is acknowledged,
 * the Array gets a reference to the buffer of its own, and stays valid.
 */

#include <stdlib.h>
#include <string.h>

#include <share/private/core.h>

#include "python/src/channel/inside.h"

struct message *message_new(struct member *of, struct stream stream, bool is_request)
{
	struct message *m = PyObject_Malloc(sizeof(*m));

	if (!m) {
		PyErr_NoMemory();
		return NULL;
	}
	memset(m, 0, offsetof(struct message, m));
	m->m = (share_message)SHARE_MESSAGE_INIT;
	PyObject_Init((PyObject *)m, core.message);
	m->of = (struct member *)Py_NewRef((PyObject *)of);
	/* A request must be answered before its service is given up, so it is a user of the
	 * service. */
	of->handle.users += is_request;
	m->stream = stream.p;
	m->owner = Py_XNewRef(stream.owner);
	m->generation = process_generation();
	m->header = m->n_kept = -1;
	m->is_request = is_request;
	return m;
}

/* Notes that the message needs no acknowledgement any more. */
static void finish(struct message *m)
{
	if (m->done)
		return;
	m->done = true;
	if (m->is_request)
		handle_leave(&m->of->handle, 0);
}

void message_discard(struct message *m)
{
	m->m.channel = NULL;
	Py_DECREF((PyObject *)m);
}

PyObject *message_or_raise(struct message *m, int r)
{
	PyObject *type, *value, *trace;

	if (no_error(r))
		return (PyObject *)m;
	if (!m->m.channel) {
		message_discard(m);
		return NULL;
	}
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (value && PyObject_SetAttrString(value, "message", (PyObject *)m) < 0)
		PyErr_Clear();
	PyErr_Restore(type, value, trace);
	Py_DECREF((PyObject *)m);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* The end                                                                                     */

/* Most who meet this have handed on the message of a loop to a task or a thread. */
PyObject *message_refuse(const struct message *m)
{
	if (m->is_request)
		PyErr_SetString(core.closed,
				"the request was given up: it was answered, or a loop over a "
				"worker gave it up at the end of its step; take it by recv() or "
				"recv_async() where a task or a thread is to answer it later");
	else
		PyErr_SetString(core.closed,
				"the message was given up: by ack(), or at the end of the step of "
				"a loop or of a with block; take it by recv() or recv_async() "
				"where a task or a thread is to use it for longer");
	return NULL;
}

bool message_is_usable(struct message *m)
{
	struct handle h = {.p = m->m.channel, .what = "message", .generation = m->generation};

	if (m->m.channel && !m->done && m->generation == process_generation())
		return true;
	if (m->m.channel && m->generation != process_generation())
		handle_refuse(&h);
	else
		message_refuse(m);
	return false;
}

/* The program may read the data of a message that it has given up. Returns false with an exception,
 * and then the message must not be given up. */
static bool keep_data(struct message *m)
{
	if (m->n_kept >= 0 || !m->m.channel)
		return true;
	m->kept = m->m.data_size <= sizeof(m->small) ? m->small : malloc(m->m.data_size);
	if (!m->kept) {
		PyErr_NoMemory();
		return false;
	}
	if (m->m.data_size > 0)
		memcpy(m->kept, m->m.data, m->m.data_size);
	m->n_kept = (int)m->m.data_size;
	return true;
}

size_t message_bytes(const struct message *m, const unsigned char **out)
{
	*out = m->n_kept >= 0 ? m->kept : m->m.data;
	return m->n_kept >= 0 ? (size_t)m->n_kept : m->m.data_size;
}

static void settle_one(struct array *a)
{
	if (a->b && a->borrowed && ((uint32_t)Py_REFCNT((PyObject *)a) > 1 || a->users > 0)) {
		share_retain(a->b);
		a->borrowed = false;
	}
	Py_DECREF((PyObject *)a);
}

/* Gives each Array a reference of its own, if something else than the message refers to it. Looks
 * at the description in the data first, since that can be checked only with the memory that it
 * describes. */
static void settle_array(struct message *m)
{
	share_tensor t = SHARE_TENSOR_INIT;

	struct array **rest = m->rest, *a = m->array;
	uint32_t n = m->n_rest;

	if (m->header < 0 && m->m.channel)
		message_look(m, &t);
	m->array = NULL;
	m->rest = NULL;
	m->n_rest = 0;
	for (uint32_t i = 0; i < n; i++)
		settle_one(rest[i]);
	free(rest);
	if (a)
		settle_one(a);
}

/* The stream of the message. A message without memory has no work on a stream. */
static struct stream home_of(const struct message *m)
{
	return m->m.buffer ? (struct stream){m->stream, m->owner} : (struct stream){NULL, NULL};
}

static int acknowledge(struct message *m, void *stream)
{
	int r;

	settle_array(m);
	r = stream || m->of->on_gpu ? SHARE_EAGAIN : share_try_ack(&m->m);
	if (r == SHARE_EAGAIN)
		UNLOCKED(r = share_ack(&m->m, stream));
	if (r == SHARE_EINVAL && stream) /* the stream no longer exists, nor does work on it */
		UNLOCKED(r = share_ack(&m->m, NULL));
	return r;
}

static void dealloc(PyObject *o)
{
	struct message *m = (struct message *)o;
	PyTypeObject *type = Py_TYPE(o);

	if (m->weak)
		PyObject_ClearWeakRefs(o);
	if (m->m.channel && !m->done && m->generation == process_generation())
		acknowledge(m, home_of(m).p);
	else
		settle_array(m);
	finish(m);
	if (m->kept != m->small)
		free(m->kept);
	Py_XDECREF(m->owner);
	Py_DECREF((PyObject *)m->of);
	PyObject_Free(o);
	Py_DECREF(type);
}

static int reject(struct message *m, void *stream)
{
	int r;

	settle_array(m);
	UNLOCKED(r = share_reject(&m->m, stream));
	m->rejected = !m->m.channel;
	return r;
}

static int ordinal_of(const struct message *m)
{
	return m->array ? array_ordinal(m->array) : m->of->ordinal;
}

static bool give_up(struct message *m, PyObject *given, int (*how)(struct message *m, void *stream))
{
	struct stream stream;
	bool good, on_gpu;

	if (!message_is_usable(m))
		return false;
	if (m->users > 0) {
		PyErr_SetString(PyExc_ValueError, "the message is being answered");
		return false;
	}
	on_gpu = m->of->on_gpu || (m->array && m->array->on_gpu);
	if (!stream_from(given, on_gpu && m->m.buffer, ordinal_of(m), home_of(m), &stream) ||
	    !keep_data(m))
		return false;
	m->users++;
	good = no_error(how(m, stream.p));
	m->users--;
	if (!m->m.channel)
		finish(m);
	return good;
}

bool message_ack(struct message *m, PyObject *given)
{
	return give_up(m, given, acknowledge);
}

static PyObject *ack(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"ack", {"stream", NULL}, 0, 1, {NULL}};
	struct message *m = (struct message *)o;
	PyObject *given[1];

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	if (m->done && !m->rejected && m->generation == process_generation())
		Py_RETURN_NONE;
	return none_if(message_ack(m, given[0]));
}

static PyObject *reject_(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"reject", {"stream", NULL}, 0, 1, {NULL}};
	PyObject *given[1];

	return none_if(args_spread(&s, args, n, names, given) &&
		       give_up((struct message *)o, given[0], reject));
}

static PyObject *reply(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {
	    "reply", {"array", "meta", "data", "stream", NULL}, 0, 2, {NULL}};
	struct message *m = (struct message *)o;
	PyObject *given[4];
	struct stream stream, home;
	struct outgoing out;
	share_outgoing raw;
	int r;

	if (!args_spread(&s, args, n, names, given) || !message_is_usable(m))
		return NULL;
	if (!m->is_request || m->users > 0) {
		PyErr_SetString(PyExc_ValueError,
				m->is_request ? "the request is being answered"
					      : "only a request to a service can be answered");
		return NULL;
	}
	if (!keep_data(m) || !outgoing_begin(&out, m->of->buffers, given[0], given[1], given[2]))
		return NULL;
	home = m->stream ? (struct stream){m->stream, m->owner} : outgoing_home(&out);
	if (!outgoing_stream(&out, given[3], m->of->on_gpu, home, &stream)) {
		outgoing_end(&out, 0);
		return NULL;
	}
	m->users++;
	settle_array(m);
	raw = outgoing_raw(&out);
	UNLOCKED(r = share_reply_with(&m->m, &raw, stream.p));
	m->users--;
	outgoing_end(&out, r);
	if (!m->m.channel)
		finish(m);
	return none_if(r == 0);
}

static PyObject *status(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	struct message *m = (struct message *)o;

	if (!message_is_usable(m))
		return NULL;
	return none_if(no_error(share_request_status(&m->m)));
}

/* ------------------------------------------------------------------------------------------- */

bool message_ready(PyObject *module)
{
	static PyMethodDef methods[] = {
	    {"ack", METHOD(ack), METH_FASTCALL | METH_KEYWORDS, DOC_MESSAGE_ACK},
	    {"reject", METHOD(reject_), METH_FASTCALL | METH_KEYWORDS, DOC_MESSAGE_REJECT},
	    {"reply", METHOD(reply), METH_FASTCALL | METH_KEYWORDS, DOC_MESSAGE_REPLY},
	    {"status", status, METH_NOARGS, DOC_MESSAGE_STATUS},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct message, weak), READONLY, NULL},
	    {"number", T_ULONGLONG, offsetof(struct message, m.number), READONLY,
	     DOC_MESSAGE_NUMBER},
	    {"lost", T_ULONGLONG, offsetof(struct message, m.lost), READONLY, DOC_MESSAGE_LOST},
	    {"producer", T_ULONGLONG, offsetof(struct message, m.producer), READONLY,
	     DOC_MESSAGE_PRODUCER},
	    {"deliveries", T_UINT, offsetof(struct message, m.deliveries), READONLY,
	     DOC_MESSAGE_DELIVERIES},
	    {NULL, 0, 0, 0, NULL},
	};

	core.message =
	    TYPE(module, NULL, "Message", struct message, Py_TPFLAGS_DISALLOW_INSTANTIATION,
		 DOC(DOC_MESSAGE), SLOT(Py_tp_dealloc, dealloc), {Py_tp_methods, methods},
		 {Py_tp_members, members}, {Py_tp_getset, message_getters});
	return core.message != NULL;
}
