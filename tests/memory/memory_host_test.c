/* SPDX-License-Identifier: MIT */

/*
 * Host memory, both halves: what the exporter seals stays sealed, and what the importer is told is
 * not believed. The recipes of hostile exporters are made by hand.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/export.h"
#include "memory/import.h"

#define SIZE (UINT64_C(3) << 20)

static const struct memory_kind *host;
static struct memory_segment segment;
static struct failure failure;

static void make_segment(void)
{
	host = memory_kind_by_id(MEMORY_HOST);
	cr_assert_eq(memory_host_exporter.create(SIZE, 0, &segment, &failure), 0, "%s",
		     failure.text);
}

static void drop_segment(void)
{
	memory_host_exporter.destroy(&segment, NULL);
}

TestSuite(memory_host, .init = make_segment, .fini = drop_segment, .timeout = 30);

static struct memory_mapping import(bool writable)
{
	struct memory_mapping m;

	cr_assert_eq(memory_import(host, &segment.recipe,
				   writable ? segment.fd : segment.fd_readonly, writable, &m,
				   &failure),
		     0, "%s", failure.text);
	return m;
}

static void assert_refused(const struct memory_recipe *recipe, int fd, int error, const char *text)
{
	struct memory_mapping m = {.ordinal = 77}, before = m;

	cr_expect_eq(memory_import(host, recipe, fd, false, &m, &failure), error);
	cr_expect(strstr(failure.text, text), "'%s' is not in '%s'", text, failure.text);
	cr_expect_not(failure.fatal);
	cr_expect(memcmp(&m, &before, sizeof(m)) == 0, "outputs are untouched on failure");
}

/* Whether storing to @p is a fault. */
static sigjmp_buf out_of_fault;

static void on_fault(int number)
{
	siglongjmp(out_of_fault, number);
}

static bool store_faults(void *p)
{
	bool faulted;

	signal(SIGSEGV, on_fault);
	signal(SIGBUS, on_fault);
	faulted = sigsetjmp(out_of_fault, 1) != 0;
	if (!faulted)
		*(volatile char *)p = 'x';
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	return faulted;
}

