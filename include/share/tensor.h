/* SPDX-License-Identifier: MIT */
#ifndef SHARE_TENSOR_H
#define SHARE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A handle on a buffer: memory that several processes may have at a time. share_alloc() makes one.
 */
typedef struct share_buffer share_buffer;

#define SHARE_TENSOR_MAX_DIMS 16

/**
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
	SHARE_COMPLEX32 = 0x0520, /**< 0x0520; two of float16 */
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

/** A tensor: how the numbers in a buffer lie. Set it to SHARE_TENSOR_INIT. */
typedef struct share_tensor {
	size_t size;
	uint32_t dtype;  /**< enum share_dtype */
	uint32_t ndim;   /**< dimensions; 0 is a scalar */
	uint64_t offset; /**< of the first element from share_ptr(), in bytes */
	int64_t shape[SHARE_TENSOR_MAX_DIMS];   /**< of each dimension, in elements */
	int64_t strides[SHARE_TENSOR_MAX_DIMS]; /**< in elements, as DLPack's (not NumPy's) */
} share_tensor;
#define SHARE_TENSOR_INIT                                \
	{                                                \
		sizeof(share_tensor), 0, 0, 0, {0}, {0}, \
	}

/**
 * Fills a tensor: contiguous, in the order of C.
 *
 * @param out    the tensor, which was set to SHARE_TENSOR_INIT
 * @param dtype  enum share_dtype
 * @param ndim   dimensions, up to SHARE_TENSOR_MAX_DIMS
 * @param shape  of each dimension, in elements
 * @retval SHARE_EINVAL  a negative dimension, too many of them, an unknown dtype, or a size beyond
 *                       2^63 bytes
 */
int share_tensor_init(share_tensor *out, uint32_t dtype, uint32_t ndim, const int64_t *shape);

/**
 * How far a tensor reaches, in bytes from the start of the buffer to the end of its last element.
 *
 * @param t    the tensor
 * @param out  the bytes
 * @retval SHARE_EINVAL  as share_tensor_init(); or an element would lie before the buffer
 */
int share_tensor_extent(const share_tensor *t, uint64_t *out);

/**
 * The name of a dtype: "float32", "float8_e4m3fn" and the like, as NumPy and ml_dtypes have them.
 *
 * @param dtype  enum share_dtype
 * @return The name, in static storage; NULL for what is unknown.
 * @see share_dtype_from_name()
 */
const char *share_dtype_name(uint32_t dtype);

/**
 * The dtype of a name.
 *
 * @param name  as share_dtype_name() has it
 * @return enum share_dtype; 0 for what is unknown.
 */
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
 * Writes a tensor as bytes, to go with a message's data.
 *
 * @param t     the tensor
 * @param data  where to; SHARE_TENSOR_ENCODED_MAX bytes are enough for any
 * @param room  bytes that are there
 * @return How many bytes it took (the bytes behind these are the program's own); or a negative
 * error.
 * @retval SHARE_EINVAL  there is no room, or as share_tensor_extent()
 * @see share_tensor_decode()
 */
int share_tensor_encode(const share_tensor *t, void *data, size_t room);

/**
 * Reads a tensor that bytes begin with. The result is a tensor that share_tensor_extent() accepts,
 * but the writer may have been wrong about the buffer: compare its extent with share_size().
 *
 * @param data  the bytes
 * @param size  how many there are
 * @param out   the tensor, which was set to SHARE_TENSOR_INIT
 * @return How many bytes it took, or a negative error.
 * @retval SHARE_ENOENT  the data begins with something else
 * @retval SHARE_EINVAL  it begins with what is no proper tensor
 * @see share_tensor_encode()
 */
int share_tensor_decode(const void *data, size_t size, share_tensor *out);

/**
 * Describes a buffer as a tensor: writes the key "tensor" of its JSON metadata and keeps the other
 * keys. Two writers at the same time can lose one's keys.
 *
 * @param b  the buffer, for writing
 * @param t  the tensor
 * @retval SHARE_EINVAL  as share_tensor_extent(); or the tensor does not fit into the buffer
 * @retval SHARE_EACCES  a read-only handle
 * @retval SHARE_ESTALE  the buffer is on loan, as for share_metadata_set()
 * @retval SHARE_EQUOTA  no more metadata for this user
 * @see share_metadata_set()
 */
int share_tensor_set(share_buffer *b, const share_tensor *t);

/**
 * Tells which tensor a buffer is. It is the one that came with the name or the token by which the
 * program got this handle (share_publish_options, share_export_options), and then this takes no
 * request. If none came, it is the one in the metadata, also for the consumer of a message, until
 * it acknowledges the message. The tensor fits into the buffer.
 *
 * @param b    the buffer
 * @param out  the tensor, which was set to SHARE_TENSOR_INIT
 * @retval SHARE_ENOENT   nothing describes it
 * @retval SHARE_EINVAL   what describes it is no proper tensor, or is larger than the buffer
 * @retval SHARE_ENOTSUP  as share_metadata_get()
 * @retval SHARE_EPROTO   as share_metadata_get()
 */
int share_tensor_get(const share_buffer *b, share_tensor *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
