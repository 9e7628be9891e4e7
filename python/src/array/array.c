/* SPDX-License-Identifier: MIT */

/*
 * Arrays: a buffer, and a description of how to read its bytes. Each Array has a reference of its
 * own to its buffer. So has each view of it, and each object that it was exported to. So giving up
 * one of them never takes the memory from another, and each gives up its reference behind the
 * stream on which it was used.
 *
 * The Array of a message is an exception, because a reference would turn the message from a loan
 * into a lease. It has no reference as long as only its message knows it.
 */

#include <stdlib.h>
#include <string.h>

#include "python/src/array/inside.h"

/* Copies only as many dimensions as there are. */
static void copy_tensor(share_tensor *to, const share_tensor *from)
{
	size_t n = from->ndim * sizeof(from->shape[0]);

	memcpy(to, from, offsetof(share_tensor, shape));
	memcpy(to->shape, from->shape, n);
	memcpy(to->strides, from->strides, n);
}

struct array *array_new(struct client *client, share_buffer *b, const share_tensor *t,
			struct stream stream, bool on_gpu)
{
	struct array *a = PyObject_Malloc(sizeof(*a));

	if (!a) {
		PyErr_NoMemory();
		return NULL;
	}
	memset(a, 0, offsetof(struct array, t));
	PyObject_Init((PyObject *)a, core.array);
	a->client = (struct client *)Py_NewRef((PyObject *)client);
	client->handle.users++;
	a->b = b;
	/* An Array without elements may begin where its buffer ends. Its address is in the buffer
	 * all the same, so that the buffer is found by it, and not the one that comes next. */
	a->data = (char *)share_ptr(b) + (t->offset < share_size(b) ? t->offset : 0);
	a->stream = stream.p;
	a->owner = Py_XNewRef(stream.owner);
	a->generation = process_generation();
	a->ordinal = -1;
	a->on_gpu = on_gpu;
	a->readonly = share_mode(b) != SHARE_RDWR;
	copy_tensor(&a->t, t);
	return a;
}

struct array *array_make(struct client *client, share_buffer *b, const share_tensor *t,
			 struct stream stream, bool on_gpu)
{
	struct array *a = array_new(client, b, t, stream, on_gpu);

	if (!a)
		UNLOCKED(release_behind(b, stream.p, NULL));
	return a;
}

struct array *array_found(struct client *client, share_buffer *b, struct stream stream, bool on_gpu)
{
	share_tensor t = SHARE_TENSOR_INIT;

	if (share_tensor_get(b, &t) != 0) {
		int64_t size = (int64_t)share_size(b);

		share_tensor_init(&t, SHARE_UINT8, 1, &size);
	}
	return array_make(client, b, &t, stream, on_gpu);
}

static bool add_recorded(struct array *a, void *stream, PyObject *owner)
{
	struct recorded *r = malloc(sizeof(*r));

	if (!r)
		return false;
	*r = (struct recorded){a->recorded, stream, Py_XNewRef(owner)};
	a->recorded = r;
	return true;
}

/* Its work so far is a view's as well, which is waited for and given up as it is. */
static bool record_all_of(struct array *a, const struct array *of)
{
	for (const struct recorded *r = of->recorded; r; r = r->next)
		if (!add_recorded(a, r->stream, r->owner))
			return false;
	return true;
}

void source_join(struct array *a, struct source *s)
{
	a->source = s;
	if (s && s->arrays++ == 0)
		by_address_set(&s->entry, a->b);
}

struct source *source_leave(struct array *a)
{
	struct source *s = a->source;

	a->source = NULL;
	if (s && --s->arrays == 0)
		by_address_set(&s->entry, NULL);
	return s;
}

struct array *array_derive(struct array *of, const share_tensor *t)
{
	share_buffer *b = array_enter(of);
	share_tensor whole = SHARE_TENSOR_INIT;
	struct array *a;

	if (!b)
		return NULL;
	copy_tensor(&whole, t);
	whole.offset = of->t.offset + t->offset;
	a = array_make(of->client, share_retain(b), &whole, array_home(of), of->on_gpu);
	if (a && !record_all_of(a, of)) {
		Py_DECREF((PyObject *)a);
		a = NULL;
		PyErr_NoMemory();
	}
	array_leave(of, 0);
	if (a) {
		source_join(a, of->source);
		a->ordinal = of->ordinal;
		a->readonly = of->readonly;
		a->readonly_ok = of->readonly_ok;
	}
	return a;
}

/* ------------------------------------------------------------------------------------------- */
/* The end                                                                                     */

static void forget_recorded(struct array *a)
{
	struct recorded *next;

	for (struct recorded *r = a->recorded; r; r = next) {
		next = r->next;
		Py_XDECREF(r->owner);
		free(r);
	}
	a->recorded = NULL;
}

