/* SPDX-License-Identifier: MIT */

/*
 * How much of a device is taken at most, so that not each piece of memory has the descriptors of
 * all processes counted (backing.c). What was counted last is in a table that all processes have
 * which loaded this library, and whoever takes memory adds to it; what is given back is found at
 * the next count, which comes when the sum says that there is no more.
 *
 * A word of the table is of one device of one machine, with what is taken in pages, or with who
 * counts. Devices that meet in a word push each other out, and are counted then. Memory is in /proc
 * before it is added, and what was counted is only noted where nobody has added anything meanwhile:
 * so a word may say too much, but not less than what is taken.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/standin/standin.h"

#define WORDS    4096
#define PAGE     UINT64_C(4096)
#define OWNERS   (UINT64_C(1) << 28)
#define COUNTING (UINT64_C(1) << 35) /* somebody counts: the number below says who */

typedef _Atomic uint64_t word;

static word *words;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t counts;

/* Beside the library, where all can write who can load it. */
static void open_table(void)
{
	char path[PATH_MAX];
	Dl_info library;
	struct stat st;
	void *table;
	int fd;

	if (!dladdr(&once, &library) || library.dli_fname[0] != '/' ||
	    snprintf(path, sizeof(path), "%s.taken", library.dli_fname) >= (int)sizeof(path))
		return;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid())
		fchmod(fd, 0666);
	if (ftruncate(fd, WORDS * sizeof(*words)) == 0) {
		table =
		    mmap(NULL, WORDS * sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		words = table == MAP_FAILED ? NULL : table;
	}
	close(fd);
}

/* NULL: there is none for this machine. */
static word *word_of(unsigned device, uint64_t *owner)
{
	uint64_t number = (uint64_t)machine.number * STANDIN_DEVICES + device + 1;

	pthread_once(&once, open_table);
	if (!words || number >= OWNERS)
		return NULL;
	*owner = number << 36;
	return &words[number % WORDS];
}

bool taken_add(unsigned device, uint64_t size)
{
	uint64_t owner, old, pages = (size + PAGE - 1) / PAGE;
	word *w = word_of(device, &owner);

	if (!w)
		return false;
	old = atomic_load(w);
	do {
		if (old >> 36 << 36 != owner || old & COUNTING ||
		    ((old & (COUNTING - 1)) + pages) * PAGE > machine.memory)
			return false;
	} while (!atomic_compare_exchange_weak(w, &old, old + pages));
	return true;
}

uint64_t taken_count(unsigned device)
{
	uint64_t owner, mark;
	word *w = word_of(device, &owner);

	if (!w)
		return 0;
	mark = ((uint64_t)getpid() << 12 | (atomic_fetch_add(&counts, 1) & 0xfff)) & (COUNTING - 1);
	mark |= owner | COUNTING;
	atomic_store(w, mark);
	return mark;
}

void taken_counted(unsigned device, uint64_t mark, uint64_t bytes)
{
	uint64_t owner;
	word *w = word_of(device, &owner);

	if (w)
		atomic_compare_exchange_strong(w, &mark, owner | (bytes + PAGE - 1) / PAGE);
}
