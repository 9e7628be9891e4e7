/* SPDX-License-Identifier: MIT */

/*
 * Copies from Array to Array: what Array.to() and Pool.array() need beyond a new Array. From GPU to
 * GPU the host waits for nothing, so the two have to be ordered on the streams of both.
 */

#include "python/src/array/inside.h"

/* Waits for what is enqueued on the stream. */
static int wait_for(struct array *a, struct stream s, bool signals)
{
	share_client *c = a->client->handle.p; /* the array is a user of this handle */
	int r, again, ordinal = array_ordinal(a);
	share_fence fence;
	struct wait w;

	/* The thread that calls has no work left, nor has a stream that was closed. Who calls from
	 * a function on the stream comes after what was enqueued before that. */
	if ((!s.p && !a->on_gpu) || host_stream_is_here(s.p) || host_stream_is_over(s.owner))
		return 0;
	UNLOCKED(r = share_fence_record(c, ordinal, s.p, &fence));
	if (r == SHARE_EINVAL && !a->on_gpu) /* the stream was closed just now */
		return 0;
	if (r == 0 && !signals)
		UNLOCKED(r = share_fence_synchronize(c, &fence, -1));
	else if (r == 0 && wait_begin(&w, NULL))
		WAITING(&w, &a->client->handle, again, r,
			share_fence_synchronize(c, &fence, wait_ms(&w)));
	return r;
}

bool array_wait(struct array *a, bool signals)
{
	struct stream now;
	int r;

	if (!array_stream(a, NULL, &now) || !array_enter(a))
		return false;
	r = wait_for(a, (struct stream){a->stream, a->owner}, signals);
	for (struct recorded *also = a->recorded; r == 0 && also; also = also->next)
		r = wait_for(a, (struct stream){also->stream, also->owner}, signals);
	if (r == 0 && now.p != a->stream)
		r = wait_for(a, now, signals);
	return array_leave(a, r);
}

static PyObject *wait_for_all(PyObject *o, PyObject *Py_UNUSED(ignored))
{
	return none_if(array_wait((struct array *)o, true));
}

/* _use_on(stream): work that is enqueued there from now on comes after that on the Array so far. */
static PyObject *use_on(PyObject *o, PyObject *given)
{
	struct array *a = (struct array *)o;
	struct stream stream;

	if (!array_stream(a, given, &stream) || !array_is_usable(a))
		return NULL;
	if (!a->on_gpu && !stream.p)
		return wait_for_all(o, NULL);
	return none_if(array_record(a, stream) && array_order_any(a, stream.p));
}

/* Between GPUs. Work that is enqueued later where @from is used may overwrite or give up what the
 * copy reads, so it comes after it: on the stream @now of whoever calls, and on the Array's own. */
static int copy_across(struct array *from, struct array *to, void *now)
{
	share_client *c = from->client->handle.p;
	struct place at = {array_ordinal(to), to->stream}, here = {array_ordinal(from), now},
		     home = {here.ordinal, array_home(from).p};
	uint64_t size = (uint64_t)array_bytes(from);
	int r = array_order_at(from, at);

	if (r != 0)
		return r;
	UNLOCKED(r = place_order(c, here, at);
		 if (r == 0) r = share_copy(to->b, 0, from->b, from->t.offset, size, at.stream);
		 if (r == 0) r = place_order(c, at, here);
		 if (r == 0 && home.stream != now) r = place_order(c, at, home));
	return r;
}

static int copy_to_host(struct array *from, struct array *to, void *stream)
{
	uint64_t size = (uint64_t)array_bytes(from);
	int r = array_order_at(from, (struct place){array_ordinal(from), stream});

	if (r == 0)
		UNLOCKED(r = share_copy(to->b, 0, from->b, from->t.offset, size, stream));
	return r;
}

/* _copy_to(to, stream=...): of memory of a GPU, into a new Array of as many bytes that nobody else
 * knows. The copy is made on that one's stream, or if it is of host memory on @stream. */
static PyObject *copy_to(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"_copy_to", {"to", "stream", NULL}, 1, 2, {NULL}};
	struct array *from = (struct array *)o, *to;
	struct stream stream;
	PyObject *given[2];
	int r;

	if (!args_spread(&s, args, n, names, given) || !array_check(given[0]) ||
	    !array_stream(from, given[1], &stream))
		return NULL;
	to = (struct array *)given[0];
	if (!array_enter(from))
		return NULL;
	if (!array_enter(to)) {
		array_leave(from, 0);
		return NULL;
	}
	r = to->on_gpu ? copy_across(from, to, stream.p) : copy_to_host(from, to, stream.p);
	array_leave(to, 0);
	return none_if(array_leave(from, r));
}

PyMethodDef array_to_methods[] = {
    {"_wait", wait_for_all, METH_NOARGS, NULL},
    {"_use_on", use_on, METH_O, NULL},
    {"_copy_to", METHOD(copy_to), METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};
