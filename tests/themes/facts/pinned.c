/* SPDX-License-Identifier: MIT */

/*
 * Facts about memory of the host that cuMemCreate() makes at a NUMA node: made without a context
 * and kept by a descriptor alone, reached by the CPU and the GPU of every process that imports it,
 * read-only for both, ordered by events and values of another process, and zero when it is new.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define SIZE   (64 * MIB)
#define ROUNDS 32
#define FILLS  8 /* of a round, so that the work takes longer than looking for it */
#define BLOCK  (256 * MIB)
#define BLOCKS 16

/* -2: the driver knows no such attribute. */
static int attribute(CUdevice_attribute which)
{
	int value;

	return cu.DeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS ? value : -2;
}

/* Where the device names no node, the first one is tried. */
static int node(void)
{
	int id = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);

	return id < 0 ? 0 : id;
}

static CUmemAllocationProp properties_of_host(void)
{
	CUmemAllocationProp properties = vmm_properties();

	properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node()};
	return properties;
}

/* What a device that does not say so cannot do is no failure. */
static CUmemGenericAllocationHandle make(uint64_t size)
{
	CUmemAllocationProp properties = properties_of_host();
	CUmemGenericAllocationHandle handle = 0;
	CUresult result = cu.MemCreate(&handle, size, &properties, 0);
	int said = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);

	if (result != CUDA_SUCCESS && said <= 0)
		skipped("cuMemCreate: %s, and attribute 141 is %d", error_name(result), said);
	must(result, "cuMemCreate at a NUMA node of the host");
	return handle;
}

static int export_and_release(CUmemGenericAllocationHandle handle)
{
	int fd;

	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(MemRelease(handle));
	return fd;
}

static CUmemAccessDesc access_of_host(CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){
	    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node()},
	    .flags = flags,
	};
}

static void set_access(CUdeviceptr p, uint64_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc access[2] = {access_for(0, flags), access_of_host(flags)};

	MUST(MemSetAccess(p, size, access, 2));
}

/* For the device and the CPU. */
static CUdeviceptr map_for_both(CUmemGenericAllocationHandle handle, uint64_t size,
				CUmemAccess_flags flags)
{
	CUdeviceptr p;

	MUST(MemAddressReserve(&p, size, 0, 0, 0));
	MUST(MemMap(p, size, 0, handle, 0));
	set_access(p, size, flags);
	return p;
}

static unsigned char *host(CUdeviceptr p)
{
	return (unsigned char *)(uintptr_t)p; /* NOLINT: the same address for both */
}

