/* SPDX-License-Identifier: MIT */

/*
 * Programs that have memory of a broker that is gone: after a broker and its keepers were killed,
 * or after a restart, they run on with it, and nothing else shows that. A live broker has a
 * descriptor of all memory that it has given out; so what a program has mapped, and no broker has
 * open, is of none. Only root sees both.
 *
 * The kernel answers for another process only when that one's memory is not locked, which a process
 * that hangs can be for ever. So a child looks, says what it finds line by line, and is killed when
 * its time is over.
 */

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/clock.h"
#include "tools/doctor/inside.h"

#define LIMIT_SECONDS 3
#define NAMED_MAX     12 /* programs; the others are counted */
#define OURS          "/memfd:share-"

/* ------------------------------------------------------------------------------------------- */
/* The child                                                                                   */

static bool is_number(const char *text)
{
	return *text >= '1' && *text <= '9';
}

/* Of whom nobody knows what it is called, that is "?"; nor does what it says break a line. */
static bool is_broker(const struct examination *e, const char *pid, char name[32])
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/%.16s/comm", pid);
	if (!read_text(e, path, name, 32) || !*name)
		strcpy(name, "?");
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return strcmp(name, "share-broker") == 0 || strcmp(name, "share-keeper") == 0;
}

/* "open INODE" for all that a broker has; "blind" when that cannot be seen. */
static void say_what_is_open(const struct examination *e, const char *pid, FILE *out)
{
	char path[4096], target[256];
	struct dirent *entry;
	struct stat st;
	ssize_t n;
	DIR *all;

	snprintf(path, sizeof(path), "%.3800s/proc/%.16s/fd", e->root, pid);
	all = opendir(path);
	if (!all) {
		if (errno == EACCES)
			fprintf(out, "blind\n");
		return;
	}
	while ((entry = readdir(all))) {
		n = readlinkat(dirfd(all), entry->d_name, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strncmp(target, OURS, strlen(OURS)) == 0 &&
		    fstatat(dirfd(all), entry->d_name, &st, 0) == 0)
			fprintf(out, "open %llu\n", (unsigned long long)st.st_ino);
	}
	closedir(all);
}

/* "PID UID INODE BYTES NAME" for each mapping of such memory. */
static void say_what_is_mapped(const struct examination *e, const char *pid, const char *name,
			       FILE *out)
{
	unsigned long long first, end, inode;
	char path[4096], *line = NULL;
	struct stat st;
	size_t size = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "%.3800s/proc/%.16s/maps", e->root, pid);
	maps = fopen(path, "re");
	if (!maps || fstat(fileno(maps), &st) < 0)
		st.st_uid = 0;
	while (maps && getline(&line, &size, maps) > 0)
		if (strstr(line, OURS) &&
		    sscanf(line, "%llx-%llx %*s %*s %*s %llu", &first, &end, &inode) == 3)
			fprintf(out, "%.16s %u %llu %llu %s\n", pid, (unsigned)st.st_uid, inode,
				end - first, name);
	free(line);
	if (maps)
		fclose(maps);
}

static void look_at_all(const struct examination *e, bool brokers, FILE *out)
{
	char path[4096], name[32];
	struct dirent *entry;
	DIR *all;

	snprintf(path, sizeof(path), "%.4000s/proc", e->root);
	all = opendir(path);
	while (all && (entry = readdir(all))) {
		if (!is_number(entry->d_name) || is_broker(e, entry->d_name, name) != brokers)
			continue;
		if (brokers)
			say_what_is_open(e, entry->d_name, out);
		else
			say_what_is_mapped(e, entry->d_name, name, out);
	}
	if (all)
		closedir(all);
}

/* What is new while it looks is open before or afterwards. */
static void look(const struct examination *e, FILE *out)
{
	look_at_all(e, true, out);
	fprintf(out, "programs\n");
	look_at_all(e, false, out);
	look_at_all(e, true, out);
	fprintf(out, "end\n");
}

/* ------------------------------------------------------------------------------------------- */
/* What it says                                                                                */

struct mapping {
	unsigned long long inode, bytes;
	unsigned uid;
	int pid;
	char name[32];
};

struct seen {
	unsigned long long *open;
	size_t n_open;
	struct mapping *mapped;
	size_t n_mapped;
	bool blind, brokers_done, ended;
};

/* False without memory. */
static bool keep_open(struct seen *s, unsigned long long inode)
{
	unsigned long long *more = reallocarray(s->open, s->n_open + 1, sizeof(*more));

	if (!more)
		return false;
	s->open = more;
	s->open[s->n_open++] = inode;
	return true;
}

static bool keep_mapped(struct seen *s, const struct mapping *m)
{
	struct mapping *more = reallocarray(s->mapped, s->n_mapped + 1, sizeof(*more));

	if (!more)
		return false;
	s->mapped = more;
	s->mapped[s->n_mapped++] = *m;
	return true;
}

