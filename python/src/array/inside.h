/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/array/array.h"
#include "python/src/array/by_address.h"
#include "python/src/array/dtype.h"
#include "python/src/base/args.h"

/* What the files of this room know of each other. */

/* Of adopted memory: see source_join(). */
struct source {
	struct by_address entry; /* of the buffer while there are Arrays */
	PyObject *object;
	unsigned arrays;
};

/* As release_behind(), with the GIL, if that takes no time. Returns false if the caller has to use
 * that one. */
bool release_at_once(share_buffer *b);

/* Makes a view of an array's memory. The offset in @t is counted in bytes from the array's first
 * element. */
struct array *array_derive(struct array *of, const share_tensor *t);

/* A stream, and the GPU that it is of: each has its own default streams. -1: of host memory. */
struct place {
	int ordinal;
	void *stream;
};
/* What is enqueued at @after from now on comes after what was at @before. Called without the GIL.
 */
int place_order(share_client *c, struct place before, struct place after);
/* The same after all work on the array so far, which is in use. With the GIL. */
int array_order_at(struct array *a, struct place after);
/* Waits for the work on the array so far, and for a framework's current stream. Returns false with
 * an exception. Only with @signals does a handler of a signal, or closing the client, end it early.
 */
bool array_wait(struct array *a, bool signals);

/* The Array, which is usable, is given up behind this stream as well. Returns false with an
 * exception. */
bool array_record(struct array *a, struct stream stream);

/* Whether it has no gaps where the last dimension is the innermost, as in C, or else the first. */
bool array_is_packed(const struct array *a, bool c_order);
/* The same in C's order, or it has no elements. */
bool array_is_contiguous(const struct array *a);
int64_t array_items(const struct array *a);
int64_t array_bytes(const struct array *a);

extern PyMemberDef array_members[];
extern PyGetSetDef array_getters[];
extern PyMethodDef array_view_methods[], array_share_methods[], array_copy_methods[],
    array_to_methods[];
PyObject *array_subscript(PyObject *self, PyObject *key);
/* Before the CPU gets the memory: of a GPU it comes after the work so far. Nothing ends that wait
 * early: NumPy would drop the exception, and so the signal. Returns false with an exception. */
bool array_settle(struct array *a);
int array_get_buffer(PyObject *self, Py_buffer *out, int flags);
void array_release_buffer(PyObject *self, Py_buffer *b);
PyObject *array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *array_dlpack_device(PyObject *self, PyObject *ignored);
PyObject *array_arrow_device(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *array_lend(PyObject *self, PyObject *ignored);
PyObject *array_cuda_interface(PyObject *self, void *ignored);