static void end_array(struct array *a)
{
	share_buffer *b = a->b;

	source_leave(a);
	a->b = NULL;
	if (b && !a->borrowed && a->generation == process_generation() &&
	    (a->on_gpu || a->stream || a->recorded || !release_at_once(b))) {
		PyThreadState *state = PyEval_SaveThread();

		for (struct recorded *r = a->recorded; r; r = r->next)
			r->owner = release_behind(share_retain(b), r->stream, r->owner);
		a->owner = release_behind(b, a->stream, a->owner);
		PyEval_RestoreThread(state);
	}
	if (b)
		handle_leave(&a->client->handle, 0);
	forget_recorded(a);
	Py_CLEAR(a->owner);
}

static void dealloc(PyObject *o)
{
	struct array *a = (struct array *)o;
	PyTypeObject *type = Py_TYPE(o);

	if (a->weak)
		PyObject_ClearWeakRefs(o);
	end_array(a);
	Py_DECREF(a->client);
	PyObject_Free(o);
	Py_DECREF(type);
}

bool array_is_usable(struct array *a)
{
	struct handle h = {
	    .p = a->b, .what = "array", .generation = a->generation, .closed = a->closed};

	if (a->b && !a->closed && a->generation == process_generation())
		return true;
	handle_refuse(&h);
	return false;
}

share_buffer *array_enter(struct array *a)
{
	if (!array_is_usable(a))
		return NULL;
	a->users++;
	return a->b;
}

bool array_leave(struct array *a, int r)
{
	bool good = no_error(r);

	if (--a->users == 0 && a->closed)
		end_array(a);
	return good;
}

void array_given(struct array *a)
{
	a->borrowed = true;
	a->closed = true;
}

/* Returns whether the Array can be given up behind the stream, and sets the exception if not: of
 * host memory only the streams of its own client order anything. */
static bool check_stream(struct array *a, struct stream s)
{
	share_fence fence;

	if (!s.p || (a->on_gpu && !(s.owner && PyObject_TypeCheck(s.owner, core.host_stream))))
		return true;
	return no_error(share_fence_record(a->client->handle.p, -1, s.p, &fence));
}

bool array_record(struct array *a, struct stream stream)
{
	struct recorded *r;

	if (stream.p == a->stream)
		return true;
	for (r = a->recorded; r; r = r->next)
		if (r->stream == stream.p)
			return true;
	if (!check_stream(a, stream))
		return false;
	if (add_recorded(a, stream.p, stream.owner))
		return true;
	PyErr_NoMemory();
	return false;
}

static PyObject *release(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"release", {"stream", NULL}, 0, 1, {NULL}};
	struct array *a = (struct array *)o;
	PyObject *given[1];
	struct stream stream;

	if (!args_spread(&s, args, n, names, given))
		return NULL;
	if (!a->b || a->closed)
		Py_RETURN_NONE;
	/* In a forked child, nothing has to be ordered. */
	if (a->generation == process_generation()) {
		if (!array_stream(a, given[0], &stream))
			return NULL;
		/* That can run code of the program, which may have given the Array up. */
		if (a->b && !a->closed && !array_record(a, stream))
			return NULL;
	}
	a->closed = true;
	if (a->users == 0)
		end_array(a);
	else if (a->generation == process_generation() && a->client->handle.waits)
		share_wake_early(a->client->handle.waits);
	Py_RETURN_NONE;
}

static PyObject *record_stream(PyObject *o, PyObject *given)
{
	struct array *a = (struct array *)o;
	struct stream stream;

	return none_if(array_stream(a, given, &stream) && array_is_usable(a) &&
		       array_record(a, stream));
}

/* ------------------------------------------------------------------------------------------- */
/* Order                                                                                       */

struct stream array_home(const struct array *a)
{
	if (host_stream_is_over(a->owner))
		return (struct stream){NULL, NULL};
	return (struct stream){a->stream, a->owner};
}

bool array_stream(struct array *a, PyObject *given, struct stream *out)
{
	return stream_from(given, a->on_gpu, given ? -1 : array_ordinal(a), array_home(a), out);
}

void array_begin_on(struct array *a, struct stream to)
{
	PyObject *before = a->owner;

	a->stream = to.p;
	a->owner = Py_XNewRef(to.owner);
	Py_XDECREF(before);
}

int place_order(share_client *c, struct place before, struct place after)
{
	share_fence fence;
	int r;

	/* A function on the stream comes after what was enqueued before it. Nothing waits for the
	 * function itself, as that may be about to wait for the work that is ordered here. */
	if ((before.stream == after.stream && before.ordinal == after.ordinal) ||
	    host_stream_is_here(before.stream))
		return 0;
	r = share_fence_record(c, before.ordinal, before.stream, &fence);
	return r != 0 ? r : share_fence_wait(c, &fence, after.ordinal, after.stream);
}

/* What was on a stream that is closed meanwhile is done. */
static int order_behind(struct array *a, struct stream s, struct place after)
{
	share_client *c = a->client->handle.p; /* the array is a user of this handle */
	struct place before = {array_ordinal(a), s.p};
	int r;

	if (host_stream_is_over(s.owner))
		return 0;
	UNLOCKED(r = place_order(c, before, after));
	return r == SHARE_EINVAL && host_stream_is_over(s.owner) ? 0 : r;
}

