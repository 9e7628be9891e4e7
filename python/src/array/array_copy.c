/* SPDX-License-Identifier: MIT */

/*
 * The buffer protocol, by which NumPy and most of Python read memory that the host reaches; and
 * copies, for that which it cannot reach. Each Py_buffer that was handed out has a reference of its
 * own to the library's buffer, so the memory stays when the Array is given up.
 */

#include <stdlib.h>
#include <string.h>

#include "python/src/array/inside.h"

struct exported {
	struct by_address entry;
	struct client *client;
	Py_ssize_t shape[SHARE_TENSOR_MAX_DIMS], strides[SHARE_TENSOR_MAX_DIMS];
};

/* Returns why the array cannot be exported with these flags, or NULL if it can. */
static const char *what_hinders(const struct array *a, int flags, const char *format)
{
	bool c = array_is_contiguous(a), f = array_is_packed(a, false);

	if (!array_on_host(a))
		return "this is memory of a GPU, which the host cannot touch: from_dlpack() of a "
		       "framework, "
		       "or tobytes()";
	if ((flags & PyBUF_WRITABLE) && a->readonly)
		return "the Array is read-only: look it up with mode='rw'";
	if (!format && flags & PyBUF_FORMAT)
		return "the buffer protocol has no such dtype: from_dlpack() of a framework that "
		       "has, or "
		       "view() as another one";
	if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !c)
		return "the Array is not contiguous";
	if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !c)
		return "the Array is not contiguous";
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !f)
		return "the Array is not contiguous in Fortran's order";
	if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !c && !f)
		return "the Array is not contiguous";
	return NULL;
}

bool array_settle(struct array *a)
{
	/* a framework that is asked for its stream may run code that gives the array up */
	return !a->on_gpu || (array_wait(a, false) && array_is_usable(a));
}

int array_get_buffer(PyObject *self, Py_buffer *out, int flags)
{
	struct array *a = (struct array *)self;
	const char *format = dtype_format(a->t.dtype), *hindrance;
	Py_ssize_t size = dtype_size(a->t.dtype);
	struct exported *e;

	out->obj = NULL;
	if (!array_is_usable(a))
		return -1;
	hindrance = what_hinders(a, flags, format);
	if (hindrance) {
		PyErr_SetString(PyExc_BufferError, hindrance);
		return -1;
	}
	if (!array_settle(a))
		return -1;
	e = malloc(sizeof(*e));
	if (!e) {
		PyErr_NoMemory();
		return -1;
	}
	e->client = a->client;
	e->client->handle.users++;
	e->entry = (struct by_address){.client = a->client->handle.p,
				       .b = share_retain(a->b),
				       .stream = a->stream,
				       .owner = Py_XNewRef(a->owner),
				       .on_gpu = a->on_gpu};
	by_address_add(&e->entry);
	for (uint32_t i = 0; i < a->t.ndim; i++) {
		e->shape[i] = (Py_ssize_t)a->t.shape[i];
		e->strides[i] = (Py_ssize_t)a->t.strides[i] * size;
	}
	*out = (Py_buffer){
	    .buf = a->data,
	    .obj = Py_NewRef(self),
	    .len = (Py_ssize_t)array_bytes(a),
	    .itemsize = size,
	    .readonly = a->readonly,
	    .ndim = flags & PyBUF_ND ? (int)a->t.ndim : 1,
	    .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
	    .shape = flags & PyBUF_ND ? e->shape : NULL,
	    .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->strides : NULL,
	    .internal = e,
	};
	return 0;
}

void array_release_buffer(PyObject *self, Py_buffer *b)
{
	struct array *a = (struct array *)self;
	struct exported *e = b->internal;
	PyObject *owner;

	if (!e)
		return;
	owner = e->entry.owner;
	by_address_remove(&e->entry);
	if (a->generation == process_generation())
		UNLOCKED(owner = release_behind(e->entry.b, e->entry.stream, owner));
	Py_XDECREF(owner);
	handle_leave(&e->client->handle, 0);
	free(e);
}

