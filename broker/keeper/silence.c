/* SPDX-License-Identifier: MIT */

#include "broker/keeper/silence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/keeper/common.h"
#include "broker/log/log.h"

/* The time between two looks. It is shorter if that would be less than LOOKS_MIN looks in hang_ms.
 * A look that is more than LATE_MS late does not count. */
#define LOOK_MS   1000
#define LOOKS_MIN 15
#define LATE_MS   500

struct rehearsal_time rehearsal_most(const struct kept_health *h, int journal)
{
	struct rehearsal_time most = {.mib = 0};
	struct stat st;

	/* the blocks of the file that are in use count, as most of it is only address space */
	if (fstat(journal, &st) == 0)
		most.mib = (unsigned)(((uint64_t)st.st_blocks * 512) >> 20);
	most.ms = 2 * rehearsal_hang_ms(h) + REHEARSAL_MIB_MS * most.mib;
	return most;
}

unsigned silence_look_ms(unsigned hang_ms)
{
	unsigned ms = hang_ms / LOOKS_MIN;

	return ms == 0 || ms > LOOK_MS ? LOOK_MS : ms;
}

void silence_begin(struct silence *s, unsigned beat, uint64_t now_ms)
{
	*s = (struct silence){.beat = beat, .looked_ms = now_ms};
}

unsigned silence_left_ms(const struct silence *s, unsigned hang_ms, uint64_t now_ms)
{
	unsigned every = silence_look_ms(hang_ms);
	uint64_t passed = now_ms - s->looked_ms;

	return passed < every ? every - (unsigned)passed : 0;
}

bool silence_look(struct silence *s, unsigned beat, unsigned hang_ms, uint64_t now_ms)
{
	unsigned every = silence_look_ms(hang_ms);
	uint64_t passed = now_ms - s->looked_ms;

	if (passed < every)
		return false;
	if (hang_ms == 0 || beat != s->beat || passed > every + LATE_MS) {
		silence_begin(s, beat, now_ms);
		return false;
	}
	s->looked_ms = now_ms;
	return ++s->looks >= hang_ms / every;
}

/* ------------------------------------------------------------------------------------------- */
/* What the process is doing */

/* Reads a file of the process's in /proc; an empty text if that cannot be read. */
static void read_of(pid_t pid, const char *file, char *out, size_t size)
{
	char path[64];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, out, size - 1);
		close(fd);
	}
	out[n > 0 ? n : 0] = '\0';
}

/* Finds what follows @key in the text of /proc/PID/status; an empty text if @key is not there. */
static const char *field_of(const char *status, const char *key)
{
	const char *line = strstr(status, key);

	return line ? line + strlen(key) + strspn(line + strlen(key), " \t") : "";
}

bool silence_is_fatal(struct silence *s, const char *who, pid_t pid, unsigned hang_ms)
{
	char status[2048], where[64];
	char state;

	read_of(pid, "status", status, sizeof(status));
	read_of(pid, "wchan", where, sizeof(where));
	state = field_of(status, "\nState:")[0];
	if (!state)
		state = '?';
	if (!where[0] || strcmp(where, "0") == 0)
		strcpy(where, "?");
	if (strtol(field_of(status, "\nTracerPid:"), NULL, 10) != 0) {
		s->looks = 0;
		return false;
	}
	if (state != 'D') {
		log_error(
		    "%s %d has not moved for %u ms (state %c, wchan %s): it hangs, and is "
		    "killed",
		    who, (int)pid, hang_ms, state, where);
		return true;
	}
	s->looks = 0; /* when the kernel lets it go, it has all of its time again */
	if (!s->is_reported)
		log_error(
		    "%s %d has not moved for %u ms (state D, wchan %s): the kernel does not "
		    "let it go, so it cannot be replaced now",
		    who, (int)pid, hang_ms, where);
	s->is_reported = true;
	return false;
}
