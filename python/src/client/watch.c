/* SPDX-License-Identifier: MIT */

/*
 * Results that arrive in share_dispatch(): changes of names, look-ups that were started, buffers
 * whose giver has finished. Any thread may dispatch, also one without Python. So a result is put
 * into a mailbox without the GIL, and a descriptor shows that something is there.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "python/src/client/inside.h"

struct letter {
	struct letter *next;
	share_buffer *b; /* the result of a look-up */
	int error;
	uint32_t change;
	uint64_t version, buffer;
	char name[SHARE_NAME_MAX + 1];
};

struct mailbox {
	pthread_mutex_t lock;
	struct letter *first, **last;
	int fd;
};

struct watching {
	OBJECT_HEAD; /* its handle: a share_watch or a share_operation, and a user of the client's
		      */
	struct mailbox *box;
	struct stream stream;
	bool readonly_ok;
};

/* Puts a letter into the mailbox, in the thread that dispatches, without the GIL. If there is no
 * memory for it, the letter is lost, but the descriptor becomes readable all the same. */
static void put(struct mailbox *box, const struct letter *letter)
{
	struct letter *l = malloc(sizeof(*l));
	eventfd_t one = 1;

	if (l)
		*l = *letter;
	else if (letter->b)
		share_release(letter->b, NULL);
	pthread_mutex_lock(&box->lock);
	if (l) {
		l->next = NULL;
		*box->last = l;
		box->last = &l->next;
	}
	pthread_mutex_unlock(&box->lock);
	eventfd_write(box->fd, one);
}

/* Only one thread dispatches at a time; two would put letters into a mailbox in any order. */
static pthread_mutex_t dispatching = PTHREAD_MUTEX_INITIALIZER;

static void start_anew(void)
{
	dispatching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_anew);
}

int dispatch_in_order(share_client *c)
{
	int r;

	pthread_mutex_lock(&dispatching);
	r = share_dispatch(c);
	pthread_mutex_unlock(&dispatching);
	return r;
}

static struct letter *take(struct mailbox *box)
{
	struct letter *l;
	eventfd_t ignored;

	pthread_mutex_lock(&box->lock);
	l = box->first;
	if (l)
		box->first = l->next;
	if (!box->first) {
		box->last = &box->first;
		eventfd_read(box->fd, &ignored);
	}
	pthread_mutex_unlock(&box->lock);
	return l;
}

static void changed(const share_name_event *event, void *data)
{
	struct letter l = {
	    .change = event->change, .version = event->version, .buffer = event->buffer};

	strncpy(l.name, event->name, sizeof(l.name) - 1);
	put(data, &l);
}

static void on_found(share_buffer *b, int error, void *data)
{
	put(data, &(struct letter){.b = b, .error = error});
}

static void known(int status, void *data)
{
	put(data, &(struct letter){.error = status});
}

/* ------------------------------------------------------------------------------------------- */

static struct mailbox *make_box(void)
{
	struct mailbox *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	pthread_mutex_init(&box->lock, NULL);
	box->last = &box->first;
	box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (box->fd >= 0)
		return box;
	free(box);
	return NULL;
}

static void end_box(struct mailbox *box)
{
	struct letter *l;

	while ((l = take(box))) {
		if (l->b)
			release_behind(l->b, NULL, NULL);
		free(l);
	}
	close(box->fd);
	pthread_mutex_destroy(&box->lock);
	free(box);
}

static void end_watch(void *p)
{
	share_unwatch(p);
}

static void end_operation(void *p)
{
	share_cancel(p);
}

/* Makes the object with a mailbox, and enters the client. Returns NULL with an exception. */
static struct watching *make(PyTypeObject *type, struct client *client)
{
	struct watching *self;

	if (!handle_enter(&client->handle))
		return NULL;
	self = (struct watching *)PyType_GenericAlloc(type, 0);
	if (!self) {
		handle_leave(&client->handle, 0);
		return NULL;
	}
	self->client = (struct client *)Py_NewRef((PyObject *)client);
	self->box = make_box();
	if (!self->box) {
		PyErr_SetFromErrno(PyExc_OSError);
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	return self;
}

static PyObject *watching_made(struct watching *self, int r, const char *what, void *p,
			       void (*give_up)(void *))
{
	if (!no_error(r)) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	handle_init(&self->handle, what, p, give_up);
	self->handle.waits = self->client->handle.waits;
	return (PyObject *)self;
}

static void dealloc_watching(PyObject *o)
{
	struct watching *self = (struct watching *)o;

	object_end(o);
	/* nothing puts letters into the mailbox any more */
	if (self->box && (!self->handle.what || self->handle.generation == process_generation()))
		UNLOCKED(end_box(self->box));
	Py_XDECREF(self->stream.owner);
	handle_leave(&self->client->handle, 0);
	object_dealloc(o);
}

static PyObject *watching_fileno(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return PyLong_FromLong(((struct watching *)o)->box->fd);
}

/* Waits for the first letter by dispatching, and returns it for free(). Returns NULL with an
 * exception if none came. */
static struct letter *wait_for_letter(struct watching *self, PyObject *timeout)
{
	struct letter *l = NULL;
	struct wait w;
	int r = 0, again = 1;

