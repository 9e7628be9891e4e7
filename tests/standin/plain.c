/* SPDX-License-Identifier: MIT */

/*
 * cuMemAlloc(): memory and its address at once; and the older way to share it, by handles that say
 * whose memory it is. Such memory goes when its owner frees it or dies, whoever has it open; here
 * an opener that is late finds it still, which no test should lean on.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/standin.h"

struct memory_handle {
	char magic[8];
	int32_t pid, fd;
	uint64_t inode, size;
	unsigned char unused[32];
};
_Static_assert(sizeof(struct memory_handle) == sizeof(CUipcMemHandle), "64 bytes");

/* Maps all of it for its device; the lock is held. */
static CUresult map_plain(struct backing *b, unsigned opened, CUdeviceptr *out)
{
	uintptr_t address;
	struct range *r;
	CUresult result = address_reserve(b->size, machine.granularity, 0, &address);

	if (result != CUDA_SUCCESS)
		return result;
	result = range_map(address, b->size, b, 0, &r);
	if (result != CUDA_SUCCESS) {
		address_release(address, b->size);
		return result;
	}
	r->plain = true;
	r->opened = opened;
	r->access[b->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	*out = address;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	uint64_t g = machine.granularity;
	struct backing *b;
	CUresult result;

	ENTER(cuMemAlloc_v2, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	result = backing_create(context_current()->device, "plain", (size + g - 1) / g * g, &b);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&standin_lock);
	result = map_plain(b, 0, out);
	if (result == CUDA_SUCCESS)
		range_at(*out)->asked = size;
	pthread_mutex_unlock(&standin_lock);
	backing_unref(b);
	return result;
}

/* Host and devices have it at the same address. */
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
	CUresult result;
	struct range *r;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER(cuMemAllocManaged, NEEDS_CONTEXT);
	result = cuMemAlloc(out, size);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&standin_lock);
	r = range_at(*out);
	r->managed = true;
	if (mmap((void *)r->address, r->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 r->backing->fd, 0) == MAP_FAILED)
		abort();
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

static CUresult unmap_plain(CUdeviceptr address, bool opened)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range *r;

	pthread_mutex_lock(&standin_lock);
	r = range_at(address);
	if (r && r->plain && !r->opened == !opened && r->address == address) {
		if (r->opened <= 1) {
			address_release(r->address, r->size);
			range_unmap(r);
		} else {
			r->opened--;
		}
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* Waits for the device, which waits for whom its streams wait. */
CUresult cuMemFree_v2(CUdeviceptr address)
{
	CUresult result;

	ENTER(cuMemFree_v2, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	if (!address)
		return CUDA_SUCCESS;
	stream_stall();
	result = unmap_plain(address, false);
	return result == CUDA_SUCCESS ? result : pool_free(address);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer)
{
	struct memory_handle handle = {.magic = "standin"};
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range *r;

	ENTER(cuIpcGetMemHandle, NEEDS_CONTEXT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	r = range_at(pointer);
	if (r && r->plain && !r->opened && !r->managed) {
		handle.pid = (int32_t)getpid();
		handle.fd = r->backing->fd;
		handle.inode = r->backing->inode;
		handle.size = r->size;
		memcpy(out, &handle, sizeof(handle));
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* A process has it once, however often it opens it; the lock is held. */
static CUresult open_plain(struct backing *b, CUdeviceptr *out)
{
	struct range *r = range_first();

	while (r && !(r->plain && r->opened && r->backing->inode == b->inode))
		r = r->next;
	if (!r)
		return map_plain(b, 1, out);
	r->opened++;
	*out = r->address;
	return CUDA_SUCCESS;
}

/* Of a process that was killed the first thread, whose descriptors /proc/PID shows, may have ended
 * while others have not. Its memory is there as long as any of them is. */
static int open_of_process(pid_t pid, int fd)
{
	const struct dirent *thread;
	char path[64];
	int own = -1;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	while (threads && own < 0 && (thread = readdir(threads))) {
		snprintf(path, sizeof(path), "%.16s/fd/%d", thread->d_name, fd);
		own = openat(dirfd(threads), path, O_RDWR | O_CLOEXEC);
	}
	if (threads)
		closedir(threads);
	return own;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle given, unsigned flags)
{
	struct memory_handle handle;
	struct backing *b;
	CUresult result;
	int fd;

	ENTER(cuIpcOpenMemHandle_v2, NEEDS_CONTEXT);
	memcpy(&handle, &given, sizeof(handle));
	if (!out || (flags & ~CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
	    memcmp(handle.magic, "standin", 8) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.pid == (int32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	fd = open_of_process(handle.pid, handle.fd);
	if (fd < 0) /* its maker is dead, or has freed it */
		return CUDA_ERROR_INVALID_HANDLE;
	result = backing_import(fd, "plain", &b);
	close(fd);
	if (result != CUDA_SUCCESS)
		return result;
	result = CUDA_ERROR_MAP_FAILED;
	if (b->inode == handle.inode) {
		pthread_mutex_lock(&standin_lock);
		result = open_plain(b, out);
		pthread_mutex_unlock(&standin_lock);
	}
	backing_unref(b);
	return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	ENTER(cuIpcCloseMemHandle, NEEDS_CONTEXT);
	stream_stall();
	return unmap_plain(address, true);
}
