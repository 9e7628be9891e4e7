/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/object.h"

/* stream.c, host_stream.c */

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
/* Whether the calling thread is that of the HostStream @p. */
bool host_stream_is_here(const void *p);
/* Whether it is the owner of a HostStream that was closed, after all the work on it. */
bool host_stream_is_over(PyObject *owner);

/* fence.c: functions of the module. */
PyObject *fence_record(PyObject *module, PyObject *args);
PyObject *fence_wait(PyObject *module, PyObject *args);
PyObject *fence_synchronize(PyObject *module, PyObject *args);
PyObject *fence_query(PyObject *module, PyObject *args);

bool host_stream_ready(PyObject *module);
bool fence_ready(PyObject *module);
bool event_ready(PyObject *module);
