/* SPDX-License-Identifier: MIT */

/*
 * Work, and what is made of it. A word that is not its owner's is an error, whoever put it there,
 * unless the giver is known to have died before its work was done: such data means nothing.
 */

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "tests/themes/checker/worker.h"

void job_pause(const struct job *j, unsigned half)
{
	struct timespec t = {.tv_nsec = j->pauses_us[half] * 1000L};

	if (t.tv_nsec > 0)
		nanosleep(&t, NULL);
}

/* @words begins with @part. */
void job_compare(struct job *j, const void *words, uint64_t part, uint64_t end_part)
{
	uint64_t n = j->size / PARTS / sizeof(uint32_t);
	const _Atomic uint32_t *at = words;

	for (; part < end_part && !j->bad; part++) {
		uint32_t wanted = mark_word(&j->mark, part);

		for (uint64_t i = 0; i < n; i++, at++) {
			uint32_t is = atomic_load_explicit(at, memory_order_relaxed);

			if (is == wanted)
				continue;
			j->bad = true;
			j->bad_word = part * n + i;
			j->found = is;
			break;
		}
	}
}

/* ------------------------------------------------------------------------------------------- */

/* Mostly none, sometimes longer than others' work takes. */
static unsigned pause_us(struct worker *w)
{
	uint64_t most = w->board->options.pause_us;
	uint64_t kind = dice_roll(&w->dice, 100);

	if (kind < 45 || most == 0)
		return 0;
	if (kind < 80)
		return (unsigned)dice_roll(&w->dice, most / 20 + 1);
	if (kind < 97)
		return (unsigned)dice_roll(&w->dice, most / 4 + 1);
	return (unsigned)dice_roll(&w->dice, most + 1);
}

static struct job *find_free(struct worker *w)
{
	for (unsigned i = 0; i < JOBS; i++) {
		struct job *j = &w->jobs[(w->next_job + i) % JOBS];

		if (j->used)
			continue;
		w->next_job = (unsigned)(j - w->jobs) + 1;
		return j;
	}
	return NULL;
}

struct job *job_new(struct worker *w, unsigned stream, share_buffer *b, const struct mark *mark)
{
	struct job *j = find_free(w);
	uint32_t *copy;

	if (!j) {
		jobs_reap(w);
		j = find_free(w);
	}
	if (!j) { /* the next one is the oldest */
		unsigned oldest = w->jobs[w->next_job % JOBS].stream;

		doing(w, ACTION_SYNCHRONIZING, oldest);
		w->engine->synchronize(w, oldest);
		jobs_reap(w);
		j = find_free(w);
	}
	doing(w, ACTION_ENQUEUING, stream);
	copy = j->copy;
	*j = (struct job){
	    .worker = w,
	    .used = true,
	    .stream = stream,
	    .pauses_us = {pause_us(w), pause_us(w)},
	    .memory = share_ptr(b),
	    .size = share_size(b),
	    .mark = *mark,
	    .copy = copy,
	};
	return j;
}

void job_fill(struct worker *w, struct job *j)
{
	atomic_fetch_add(&w->board->fills, 1);
	w->engine->fill(w, j);
}

void job_read(struct worker *w, struct job *j)
{
	j->reads = true;
	w->engine->read(w, j);
}

/* ------------------------------------------------------------------------------------------- */

/* What is known of the giver. Its stream has run, so the giver has got there, or never will. */
static int giver_status(struct worker *w, const struct job *j)
{
	if (j->held)
		return share_buffer_status(j->held);
	return j->giver.timeline ? share_fence_query(w->client, &j->giver) : 0;
}

/*
 * Whether what was read has to be right. The GPU may still write the values of fences while it
 * takes a killed process apart, though their work was not done: that such a fence is worth nothing
 * comes out only when the process is proven dead.
 */
static bool counts(struct worker *w, const struct job *j)
{
	unsigned patience_ms =
	    w->engine == &gpu_engine && (j->held || j->giver.timeline) ? 1000 : 0;

	for (;; patience_ms--) {
		int r = giver_status(w, j);

		if (r == SHARE_EOWNERDEAD || r == SHARE_ESTALE)
			return false;
		if (r == SHARE_EDISCONNECTED && w->lost)
			return false;
		if (r != 0 && r != SHARE_EAGAIN)
			unexpected(w, "asking for the giver's fence", r);
		if (patience_ms == 0)
			return true; /* if it is not even reached: why did the stream go on? */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void report(struct worker *w, const struct job *j)
{
	uint64_t part = j->bad_word / (j->size / PARTS / sizeof(uint32_t));

	wrong(w,
	      "stream %u, %s: allocation %" PRIx64
	      ", filling %u by process %u: "
	      "word %" PRIu64 " of %" PRIu64 " is %08x (a mark of process %d), not %08x%s",
	      j->stream, j->how, j->mark.serial, j->mark.generation, j->mark.owner, j->bad_word,
	      j->size / sizeof(uint32_t), j->found, (int)(j->found >> 24) - 1,
	      mark_word(&j->mark, part),
	      giver_status(w, j) == SHARE_EAGAIN ? "; the giver's fence is not reached" : "");
}

static void judge(struct worker *w, struct job *j)
{
	doing(w, ACTION_JUDGING, j->stream);
	if (j->reads) {
		atomic_fetch_add(&w->board->reads, 1);
		atomic_fetch_add(&w->board->words, j->size / sizeof(uint32_t));
		if (j->bad && counts(w, j))
			report(w, j);
		else if (j->bad)
			atomic_fetch_add(&w->board->discarded, 1);
	}
	j->used = false;
	if (j->held)
		let_go(w, j->held, j->stream);
	progress(w);
}

void jobs_reap(struct worker *w)
{
	for (unsigned i = 0; i < JOBS; i++) {
		struct job *j = &w->jobs[i];

		if (j->used && atomic_load(&j->done))
			judge(w, j);
	}
}

void jobs_finish(struct worker *w)
{
	for (unsigned i = 0; i < w->n_streams; i++) {
		doing(w, ACTION_SYNCHRONIZING, i);
		w->engine->synchronize(w, i);
		progress(w);
	}
	jobs_reap(w);
}
