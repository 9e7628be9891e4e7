/* SPDX-License-Identifier: MIT */

/*
 * pipeline: one process makes frames, others work on them where they lie.
 *
 * The producer reads a picture and makes a film of it: each frame is drawn straight into a buffer
 * and sent through a channel, in broadcast, with its shape as the data of the message. Each
 * consumer computes a histogram and a hash from the shared memory and acknowledges the frame, whose
 * memory is the producer's again then. When the film is over the producer closes the channel, and
 * the consumers end.
 *
 * The producer believes none of them. It draws all frames once more, in private memory, computes
 * what should have come out, and wants to see that no frame was copied on its way. "copies" counts
 * the frames of which a consumer cannot show both of these:
 *
 *   - The frame lies in the same place for producer and consumer. With host memory the kernel is
 *     asked: /proc/self/maps says which place of which file is mapped, and the same place of the
 *     same file, mapped MAP_SHARED in both, is the same physical memory. With GPU memory the kernel
 *     does not know, and it is the place that the library says: device, segment and offset.
 *   - What the producer writes into the frame when all consumers have it already, a random mark
 *     behind the picture, is seen by the consumers through the handle they have had all along. A
 *     copy that somebody made for them on the way would not have it.
 *
 * For the second, a consumer keeps each message until it has received the second one after it, and
 * the channel has no more than three under way. So when a message could be sent, all consumers have
 * the one before it; and when they have the next one, the mark has been made.
 *
 * Processors cannot reach GPU memory: there the producer draws in memory of its own and copies to
 * the device, and consumers copy from it to compute. These are the work, and not counted; with
 * kernels, as in cuda/cuda_pipeline.cu, the work is done in place as well.
 */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#define POOL       "pipeline"
#define CHANNEL    "pipeline"
#define KEPT       2     /* messages, by each consumer */
#define TIMEOUT_MS 10000 /* only so that a stuck pipeline ends */
#define SEGMENT    "/memfd:share-segment"

static char role[40] = "pipeline"; /* of this process */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", role);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

static void check(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%s)", what, share_strerror(result), share_error_detail());
}

static void check_system(bool fine, const char *what)
{
	if (!fine)
		fail("%s: %s", what, strerror(errno));
}

/* ------------------------------------------------------------------------------------------- */
/* The film                                                                                    */

struct picture {
	unsigned char *samples;
	size_t size;
	int64_t shape[3]; /* height, width, channels */
};

/* A number of a PNM header: after white space and comments, before one white space. */
static bool read_number(FILE *f, int64_t *out)
{
	int c;

	while (isspace(c = getc(f)) || c == '#')
		if (c == '#')
			while ((c = getc(f)) != '\n' && c != EOF)
				;
	ungetc(c, f);
	return fscanf(f, "%8" SCNd64, out) == 1 && *out > 0 && isspace(getc(f));
}

