/* SPDX-License-Identifier: MIT */

/*
 * A worker: a connection, some streams, and one random step after the other until all steps are
 * claimed. Everything it decides comes out of its dice, so with the same seed each worker tries the
 * same things; how they meet is up to the scheduler.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/themes/checker/traffic.h"
#include "tests/themes/checker/worker.h"

void doing(struct worker *w, enum action action, unsigned stream)
{
	atomic_store(&w->state->action, (int)action);
	atomic_store(&w->state->stream, (int)stream);
}

void progress(struct worker *w)
{
	atomic_fetch_add(&w->state->progress, 1);
}

void unexpected(struct worker *w, const char *call, int error)
{
	fprintf(stderr, "share-checker: process %u: %s: %s (%s)\n", w->index, call,
		share_error_name(error), share_error_detail());
	fflush(NULL);
	_exit(1);
}

void wrong(struct worker *w, const char *format, ...)
{
	va_list arguments;

	flockfile(stderr);
	fprintf(stderr, "WRONG: process %u, ", w->index);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	funlockfile(stderr);
	atomic_fetch_add(&w->board->wrong, 1);
	atomic_store(&w->board->stop, true);
}

unsigned any_stream(struct worker *w)
{
	return (unsigned)dice_roll(&w->dice, w->n_streams);
}

/* ------------------------------------------------------------------------------------------- */

uint64_t any_size(struct worker *w)
{
	uint64_t unit = sizeof(uint32_t) * PARTS * 16, most = w->board->options.pool_size / 8;
	uint64_t size = dice_hit(&w->dice, 30) ? most : most / 8;

	return (dice_roll(&w->dice, size / unit) + 1) * unit;
}

uint64_t new_serial(struct worker *w)
{
	return ++w->serial;
}

/* The pool has nothing left: something must go, or all would wait for each other. */
static void make_room(struct worker *w)
{
	atomic_fetch_add(&w->board->full, 1);
	if (w->n_held > 0) {
		struct held *h = &w->held[--w->n_held];

		let_go(w, h->buffer, h->stream);
	} else if (!traffic_make_room(w)) {
		unpublish(w, (unsigned)dice_roll(&w->dice, NAMES));
	}
}

static void allocate(struct worker *w)
{
	struct held h = {.stream = any_stream(w), .mark = {.owner = w->index, .generation = 1}};
	bool is_adopted = dice_hit(&w->dice, 15);
	struct job *j;
	int r;

	doing(w, ACTION_ALLOCATING, h.stream);
	if (is_adopted)
		r = adopt_some(w, h.stream, &h.buffer);
	else
		r = share_alloc(w->pool, any_size(w), w->streams[h.stream], &h.buffer);
	if (r == SHARE_ENOMEM || r == SHARE_EAGAIN) {
		make_room(w);
		return;
	}
	/* a killed agent takes requests with it; the next finds a new one */
	if (r == SHARE_EDEVICE && w->board->options.kill)
		return;
	if (r != 0)
		unexpected(w, "share_alloc", r);
	h.mark.serial = new_serial(w) | (is_adopted ? SERIAL_ADOPTED : 0);
	atomic_fetch_add(&w->board->adopted, is_adopted);
	j = job_new(w, h.stream, h.buffer, &h.mark);
	job_fill(w, j);
	if (dice_hit(&w->dice, 20)) {
		j = job_new(w, h.stream, h.buffer, &h.mark);
		j->how = "its own, just filled";
		job_read(w, j);
	}
	if (dice_hit(&w->dice, 20) && w->n_held < HELD_MAX)
		keep(w, &h);
	else if (dice_hit(&w->dice, 10))
		let_go(w, h.buffer, h.stream);
	else
		give(w, &h);
}

/* Something with a buffer that is its own: on whichever stream, behind what was done before. */
static void use_own(struct worker *w)
{
	unsigned i = (unsigned)dice_roll(&w->dice, w->n_held ? w->n_held : 1), stream;
	struct held *h = &w->held[i];
	struct job *j;

	if (w->n_held == 0)
		return;
	stream = any_stream(w);
	follow(w, h, stream);
	j = job_new(w, stream, h->buffer, &h->mark);
	j->how = "its own, kept";
	job_read(w, j);
	if (dice_hit(&w->dice, 50)) {
		h->mark.generation++;
		job_fill(w, job_new(w, stream, h->buffer, &h->mark));
	}
	if (w->lost || dice_hit(&w->dice, 40))
		return;
	{
		struct held given = *h;

		*h = w->held[--w->n_held];
		give(w, &given);
	}
}