/* ------------------------------------------------------------------------------------------- */

/* Enters the array, and puts its offset in the buffer and its size into @offset and @size. Returns
 * NULL with an exception if the array is not contiguous. To be called last, after the stream was
 * asked for: that can run code of the program which gives the array up. */
static share_buffer *enter_piece(struct array *a, uint64_t *offset, uint64_t *size)
{
	share_buffer *b;

	if (!array_is_contiguous(a)) {
		PyErr_SetString(PyExc_ValueError,
				"only an Array that is contiguous is copied as a whole");
		return NULL;
	}
	b = array_enter(a);
	if (!b)
		return NULL;
	*offset = a->t.offset;
	*size = (uint64_t)array_bytes(a);
	return b;
}

static PyObject *tobytes(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"tobytes", {"stream", NULL}, 0, 1, {NULL}};
	struct array *a = (struct array *)o;
	uint64_t offset, size;
	struct stream stream;
	PyObject *given[1], *bytes;
	share_buffer *b;
	int r = 0;

	if (!args_spread(&s, args, n, names, given) || !array_stream(a, given[0], &stream))
		return NULL;
	b = enter_piece(a, &offset, &size);
	if (!b)
		return NULL;
	bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	if (bytes && size > 0)
		UNLOCKED(
		    r = share_copy_to_host(b, offset, PyBytes_AsString(bytes), size, stream.p));
	if (!array_leave(a, r))
		Py_CLEAR(bytes);
	return bytes;
}

/* Returns whether the bytes of the source are also right for the array, and sets TypeError if not.
 * Bytes can become any dtype, and any dtype can become bytes. For dtypes that NumPy does not have,
 * an integer of the same size is accepted, since NumPy can have them only as their bits. */
static bool is_of_same_dtype(const struct array *a, PyObject *o, const Py_buffer *source)
{
	const char *wanted = share_dtype_name(a->t.dtype);
	bool swapped = false;
	uint32_t dtype = PyObject_TypeCheck(o, core.array) ? ((struct array *)o)->t.dtype
							   : dtype_of_buffer(source, &swapped);

	if (dtype == SHARE_UINT8 || (dtype == a->t.dtype && !swapped) ||
	    (a->t.dtype == SHARE_UINT8 && source->len == (Py_ssize_t)array_bytes(a)))
		return true;
	if (dtype == 0) {
		PyErr_Format(PyExc_TypeError,
			     "there is no dtype for the source's format '%s': copy its bytes "
			     "(x.view(\"uint8\")) into an Array of uint8",
			     source->format ? source->format : "B");
		return false;
	}
	if (swapped) {
		PyErr_Format(PyExc_TypeError,
			     "the source is of the other byte order: convert it first "
			     "(x.astype(\"%s\"))",
			     wanted);
		return false;
	}
	if (!dtype_format(a->t.dtype) && dtype_size(a->t.dtype) == dtype_size(dtype) &&
	    (dtype == SHARE_UINT16 || dtype == SHARE_UINT32 || dtype == SHARE_UINT64))
		return true;
	PyErr_Format(
	    PyExc_TypeError,
	    "the source is of %s, not %s: convert it first (x.astype(\"%s\")), or view() it",
	    share_dtype_name(dtype), wanted, wanted);
	return false;
}

/* Returns whether the bytes of the source are all that it is, and sets ValueError if not. Among
 * what has the buffer protocol, NumPy's masked arrays have a mask besides, which bytes do not show.
 */
static bool is_all_bytes(PyObject *source)
{
	if (PyBytes_Check(source) || !PyObject_HasAttrString(source, "mask") ||
	    !PyObject_HasAttrString(source, "filled"))
		return true;
	PyErr_SetString(
	    PyExc_ValueError,
	    "the source is a masked array, whose mask would be lost: copy its filled(), or "
	    "its data and its mask");
	return false;
}

/* Returns whether the source has the array's shape, and sets ValueError if not. A row of bytes has
 * no shape of its own, so it is taken as it is. */
