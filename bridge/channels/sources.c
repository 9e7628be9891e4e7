/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/channels/inside.h"
#include "bridge/link.h"
#include "bridge/shape.h"

#define SOURCES_MAX 256

/* A message that the mirror has not taken. */
struct outgoing {
	TAILQ_ENTRY(outgoing) in_source;
	struct source *source; /* NULL: it was taken, and is on its way for nothing */
	share_message message;
	uint64_t sequence;
	bool sending;
};

struct source {
	TAILQ_ENTRY(source) in_all;
	struct bridge *bridge;
	struct link *opened; /* by which the mirror has asked for it; NULL: that is lost */
	struct link *link;   /* the same, once the mirror is ready; until then messages wait */
	char *name;
	char site[64];
	share_channel *channel;
	struct event *readable, *grace;
	TAILQ_HEAD(, outgoing) outgoing;
	share_message held; /* until the work of who has sent it is done; those after it wait */
	share_operation *holding; /* NULL: none is held */
	uint64_t next;            /* sequence of the next message */
	uint64_t taken;
	uint32_t which; /* as the peer calls it */
	uint32_t depth;
	bool queue;
};

static void free_message(struct outgoing *m)
{
	if (m->message.channel)
		share_ack(&m->message, NULL);
	free(m);
}

static void finish(struct outgoing *m)
{
	TAILQ_REMOVE(&m->source->outgoing, m, in_source);
	m->source = NULL;
	if (!m->sending)
		free_message(m);
}

static void source_free(struct source *s)
{
	struct outgoing *m;

	while ((m = TAILQ_FIRST(&s->outgoing)) != NULL)
		finish(m);
	share_cancel(s->holding);
	if (s->held.channel)
		share_ack(&s->held, NULL);
	if (s->readable)
		event_free(s->readable);
	if (s->grace)
		event_free(s->grace);
	share_channel_close(s->channel);
	TAILQ_REMOVE(&s->bridge->channels->sources, s, in_all);
	s->bridge->channels->n_sources--;
	free(s->name);
	free(s);
}

static void on_sent(int error, void *arg)
{
	struct outgoing *m = arg;

	(void)error; /* the link notices by itself, and it is sent again */
	m->sending = false;
	if (!m->source)
		free_message(m);
}

static void send_on(struct outgoing *m)
{
	struct source *s = m->source;
	struct data_header h = {
	    .kind = DATA_MESSAGE,
	    .which = s->which,
	    .id = m->sequence,
	    .deliveries = m->message.deliveries,
	};

	if (!s->link)
		return; /* it is sent with the next one */
	m->sending = true;
	message_send(s->link, &h, &m->message, on_sent, m);
}

/* 0, or a negative error: its content is not to be had, so nobody gets it. */
static int add_message(struct source *s, share_message *message, int error)
{
	struct outgoing *m = error ? NULL : calloc(1, sizeof(*m));

	if (!m) {
		say("a message of channel '%s' is lost: %s", s->name,
		    share_strerror(error ? error : SHARE_ENOMEM));
		share_ack(message, NULL);
		return error ? error : SHARE_ENOMEM;
	}
	m->message = *message;
	m->source = s;
	m->sequence = s->next++;
	TAILQ_INSERT_TAIL(&s->outgoing, m, in_source);
	send_on(m);
	return 0;
}

/* Who says nothing about `data_max` and `buffers` is let into no channel whose messages take parts;
 * so a peer that does not take them has none of these. */
static int open_channel(struct source *s, const struct link *l)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	json_t *shape = l->takes_parts ? shape_of(s->bridge, s->name) : NULL;
	int r;

	options.flags = SHARE_CHANNEL_EXISTING;
	options.data_max = shape_number(shape, "data_max");
	options.buffers = shape_number(shape, "buffers");
	r = share_channel_open(s->bridge->client, s->name, SHARE_CONSUMER, &options, &s->channel);
	if (r == SHARE_EEXIST)
		say("channel '%s' stays here: %s", s->name, share_error_detail());
	json_decref(shape);
	return r;
}

static void end(struct source *s)
{
	if (s->link)
		link_say(s->link,
			 json_pack("{s:s, s:I}", "say", "closed", "which", (json_int_t)s->which));
	source_free(s);
}

static void pump(struct source *s);

