/* SPDX-License-Identifier: MIT */

/*
 * Tensors: arithmetic that must not overflow, and a description that may have been written by
 * anybody who could write to the buffer.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"

TestSuite(tensor, .timeout = 60);

static share_tensor make(uint32_t ndim, const int64_t *shape)
{
	share_tensor t = SHARE_TENSOR_INIT;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, ndim, shape));
	return t;
}

static uint64_t extent(const share_tensor *t)
{
	uint64_t bytes;

	check_ok(share_tensor_extent(t, &bytes));
	return bytes;
}

Test(tensor, is_contiguous_when_made)
{
	static const int64_t shape[] = {2, 3, 4};
	share_tensor t = make(3, shape);

	check_eq(t.dtype, SHARE_FLOAT32);
	check_eq(t.strides[0], 12);
	check_eq(t.strides[1], 4);
	check_eq(t.strides[2], 1);
	check_eq(extent(&t), 2 * 3 * 4 * 4);
	t.offset = 100;
	check_eq(extent(&t), 100 + 96);
}

Test(tensor, may_be_a_scalar_or_have_no_element)
{
	static const int64_t none[] = {4, 0, 1000};
	share_tensor t = make(0, NULL);

	check_eq(extent(&t), 4);
	t = make(3, none);
	check_eq(extent(&t), 0);
}

Test(tensor, may_have_strides_of_any_sign)
{
	static const int64_t shape[] = {4, 3};
	share_tensor t = make(2, shape);
	uint64_t bytes;

	t.strides[0] = 0; /* one row, four times */
	check_eq(extent(&t), 12);
	t.strides[0] = -3;
	t.offset = 9 * 4;
	check_eq(extent(&t), 9 * 4 + 3 * 4);
	t.offset = 9 * 4 - 1;
	check_error(share_tensor_extent(&t, &bytes), SHARE_EINVAL);
}

Test(tensor, that_is_too_large_is_refused)
{
	static const int64_t big[] = {INT64_MAX, 2}, wide[] = {INT64_C(1) << 62, 1},
			     negative[] = {-1}, many[20] = {0};
	share_tensor t, untouched = {.size = sizeof(t), .dtype = 77};

	t = untouched;
	check_error(share_tensor_init(&t, SHARE_INT8, 2, big), SHARE_EINVAL);
	check_error(share_tensor_init(&t, SHARE_INT64, 2, wide), SHARE_EINVAL);
	check_error(share_tensor_init(&t, SHARE_INT8, 1, negative), SHARE_EINVAL);
	check_error(share_tensor_init(&t, SHARE_INT8, 17, many), SHARE_EINVAL);
	check_error(share_tensor_init(&t, SHARE_INT8, UINT32_MAX, many), SHARE_EINVAL);
	check_error(share_tensor_init(&t, 0x0230, 0, NULL), SHARE_EINVAL);
	check_error(share_tensor_init(&t, SHARE_INT8, 1, NULL), SHARE_EINVAL);
	check_error(share_tensor_init(NULL, SHARE_INT8, 0, NULL), SHARE_EINVAL);
	check(memcmp(&t, &untouched, sizeof(t)) == 0);
}

Test(tensor, whose_arithmetic_overflows_is_refused)
{
	static const struct {
		int64_t shape[3], strides[3];
		uint64_t offset;
	} bad[] = {
	    {{2, 1, 1}, {INT64_MIN, 1, 1}, 0},         {{2, 1, 1}, {INT64_MIN, 1, 1}, UINT64_MAX},
	    {{3, 1, 1}, {INT64_MIN, 1, 1}, 0},         {{2, 2, 1}, {INT64_MIN + 1, -1, 1}, 0},
	    {{2, 2, 2}, {INT64_MIN, INT64_MAX, 1}, 0}, {{2, 1, 1}, {INT64_MAX, 1, 1}, 0},
	    {{2, 2, 1}, {INT64_MAX, INT64_MAX, 1}, 0}, {{INT64_MAX, INT64_MAX, 1}, {1, 1, 1}, 0},
	    {{1, 1, 1}, {1, 1, 1}, UINT64_MAX},        {{1, 1, 1}, {1, 1, 1}, INT64_MAX},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		share_tensor t = {
		    .size = sizeof(t), .dtype = SHARE_FLOAT64, .ndim = 3, .offset = bad[i].offset};
		uint64_t bytes = 77;

		memcpy(t.shape, bad[i].shape, sizeof(bad[i].shape));
		memcpy(t.strides, bad[i].strides, sizeof(bad[i].strides));
		check_error(share_tensor_extent(&t, &bytes), SHARE_EINVAL);
		check_eq(bytes, 77);
	}
}