int array_order_at(struct array *a, struct place after)
{
	int r = order_behind(a, array_home(a), after);

	for (struct recorded *also = a->recorded; r == 0 && also; also = also->next)
		r = order_behind(a, (struct stream){also->stream, also->owner}, after);
	return r;
}

bool array_order(struct array *a, void *stream)
{
	if (!a->on_gpu || (a->stream == stream && !a->recorded))
		return array_is_usable(a);
	return array_order_any(a, stream);
}

bool array_order_any(struct array *a, void *stream)
{
	if (!array_enter(a))
		return false;
	return array_leave(a, array_order_at(a, (struct place){array_ordinal(a), stream}));
}

bool array_move_to_current(struct array *a)
{
	struct stream to;

	if (!a->on_gpu)
		return true;
	if (!array_stream(a, NULL, &to) || !array_order(a, to.p))
		return false;
	array_begin_on(a, to);
	return true;
}

bool array_follow(struct array *a, void *stream)
{
	struct place before = {array_ordinal(a), stream}, after = {before.ordinal, a->stream};
	int r = 0;

	if (!array_enter(a))
		return false;
	UNLOCKED(r = place_order(a->client->handle.p, before, after));
	return array_leave(a, r);
}

/* ------------------------------------------------------------------------------------------- */
/* Attributes                                                                                  */

int64_t array_items(const struct array *a)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < a->t.ndim; i++)
		n *= a->t.shape[i];
	return n;
}

int64_t array_bytes(const struct array *a)
{
	return array_items(a) * dtype_size(a->t.dtype);
}

bool array_is_packed(const struct array *a, bool c_order)
{
	int64_t expected = 1;

	for (uint32_t n = 0; n < a->t.ndim; n++) {
		uint32_t i = c_order ? a->t.ndim - 1 - n : n;

		if (a->t.shape[i] != 1 && a->t.strides[i] != expected)
			return false;
		expected *= a->t.shape[i];
	}
	return true;
}

bool array_is_contiguous(const struct array *a)
{
	return array_items(a) == 0 || array_is_packed(a, true);
}

void array_tensor(const struct array *a, share_tensor *t)
{
	copy_tensor(t, &a->t);
}

int array_ordinal(struct array *a)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	if (a->on_gpu && a->ordinal < 0 && a->b && share_buffer_get_info(a->b, &info) == 0)
		a->ordinal = (int16_t)info.ordinal;
	return a->ordinal;
}

bool array_on_host(const struct array *a)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	return !a->on_gpu || (a->b && share_buffer_get_info(a->b, &info) == 0 &&
			      strcmp(info.kind, "pinned") == 0);
}

bool array_check(PyObject *o)
{
	if (PyObject_TypeCheck(o, core.array))
		return true;
	PyErr_Format(
	    PyExc_TypeError,
	    "an Array is needed, not %R: array_of() is that of a tensor in a pool; pool.array(), "
	    "libshare.torch.to_pool() and libshare.arrow.to_pool() copy into one",
	    Py_TYPE(o));
	return false;
}

static Py_ssize_t length(PyObject *o)
{
	struct array *a = (struct array *)o;

	if (a->t.ndim > 0)
		return (Py_ssize_t)a->t.shape[0];
	PyErr_SetString(PyExc_TypeError, "an array without dimensions has no length");
	return -1;
}

/* ------------------------------------------------------------------------------------------- */

bool array_ready(PyObject *module)
{
	static PyMethodDef methods[64] = {
	    {"release", METHOD(release), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_RELEASE},
	    {"record_stream", record_stream, METH_O, DOC_ARRAY_RECORD_STREAM},
	    {"__dlpack__", METHOD(array_dlpack), METH_FASTCALL | METH_KEYWORDS,
	     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
	     "For from_dlpack() of any framework, whose stream is made to wait for the array."},
	    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, NULL},
	    {"_lend", array_lend, METH_NOARGS, NULL},
	};
	PyMethodDef *const more[] = {array_view_methods, array_share_methods, array_copy_methods,
				     array_to_methods};
	size_t n = 5;

	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		for (PyMethodDef *m = more[i]; m->ml_name; m++)
			methods[n++] = *m;
	core.array = TYPE(module, NULL, "Array", struct array, Py_TPFLAGS_DISALLOW_INSTANTIATION,
			  DOC(DOC_ARRAY), SLOT(Py_tp_dealloc, dealloc),
			  SLOT(Py_mp_subscript, array_subscript), SLOT(Py_mp_length, length),
			  SLOT(Py_bf_getbuffer, array_get_buffer),
			  SLOT(Py_bf_releasebuffer, array_release_buffer), {Py_tp_methods, methods},
			  {Py_tp_members, array_members}, {Py_tp_getset, array_getters});
	return core.array != NULL;
}
