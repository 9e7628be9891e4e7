/* SPDX-License-Identifier: MIT */

/*
 * Stand-ins for the importers of GPU memory, for a build that found no CUDA headers. No segment can
 * be imported, so the other functions are never called with a mapping on a device.
 */

/* What a function is given is for the one that has a driver. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include <share/error.h>

#include "base/failure.h"
#include "memory/adopt.h"
#include "memory/copier.h"
#include "memory/importer.h"
#include "memory/mark.h"
#include "memory/stream.h"
#include "memory/without_cuda.h"

static int no_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
		     struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

static int no_upgrade(struct memory_mapping *m, int fd, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

static void no_unmap(struct memory_mapping *m)
{
}

#define NO_IMPORTER(NAME, name, id_, where, ...)                                                  \
	MEMORY_ON_##where(                                                                        \
	    const struct memory_importer memory_##name##_importer = {.kind = id_,                 \
								     .import = no_import,         \
								     .make_writable = no_upgrade, \
								     .unmap = no_unmap};)
MEMORY_KINDS(NO_IMPORTER)

bool memory_device_find(const void *address, uint64_t size, struct memory_found *out, int *r,
			struct failure *failure)
{
	return false;
}

bool memory_driver_is_loaded(void)
{
	return false; /* even if somebody has loaded it, this build could not call it */
}

int memory_copy_to_host(const struct memory_mapping *m, uint64_t offset, void *to, uint64_t size,
			void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copy_between(struct memory_mapping *to, uint64_t to_offset, struct memory_mapping *from,
			uint64_t from_offset, uint64_t size, void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copy_staged(const struct memory_mapping *to, uint64_t to_offset,
		       const struct memory_mapping *from, uint64_t from_offset, uint64_t size,
		       struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copy_from_host(const struct memory_mapping *m, uint64_t offset, const void *from,
			  uint64_t size, void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_stream_synchronize(const struct memory_mapping *m, void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

bool memory_stream_ops(int ordinal)
{
	return false;
}

int memory_page_register(int ordinal, void *page, size_t size, bool readonly,
			 struct memory_page *out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_page_unregister(struct memory_page *p)
{
	*p = (struct memory_page){0};
}

int memory_page_check(const struct memory_page *p, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_stream_open(int ordinal, void *stream, struct memory_stream *out,
		       struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_stream_close(struct memory_stream *s)
{
}

int memory_stream_write(struct memory_stream *s, const struct memory_page *p, size_t offset,
			uint64_t value, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_stream_wait(struct memory_stream *s, const struct memory_wait *waits, size_t n,
		       struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

unsigned memory_stream_connections(void)
{
	return 0; /* there are no CUDA streams */
}

int memory_ipc_event_open(int ordinal, void *stream, const unsigned char handle[64],
			  struct memory_ipc_event **out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_ipc_event_close(struct memory_ipc_event *e)
{
}

int memory_ipc_event_record(struct memory_ipc_event *e, void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_ipc_event_wait(struct memory_ipc_event *e, void *stream, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_device_ordinal(const char *uuid_text, int *out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_marks_open(int ordinal, struct memory_marks **out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_marks_close(struct memory_marks *k)
{
}

void *memory_marks_stream(struct memory_marks *k)
{
	return NULL;
}

int memory_stream_identify(int ordinal, void *stream, uint64_t *id, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_mark_move(struct memory_marks *k, void *stream, struct memory_mark *m, bool stay,
		     struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_mark_wait(struct memory_marks *k, void *stream, const struct memory_mark *m,
		     struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_mark_wait_inside(struct memory_marks *k, const struct memory_mark *m,
			    struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_mark_free(struct memory_marks *k, struct memory_mark *m)
{
}

int memory_copier_open(int ordinal, struct memory_copier **out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_copier_close(struct memory_copier *c)
{
}

void *memory_copier_stream(struct memory_copier *c)
{
	return NULL;
}

int memory_copier_stay(struct memory_copier *c, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copier_to_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			  struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copier_from_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			    struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copier_set(struct memory_copier *c, struct memory_point *p, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_copier_reached(struct memory_copier *c, const struct memory_point *p,
			  struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

void memory_copier_forget(struct memory_copier *c, struct memory_point *p)
{
}