/* A multiple of 2 MiB where nothing is. */
static uint64_t free_address(void)
{
	char *p =
	    mmap(NULL, 2 * SIZE + MEMORY_ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t address = (uint64_t)(uintptr_t)p;

	cr_assert_neq(p, MAP_FAILED);
	munmap(p, 2 * SIZE + MEMORY_ALIGNMENT);
	return (address + MEMORY_ALIGNMENT - 1) & ~(MEMORY_ALIGNMENT - 1);
}

/* ------------------------------------------------------------------------------------------- */

Test(memory_host, what_one_writes_another_reads)
{
	struct memory_mapping w = import(true), r = import(false);

	cr_assert_neq(w.address, r.address);
	strcpy((char *)w.address + SIZE - 6, "hello");
	cr_assert_str_eq((char *)r.address + SIZE - 6, "hello");
	cr_assert_eq(w.ordinal, -1);
	memory_unmap(&w);
	memory_unmap(&r);
	cr_assert_null(r.address);
	memory_unmap(&r);
}

Test(memory_host, mappings_start_at_multiples_of_the_largest_alignment)
{
	for (int i = 0; i < 8; i++) {
		struct memory_mapping m = import(i % 2);

		cr_assert_eq((uintptr_t)m.address % MEMORY_ALIGNMENT, 0);
		if (i % 3)
			memory_unmap(&m);
	}
}

Test(memory_host, segments_have_identities_of_their_own)
{
	struct memory_segment other;

	cr_assert_eq(memory_host_exporter.create(SIZE, 0, &other, &failure), 0);
	cr_assert(memcmp(other.recipe.identity, segment.recipe.identity, 16) != 0);
	cr_assert_eq(other.recipe.size, SIZE);
	memory_host_exporter.destroy(&other, NULL);
	cr_assert_eq(other.fd, -1);
	memory_host_exporter.destroy(&other, NULL);
}

Test(memory_host, nobody_can_change_the_size)
{
	cr_assert(ftruncate(segment.fd, 4096) < 0 && errno == EPERM);
	cr_assert(ftruncate(segment.fd, 2 * SIZE) < 0 && errno == EPERM);
	cr_assert(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && errno == EPERM);
}

Test(memory_host, a_reader_cannot_write)
{
	struct memory_mapping r = import(false), w = {.ordinal = 77};

	cr_assert(store_faults(r.address));
	cr_assert_eq(memory_import(host, &segment.recipe, segment.fd_readonly, true, &w, &failure),
		     SHARE_ESYSTEM);
	cr_assert(strstr(failure.text, "Permission denied"), "%s", failure.text);
	cr_assert_eq(w.ordinal, 77);
	memory_unmap(&r);
}

Test(memory_host, a_reading_mapping_becomes_writable_where_it_is)
{
	struct memory_mapping m = import(false), other = import(true);
	void *before = m.address;

	cr_assert(memory_make_writable(&m, segment.fd_readonly, &failure) < 0);
	cr_assert(!m.writable && store_faults(m.address));
	cr_assert_eq(memory_make_writable(&m, segment.fd, &failure), 0, "%s", failure.text);
	cr_assert(m.writable && m.address == before);
	cr_assert_not(store_faults(m.address));
	cr_assert_eq(*(char *)other.address, 'x');
	cr_assert_eq(memory_make_writable(&m, -1, &failure), 0, "it is already");
	memory_unmap(&m);
	memory_unmap(&other);
}

Test(memory_host, a_segment_lies_at_the_address_asked_for)
{
	struct memory_mapping m;

	segment.recipe.address = free_address();
	m = import(true);
	cr_assert_eq((uint64_t)(uintptr_t)m.address, segment.recipe.address);
	cr_assert_not(store_faults(m.address));
	memory_unmap(&m);
	m = import(false);
	cr_assert_eq((uint64_t)(uintptr_t)m.address, segment.recipe.address);
	memory_unmap(&m);
}

Test(memory_host, an_address_in_use_is_refused_and_left_alone)
{
	char *there;

	segment.recipe.address = free_address();
	/* its last page is enough */
	there =
	    mmap((char *)(uintptr_t)segment.recipe.address + SIZE - 4096, 4096,
		 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	cr_assert_neq(there, MAP_FAILED);
	strcpy(there, "mine");
	assert_refused(&segment.recipe, segment.fd, SHARE_EBUSY, "something else is mapped");
	cr_assert_str_eq(there, "mine");
}

Test(memory_host, a_recipe_larger_than_the_memory_is_refused)
{
	struct memory_recipe recipe = segment.recipe;

	recipe.size += 4096;
	assert_refused(&recipe, segment.fd, SHARE_EPROTO, "the descriptor has 3145728");
	recipe.size = (uint64_t)1 << 62;
	assert_refused(&recipe, segment.fd, SHARE_EPROTO, "the descriptor has 3145728");
}

Test(memory_host, recipes_whose_numbers_make_no_sense_are_refused)
{
	static const uint64_t sizes[] = {
	    0, 1, 4097, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)INT64_MAX + 1};
	static const uint64_t addresses[] = {1,
					     4096,
					     MEMORY_ALIGNMENT + 1,
					     UINT64_MAX,
					     UINT64_MAX - MEMORY_ALIGNMENT + 1,
					     (uint64_t)INT64_MAX + 1};
	struct memory_recipe recipe;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		recipe = segment.recipe;
		recipe.size = sizes[i];
		assert_refused(&recipe, segment.fd, SHARE_EPROTO, "bytes");
	}
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		recipe = segment.recipe;
		recipe.address = addresses[i];
		assert_refused(&recipe, segment.fd, SHARE_EPROTO, "lies at 0x");
	}
	recipe = segment.recipe;
	recipe.device[15] = 1;
	assert_refused(&recipe, segment.fd, SHARE_EPROTO, "on a device");
	recipe = segment.recipe;
	recipe.flags = MEMORY_ON_MIG; /* of what device? */
	assert_refused(&recipe, segment.fd, SHARE_EPROTO, "has flags 0x1");
	recipe.flags = 1u << 31; /* of a later version */
	assert_refused(&recipe, segment.fd, SHARE_EPROTO, "has flags 0x80000000");
}

Test(memory_host, descriptors_of_something_else_are_refused)
{
	int ends[2];

	assert_refused(&segment.recipe, -1, SHARE_ESYSTEM, "Bad file descriptor");
	cr_assert_eq(pipe(ends), 0);
	assert_refused(&segment.recipe, ends[0], SHARE_EPROTO, "the descriptor has 0");
	close(ends[0]);
	close(ends[1]);
}

Test(memory_host, zeroed_memory_reads_as_zeros_and_costs_nothing)
{
	struct memory_mapping m = import(true);
	int fd = dup(segment.fd);
	struct stat st;

	memset(m.address, 'a', SIZE);
	cr_assert_eq(memory_host_zero(&segment, 0, SIZE), 0);
	cr_assert_eq(*((char *)m.address + SIZE / 2), 0);
	memset(m.address, 0, 1);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert(st.st_blocks * 512 <= 8192, "%lld bytes are left", (long long)st.st_blocks * 512);
	close(fd);
	memory_unmap(&m);
}

/* As that of huge pages is, which are the segment's own and do not go back. */
Test(memory_host, memory_that_keeps_its_pages_is_written_with_zeros_and_no_more_of_it)
{
	const uint64_t from = 5 << 10, size = (uint64_t)(5 << 19) + 3;
	struct memory_mapping m = import(true);
	struct memory_segment own = segment;
	char *at = m.address;

	own.recipe.flags |= MEMORY_HUGETLB;
	memset(at, 'a', SIZE);
	cr_assert_eq(memory_host_zero(&own, from, size), 0);
	for (uint64_t i = 0; i < SIZE; i++)
		cr_assert_eq(at[i], i >= from && i < from + size ? 0 : 'a', "byte %lu",
			     (unsigned long)i);
	memory_unmap(&m);
}

