/* SPDX-License-Identifier: MIT */

/* file_open() opens files, and says of all else that has a name what it is, without waiting. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/system/file.h"

static char folder[] = "/tmp/file-test-XXXXXX";

static void go_there(void)
{
	cr_assert(mkdtemp(folder) != NULL);
	cr_assert(eq(int, chdir(folder), 0));
}

static void leave(void)
{
	static const char *const names[] = {"file", "link", "fifo", "socket"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	rmdir(folder);
}

TestSuite(file, .init = go_there, .fini = leave, .timeout = 10);

Test(file, is_opened_to_be_read_from_its_beginning)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char text[8] = "";

	cr_assert(eq(sz, (size_t)write(fd, "text", 4), 4));
	close(fd);
	cr_assert(eq(int, symlink("file", "link"), 0));
	fd = file_open("link");
	cr_assert(ge(int, fd, 0));
	cr_expect(eq(sz, (size_t)read(fd, text, sizeof(text) - 1), 4));
	cr_expect(strcmp(text, "text") == 0);
	cr_expect(eq(int, fcntl(fd, F_GETFD), FD_CLOEXEC));
	close(fd);
}

Test(file, may_be_a_pipe_that_was_handed_on)
{
	char path[32], text[8] = "";
	int ends[2], fd;

	cr_assert(eq(int, pipe(ends), 0));
	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	cr_assert(eq(sz, (size_t)write(ends[1], "text", 4), 4));
	close(ends[1]);
	fd = file_open(path);
	cr_assert(ge(int, fd, 0));
	cr_expect(eq(sz, (size_t)read(fd, text, sizeof(text) - 1), 4));
	cr_expect(strcmp(text, "text") == 0);
	close(fd);
	close(ends[0]);
}

Test(file, is_not_what_else_has_a_name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(eq(int, mkfifo("fifo", 0600), 0));
	cr_assert(eq(int, bind(s, (const struct sockaddr *)&address, sizeof(address)), 0));
	cr_expect(eq(int, file_open("fifo"), -EINVAL));
	cr_expect(eq(int, file_open("socket"), -EINVAL));
	cr_expect(eq(int, file_open("/dev/null"), -EINVAL));
	cr_expect(strcmp(file_error(-EINVAL), "this is no file") == 0);
	cr_expect(eq(int, file_open("."), -EISDIR));
	cr_expect(eq(int, file_open("nothing"), -ENOENT));
	cr_expect(strcmp(file_error(-ENOENT), strerror(ENOENT)) == 0);
	close(s);
}
