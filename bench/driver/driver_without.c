/* SPDX-License-Identifier: MIT */

/* Takes the place of driver.c and driver_stream.c in a build without CUDA's headers. */

#include <stdio.h>
#include <stdlib.h>

#include "bench/driver/driver.h"

bool driver_start(const char *uuid, char why[DRIVER_WHY])
{
	(void)uuid;
	snprintf(why, DRIVER_WHY, "share-bench was built without the CUDA headers");
	return false;
}

/* None of these is called, because driver_start() returns false. */

const char *driver_device(void)
{
	abort();
}

uint64_t driver_free_memory(void)
{
	abort();
}

void *driver_alloc(uint64_t size)
{
	(void)size;
	abort();
}

void driver_free(void *p)
{
	(void)p;
	abort();
}

void *driver_vmm_alloc(uint64_t size)
{
	(void)size;
	abort();
}

void driver_vmm_free(void *p, uint64_t size)
{
	(void)p;
	(void)size;
	abort();
}

void driver_copy(void *to, const void *from, uint64_t size)
{
	(void)to;
	(void)from;
	(void)size;
	abort();
}

void *driver_pool_alloc(uint64_t size, void *stream)
{
	(void)size;
	(void)stream;
	abort();
}

void driver_pool_free(void *p, void *stream)
{
	(void)p;
	(void)stream;
	abort();
}

struct driver_handle driver_export(void *p)
{
	(void)p;
	abort();
}

void *driver_import(const struct driver_handle *handle)
{
	(void)handle;
	abort();
}

void driver_close(void *p)
{
	(void)p;
	abort();
}

void *driver_stream_create(void)
{
	abort();
}

void driver_stream_destroy(void *stream)
{
	(void)stream;
	abort();
}

void driver_stream_synchronize(void *stream)
{
	(void)stream;
	abort();
}

bool driver_stream_is_busy(void *stream)
{
	(void)stream;
	abort();
}

void driver_fill(void *p, uint32_t word, uint64_t size, void *stream)
{
	(void)p;
	(void)word;
	(void)size;
	(void)stream;
	abort();
}

bool driver_spin(void *stream, unsigned milliseconds, char why[DRIVER_WHY])
{
	(void)stream;
	(void)milliseconds;
	(void)why;
	abort();
}

bool driver_page_open(struct driver_page *p, char why[DRIVER_WHY])
{
	(void)p;
	(void)why;
	abort();
}

void driver_page_close(struct driver_page *p)
{
	(void)p;
	abort();
}

void driver_write_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value)
{
	(void)stream;
	(void)p;
	(void)cell;
	(void)value;
	abort();
}

void driver_wait_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value)
{
	(void)stream;
	(void)p;
	(void)cell;
	(void)value;
	abort();
}

void *driver_event_create(struct driver_handle *handle)
{
	(void)handle;
	abort();
}

void *driver_event_open(const struct driver_handle *handle)
{
	(void)handle;
	abort();
}

void driver_event_destroy(void *event)
{
	(void)event;
	abort();
}

void driver_event_record(void *event, void *stream)
{
	(void)event;
	(void)stream;
	abort();
}

void driver_event_wait(void *event, void *stream)
{
	(void)event;
	(void)stream;
	abort();
}
