/* SPDX-License-Identifier: MIT */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include <share/share.h>

#include "base/clock.h"
#include "base/failure.h"
#include "bridge/bridge.h"
#include "bridge/data/staging.h"
#include "memory/copier.h"
#include "memory/stream.h"

/* A piece takes some ten microseconds, which is less than to be woken by a timer. What takes longer
 * waits for the work of others, and that may be long. */
#define MOVING_NS UINT64_C(200000)
#define MOVED_US  500

/* The streams of a device: one for each staging_way, and the gate. */
enum { GATE = FROM_HOST + 1, STREAMS };

struct device {
	SLIST_ENTRY(device) next;
	int ordinal;
	struct memory_copier *streams[STREAMS];
};

struct slot {
	SLIST_ENTRY(slot) next;
	struct memory_page page; /* if it is pinned */
	void *memory;
};

/* A point of a stream that somebody waits for. */
struct job {
	TAILQ_ENTRY(job) next;
	struct memory_copier *stream;
	struct memory_point point;
	staging_done done;
	void *arg;
	const void *owner;
	bool gate;
};

struct staging {
	struct bridge *bridge;
	SLIST_HEAD(, device) devices;
	SLIST_HEAD(, slot) slots;
	TAILQ_HEAD(jobs, job) jobs, spare; /* spare ones keep their events */
	struct event *look, *later;
	uint64_t moved_ns; /* when a job was last begun or done */
};

/* Errors of a device that stay are those of this process, and the next one does not have them. */
static void complain(struct staging *s, const char *what, const struct failure *failure)
{
	say("%s: %s", what, failure->text);
	if (failure->fatal)
		bridge_give_up(s->bridge);
}

/* ------------------------------------------------------------------------------------------- */
/* Jobs                                                                                        */

static void end_job(struct staging *s, struct job *j, int error)
{
	staging_done done = j->done;
	void *arg = j->arg;

	TAILQ_REMOVE(&s->jobs, j, next);
	TAILQ_INSERT_HEAD(&s->spare, j, next);
	s->moved_ns = clock_ns();
	done(error, arg);
}

/* The first that is done. They may be of several streams, so they are not done in their order. */
static struct job *find_done(struct staging *s, const void *owner, int *error)
{
	struct failure failure;
	struct job *j;

	TAILQ_FOREACH (j, &s->jobs, next) {
		if (owner && (j->owner != owner || j->gate))
			continue;
		*error = memory_copier_reached(j->stream, &j->point, &failure);
		if (*error == SHARE_EAGAIN)
			continue;
		if (*error != 0)
			complain(s, "a copy has failed", &failure);
		return j;
	}
	return NULL;
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct timeval later = {.tv_usec = MOVED_US};
	struct staging *s = arg;
	struct job *j;
	int error;

	(void)fd, (void)what;
	while ((j = find_done(s, NULL, &error)) != NULL)
		end_job(s, j, error);
	if (TAILQ_EMPTY(&s->jobs))
		return;
	if (clock_ns() - s->moved_ns < MOVING_NS) {
		sched_yield();
		event_active(s->look, 0, 0);
		let_others(s->bridge);
	} else {
		evtimer_add(s->later, &later);
	}
}

static struct job *spare_job(struct staging *s, struct memory_copier *stream)
{
	struct failure failure;
	struct job *j;

	TAILQ_FOREACH (j, &s->spare, next)
		if (j->stream == stream) /* whose context its event is of */
			break;
	if (j) {
		TAILQ_REMOVE(&s->spare, j, next);
		return j;
	}
	j = calloc(1, sizeof(*j));
	if (!j)
		return NULL;
	j->stream = stream;
	/* it has its event before anything is enqueued that could not be followed without */
	if (memory_copier_set(stream, &j->point, &failure) != 0) {
		complain(s, "copies cannot be followed", &failure);
		free(j);
		return NULL;
	}
	return j;
}

/* What was enqueued on the stream so far becomes a job. */
static int follow_job(struct staging *s, struct job *j, bool gate, staging_done done, void *arg,
		      const void *owner)
{
	struct failure failure;
	int r = memory_copier_set(j->stream, &j->point, &failure);

	if (r != 0) {
		complain(s, "a copy cannot be followed", &failure);
		TAILQ_INSERT_HEAD(&s->spare, j, next);
		return r;
	}
	j->done = done;
	j->arg = arg;
	j->owner = owner;
	j->gate = gate;
	TAILQ_INSERT_TAIL(&s->jobs, j, next);
	s->moved_ns = clock_ns();
	event_active(s->look, 0, 0);
	return 0;
}

void staging_settle(struct staging *s, const void *owner)
{
	struct job *j, *next;
	bool copies;
	int error;

	do {
		while ((j = find_done(s, owner, &error)) != NULL)
			end_job(s, j, error);
		copies = false;
		for (j = TAILQ_FIRST(&s->jobs); j; j = next) {
			next = TAILQ_NEXT(j, next);
			if (j->owner != owner)
				continue;
			copies = copies || !j->gate;
			if (!j->gate)
				continue;
			end_job(s, j, SHARE_ECANCELED);
			next = TAILQ_FIRST(&s->jobs); /* whoever was told may have ended others */
		}
		if (copies)
			sched_yield();
	} while (copies);
}

