/* SPDX-License-Identifier: MIT */

/*
 * How buffers get from one worker to another: by name, for reading, as long as the name leads to
 * them; by a token, to have for oneself, and to fill anew; or on a channel (traffic.c). What is in
 * them goes along: with a name as metadata, with a token beside it in the pipe.
 */

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/themes/checker/traffic.h"
#include "tests/themes/checker/worker.h"

#define TOKEN_MS 300 /* those in the pipe when it is read no more must not keep memory for ever */

/* Errors that a broker which is not there any more excuses. */
static void expect(struct worker *w, const char *call, int r)
{
	if (r != 0 && !(w->lost && r == SHARE_EDISCONNECTED))
		unexpected(w, call, r);
}

void let_go(struct worker *w, share_buffer *b, unsigned stream)
{
	doing(w, ACTION_RELEASING, stream);
	expect(w, "share_release", share_release(b, w->streams[stream]));
}

void keep(struct worker *w, const struct held *h)
{
	w->held[w->n_held++] = *h;
}

/* What the streams of this worker are of. */
static int ordinal_of(const struct worker *w)
{
	return w->engine == &host_engine ? -1 : 0;
}

void follow(struct worker *w, struct held *h, unsigned stream)
{
	share_fence fence;
	int r;

	if (stream == h->stream)
		return;
	doing(w, ACTION_RECORDING, h->stream);
	expect(w, "share_fence_record",
	       share_fence_record(w->client, ordinal_of(w), w->streams[h->stream], &fence));
	doing(w, ACTION_WAITING, stream);
	r = share_fence_wait(w->client, &fence, ordinal_of(w), w->streams[stream]);
	if (r == SHARE_EAGAIN) /* the stream must not be parked, and the host asked not to be */
		r = share_fence_synchronize(w->client, &fence, SHARE_WAIT_FOREVER);
	expect(w, "share_fence_wait", r);
	h->stream = stream;
}

share_fence record(struct worker *w, unsigned stream)
{
	share_fence fence;

	doing(w, ACTION_RECORDING, stream);
	expect(w, "share_fence_record",
	       share_fence_record(w->client, ordinal_of(w), w->streams[stream], &fence));
	return fence;
}

/* ------------------------------------------------------------------------------------------- */

static void name_text(unsigned name, char out[32])
{
	snprintf(out, 32, "checker/%u", name);
}

void unpublish(struct worker *w, unsigned name)
{
	char text[32];
	int r;

	name_text(name, text);
	doing(w, ACTION_UNPUBLISHING, 0);
	r = share_unpublish(w->client, text);
	if (r != 0 && r != SHARE_ENOENT)
		unexpected(w, "share_unpublish", r);
}

static void publish(struct worker *w, const struct held *h)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	char name[32], content[160];
	share_fence fence;

	/* a name that outlives its publisher leads to data that may never be finished */
	options.flags = dice_hit(&w->dice, 50) ? SHARE_PUBLISH_PERSISTENT : 0;
	options.mode = SHARE_RDONLY;
	name_text((unsigned)dice_roll(&w->dice, NAMES), name);
	fence = record(w, h->stream);
	snprintf(content, sizeof(content),
		 "{\"serial\": %" PRIu64
		 ", \"owner\": %u, \"generation\": %u, \"timeline\": %" PRIu64
		 ", \"value\": %" PRIu64 "}",
		 h->mark.serial, h->mark.owner, h->mark.generation, fence.timeline, fence.value);
	doing(w, ACTION_PUBLISHING, h->stream);
	expect(w, "share_metadata_set", share_metadata_set(h->buffer, content));
	expect(w, "share_publish",
	       share_publish_with(h->buffer, name, &options, w->streams[h->stream], NULL));
	let_go(w, h->buffer, h->stream);
}

/* As if the supervisor had: between this and the import, which it would rarely hit. */
static void kill_itself(struct worker *w)
{
	record_dying(w->board);
	atomic_store(&w->state->kills_itself, true);
	kill(getpid(), SIGKILL);
}

static void export_to_anyone(struct worker *w, const struct held *h)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	struct passed m = {
	    .maker = getpid(),
	    .buffer = share_id(h->buffer),
	    .size = share_size(h->buffer),
	    .serial = h->mark.serial,
	    .owner = h->mark.owner,
	    .generation = h->mark.generation,
	};

	options.mode = SHARE_RDWR;
	options.timeout_ms = TOKEN_MS;
	m.fence = record(w, h->stream);
	doing(w, ACTION_EXPORTING, h->stream);
	expect(w, "share_export",
	       share_export_with(h->buffer, &options, w->streams[h->stream], &m.token));
	atomic_fetch_add(&w->board->exported, 1);
	if (pipe_send(w->tokens[1], &m)) {
		if (w->board->options.kill && dice_hit(&w->dice, 3))
			kill_itself(w);
	} else {
		int r = share_revoke(w->client, &m.token);

		if (r != 0 && r != SHARE_ENOENT) /* its time was over */
			unexpected(w, "share_revoke", r);
	}
	let_go(w, h->buffer, h->stream);
}