Test(tensor, whose_size_was_not_set_is_refused)
{
	share_tensor t, garbage;
	uint64_t bytes = 77;

	memset(&garbage, 0xa5, sizeof(garbage));
	t = garbage;
	check_error(share_tensor_init(&t, SHARE_INT8, 0, NULL), SHARE_EINVAL);
	check(memcmp(&t, &garbage, sizeof(t)) == 0);
	t.size = sizeof(t);
	check_ok(share_tensor_init(&t, SHARE_INT8, 0, NULL));
	t.size = 0;
	check_error(share_tensor_extent(&t, &bytes), SHARE_EINVAL);
	check_eq(bytes, 77);
}

/* The numbers and names are those of others (DLPack, NumPy, ml_dtypes), so they are written out. */
Test(tensor, types_have_names_and_names_have_types)
{
	static const struct {
		uint32_t dtype, code, bits;
		const char *name;
	} all[] = {
	    {SHARE_INT8, 0, 8, "int8"},
	    {SHARE_INT16, 0, 16, "int16"},
	    {SHARE_INT32, 0, 32, "int32"},
	    {SHARE_INT64, 0, 64, "int64"},
	    {SHARE_UINT8, 1, 8, "uint8"},
	    {SHARE_UINT16, 1, 16, "uint16"},
	    {SHARE_UINT32, 1, 32, "uint32"},
	    {SHARE_UINT64, 1, 64, "uint64"},
	    {SHARE_FLOAT16, 2, 16, "float16"},
	    {SHARE_FLOAT32, 2, 32, "float32"},
	    {SHARE_FLOAT64, 2, 64, "float64"},
	    {SHARE_BFLOAT16, 4, 16, "bfloat16"},
	    {SHARE_COMPLEX32, 5, 32, "complex32"},
	    {SHARE_COMPLEX64, 5, 64, "complex64"},
	    {SHARE_COMPLEX128, 5, 128, "complex128"},
	    {SHARE_BOOL, 6, 8, "bool"},
	    {SHARE_FLOAT8_E3M4, 7, 8, "float8_e3m4"},
	    {SHARE_FLOAT8_E4M3, 8, 8, "float8_e4m3"},
	    {SHARE_FLOAT8_E4M3B11FNUZ, 9, 8, "float8_e4m3b11fnuz"},
	    {SHARE_FLOAT8_E4M3FN, 10, 8, "float8_e4m3fn"},
	    {SHARE_FLOAT8_E4M3FNUZ, 11, 8, "float8_e4m3fnuz"},
	    {SHARE_FLOAT8_E5M2, 12, 8, "float8_e5m2"},
	    {SHARE_FLOAT8_E5M2FNUZ, 13, 8, "float8_e5m2fnuz"},
	    {SHARE_FLOAT8_E8M0FNU, 14, 8, "float8_e8m0fnu"},
	};
	share_tensor t = SHARE_TENSOR_INIT;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		check_eq(all[i].dtype, all[i].code << 8 | all[i].bits);
		check(strcmp(share_dtype_name(all[i].dtype), all[i].name) == 0);
		check_eq(share_dtype_from_name(all[i].name), all[i].dtype);
		check_ok(share_tensor_init(&t, all[i].dtype, 1, (int64_t[]){3}));
		check_eq(extent(&t), 3 * all[i].bits / 8);
	}
	check(share_dtype_name(0) == NULL);
	check(share_dtype_name(0x0f06) == NULL); /* less than a byte */
	check_eq(share_dtype_from_name("float"), 0);
	check_eq(share_dtype_from_name(NULL), 0);
}

/* ------------------------------------------------------------------------------------------- */
/* In bytes                                                                                    */

static const int64_t image[] = {1080, 1920, 3};

