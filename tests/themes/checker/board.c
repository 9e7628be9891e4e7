/* SPDX-License-Identifier: MIT */

/* The page and the pipe that the processes of a run share, and their dice. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/themes/checker/board.h"

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "share-checker: %s: %s\n", what, strerror(errno));
	exit(1);
}

struct board *board_map(int fd)
{
	void *page = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		give_up("mapping the board");
	return page;
}

struct board *board_new(int *fd)
{
	*fd = memfd_create("share-checker", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, sizeof(struct board)) < 0)
		give_up("making the board");
	return board_map(*fd);
}

const char *action_text(int action)
{
	static const char *const texts[] = {
#define ACTION_TEXT(name, text) [ACTION_##name] = (text),
	    ACTIONS(ACTION_TEXT)
#undef ACTION_TEXT
	};

	return action >= 0 && (size_t)action < sizeof(texts) / sizeof(texts[0]) ? texts[action]
										: "?";
}

/* ------------------------------------------------------------------------------------------- */

/* A packet a message: as many as fit are few, so tokens do not lie around. */
void pipe_new(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK | O_DIRECT) < 0)
		give_up("making the pipe of tokens");
}

bool pipe_send(int fd, const struct passed *m)
{
	return write(fd, m, sizeof(*m)) == sizeof(*m);
}

bool pipe_receive(int fd, struct passed *m)
{
	return read(fd, m, sizeof(*m)) == sizeof(*m);
}

/* ------------------------------------------------------------------------------------------- */

/* The finaliser of splitmix64. */
uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

struct dice dice_new(uint64_t seed, uint64_t index, uint64_t incarnation)
{
	return (struct dice){mix(mix(mix(seed + 1) + index) + incarnation)};
}

uint64_t dice_roll(struct dice *d, uint64_t sides)
{
	d->state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(d->state) % sides;
}