static bool is_of_same_shape(const struct array *a, const Py_buffer *source)
{
	bool same = source->ndim == (int)a->t.ndim && (source->ndim == 0 || source->shape);

	if ((source->ndim <= 1 && source->itemsize == 1) ||
	    (a->t.ndim == 1 && dtype_size(a->t.dtype) == 1))
		return true;
	for (int i = 0; same && i < source->ndim; i++)
		same = source->shape[i] == a->t.shape[i];
	if (!same)
		PyErr_SetString(PyExc_ValueError, "the source has another shape: reshape() it");
	return same;
}

static PyObject *copy_from(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"copy_from", {"source", "stream", NULL}, 1, 2, {NULL}};
	struct array *a = (struct array *)o;
	uint64_t offset, size;
	struct stream stream;
	PyObject *given[2];
	Py_buffer source;
	void *copy = NULL;
	share_buffer *b;
	int r = 0;

	if (!args_spread(&s, args, n, names, given) || !array_stream(a, given[1], &stream))
		return NULL;
	if (!is_all_bytes(given[0]))
		return NULL;
	/* An Array is asked without a format: it knows its dtype, and the buffer protocol may have
	 * no name for it. */
	if (PyObject_GetBuffer(given[0], &source,
			       PyObject_TypeCheck(given[0], core.array) ? PyBUF_STRIDED_RO
									: PyBUF_FULL_RO) < 0)
		return NULL;
	b = enter_piece(a, &offset, &size);
	if (!b) {
		PyBuffer_Release(&source);
		return NULL;
	}
	if (!is_of_same_dtype(a, given[0], &source)) {
		(void)0;
	} else if ((uint64_t)source.len != size) {
		PyErr_Format(PyExc_ValueError, "%zd bytes do not fill an Array of %llu", source.len,
			     (unsigned long long)size);
	} else if (!is_of_same_shape(a, &source)) {
		(void)0;
	} else if (a->readonly) {
		PyErr_SetString(PyExc_ValueError, "the Array is read-only");
	} else if (!PyBuffer_IsContiguous(&source, 'C')) {
		copy = malloc(size ? size : 1);
		if (!copy)
			PyErr_NoMemory();
		else if (PyBuffer_ToContiguous(copy, &source, source.len, 'C') < 0)
			(void)0;
	}
	if (!PyErr_Occurred() && size > 0)
		UNLOCKED(
		    r = share_copy_from_host(b, offset, copy ? copy : source.buf, size, stream.p));
	array_leave(a, r);
	free(copy);
	PyBuffer_Release(&source);
	return none_if(!PyErr_Occurred());
}

static PyObject *fill_zero(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	static struct signature s = {"fill_zero", {"stream", NULL}, 0, 1, {NULL}};
	static const char zeros[1 << 20];
	struct array *a = (struct array *)o;
	uint64_t offset, size;
	struct stream stream;
	PyObject *given[1];
	PyThreadState *state;
	share_buffer *b;
	int r = 0;

	if (!args_spread(&s, args, n, names, given) || !array_stream(a, given[0], &stream))
		return NULL;
	b = enter_piece(a, &offset, &size);
	if (!b)
		return NULL;
	state = PyEval_SaveThread();
	for (uint64_t done = 0; r == 0 && done < size; done += sizeof(zeros))
		r = share_copy_from_host(b, offset + done, zeros,
					 size - done < sizeof(zeros) ? size - done : sizeof(zeros),
					 stream.p);
	PyEval_RestoreThread(state);
	return none_if(array_leave(a, r));
}

PyMethodDef array_copy_methods[] = {
    {"tobytes", METHOD(tobytes), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_TOBYTES},
    {"copy_from", METHOD(copy_from), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_COPY_FROM},
    {"fill_zero", METHOD(fill_zero), METH_FASTCALL | METH_KEYWORDS, DOC_ARRAY_FILL_ZERO},
    {NULL, NULL, 0, NULL},
};
