/* SPDX-License-Identifier: MIT */

/*
 * The streams of bench/driver.h: work on them, and the two ways to order streams of different
 * processes, which are values in memory and interprocess events.
 */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/driver/driver_cuda.h"

_Static_assert(sizeof(CUipcEventHandle) == sizeof(struct driver_handle), "the same bytes");
_Static_assert(sizeof(struct driver_cell) == 64, "one a cache line");

#define CELLS_SIZE (DRIVER_CELLS * sizeof(struct driver_cell))

void *driver_stream_create(void)
{
	CUstream stream;

	must_driver(driver.cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	return stream;
}

void driver_stream_destroy(void *stream)
{
	must_driver(driver.cu->StreamDestroy(stream), "cuStreamDestroy");
}

void driver_stream_synchronize(void *stream)
{
	must_driver(driver.cu->StreamSynchronize(stream), "cuStreamSynchronize");
}

bool driver_stream_is_busy(void *stream)
{
	CUresult r = driver.StreamQuery(stream);

	if (r == CUDA_ERROR_NOT_READY)
		return true;
	must_driver(r, "cuStreamQuery");
	return false;
}

void driver_fill(void *p, uint32_t word, uint64_t size, void *stream)
{
	must_driver(
	    driver.MemsetD32Async((CUdeviceptr)(uintptr_t)p, word, size / sizeof(word), stream),
	    "cuMemsetD32Async");
}

/* ------------------------------------------------------------------------------------------- */
/* A kernel, in the language that every driver compiles                                        */

static const char spin_ptx[] =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry spin(.param .u64 nanoseconds)\n"
    "{\n"
    "	.reg .pred %before;\n"
    "	.reg .u64 %length, %start, %now;\n"
    "	ld.param.u64 %length, [nanoseconds];\n"
    "	mov.u64 %start, %globaltimer;\n"
    "again:\n"
    "	mov.u64 %now, %globaltimer;\n"
    "	sub.u64 %now, %now, %start;\n"
    "	setp.lt.u64 %before, %now, %length;\n"
    "	@%before bra again;\n"
    "	ret;\n"
    "}\n";

struct spin {
	CUfunction function; /* NULL: not loaded yet */
	PFN_cuModuleLoadData_v2000 ModuleLoadData;
	PFN_cuModuleGetFunction_v2000 ModuleGetFunction;
	PFN_cuLaunchKernel_v4000 LaunchKernel;
};

static bool spin_load(struct spin *s, char why[DRIVER_WHY])
{
	CUmodule module; /* never unloaded */
	CUresult r;

	if (!driver_look_up("cuModuleLoadData", &s->ModuleLoadData, why) ||
	    !driver_look_up("cuModuleGetFunction", &s->ModuleGetFunction, why) ||
	    !driver_look_up("cuLaunchKernel", &s->LaunchKernel, why))
		return false;
	r = s->ModuleLoadData(&module, spin_ptx);
	if (r != CUDA_SUCCESS) { /* the driver may have no compiler, or an older one */
		snprintf(why, DRIVER_WHY, "the driver does not load a kernel (error %d)", (int)r);
		return false;
	}
	must_driver(s->ModuleGetFunction(&s->function, module, "spin"), "cuModuleGetFunction");
	return true;
}

bool driver_spin(void *stream, unsigned milliseconds, char why[DRIVER_WHY])
{
	uint64_t nanoseconds = milliseconds * UINT64_C(1000000);
	void *parameters[] = {&nanoseconds};
	static struct spin spin;

	if (!spin.function && !spin_load(&spin, why))
		return false;
	must_driver(spin.LaunchKernel(spin.function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL),
		    "cuLaunchKernel");
	return true;
}

/* ------------------------------------------------------------------------------------------- */

/* Returns the address that streams use. */
static uint64_t register_mapping(void *mapping, unsigned flags)
{
	CUdeviceptr address;

	must_driver(driver.cu->MemHostRegister(mapping, CELLS_SIZE, flags), "cuMemHostRegister");
	must_driver(driver.cu->MemHostGetDevicePointer(&address, mapping, 0),
		    "cuMemHostGetDevicePointer");
	return address;
}

bool driver_page_open(struct driver_page *p, char why[DRIVER_WHY])
{
	const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	int can = 0, fd;
	void *mapping;

	must_driver(driver.cu->DeviceGetAttribute(
			&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, driver.device),
		    "cuDeviceGetAttribute");
	if (!can) {
		snprintf(why, DRIVER_WHY, "the device has no stream memory operations");
		return false;
	}
	fd = memfd_create("share-bench", MFD_CLOEXEC);
	must_system(fd >= 0 && ftruncate(fd, CELLS_SIZE) == 0, "memfd_create");
	mapping = mmap(NULL, CELLS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must_system(mapping != MAP_FAILED, "mmap");
	p->cells = mapping;
	p->write_address = register_mapping(mapping, flags);
	mapping = mmap(NULL, CELLS_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	must_system(mapping != MAP_FAILED, "mmap");
	p->readonly = mapping;
	p->wait_address = register_mapping(mapping, flags | CU_MEMHOSTREGISTER_READ_ONLY);
	close(fd);
	return true;
}

void driver_page_close(struct driver_page *p)
{
	void *readonly = (void *)(uintptr_t)p->readonly;

	must_driver(driver.cu->MemHostUnregister(p->cells), "cuMemHostUnregister");
	must_driver(driver.cu->MemHostUnregister(readonly), "cuMemHostUnregister");
	munmap(p->cells, CELLS_SIZE);
	munmap(readonly, CELLS_SIZE);
}

void driver_write_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value)
{
	CUdeviceptr address = p->write_address + cell * sizeof(struct driver_cell);

	must_driver(
	    driver.cu->StreamWriteValue64(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT),
	    "cuStreamWriteValue64");
}

void driver_wait_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value)
{
	CUdeviceptr address = p->wait_address + cell * sizeof(struct driver_cell);

	must_driver(driver.cu->StreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ),
		    "cuStreamWaitValue64");
}

/* ------------------------------------------------------------------------------------------- */

void *driver_event_create(struct driver_handle *handle)
{
	CUipcEventHandle h;
	CUevent event;

	must_driver(driver.cu->EventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
		    "cuEventCreate");
	must_driver(driver.cu->IpcGetEventHandle(&h, event), "cuIpcGetEventHandle");
	memcpy(handle->bytes, &h, sizeof(handle->bytes));
	return event;
}

void *driver_event_open(const struct driver_handle *handle)
{
	CUipcEventHandle h;
	CUevent event;

	memcpy(&h, handle->bytes, sizeof(h));
	must_driver(driver.cu->IpcOpenEventHandle(&event, h), "cuIpcOpenEventHandle");
	return event;
}

void driver_event_destroy(void *event)
{
	must_driver(driver.cu->EventDestroy(event), "cuEventDestroy");
}

void driver_event_record(void *event, void *stream)
{
	must_driver(driver.cu->EventRecord(event, stream), "cuEventRecord");
}

void driver_event_wait(void *event, void *stream)
{
	must_driver(driver.cu->StreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT),
		    "cuStreamWaitEvent");
}