	if (!wait_begin(&w, timeout) || !handle_enter(&self->handle))
		return NULL;
	while (!(l = take(self->box)) && again > 0) {
		share_client *c = self->client->handle.p;
		int fds[] = {self->box->fd, share_get_fd(c)}, ready;

		UNLOCKED(r = dispatch_in_order(c));
		l = take(self->box);
		if (l || r < 0)
			break;
		if (self->client->handle.closed) {
			raise_closed(self->handle.what);
			break;
		}
		WAITING(&w, &self->handle, again, ready, share_wait_for(c, fds, 2, wait_ms(&w)));
		if (ready < 0 && again == 0)
			r = ready;
		again = ready == 1;
	}
	if (!l && r >= 0 && !PyErr_Occurred())
		raise_named(w.once ? SHARE_EAGAIN : SHARE_ETIMEDOUT, "nothing has come");
	handle_leave(&self->handle, l ? 0 : r);
	return l;
}

/* ------------------------------------------------------------------------------------------- */
/* Names                                                                                       */

static PyObject *create_watch(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct client *client;
	struct watching *self;
	const char *prefix;
	share_watch *w;
	int r;

	if (!PyArg_ParseTuple(args, "O!s:Watch", core.client, &client, &prefix))
		return NULL;
	self = make(type, client);
	if (!self)
		return NULL;
	UNLOCKED(r = share_watch_names(client->handle.p, prefix, changed, self->box, &w));
	return watching_made(self, r, "watch", w, end_watch);
}

static PyObject *event_of(struct letter *l)
{
	static const char *const changes[] = {"", "published", "replaced", "unpublished",
					      "overflow"};
	PyObject *event;

	if (!l)
		return NULL;
	event = Py_BuildValue("(ssKK)", l->change < 5 ? changes[l->change] : "", l->name,
			      (unsigned long long)l->version, (unsigned long long)l->buffer);
	free(l);
	return event;
}

static PyObject *next_change(PyObject *o, PyObject *timeout)
{
	return event_of(wait_for_letter((struct watching *)o, timeout));
}

/* ------------------------------------------------------------------------------------------- */
/* Operations                                                                                  */

/* Operation(client, name, mode, timeout in ms, stream, readonly_ok), or Operation(client,
 * array). */
static PyObject *create_operation(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	PyObject *what, *given = Py_None;
	int mode = SHARE_RDONLY, timeout_ms = -1, ok = 0, r;
	struct stream stream;
	struct client *client;
	struct watching *self;
	share_operation *operation = NULL;
	const char *name = NULL;
	share_buffer *b = NULL;

	if (!PyArg_ParseTuple(args, "O!O|iiOp:Operation", core.client, &client, &what, &mode,
			      &timeout_ms, &given, &ok) ||
	    !stream_from(given, true, -1, (struct stream){NULL, NULL}, &stream))
		return NULL;
	if (PyObject_TypeCheck(what, core.array))
		b = array_enter((struct array *)what);
	else
		name = arg_text(what);
	if (!name && !b)
		return NULL;
	self = make(type, client);
	if (self) {
		self->stream = (struct stream){stream.p, Py_XNewRef(stream.owner)};
		self->readonly_ok = ok;
		if (name)
			UNLOCKED(r = share_lookup_async(client->handle.p, name, mode, timeout_ms,
							stream.p, on_found, self->box, &operation));
		else
			UNLOCKED(r = share_buffer_watch(b, known, self->box, &operation));
	}
	if (b)
		array_leave((struct array *)what, self ? r : 0);
	return self ? watching_made(self, r, name ? "look-up" : "watch of an array", operation,
				    end_operation)
		    : NULL;
}

/* An error that came to a callback has no detail. */
static const char *why(int error)
{
	switch (error) {
	case SHARE_ETIMEDOUT:
		return "it was not there, or not finished, within the time limit";
	case SHARE_ENOENT:
		return "nothing is published under that name, or this user may not use it";
	case SHARE_EDISCONNECTED:
		return "it ended with the connection";
	default:
		return "the look-up, or whoever gave the array, failed";
	}
}

static PyObject *result(PyObject *o, PyObject *timeout)
{
	struct watching *self = (struct watching *)o;
	struct letter *l = wait_for_letter(self, timeout);
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct letter got;
	struct array *a;

	if (!l)
		return NULL;
	got = *l;
	free(l);
	handle_close(&self->handle);
	if (got.error != 0)
		return raise_named(got.error, why(got.error));
	if (!got.b)
		Py_RETURN_NONE;
	share_buffer_get_info(got.b, &info);
	a = array_found(self->client, got.b, self->stream, info.ordinal >= 0);
	if (a)
		a->readonly_ok = self->readonly_ok;
	return (PyObject *)a;
}

bool watch_ready(PyObject *module)
{
	static PyMethodDef watch_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_WATCH_CLOSE},
	    {"fileno", watching_fileno, METH_NOARGS, DOC_WATCH_FILENO},
	    {"_next", next_change, METH_O, NULL},
	    {NULL, NULL, 0, NULL},
	};
	static PyMethodDef operation_methods[] = {
	    {"close", object_close, METH_NOARGS, DOC_OPERATION_CLOSE},
	    {"fileno", watching_fileno, METH_NOARGS, DOC_OPERATION_FILENO},
	    {"result", result, METH_O, DOC_OPERATION_RESULT},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"client", T_OBJECT, offsetof(struct watching, client), READONLY, DOC_WATCH_CLIENT},
	    {NULL, 0, 0, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"closed", object_get_closed, NULL, DOC_WATCH_CLOSED, NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.watch =
	    TYPE(module, core.object, "Watch", struct watching, 0, DOC(DOC_WATCH),
		 SLOT(Py_tp_new, create_watch), SLOT(Py_tp_dealloc, dealloc_watching),
		 {Py_tp_methods, watch_methods}, {Py_tp_members, members}, {Py_tp_getset, getters});
	core.operation = TYPE(
	    module, core.object, "Operation", struct watching, 0, DOC(DOC_OPERATION),
	    SLOT(Py_tp_new, create_operation), SLOT(Py_tp_dealloc, dealloc_watching),
	    {Py_tp_methods, operation_methods}, {Py_tp_members, members}, {Py_tp_getset, getters});
	return core.watch && core.operation;
}
