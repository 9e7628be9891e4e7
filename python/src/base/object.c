/* SPDX-License-Identifier: MIT */

/* The type below all types of what is given up by close(), and how types are made. */

#include "python/src/base/object.h"

PyTypeObject *make_type(PyObject *module, PyTypeObject *base, PyType_Spec *spec)
{
	PyObject *type = PyType_FromSpecWithBases(spec, (PyObject *)base);

	if (!type || (module && PyModule_AddType(module, (PyTypeObject *)type) < 0)) {
		Py_XDECREF(type);
		return NULL;
	}
	return (PyTypeObject *)type;
}

struct object *object_new(PyTypeObject *type, struct client *client, const char *what, void *p,
			  void (*give_up)(void *))
{
	struct object *self = (struct object *)PyType_GenericAlloc(type, 0);

	if (!self) {
		UNLOCKED(give_up(p));
		return NULL;
	}
	handle_init(&self->handle, what, p, give_up);
	if (client) {
		self->handle.waits = client->handle.waits;
		self->client = (struct client *)Py_NewRef((PyObject *)client);
	}
	return self;
}

void object_end(PyObject *o)
{
	struct object *self = (struct object *)o;

	if (self->weak)
		PyObject_ClearWeakRefs(o);
	handle_close(&self->handle);
}

void object_dealloc(PyObject *o)
{
	PyTypeObject *type = Py_TYPE(o);

	object_end(o);
	Py_XDECREF((PyObject *)((struct object *)o)->client);
	PyObject_Free(o);
	Py_DECREF(type);
}

PyObject *object_close(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	handle_close(&((struct object *)o)->handle);
	Py_RETURN_NONE;
}

PyObject *object_get_closed(PyObject *o, void *Py_UNUSED(ignored))
{
	return PyBool_FromLong(!handle_is_usable(&((struct object *)o)->handle));
}

static PyObject *enter(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return Py_NewRef(o);
}

/* A class of the program's may have a close() of its own. */
static PyObject *leave(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return PyObject_CallMethod(o, "close", NULL);
}

bool object_ready(void)
{
	static PyMethodDef methods[] = {
	    {"__enter__", enter, METH_NOARGS, NULL},
	    {"__exit__", leave, METH_VARARGS, NULL},
	    {NULL, NULL, 0, NULL},
	};
	static PyMemberDef members[] = {
	    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct object, weak), READONLY, NULL},
	    {NULL, 0, 0, 0, NULL},
	};
	static PyGetSetDef getters[] = {
	    {"closed", object_get_closed, NULL, DOC_CLOSES_CLOSED, NULL},
	    {NULL, NULL, NULL, NULL, NULL},
	};

	core.object = TYPE(NULL, NULL, "Object", struct object,
			   Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
			   SLOT(Py_tp_dealloc, object_dealloc), {Py_tp_methods, methods},
			   {Py_tp_members, members}, {Py_tp_getset, getters});
	return core.object != NULL;
}