/* ------------------------------------------------------------------------------------------- */
/* Devices                                                                                     */

static void close_device(struct device *d)
{
	for (size_t i = 0; i < STREAMS; i++)
		memory_copier_close(d->streams[i]);
	free(d);
}

static struct device *find_device(struct staging *s, int ordinal)
{
	struct failure failure;
	struct device *d;
	char what[64];
	int r = 0;

	SLIST_FOREACH(d, &s->devices, next)
	if (d->ordinal == ordinal)
		return d;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ordinal = ordinal;
	for (size_t i = 0; i < STREAMS && r == 0; i++)
		r = memory_copier_open(ordinal, &d->streams[i], &failure);
	if (r != 0) {
		snprintf(what, sizeof(what), "device %d cannot be used", ordinal);
		complain(s, what, &failure);
		close_device(d);
		return NULL;
	}
	SLIST_INSERT_HEAD(&s->devices, d, next);
	return d;
}

void *staging_gate(struct staging *s, int ordinal)
{
	struct device *d = find_device(s, ordinal);

	return d ? memory_copier_stream(d->streams[GATE]) : NULL;
}

int staging_stay(struct staging *s, int ordinal)
{
	struct device *d = find_device(s, ordinal);
	struct failure failure;

	return d ? memory_copier_stay(d->streams[GATE], &failure) : SHARE_EDEVICE;
}

/* The job of a copy or of the gate; NULL: it cannot be had. */
static struct job *job_of(struct staging *s, int ordinal, int which)
{
	struct device *d = find_device(s, ordinal);

	return d ? spare_job(s, d->streams[which]) : NULL;
}

int staging_copy(struct staging *s, int ordinal, enum staging_way way, void *to, const void *from,
		 uint64_t size, staging_done done, void *arg, const void *owner)
{
	struct job *j = job_of(s, ordinal, way);
	struct failure failure;
	int r;

	if (!j)
		return SHARE_EDEVICE;
	r = way == TO_HOST ? memory_copier_to_host(j->stream, to, from, size, &failure)
			   : memory_copier_from_host(j->stream, to, from, size, &failure);
	if (r == 0)
		return follow_job(s, j, false, done, arg, owner);
	complain(s, "a copy cannot be made", &failure);
	TAILQ_INSERT_HEAD(&s->spare, j, next);
	return r;
}

int staging_pass_gate(struct staging *s, int ordinal, staging_done done, void *arg,
		      const void *owner)
{
	struct job *j = job_of(s, ordinal, GATE);

	return j ? follow_job(s, j, true, done, arg, owner) : SHARE_EDEVICE;
}

static void on_copied(int error, void *arg)
{
	*(int *)arg = error;
}

int staging_fetch(struct staging *s, int ordinal, void *to, const void *from, uint64_t size)
{
	int result = SHARE_EAGAIN;
	int r = staging_copy(s, ordinal, TO_HOST, to, from, size, on_copied, &result, &result);

	if (r != 0)
		return r;
	staging_settle(s, &result);
	return result;
}

/* ------------------------------------------------------------------------------------------- */
/* Slots                                                                                       */

struct slot *staging_take(struct staging *s, int ordinal)
{
	struct slot *slot = SLIST_FIRST(&s->slots);
	struct failure failure;

	if (slot) {
		SLIST_REMOVE_HEAD(&s->slots, next);
		return slot;
	}
	slot = calloc(1, sizeof(*slot));
	if (!slot)
		return NULL;
	slot->memory =
	    mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slot->memory == MAP_FAILED) {
		free(slot);
		return NULL;
	}
	if (memory_page_register(ordinal, slot->memory, PIECE, false, &slot->page, &failure) != 0)
		say("memory for copies is not pinned: %s", failure.text);
	return slot;
}

void staging_give(struct staging *s, struct slot *slot)
{
	SLIST_INSERT_HEAD(&s->slots, slot, next);
}

void *slot_memory(struct slot *slot)
{
	return slot->memory;
}

/* ------------------------------------------------------------------------------------------- */

struct staging *staging_open(struct bridge *b)
{
	struct staging *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->bridge = b;
	TAILQ_INIT(&s->jobs);
	TAILQ_INIT(&s->spare);
	s->look = event_new(b->base, -1, EV_PERSIST, on_look, s);
	s->later = evtimer_new(b->base, on_look, s);
	if (!s->look || !s->later) {
		staging_close(s);
		return NULL;
	}
	return s;
}

/* All links have ended, and with them the jobs. */
void staging_close(struct staging *s)
{
	struct device *d;
	struct slot *slot;
	struct job *j;

	if (!s)
		return;
	while ((j = TAILQ_FIRST(&s->spare)) != NULL) {
		TAILQ_REMOVE(&s->spare, j, next);
		memory_copier_forget(j->stream, &j->point);
		free(j);
	}
	while ((slot = SLIST_FIRST(&s->slots)) != NULL) {
		SLIST_REMOVE_HEAD(&s->slots, next);
		memory_page_unregister(&slot->page);
		munmap(slot->memory, PIECE);
		free(slot);
	}
	while ((d = SLIST_FIRST(&s->devices)) != NULL) {
		SLIST_REMOVE_HEAD(&s->devices, next);
		close_device(d);
	}
	if (s->look)
		event_free(s->look);
	if (s->later)
		event_free(s->later);
	free(s);
}
