/* SPDX-License-Identifier: MIT */

/*
 * pipeline: one process makes frames, others work on them where they lie.
 *
 * The producer reads a picture and makes a film of it: each frame is drawn straight into a buffer
 * of its own, described as a tensor (height x width x channels), and published as `frames/current`.
 * Each consumer watches that name, looks every version up, computes a histogram and a hash from
 * the shared memory, and says that it is done by publishing `ack/<consumer>/<version>`. With all of
 * these seen the producer goes on, so no frame is missed. When the film is over it takes the name
 * away, and the consumers end.
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

#include <share/share.h>

#define POOL       "pipeline"
#define FRAMES     "frames/current"
#define ACK_FORMAT "ack/%d/%" PRIu64
#define TIMEOUT_MS 10000 /* only so that a stuck pipeline ends */
#define SEGMENT    "/memfd:share-segment"
#define PRODUCER   0 /* consumers are numbered from 1 */

struct options {
	const char *file;
	const char *kind;
	int consumers;
	int frames;
};

static const char *role; /* of this process; NULL in the parent, whose last line is the verdict */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	FILE *out = role ? stderr : stdout;
	va_list arguments;

	fprintf(out, "%s%s", role ? role : "demo: FAILED", role ? ": " : " ");
	va_start(arguments, format);
	vfprintf(out, format, arguments);
	va_end(arguments);
	fputc('\n', out);
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
	int turn; /* counts its frames */
	uint64_t version;
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

static void wait_for_consumers(share_client *client, int consumers, uint64_t version)
{
	share_buffer *ack;
	char name[64];

	for (int i = 1; i <= consumers; i++) {
		snprintf(name, sizeof(name), ACK_FORMAT, i, version);
		check(share_lookup(client, name, SHARE_RDONLY, TIMEOUT_MS, NULL, &ack), name);
		check(share_release(ack, NULL), "share_release");
	}
}

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

static void produce(const struct options *o, int reports)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	struct report report = {.from = PRODUCER};
	struct picture picture;
	unsigned char *canvas;
	share_client *client;
	share_buffer *frame;
	share_tensor tensor;
	share_pool *pool;

	read_picture(o->file, &picture);
	canvas = malloc(picture.size);
	if (!canvas)
		fail("out of memory");
	memcpy(report.shape, picture.shape, sizeof(report.shape));
	check(share_tensor_init(&tensor, SHARE_UINT8, 3, picture.shape), "share_tensor_init");
	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	publish.mode = SHARE_RDONLY;
	for (int k = 0; k < o->frames; k++) {
		report.turn = k;
		check(share_alloc(pool, mark_offset(picture.size) + sizeof(report.mark), NULL,
				  &frame),
		      "share_alloc");
		draw_into(frame, &picture, k, canvas);
		check(share_tensor_set(frame, &tensor), "share_tensor_set");
		report.place = find_place(frame, picture.size);
		check(share_publish_with(frame, FRAMES, &publish, NULL, &report.version), FRAMES);
		wait_for_consumers(client, o->consumers, report.version);
		/* they all have it, and wait for the next one before they look for the mark */
		if (getrandom(&report.mark, sizeof(report.mark), 0) != sizeof(report.mark))
			fail("getrandom: %s", strerror(errno));
		check(share_copy_from_host(frame, mark_offset(picture.size), &report.mark,
					   sizeof(report.mark), NULL),
		      "share_copy_from_host");
		check(share_release(frame, NULL), "share_release");
		send_report(reports, &report);
	}
	check(share_unpublish(client, FRAMES), "share_unpublish");
	share_pool_close(pool);
	share_disconnect(client);
	free(canvas);
	free(picture.file);
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer                                                                                  */

struct news {
	uint64_t version;
	bool over;
};

static void on_change(const share_name_event *event, void *data)
{
	struct news *news = data;

	if (strcmp(event->name, FRAMES) != 0) /* what was watched is a prefix */
		return;
	if (event->change == SHARE_UNPUBLISHED)
		news->over = true;
	else
		news->version = event->version;
}

