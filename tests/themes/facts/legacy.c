/* SPDX-License-Identifier: MIT */

/*
 * Facts about cuMemAlloc() memory that others have by a handle of cuIpcGetMemHandle(): of what it
 * is a handle, how often it may be opened, and what is left of it when its maker frees it or dies.
 */

#include <string.h>

#include "tests/themes/facts/gpu.h"

#define PIECE (2 * MIB)

static unsigned attribute(CUdeviceptr p, CUpointer_attribute which)
{
	unsigned long long value = 0;
	CUresult result = cu.PointerGetAttribute(&value, which, p);

	return result == CUDA_SUCCESS ? (value != 0) : 2;
}

static unsigned can_be_shared(CUdeviceptr p)
{
	return attribute(p, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
}

static CUdeviceptr plain(uint64_t size)
{
	CUdeviceptr p;

	MUST(MemAlloc(&p, size));
	return p;
}

static CUipcMemHandle handle_of(CUdeviceptr p)
{
	CUipcMemHandle handle;

	MUST(IpcGetMemHandle(&handle, p));
	return handle;
}

static CUdeviceptr base_of(CUdeviceptr p)
{
	CUdeviceptr base;

	MUST(MemGetAddressRange(&base, NULL, p));
	return base;
}

static uint64_t size_at(CUdeviceptr p)
{
	size_t size;

	MUST(MemGetAddressRange(NULL, &size, p));
	return size;
}

static CUdeviceptr of_pool(void)
{
	CUmemPoolProps properties = pool_properties();
	CUmemoryPool pool;
	CUdeviceptr p;

	MUST(MemPoolCreate(&pool, &properties));
	MUST(MemAllocFromPoolAsync(&p, PIECE, pool, NULL));
	MUST(StreamSynchronize(NULL));
	return p;
}

static CUdeviceptr of_vmm(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handle;

	MUST(MemCreate(&handle, PIECE, &properties, 0));
	return vmm_map(handle, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void what_is_said_of_it(void)
{
	CUdeviceptr odd, whole, pool, vmm;
	CUipcMemHandle first, second;

	use_context();
	odd = plain(4096);
	whole = plain(2 * PIECE);
	pool = of_pool();
	vmm = of_vmm();
	if (can_be_shared(odd) != 1 || can_be_shared(whole) != 1)
		failed("it is not said to be capable of CUDA's older IPC");
	if (can_be_shared(vmm) == 1 || can_be_shared(pool) == 1)
		failed("memory of cuMemCreate() or of a pool is said to be: %u, %u",
		       can_be_shared(vmm), can_be_shared(pool));
	if (attribute(pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 1)
		failed("the pool of memory of a pool is not told");
	first = handle_of(whole);
	second = handle_of(whole);
	ok("4096 bytes are %lu, from %lu before on, 4000256 are %lu, 4 MiB are %lu; two handles of "
	   "one allocation are %s",
	   (unsigned long)size_at(odd), (unsigned long)(odd - base_of(odd)),
	   (unsigned long)size_at(plain(4000256)), (unsigned long)size_at(whole),
	   memcmp(&first, &second, sizeof(first)) == 0 ? "equal" : "different");
}

/* ------------------------------------------------------------------------------------------- */

enum question { OPEN, CLOSE, READ };

/* value[0]: the question; value[1]: its place; READ: value[2]: where from there, and then what. */
static void opener(int channel)
{
	CUdeviceptr at[4] = {0}, base;
	CUipcMemHandle handle;
	unsigned char byte;
	struct message m;
	size_t size;

	use_context();
	for (;;) {
		hear(channel, &m, NULL);
		switch ((enum question)m.value[0]) {
		case OPEN:
			memcpy(&handle, m.bytes, sizeof(handle));
			m.result = (int32_t)cu.IpcOpenMemHandle(&at[m.value[1]], handle,
								CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
			m.value[2] = at[m.value[1]];
			m.value[3] = m.value[4] = 0;
			if (m.result == CUDA_SUCCESS &&
			    cu.MemGetAddressRange(&base, &size, at[m.value[1]]) == CUDA_SUCCESS) {
				m.value[3] = base;
				m.value[4] = size;
				m.value[5] = can_be_shared(at[m.value[1]]);
			}
			break;
		case CLOSE:
			m.result = (int32_t)cu.IpcCloseMemHandle(at[m.value[1]]);
			break;
		case READ:
			m.result = (int32_t)cu.MemcpyDtoH(&byte, at[m.value[1]] + m.value[2], 1);
			m.value[2] = byte;
			break;
		}
		tell(channel, &m, -1);
	}
}

static struct message put(struct role *r, enum question question, uint64_t place,
			  const CUipcMemHandle *handle)
{
	struct message m = {.value = {question, place}};
	const char *trouble;

	if (handle)
		memcpy(m.bytes, handle, sizeof(*handle));
	trouble = try(r->channel, &m, -1, 10000);
	if (trouble)
		failed("who %ss it %s",
		       question == OPEN   ? "open"
		       : question == READ ? "read"
					  : "close",
		       trouble);
	return m;
}

static void expect_read_at(struct role *r, uint64_t place, uint64_t offset, unsigned value,
			   const char *when)
{
	struct message m = {.value = {READ, place, offset}};
	const char *trouble = try(r->channel, &m, -1, 10000);

	if (trouble)
		failed("%s, who reads it %s", when, trouble);

	if (m.result != CUDA_SUCCESS || m.value[2] != value)
		failed("%s it is %s, %#lx, not %#x", when, error_name((CUresult)m.result),
		       (unsigned long)m.value[2], value);
}

static void expect_read(struct role *r, uint64_t place, unsigned value, const char *when)
{
	expect_read_at(r, place, 0, value, when);
}

static struct message opened(struct role *r, uint64_t place, const CUipcMemHandle *handle)
{
	struct message m = put(r, OPEN, place, handle);

	if (m.result != CUDA_SUCCESS)
		failed("opening number %lu: %s", (unsigned long)place,
		       error_name((CUresult)m.result));
	return m;
}

/* Two buffers of one allocation are two handles to who opens them. */
static void opened_twice(void)
{
	struct role r = role_start("legacy-opener", NULL);
	CUipcMemHandle first, second, small;
	struct message a, b, c;
	CUdeviceptr p, q;

	use_context();
	p = plain(2 * PIECE);
	plain(512);
	q = plain(4096); /* which may lie in the middle of what the driver has made */
	must(fill(p, 0x33, PIECE), "fill");
	must(fill(q, 0x44, 4096), "fill");
	first = handle_of(p);
	second = handle_of(p);
	small = handle_of(base_of(q));
	a = opened(&r, 0, &first);
	b = opened(&r, 1, &second);
	c = opened(&r, 2, &small);
	if (a.value[2] != b.value[2])
		failed("it is mapped at %#lx and %#lx", (unsigned long)a.value[2],
		       (unsigned long)b.value[2]);
	if (a.value[2] % PIECE)
		failed("it is mapped at %#lx", (unsigned long)a.value[2]);
	if (put(&r, CLOSE, 0, NULL).result != CUDA_SUCCESS)
		failed("it cannot be closed");
	expect_read(&r, 1, 0x33, "closed once of twice");
	expect_read_at(&r, 2, q - base_of(q), 0x44, "of a small allocation");
	if (put(&r, CLOSE, 1, NULL).result != CUDA_SUCCESS)
		failed("it cannot be closed a second time");
	ok("at one address, counted; of 4096 bytes, %lu from %lu on are mapped; what was opened is "
	   "said to be shareable: %lu",
	   (unsigned long)c.value[4], (unsigned long)(c.value[2] - c.value[3]),
	   (unsigned long)a.value[5]);
}

/* ------------------------------------------------------------------------------------------- */

/* Makes it, tells its handle, and frees it when it is told to: value[0] says so. */
static void maker(int channel)
{
	struct message m = {.result = 0};
	CUipcMemHandle handle;
	CUdeviceptr p, q;

	use_context();
	p = plain(PIECE);
	must(fill(p, 0x55, PIECE), "fill");
	handle = handle_of(p);
	memcpy(m.bytes, &handle, sizeof(handle));
	tell(channel, &m, -1);
	for (;;) {
		hear(channel, &m, NULL);
		MUST(MemFree(p));
		q = plain(PIECE);
		must(fill(q, 0x66, PIECE), "fill");
		m.value[1] = p;
		m.value[2] = q;
		tell(channel, &m, -1);
	}
}

static CUipcMemHandle hear_handle(struct role *r)
{
	CUipcMemHandle handle;
	struct message m;

	hear(r->channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	return handle;
}

static void maker_dies(void)
{
	struct role m = role_start("legacy-maker", NULL), r = role_start("legacy-opener", NULL);
	CUipcMemHandle handle;
	struct message again;

	use_driver();
	handle = hear_handle(&m);
	opened(&r, 0, &handle);
	expect_read(&r, 0, 0x55, "while its maker lives");
	role_kill(&m);
	expect_read(&r, 0, 0x55, "when its maker is dead");
	again = put(&r, OPEN, 1, &handle);
	if (again.result == CUDA_SUCCESS)
		expect_read(&r, 1, 0x55, "opened once more");
	ok("who has it open reads it still; to open it once more: %s",
	   error_name((CUresult)again.result));
}

/* What a program does that breaks its word. Nobody can be kept from reading; it is to do no harm.
 */
static void freed_under_a_reader(void)
{
	struct role m = role_start("legacy-maker", NULL), r = role_start("legacy-opener", NULL);
	struct message freed = {.result = 0}, read, again;
	CUipcMemHandle handle;

	use_driver();
	handle = hear_handle(&m);
	opened(&r, 0, &handle);
	expect_read(&r, 0, 0x55, "at first");
	ask(m.channel, &freed, -1);
	read = put(&r, READ, 0, NULL);
	again = put(&r, OPEN, 1, &handle);
	ok("the maker's next allocation is at %s address; the reader: %s, %#lx; to open the old "
	   "handle: %s",
	   freed.value[1] == freed.value[2] ? "the same" : "another",
	   error_name((CUresult)read.result), (unsigned long)read.value[2],
	   error_name((CUresult)again.result));
}

const struct fact legacy_facts[] = {
    {"legacy_what_is_said_of_it", what_is_said_of_it},
    {"legacy_opened_twice", opened_twice},
    {"legacy_maker_dies", maker_dies},
    {"legacy_freed_under_a_reader", freed_under_a_reader},
    {NULL, NULL},
};

const struct play legacy_plays[] = {
    {"legacy-opener", opener},
    {"legacy-maker", maker},
    {NULL, NULL},
};
