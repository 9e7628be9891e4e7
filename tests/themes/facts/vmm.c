/* SPDX-License-Identifier: MIT */

/*
 * Facts about cuMemCreate() memory: made without a context, kept by a descriptor alone, mapped at
 * an address asked for, read-only and upgraded in place, reached from another GPU.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define SIZE (64 * MIB)

/* ---- without a context ---- */

/* Makes and exports; then, asked again, lets go of the handle and tries what else there is. */
static void maker(int channel)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	struct message m = {0};
	CUdeviceptr p = 0;
	int fd;

	hear(channel, &m, NULL);
	use_driver();
	MUST(MemCreate(&handle, SIZE, &properties, 0));
	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	tell(channel, &m, fd);
	close(fd);
	hear(channel, &m, NULL);
	m.value[0] = cu.MemAddressReserve(&p, SIZE, 0, 0, 0);
	m.value[1] = m.value[0] == CUDA_SUCCESS ? cu.MemMap(p, SIZE, 0, handle, 0) : 0;
	m.value[2] = m.value[0] == CUDA_SUCCESS && m.value[1] == CUDA_SUCCESS
			 ? cu.MemSetAccess(p, SIZE, &access, 1)
			 : 0;
	if (m.value[0] == CUDA_SUCCESS && m.value[1] == CUDA_SUCCESS)
		MUST(MemUnmap(p, SIZE));
	MUST(MemRelease(handle));
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

