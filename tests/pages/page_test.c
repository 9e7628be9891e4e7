/* SPDX-License-Identifier: MIT */

/* Shared memory with one writer. What the kernel guards of a sealed page timeline_test.c has. */

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "pages/page.h"

#define SIZE ((size_t)3 * 4096)

TestSuite(page, .timeout = 30);

Test(page, of_any_size_takes_no_memory_until_it_is_written)
{
	const size_t size = (size_t)80 << 20;
	_cleanup_fd_ int fd = page_create("test", size);
	struct stat st;
	void *page;

	cr_assert_geq(fd, 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_size, (off_t)size);
	cr_assert_eq(st.st_blocks, 0);
	cr_assert_eq(st.st_mode & 0777, 0);
	cr_assert_eq(page_map(fd, size, true, &page), 0);
	((volatile char *)page)[size - 1] = 1;
	page_unmap(page, size);
}

Test(page, mapping_more_than_there_is_fails)
{
	_cleanup_fd_ int fd = page_create("test", SIZE);
	void *page = NULL;

	cr_assert_eq(page_map(fd, SIZE + 1, false, &page), -EINVAL);
	cr_assert_null(page);
	cr_assert_eq(page_map(-1, SIZE, false, &page), -EBADF);
}

Test(page, keeps_its_writer_and_takes_no_other_once_sealed)
{
	_cleanup_fd_ int fd = page_create("test", SIZE);
	void *writer, *reader, *none = NULL;

	cr_assert_eq(page_map(fd, SIZE, true, &writer), 0);
	cr_assert_eq(page_seal(fd), 0);
	cr_assert_eq(page_map(fd, SIZE, true, &none), -EPERM);
	cr_assert_eq(page_map(fd, SIZE, false, &reader), 0);
	((volatile char *)writer)[7] = 42;
	cr_assert_eq(((volatile char *)reader)[7], 42);
	cr_assert(mprotect(reader, SIZE, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
	cr_assert_lt(ftruncate(fd, 0), 0);
	page_unmap(writer, SIZE);
	page_unmap(reader, SIZE);
	page_unmap(NULL, SIZE);
}

static int exit_of(pid_t child)
{
	int status;

	cr_assert_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Test(page, only_its_readers_mapping_survives_a_fork)
{
	_cleanup_fd_ int fd = page_create("test", SIZE);
	unsigned char there;
	void *writer, *reader;
	pid_t child;

	cr_assert_eq(page_map(fd, SIZE, true, &writer), 0);
	cr_assert_eq(page_map(fd, SIZE, false, &reader), 0);
	child = fork();
	if (child == 0)
		_exit((mincore(writer, 4096, &there) < 0 && errno == ENOMEM) |
		      (mincore(reader, 4096, &there) == 0) << 1);
	cr_assert_eq(exit_of(child), 3);
	page_unmap(writer, SIZE);
	page_unmap(reader, SIZE);
}
