/* SPDX-License-Identifier: MIT */
#ifndef PYTHON_CORE_H
#define PYTHON_CORE_H

/*
 * What the files of the extension share. All of it runs with the GIL held unless it says otherwise.
 * The extension has one interpreter for its life, so what it knows is in one place.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#include <share/service.h>
#include <share/share.h>

#define CONTAINER_OF(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* One call of the library without the GIL. */
#define UNLOCKED(statement)                                  \
	do {                                                 \
		PyThreadState *state_ = PyEval_SaveThread(); \
		statement;                                   \
		PyEval_RestoreThread(state_);                \
	} while (0)

/* The rows of a type's table; ISO C has no conversion between pointers to functions and to data. */
#define SLOT(id, function)                        \
	{                                         \
		id, (void *)(uintptr_t)(function) \
	}
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

struct core {
	PyTypeObject *client, *pool, *array, *host_stream, *fence, *event, *operation, *watch;
	PyTypeObject *channel, *message, *messages, *service, *pending;
	PyObject *errors;         /* dict: number to class */
	PyObject *closed;         /* class of what is raised for a handle that was given up */
	PyObject *current_stream; /* function of the ordinal of a device: None, or a stream */
	PyObject *dtype_code;     /* function: any dtype of any framework to a number */
	PyObject *dtype_codes;    /* dict: what it answered before */
	PyObject *exchange;       /* capsule of DLPack's exchange API */
};
extern struct core core;

/* module.c */
PyTypeObject *make_type(PyObject *module, PyType_Spec *spec);

/* ------------------------------------------------------------------------------------------- */
/* error.c                                                                                     */

/* Sets the exception for an error of the library's. NULL, for returning. */
PyObject *raise_error(int r);
/* None, or the exception. */
PyObject *none_or_raise(int r);
PyObject *raise_closed(const char *what);

/* ------------------------------------------------------------------------------------------- */
/* handle.c: what is under a Python object, and may be given up while calls are under way       */

struct handle {
	void *p;             /* NULL: given up */
	const char *what;    /* "client" */
	unsigned users;      /* calls under way without the GIL, and objects that need it */
	unsigned generation; /* of the process that made it */
	bool closed;
	void (*give_up)(void *p); /* runs without the GIL */
};

void handle_init(struct handle *h, const char *what, void *p, void (*give_up)(void *));
/* The pointer, which stays good until handle_leave(); NULL with an exception. */
void *handle_enter(struct handle *h);
void handle_leave(struct handle *h);
/* Given up now, or when the last user leaves. May be called again. */
void handle_close(struct handle *h);
bool handle_is_usable(const struct handle *h);
/* Sets the exception that says why not. */
PyObject *handle_refuse(const struct handle *h);

/* Changes in every forked child. */
unsigned process_generation(void);

/* ------------------------------------------------------------------------------------------- */
/* wait.c: time limits in seconds, and waits that ^C ends                                       */

struct wait {
	int64_t deadline; /* in ms of CLOCK_MONOTONIC; -1: none */
	bool once;        /* a time limit of 0 */
};

/* @timeout: NULL or None: no limit. False with an exception. */
bool wait_begin(struct wait *w, PyObject *timeout);
/* How long the next call of the library may take, in ms. */
int wait_slice(const struct wait *w);
/* After a slice in which nothing came: 1 to try again, 0 when the time is over, -1 with an
 * exception, as when there was a signal. */
int wait_again(const struct wait *w);
/* Waits for one of up to four descriptors for a slice: as wait_again(), and 1 when one is there. */
int wait_for(const struct wait *w, const int *fds, size_t n);

/* ------------------------------------------------------------------------------------------- */
/* args.c                                                                                      */

/* Spreads arguments of METH_FASTCALL | METH_KEYWORDS over @out (borrowed, NULL: left out). @names
 * ends with NULL; the first @required have to be there, those from @keyword_only on are to be
 * named. */
struct signature {
	const char *function;
	const char *names[12];
	int required, keyword_only;
	PyObject *interned[12];
};
bool args_spread(struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
		 PyObject **out);
/* Whole numbers, with an exception and false when they do not fit. NULL leaves @out. */
bool arg_uint64(PyObject *o, uint64_t *out);
bool arg_int64(PyObject *o, int64_t *out);
/* 'r' or 'rw' as enum share_mode. */
bool mode_from(PyObject *o, uint32_t *out);

/* ------------------------------------------------------------------------------------------- */
/* stream.c, host_stream.c                                                                     */

