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
 * The parent believes none of them. It reads the file itself and computes what should have come
 * out, in private memory. And it wants to see that no frame was copied on its way. "copies" counts
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
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#define PRODUCER   0 /* consumers are numbered from 1 */

struct options {
	const char *file;
	const char *kind;
	int consumers;
	int frames;
};

static const char *role = "pipeline"; /* of this process */

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

/* ------------------------------------------------------------------------------------------- */
/* The picture                                                                                 */

struct picture {
	unsigned char *file;
	const unsigned char *samples; /* in the file */
	size_t size;                  /* bytes of them */
	int64_t shape[3];             /* height, width, channels */
};

/* A number of a PNM header: after white space and comments, before white space. */
static bool read_number(const unsigned char *text, size_t size, size_t *at, int64_t *out)
{
	while (*at < size && (isspace(text[*at]) || text[*at] == '#')) {
		if (text[*at] == '#')
			while (*at + 1 < size && text[*at + 1] != '\n')
				++*at;
		++*at;
	}
	if (*at >= size || !isdigit(text[*at]))
		return false;
	for (*out = 0; *at < size && isdigit(text[*at]) && *out < 1 << 24; ++*at)
		*out = *out * 10 + (text[*at] - '0');
	return *at < size && isspace(text[*at]) && *out > 0 && *out < 1 << 24;
}

/* PGM (P5) or PPM (P6). What is neither is one row of bytes. */
static void parse_picture(struct picture *p, size_t file_size)
{
	const unsigned char *text = p->file;
	int64_t height, width, most;
	size_t at = 2;

	p->samples = text;
	p->size = file_size;
	p->shape[0] = p->shape[2] = 1;
	p->shape[1] = (int64_t)file_size;
	if (file_size < 3 || text[0] != 'P' || (text[1] != '5' && text[1] != '6') ||
	    !(isspace(text[2]) || text[2] == '#') || !read_number(text, file_size, &at, &width) ||
	    !read_number(text, file_size, &at, &height) ||
	    !read_number(text, file_size, &at, &most) || most > 65535)
		return;
	at++; /* one white space, then samples */
	p->shape[0] = height;
	p->shape[1] = width;
	/* samples of two bytes count as two channels: all that is done here is done to bytes */
	p->shape[2] = (text[1] == '6' ? 3 : 1) * (most > 255 ? 2 : 1);
	p->samples = text + at;
	p->size = (size_t)(p->shape[0] * p->shape[1] * p->shape[2]);
	if (p->size > file_size - at)
		fail("the picture ends after %zu of %zu bytes", file_size - at, p->size);
}

static void read_picture(const char *path, struct picture *out)
{
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f || fstat(fileno(f), &st) < 0)
		fail("%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		fail("%s: not a file with something in it", path);
	out->file = malloc((size_t)st.st_size);
	if (!out->file || fread(out->file, (size_t)st.st_size, 1, f) != 1)
		fail("%s: cannot be read", path);
	fclose(f);
	parse_picture(out, (size_t)st.st_size);
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
	struct place found = {0};
	unsigned major, minor;
	char *line = NULL;
	size_t space = 0;

	if (!maps)
		fail("/proc/self/maps: %s", strerror(errno));
	while (getline(&line, &space, maps) > 0) {
		char rights[5], file[64];

		/* start-end rights offset major:minor inode file */
		if (sscanf(line,
			   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %63[^\n]",
			   &start, &end, rights, &offset, &major, &minor, &inode, file) != 8)
			continue;
		if (first < start || first + size > end)
			continue;
		if (rights[3] == 's' && strncmp(file, SEGMENT, strlen(SEGMENT)) == 0)
			found = (struct place){(uint64_t)major << 32 | minor, inode,
					       offset + (first - start)};
	}
	free(line);
	fclose(maps);
	return found;
}

/* The UUID of the GPU that it is on; NULL: host memory. */
static const char *gpu_of(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check(share_buffer_get_info(b, &info), "share_buffer_get_info");
	return info.device;
}

static struct place find_place(share_buffer *b, size_t size)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct result uuid;

	check(share_buffer_get_info(b, &info), "share_buffer_get_info");
	if (!info.device)
		return find_in_maps(share_ptr(b), size);
	compute((const unsigned char *)info.device, strlen(info.device), &uuid);
	return (struct place){uuid.hash, info.segment, info.offset};
}