/* PGM (P5) or PPM (P6). What is neither is one row of bytes. */
static void read_picture(const char *path, struct picture *p)
{
	FILE *f = fopen(path, "re");
	char type[2], next[2];
	struct stat st;
	int64_t most;
	size_t left;

	check_system(f && fstat(fileno(f), &st) == 0, path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		fail("%s: not a file with something in it", path);
	if (fscanf(f, "P%1[56]%1[# \t\r\n]", type, next) == 2 && ungetc(*next, f) != EOF &&
	    read_number(f, &p->shape[1]) && read_number(f, &p->shape[0]) && read_number(f, &most) &&
	    most <= 65535) {
		/* samples of two bytes count as two channels: all is done to bytes here */
		p->shape[2] = (*type == '6' ? 3 : 1) * (most > 255 ? 2 : 1);
	} else {
		rewind(f);
		p->shape[0] = p->shape[2] = 1;
		p->shape[1] = st.st_size;
	}
	p->size = (size_t)(p->shape[0] * p->shape[1] * p->shape[2]);
	left = (size_t)(st.st_size - ftell(f));
	if (p->size > left)
		fail("the picture ends after %zu of %zu bytes", left, p->size);
	p->samples = malloc(p->size);
	check_system(p->samples && fread(p->samples, p->size, 1, f) == 1, path);
	fclose(f);
}

/* Frame @k of the film: every row @k higher, every sample @k brighter. */
static void draw(const struct picture *p, int k, unsigned char *frame)
{
	size_t height = (size_t)p->shape[0], row = p->size / height;

	for (size_t y = 0; y < height; y++) {
		const unsigned char *from = p->samples + (y + (size_t)k) % height * row;

		for (size_t x = 0; x < row; x++)
			frame[y * row + x] = (unsigned char)(from[x] + k);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* What is computed, and where it was found                                                    */

struct result {
	uint64_t hash; /* FNV-1a */
	uint64_t histogram[256];
};

static void compute(const unsigned char *samples, size_t size, struct result *out)
{
	memset(out, 0, sizeof(*out));
	out->hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < size; i++) {
		out->histogram[samples[i]]++;
		out->hash = (out->hash ^ samples[i]) * 0x100000001b3;
	}
}

/* A place in a file, or on a GPU. number 0: the memory is not that of a segment, or private to the
 * process. */
struct place {
	uint64_t device; /* of the file; the hash of a GPU's UUID */
	uint64_t number; /* inode, or the segment's */
	uint64_t offset;
};

static struct place find_in_maps(const void *data, size_t size)
{
	uint64_t first = (uintptr_t)data, start, end, offset, inode;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], rights[5], file[64];
	struct place found = {0};
	unsigned major, minor;

	check_system(maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		/* start-end rights offset major:minor inode file */
		if (sscanf(line,
			   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %63[^\n]",
			   &start, &end, rights, &offset, &major, &minor, &inode, file) == 8 &&
		    first >= start && first + size <= end && rights[3] == 's' &&
		    strncmp(file, SEGMENT, strlen(SEGMENT)) == 0)
			found = (struct place){(uint64_t)major << 32 | minor, inode,
					       offset + (first - start)};
	fclose(maps);
	return found;
}

/* The UUID of the GPU that it is on; NULL: host memory. */
static const char *gpu_of(share_buffer *b, struct place *place)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct result uuid;

	check(share_buffer_get_info(b, &info), "share_buffer_get_info");
	if (!info.device) {
		*place = find_in_maps(share_ptr(b), share_size(b));
	} else {
		compute((const unsigned char *)info.device, strlen(info.device), &uuid);
		*place = (struct place){uuid.hash, info.segment, info.offset};
	}
	return info.device;
}

/* What a process knows of a frame. All write theirs into one table, of memory that they inherit: a
 * row for the producer, and one for each consumer, numbered from 1. */
struct report {
	int64_t shape[3];
	struct place place;
	uint64_t mark;        /* that it wrote, or found */
	struct result result; /* not the producer's */
};

struct options {
	const char *file, *kind;
	int consumers, frames;
};

static struct report *report_of(struct report *table, const struct options *o, int row, int frame)
{
	return &table[(size_t)row * (size_t)o->frames + (size_t)frame];
}

static share_channel *open_channel(share_client *client, int as)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *frames;

	options.pool = POOL;
	options.in_flight = KEPT + 1;
	options.send_timeout_ms = TIMEOUT_MS;
	check(share_channel_open(client, CHANNEL, as, &options, &frames), "share_channel_open");
	return frames;
}

/* ------------------------------------------------------------------------------------------- */
/* The producer                                                                                */

/* All consumers have the frame, and will have another message before they look for the mark, which
 * is behind the picture. */
static void leave_mark(share_buffer *frame, struct report *r)
{
	size_t offset = share_size(frame) - sizeof(r->mark);

	check_system(getrandom(&r->mark, sizeof(r->mark), 0) == sizeof(r->mark), "getrandom");
	check(share_copy_from_host(frame, offset, &r->mark, sizeof(r->mark), NULL),
	      "share_copy_from_host");
	check(share_release(frame, NULL), "share_release");
}