/* The format is for programs in other languages, too: what is in it stays where it is. */
Test(tensor, in_bytes_is_as_it_is_written_down)
{
	static const unsigned char contiguous[] = {'S', 'h', 'T', '1', 0x08, 0x01, 3, 0, 0x38, 4, 0,
						   0,   0,   0,   0,   0,    0x80, 7, 0, 0,    0, 0,
						   0,   0,   3,   0,   0,    0,    0, 0, 0,    0},
				   view[] = {'S', 'h', 'T',  '1', 0x20, 0x02, 1,   3,   4,   1,  0,
					     0,   0,   0,    0,   0,    7,    0,   0,   0,   0,  0,
					     0,   0,   0xfe, 255, 255,  255,  255, 255, 255, 255};
	share_tensor t = SHARE_TENSOR_INIT;
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX];

	check_ok(share_tensor_init(&t, SHARE_UINT8, 3, image));
	check_eq(share_tensor_encode(&t, bytes, sizeof(bytes)), sizeof(contiguous));
	check(memcmp(bytes, contiguous, sizeof(contiguous)) == 0);
	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, (int64_t[]){7}));
	t.strides[0] = -2;
	t.offset = 0x104;
	check_eq(share_tensor_encode(&t, bytes, sizeof(bytes)), sizeof(view));
	check(memcmp(bytes, view, sizeof(view)) == 0);
}

static void check_there_and_back(const share_tensor *t)
{
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX + 8];
	share_tensor got = SHARE_TENSOR_INIT, other = SHARE_TENSOR_INIT;
	int size = share_tensor_encode(t, bytes, sizeof(bytes));

	check(size > 0 && size <= SHARE_TENSOR_ENCODED_MAX);
	memset(bytes + size, 0xa5, sizeof(bytes) - (size_t)size);
	check_eq(share_tensor_decode(bytes, sizeof(bytes), &got), size);
	check(memcmp(&got, t, sizeof(got)) == 0);
	for (int i = 0; i < size; i++) {
		check(share_tensor_decode(bytes, (size_t)i, &other) < 0);
		check_error(share_tensor_encode(t, bytes, (size_t)i), SHARE_EINVAL);
	}
}

Test(tensor, in_bytes_is_the_same_tensor)
{
	int64_t shape[SHARE_TENSOR_MAX_DIMS];
	share_tensor t = SHARE_TENSOR_INIT;

	for (uint32_t ndim = 0; ndim <= SHARE_TENSOR_MAX_DIMS; ndim++) {
		for (uint32_t i = 0; i < ndim; i++)
			shape[i] = (int64_t)i % 3 + 1;
		t = (share_tensor)SHARE_TENSOR_INIT;
		check_ok(share_tensor_init(&t, SHARE_FLOAT8_E4M3FN, ndim, shape));
		check_there_and_back(&t);
		t.offset = 4096;
		check_there_and_back(&t);
		for (uint32_t i = 0; i < ndim; i++)
			t.strides[i] = 1 - (int64_t)i;
		check_there_and_back(&t);
	}
	/* a stride means nothing where there is one element, or none; it is kept all the same */
	t = make(2, (int64_t[]){1, 0});
	t.strides[0] = 77;
	check_there_and_back(&t);
}

Test(tensor, in_other_bytes_is_none)
{
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX] = "{\"n\": 7}";
	share_tensor t = SHARE_TENSOR_INIT, untouched = {.size = sizeof(t), .dtype = 77};

	t = untouched;
	check_error(share_tensor_decode(bytes, sizeof(bytes), &t), SHARE_ENOENT);
	check_error(share_tensor_decode(NULL, 0, &t), SHARE_ENOENT);
	check_error(share_tensor_decode(NULL, 8, &t), SHARE_EINVAL);
	check_error(share_tensor_decode(bytes, 0, &t), SHARE_ENOENT);
	memcpy(bytes, "ShT2", 4); /* a later version: not ours to understand */
	check_error(share_tensor_decode(bytes, sizeof(bytes), &t), SHARE_ENOENT);
	check(memcmp(&t, &untouched, sizeof(t)) == 0);
	t.size = 0;
	check_error(share_tensor_decode(bytes, sizeof(bytes), &t), SHARE_EINVAL);
	check_error(share_tensor_encode(&untouched, bytes, sizeof(bytes)), SHARE_EINVAL);
	check_error(share_tensor_encode(NULL, bytes, sizeof(bytes)), SHARE_EINVAL);
	t = make(1, image);
	check_error(share_tensor_encode(&t, NULL, 100), SHARE_EINVAL);
}