/* The mark is behind the picture. */
static uint64_t mark_offset(size_t size)
{
	return (size + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

/* What producer and consumers tell the parent of each frame, through a pipe. */
struct report {
	int from; /* PRODUCER, or the consumer's number */
	int turn; /* counts the frames; -1: ready for the first */
	int64_t shape[3];
	struct place place;
	uint64_t mark;        /* that it wrote, or found */
	struct result result; /* not the producer's */
};
_Static_assert(sizeof(struct report) <= PIPE_BUF, "reports of several processes do not mix");

static void send_report(int reports, const struct report *r)
{
	if (write(reports, r, sizeof(*r)) != sizeof(*r))
		fail("writing a report: %s", strerror(errno));
}

/* ------------------------------------------------------------------------------------------- */
/* The producer                                                                                */

/* In place, or on @canvas where the processor cannot reach the frame. */
static void draw_into(share_buffer *frame, const struct picture *p, int k, unsigned char *canvas)
{
	if (!gpu_of(frame)) {
		draw(p, k, share_ptr(frame));
		return;
	}
	draw(p, k, canvas);
	check(share_copy_from_host(frame, 0, canvas, p->size, NULL), "share_copy_from_host");
}

/* All consumers have the frame, and will have another message before they look for the mark. */
static void leave_mark(share_buffer *frame, struct report *r, int reports)
{
	uint64_t offset = share_size(frame) - sizeof(r->mark);

	if (getrandom(&r->mark, sizeof(r->mark), 0) != sizeof(r->mark))
		fail("getrandom: %s", strerror(errno));
	check(share_copy_from_host(frame, offset, &r->mark, sizeof(r->mark), NULL),
	      "share_copy_from_host");
	check(share_release(frame, NULL), "share_release");
	send_report(reports, r);
}

/* KEPT messages without a frame come first, and one last. */
static void produce(const struct options *o, share_pool *pool, share_channel *frames, int reports)
{
	struct report reported = {.from = PRODUCER};
	share_buffer *frame, *marked = NULL;
	struct picture picture;
	unsigned char *canvas;

	read_picture(o->file, &picture);
	canvas = malloc(picture.size);
	if (!canvas)
		fail("out of memory");
	for (int k = 0; k < KEPT; k++)
		check(share_send(frames, NULL, NULL, 0, NULL), "share_send");
	for (int k = 0; k < o->frames; k++) {
		check(share_alloc(pool, mark_offset(picture.size) + sizeof(reported.mark), NULL,
				  &frame),
		      "share_alloc");
		draw_into(frame, &picture, k, canvas);
		check(share_send(frames, frame, picture.shape, sizeof(picture.shape), NULL),
		      "share_send");
		if (marked)
			leave_mark(marked, &reported, reports);
		reported.turn = k;
		reported.place = find_place(frame, picture.size);
		marked = frame;
	}
	check(share_send(frames, NULL, NULL, 0, NULL), "share_send");
	leave_mark(marked, &reported, reports);
	free(canvas);
	free(picture.file);
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer                                                                                  */

static void compute_from(share_buffer *frame, size_t size, struct result *out)
{
	unsigned char *copy;

	if (!gpu_of(frame)) {
		compute(share_ptr(frame), size, out);
		return;
	}
	copy = malloc(size);
	if (!copy)
		fail("out of memory");
	check(share_copy_to_host(frame, 0, copy, size, NULL), "share_copy_to_host");
	compute(copy, size, out);
	free(copy);
}

static void work_on(const share_message *m, struct report *r)
{
	size_t size;

	r->turn = (int)m->number - KEPT;
	if (!m->buffer)
		return;
	memcpy(r->shape, m->data, sizeof(r->shape));
	size = (size_t)(r->shape[0] * r->shape[1] * r->shape[2]);
	if (m->data_size != sizeof(r->shape) ||
	    mark_offset(size) + sizeof(r->mark) != share_size(m->buffer))
		fail("not a picture");
	compute_from(m->buffer, size, &r->result);
	r->place = find_place(m->buffer, size);
}

/* The producer has left its mark in the frame. */
static void finish(share_message *m, struct report *r, int reports)
{
	if (m->buffer) {
		check(share_copy_to_host(m->buffer, share_size(m->buffer) - sizeof(r->mark),
					 &r->mark, sizeof(r->mark), NULL),
		      "share_copy_to_host");
		send_report(reports, r);
	}
	check(share_ack(m, NULL), "share_ack");
}

static void consume(int number, share_channel *frames, int reports)
{
	struct report r[KEPT] = {{.from = number, .turn = -1}, {.from = number}};
	share_message kept[KEPT], m;
	int n = 0, result;

	send_report(reports, &r[0]);
	while ((result = share_recv(frames, TIMEOUT_MS, NULL, &m)) == 0) {
		if (n >= KEPT)
			finish(&kept[n % KEPT], &r[n % KEPT], reports);
		kept[n % KEPT] = m;
		work_on(&m, &r[n++ % KEPT]);
	}
	if (result != SHARE_EPIPE) /* the producer has closed the channel */
		check(result, "share_recv");
	for (int end = n + KEPT; n < end; n++)
		finish(&kept[n % KEPT], &r[n % KEPT], reports);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

/* Each process connects for itself, at $SHARE_SOCKET: handles do not survive a fork. */
static void start(const struct options *o, int number, const int *reports)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *frames;
	share_client *client;
	static char name[40];
	share_pool *pool;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid > 0)
		return;
	close(reports[0]);
	role = name;
	snprintf(name, sizeof(name), number ? "pipeline: consumer %d" : "pipeline: producer",
		 number);
	options.pool = POOL;
	options.in_flight = KEPT + 1;
	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	check(share_channel_open(client, CHANNEL, number ? SHARE_CONSUMER : SHARE_PRODUCER,
				 &options, &frames),
	      "share_channel_open");
	if (number)
		consume(number, frames, reports[1]);
	else
		produce(o, pool, frames, reports[1]);
	share_channel_close(frames);
	share_pool_close(pool);
	share_disconnect(client);
	exit(0);
}

/* False: all who could have sent one have ended. */
static bool get_report(int reports, struct report *out)
{
	struct pollfd ready = {.fd = reports, .events = POLLIN};

	if (poll(&ready, 1, 2 * TIMEOUT_MS) == 0)
		fail("nothing new for %d s", 2 * TIMEOUT_MS / 1000);
	return read(reports, out, sizeof(*out)) == sizeof(*out);
}

/* The computation once more, on memory that nobody shares; returns how many results differ. */
static int judge(const struct options *o, const struct picture *p, const struct report *table,
		 int *copies)
{
	unsigned char *frame = malloc(p->size);
	struct result expected;
	int wrong = 0;

	if (!frame)
		fail("out of memory");
	for (int k = 0; k < o->frames; k++) {
		const struct report *made = &table[k], *got;

		draw(p, k, frame);
		compute(frame, p->size, &expected);
		for (int i = 1; i <= o->consumers; i++) {
			got = &table[i * o->frames + k];
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

static int run(const struct options *o)
{
	size_t n = (size_t)(o->consumers + 1) * (size_t)o->frames;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct report *table = calloc(n, sizeof(*table)), r;
	int reports[2], status, failed = 0, wrong, copies = 0;
	struct picture picture;
	share_client *client;
	share_pool *pool;

	if (!table)
		fail("out of memory");
	read_picture(o->file, &picture);
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1);
	options.kind = o->kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	printf("kind %s: %s\n", info.kind, info.reason);
	printf("%s: %" PRId64 " x %" PRId64 " x %" PRId64 ", %d frames\n", o->file,
	       picture.shape[0], picture.shape[1], picture.shape[2], o->frames);

	if (pipe(reports) < 0)
		fail("pipe: %s", strerror(errno));
	for (int i = 1; i <= o->consumers; i++)
		start(o, i, reports);
	for (int i = 1; i <= o->consumers; i++)
		get_report(reports[0], &r); /* ready: what is sent from now on, it gets */
	start(o, PRODUCER, reports);
	close(reports[1]); /* the processes have it */
	/* into a row for each process, until all have ended */
	while (get_report(reports[0], &r))
		if (r.turn >= 0 && r.turn < o->frames)
			table[r.from * o->frames + r.turn] = r;
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
	free(picture.file);
	free(table);
	return 0;
}

static void __attribute__((noreturn)) usage(FILE *out)
{
	fprintf(out,
		"usage: pipeline [--kind KIND] [--consumers N] [--frames N] FILE\n"
		"  --kind       auto (default), host, vmm or mempool\n"
		"  --consumers  processes that work on each frame, 1 to 64 (default: 3)\n"
		"  --frames     frames to make of FILE, 1 to 10000 (default: 32)\n"
		"FILE is a picture (PGM, PPM) or anything else.\n");
	exit(out == stdout ? 0 : 1);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
	    {"kind", required_argument, NULL, 'k'},
	    {"consumers", required_argument, NULL, 'c'},
	    {"frames", required_argument, NULL, 'f'},
	    {"help", no_argument, NULL, 'h'},
	    {NULL, 0, NULL, 0},
	};
	struct options o = {.kind = "auto", .consumers = 3, .frames = 32};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'k')
			o.kind = optarg;
		else if (c == 'c')
			o.consumers = atoi(optarg);
		else if (c == 'f')
			o.frames = atoi(optarg);
		else
			usage(c == 'h' ? stdout : stderr);
	}
	if (optind != argc - 1 || o.consumers < 1 || o.consumers > 64 || o.frames < 1 ||
	    o.frames > 10000)
		usage(stderr);
	o.file = argv[optind];
	return run(&o);
}
