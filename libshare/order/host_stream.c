/* SPDX-License-Identifier: MIT */

/*
 * Host streams: one thread and one queue each. Functions, waits and signals are jobs like any
 * other, so order is the order of the queue and nothing else has to be thought about.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "base/system/thread.h"
#include "libshare/order/inside.h"
#include "libshare/program/range.h"

enum job_kind { JOB_FUNCTION, JOB_WAIT, JOB_SIGNAL, JOB_END };

struct job {
	TAILQ_ENTRY(job) link;
	enum job_kind kind;
	void (*function)(void *data);
	void *data;
	struct held_fence fence;
	uint64_t value;
};

struct share_host_stream {
	struct handle handle;
	LIST_ENTRY(share_host_stream) link;
	share_client *client;
	pthread_t thread;
	pthread_mutex_t lock;
	struct bell changed;
	TAILQ_HEAD(, job) jobs;
	struct job end;          /* the last one, which must not need memory */
	uint64_t enqueued, done; /* jobs, ever */
	uint64_t signaled;       /* `enqueued` right after the last signal job */
	share_fence last_signal;
	uint32_t slot;
	bool given_up; /* there are no jobs after the last one */
};
HANDLES_OF(share_host_stream, host_stream, HANDLE_HOST_STREAM);

/* Whose functions the calling thread runs; NULL: nobody's. */
static _Thread_local const share_host_stream *here;

static void run(share_host_stream *s, struct job *job)
{
	share_client *c = s->client;

	switch (job->kind) {
	case JOB_FUNCTION:
		job->function(job->data);
		break;
	case JOB_WAIT:
		fence_block(c, &job->fence, -1);
		fence_drop(&job->fence);
		break;
	case JOB_SIGNAL:
		timeline_signal(c->page, s->slot, job->value - MUTATION(fence_before_signal));
		break;
	case JOB_END:
		break;
	}
}

