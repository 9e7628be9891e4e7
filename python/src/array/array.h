/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/order/order.h"

/* Gives up a reference behind the work on @stream, in any thread, without the GIL. If the stream
 * takes no signal now, a later release does it. Returns @owner, the owner of the stream or NULL, if
 * the caller may drop it, and NULL if it is still needed. In release.c. */
void *release_behind(share_buffer *b, void *stream, void *owner);

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
/* For arrays what handle_enter() and handle_leave() are for handles. */
share_buffer *array_enter(struct array *a);
bool array_leave(struct array *a, int r);
bool array_is_usable(struct array *a); /* sets the exception if not */
/* Notes that the array's reference was given away. */
void array_given(struct array *a);
/* Where adopted memory comes from (adopt.c). It is found by its address as long as Arrays that know
 * it have a reference to the buffer; it must have no reference of its own, which would keep the
 * buffer. An Array joins while it has its reference, and leaves before it gives that up; with the
 * GIL. NULL is fine. */
void source_join(struct array *a, struct source *s);
struct source *source_leave(struct array *a);
struct stream array_home(const struct array *a);
/* Copies the description into @t, which is initialised; the offset is counted from the start of the
 * buffer. */
void array_tensor(const struct array *a, share_tensor *t);
int array_ordinal(struct array *a);
/* Whether the CPU reaches it where it lies: host memory, and memory of a GPU that is of kind
 * pinned. */
bool array_on_host(const struct array *a);
/* Finds the stream that @given is, as stream_from(): if none is given, that of a framework on the
 * array's own GPU, which need not be the current one. */
bool array_stream(struct array *a, PyObject *given, struct stream *out);
/* Its work is ordered on @to from now on, on which there is none so far. */
void array_begin_on(struct array *a, struct stream to);
/* For an array that was had on a stream of whichever GPU is current, since nobody knew which it
 * would be of: its work goes on on the stream of its own. Returns false with an exception. */
bool array_move_to_current(struct array *a);
/* Makes the array's stream wait for what is enqueued on @stream, another framework's. Returns false
 * with an exception. */
bool array_follow(struct array *a, void *stream);
/* Makes work on @stream wait for the work on the array so far. Returns false with an exception.
 * array_order() does nothing for host memory, which has HostStreams. */
bool array_order(struct array *a, void *stream);
bool array_order_any(struct array *a, void *stream);
bool array_check(PyObject *o); /* sets TypeError if it is no Array */
/* Reads a shape from a tuple, a list or one number. Returns the number of dimensions, or -1 with an
 * exception. */
int shape_from(PyObject *o, int64_t *out);
PyObject *tuple_of(const int64_t *values, uint32_t n, int64_t factor);

bool array_ready(PyObject *module);

/* adopt.c, a method of pools: (object, dtype, layout, stream) to an Array. The object is kept.
 * @layout is None for one with the buffer protocol, else (address, shape, strides in elements or
 * None, whether it is on a GPU, the stream behind which its content is or None). */
PyObject *pool_adopt(PyObject *self, PyObject *args);