/* KEPT messages without a frame come first, and one last. */
static void produce(const struct options *o, const struct picture *p, share_client *client,
		    share_pool *pool, struct report *table)
{
	share_channel *frames = open_channel(client, SHARE_PRODUCER);
	unsigned char *canvas = malloc(p->size);
	share_buffer *frame, *marked = NULL;

	check_system(canvas, "malloc");
	for (int k = 0; k < KEPT; k++)
		check(share_send(frames, NULL, NULL, 0, NULL), "share_send");
	for (int k = 0; k < o->frames; k++) {
		check(share_alloc(pool, p->size + sizeof(table->mark), NULL, &frame),
		      "share_alloc");
		if (gpu_of(frame, &report_of(table, o, 0, k)->place)) {
			draw(p, k, canvas);
			check(share_copy_from_host(frame, 0, canvas, p->size, NULL),
			      "share_copy_from_host");
		} else {
			draw(p, k, share_ptr(frame));
		}
		check(share_send(frames, frame, p->shape, sizeof(p->shape), NULL), "share_send");
		if (marked)
			leave_mark(marked, report_of(table, o, 0, k - 1));
		marked = frame;
	}
	check(share_send(frames, NULL, NULL, 0, NULL), "share_send");
	leave_mark(marked, report_of(table, o, 0, o->frames - 1));
	share_channel_close(frames);
	free(canvas);
}