/* Whatever was changed on the way: it is refused, or it is a tensor that keeps all the rules. */
Test(tensor, in_damaged_bytes_is_refused_or_sound)
{
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX], damaged[SHARE_TENSOR_ENCODED_MAX];
	share_tensor t = make(3, image), got = SHARE_TENSOR_INIT, untouched;
	uint64_t bound;
	int size, r;

	t.strides[0] = -5760;
	t.offset = (uint64_t)1079 * 5760 * 4;
	size = share_tensor_encode(&t, bytes, sizeof(bytes));
	check(size > 0);
	for (int bit = 0; bit < 8 * size; bit++) {
		memcpy(damaged, bytes, (size_t)size);
		damaged[bit / 8] ^= (unsigned char)(1 << bit % 8);
		untouched = got;
		r = share_tensor_decode(damaged, (size_t)size, &got);
		check(r > 0 || r == SHARE_EINVAL || r == SHARE_ENOENT);
		if (r > 0) {
			check(r <= size);
			check_ok(share_tensor_extent(&got, &bound));
		} else {
			check(memcmp(&got, &untouched, sizeof(got)) == 0);
		}
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Of a buffer                                                                                 */

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
}

static void stop(void)
{
	if (!check_has_failed())
		check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(buffer_tensor, .init = start, .fini = stop, .timeout = 60);

static void reads_the_tensor(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_tensor t;
	share_buffer *b;

	(void)self;
	memset(&t, 0xff, sizeof(t));
	t.size = sizeof(t);
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_tensor_get(b, &t));
	check(memcmp(&t, data, sizeof(t)) == 0);
	check_error(share_tensor_set(b, &t), SHARE_EACCES);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(buffer_tensor, is_read_by_others_as_it_was_set)
{
	static const int64_t shape[] = {4, 3};
	share_tensor t = SHARE_TENSOR_INIT;

	check_ok(share_tensor_init(&t, SHARE_BFLOAT16, 2, shape));
	t.strides[0] = -3;
	t.offset = 18;
	check_ok(share_tensor_set(buffer, &t));
	check_ok(share_publish(buffer, "name", NULL));
	child_finish(child_start(reads_the_tensor, &t));
}

Test(buffer_tensor, leaves_other_keys_alone)
{
	static const int64_t shape[] = {16};
	share_tensor t = make(1, shape), got = SHARE_TENSOR_INIT;
	char *text;

	check_error(share_tensor_get(buffer, &got), SHARE_ENOENT);
	check_ok(share_metadata_set(buffer, "{\"camera\": \"left\"}"));
	check_error(share_tensor_get(buffer, &got), SHARE_ENOENT);
	check_ok(share_tensor_set(buffer, &t));
	check_ok(share_metadata_get(buffer, &text));
	check(strstr(text, "\"camera\"") && strstr(text, "\"tensor\""));
	free(text);
	check_ok(share_tensor_get(buffer, &got));
	check_ok(share_metadata_set(buffer, "[]"));
	check_error(share_tensor_set(buffer, &t), SHARE_EINVAL);
}

Test(buffer_tensor, has_to_fit_into_the_buffer)
{
	static const int64_t fits[] = {1024}, too_large[] = {1025};
	share_tensor t = make(1, too_large);

	check_error(share_tensor_set(buffer, &t), SHARE_EINVAL);
	t = make(1, fits);
	check_ok(share_tensor_set(buffer, &t));
	t.offset = 4;
	check_error(share_tensor_set(buffer, &t), SHARE_EINVAL);
}

Test(buffer_tensor, that_somebody_wrote_by_hand_is_checked)
{
	static const char *const bad[] = {
	    "{}",
	    "1",
	    "[]",
	    "null",
	    "{\"dtype\":\"int8\"}",
	    "{\"dtype\":\"int8\",\"shape\":[],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int9\",\"shape\":[1],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":8,\"shape\":[1],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[1.0],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[\"1\"],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[-1],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[4097],\"strides\":[1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[1],\"strides\":[1],\"offset\":-1}",
	    "{\"dtype\":\"int8\",\"shape\":[1],\"strides\":[1],\"offset\":4096}",
	    "{\"dtype\":\"int8\",\"shape\":[2],\"strides\":[-9223372036854775808],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[2],\"strides\":[9223372036854775807],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
	    "\"strides\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"offset\":0}",
	    "{\"dtype\":\"int8\",\"shape\":{},\"strides\":[],\"offset\":0}",
	};
	share_tensor t = {.size = sizeof(t), .dtype = 77};
	char text[1024];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "{\"tensor\":%s}", bad[i]);
		check_ok(share_metadata_set(buffer, text));
		check_error(share_tensor_get(buffer, &t), SHARE_EINVAL);
		check_eq(t.dtype, 77);
	}
}
