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
	SHARE_COMPLEX32 = 0x0520,
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
typedef struct share_tensor {
	size_t size;
	uint32_t dtype;
	uint32_t ndim;
	uint64_t offset;
	int64_t shape[SHARE_TENSOR_MAX_DIMS];
	int64_t strides[SHARE_TENSOR_MAX_DIMS];
} share_tensor;
#define SHARE_TENSOR_INIT                                \
	{                                                \
		sizeof(share_tensor), 0, 0, 0, {0}, {0}, \
	}
int share_tensor_init(share_tensor *out, uint32_t dtype, uint32_t ndim, const int64_t *shape);
int share_tensor_extent(const share_tensor *t, uint64_t *out);
const char *share_dtype_name(uint32_t dtype);
uint32_t share_dtype_from_name(const char *name);
#define SHARE_TENSOR_ENCODED_MAX 272
int share_tensor_encode(const share_tensor *t, void *data, size_t room);
int share_tensor_decode(const void *data, size_t size, share_tensor *out);
int share_tensor_set(share_buffer *b, const share_tensor *t);
int share_tensor_get(const share_buffer *b, share_tensor *out);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
