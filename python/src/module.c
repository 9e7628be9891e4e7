/* SPDX-License-Identifier: MIT */

/*
 * libshare._core: the library as Python types. Functions that programs call often are here.
 * Convenient ones are in Python, in the package around this module, which adds them to these types
 * when it is imported.
 */

#include <string.h>

#include "python/src/array/array.h"
#include "python/src/array/dlpack.h"
#include "python/src/array/dtype.h"
#include "python/src/base/args.h"
#include "python/src/channel/channel.h"
#include "python/src/client/client.h"
#include "python/src/order/order.h"

struct core core;

/* _set_up(errors, closed, dtype_code, current_stream, frameworks, dumps, loads): what the package
 * knows. Classes of errors by number, that of handles that were given up, functions, and the
 * modules that current_stream() asks. */
static PyObject *set_up(PyObject *Py_UNUSED(module), PyObject *args)
{
	static PyObject *all; /* has the references */
	PyObject *before = all;
	struct core c = core;

	if (!PyArg_ParseTuple(args, "O!OOOO!OO", &PyDict_Type, &c.errors, &c.closed, &c.dtype_code,
			      &c.current_stream, &PyTuple_Type, &c.frameworks, &c.dumps, &c.loads))
		return NULL;
	core = c;
	all = Py_NewRef(args);
	Py_XDECREF(before);
	PyDict_Clear(core.dtype_codes);
	Py_RETURN_NONE;
}

static PyObject *dtype_code(PyObject *Py_UNUSED(module), PyObject *name)
{
	const char *text = arg_text(name);

	return text ? PyLong_FromUnsignedLong(share_dtype_from_name(text)) : NULL;
}

static bool add_errors(PyObject *module)
{
#define ADD(name, number, text)                                     \
	if (PyModule_AddIntConstant(module, #name + 6, number) < 0) \
		return false;
	SHARE_ERRORS(ADD)
#undef ADD
	return true;
}

/* The process may have had a library of that name before, which was taken then. */
static bool fits(void)
{
	if (strcmp(share_version(), SHARE_VERSION) == 0)
		return true;
	PyErr_Format(PyExc_ImportError,
		     "the Python package libshare %s needs the library libshare.so.0 of the same "
		     "version, and this process has loaded version %s of it",
		     SHARE_VERSION, share_version());
	return false;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	static PyMethodDef functions[] = {
	    {"_set_up", set_up, METH_VARARGS, NULL},
	    {"dtype_code", dtype_code, METH_O, DOC_DTYPE_CODE},
	    {"_dtype_of", dtype_name_of_buffer, METH_O, NULL},
	    {"_fence_record", fence_record, METH_VARARGS, NULL},
	    {"_fence_wait", fence_wait, METH_VARARGS, NULL},
	    {"_fence_synchronize", fence_synchronize, METH_VARARGS, NULL},
	    {"_fence_query", fence_query, METH_VARARGS, NULL},
	    {"_array_at", find_at, METH_VARARGS, NULL},
	    {"_array_of", find_of, METH_O, NULL},
	    {"_listeners_forget", listeners_forget, METH_NOARGS, NULL},
	    {"_untell", member_untell, METH_O, NULL},
	    {"_torch_pool", torch_pool, METH_VARARGS, NULL},
	    {"_torch_has", torch_has, METH_O, NULL},
	    {"_measure", measure, METH_VARARGS, NULL},
	    {NULL, NULL, 0, NULL},
	};
	static struct PyModuleDef definition = {
	    PyModuleDef_HEAD_INIT, "libshare._core", NULL, -1, functions, NULL, NULL, NULL, NULL};
	PyObject *module = fits() ? PyModule_Create(&definition) : NULL;

	process_generation();
	core.dtype_codes = PyDict_New();
	if (module && core.dtype_codes && listener_ready() && object_ready() &&
	    client_ready(module) && pool_ready(module) && array_ready(module) && exchange_ready() &&
	    host_stream_ready(module) && fence_ready(module) && event_ready(module) &&
	    watch_ready(module) && message_ready(module) && channel_ready(module) &&
	    service_ready(module) && add_errors(module) &&
	    PyModule_AddStringConstant(module, "version", share_version()) == 0)
		return module;
	Py_XDECREF(module);
	return NULL;
}