/* The computation once more, on memory that nobody shares; returns how many results differ. */
static int judge(const struct options *o, const struct picture *p, struct report *table,
		 int *copies)
{
	unsigned char *frame = malloc(p->size);
	struct result expected;
	int wrong = 0;

	check_system(frame, "malloc");
	for (int k = 0; k < o->frames; k++) {
		const struct report *made = report_of(table, o, 0, k), *got;

		draw(p, k, frame);
		compute(frame, p->size, &expected);
		for (int i = 1; i <= o->consumers; i++) {
			got = report_of(table, o, i, k);
			if (memcmp(got->shape, p->shape, sizeof(p->shape)) != 0 ||
			    memcmp(&got->result, &expected, sizeof(expected)) != 0) {
				printf("consumer %d, frame %d: wrong or missed\n", i, k);
				wrong++;
			}
			if (!got->place.number || got->mark != made->mark ||
			    memcmp(&got->place, &made->place, sizeof(made->place)) != 0) {
				printf("consumer %d, frame %d: not the producer's memory\n", i, k);
				++*copies;
			}
		}
	}
	free(frame);
	return wrong;
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer                                                                                  */

static void work_on(const share_message *m, struct report *r)
{
	size_t size = share_size(m->buffer) - sizeof(r->mark);
	unsigned char *copy = NULL;

	memcpy(r->shape, m->data, sizeof(r->shape));
	if (m->data_size != sizeof(r->shape) ||
	    size != (size_t)(r->shape[0] * r->shape[1] * r->shape[2]))
		fail("not a picture");
	if (gpu_of(m->buffer, &r->place)) {
		copy = malloc(size);
		check_system(copy, "malloc");
		check(share_copy_to_host(m->buffer, 0, copy, size, NULL), "share_copy_to_host");
	}
	compute(copy ? copy : share_ptr(m->buffer), size, &r->result);
	free(copy);
}

/* The producer has left its mark in the frame. */
static void finish(share_message *m, struct report *r)
{
	if (m->buffer)
		check(share_copy_to_host(m->buffer, share_size(m->buffer) - sizeof(r->mark),
					 &r->mark, sizeof(r->mark), NULL),
		      "share_copy_to_host");
	check(share_ack(m, NULL), "share_ack");
}

/* In a process of its own, which connects for itself: handles do not survive a fork. */
static void consume(const struct options *o, int number, int ready, struct report *table)
{
	struct report *reports[KEPT], none;
	share_message kept[KEPT], m;
	share_channel *frames;
	share_client *client;
	int n = 0, r;

	check(share_connect(NULL, &client), "share_connect");
	frames = open_channel(client, SHARE_CONSUMER);
	check_system(write(ready, "", 1) == 1, "write");
	for (; (r = share_recv(frames, TIMEOUT_MS, NULL, &m)) == 0; n++) {
		if (n >= KEPT)
			finish(&kept[n % KEPT], reports[n % KEPT]);
		kept[n % KEPT] = m;
		reports[n % KEPT] =
		    m.buffer ? report_of(table, o, number, (int)m.number - KEPT) : &none;
		if (m.buffer)
			work_on(&m, reports[n % KEPT]);
	}
	if (r != SHARE_EPIPE) /* the producer has closed the channel */
		check(r, "share_recv");
	for (int end = n + KEPT; n < end; n++)
		finish(&kept[n % KEPT], reports[n % KEPT]);
	share_channel_close(frames);
	share_disconnect(client);
}

static void start_consumers(const struct options *o, struct report *table)
{
	int ready[2];
	char byte;

	check_system(pipe(ready) == 0, "pipe");
	fflush(stdout);
	for (int i = 1; i <= o->consumers; i++) {
		pid_t pid = fork();

		check_system(pid >= 0, "fork");
		if (pid == 0) {
			snprintf(role, sizeof(role), "pipeline: consumer %d", i);
			consume(o, i, ready[1], table);
			exit(0);
		}
	}
	close(ready[1]);
	/* what is sent from now on, they get */
	for (int i = 0; i < o->consumers; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("a consumer did not come up");
	close(ready[0]);
}

/* ------------------------------------------------------------------------------------------- */

static int run(const struct options *o)
{
	size_t size = sizeof(struct report) * (size_t)(o->consumers + 1) * (size_t)o->frames;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	int status, failed = 0, wrong, copies = 0;
	struct report *table;
	struct picture picture;
	share_client *client;
	share_pool *pool;

	read_picture(o->file, &picture);
	table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check_system(table != MAP_FAILED, "mmap");
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* for the consumers */
	options.kind = o->kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	printf("kind %s: %s\n", info.kind, info.reason);
	printf("%s: %" PRId64 " x %" PRId64 " x %" PRId64 ", %d frames\n", o->file,
	       picture.shape[0], picture.shape[1], picture.shape[2], o->frames);

	start_consumers(o, table);
	produce(o, &picture, client, pool, table);
	while (wait(&status) > 0)
		failed += status != 0;
	wrong = judge(o, &picture, table, &copies);
	if (failed || wrong || copies)
		fail("kind=%s consumers=%d processes=%d wrong=%d copies=%d", info.kind,
		     o->consumers, failed, wrong, copies);
	printf("pipeline: ok kind=%s consumers=%d bytes=%zu copies=%d\n", info.kind, o->consumers,
	       picture.size * (size_t)o->frames * (size_t)o->consumers, copies);

	share_pool_close(pool);
	share_disconnect(client);
	munmap(table, size);
	free(picture.samples);
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {.kind = "auto", .consumers = 3, .frames = 32};
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0, known = !help;
	int i;

	for (i = 1; known && i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--kind") == 0)
			o.kind = argv[i + 1];
		else if (strcmp(argv[i], "--consumers") == 0)
			o.consumers = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--frames") == 0)
			o.frames = atoi(argv[i + 1]);
		else
			known = false;
	}
	if (known && i == argc - 1 && o.consumers >= 1 && o.consumers <= 64 && o.frames >= 1 &&
	    o.frames <= 10000) {
		o.file = argv[i];
		return run(&o);
	}
	fprintf(help ? stdout : stderr,
		"usage: pipeline [--kind KIND] [--consumers N] [--frames N] FILE\n"
		"  --kind       auto (default), host, vmm or mempool\n"
		"  --consumers  processes that work on each frame, 1 to 64 (default: 3)\n"
		"  --frames     frames to make of FILE, 1 to 10000 (default: 32)\n"
		"FILE is a picture (PGM, PPM) or anything else.\n");
	return !help;
}