void give(struct worker *w, const struct held *h)
{
	bool is_adopted = h->mark.serial & SERIAL_ADOPTED; /* channels take what is of their pool */

	if (dice_roll(&w->dice, 100) < w->board->options.channels && !is_adopted &&
	    traffic_give(w, h))
		return;
	if (dice_hit(&w->dice, 55))
		publish(w, h);
	else
		export_to_anyone(w, h);
}

/* ------------------------------------------------------------------------------------------- */

/* Reads @b, and lets it go: at once, behind the reading, or when that was judged. */
static void read_and_let_go(struct worker *w, share_buffer *b, unsigned stream,
			    const struct mark *mark, const share_fence *giver, const char *how)
{
	struct job *j = job_new(w, stream, b, mark);

	j->how = how;
	j->giver = *giver;
	if (dice_hit(&w->dice, 30))
		j->held = b;
	job_read(w, j);
	if (!j->held)
		let_go(w, b, stream);
}

static void read_content(struct worker *w, share_buffer *b, struct mark *mark, share_fence *giver)
{
	json_int_t serial, owner, generation, timeline, value;
	json_t *content;
	char *text;
	int r = share_metadata_get(b, &text);

	if (r != 0)
		unexpected(w, "share_metadata_get", r);
	content = json_loads(text, 0, NULL);
	if (json_unpack(content, "{s:I, s:I, s:I, s:I, s:I}", "serial", &serial, "owner", &owner,
			"generation", &generation, "timeline", &timeline, "value", &value) < 0)
		unexpected(w, "reading metadata", SHARE_EPROTO);
	json_decref(content);
	free(text);
	*mark = (struct mark){(uint64_t)serial, (uint32_t)owner, (uint32_t)generation};
	*giver = (share_fence){(uint64_t)timeline, (uint64_t)value};
}

void look_up(struct worker *w)
{
	unsigned stream = (unsigned)dice_roll(&w->dice, w->n_streams);
	unsigned number = (unsigned)dice_roll(&w->dice, NAMES);
	share_fence giver;
	struct mark mark;
	share_buffer *b;
	char name[32];
	int r;

	name_text(number, name);
	doing(w, ACTION_LOOKING_UP, stream);
	r = share_lookup(w->client, name, SHARE_RDONLY, (int)dice_roll(&w->dice, 3),
			 w->streams[stream], &b);
	switch (r) {
	case 0:
		break;
	case SHARE_ENOENT:
	case SHARE_ETIMEDOUT:
	case SHARE_EAGAIN:
		return;
	case SHARE_EOWNERDEAD:
		unpublish(w, number);
		return;
	default:
		unexpected(w, "share_lookup", r);
	}
	read_content(w, b, &mark, &giver);
	read_and_let_go(w, b, stream, &mark, &giver, "looked up");
}

/* A token with a time limit outlives its maker, so there must be another reason why it has ended.
 */
static void expect_reason(struct worker *w, const struct passed *m)
{
	const char *detail = share_error_detail();

	if (strstr(detail, "it had no time limit") || strstr(detail, "it was revoked") ||
	    strstr(detail, "was disconnected"))
		wrong(w, "a token of process %d for %d ms: %s", (int)m->maker, TOKEN_MS, detail);
}

void import(struct worker *w)
{
	bool late;
	struct held h = {.stream = (unsigned)dice_roll(&w->dice, w->n_streams)};
	struct passed m;
	struct job *j;
	int r;

	if (!pipe_receive(w->tokens[0], &m))
		return;
	doing(w, ACTION_IMPORTING, h.stream);
	late = kill(m.maker, 0) < 0;
	r = share_import(w->client, &m.token, 0, w->streams[h.stream], &h.buffer);
	if (r == SHARE_ENOENT)
		expect_reason(w, &m);
	if (r == SHARE_ENOENT || r == SHARE_EOWNERDEAD || r == SHARE_EAGAIN)
		return;
	if (r != 0)
		unexpected(w, "share_import", r);
	atomic_fetch_add(&w->board->imported, 1);
	atomic_fetch_add(&w->board->imported_late, late);
	if (share_id(h.buffer) != m.buffer || share_size(h.buffer) != m.size)
		unexpected(w, "share_import gave another buffer", SHARE_EPROTO);
	h.mark = (struct mark){m.serial, m.owner, m.generation};
	if (dice_hit(&w->dice, 40)) {
		read_and_let_go(w, h.buffer, h.stream, &h.mark, &m.fence, "imported");
		return;
	}
	j = job_new(w, h.stream, h.buffer, &h.mark);
	j->how = "imported, to be filled anew";
	j->giver = m.fence;
	job_read(w, j);
	h.mark = (struct mark){m.serial, w->index, m.generation + 1};
	job_fill(w, job_new(w, h.stream, h.buffer, &h.mark));
	if (w->n_held < HELD_MAX && dice_hit(&w->dice, 30))
		keep(w, &h);
	else
		give(w, &h);
}
