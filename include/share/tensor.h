/* SPDX-License-Identifier: MIT */
#ifndef SHARE_TENSOR_H
#define SHARE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct share_buffer share_buffer;

#define SHARE_TENSOR_MAX_DIMS 16

/*
 * What kind of numbers a buffer holds. The values are DLPack's: code in bits 8-15, bits per lane
 * in bits 0-7 (codes: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 7 to 14 the
 * floats of 8 bits).
 */
enum share_dtype {
	SHARE_INT8 = 0x0008,
	SHARE_INT16 = 0x0010,
	SHARE_INT32 = 0x0020,
	SHARE_INT64 = 0x0040,
	SHARE_UINT8 = 0x0108,
	SHARE_UINT16 = 0x0110,
	SHARE_UINT32 = 0x0120,
	SHARE_UINT64 = 0x0140,
	SHARE_FLOAT16 = 0x0210,
	SHARE_FLOAT32 = 0x0220,
	SHARE_FLOAT64 = 0x0240,
	SHARE_BFLOAT16 = 0x0410,
	SHARE_COMPLEX32 = 0x0520, /* two of float16 */
	SHARE_COMPLEX64 = 0x0540,
	SHARE_COMPLEX128 = 0x0580,
	SHARE_BOOL = 0x0608,
	SHARE_FLOAT8_E3M4 = 0x0708,
	SHARE_FLOAT8_E4M3 = 0x0808,
	SHARE_FLOAT8_E4M3B11FNUZ = 0x0908,
	SHARE_FLOAT8_E4M3FN = 0x0a08,
	SHARE_FLOAT8_E4M3FNUZ = 0x0b08,
	SHARE_FLOAT8_E5M2 = 0x0c08,
	SHARE_FLOAT8_E5M2FNUZ = 0x0d08,
	SHARE_FLOAT8_E8M0FNU = 0x0e08,
};

/** Shape in elements, strides in elements (as in DLPack; NumPy counts them in bytes). */
typedef struct share_tensor {
	size_t size;
	uint32_t dtype;  /* enum share_dtype */
	uint32_t ndim;   /* 0 is a scalar */
	uint64_t offset; /* of the first element from share_ptr(), in bytes */
	int64_t shape[SHARE_TENSOR_MAX_DIMS];
	int64_t strides[SHARE_TENSOR_MAX_DIMS];
} share_tensor;
#define SHARE_TENSOR_INIT                                \
	{                                                \
		sizeof(share_tensor), 0, 0, 0, {0}, {0}, \
	}

/** Fills @out, which was set to SHARE_TENSOR_INIT, with a C-contiguous tensor of @ndim dimensions.
 * SHARE_EINVAL: a negative dimension, too many of them, an unknown dtype, or a size beyond 2^63
 * bytes. */
int share_tensor_init(share_tensor *out, uint32_t dtype, uint32_t ndim, const int64_t *shape);

/** Bytes from the start of the buffer to the end of the last element; SHARE_EINVAL as above, or
 * when an element would lie before the buffer. */
int share_tensor_extent(const share_tensor *t, uint64_t *out);

/** "float32", "float8_e4m3fn" and the like, as NumPy and ml_dtypes have them, and back; NULL and 0
 * for what is unknown. Static storage. */
const char *share_dtype_name(uint32_t dtype);
uint32_t share_dtype_from_name(const char *name);

/*
 * A tensor in bytes, as it goes with a message's data, a name or a token; for programs in other
 * languages, too. All numbers are little-endian:
 *
 *   0   "ShT1": what it is, and which version of it
 *   4   2 bytes: dtype
 *   6   1 byte: ndim
 *   7   1 byte: which parts there are: 1, an offset that is not 0; 2, strides, as the tensor is not
 *       C-contiguous
 *   8   8 bytes: offset, if there is one; then 8 bytes for each dimension: shape; then the same
 *       again for the strides, if there are any
 *
 * So a contiguous image of three dimensions is 32 bytes, and none is larger than this.
 */
#define SHARE_TENSOR_ENCODED_MAX 272

/**
 * Writes @t into @data, where there are @room bytes. Returns how many it took: what follows there
 * is the program's. SHARE_EINVAL: there is no room, or as share_tensor_extent().
 */
int share_tensor_encode(const share_tensor *t, void *data, size_t room);

/**
 * Reads a tensor that the @size bytes of @data begin with into @out, which was set to
 * SHARE_TENSOR_INIT. Returns how many bytes it took. It is one that share_tensor_extent() accepts,
 * but who wrote it may be wrong: see whether that fits into share_size().
 *
 * SHARE_ENOENT: the data begins with something else. SHARE_EINVAL: with what is no proper tensor.
 */
int share_tensor_decode(const void *data, size_t size, share_tensor *out);

/**
 * Describes @b as a tensor: writes the key "tensor" of the buffer's JSON metadata and keeps the
 * other keys. SHARE_EINVAL also when the tensor does not fit into the buffer. Otherwise as
 * share_metadata_set, including that two writers at the same time can lose one's keys.
 */
int share_tensor_set(share_buffer *b, const share_tensor *t);

/**
 * What tensor @b is, into @out, which was set to SHARE_TENSOR_INIT: the one that came with the name
 * or the token by which this handle was got (share_publish_options, share_export_options), without
 * a request; if none did, that of the metadata. It fits into the buffer.
 *
 * SHARE_ENOENT: nothing describes it. SHARE_EINVAL: what does is no proper tensor, or larger than
 * the buffer.
 */
int share_tensor_get(share_buffer *b, share_tensor *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
