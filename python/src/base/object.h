/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/core.h"

/* handle.c: what is under a Python object, and may be given up while calls are under way */

struct handle {
	void *p;          /* NULL: it was given up */
	const char *what; /* what messages call it: "client" */
	/* Calls that use it without the GIL, and objects that need it. */
	unsigned users;
	unsigned generation; /* process_generation() of the process that made it */
	bool closed;
	share_waits *waits;       /* which handle_close() ends; NULL: nobody waits with it */
	void (*give_up)(void *p); /* gives @p up; called without the GIL */
};

void handle_init(struct handle *h, const char *what, void *p, void (*give_up)(void *));
/* Returns the pointer, which stays valid until handle_leave(), or NULL with an exception. */
void *handle_enter(struct handle *h);
/* @r: what the call returned, or 0. Returns no_error(). */
bool handle_leave(struct handle *h, int r);
/* Gives the handle up, now or when its last user leaves. May be called again. */
void handle_close(struct handle *h);
bool handle_is_usable(const struct handle *h);
/* The same for what needs no connection, so that it also works in a forked child. */
bool handle_is_open(const struct handle *h);
/* Sets the exception that says why the handle cannot be used, and returns NULL. */
PyObject *handle_refuse(const struct handle *h);

/* Returns a number that is another one in each forked child. */
unsigned process_generation(void);

/* Makes a call of the library with what is under a handle, as @p, without the GIL. @r is what it
 * returned; if that is negative, there is an exception. */
#define CALL(h, p, r, call)             \
	do {                            \
		(r) = -1;               \
		(p) = handle_enter(h);  \
		if (!(p))               \
			break;          \
		UNLOCKED((r) = (call)); \
		handle_leave(h, r);     \
	} while (0)

/* object.c: the base of all types that have close() */

/* What their structs begin with. `client`: what it was made with, a reference; may be NULL. */
#define OBJECT_HEAD                         \
	PyObject_HEAD struct handle handle; \
	PyObject *weak;                     \
	struct client *client
struct object {
	OBJECT_HEAD;
};

/* Makes one that has @p, which is given up if that fails. NULL is fine for @client. */
struct object *object_new(PyTypeObject *type, struct client *client, const char *what, void *p,
			  void (*give_up)(void *));
/* For tp_dealloc. A type whose own end lets go of the GIL calls object_end() before that, after
 * which nobody gets the object any more. */
void object_end(PyObject *o);
void object_dealloc(PyObject *o);
/* For the tables of their types. */
PyObject *object_close(PyObject *o, PyObject *ignored);
PyObject *object_get_closed(PyObject *o, void *ignored);

/* Makes a type, which @module has unless it is NULL. What follows is its slots. */
#define TYPE(module, base, name, layout, flags, ...)                        \
	make_type(module, base,                                             \
		  &(PyType_Spec){"libshare._core." name, sizeof(layout), 0, \
				 Py_TPFLAGS_DEFAULT | (flags),              \
				 (PyType_Slot[]){__VA_ARGS__, {0, NULL}}})
PyTypeObject *make_type(PyObject *module, PyTypeObject *base, PyType_Spec *spec);
bool object_ready(void);

/* What most others are made with: client/ has the rest of these two. */
struct client {
	OBJECT_HEAD;         /* without a client of its own */
	struct client *next; /* the list of all clients */
};

struct pool {
	OBJECT_HEAD;
	bool on_gpu; /* false of one of kind adopted, whose buffers are where they were */
	bool adopts;
	bool asked;      /* what its device is, which initialises the driver */
	int16_t ordinal; /* CUDA's number of that; -1: host memory, or not known */
};
