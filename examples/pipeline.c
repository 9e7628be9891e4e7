/* SPDX-License-Identifier: MIT */

/*
 * pipeline: one process makes frames, and others work on them without a copy.
 *
 * The producer reads a picture and makes a film of it: it draws each frame straight into a buffer
 * and sends it through a channel, in broadcast, with the frame's shape as the data of the message.
 * Each consumer computes a histogram and a hash from the shared memory and acknowledges the frame;
 * then the producer can use its memory again. When the film is over, the producer closes the
 * channel, and the consumers end. All of that is in this file; what is drawn and computed is in
 * pipeline_film.c.
 *
 * At the end the producer proves that the results are right and that no frame was copied on its way
 * (pipeline_proof.c). For that it writes a mark into each frame after all consumers have received
 * it, and the consumers have to find the mark through the handle that they had before. So a
 * consumer keeps each message until it has received the second one after it, and the channel has at
 * most three messages under way. When a message could be sent, all consumers have received the one
 * before it; and when they receive the next one, the mark has been written. Two messages without a
 * frame before the film and one after it make this true for its first and last frames too.
 *
 * CPUs cannot reach GPU memory. With GPU memory, the producer draws in memory of its own and copies
 * to the device, and consumers copy from it to compute. These copies are part of the work, and are
 * not counted. With kernels, as in cuda/cuda_pipeline.cu, the work is done in place.
 */
#include "pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#define POOL       "pipeline"
#define CHANNEL    "pipeline"
#define KEPT       2     /* messages that each consumer keeps */
#define TIMEOUT_MS 10000 /* only so that a stuck pipeline ends */

static char role[40] = "pipeline"; /* what this process is, for messages */

void fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", role);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

void check(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%s)", what, share_strerror(result), share_error_detail());
}

void check_system(bool fine, const char *what)
{
	if (!fine)
		fail("%s: %s", what, strerror(errno));
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

static void send_frame(share_channel *frames, share_buffer *frame, const struct picture *p, int k,
		       struct report *r)
{
	unsigned char *canvas;

	if (!find_frame(frame, &r->place)) {
		draw(p, k, share_ptr(frame));
	} else {
		canvas = malloc(p->size);
		check_system(canvas, "malloc");
		draw(p, k, canvas);
		check(share_copy_from_host(frame, 0, canvas, p->size, NULL),
		      "share_copy_from_host");
		free(canvas);
	}
	check(share_send(frames, frame, p->shape, sizeof(p->shape), NULL), "share_send");
}

static void send_none(share_channel *frames)
{
	check(share_send(frames, NULL, NULL, 0, NULL), "share_send");
}

static void produce(const struct options *o, const struct picture *p, share_client *client,
		    share_pool *pool, struct report *reports)
{
	share_channel *frames = open_channel(client, SHARE_PRODUCER);
	share_buffer *frame, *sent = NULL;
	struct report *r;

	for (int k = 0; k < KEPT; k++)
		send_none(frames);
	for (int k = 0; k < o->frames; k++) {
		r = report_of(reports, o, 0, k);
		check(share_alloc(pool, p->size + sizeof(r->mark), NULL, &frame), "share_alloc");
		send_frame(frames, frame, p, k, r);
		if (sent) /* all consumers have received it, since this one could be sent */
			leave_mark(sent, r - 1);
		sent = frame;
	}
	send_none(frames);
	leave_mark(sent, report_of(reports, o, 0, o->frames - 1));
	share_channel_close(frames);
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
	if (find_frame(m->buffer, &r->place)) {
		copy = malloc(size);
		check_system(copy, "malloc");
		check(share_copy_to_host(m->buffer, 0, copy, size, NULL), "share_copy_to_host");
	}
	compute(copy ? copy : share_ptr(m->buffer), size, &r->result);
	free(copy);
}

/* Called when the producer has left its mark in the frame. */
static void finish(share_message *m, struct report *r)
{
	if (m->buffer)
		read_mark(m->buffer, r);
	check(share_ack(m, NULL), "share_ack");
}

/* Runs in a process of its own, which connects itself: handles do not survive a fork. */
static void consume(const struct options *o, int number, int ready, struct report *reports)
{
	struct report *kept_reports[KEPT], none;
	share_message kept[KEPT] = {SHARE_MESSAGE_INIT}, m = SHARE_MESSAGE_INIT;
	share_channel *frames;
	share_client *client;
	int n = 0, r;

	check(share_connect(NULL, &client), "share_connect");
	frames = open_channel(client, SHARE_CONSUMER);
	check_system(write(ready, "", 1) == 1, "write");
	for (; (r = share_recv(frames, TIMEOUT_MS, NULL, &m)) == 0; n++) {
		if (n >= KEPT)
			finish(&kept[n % KEPT], kept_reports[n % KEPT]);
		kept[n % KEPT] = m;
		kept_reports[n % KEPT] =
		    m.buffer ? report_of(reports, o, number, (int)m.number - KEPT) : &none;
		if (m.buffer)
			work_on(&m, kept_reports[n % KEPT]);
	}
	if (r != SHARE_EPIPE) /* the producer has closed the channel */
		check(r, "share_recv");
	for (int end = n + KEPT; n < end; n++)
		finish(&kept[n % KEPT], kept_reports[n % KEPT]);
	share_channel_close(frames);
	share_disconnect(client);
}

static void start_consumers(const struct options *o, struct report *reports)
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
			consume(o, i, ready[1], reports);
			exit(0);
		}
	}
	close(ready[1]);
	/* Waits until all consumers are there, because they get only what is sent from then on. */
	for (int i = 0; i < o->consumers; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("a consumer did not come up");
	close(ready[0]);
}

/* ------------------------------------------------------------------------------------------- */

static int run(const struct options *o)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	int status, failed = 0, wrong, copies = 0;
	struct report *reports;
	struct picture picture;
	share_client *client;
	share_pool *pool;

	read_picture(o->file, &picture);
	reports = make_reports(o);
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* where the consumers look */
	options.kind = o->kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	printf("kind %s: %s\n", info.kind, info.reason);
	printf("%s: %" PRId64 " x %" PRId64 " x %" PRId64 ", %d frames\n", o->file,
	       picture.shape[0], picture.shape[1], picture.shape[2], o->frames);

	start_consumers(o, reports);
	produce(o, &picture, client, pool, reports);
	while (wait(&status) > 0)
		failed += status != 0;
	wrong = judge(o, &picture, reports, &copies);
	if (failed || wrong || copies)
		fail("kind=%s consumers=%d processes=%d wrong=%d copies=%d", info.kind,
		     o->consumers, failed, wrong, copies);
	printf("pipeline: ok kind=%s consumers=%d bytes=%zu copies=%d\n", info.kind, o->consumers,
	       picture.size * (size_t)o->frames * (size_t)o->consumers, copies);

	share_pool_close(pool);
	share_disconnect(client);
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
