/* SPDX-License-Identifier: MIT */

#include "tests/themes/survival/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <jansson.h>
#include <share/share.h>

#include "base/system/descriptor.h"
#include "broker/journal/inside.h"
#include "broker/keeper/common.h"

#define RUN_MAX     64 /* bytes that stand in one line */
#define GAP         8  /* zeros that end a run */
#define SAME_MIN    32 /* bytes that are worth a number */
#define PROCESS_MAX 64

#define must(condition) ((condition) ? (void)0 : must_failed(__LINE__, #condition))
static void must_failed(int line, const char *what)
{
	fprintf(stderr, "recording.c:%d: BUG: not so: %s: %s\n", line, what, strerror(errno));
	abort();
}

/* ------------------------------------------------------------------------------------------- */
/* Content                                                                                     */

static size_t same_bytes(const unsigned char *bytes, size_t size)
{
	size_t n = 1;

	while (n < size && bytes[n] == bytes[0])
		n++;
	return n;
}

static size_t run_of(const unsigned char *bytes, size_t size)
{
	size_t n = 0, zeros = 0;

	for (; n < size && n < RUN_MAX && zeros < GAP; n++)
		zeros = bytes[n] ? 0 : zeros + 1;
	return n - zeros;
}

static void add_content(json_t *list, uint64_t place, const unsigned char *bytes, size_t size)
{
	char text[32 + 2 * RUN_MAX];

	for (size_t i = 0, n; i < size; i += n) {
		int used = sprintf(text, "%" PRIx64 " ", place + i);

		n = same_bytes(bytes + i, size - i);
		if (bytes[i] == 0)
			continue;
		if (n >= SAME_MIN) {
			sprintf(text + used, "%zx*%02x", n, bytes[i]);
		} else {
			n = run_of(bytes + i, size - i);
			for (size_t k = 0; k < n; k++)
				used += sprintf(text + used, "%02x", bytes[i + k]);
		}
		must(json_array_append_new(list, json_string(text)) == 0);
	}
}

static json_t *content_of(int fd, uint64_t size)
{
	static unsigned char bytes[65536];
	json_t *list = json_array();
	ssize_t n;

	for (uint64_t at = 0; at < size; at += (uint64_t)n) {
		n = pread(fd, bytes, sizeof(bytes), (off_t)at);
		must(n > 0);
		add_content(list, at, bytes, (size_t)n);
	}
	return list;
}

static void write_run(int fd, const char *text)
{
	unsigned char bytes[RUN_MAX], *all;
	char *end;
	uint64_t place = strtoull(text, &end, 16);
	unsigned value;
	size_t n = 0;

	must(*end++ == ' ');
	if (strchr(end, '*')) {
		must(sscanf(end, "%zx*%x", &n, &value) == 2);
		all = malloc(n);
		memset(all, (int)value, n);
		must(pwrite(fd, all, n, (off_t)place) == (ssize_t)n);
		free(all);
		return;
	}
	for (; n < sizeof(bytes) && sscanf(end, "%2x", &value) == 1; end += 2)
		bytes[n++] = (unsigned char)value;
	must(!*end && pwrite(fd, bytes, n, (off_t)place) == (ssize_t)n);
}

/* Of a "size", with "bytes" in it. */
static void write_content(int fd, const json_t *from)
{
	const json_t *list = json_object_get(from, "bytes");

	must(ftruncate(fd, json_integer_value(json_object_get(from, "size"))) == 0);
	for (size_t i = 0; i < json_array_size(list); i++)
		write_run(fd, json_string_value(json_array_get(list, i)));
}

/* ------------------------------------------------------------------------------------------- */
/* The journal                                                                                 */

/* What is in entries that are free says nothing. */
static void clear_free_entries(struct chunk *chunk)
{
	for (uint32_t i = 0; i < chunk->n; i++) {
		unsigned char *entry = chunk->entries + (size_t)i * chunk->entry_size;

		if (entry_sum_now(entry) == 0)
			memset(entry, 0, chunk->entry_size);
	}
}

static void add_part(json_t *list, const struct journal *j, const void *part, uint64_t size)
{
	const unsigned char *bytes = part;

	add_content(list, (uint64_t)(bytes - j->memory), bytes, size);
}