static void on_good(int status, void *arg)
{
	struct source *s = arg;
	share_message m = s->held;

	share_cancel(s->holding);
	s->holding = NULL;
	s->held = (share_message)SHARE_MESSAGE_INIT;
	add_message(s, &m, status);
	pump(s);
}

/* On a GPU the work of who has sent it may still be under way. */
static bool hold(struct source *s, const share_message *m)
{
	if (!m->buffer || share_buffer_status(m->buffer) != SHARE_EAGAIN ||
	    share_buffer_watch(m->buffer, on_good, s, &s->holding) != 0)
		return false;
	s->held = *m;
	event_del(s->readable);
	return true;
}

static bool may_receive(const struct source *s)
{
	return s->link && !s->holding && s->next - s->taken < s->depth;
}

/* Receives what there is credit for, and then waits for more. The source may be over afterwards. */
static void pump(struct source *s)
{
	while (may_receive(s)) {
		share_message m = SHARE_MESSAGE_INIT;
		int r = share_recv(s->channel, 0, NULL, &m);

		if (r == 0 && m.error == 0 && hold(s, &m))
			return;
		if (r == 0) {
			add_message(s, &m, m.buffer ? share_buffer_status(m.buffer) : m.error);
		} else if (r == SHARE_ESTALE) { /* it was left behind: others have what it had */
			say("channel '%s' has left the bridge behind", s->name);
			end(s);
			return;
		} else if (r != SHARE_EPIPE && r != SHARE_EOWNERDEAD) {
			event_add(s->readable, NULL);
			return;
		}
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct source *s = arg;

	(void)fd, (void)what;
	if (may_receive(s))
		pump(s);
	else
		event_del(s->readable); /* until something was taken */
}

/* What the channel is like, for the mirror: a reference. false: the peer cannot have it. */
static bool read_shape(struct source *s, const struct link *l, json_t **out)
{
	json_t *shape = *out = shape_of(s->bridge, s->name);
	const char *mode = json_string_value(json_object_get(shape, "mode"));

	if (!mode || shape_number(shape, "depth") == 0)
		return false;
	s->queue = strcmp(mode, "queue") == 0;
	s->depth = shape_number(shape, "depth");
	/* the link by which it was opened may have been to a later version of the peer */
	return l->takes_parts || !shape_has_parts(shape);
}

static bool is_done(const struct source *s)
{
	return TAILQ_EMPTY(&s->outgoing) && !s->holding;
}

static bool has_link(const struct bridge *b)
{
	const struct link *l;

	TAILQ_FOREACH (l, &b->links, in_bridge)
		if (l->up)
			return true;
	return false;
}

/* The peer has stayed away, and other consumers get what was meant for it once this process has
 * ended: a message that was received cannot be given back. Other peers are not let down for that.
 */
static void on_source_grace(evutil_socket_t fd, short what, void *arg)
{
	struct source *s = arg;

	(void)fd, (void)what;
	if (has_link(s->bridge)) {
		timer_in(s->grace, s->bridge->settings->grace_ms);
		return;
	}
	if (is_done(s)) { /* what was held for it is lost, so nobody gets it */
		source_free(s);
		return;
	}
	say("%s has stayed away: this bridge ends, so that others get its messages of channel '%s'",
	    s->site, s->name);
	bridge_give_up(s->bridge);
}

static struct source *find_source(struct bridge *b, const char *site, const char *name)
{
	struct source *s;

	TAILQ_FOREACH (s, &b->channels->sources, in_all)
		if (strcmp(s->site, site) == 0 && strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

static struct source *make_source(struct link *l, const char *name)
{
	struct bridge *b = link_bridge(l);
	struct source *s = b->channels->n_sources < SOURCES_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->bridge = b;
	s->next = s->taken = ++b->last_id << 32; /* no two have a number in common */
	snprintf(s->site, sizeof(s->site), "%s", l->site);
	TAILQ_INIT(&s->outgoing);
	TAILQ_INSERT_TAIL(&b->channels->sources, s, in_all);
	b->channels->n_sources++;
	s->name = strdup(name);
	if (!s->name || open_channel(s, l) != 0) {
		source_free(s);
		return NULL;
	}
	s->readable = event_new(b->base, share_channel_get_fd(s->channel), EV_READ | EV_PERSIST,
				on_readable, s);
	s->grace = evtimer_new(b->base, on_source_grace, s);
	if (!s->readable || !s->grace) {
		source_free(s);
		return NULL;
	}
	return s;
}

static void take_until(struct source *s, uint64_t sequence)
{
	struct outgoing *m;

	while ((m = TAILQ_FIRST(&s->outgoing)) != NULL && m->sequence < sequence)
		finish(m);
	s->taken = sequence;
}

/* Shows what the channel is like. The mirror says when it is ready for messages, as these would
 * overtake what is said here. */
const char *source_open(struct link *l, uint32_t which, const char *name)
{
	struct bridge *b = link_bridge(l);
	struct source *s = NULL;
	json_t *shape = NULL;

	if (patterns_match(&b->settings->channels_out, name)) {
		s = find_source(b, l->site, name);
		if (!s)
			s = make_source(l, name);
	}
	if (s && !read_shape(s, l, &shape)) {
		if (is_done(s)) /* else what it has waits until the mirror asks again */
			source_free(s);
		s = NULL;
	}
	if (!s) {
		json_decref(shape);
		link_say(l, json_pack("{s:s, s:I}", "say", "closed", "which", (json_int_t)which));
		return NULL;
	}
	s->link = NULL;
	s->opened = l;
	s->which = which;
	json_object_del(shape, "members");
	link_say(l, json_pack("{s:s, s:I, s:I, s:o}", "say", "opened", "which", (json_int_t)which,
			      "next", (json_int_t)s->taken, "shape", shape));
	return NULL;
}

/* The mirror has everything before @next, or did not know about this source. */
const char *source_begin(struct link *l, uint32_t which, uint64_t next)
{
	struct outgoing *m;
	struct source *s;

	TAILQ_FOREACH (s, &link_bridge(l)->channels->sources, in_all)
		if (!s->link && s->opened == l && s->which == which)
			break;
	if (!s)
		return NULL; /* it was closed meanwhile */
	if (next > s->next)
		return "it begins where nothing is";
	s->link = l;
	event_del(s->grace);
	TAILQ_FOREACH (m, &s->outgoing, in_source)
		if (!m->sending && m->sequence >= next)
			send_on(m);
	pump(s);
	return NULL;
}

const char *source_taken(struct link *l, const struct data_header *h)
{
	struct source *s;

	TAILQ_FOREACH (s, &link_bridge(l)->channels->sources, in_all)
		if (s->opened == l && s->which == h->which)
			break;
	if (!s)
		return NULL; /* it was closed meanwhile */
	/* It may have overtaken the word that the mirror is ready. */
	if (h->id < s->taken || h->id > s->next)
		return "it has taken messages that it was not sent";
	take_until(s, h->id);
	pump(s);
	return NULL;
}

void sources_down(struct link *l)
{
	struct source *s, *next;

	for (s = TAILQ_FIRST(&link_bridge(l)->channels->sources); s; s = next) {
		next = TAILQ_NEXT(s, in_all);
		if (s->opened != l) {
			/* This peer has its own time to come back before the bridge may end. */
			if (evtimer_pending(s->grace, NULL))
				timer_in(s->grace, s->bridge->settings->grace_ms);
			continue;
		}
		s->opened = s->link = NULL;
		s->which = 0;
		event_del(s->readable);
		/* What is lost in a broadcast is what consumers lose that are away. */
		if (!s->queue || is_done(s))
			source_free(s);
		else if (!evtimer_pending(s->grace, NULL)) /* it counts from the first link's end */
			timer_in(s->grace, s->bridge->settings->grace_ms);
	}
}

void sources_close(struct bridge *b)
{
	struct source *s;

	while ((s = TAILQ_FIRST(&b->channels->sources)) != NULL) {
		struct outgoing *m;

		/* Not acknowledged: they go to others when this process has ended. */
		TAILQ_FOREACH (m, &s->outgoing, in_source)
			m->message.channel = NULL;
		s->held.channel = NULL;
		source_free(s);
	}
}

json_t *sources_describe(struct bridge *b, const struct link *l)
{
	json_t *list = json_array();
	const struct source *s;

	TAILQ_FOREACH (s, &b->channels->sources, in_all)
		if (s->link == l || (!s->link && strcmp(s->site, l->site) == 0))
			json_array_append_new(
			    list,
			    json_pack("{s:s, s:s, s:I, s:I, s:I}", "channel", s->name, "as",
				      "source", "messages", (json_int_t)(s->next & UINT32_MAX),
				      "credits", (json_int_t)(s->depth - (s->next - s->taken)),
				      "depth", (json_int_t)s->depth));
	return list;
}
