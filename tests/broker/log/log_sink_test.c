/* SPDX-License-Identifier: MIT */

/*
 * Lines for a stderr that takes no more: whatever it is, writing comes back, and the open file that
 * others have as well is as it was.
 */

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "broker/log/sink.h"

#define LINES 20000 /* more than any of these holds */

TestSuite(log_sink, .timeout = 60);

static const char line[] =
    "a line of the log, as long as those that the broker writes when it is "
    "asked for something it does not do\n";

static void lead_stderr_to(int fd)
{
	cr_assert(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
	log_sink_open();
	cr_assert_not(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK);
}

/* How many lines are taken. */
static int fill(void)
{
	int n = 0;

	while (n < LINES && log_sink_write(line, sizeof(line) - 1))
		n++;
	return n;
}

/* What is there is whole lines, and as many. */
static void expect_lines(int fd, int n)
{
	char text[sizeof(line)] = "";

	for (int i = 0; i < n; i++) {
		size_t got = 0;

		while (got < sizeof(line) - 1) {
			ssize_t more = read(fd, text + got, sizeof(line) - 1 - got);

			cr_assert(more > 0);
			got += (size_t)more;
		}
		cr_assert_str_eq(text, line);
	}
}

static void expect_that_it_fills_and_empties(int in, int out)
{
	int n;

	lead_stderr_to(in);
	n = fill();
	cr_assert(n > 0 && n < LINES, "%d", n);
	cr_assert_not(log_sink_write(line, sizeof(line) - 1));
	expect_lines(out, n);
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	expect_lines(out, 1);
	cr_assert_not(fcntl(in, F_GETFL) & O_NONBLOCK);
}

Test(log_sink, a_pipe)
{
	int ends[2];

	cr_assert(pipe(ends) == 0);
	expect_that_it_fills_and_empties(ends[1], ends[0]);
}

/* Who may not open it again. */
Test(log_sink, a_pipe_of_another_user)
{
	int ends[2];

	if (geteuid() != 0)
		cr_skip_test("only root can be another user");
	cr_assert(pipe(ends) == 0);
	cr_assert(seteuid(4711) == 0);
	expect_that_it_fills_and_empties(ends[1], ends[0]);
}

Test(log_sink, a_socket)
{
	int ends[2];

	cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	expect_that_it_fills_and_empties(ends[1], ends[0]);
}

/* A line that is larger than the room there is, which a stream takes as much of as it can. */
Test(log_sink, a_line_that_was_broken_off_does_not_run_into_the_next)
{
	static char large[1 << 22], text[sizeof(large)];
	int ends[2];
	ssize_t part;

	memset(large, 'x', sizeof(large));
	large[sizeof(large) - 1] = '\n';
	cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	lead_stderr_to(ends[1]);
	cr_assert_not(log_sink_write(large, sizeof(large)));
	/* still no room: what is missing stays missing */
	cr_assert_not(log_sink_write(large, sizeof(large)));
	part = recv(ends[0], text, sizeof(text), MSG_DONTWAIT);
	cr_assert(part > 0 && part < (ssize_t)sizeof(large));
	cr_assert(memchr(text, '\n', (size_t)part) == NULL);
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	cr_assert(recv(ends[0], text, 1, 0) == 1 && text[0] == '\n');
	expect_lines(ends[0], 2);
}

Test(log_sink, a_terminal_that_somebody_has_stopped)
{
	struct termios raw;
	int master, slave;

	cr_assert(openpty(&master, &slave, NULL, NULL, NULL) == 0);
	cr_assert(tcgetattr(slave, &raw) == 0);
	cfmakeraw(&raw);
	cr_assert(tcsetattr(slave, TCSANOW, &raw) == 0);
	lead_stderr_to(slave);
	cr_assert(tcflow(slave, TCOOFF) == 0);
	cr_assert_not(log_sink_write(line, sizeof(line) - 1));
	cr_assert(tcflow(slave, TCOON) == 0);
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	expect_lines(master, 1);
}

/* As "2>file" makes it, without O_APPEND, and several write there in turn. */
Test(log_sink, a_file_in_which_others_write_as_well)
{
	int fd = memfd_create("log", MFD_CLOEXEC);

	lead_stderr_to(fd);
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	cr_assert(write(fd, line, sizeof(line) - 1) == sizeof(line) - 1);
	cr_assert(log_sink_write(line, sizeof(line) - 1));
	cr_assert(lseek(fd, 0, SEEK_SET) == 0);
	expect_lines(fd, 3);
}

Test(log_sink, a_pipe_whose_reader_has_gone)
{
	int ends[2];

	cr_assert(signal(SIGPIPE, SIG_IGN) != SIG_ERR); /* as main() does */
	cr_assert(pipe(ends) == 0);
	lead_stderr_to(ends[1]);
	close(ends[0]);
	cr_assert_not(log_sink_write(line, sizeof(line) - 1));
}