/* All that counts: the head, the group that was committed last, and the records. */
static json_t *journal_content(const struct journal *j)
{
	const struct group *g = group_of(j, atomic_load(&j->head->committed));
	json_t *list = json_array();
	struct chunk *chunk = NULL;

	add_part(list, j, j->head, sizeof(*j->head));
	add_part(list, j, g, sizeof(*g) + g->size);
	while ((chunk = chunk_next(j, chunk))) {
		clear_free_entries(chunk);
		add_part(list, j, chunk, chunk->span * CHUNK_SIZE);
	}
	return json_pack("{s:I, s:o}", "size", (json_int_t)j->size, "bytes", list);
}

static json_t *count_records(const struct journal *j)
{
	json_t *counts = json_object();
	char type[16];

	for (int i = RECORD_NONE + 1; i < RECORD_TYPES; i++) {
		uint32_t n = journal_count(j, (enum record_type)i);

		snprintf(type, sizeof(type), "%d", i);
		if (n > 0)
			json_object_set_new(counts, type, json_integer(n));
	}
	return counts;
}

/* ------------------------------------------------------------------------------------------- */
/* Descriptors, written down                                                                   */

static void link_of(int fd, char link[static 64])
{
	char path[32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, 63);
	must(n > 0);
	link[n] = '\0';
}

static const char *sort_of(int fd)
{
	static const char *const sorts[] = {"socket", "eventfd", "pidfd", "memfd"};
	char link[64];

	link_of(fd, link);
	for (size_t i = 0; i < sizeof(sorts) / sizeof(sorts[0]); i++)
		if (strstr(link, sorts[i]))
			return sorts[i];
	fprintf(stderr, "recording.c: BUG: what sort of a descriptor is %s?\n", link);
	abort();
}

static json_int_t process_of(int pidfd)
{
	char path[40], line[128];
	long pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %ld", &pid) == 1)
			break;
	must(file && pid != 0);
	fclose(file);
	return pid;
}

/* The first one of the same memory: it has the content. */
static uint32_t same_memory(uint32_t id)
{
	struct stat st, other;

	must(fstat(kept_look(id), &st) == 0);
	for (uint32_t i = KEPT_FIXED + 1; i < id; i++)
		if (kept_look(i) >= 0 && fstat(kept_look(i), &other) == 0 &&
		    S_ISREG(other.st_mode) && st.st_dev == other.st_dev &&
		    st.st_ino == other.st_ino)
			return i;
	return 0;
}

static void describe_memory(json_t *d, const struct kept_table *t, uint32_t id)
{
	const struct kept_slot *slot = &t->slots[id - 1];
	uint32_t as = same_memory(id);
	int fd = kept_look(id);
	struct stat st;

	must(fstat(fd, &st) == 0);
	if (slot->address)
		json_object_set_new(d, "mapped", json_integer((json_int_t)slot->size));
	if (as) {
		json_object_set_new(d, "as", json_integer(as));
		json_object_set_new(d, "readonly",
				    json_boolean((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY));
		return;
	}
	json_object_set_new(d, "size", json_integer(st.st_size));
	json_object_set_new(d, "bytes", content_of(fd, (uint64_t)st.st_size));
}

static json_t *describe(const struct kept_table *t, uint32_t id)
{
	const char *sort = sort_of(kept_look(id));
	json_t *d = json_pack("{s:i, s:s}", "id", (int)id, "sort", sort);

	if (strcmp(sort, "pidfd") == 0)
		json_object_set_new(d, "process", json_integer(process_of(kept_look(id))));
	if (strcmp(sort, "memfd") == 0)
		describe_memory(d, t, id);
	return d;
}

static json_t *config_in_force(void)
{
	int fd = kept_look(KEPT_CONFIG);
	struct stat st;
	json_t *text;
	char *bytes;

	must(fstat(fd, &st) == 0);
	bytes = malloc((size_t)st.st_size + 1);
	must(pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size);
	text = json_stringn(bytes, (size_t)st.st_size);
	free(bytes);
	return text;
}

void recording_write(const char *path, const struct keeper *k)
{
	json_t *kept = json_array(), *all;
	struct journal *j;
	char why[256];

	must(journal_copy(k->journal, &j, why, sizeof(why)) == 0);
	for (uint32_t id = KEPT_FIXED + 1; id <= atomic_load(&k->table->n); id++)
		if (kept_look(id) >= 0)
			json_array_append_new(kept, describe(k->table, id));
	all = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", SHARE_VERSION, "config",
			config_in_force(), "records", count_records(j), "journal",
			journal_content(j), "kept", kept);
	must(all && json_dump_file(all, path, JSON_INDENT(1)) == 0);
	json_decref(all);
	journal_free(j);
}

