/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/array/array.h"
#include "python/src/base/args.h"
#include "python/src/channel/channel.h"

/* What the files of this room know of each other. */

/* A member of a channel or a service. Its messages refer to it. */
struct member {
	OBJECT_HEAD; /* its handle: a share_channel or a share_service */
	bool on_gpu, adopts, readonly_ok;
	int16_t ordinal;  /* of the GPU on which the last message lay; -1: none yet */
	uint32_t buffers; /* how many a message may have, as far as was said here */
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
	bool current;        /* nobody has named the stream: it is the current one */
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
/* Acknowledges the message. Returns false with an exception. */
bool message_ack(struct message *m, PyObject *stream);
/* Returns false with an exception if the message was given up, or is another process's. */
bool message_is_usable(struct message *m);
PyObject *message_refuse(const struct message *m);
/* Its data, also once it was given up. */
size_t message_bytes(const struct message *m, const unsigned char **out);
/* Reads the description at the start of the data into @t; if there is none that fits, describes all
 * bytes. */
void message_look(struct message *m, share_tensor *t);
extern PyGetSetDef message_getters[];

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
/* As stream_from(), and where that is @home, it comes after the work on each Array. */
bool outgoing_stream(const struct outgoing *o, PyObject *given, bool on_gpu, struct stream home,
		     struct stream *out);
/* Of the GPU on which the first of the Arrays lies that lie on one; -1: none does. */
int outgoing_ordinal(const struct outgoing *o);
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
extern PyMemberDef member_members[];
PyObject *member_fileno(PyObject *o, PyObject *ignored);
/* Receives a message. */
enum received { MESSAGE, REQUEST, TAKEN_BACK };
PyObject *member_receive(struct member *self, enum received what, PyObject *timeout,
			 PyObject *given);
/* What a consumer or a worker receives, and its method recv(). */
enum received member_receives(PyObject *o);
PyObject *member_recv(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* iterate.c: iterators over a consumer or a worker, and their type. */
PyObject *member_iterate(PyObject *o);
PyObject *member_messages(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names);
bool messages_ready(PyObject *module);
