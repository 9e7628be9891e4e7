/* SPDX-License-Identifier: MIT */

/* What a client is told row by row: names, and reports of the broker. */

#include <string.h>

#include <share/admin.h>

#include "python/src/client/inside.h"

/* Callbacks that fill a list. The library calls them without the GIL, so they take it. */
struct filling {
	PyObject *list;
	PyThreadState *state;
};

static int append(struct filling *f, PyObject *row)
{
	int r = row ? PyList_Append(f->list, row) : -1;

	Py_XDECREF(row);
	return r < 0 ? 1 : 0;
}

static int add_name(const share_name_info *info, void *data)
{
	struct filling *f = data;
	int r;

	PyEval_RestoreThread(f->state);
	r = append(f,
		   Py_BuildValue("(sKKKsIO)", info->name, (unsigned long long)info->version,
				 (unsigned long long)info->buffer, (unsigned long long)info->size,
				 info->pool, info->uid, info->persistent ? Py_True : Py_False));
	f->state = PyEval_SaveThread();
	return r;
}

static int add_json(const char *json, void *data)
{
	struct filling *f = data;
	int r;

	PyEval_RestoreThread(f->state);
	r = append(f, PyUnicode_DecodeUTF8(json, (Py_ssize_t)strlen(json), "replace"));
	f->state = PyEval_SaveThread();
	return r;
}

static PyObject *fill(PyObject *o, const void *argument,
		      int (*function)(share_client *, const void *, struct filling *))
{
	struct client *self = (struct client *)o;
	struct filling f;
	share_client *c;
	struct wait w;
	int r;

	wait_begin(&w, NULL);
	f.list = PyList_New(0);
	c = f.list ? handle_enter(&self->handle) : NULL;
	if (!c) {
		Py_XDECREF(f.list);
		return NULL;
	}
	do {
		wait_starts(&w, &self->handle);
		f.state = PyEval_SaveThread();
		r = function(c, argument, &f);
		PyEval_RestoreThread(f.state);
	} while (wait_again(&w, &self->handle, r) > 0);
	if (!handle_leave(&self->handle, r) || PyErr_Occurred())
		Py_CLEAR(f.list);
	return f.list;
}

static int list_names(share_client *c, const void *prefix, struct filling *f)
{
	return share_list(c, prefix, add_name, f);
}

static int list_objects(share_client *c, const void *what, struct filling *f)
{
	return share_inspect(c, what, add_json, f);
}

static int list_changes(share_client *c, const void *Py_UNUSED(nothing), struct filling *f)
{
	return share_reload(c, add_json, f);
}

PyObject *client_reload(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return fill(o, NULL, list_changes);
}

static int hand_over(share_client *c, const void *Py_UNUSED(nothing), struct filling *f)
{
	return share_upgrade(c, add_json, f);
}

PyObject *client_upgrade(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return fill(o, NULL, hand_over);
}

PyObject *client_names(PyObject *o, PyObject *prefix)
{
	const char *text = arg_text(prefix);

	return text ? fill(o, text, list_names) : NULL;
}

PyObject *client_inspect(PyObject *o, PyObject *what)
{
	const char *text = arg_text(what);

	return text ? fill(o, text, list_objects) : NULL;
}

struct monitoring {
	share_monitor_options options;
	int timeout_ms;
};

static int list_events(share_client *c, const void *argument, struct filling *f)
{
	const struct monitoring *m = argument;

	return share_monitor(c, &m->options, m->timeout_ms, add_json, f);
}

PyObject *client_monitor(PyObject *o, PyObject *args)
{
	struct monitoring m = {.options = SHARE_MONITOR_OPTIONS_INIT};
	PyObject *user;

	if (!PyArg_ParseTuple(args, "zzOi", &m.options.pool, &m.options.prefix, &user,
			      &m.timeout_ms))
		return NULL;
	if (user != Py_None) {
		unsigned long uid = PyLong_AsUnsignedLong(user);

		if (uid == (unsigned long)-1 && PyErr_Occurred())
			return NULL;
		if (uid > UINT32_MAX)
			return PyErr_Format(PyExc_OverflowError, "there is no user %lu", uid);
		m.options.flags = SHARE_MONITOR_USER;
		m.options.uid = (uint32_t)uid;
	}
	return fill(o, &m, list_events);
}