/* ------------------------------------------------------------------------------------------- */
/* Descriptors, made again                                                                     */

/* A process that does nothing, and has the other ends of all sockets there are. */
static pid_t start_process(void)
{
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0) {
		execlp("cat", "cat", getenv(STAND_INS_VARIABLE), (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* One for each that there was. */
static int make_pidfd(json_int_t process)
{
	static struct {
		json_int_t was;
		pid_t pid;
	} all[PROCESS_MAX];
	size_t i = 0;
	int fd;

	while (i < PROCESS_MAX && all[i].was && all[i].was != process)
		i++;
	must(i < PROCESS_MAX);
	if (!all[i].was) {
		all[i].was = process;
		all[i].pid = start_process();
	}
	fd = (int)syscall(SYS_pidfd_open, all[i].pid, 0);
	if (process < 0) /* it was dead */
		kill(all[i].pid, SIGKILL);
	return fd;
}

static int make_socket(void)
{
	int ends[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
	must(fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
	return ends[0];
}

static int make_memory(const json_t *d, const int *made)
{
	const json_t *as = json_object_get(d, "as");
	char path[32];
	int fd;

	if (as) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", made[json_integer_value(as)]);
		return open(path,
			    O_CLOEXEC |
				(json_is_true(json_object_get(d, "readonly")) ? O_RDONLY : O_RDWR));
	}
	fd = memfd_create("share-recorded", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(fd >= 0);
	write_content(fd, d);
	return fd;
}

static int make(const json_t *d, const int *made)
{
	const char *sort = json_string_value(json_object_get(d, "sort"));

	if (strcmp(sort, "socket") == 0)
		return make_socket();
	if (strcmp(sort, "eventfd") == 0)
		return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (strcmp(sort, "pidfd") == 0)
		return make_pidfd(json_integer_value(json_object_get(d, "process")));
	return make_memory(d, made);
}

/* The keeper gives numbers out in order: what has none is made as well, and given up at the end. */
static void keep_all(const json_t *kept)
{
	const json_t *last = json_array_get(kept, json_array_size(kept) - 1), *d;
	json_int_t n = json_integer_value(json_object_get(last, "id"));
	int *made = calloc((size_t)n + 1, sizeof(*made)), *holes = calloc((size_t)n, sizeof(*made));
	size_t i = 0, n_holes = 0, mapped;

	for (json_int_t id = KEPT_FIXED + 1; id <= n; id++) {
		d = json_array_get(kept, i);
		if (json_integer_value(json_object_get(d, "id")) == id) {
			mapped = (size_t)json_integer_value(json_object_get(d, "mapped"));
			made[id] = make(d, made);
			i++;
		} else {
			mapped = 0;
			made[id] = holes[n_holes++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		}
		must(made[id] >= 0 && kept_keep(&made[id], &mapped, 1) == 0);
		must(kept_id(made[id]) == id);
	}
	start_process(); /* whose sockets are all of them */
	while (n_holes > 0)
		kept_close(holes[--n_holes]);
	kept_flush(kept_waiting());
	free(holes);
	free(made);
}

static void keep_config(const char *text)
{
	int fixed[KEPT_FIXED] = {-1, -1, -1, -1};

	fixed[KEPT_CONFIG - 1] = memfd_create("share-configuration", MFD_CLOEXEC);
	must(write(fixed[KEPT_CONFIG - 1], text, strlen(text)) == (ssize_t)strlen(text));
	must(kept_keep_fixed(fixed) == 0);
	fd_close(fixed[KEPT_CONFIG - 1]);
}

const char *recording_read(const char *path, const struct keeper *k)
{
	json_error_t error;
	json_t *all = json_load_file(path, 0, &error);

	must(all);
	write_content(k->journal, json_object_get(all, "journal"));
	keep_all(json_object_get(all, "kept"));
	keep_config(json_string_value(json_object_get(all, "config")));
	return json_string_value(json_object_get(all, "version"));
}