/* What is not there cannot be written to, which is an error and not the end of the broker. */
Test(memory_host, memory_that_lacks_its_pages_is_not_zeroed)
{
	struct memory_segment none = segment;

	none.recipe.flags |= MEMORY_HUGETLB;
	none.fd = memfd_create("short", MFD_CLOEXEC);
	cr_assert_eq(memory_host_zero(&none, 0, SIZE), -EFAULT);
	close(none.fd);
}

Test(memory_host, a_forked_child_has_no_mapping)
{
	struct memory_mapping m = import(true);
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(store_faults(m.address) ? 0 : 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	memory_unmap(&m);
}

Test(memory_host, a_segment_above_the_limit_of_file_sizes_is_refused_with_its_name)
{
	struct memory_segment s = {.fd = 77};
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN); /* as the broker does */
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = 1 << 20;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(memory_host_exporter.create(SIZE, 0, &s, &failure), SHARE_ENOMEM);
	cr_assert(strstr(failure.text, "(RLIMIT_FSIZE, ulimit -f, is 1024 KiB)"), "%s",
		  failure.text);
	cr_assert_eq(s.fd, 77);
}

Test(memory_host, impossible_sizes_are_refused_by_the_exporter)
{
	struct memory_segment s = {.fd = 77};

	cr_assert_eq(memory_host_exporter.create(0, 0, &s, &failure), SHARE_EINVAL);
	cr_assert_eq(memory_host_exporter.create((uint64_t)INT64_MAX + 1, 0, &s, &failure),
		     SHARE_EINVAL);
	cr_assert_eq(s.fd, 77);
	cr_assert(strstr(failure.text, "9223372036854775808"), "%s", failure.text);
}

/* ------------------------------------------------------------------------------------------- */

TestSuite(memory_kind, .timeout = 30);

Test(memory_kind, kinds_are_found_by_name_and_by_number)
{
	static const char *const names[] = {"vmm",    "mempool", "legacy",
					    "pinned", "host",    "adopted"};

	for (size_t i = 0; i < 6; i++) {
		const struct memory_kind *k = memory_kind_by_name(names[i], strlen(names[i]));

		cr_assert(k);
		cr_assert_str_eq(k->name, names[i]);
		cr_assert_eq(memory_kind_by_id(k->id), k);
		cr_assert_eq(k->on_device, k->id != MEMORY_HOST && k->id != MEMORY_ADOPTED);
	}
	cr_assert_null(memory_kind_by_name("auto", 4));
	cr_assert_null(memory_kind_by_name("hos", 3));
	cr_assert_null(memory_kind_by_name("", 0));
	cr_assert_null(memory_kind_by_id(0));
	cr_assert_null(memory_kind_by_id(7));
}

Test(memory_kind, uuids_are_written_as_the_driver_writes_them)
{
	static const unsigned char uuid[16] = {0x5f, 0xd4, 0xf0, 0x87, 0x86, 0xf3, 0x7a, 0x43,
					       0xb7, 0x11, 0x47, 0x71, 0x31, 0x3a, 0xfc, 0x50};
	struct memory_recipe recipe = {.size = 1};
	char text[MEMORY_UUID_TEXT];

	memory_uuid_text(uuid, text);
	cr_assert_str_eq(text, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	memcpy(recipe.device, uuid, sizeof(uuid));
	memory_recipe_device(&recipe, text);
	cr_assert_str_eq(text, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	recipe.flags = MEMORY_ON_MIG;
	memory_recipe_device(&recipe, text);
	cr_assert_str_eq(text, "MIG-5fd4f087-86f3-7a43-b711-4771313afc50");
}

Test(memory_kind, uuids_are_read_as_they_are_written_and_nothing_else_is)
{
	static const char *const none[] = {
	    "",
	    "GPU",
	    "GPU-",
	    "gpu-5fd4f087-86f3-7a43-b711-4771313afc50",
	    "GPU-5fd4f087-86f3-7a43-b711-4771313afc5",
	    "GPU-5fd4f087-86f3-7a43-b711-4771313afc500",
	    "GPU-5fd4f08786f3-7a43-b711-4771313afc50-",
	    "GPU-5fd4f087-86f3-7a43-b711-4771313afc5g",
	    "GPU-5fd4f087-86f3-7a43-b711- 771313afc50",
	};
	unsigned char uuid[16];
	char text[MEMORY_UUID_TEXT];

	cr_assert(memory_uuid_parse("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", uuid));
	memory_uuid_text(uuid, text);
	cr_assert_str_eq(text, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	cr_assert(memory_uuid_parse("MIG-5FD4F087-86F3-7A43-B711-4771313AFC50", uuid));
	memory_uuid_text(uuid, text);
	cr_assert_str_eq(text, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		cr_assert_not(memory_uuid_parse(none[i], uuid), "'%s'", none[i]);
}