static void step(struct worker *w)
{
	uint64_t what = dice_roll(&w->dice, 100);

	doing(w, ACTION_CHOOSING, 0);
	if (dice_roll(&w->dice, 100) < w->board->options.channels)
		traffic_step(w);
	else if (what < 40)
		allocate(w);
	else if (what < 65)
		look_up(w);
	else if (what < 83)
		import(w);
	else if (what < 95)
		use_own(w);
	else if (what < 97)
		unpublish(w, (unsigned)dice_roll(&w->dice, NAMES));
	else
		nanosleep(&(struct timespec){.tv_nsec = (long)dice_roll(&w->dice, 1000000)}, NULL);
	if (dice_hit(&w->dice, 50))
		jobs_reap(w);
	progress(w);
}

/* ------------------------------------------------------------------------------------------- */

/* The library has no call for it: it hangs up when the process ends, or somebody does this. */
static void cut_connection(struct worker *w)
{
	for (int fd = 0; fd < 256; fd++) {
		struct sockaddr_un peer;
		socklen_t size = sizeof(peer);

		memset(&peer, 0, sizeof(peer));
		if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
		    peer.sun_family == AF_UNIX && strcmp(peer.sun_path, w->board->address) == 0)
			shutdown(fd, SHUT_RDWR);
	}
}

/* Hangs up, and uses what it holds as long as it lives. */
static void hang_up(struct worker *w)
{
	atomic_fetch_add(&w->board->hang_ups, 1);
	for (unsigned i = 0; i < w->n_held; i++) {
		struct held *h = &w->held[i];

		h->mark.generation++;
		job_fill(w, job_new(w, h->stream, h->buffer, &h->mark));
	}
	w->lost = true;
	for (unsigned i = 0; i < CHANNELS; i++)
		record_leaving(w, i); /* for good */
	cut_connection(w);
	doing(w, ACTION_HUNG_UP, 0);
	for (unsigned i = 0; i < 20; i++) {
		for (unsigned k = 0; k < w->n_held; k++) {
			struct held *h = &w->held[k];
			struct job *j = job_new(w, h->stream, h->buffer, &h->mark);

			j->how = "its own, having hung up";
			job_read(w, j);
		}
		traffic_use(w);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		jobs_reap(w);
	}
}

static void end(struct worker *w)
{
	doing(w, ACTION_ENDING, 0);
	while (w->n_held > 0) {
		struct held *h = &w->held[--w->n_held];

		let_go(w, h->buffer, h->stream);
	}
	traffic_end(w);
	jobs_finish(w);
	w->engine->stop(w);
	share_pool_close(w->pool);
	share_pool_close(w->adopted);
	doing(w, ACTION_ENDING, 0);
	share_disconnect(w->client);
	w->engine->end(w);
}

static bool claim_step(struct worker *w)
{
	uint64_t most = w->board->options.steps;

	return !atomic_load(&w->board->stop) &&
	       (atomic_fetch_add(&w->board->claimed, 1) < most || most == 0);
}

int worker_run(int board_fd, int read_fd, int write_fd, unsigned index, unsigned incarnation)
{
	static struct worker w;
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	const struct options *o;
	char label[32];
	int r;

	w = (struct worker){
	    .board = board_map(board_fd), .index = index, .tokens = {read_fd, write_fd}};
	w.state = &w.board->workers[index];
	o = &w.board->options;
	w.dice = dice_new(o->seed, index, incarnation);
	w.engine = strcmp(o->kind, "host") == 0 ? &host_engine : &gpu_engine;
	snprintf(label, sizeof(label), "worker %u.%u", index, incarnation);
	options.label = label;
	/* some would rather not wait than wait on the host */
	if (w.engine == &gpu_engine && dice_hit(&w.dice, 25))
		options.flags = SHARE_CONNECT_NEVER_BLOCK;
	doing(&w, ACTION_STARTING, 0);
	r = share_connect_with(w.board->address, &options, &w.client);
	if (r == 0)
		r = share_pool_open(w.client, "checker", &w.pool);
	if (r == 0)
		r = share_pool_open(w.client, "adopted", &w.adopted);
	if (r != 0)
		unexpected(&w, "starting", r);
	w.serial = (uint64_t)index << 56 | (uint64_t)incarnation << 32;
	w.traffic = traffic_new();
	w.n_streams = o->streams;
	r = w.engine->start(&w);
	if (r != 0)
		return r;
	progress(&w);
	while (claim_step(&w)) {
		if (o->hang_up && w.n_held + w.traffic->n_loans > 1 &&
		    dice_roll(&w.dice, 200) == 0) {
			hang_up(&w);
			end(&w);
			return EXIT_HUNG_UP;
		}
		step(&w);
	}
	end(&w);
	return 0;
}