static bool keep(struct seen *s, const char *line)
{
	unsigned long long inode;
	struct mapping m;

	if (sscanf(line, "open %llu", &inode) == 1)
		return keep_open(s, inode);
	if (sscanf(line, "%d %u %llu %llu %31[^\n]", &m.pid, &m.uid, &m.inode, &m.bytes, m.name) ==
	    5)
		return keep_mapped(s, &m);
	s->blind |= strcmp(line, "blind") == 0;
	s->brokers_done |= strcmp(line, "programs") == 0;
	s->ended |= strcmp(line, "end") == 0;
	return true;
}

/* All that comes until the end or the limit. */
static void listen_to(int fd, struct seen *s)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = clock_seconds() + LIMIT_SECONDS, left;
	char text[8192], *line, *rest;
	size_t have = 0;
	ssize_t n;

	while ((left = end - clock_seconds()) > 0 &&
	       (poll(&p, 1, (int)(left * 1000)) == 1 || errno == EINTR)) {
		n = p.revents ? read(fd, text + have, sizeof(text) - 1 - have) : 0;
		if (n <= 0)
			return;
		text[have += (size_t)n] = '\0';
		for (line = text; (rest = strchr(line, '\n')); line = rest + 1) {
			*rest = '\0';
			if (!keep(s, line))
				return;
		}
		have = strlen(line);
		memmove(text, line, have);
	}
}

/* ------------------------------------------------------------------------------------------- */

static int by_inode(const void *a, const void *b)
{
	unsigned long long one = *(const unsigned long long *)a;
	unsigned long long other = *(const unsigned long long *)b;

	return one < other ? -1 : one > other;
}

static int by_program(const void *a, const void *b)
{
	const struct mapping *one = a, *other = b;

	return one->pid < other->pid ? -1 : one->pid > other->pid;
}

static int by_size(const void *a, const void *b)
{
	const struct mapping *one = a, *other = b;

	return one->bytes > other->bytes ? -1 : one->bytes < other->bytes;
}

/* What is left are programs, the largest first, with the bytes of all that they have of no broker.
 * False when this process seems to be one: its broker is out of sight, in another namespace. */
static bool add_up(struct seen *s)
{
	size_t n = 0;

	if (s->n_open > 0)
		qsort(s->open, s->n_open, sizeof(*s->open), by_inode);
	if (s->n_mapped > 0)
		qsort(s->mapped, s->n_mapped, sizeof(*s->mapped), by_program);
	for (size_t i = 0; i < s->n_mapped; i++) {
		const struct mapping m = s->mapped[i];

		if (s->n_open > 0 &&
		    bsearch(&m.inode, s->open, s->n_open, sizeof(*s->open), by_inode))
			continue;
		if (m.pid == (int)getpid())
			return false;
		if (n > 0 && s->mapped[n - 1].pid == m.pid)
			s->mapped[n - 1].bytes += m.bytes;
		else
			s->mapped[n++] = m;
	}
	s->n_mapped = n;
	if (n > 0)
		qsort(s->mapped, n, sizeof(*s->mapped), by_size);
	return true;
}

static unsigned long long kib(unsigned long long bytes)
{
	return bytes / 1024;
}

static const char *not_all(const struct seen *s)
{
	return s->ended ? "" : "; not all programs could be looked at in time";
}

static void say(struct examination *e, const struct seen *s)
{
	char list[900] = "";
	size_t size = 0, i;

	for (i = 0; i < s->n_mapped && i < NAMED_MAX; i++) {
		const struct mapping *m = &s->mapped[i];

		size += (size_t)snprintf(list + size, sizeof(list) - size,
					 "%s%d (%s, uid %u): %llu KiB", i ? ", " : "", m->pid,
					 m->name, m->uid, kib(m->bytes));
	}
	if (i < s->n_mapped)
		snprintf(list + size, sizeof(list) - size, ", and %zu that have less",
			 s->n_mapped - i);
	found(e, "old memory", NOTE,
	      "it counts for no limit and comes back when they end, and they share nothing with "
	      "programs of the next broker; memory of GPUs is not seen here",
	      "restart them", "%zu program%s memory of a broker that is gone: %s%s", s->n_mapped,
	      s->n_mapped == 1 ? " has" : "s have", list, not_all(s));
}

static void judge(struct examination *e, struct seen *s)
{
	if (s->blind)
		found(e, "old memory", OK, NULL, NULL,
		      "only root sees which programs have memory of a broker that is gone");
	else if (!s->brokers_done || !add_up(s))
		found(e, "old memory", OK, NULL, NULL,
		      "from here it cannot be seen which programs have memory of a broker that is "
		      "gone");
	else if (s->n_mapped > 0)
		say(e, s);
	else
		found(e, "old memory", OK, NULL, NULL,
		      "no program that is seen from here has any of a broker that is gone%s",
		      not_all(s));
}

void examine_old_memory(struct examination *e)
{
	struct seen s = {0};
	int ends[2];
	pid_t child;

	if (pipe(ends) < 0)
		return;
	child = fork();
	if (child == 0) {
		FILE *out = fdopen(ends[1], "w");

		close(ends[0]);
		if (out && setvbuf(out, NULL, _IOLBF, 0) == 0)
			look(e, out);
		_exit(0);
	}
	close(ends[1]);
	if (child > 0) {
		listen_to(ends[0], &s);
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		judge(e, &s);
	}
	close(ends[0]);
	free(s.open);
	free(s.mapped);
}