/* Imports, writes, lets go of everything, and ends. */
static void writer(int channel)
{
	CUmemGenericAllocationHandle handle;
	struct message m;
	CUdeviceptr p;
	int fd;

	hear(channel, &m, &fd);
	use_context();
	handle = vmm_import(fd);
	close(fd);
	p = vmm_map(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	must(fill(p, 0x5a, SIZE), "fill");
	vmm_unmap(p, SIZE);
	MUST(MemRelease(handle));
	tell(channel, &m, -1);
}

static void without_context(void)
{
	struct role r = role_start("vmm-maker", NULL), w = role_start("vmm-writer", NULL);
	CUmemGenericAllocationHandle handle;
	uint64_t before, with, end;
	struct message m = {0};
	CUdeviceptr p;
	int fd;

	use_context();
	before = device_free();
	tell(r.channel, &m, -1);
	hear(r.channel, &m, &fd);
	with = device_free();
	ask(r.channel, &m, -1);
	role_kill(&r);

	tell(w.channel, &(struct message){0}, fd);
	hear(w.channel, &(struct message){0}, NULL);
	role_kill(&w);
	/* nobody has it but our descriptor */
	handle = vmm_import(fd);
	close(fd);
	p = vmm_map(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	if (!holds(p, 0x5a, SIZE))
		failed("the data did not survive in a descriptor alone");
	vmm_unmap(p, SIZE);
	end = device_free();
	MUST(MemRelease(handle));
	if (device_free_reaches(end + SIZE) < end + SIZE)
		failed("not all of %lu bytes came back", (unsigned long)SIZE);
	ok("free memory fell by %ld KiB for %lu KiB; data kept by the descriptor alone; all came "
	   "back; without a context: reserve %s, map %s, set access %s",
	   ((long)before - (long)with) / 1024, (unsigned long)SIZE / 1024,
	   error_name((CUresult)m.value[0]), error_name((CUresult)m.value[1]),
	   error_name((CUresult)m.value[2]));
}

/* What a process that only makes memory costs: nobody else starts meanwhile. */
static void cost_without_context(void)
{
	struct role r = role_start("vmm-maker", NULL), c = role_start("vmm-context", NULL);
	uint64_t before, with, context;
	struct message m = {0};
	long overhead;

	use_context();
	before = device_free();
	ask(r.channel, &m, -1);
	with = device_free();
	ask(c.channel, &m, -1);
	context = device_free();
	overhead = (long)(before - with) - (long)SIZE;
	if (overhead > (long)(16 * MIB))
		failed("%ld KiB besides the memory itself", overhead / 1024);
	ok("%ld KiB besides the memory itself; a primary context %ld KiB", overhead / 1024,
	   ((long)with - (long)context) / 1024);
}

static void context_holder(int channel)
{
	struct message m;

	hear(channel, &m, NULL);
	use_context();
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

/* ---- addresses ---- */

/* Multiples of a GiB; the second half are neighbours. */
static const uint64_t places[] = {0x200000000000, 0x200040000000, 0x200080000000, 0x300000000000};
#define PLACES (sizeof(places) / sizeof(*places))
#define PLACE  (1024 * MIB)

static const uint64_t sizes[] = {2 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

/* value[0]: with a context. Answers with what 1 GiB at each place gave, then with which sizes were
 * heard at the last place, one bit each, and what a neighbour of 2 MiB gave. */
static void reserver(int channel)
{
	struct message m;
	CUdeviceptr p;

	hear(channel, &m, NULL);
	if (m.value[0])
		use_context();
	else
		use_driver();
	for (size_t i = 0; i < PLACES; i++) {
		p = 0;
		cu.MemAddressReserve(&p, PLACE, 2 * MIB, places[i], 0);
		m.value[i] = p;
	}
	MUST(MemAddressFree(m.value[PLACES - 1], PLACE));
	m.value[PLACES] = 0;
	for (size_t i = 0; i < SIZES; i++) {
		MUST(MemAddressReserve(&p, sizes[i], 0, places[PLACES - 1], 0));
		m.value[PLACES] |= (uint64_t)(p == places[PLACES - 1]) << i;
		MUST(MemAddressFree(p, sizes[i]));
	}
	MUST(MemAddressReserve(&p, 2 * PLACE, 0, places[PLACES - 1] + 2 * MIB, 0));
	m.value[PLACES + 1] = p;
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static const char *sizes_text(uint64_t heard, char text[128])
{
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < SIZES; i++)
		if (heard >> i & 1)
			n += (size_t)snprintf(text + n, 128 - n, "%s%lu", n ? ", " : "",
					      (unsigned long)(sizes[i] / MIB));
	return n ? text : "none";
}

/* A GiB at a multiple of a GiB: what same-address mappings lean on, with and without a context. */
static void address_hints(void)
{
	struct role r[3] = {role_start("vmm-reserver", NULL), role_start("vmm-reserver", NULL),
			    role_start("vmm-reserver", NULL)};
	struct message m[3] = {{.value = {0}}, {.value = {1}}, {.value = {1}}};
	char without[128], with[128];

	for (int i = 0; i < 3; i++)
		ask(r[i].channel, &m[i], -1);
	for (int i = 0; i < 3; i++)
		for (size_t j = 0; j < PLACES; j++)
			if (m[i].value[j] != places[j])
				failed("1 GiB asked for at %#lx is at %#lx %s a context",
				       (unsigned long)places[j], (unsigned long)m[i].value[j],
				       i ? "with" : "without");
	ok("1 GiB at multiples of it is heard in every process; MiB heard of 2, 16, 32, 64, 128 "
	   "without a context: %s, with one: %s; 2 MiB further it is %#lx and %#lx",
	   sizes_text(m[0].value[PLACES], without), sizes_text(m[1].value[PLACES], with),
	   (unsigned long)m[0].value[PLACES + 1], (unsigned long)m[1].value[PLACES + 1]);
}

/* ---- reading only ---- */

/* value[0]: 1 memset, 2 copy from the host, to memory that may be read only. */
static void offender(int channel)
{
	struct message m;
	char bytes[64] = {0};
	CUdeviceptr p;
	int fd;

	use_context();
	hear(channel, &m, &fd);
	p = vmm_map(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READ);
	m.result = (int32_t)(m.value[0] == 1 ? fill(p, 0xee, SIZE)
					     : cu.MemcpyHtoD(p, bytes, sizeof(bytes)));
	m.value[1] = cu.CtxSynchronize();
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void attributes_of(CUdeviceptr p, const char *what)
{
	unsigned type = 0;
	int ordinal = -1;

	MUST(PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	MUST(PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	if (type != CU_MEMORYTYPE_DEVICE || ordinal != 0)
		failed("%s is of type %u on device %d", what, type, ordinal);
}

static void readonly_then_writable(void)
{
	struct role a = role_start("vmm-offender", NULL), b = role_start("vmm-offender", NULL);
	CUmemAllocationProp properties = vmm_properties();
	CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	struct message m = {0}, n = {0};
	CUdeviceptr whole, p;
	int fd;

	use_context();
	MUST(MemCreate(&handle, SIZE, &properties, 0));
	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	whole = vmm_map(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	must(fill(whole, 0x11, SIZE), "fill");

	p = vmm_map(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READ);
	attributes_of(p, "imported memory");
	if (!holds(p, 0x11, SIZE))
		failed("a read-only mapping does not show the data");
	MUST(MemSetAccess(p, SIZE, &access, 1));
	must(fill(p, 0x22, SIZE), "fill after the upgrade");
	if (!holds(whole, 0x22, SIZE))
		failed("what was written after the upgrade is not seen");

	m.value[0] = 1;
	ask(a.channel, &m, fd);
	n.value[0] = 2;
	ask(b.channel, &n, fd);
	if (!holds(whole, 0x22, SIZE))
		failed("a read-only mapping was written to");
	ok("upgraded in place; type and ordinal right; memset to a read-only mapping: %s then %s; "
	   "copy from the host to it: %s then %s; neither changed it nor hurt others",
	   error_name((CUresult)m.result), error_name((CUresult)m.value[1]),
	   error_name((CUresult)n.result), error_name((CUresult)n.value[1]));
}

/* ---- another GPU ---- */

static void other_gpu(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemAccessDesc access = access_for(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	int devices, can = 0;
	CUcontext context;
	CUresult result;
	CUdeviceptr p;

	use_context();
	MUST(DeviceGetCount(&devices));
	if (devices < 2)
		skipped("one GPU");
	MUST(DeviceCanAccessPeer(&can, 1, 0));
	MUST(MemCreate(&handle, SIZE, &properties, 0));
	MUST(MemAddressReserve(&p, SIZE, 0, 0, 0));
	MUST(MemMap(p, SIZE, 0, handle, 0));
	result = cu.MemSetAccess(p, SIZE, &access, 1);
	if (!can)
		ok("peers cannot; cuMemSetAccess: %s", error_name(result));
	must(result, "cuMemSetAccess for GPU 1 alone");
	MUST(DevicePrimaryCtxRetain(&context, 1));
	MUST(CtxSetCurrent(context));
	must(fill(p, 0x77, SIZE), "fill from GPU 1");
	if (!holds(p, 0x77, SIZE))
		failed("GPU 1 does not see what it wrote");
	ok("GPU 1 wrote and read memory of GPU 0 to which it alone has access");
}

/* CUDA_VISIBLE_DEVICES shows GPU 1 alone. value[0]: the result of importing memory of GPU 0. */
static void elsewhere(int channel)
{
	CUmemGenericAllocationHandle handle;
	struct message m;
	int fd;

	hear(channel, &m, &fd);
	use_context();
	m.value[0] =
	    cu.MemImport(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void hidden_gpu(void)
{
	struct role r = role_start("vmm-elsewhere", "CUDA_VISIBLE_DEVICES=1");
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handle;
	struct message m = {0};
	const char *trouble;
	int devices, fd;

	use_driver();
	MUST(DeviceGetCount(&devices));
	if (devices < 2)
		skipped("one GPU");
	MUST(MemCreate(&handle, SIZE, &properties, 0));
	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	trouble = try(r.channel, &m, fd, 10000);
	ok("(report) import where the GPU is hidden: %s",
	   trouble ? trouble : error_name((CUresult)m.value[0]));
}

const struct fact vmm_facts[] = {
    {"vmm_needs_no_context_and_a_descriptor_keeps_it", without_context},
    {"vmm_without_a_context_costs_little", cost_without_context},
    {"vmm_addresses_asked_for", address_hints},
    {"vmm_readonly_can_be_upgraded_in_place", readonly_then_writable},
    {"vmm_from_another_gpu", other_gpu},
    {"vmm_of_a_hidden_gpu", hidden_gpu},
    {NULL, NULL},
};

const struct play vmm_plays[] = {
    {"vmm-maker", maker},
    {"vmm-writer", writer},
    {"vmm-context", context_holder},
    {"vmm-reserver", reserver},
    {"vmm-offender", offender},
    {"vmm-elsewhere", elsewhere},
    {NULL, NULL},
};