static void *work(void *data)
{
	share_host_stream *s = data;
	bool end = false;

	here = s;
	pthread_mutex_lock(&s->lock);
	while (!end) {
		struct job *job = TAILQ_FIRST(&s->jobs);

		if (!job) {
			bell_wait(&s->changed, &s->lock, -1);
			continue;
		}
		TAILQ_REMOVE(&s->jobs, job, link);
		pthread_mutex_unlock(&s->lock);
		run(s, job);
		end = job->kind == JOB_END;
		if (!end)
			free(job);
		pthread_mutex_lock(&s->lock);
		s->done++;
		bell_ring(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* With the stream's lock held. It runs, or is freed: 0 or SHARE_EINVAL. */
static int enqueue(share_host_stream *s, struct job *job)
{
	if (s->given_up) {
		if (job->kind == JOB_WAIT)
			fence_drop(&job->fence);
		free(job);
		return fail_constant(SHARE_EINVAL, "this host stream handle was given up already");
	}
	if (job->kind == JOB_END)
		s->given_up = true;
	TAILQ_INSERT_TAIL(&s->jobs, job, link);
	s->enqueued++;
	bell_ring(&s->changed);
	return 0;
}

static struct job *job_new(enum job_kind kind)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		fail_system(-ENOMEM, "enqueuing on a stream");
	else
		job->kind = kind;
	return job;
}

/* ------------------------------------------------------------------------------------------- */

int share_host_stream_create(share_client *c, share_host_stream **out)
{
	HAZARDS;
	share_host_stream *s;
	uint32_t slot;
	int r = client_resolve_for(&c, out), error;

	if (r == 0)
		r = slot_take(c, &slot);
	if (r != 0)
		return r;
	s = handle_new(HANDLE_HOST_STREAM, sizeof(*s));
	if (!s) {
		slot_give_back(c, slot);
		return fail_system(-ENOMEM, "creating a stream");
	}
	s->slot = slot;
	s->client = client_ref(c);
	pthread_mutex_init(&s->lock, NULL);
	TAILQ_INIT(&s->jobs);
	error = thread_start(&s->thread, work, s);
	if (error < 0) {
		slot_give_back(c, slot);
		client_unref(c);
		pthread_mutex_destroy(&s->lock);
		handle_free(s);
		return fail_system(error, "starting the thread of a stream");
	}
	pthread_mutex_lock(&c->order->lock);
	LIST_INSERT_HEAD(&c->order->streams, s, link);
	atomic_fetch_add_explicit(&c->order->n_streams, 1, memory_order_relaxed);
	*out = handle_give(s);
	pthread_mutex_unlock(&c->order->lock);
	return 0;
}

int share_host_stream_launch(share_host_stream *s, void (*function)(void *data), void *data)
{
	HAZARDS;
	int r = host_stream_resolve(&s);
	struct job *job;

	if (r == 0 && !function)
		r = fail(SHARE_EINVAL, "the function is NULL");
	if (r != 0)
		return r;
	job = job_new(JOB_FUNCTION);
	if (!job)
		return SHARE_ENOMEM;
	job->function = function;
	job->data = data;
	pthread_mutex_lock(&s->lock);
	r = enqueue(s, job);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static int refuse_to_wait(void)
{
	return fail(SHARE_EINVAL,
		    "a function on a host stream cannot wait for what is enqueued behind it "
		    "there: name another stream, or NULL");
}

int host_stream_may_wait(const void *stream)
{
	return here && handle_object(stream) == here ? refuse_to_wait() : 0;
}

/* Whoever waits for it may be another client of this process, perhaps of another broker, which has
 * identifiers of its own. */
static bool is_on_page_of(const share_client *c, const struct held_fence *f)
{
	return f->peer ? f->peer->id == c->page_id && f->peer->file == c->page_file
		       : f->page == c->page;
}

int host_stream_may_wait_for(share_client *c, const struct held_fence *f)
{
	if (!here || f->slot != here->slot || !is_on_page_of(here->client, f))
		return 0;
	return fence_state(c, f) == TIMELINE_PENDING ? refuse_to_wait() : 0;
}

void host_stream_synchronize(void *stream)
{
	share_host_stream *s = handle_object(stream);
	uint64_t target;

	pthread_mutex_lock(&s->lock);
	target = s->enqueued;
	while (s->done < target)
		bell_wait(&s->changed, &s->lock, -1);
	pthread_mutex_unlock(&s->lock);
}

/* Nobody is in a call about it. Until then it is a stream, whose calls fail. */
static void end_stream(void *stream)
{
	share_host_stream *s = stream;
	share_client *c = s->client;

	pthread_mutex_lock(&c->order->lock);
	LIST_REMOVE(s, link);
	atomic_fetch_sub_explicit(&c->order->n_streams, 1, memory_order_relaxed);
	pthread_mutex_unlock(&c->order->lock);
	slot_give_back(c, s->slot);
	pthread_mutex_destroy(&s->lock);
	handle_free(s);
	client_unref(c);
}

int share_host_stream_synchronize(share_host_stream *s)
{
	RANGE("share_host_stream_synchronize", 0);
	HAZARDS;
	int r = host_stream_resolve(&s);
	uint64_t target;

	if (r == 0)
		r = host_stream_may_wait(handle_of(s));
	if (r != 0)
		return r;
	pthread_mutex_lock(&s->lock);
	target = s->enqueued;
	while (r == 0 && s->done < target)
		r = s->given_up ? wait_given_up()
				: wait_at_bell(s->client, &s->changed, &s->lock, -1);
	pthread_mutex_unlock(&s->lock);
	return r;
}

void share_host_stream_destroy(share_host_stream *s)
{
	HAZARDS;

	s = host_stream_take(s);
	if (!s)
		return;
	s->end.kind = JOB_END;
	pthread_mutex_lock(&s->lock);
	enqueue(s, &s->end);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	hazard_end(s, end_stream);
}

/* ------------------------------------------------------------------------------------------- */

bool host_stream_is(share_client *c, const void *stream)
{
	struct order *o = c->order;
	share_host_stream *s;
	bool is;

	/* Does not look into it. Whoever has one knows that it was made, so that when none is seen
	 * it is none. */
	if (!stream || atomic_load_explicit(&o->n_streams, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&o->lock);
	LIST_FOREACH (s, &o->streams, link)
		if (handle_of(s) == stream)
			break;
	/* who ends it takes it out of the list */
	is = s && (hazard_is_set(s) || hazard_set(s));
	pthread_mutex_unlock(&o->lock);
	return is;
}

int host_stream_refuse(const void *stream)
{
	if (!handle_was_given(stream, HANDLE_HOST_STREAM))
		return 0;
	if (handle_find(stream, HANDLE_HOST_STREAM))
		return fail(SHARE_EINVAL, "the stream is a share_host_stream of another client");
	return handle_fault(stream, HANDLE_HOST_STREAM);
}

int host_stream_signal(void *stream, share_fence *out)
{
	share_host_stream *s = handle_object(stream);
	share_client *c = s->client;
	struct job *job = job_new(JOB_SIGNAL);
	int r = 0;

	if (!job)
		return SHARE_ENOMEM;
	pthread_mutex_lock(&s->lock);
	/* nothing new since the last signal: the same point in time */
	if (s->signaled == s->enqueued && s->last_signal.timeline) {
		*out = s->last_signal;
		free(job);
	} else if (s->given_up) {
		r = enqueue(s, job);
	} else {
		job->value = slot_next(c, s->slot);
		*out = (share_fence){WIRE_TIMELINE(c->page_id, s->slot), job->value};
		if (MUTATION(signal_before_work))
			timeline_signal(c->page, s->slot, job->value);
		enqueue(s, job);
		s->signaled = s->enqueued;
		s->last_signal = *out;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int host_stream_wait(void *stream, const struct held_fence *f)
{
	share_host_stream *s = handle_object(stream);
	struct job *job;
	int r;

	if (fence_state(s->client, f) == TIMELINE_REACHED)
		return 0;
	job = job_new(JOB_WAIT);
	if (!job)
		return SHARE_ENOMEM;
	job->fence = fence_hold_again(f);
	pthread_mutex_lock(&s->lock);
	r = enqueue(s, job);
	pthread_mutex_unlock(&s->lock);
	return r;
}
