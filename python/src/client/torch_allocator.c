/* SPDX-License-Identifier: MIT */

/*
 * The two functions that torch.cuda.memory.CUDAPluggableAllocator() looks up in this library. With
 * them, torch allocates its tensors from a pool, so that they can be shared without a copy. There
 * is one pool for each device, because torch passes no argument of ours to these functions.
 *
 * torch calls them in any thread, with or without the GIL, so they must not use Python. Memory that
 * torch allocates counts as lent, and is found again by its address.
 */

#include <pthread.h>
#include <stdlib.h>

#include "python/src/array/by_address.h"
#include "python/src/client/inside.h"

#define DEVICES 64

struct block {
	struct by_address entry;
	void *address;
	struct block *next;
};

#define BUCKETS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	share_client *client;
	share_pool *pool;
} pools[DEVICES];
static struct block *blocks[BUCKETS];

#pragma GCC visibility push(default)
void *share_torch_allocate(ssize_t size, int device, void *stream);
void share_torch_free(void *address, ssize_t size, int device, void *stream);
#pragma GCC visibility pop

/* Two buffers of GPU memory are at least 512 bytes apart. */
static struct block **bucket(const void *address)
{
	return &blocks[((uintptr_t)address >> 9) % BUCKETS];
}

/* Returns NULL when there is no memory; torch then raises an error with its own statistics. */
void *share_torch_allocate(ssize_t size, int device, void *stream)
{
	struct block *block, **head;
	share_buffer *b;
	int r;

	if (device < 0 || device >= DEVICES || size <= 0 || !pools[device].pool)
		return NULL;
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	r = share_alloc(pools[device].pool, (uint64_t)size, stream, &b);
	if (r != 0) {
		free(block);
		return NULL;
	}
	block->entry = (struct by_address){
	    .client = pools[device].client, .b = b, .stream = stream, .on_gpu = true};
	block->address = share_ptr(b);
	by_address_add(&block->entry);
	head = bucket(block->address);
	pthread_mutex_lock(&lock);
	block->next = *head;
	*head = block;
	pthread_mutex_unlock(&lock);
	return block->address;
}

void share_torch_free(void *address, ssize_t size, int device, void *stream)
{
	struct block **at, *block;

	(void)size, (void)device;
	pthread_mutex_lock(&lock);
	for (at = bucket(address); *at && (*at)->address != address; at = &(*at)->next)
		;
	block = *at;
	if (block)
		*at = block->next;
	pthread_mutex_unlock(&lock);
	if (!block)
		return;
	by_address_remove(&block->entry);
	release_behind(block->entry.b, stream, NULL);
	free(block);
}

/* _torch_has(address): whether torch has a block at that address. If so, torch keeps it for a later
 * tensor when its current one is gone. */
PyObject *torch_has(PyObject *Py_UNUSED(module), PyObject *address)
{
	struct block *block;
	uint64_t at;

	if (!arg_uint64(address, &at))
		return NULL;
	pthread_mutex_lock(&lock);
	block = *bucket((void *)(uintptr_t)at);
	while (block && (uintptr_t)block->address != at)
		block = block->next;
	pthread_mutex_unlock(&lock);
	return PyBool_FromLong(block != NULL);
}

/* _torch_pool(device, pool): sets the pool from which torch allocates on that device. It cannot be
 * changed later, because torch may allocate as long as the process lives. */
PyObject *torch_pool(PyObject *Py_UNUSED(module), PyObject *args)
{
	struct pool *pool;
	share_client *c;
	share_pool *p;
	int device;

	if (!PyArg_ParseTuple(args, "iO!:_torch_pool", &device, core.pool, &pool))
		return NULL;
	if (device < 0 || device >= DEVICES) {
		PyErr_SetString(PyExc_ValueError, "there is no such device");
		return NULL;
	}
	c = handle_enter(&pool->client->handle);
	if (!c)
		return NULL;
	p = handle_enter(&pool->handle);
	if (!p) {
		handle_leave(&pool->client->handle, 0);
		return NULL;
	}
	if (pools[device].pool) {
		bool same = pools[device].pool == p;

		handle_leave(&pool->handle, 0);
		handle_leave(&pool->client->handle, 0);
		if (same)
			Py_RETURN_NONE;
		PyErr_SetString(PyExc_ValueError,
				"torch allocates from another pool on that device already");
		return NULL;
	}
	/* The handles are never left, so they stay as long as the process. */
	Py_INCREF((PyObject *)pool);
	pools[device].client = c;
	pools[device].pool = p;
	Py_RETURN_NONE;
}