static void wait_for_news(share_client *client)
{
	struct pollfd ready = {.fd = share_get_fd(client), .events = POLLIN};

	check(ready.fd, "share_get_fd");
	if (poll(&ready, 1, TIMEOUT_MS) == 0)
		fail("nothing new for %d s", TIMEOUT_MS / 1000);
	check(share_dispatch(client), "share_dispatch");
}

static void compute_from(share_buffer *frame, uint64_t offset, size_t size, struct result *out)
{
	unsigned char *copy;

	if (!gpu_of(frame)) {
		compute((const unsigned char *)share_ptr(frame) + offset, size, out);
		return;
	}
	copy = malloc(size);
	if (!copy)
		fail("out of memory");
	check(share_copy_to_host(frame, offset, copy, size, NULL), "share_copy_to_host");
	compute(copy, size, out);
	free(copy);
}

static void work_on(share_buffer *frame, struct report *report)
{
	share_tensor tensor;
	uint64_t size;

	check(share_tensor_get(frame, &tensor), "share_tensor_get");
	check(share_tensor_extent(&tensor, &size), "share_tensor_extent");
	if (tensor.dtype != SHARE_UINT8 || tensor.ndim != 3)
		fail("not a picture");
	size -= tensor.offset;
	report->version = share_name_version(frame);
	memcpy(report->shape, tensor.shape, sizeof(report->shape));
	compute_from(frame, tensor.offset, size, &report->result);
	report->place = find_place(frame, size);
}

/* When there is news, the producer has left its mark in the frame before. */
static void find_mark(share_buffer *frame, struct report *report)
{
	uint64_t size = share_size(frame) - sizeof(report->mark);

	check(share_copy_to_host(frame, size, &report->mark, sizeof(report->mark), NULL),
	      "share_copy_to_host");
}

static void consume(int number, int reports)
{
	struct report report = {.from = number};
	struct news news = {0};
	share_buffer *frame, *ack;
	share_client *client;
	share_watch *watch;
	share_pool *pool;
	char name[64];

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	check(share_alloc(pool, 1, NULL, &ack), "share_alloc"); /* only its name says anything */
	/* first watch, then look: whatever changes after the look is told */
	check(share_watch_names(client, FRAMES, on_change, &news, &watch), "share_watch_names");
	for (; !news.over; report.turn++) {
		check(share_lookup(client, FRAMES, SHARE_RDONLY, TIMEOUT_MS, NULL, &frame), FRAMES);
		work_on(frame, &report);
		snprintf(name, sizeof(name), ACK_FORMAT, number, report.version);
		check(share_publish(ack, name, NULL), name);
		while (!news.over && news.version <= report.version)
			wait_for_news(client);
		find_mark(frame, &report);
		check(share_release(frame, NULL), "share_release");
		send_report(reports, &report);
		check(share_unpublish(client, name), name); /* the producer has seen it */
	}
	share_unwatch(watch);
	check(share_release(ack, NULL), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

/* Each process connects for itself, at $SHARE_SOCKET: handles do not survive a fork. */
static void start(const struct options *o, int number, const int *reports)
{
	static char name[32];
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid > 0)
		return;
	close(reports[0]);
	role = name;
	if (number == PRODUCER) {
		strcpy(name, "producer");
		produce(o, reports[1]);
	} else {
		snprintf(name, sizeof(name), "consumer %d", number);
		consume(number, reports[1]);
	}
	exit(0);
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
			if (!got->version || got->version != made->version ||
			    memcmp(got->shape, p->shape, sizeof(p->shape)) != 0 ||
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
	for (int i = 0; i <= o->consumers; i++)
		start(o, i, reports);
	close(reports[1]); /* the processes have it */
	/* into a row for each process, until all have ended */
	while (read(reports[0], &r, sizeof(r)) == sizeof(r))
		if (r.turn < o->frames)
			table[r.from * o->frames + r.turn] = r;
	while (wait(&status) > 0)
		failed += status != 0;
	wrong = judge(o, &picture, table, &copies);
	if (failed || wrong || copies)
		fail("kind=%s consumers=%d processes=%d wrong=%d copies=%d", info.kind,
		     o->consumers, failed, wrong, copies);
	printf("demo: ok kind=%s consumers=%d bytes=%zu copies=%d\n", info.kind, o->consumers,
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
