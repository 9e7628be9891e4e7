/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What all files of the extension share. Functions need the GIL if their comment says nothing else.
 * The extension has one interpreter for its whole life, so its state is in one struct.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#include <share/private/core.h>
#include <share/service.h>
#include <share/share.h>

#include "python/src/base/docs.h"

#define CONTAINER_OF(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Makes one call of the library without the GIL. */
#define UNLOCKED(statement)                                  \
	do {                                                 \
		PyThreadState *state_ = PyEval_SaveThread(); \
		statement;                                   \
		PyEval_RestoreThread(state_);                \
	} while (0)

/* The entries of a type's tables. ISO C has no conversion between pointers to functions and
 * pointers to data, so these go through an integer. */
#define SLOT(id, function)                        \
	{                                         \
		id, (void *)(uintptr_t)(function) \
	}
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))
#define DOC(text)                                  \
	{                                          \
		Py_tp_doc, (void *)(uintptr_t)text \
	}

/* What help() says is in docs.h, DOC_POOL_ALLOC of Pool.alloc() and DOC_POOL of Pool: the build
 * makes that of the stub, libshare/_core.pyi (describe.py). */

struct core {
	PyTypeObject *object, *client, *pool, *array, *host_stream, *fence, *event, *operation,
	    *watch;
	PyTypeObject *producer, *consumer, *message, *messages, *caller, *worker, *pending;
	PyObject *errors;         /* dict: number to class */
	PyObject *closed;         /* exception class for a handle that was given up */
	PyObject *current_stream; /* function: the ordinal of a device to a stream or None */
	PyObject *frameworks;     /* tuple: the modules that current_stream looks for */
	PyObject *dtype_code;     /* function: a dtype of any framework to its number */
	PyObject *dtype_codes;    /* dict: what dtype_code returned before */
	PyObject *dumps, *loads;  /* functions: an object to JSON, and back */
};
extern struct core core;

/* error.c */

/* Sets the exception for an error of the library, with the library's detail or with @detail. Both
 * return NULL, for the caller to return. */
PyObject *raise_error(int r);
PyObject *raise_named(int r, const char *detail);
/* Returns the exception class of an error, borrowed. */
PyObject *error_class(int r);
/* Returns whether @r is no error; else sets its exception, unless one is set already. An error is
 * raised before anything is given up: giving up calls the library, too, and can run code of the
 * program, and share_error_detail() is about the last call that failed. So whatever ends the use of
 * something takes the result of that use. */
bool no_error(int r);
PyObject *raise_closed(const char *what);
/* What a method without a result returns: None, or NULL, when there is an exception. */
static inline PyObject *none_if(bool good)
{
	return good ? Py_NewRef(Py_None) : NULL;
}