struct stream {
	void *p;
	PyObject *owner; /* borrowed; what has to live as long as @p is in use, or NULL */
};

/* What @given is; when it is left out (NULL): for memory of a GPU the stream on which a framework
 * works in this thread, else @home. False with an exception. */
bool stream_from(PyObject *given, bool on_gpu, int ordinal, struct stream home, struct stream *out);
/* The stream of a share_host_stream object; NULL with an exception. */
void *host_stream_of(PyObject *o);

/* ------------------------------------------------------------------------------------------- */
/* client.c, pool.c                                                                            */

struct client {
	PyObject_HEAD struct handle handle;
	PyObject *weak;
};

struct pool {
	PyObject_HEAD struct handle handle;
	PyObject *weak;
	struct client *client;
	bool on_gpu;
};

/* ------------------------------------------------------------------------------------------- */
/* dtype.c                                                                                     */

/* False with an exception. */
bool dtype_from(PyObject *o, uint32_t *out);
const char *dtype_format(uint32_t dtype); /* of the buffer protocol; NULL: it has none */
static inline uint32_t dtype_size(uint32_t dtype)
{
	return (dtype & 0xff) / 8;
}

/* ------------------------------------------------------------------------------------------- */
/* array.c and its friends                                                                     */

/* Without the GIL, in any thread: gives a reference up behind the work on @stream, now or, where
 * the stream does not take a signal just now, with a later one. release.c. */
void buffer_release(share_buffer *b, void *stream);

struct recorded {
	struct recorded *next;
	void *stream;
	PyObject *owner;
};

struct array {
	PyObject_HEAD PyObject *weak;
	struct client *client;
	share_buffer *b; /* a reference of its own, unless it is a message's; NULL: given up */
	char *data;      /* of the first element */
	void *stream;    /* what its work is ordered on */
	PyObject *owner; /* of the stream, or NULL */
	struct recorded *recorded;
	unsigned users, generation;
	int16_t ordinal;
	bool on_gpu, readonly, readonly_ok, closed;
	bool borrowed; /* from a message, which holds the only reference to this object */
	share_tensor t;
};

/* A view of @b, whose reference goes to it, also when it fails (NULL with an exception). @t's
 * offset counts. */
struct array *array_make(struct client *client, share_buffer *b, const share_tensor *t,
			 struct stream stream, bool on_gpu);
/* @b as what its sender says it is, else as bytes. */
struct array *array_found(struct client *client, share_buffer *b, struct stream stream,
			  bool on_gpu);
/* A view of an array's memory, with its offset in bytes from the array's first element. */
struct array *array_derive(struct array *of, const share_tensor *t);
/* As handle_enter() and handle_leave(). */
share_buffer *array_enter(struct array *a);
void array_leave(struct array *a);
bool array_is_usable(struct array *a); /* or the exception */
struct stream array_home(const struct array *a);
bool array_is_contiguous(const struct array *a);
int64_t array_items(const struct array *a);
int64_t array_bytes(const struct array *a);
/* Into @t, which was initialised: with the offset from the start of the buffer. */
void array_tensor(const struct array *a, share_tensor *t);
int array_ordinal(struct array *a);
/* Work on @stream comes after work on the array so far. False with an exception. */
bool array_order(struct array *a, void *stream);
bool array_check(PyObject *o); /* is one, or TypeError */
/* A dimension from a tuple, a list or one number. The number of them, or -1 with an exception. */
int shape_from(PyObject *o, int64_t *out);
PyObject *tuple_of(const int64_t *values, uint32_t n, int64_t factor);

extern PyMethodDef array_view_methods[], array_share_methods[], array_copy_methods[];
PyObject *array_subscript(PyObject *self, PyObject *key);
int array_get_buffer(PyObject *self, Py_buffer *out, int flags);
void array_release_buffer(PyObject *self, Py_buffer *b);
PyObject *array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *array_dlpack_device(PyObject *self, PyObject *ignored);
PyObject *array_cuda_interface(PyObject *self, void *ignored);
bool exchange_make(void); /* fills core.exchange */

/* ------------------------------------------------------------------------------------------- */
/* Each type of its file                                                                       */

bool client_ready(PyObject *module);
bool pool_ready(PyObject *module);
bool array_ready(PyObject *module);
bool host_stream_ready(PyObject *module);
bool fence_ready(PyObject *module);
bool event_ready(PyObject *module);
bool watch_ready(PyObject *module);
bool channel_ready(PyObject *module);
bool message_ready(PyObject *module);
bool service_ready(PyObject *module);

#endif
