/* SPDX-License-Identifier: MIT */
#ifndef PYTHON_CORE_H
#define PYTHON_CORE_H

/*
 * What the files of the extension share. Functions need the GIL if their comment says nothing else.
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
	PyObject *exchange;       /* capsule of DLPack's exchange API */
};
extern struct core core;

/* ------------------------------------------------------------------------------------------- */
/* error.c                                                                                     */

/* Sets the exception for an error of the library, with the library's detail or with @detail. Both
 * return NULL, for the caller to return. */
PyObject *raise_error(int r);
PyObject *raise_named(int r, const char *detail);
/* Returns the exception class of an error, borrowed. */
PyObject *error_class(int r);
/* Returns None if @r is no error; else sets its exception and returns NULL. */
PyObject *none_or_raise(int r);
/* Returns whether @r is no error; else sets its exception, unless one is set already. An error is
 * raised before anything is given up: giving up calls the library, too, and can run code of the
 * program, and share_error_detail() is about the last call that failed. So whatever ends the use of
 * something takes the result of that use. */
bool no_error(int r);
PyObject *raise_closed(const char *what);

/* ------------------------------------------------------------------------------------------- */
/* handle.c: what is under a Python object, and may be given up while calls are under way       */

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
static inline PyObject *none_unless(int r)
{
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------------------------------- */
/* object.c: the base of all types that have close()                                           */

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
/* For tp_dealloc. A type with more to do first calls object_end() or gives nobody a chance to get
 * the object. */
void object_end(PyObject *o);
void object_dealloc(PyObject *o);
/* For the tables of their types. */
PyObject *object_close(PyObject *o, PyObject *ignored);
PyObject *object_get_closed(PyObject *o, void *ignored);
PyObject *object_get_client(PyObject *o, void *ignored);

/* Makes a type, which @module has unless it is NULL. What follows is its slots. */
#define TYPE(module, base, name, layout, flags, ...)                        \
	make_type(module, base,                                             \
		  &(PyType_Spec){"libshare._core." name, sizeof(layout), 0, \
				 Py_TPFLAGS_DEFAULT | (flags),              \
				 (PyType_Slot[]){__VA_ARGS__, {0, NULL}}})
PyTypeObject *make_type(PyObject *module, PyTypeObject *base, PyType_Spec *spec);

/* ------------------------------------------------------------------------------------------- */
/* wait.c: time limits in seconds, and waits that ^C ends                                       */

struct wait {
	int64_t deadline; /* in ms of CLOCK_MONOTONIC; -1: none */
	int look_ms;      /* for how long the next call may wait before signals are looked at */
	bool once;        /* the time limit is 0 */
};

/* Starts a time limit of @timeout seconds; NULL or None: no limit. Returns false with an
 * exception. */
bool wait_begin(struct wait *w, PyObject *timeout);
/* Returns how many ms the next call of the library may wait; -1: without limit. */
int wait_ms(const struct wait *w);
bool wait_is_over(const struct wait *w);
/* Around a call of the library that waits: a signal, or handle_close(), ends it early from here on.
 */
void wait_starts(struct wait *w, const struct handle *h);
/* To be called after it, with what it has returned. Returns 1 to call it again, as it was ended
 * early; 0: its answer counts; -1 with an exception, which a signal may have caused. */
int wait_again(struct wait *w, const struct handle *h, int r);
/* Makes a call that waits without the GIL, and again where it was ended early; @r is its answer,
 * and
 * @again as wait_again() says. Nobody closes @h between the look and the call, as closing wakes. */
#define WAITING(w, h, again, r, call)           \
	do {                                    \
		wait_starts(w, h);              \
		if ((h)->closed)                \
			(r) = SHARE_EINTR;      \
		else                            \
			UNLOCKED((r) = (call)); \
		(again) = wait_again(w, h, r);  \
	} while ((again) > 0)
/* Sleeps without the GIL, for something that nothing signals. */
void wait_a_moment(int ms);

/* ------------------------------------------------------------------------------------------- */
/* args.c                                                                                      */

/* Puts the arguments of a METH_FASTCALL | METH_KEYWORDS function into @out, in the order of @names
 * (borrowed; NULL: not given). @names ends with NULL. The first @required arguments must be given,
 * and those from @keyword_only on must be named. Returns false with an exception. */
struct signature {
	const char *function;
	const char *names[12];
	int required, keyword_only;
	PyObject *interned[12];
};
bool args_spread(struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
		 PyObject **out);
/* The UTF-8 of a name, which @o keeps. Returns NULL with an exception if it is no text, or has a
 * NUL. */
const char *arg_text(PyObject *o);
/* Read a whole number. Return false with an exception if it is none or does not fit. If @o is NULL,
 * @out is left as it is. */
bool arg_uint64(PyObject *o, uint64_t *out);
bool arg_int64(PyObject *o, int64_t *out);
/* Reads 'r' or 'rw' as enum share_access. Returns false with an exception. */
bool mode_from(PyObject *o, uint32_t *out);
/* Returns false with an exception if it has another size. */
bool token_from(const char *bytes, Py_ssize_t n, share_token *out);

/* ------------------------------------------------------------------------------------------- */
/* stream.c, host_stream.c                                                                     */

struct stream {
	void *p;
	/* What has to live as long as the stream is in use, borrowed; or NULL. */
	PyObject *owner;
};

/* Finds the stream that @given is. If it is NULL (not given), this is @home; but for memory of a
 * GPU it is the stream on which a framework works in this thread, if there is one. Returns false
 * with an exception. */
bool stream_from(PyObject *given, bool on_gpu, int ordinal, struct stream home, struct stream *out);
/* Returns what has to live as long as the stream @p of the GPU @ordinal, borrowed. @p is a number
 * that a framework gave. Returns NULL if @p is not the framework's current stream, or has no
 * owner. */
PyObject *stream_owner(void *p, int ordinal);
/* Drops the reference to an owner (NULL does nothing), without the GIL and in any thread: the
 * interpreter drops it later. If there is no interpreter any more, the owner is leaked. */
void stream_drop(void *owner);
/* Returns the stream of a HostStream, or NULL with an exception. */
void *host_stream_of(PyObject *o);

/* fence.c: functions of the module. */
PyObject *fence_record(PyObject *module, PyObject *args);
PyObject *fence_wait(PyObject *module, PyObject *args);
PyObject *fence_synchronize(PyObject *module, PyObject *args);
PyObject *fence_query(PyObject *module, PyObject *args);

/* ------------------------------------------------------------------------------------------- */
/* client.c, pool.c                                                                            */

struct client {
	OBJECT_HEAD;         /* without a client of its own */
	struct client *next; /* the list of all clients */
};

/* Returns a new reference to the open client with that handle, or NULL without an exception. */
struct client *client_with(share_client *p);

/* find.c: functions of the module. find_at() returns the Array that lies at (address, dtype, shape,
 * strides), with the strides in elements, or None for C order. find_of() returns the Array that a
 * tensor lies in, or NotImplemented if the type of the tensor has no C function that says where it
 * lies. Both return None if the memory does not belong to an open client. */
PyObject *find_at(PyObject *module, PyObject *args);
PyObject *find_of(PyObject *module, PyObject *thing);

struct pool {
	OBJECT_HEAD;
	bool on_gpu; /* false of one of kind adopted, whose buffers are where they were */
	bool adopts;
};

/* adopt.c, a method of pools: (object, dtype, layout, stream) to an Array. The object is kept.
 * @layout is None for one with the buffer protocol, else (address, shape, strides in elements or
 * None, whether it is on a GPU). */
PyObject *pool_adopt(PyObject *self, PyObject *args);

/* ------------------------------------------------------------------------------------------- */
/* watch.c                                                                                     */

/* Calls share_dispatch(); only one thread at a time does. */
int dispatch_in_order(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* dtype.c                                                                                     */

/* Reads a dtype of any framework. Returns false with an exception. */
bool dtype_from(PyObject *o, uint32_t *out);
const char *dtype_format(uint32_t dtype); /* in the buffer protocol; NULL: it has none */
/* Returns the dtype of a buffer that was got with its format, or 0 if the library has no such
 * dtype. Sets @swapped if the elements are in the other byte order. */
uint32_t dtype_of_buffer(const Py_buffer *b, bool *swapped);
/* A function of the module: returns the name of an object's dtype by the buffer protocol, or
 * None. */
PyObject *dtype_name_of_buffer(PyObject *module, PyObject *o);
static inline uint32_t dtype_size(uint32_t dtype)
{
	return (dtype & 0xff) / 8;
}

/* ------------------------------------------------------------------------------------------- */
/* array.c and its friends                                                                     */

/* Gives up a reference behind the work on @stream, in any thread, without the GIL. If the stream
 * takes no signal now, a later release does it. Returns @owner, the owner of the stream or NULL, if
 * the caller may drop it, and NULL if it is still needed. In release.c. */
void *release_behind(share_buffer *b, void *stream, void *owner);
/* The same with the GIL, if it takes no time. Returns false if the caller has to use
 * release_behind(). */
bool release_at_once(share_buffer *b);

struct recorded {
	struct recorded *next;
	void *stream;
	PyObject *owner;
};

struct array {
	PyObject_HEAD PyObject *weak;
	struct client *client;
	/* A reference of its own, but for the Array of a message; NULL: it was given up. */
	share_buffer *b;
	char *data;      /* address of the first element */
	void *stream;    /* the stream on which its work is ordered */
	PyObject *owner; /* of the stream, or NULL */
	struct recorded *recorded;
	struct source *source; /* of adopted memory; see source_join() */
	unsigned users, generation;
	int16_t ordinal;
	bool on_gpu, readonly, readonly_ok, closed;
	bool borrowed; /* it is of a message, which has the only reference to it */
	share_tensor t;
};

/* Makes a view of @b, and takes over the caller's reference to @b, also when it fails (NULL with an
 * exception). The offset in @t is counted from the start of the buffer. */
struct array *array_make(struct client *client, share_buffer *b, const share_tensor *t,
			 struct stream stream, bool on_gpu);
/* The same, but if it fails, the caller keeps its reference. */
struct array *array_new(struct client *client, share_buffer *b, const share_tensor *t,
			struct stream stream, bool on_gpu);
/* Makes an Array of @b as its sender described it, or as bytes if it did not. Takes over the
 * reference, as array_make() does. */
struct array *array_found(struct client *client, share_buffer *b, struct stream stream,
			  bool on_gpu);
/* Makes a view of an array's memory. The offset in @t is counted in bytes from the array's first
 * element. */
struct array *array_derive(struct array *of, const share_tensor *t);
/* For arrays what handle_enter() and handle_leave() are for handles. */
share_buffer *array_enter(struct array *a);
bool array_leave(struct array *a, int r);
bool array_is_usable(struct array *a); /* sets the exception if not */
/* Notes that the array's reference was given away. */
void array_given(struct array *a);
/* adopt.c: where adopted memory comes from. It is found by its address as long as Arrays that know
 * it have a reference to the buffer; it must have no reference of its own, which would keep the
 * buffer. An Array joins while it has its reference, and leaves before it gives that up; with the
 * GIL. NULL is fine. */
void source_join(struct array *a, struct source *s);
struct source *source_leave(struct array *a);
struct stream array_home(const struct array *a);
bool array_is_contiguous(const struct array *a);
int64_t array_items(const struct array *a);
int64_t array_bytes(const struct array *a);
/* Copies the description into @t, which is initialised; the offset is counted from the start of the
 * buffer. */
void array_tensor(const struct array *a, share_tensor *t);
int array_ordinal(struct array *a);
/* Makes work on @stream wait for the work on the array so far. Returns false with an exception.
 * array_order() does nothing for host memory, which has HostStreams. */
bool array_order(struct array *a, void *stream);
bool array_order_any(struct array *a, void *stream);
bool array_check(PyObject *o); /* sets TypeError if it is no Array */
/* Reads a shape from a tuple, a list or one number. Returns the number of dimensions, or -1 with an
 * exception. */
int shape_from(PyObject *o, int64_t *out);
PyObject *tuple_of(const int64_t *values, uint32_t n, int64_t factor);

extern PyMethodDef array_view_methods[], array_share_methods[], array_copy_methods[];
PyObject *array_subscript(PyObject *self, PyObject *key);
int array_get_buffer(PyObject *self, Py_buffer *out, int flags);
void array_release_buffer(PyObject *self, Py_buffer *b);
PyObject *array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *array_dlpack_device(PyObject *self, PyObject *ignored);
PyObject *array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *array_lend(PyObject *self, PyObject *ignored);
PyObject *array_cuda_interface(PyObject *self, void *ignored);
bool exchange_make(void); /* fills core.exchange */

/* ------------------------------------------------------------------------------------------- */
/* message.c, channel.c, service.c                                                              */

/* A member of a channel or a service. Its messages refer to it. */
struct member {
	OBJECT_HEAD; /* its handle: a share_channel or a share_service */
	bool on_gpu, adopts, readonly_ok;
	uint32_t buffers; /* of a channel: how many a message may have, as far as was said here */
};

struct message {
	PyObject_HEAD PyObject *weak;
	struct member *of;
	/* Made on first use, and borrowed as long as the message has the only reference to it. */
	struct array *array;
	struct array **rest; /* the same of those behind it; NULL: not made yet */
	uint32_t n_rest;
	void *stream;
	PyObject *owner;
	unsigned users, generation;
	/* How many bytes of the data describe the array; -1: not looked at yet. */
	int header;
	int n_kept; /* how much of the data is in `kept`: all, or -1: the library has it */
	bool is_request, done, rejected;
	unsigned char *kept; /* once the message was given up; `small`, or an allocation */
	share_message m;
	unsigned char small[SHARE_MESSAGE_DATA_MAX];
};

/* Makes an empty message, which the library fills. @stream's owner is borrowed. */
struct message *message_new(struct member *of, struct stream stream, bool is_request);
/* Frees a message that the library has not filled. */
void message_discard(struct message *m);
/* Returns the message for the result @r of a call that may have filled it. After an error, whose
 * exception may be set already, it returns NULL; the exception has the message as an attribute if
 * the call has filled it. */
PyObject *message_or_raise(struct message *m, int r);
/* Acknowledges the message. Returns 0, or -1 with an exception. */
int message_ack(struct message *m, PyObject *stream);

/* What is sent: an Array, several or none, and data. */
struct outgoing {
	share_buffer *b;
	struct array *array; /* entered until outgoing_end() */
	/* Several, which are entered as well: `b` and `array` are the first then. */
	share_buffer **buffers;
	struct array **arrays;
	uint32_t n;
	size_t size, room;
	unsigned char *data; /* `small`, or an allocation */
	unsigned char small[SHARE_TENSOR_ENCODED_MAX + SHARE_MESSAGE_DATA_MAX];
};
/* Prepares what is sent; @array, @meta and @data may be NULL. @most: how many Arrays may go, as a
 * list or a dict; 1: only one, by itself. Returns false with an exception. If it returns true, the
 * caller has to call outgoing_end(), and @o stays where it is until then. */
bool outgoing_begin(struct outgoing *o, uint32_t most, PyObject *array, PyObject *meta,
		    PyObject *data);
bool outgoing_end(struct outgoing *o, int r); /* as handle_leave() */
/* The stream on which the work on the Array is ordered, of several one of theirs, which
 * outgoing_order() makes wait for the work on the others. That returns false with an exception. */
struct stream outgoing_home(const struct outgoing *o);
bool outgoing_order(const struct outgoing *o, void *stream);
/* As the library has it; @o stays. */
share_outgoing outgoing_raw(const struct outgoing *o);

/* several.c. What the data of a message of several Arrays begin with: how many, and of each its
 * description and, if they were sent as a dict, its name. */
#define SEVERAL_HEAD 8u
struct several {
	const unsigned char *at;
	size_t left;
	uint32_t n;
	bool named;
};
void several_head(unsigned char *out, uint32_t n, bool named);
/* False: the data begin with something else. */
bool several_begin(struct several *s, const unsigned char *data, size_t size);
/* The next of them. False: there is nonsense. */
bool several_next(struct several *s, const char **name, size_t *size, share_tensor *t);

/* member.c. A member is opened between these two, without the GIL. Returns the client, with the
 * name of the pool in @info, or NULL with an exception. */
share_client *member_begin(struct pool *pool, share_pool_info *info);
/* @r: what opening it has returned; @p: what it has opened, if that is 0. */
struct member *member_made(PyTypeObject *type, struct pool *pool, int r, const char *what, void *p,
			   void (*give_up)(void *));
extern PyGetSetDef member_getters[];
/* Receives a message. */
enum received { MESSAGE, REQUEST, TAKEN_BACK };
PyObject *member_receive(struct member *self, enum received what, PyObject *timeout,
			 PyObject *given);
/* What a consumer or a worker receives, and its method recv(). */
enum received member_receives(PyObject *o);
PyObject *member_recv(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* channel.c: iterators over a consumer or a worker. */
PyObject *member_iterate(PyObject *o);
PyObject *member_messages(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names);
extern const char member_messages_doc[];
/* If @m is NULL with the exception of SHARE_EAGAIN, clears that and returns None; else returns
 * @m. */
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

bool object_ready(void);
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