static bool cpu_reads(CUdeviceptr p, unsigned char value, uint64_t size)
{
	const unsigned char *bytes = host(p);

	return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* ---- in every process ---- */

/* Without a context. */
static void maker(int channel)
{
	struct message m;
	int fd;

	hear(channel, &m, NULL);
	use_driver();
	fd = export_and_release(make(SIZE));
	tell(channel, &m, fd);
	close(fd);
}

/* Its CPU reads what the other one's has written, and its GPU writes. */
static void writer(int channel)
{
	struct message m;
	CUdeviceptr p;
	int fd;

	hear(channel, &m, &fd);
	use_context();
	p = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	m.value[0] = cpu_reads(p, 0x11, SIZE);
	must(fill(p, 0x5a, SIZE), "fill");
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void tell_attributes(CUdeviceptr p, char *text, size_t size)
{
	unsigned type = 0;
	int ordinal = -1;
	CUdeviceptr there = 0;
	CUresult of_host;

	MUST(PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	of_host = cu.PointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
	cu.PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
	snprintf(text, size, "pointers are of type %u on device %d, host pointer %s", type, ordinal,
		 of_host != CUDA_SUCCESS ? error_name(of_host)
		 : there == p            ? "the same"
					 : "another");
}

static void everywhere(void)
{
	struct role r = role_start("pinned-maker", NULL), w = role_start("pinned-writer", NULL);
	CUmemAllocationProp properties, found = {0};
	CUmemGenericAllocationHandle handle;
	struct message m = {0};
	size_t granularity = 0;
	uint64_t before, with;
	char text[160];
	CUdeviceptr p;
	int fd;

	use_context();
	properties = properties_of_host();
	MUST(MemRelease(make(2 * MIB))); /* or it is skipped */
	MUST(MemGetAllocationGranularity(&granularity, &properties,
					 CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	before = device_free();
	tell(r.channel, &m, -1);
	hear(r.channel, &m, &fd);
	role_kill(&r); /* nobody has it but our descriptor */
	handle = vmm_import(fd);
	MUST(MemGetProperties(&found, handle));
	p = map_for_both(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(MemRelease(handle));
	with = device_free();
	tell_attributes(p, text, sizeof(text));
	memset(host(p), 0x11, SIZE);
	if (!holds(p, 0x11, SIZE))
		failed("the GPU does not see what the CPU wrote");
	ask(w.channel, &m, fd);
	if (!m.value[0])
		failed("the CPU of another process does not see what this one wrote");
	if (!cpu_reads(p, 0x5a, SIZE))
		failed("the CPU does not see what the GPU of another process wrote");
	ok("node %d (-1: the device names none, -2: unknown), attributes 141 to 144: %d %d %d %d; "
	   "granularity %zu KiB; %s; an import says location %d of type %d; free memory of the "
	   "device fell by %ld KiB for %lu KiB",
	   attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID),
	   attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
	   attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED),
	   attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED), attribute(144),
	   granularity / 1024, text, found.location.id, found.location.type,
	   ((long)before - (long)with) / 1024, (unsigned long)SIZE / 1024);
}

/* ---- reading only ---- */

enum offence { MEMSET, STORE, PROTECT };

/* value[0]: enum offence, to memory that may be read only. */
static void offender(int channel)
{
	struct message m;
	CUdeviceptr p;
	int fd;

	hear(channel, &m, &fd);
	use_context();
	p = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READ);
	if (!cpu_reads(p, 0x11, SIZE) || !holds(p, 0x11, SIZE))
		failed("a read-only mapping does not show the data");
	if (m.value[0] == MEMSET)
		m.result = (int32_t)fill(p, 0xee, SIZE);
	else if (m.value[0] == PROTECT)
		m.result = mprotect(host(p), 4096, PROT_READ | PROT_WRITE);
	if (m.value[0] == STORE || (m.value[0] == PROTECT && m.result == 0))
		*(volatile unsigned char *)host(p) = 0xee;
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void readonly_for_both(void)
{
	struct role r[3] = {role_start("pinned-offender", NULL),
			    role_start("pinned-offender", NULL),
			    role_start("pinned-offender", NULL)};
	struct message m[3] = {{.value = {MEMSET}}, {.value = {STORE}}, {.value = {PROTECT}}};
	const char *trouble[3];
	bool changed[3];
	CUdeviceptr p, whole;
	int fd;

	use_context();
	fd = export_and_release(make(SIZE));
	whole = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	memset(host(whole), 0x11, SIZE);
	for (int i = 0; i < 3; i++) {
		trouble[i] = try(r[i].channel, &m[i], fd, 20000);
		changed[i] = !cpu_reads(whole, 0x11, SIZE);
		memset(host(whole), 0x11, SIZE);
	}
	if (changed[MEMSET] || changed[STORE] || !trouble[STORE])
		failed("a read-only mapping was written to, by %s",
		       changed[MEMSET] ? "the GPU" : "the CPU");
	p = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READ);
	set_access(p, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	must(fill(p, 0x22, SIZE / 2), "fill after the upgrade");
	memset(host(p) + SIZE / 2, 0x22, SIZE / 2);
	if (!cpu_reads(whole, 0x22, SIZE))
		failed("what was written after the upgrade is not seen");
	ok("memset: %s; a store of the CPU: %s; mprotect() to write and a store: %s%s; upgraded in "
	   "place",
	   trouble[MEMSET] ? trouble[MEMSET] : error_name((CUresult)m[MEMSET].result),
	   trouble[STORE],
	   trouble[PROTECT]    ? trouble[PROTECT]
	   : m[PROTECT].result ? "refused"
			       : "granted",
	   changed[PROTECT] ? ", and the memory was changed" : "");
}

/* ---- order ---- */

/* The last word of the memory is no part of what is filled. */
#define CONTENT (SIZE - 4096)

/* Fills in every round, and then records the event and writes the round into the last word.
 * value[1]: how that went. */
static void filler(int channel)
{
	CUipcEventHandle handle;
	struct message m;
	CUstream stream;
	CUdeviceptr p;
	CUevent event;
	int fd;

	hear(channel, &m, &fd);
	use_context();
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(IpcOpenEventHandle(&event, handle));
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	tell(channel, &m, -1);
	for (;;) {
		hear(channel, &m, NULL);
		for (unsigned i = 1; i <= FILLS; i++)
			MUST(MemsetD8Async(p, (unsigned char)(m.value[0] + (FILLS - i)), CONTENT,
					   stream));
		MUST(EventRecord(event, stream));
		m.value[1] = cu.StreamWriteValue64(stream, p + SIZE - 8, m.value[0], 0);
		tell(channel, &m, -1);
	}
}

static void wait_for_event(CUevent event)
{
	CUresult result;

	while ((result = cu.EventQuery(event)) == CUDA_ERROR_NOT_READY)
		;
	must(result, "cuEventQuery");
}

static void wait_for_value(CUdeviceptr p, uint64_t value)
{
	const uint64_t *word = (const uint64_t *)(const void *)(host(p) + SIZE - 8);

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
		;
}

static void ordered(void)
{
	struct role r = role_start("pinned-filler", NULL);
	CUipcEventHandle handle;
	unsigned late = 0;
	struct message m = {0};
	CUevent event;
	CUdeviceptr p;
	int fd;

	use_context();
	fd = export_and_release(make(SIZE));
	p = map_for_both(vmm_import(fd), SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(EventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	MUST(IpcGetEventHandle(&handle, event));
	memcpy(m.bytes, &handle, sizeof(handle));
	ask(r.channel, &m, fd);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		m.value[0] = round;
		ask(r.channel, &m, -1);
		late += cu.EventQuery(event) == CUDA_ERROR_NOT_READY;
		if (m.value[1] == CUDA_SUCCESS && round % 2 == 0)
			wait_for_value(p, round);
		else
			wait_for_event(event);
		if (!cpu_reads(p, (unsigned char)round, CONTENT))
			failed("the CPU reads what was there before, in round %u", (unsigned)round);
	}
	ok("%d rounds of %d fills by another process, after an event and a value in turns; in %u "
	   "the work was not done when it was looked for; writing a value there: %s",
	   ROUNDS, FILLS, late, error_name((CUresult)m.value[1]));
}

/* ---- who can have access ---- */

static void by_location(void)
{
	static const struct {
		const char *name;
		CUmemLocationType type;
		int further; /* than the node */
	} places[] = {{"device 0 alone", CU_MEM_LOCATION_TYPE_DEVICE, 0},
		      {"device 1", CU_MEM_LOCATION_TYPE_DEVICE, 1},
		      {"host", CU_MEM_LOCATION_TYPE_HOST, 0},
		      {"its node", CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
		      {"another node", CU_MEM_LOCATION_TYPE_HOST_NUMA, 1}};
	char text[512] = "";
	size_t n = 0;

	use_context();
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		CUmemGenericAllocationHandle handle = make(2 * MIB);
		CUmemAccessDesc access = {
		    .location = {.type = places[i].type,
				 .id = places[i].further +
				       (places[i].type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? node()
											 : 0)},
		    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
		CUdeviceptr p;

		MUST(MemAddressReserve(&p, 2 * MIB, 0, 0, 0));
		MUST(MemMap(p, 2 * MIB, 0, handle, 0));
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s: %s", n ? "; " : "",
				      places[i].name,
				      error_name(cu.MemSetAccess(p, 2 * MIB, &access, 1)));
		vmm_unmap(p, 2 * MIB);
		MUST(MemRelease(handle));
	}
	ok("(report) %s", text);
}

/* ---- what is new ---- */

/* A line of a file in /proc, which is of "KEY:   VALUE kB". */
static long kibibytes(const char *path, const char *key)
{
	FILE *file = fopen(path, "re");
	char line[256];
	long value = -1;

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0)
			sscanf(line + strlen(key), ": %ld", &value);
	if (file)
		fclose(file);
	return value;
}

/* Who may lock no memory at all. */
static void new_memory(void)
{
	const struct rlimit none = {0, 0};
	CUmemGenericAllocationHandle handles[BLOCKS];
	long available, locked;
	uint64_t took = 0;

	setrlimit(RLIMIT_MEMLOCK, &none);
	use_context();
	available = kibibytes("/proc/meminfo", "MemAvailable");
	if (available < (long)(2 * BLOCKS * BLOCK / 1024))
		skipped("%ld KiB of memory are too little", available);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			uint64_t before = nanoseconds();
			CUdeviceptr p;

			handles[i] = make(BLOCK);
			took += nanoseconds() - before;
			p = map_for_both(handles[i], BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
			if (!cpu_reads(p, 0, BLOCK))
				failed("new memory is not zero, in round %d", round + 1);
			memset(host(p), 0xa5, BLOCK);
			vmm_unmap(p, BLOCK);
		}
		available -= round ? 0 : kibibytes("/proc/meminfo", "MemAvailable");
		locked = kibibytes("/proc/self/status", "VmLck") +
			 kibibytes("/proc/self/status", "VmPin");
		for (int i = 0; i < BLOCKS; i++)
			MUST(MemRelease(handles[i]));
	}
	ok("%d times %lu MiB, twice, are zero, with RLIMIT_MEMLOCK 0; %lu us each to make; %ld MiB "
	   "less are available, %ld KiB count as locked",
	   BLOCKS, (unsigned long)(BLOCK / MIB), (unsigned long)(took / (2 * BLOCKS) / 1000),
	   available / 1024, locked);
}

const struct fact pinned_facts[] = {
    {"pinned_memory_is_reached_by_cpu_and_gpu_everywhere", everywhere},
    {"pinned_memory_is_read_only_for_both", readonly_for_both},
    {"pinned_memory_is_ordered_for_the_cpu", ordered},
    {"pinned_memory_by_location", by_location},
    {"new_pinned_memory_is_zero", new_memory},
    {NULL, NULL},
};

const struct play pinned_plays[] = {
    {"pinned-maker", maker},
    {"pinned-writer", writer},
    {"pinned-offender", offender},
    {"pinned-filler", filler},
    {NULL, NULL},
};
