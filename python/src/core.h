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
	PyTypeObject *producer, *consumer, *message, *messages, *caller, *worker, *pending;
	PyObject *errors;         /* dict: number to class */
	PyObject *closed;         /* class of what is raised for a handle that was given up */
	PyObject *current_stream; /* function of the ordinal of a device: None, or a stream */
	PyObject *frameworks;     /* tuple: names of the modules that it asks */
	PyObject *dtype_code;     /* function: any dtype of any framework to a number */
	PyObject *dtype_codes;    /* dict: what it answered before */
	PyObject *dumps, *loads;  /* functions: what goes with a message to JSON, and back */
	PyObject *exchange;       /* capsule of DLPack's exchange API */
};
extern struct core core;

/* module.c */
PyTypeObject *make_type(PyObject *module, PyType_Spec *spec);

/* ------------------------------------------------------------------------------------------- */
/* error.c                                                                                     */

/* Sets the exception for an error of the library's, with its detail. NULL, for returning. */
PyObject *raise_error(int r);
PyObject *raise_named(int r, const char *detail);
/* Borrowed. */
PyObject *error_class(int r);
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
/* Without the GIL; for what nothing tells. */
void wait_a_moment(int ms);
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
/* Of a stream of the GPU @ordinal that a framework named by its number: what has to live as long as
 * it, borrowed, where that framework says. */
PyObject *stream_owner(void *p, int ordinal);
/* Lets go of an owner (or NULL) without the GIL, in any thread: it goes with the interpreter's next
 * turn, and stays when there is none any more. */
void stream_drop(void *owner);
/* The stream of a share_host_stream object; NULL with an exception. */
void *host_stream_of(PyObject *o);

/* fence.c: functions of the module. */
PyObject *fence_record(PyObject *module, PyObject *args);
PyObject *fence_wait(PyObject *module, PyObject *args);
PyObject *fence_synchronize(PyObject *module, PyObject *args);
PyObject *fence_query(PyObject *module, PyObject *args);

/* ------------------------------------------------------------------------------------------- */
/* client.c, pool.c                                                                            */

struct client {
	PyObject_HEAD struct handle handle;
	PyObject *weak;
	struct client *next; /* of all there are */
};

/* The one that is open with that handle: a new reference, or NULL without an exception. */
struct client *client_with(share_client *p);

/* find.c: functions of the module. The Array that lies at (address, dtype, shape, strides), in
 * which strides are in elements, None: in C order; and the one that a tensor lies in,
 * NotImplemented when its type does not say in C where that is. None: in none of a client that is
 * open. */
PyObject *find_at(PyObject *module, PyObject *args);
PyObject *find_of(PyObject *module, PyObject *thing);

struct pool {
	PyObject_HEAD struct handle handle;
	PyObject *weak;
	struct client *client;
	bool on_gpu;
};

/* ------------------------------------------------------------------------------------------- */
/* watch.c                                                                                     */

/* share_dispatch(), by one thread at a time. */
int dispatch_in_order(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* dtype.c                                                                                     */

/* False with an exception. */
bool dtype_from(PyObject *o, uint32_t *out);
const char *dtype_format(uint32_t dtype); /* of the buffer protocol; NULL: it has none */
/* What a buffer that was got with its format says that it is of; 0: something else. @swapped: in
 * the other byte order. */
uint32_t dtype_of_buffer(const Py_buffer *b, bool *swapped);
/* A function of the module: its name, or None. */
PyObject *dtype_name_of_buffer(PyObject *module, PyObject *o);
static inline uint32_t dtype_size(uint32_t dtype)
{
	return (dtype & 0xff) / 8;
}

/* ------------------------------------------------------------------------------------------- */
/* array.c and its friends                                                                     */

/* Without the GIL, in any thread: gives a reference up behind the work on @stream, now or, where
 * the stream does not take a signal just now, with a later one. @owner of the stream, or NULL, is
 * the answer when it is not needed any more; NULL: its reference was kept. release.c. */
void *release_behind(share_buffer *b, void *stream, void *owner);
/* The same with the GIL, for what takes no time; false: it has to be done without. */
bool release_at_once(share_buffer *b);

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
/* The same, but when it fails the reference stays the caller's. */
struct array *array_new(struct client *client, share_buffer *b, const share_tensor *t,
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
/* Its reference is somebody else's now. */
void array_given(struct array *a);
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
PyObject *array_lend(PyObject *self, PyObject *ignored);
PyObject *array_cuda_interface(PyObject *self, void *ignored);
bool exchange_make(void); /* fills core.exchange */

/* ------------------------------------------------------------------------------------------- */
/* message.c, channel.c, service.c                                                              */

/* A member of a channel or a service: what its messages need of it. */
struct member {
	PyObject_HEAD struct handle handle; /* share_channel or share_service */
	PyObject *weak;
	struct client *client;
	bool on_gpu, readonly_ok;
};

struct message {
	PyObject_HEAD PyObject *weak;
	struct member *of;
	struct array *array; /* made when it is asked for; borrowed as long as nobody else has it */
	void *stream;
	PyObject *owner;
	unsigned users, generation;
	int header; /* bytes of the data that describe the array; -1: not looked at */
	bool is_request, done;
	share_message m;
};

/* An empty one, for the library to fill; its stream is borrowed. */
struct message *message_new(struct member *of, struct stream stream, bool is_request);
/* As PyObject_Free(), for one in which nothing came. */
void message_discard(struct message *m);
/* @r of a call that may have filled it: the message; or NULL with the exception, which has the
 * message if there is one. */
PyObject *message_or_raise(struct message *m, int r);
/* 0, or -1 with an exception. */
int message_ack(struct message *m, PyObject *stream);

/* What is sent: an Array or nothing, and data. */
struct outgoing {
	share_buffer *b;
	struct array *array; /* entered */
	size_t size;
	unsigned char data[SHARE_TENSOR_ENCODED_MAX + SHARE_MESSAGE_DATA_MAX];
};
/* @meta and @data may be NULL. False with an exception; else to be given to outgoing_end(). */
bool outgoing_begin(struct outgoing *o, PyObject *array, PyObject *meta, PyObject *data);
void outgoing_end(struct outgoing *o);

PyObject *member_new(PyTypeObject *type, struct pool *pool, const char *what, void *handle,
		     void (*give_up)(void *));
PyObject *member_close(PyObject *o, PyObject *ignored);
extern PyGetSetDef member_getters[];
extern PyMemberDef member_members[];
void member_dealloc(PyObject *o);
/* A call without the GIL that waits for a message, in slices; before that one with the GIL for host
 * memory, which does not wait, if there is such a function. */
PyObject *member_receive(struct member *self, PyObject *timeout, PyObject *given, bool is_request,
			 int (*function)(void *, int, void *, share_message *),
			 int (*at_once)(share_channel *, share_message *));

/* channel.c: what iterates over a consumer or a worker. */
PyObject *member_iterate(PyObject *o);
PyObject *member_messages(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names);
extern const char member_messages_doc[];
/* NULL with SHARE_EAGAIN's exception: None. */
PyObject *none_if_not_ready(PyObject *m);

/* ------------------------------------------------------------------------------------------- */
/* torch_allocator.c */

PyObject *torch_pool(PyObject *module, PyObject *args);
PyObject *torch_has(PyObject *module, PyObject *address);

/* measure.c */
extern const char measure_doc[];
PyObject *measure(PyObject *module, PyObject *args);

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
