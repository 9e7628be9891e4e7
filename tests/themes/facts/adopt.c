/* SPDX-License-Identifier: MIT */

/*
 * Facts about memory that a program has made, and that others are to have as well: what can be
 * found out about an address, and by what it can be exported.
 */

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define PIECE (2 * MIB)

/* Two allocations, one behind the other, with nothing left of their handles. */
static CUdeviceptr two_pieces(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	MUST(MemAddressReserve(&p, 4 * PIECE, 0, 0, 0));
	for (uint64_t i = 0; i < 2; i++) {
		MUST(MemCreate(&handle, PIECE, &properties, 0));
		MUST(MemMap(p + i * PIECE, PIECE, 0, handle, 0));
		MUST(MemRelease(handle));
	}
	MUST(MemSetAccess(p, 2 * PIECE, &access, 1));
	return p;
}

static void expect_range(CUdeviceptr at, CUdeviceptr base, uint64_t size)
{
	CUdeviceptr found;
	size_t bytes;

	MUST(MemGetAddressRange(&found, &bytes, at)); /* which alone needs a context */
	if (found != base || bytes != size)
		failed("%#lx is said to lie in %zu bytes from %#lx on, not %lu from %#lx on",
		       (unsigned long)at, bytes, (unsigned long)found, (unsigned long)size,
		       (unsigned long)base);
}

/* A descriptor of the allocation at an address, and of what it is a descriptor. */
static int export_at(CUdeviceptr at, struct stat *st)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	int fd;

	MUST(MemRetainHandle(&handle, (void *)(uintptr_t)at)); /* NOLINT */
	MUST(MemGetProperties(&properties, handle));
	if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    properties.location.id != 0 ||
	    !(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		failed("it is said to be on %d of type %d, with handles %d", properties.location.id,
		       properties.location.type, properties.requestedHandleTypes);
	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(MemRelease(handle));
	if (fstat(fd, st) != 0)
		failed("the descriptor has no fstat()");
	return fd;
}

/* All this without a context, but for the range of a piece and the look at what is there. */
static void by_its_address(void)
{
	unsigned type = 0, managed = 2;
	struct stat st;
	CUdeviceptr p, q;
	int fd;

	use_driver();
	p = two_pieces();
	MUST(PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	MUST(PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	if (type != CU_MEMORYTYPE_DEVICE || managed != 0)
		failed("it is said to be of type %u, managed %u", type, managed);
	fd = export_at(p + PIECE, &st);
	if (fcntl(fd, F_GET_SEALS) < 0 && !(S_ISCHR(st.st_mode) && major(st.st_rdev) == 195))
		failed("the descriptor is of type %o, device %u:%u", st.st_mode & S_IFMT,
		       major(st.st_rdev), minor(st.st_rdev));
	use_context();
	expect_range(p + 4096, p, PIECE);
	expect_range(p + PIECE + 1, p + PIECE, PIECE);
	must(fill(p, 0x11, PIECE), "fill");
	must(fill(p + PIECE, 0x22, PIECE), "fill");
	q = vmm_map(vmm_import(fd), PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	if (!holds(q, 0x22, PIECE))
		failed("what was exported is not what lies at the address");
	MUST(MemUnmap(p, 2 * PIECE));
	if (!holds(q, 0x22, PIECE))
		failed("what its maker has unmapped is gone");
	ok("type, handle, properties and export without a context, the range of each piece with "
	   "one; the descriptor is of device %u:%u; freed, the type of the address: %s",
	   major(st.st_rdev), minor(st.st_rdev),
	   error_name(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)));
}

/* ---- what is no memory, or less than is said ---- */

/* value[0]: how many bytes are to be mapped. Answers with what each call gave. */
static void importer(int channel)
{
	CUmemGenericAllocationHandle handle;
	struct message m;
	CUdeviceptr p;
	int fd;

	use_context();
	hear(channel, &m, &fd);
	m.value[1] =
	    cu.MemImport(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	m.value[2] = CUDA_SUCCESS;
	if (m.value[1] == CUDA_SUCCESS) {
		MUST(MemAddressReserve(&p, m.value[0], 0, 0, 0));
		m.value[2] = cu.MemMap(p, m.value[0], 0, handle, 0);
	}
	m.value[3] = cu.CtxSynchronize();
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static const char *expect_refused(int fd, uint64_t size, const char *what)
{
	struct role r = role_start("adopt-importer", NULL);
	struct message m = {.value = {size}};
	const char *trouble = try(r.channel, &m, fd, 10000);

	if (trouble)
		failed("who imports %s %s", what, trouble);
	if (m.value[1] == CUDA_SUCCESS && m.value[2] == CUDA_SUCCESS)
		failed("%s is imported and mapped", what);
	if (m.value[3] != CUDA_SUCCESS)
		failed("%s destroys the importer's context", what);
	role_kill(&r);
	return error_name((CUresult)(m.value[1] != CUDA_SUCCESS ? m.value[1] : m.value[2]));
}

/* Who gets a descriptor of a stranger asks the driver, and comes to no harm. */
static void lies_are_refused(void)
{
	int fds[2], file = memfd_create("data", MFD_CLOEXEC), fd;
	const char *as_file, *as_pipe, *as_larger;
	struct stat st;

	use_driver();
	if (file < 0 || ftruncate(file, (off_t)PIECE) != 0 || pipe(fds) != 0)
		skipped("no file in memory, or no pipe");
	as_file = expect_refused(file, PIECE, "a file in memory");
	as_pipe = expect_refused(fds[0], PIECE, "a pipe");
	fd = export_at(two_pieces(), &st);
	as_larger = expect_refused(fd, 2 * PIECE, "memory of half the size");
	ok("a file in memory: %s, a pipe: %s, memory of half the size: %s", as_file, as_pipe,
	   as_larger);
}

/* ---- other memory ---- */

static void other_memory(void)
{
	CUmemGenericAllocationHandle handle;
	unsigned type = 0, managed = 0;
	CUdeviceptr plain, both, base;
	CUresult result;
	size_t size;

	use_context();
	MUST(MemAlloc(&plain, 4096));
	MUST(MemAllocManaged(&both, PIECE, CU_MEM_ATTACH_GLOBAL));
	result = cu.MemRetainHandle(&handle, (void *)(uintptr_t)plain); /* NOLINT */
	if (result == CUDA_SUCCESS)
		failed("cuMemAlloc() memory has a handle of cuMemCreate()");
	MUST(PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, both));
	if (!managed)
		failed("managed memory is not said to be so");
	MUST(PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, both));
	MUST(MemGetAddressRange(&base, &size, plain));
	ok("a handle of cuMemAlloc() memory: %s; of 4096 bytes of it the range is %zu, %lu before; "
	   "managed memory is of type %u",
	   error_name(result), size, (unsigned long)(plain - base), type);
}

const struct fact adopt_facts[] = {
    {"adopt_what_lies_at_an_address", by_its_address},
    {"adopt_lies_are_refused", lies_are_refused},
    {"adopt_other_memory", other_memory},
    {NULL, NULL},
};

const struct play adopt_plays[] = {
    {"adopt-importer", importer},
    {NULL, NULL},
};
