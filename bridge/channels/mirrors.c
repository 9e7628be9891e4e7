/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/channels/inside.h"
#include "bridge/link.h"
#include "bridge/shape.h"

#define AGAIN_MS 1000 /* to ask for a channel that is not there */
#define ROOM_MS  2    /* to look whether there is room, or what was acknowledged */

/* A message that has come, or is coming. */
struct incoming {
	TAILQ_ENTRY(incoming) in_mirror;
	struct mirror *mirror; /* NULL: nobody wants it any more */
	struct message_in message;
	bool receiving, here;
	bool lost; /* with the link, which is about to end: it is not received any more */
};

struct mirror {
	TAILQ_ENTRY(mirror) in_all;
	struct bridge *bridge;
	struct link *link; /* NULL: it is lost */
	char *name;
	char site[64];
	char run[33];           /* of the program over there, whose sequence it is */
	share_channel *channel; /* NULL: not open */
	struct event *again, *room, *grace;
	TAILQ_HEAD(incoming_list, incoming) incoming;
	uint64_t next;  /* of the sequence: what comes next */
	uint64_t sent;  /* what is sent next here */
	uint64_t first; /* plus the number that a message has here: its place in the sequence */
	uint64_t told;  /* the peer knows that so many were taken */
	uint32_t which;
	uint32_t depth;
	uint32_t buffers, data_max; /* of a message at most; 0: what is always so */
	bool queue, complained, delivering;
};

static void deliver(struct mirror *m);

static struct mirror *find_mirror(struct link *l, uint32_t which)
{
	struct mirror *m;

	TAILQ_FOREACH (m, &link_bridge(l)->channels->mirrors, in_all)
		if (m->link == l && m->which == which)
			return m;
	return NULL;
}

static void free_incoming(struct incoming *in)
{
	message_end(&in->message);
	free(in);
}

static void drop_incoming(struct mirror *m)
{
	struct incoming *in;

	while ((in = TAILQ_FIRST(&m->incoming)) != NULL) {
		TAILQ_REMOVE(&m->incoming, in, in_mirror);
		if (in->receiving)
			in->mirror = NULL;
		else
			free_incoming(in);
	}
	m->next = m->sent;
}

static void close_channel(struct mirror *m)
{
	drop_incoming(m);
	share_channel_close(m->channel);
	m->channel = NULL;
	m->next = m->sent = m->told = 0;
	*m->run = 0;
	event_del(m->room);
}

static void mirror_free(struct mirror *m)
{
	close_channel(m);
	event_free(m->again);
	event_free(m->room);
	event_free(m->grace);
	TAILQ_REMOVE(&m->bridge->channels->mirrors, m, in_all);
	free(m->name);
	free(m);
}

/* ------------------------------------------------------------------------------------------- */
/* Taking                                                                                      */

/* So many of the sequence are done with: in a queue those that were acknowledged. */
static uint64_t count_taken(struct mirror *m)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;
	share_message aside = SHARE_MESSAGE_INIT;

	if (!m->queue)
		return m->sent;
	/* What was delivered too often here is nobody's; over there it is done. */
	while (share_channel_take_back(m->channel, &aside) == 0) {
		say("a message of channel '%s' was delivered too often", m->name);
		share_ack(&aside, NULL);
	}
	if (share_channel_get_stats(m->channel, &stats) != 0)
		return m->told;
	return m->first + stats.done;
}

static void tell_taken(struct mirror *m)
{
	struct data_header h = {.kind = DATA_TAKEN, .which = m->which};

	if (!m->channel || !m->link)
		return;
	h.id = count_taken(m);
	if (h.id <= m->told)
		return;
	m->told = h.id;
	data_send(m->link, &h, NULL, NULL, NULL);
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	deliver(arg);
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving and sending                                                                       */

static void on_received(int error, void *arg)
{
	struct incoming *in = arg;

	in->receiving = false;
	if (!in->mirror) {
		free_incoming(in);
		return;
	}
	/* What is not here as a whole comes again with the next link. */
	in->here = !error;
	in->lost = !in->here;
	if (in->here)
		deliver(in->mirror);
	else if (in->mirror->link)
		link_fail(in->mirror->link, "a message of it could not be received");
}

/* false: there is no memory at this time. */
static bool receive(struct mirror *m, struct incoming *in)
{
	in->receiving = true;
	if (message_receive(m->bridge, &in->message, on_received, in) == 0) {
		m->complained = false;
		return true;
	}
	in->receiving = false;
	if (!m->complained)
		say("channel '%s' has to wait: %s", m->name, share_error_detail());
	m->complained = true;
	return false;
}

/* In their order: what comes later does not take the memory that the first one waits for. */
static void receive_all(struct mirror *m)
{
	struct incoming *in;

	TAILQ_FOREACH (in, &m->incoming, in_mirror) {
		if (in->here || in->receiving || in->lost)
			continue;
		if (!message_is_whole(&in->message) || !receive(m, in))
			break;
	}
}

/* 0: it was sent. */
static int pass_on(struct mirror *m, struct incoming *in)
{
	uint32_t deliveries = in->message.header.deliveries;
	uint32_t before = deliveries > 0 ? deliveries - 1 : 0;
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_buffer *buffers[DATA_BUFFERS];
	int r;

	message_pass(&in->message, &out, buffers);
	out.flags = SHARE_OUTGOING_GIVE;
	out.deliveries = before < UINT16_MAX ? before : UINT16_MAX;
	r = share_send_many(m->channel, &out, 1, NULL);
	if (r < 0)
		return r;
	message_given(&in->message);
	return 0;
}

/* In their order, as far as there is room. */
static void deliver(struct mirror *m)
{
	struct incoming *in;

	if (m->delivering)
		return; /* what was received at once is here now */
	m->delivering = true;
	receive_all(m);
	while (m->channel && (in = TAILQ_FIRST(&m->incoming)) != NULL) {
		if (!in->here || pass_on(m, in) != 0)
			break;
		TAILQ_REMOVE(&m->incoming, in, in_mirror);
		free_incoming(in);
		m->sent++;
	}
	m->delivering = false;
	tell_taken(m);
	if (m->channel && (!TAILQ_EMPTY(&m->incoming) || m->told < m->sent))
		timer_in(m->room, ROOM_MS);
}

static bool fits(const struct mirror *m, const struct message_in *message)
{
	return message->n_buffers <= (m->buffers ? m->buffers : 1) &&
	       message->size <= (m->data_max ? m->data_max : SHARE_MESSAGE_DATA_MAX);
}

static struct incoming *add_incoming(struct mirror *m)
{
	struct incoming *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->mirror = m;
	m->next++;
	TAILQ_INSERT_TAIL(&m->incoming, in, in_mirror);
	return in;
}

static struct incoming *find_incoming(struct mirror *m, uint64_t id)
{
	struct incoming *in;

	TAILQ_FOREACH_REVERSE(in, &m->incoming, incoming_list, in_mirror)
	if (in->message.header.id == id)
		return in;
	return NULL;
}

const char *mirror_message(struct link *l, const struct data_header *h, struct parcel *p)
{
	struct mirror *m = find_mirror(l, h->which);
	struct incoming *in = NULL;
	const char *wrong;

	if (!m || !m->channel || h->id < m->sent)
		return NULL; /* it was closed meanwhile, or has come before */
	if (h->part > 0) {
		in = find_incoming(m, h->id);
	} else {
		if (h->id < m->next)
			return NULL;
		if (h->id == m->next && h->id - m->told < m->depth && !(in = add_incoming(m)))
			return "no memory";
	}
	if (!in)
		return "it sends a message that has no place";
	wrong = message_hear(&in->message, h, p);
	if (!wrong && !fits(m, &in->message))
		wrong = "its message is larger than its channel lets it be";
	in->lost = wrong;
	m->delivering = true; /* it is still here after this */
	if (!wrong)
		receive_all(m);
	m->delivering = false;
	if (!in->receiving && !in->here && !in->lost)
		message_keep(&in->message);
	if (!wrong)
		deliver(m);
	return wrong;
}

/* ------------------------------------------------------------------------------------------- */
/* Opening                                                                                     */

static void ask(struct mirror *m)
{
	if (m->link)
		link_say(m->link, json_pack("{s:s, s:I, s:s}", "say", "open", "which",
					    (json_int_t)m->which, "name", m->name));
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	ask(arg);
}

static void on_mirror_grace(evutil_socket_t fd, short what, void *arg)
{
	struct mirror *m = arg;

	(void)fd, (void)what;
	if (m->channel)
		say("channel '%s' of %s is closed", m->name, m->site);
	mirror_free(m);
}

static bool is(json_t *shape, const char *key, const char *what)
{
	const char *value = json_string_value(json_object_get(shape, key));

	return value && strcmp(value, what) == 0;
}

/* What does not fit into the limits here is refused here. */
static int open_mirrored(struct mirror *m, json_t *shape)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

	m->queue = is(shape, "mode", "queue");
	m->depth = shape_number(shape, "depth");
	options.pool = m->bridge->settings->pool;
	options.mode = m->queue ? SHARE_QUEUE : SHARE_BROADCAST;
	options.when_full = is(shape, "when_full", "drop")   ? SHARE_FULL_DROP
			    : is(shape, "when_full", "fail") ? SHARE_FULL_FAIL
							     : SHARE_FULL_BLOCK;
	options.depth = m->depth;
	options.in_flight = shape_number(shape, "in_flight");
	options.data_max = m->data_max = shape_number(shape, "data_max");
	options.history = shape_number(shape, "history");
	options.buffers = m->buffers = shape_number(shape, "buffers");
	options.send_timeout_ms = 1;             /* then others have their turn */
	options.flags = SHARE_CHANNEL_TRANSIENT; /* the source has them, and sends them again */
	return m->depth > 0 ? share_channel_open(m->bridge->client, m->name, SHARE_PRODUCER,
						 &options, &m->channel)
			    : SHARE_EINVAL;
}

/* From now on the source counts in another way. */
static void begin_sequence(struct mirror *m, uint64_t next)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	share_channel_get_stats(m->channel, &stats);
	m->next = m->sent = m->told = next;
	m->first = next - stats.sent;
}

const char *mirror_opened(struct link *l, uint32_t which, json_t *o)
{
	struct mirror *m = find_mirror(l, which);
	json_int_t next = json_integer_value(json_object_get(o, "next"));

	if (!m || next <= 0)
		return "it opened what nobody asked for";
	if (!m->channel && open_mirrored(m, json_object_get(o, "shape")) != 0) {
		if (!m->complained)
			say("channel '%s' of %s: %s", m->name, l->site, share_error_detail());
		m->complained = true;
		m->channel = NULL;
		timer_in(m->again, AGAIN_MS);
		return NULL;
	}
	m->complained = false;
	if (strcmp(m->run, l->run) != 0 || (uint64_t)next > m->next ||
	    m->next - (uint64_t)next > m->depth)
		begin_sequence(m, (uint64_t)next);
	m->told = (uint64_t)next; /* what was said on the way to a lost link was not heard */
	snprintf(m->run, sizeof(m->run), "%s", l->run);
	link_say(l, json_pack("{s:s, s:I, s:I}", "say", "begin", "which", (json_int_t)which, "next",
			      (json_int_t)m->next));
	deliver(m); /* tells what was taken meanwhile */
	say("channel '%s' of %s is open", m->name, l->site);
	return NULL;
}

const char *mirror_closed(struct link *l, uint32_t which)
{
	struct mirror *m = find_mirror(l, which);

	if (!m)
		return "it closed what nobody asked for";
	if (m->channel)
		close_channel(m);
	else if (!m->complained)
		say("channel '%s' is not to be had of %s; it is asked for again", m->name, l->site);
	m->complained = true;
	timer_in(m->again, AGAIN_MS);
	return NULL;
}

static struct mirror *make_mirror(struct link *l, const char *name)
{
	struct bridge *b = link_bridge(l);
	struct mirror *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->bridge = b;
	m->name = strdup(name);
	snprintf(m->site, sizeof(m->site), "%s", l->site);
	m->which = (uint32_t)++b->last_id;
	TAILQ_INIT(&m->incoming);
	m->again = evtimer_new(b->base, on_again, m);
	m->room = evtimer_new(b->base, on_room, m);
	m->grace = evtimer_new(b->base, on_mirror_grace, m);
	TAILQ_INSERT_TAIL(&b->channels->mirrors, m, in_all);
	return m->name && m->again && m->room && m->grace ? m : NULL;
}

/* Those of an earlier link go on where they were. */
void channels_up(struct link *l)
{
	struct bridge *b = link_bridge(l);
	const struct patterns *names = &b->settings->channels_in;
	struct mirror *m;

	for (size_t i = 0; i < names->n; i++) {
		TAILQ_FOREACH (m, &b->channels->mirrors, in_all)
			if (strcmp(m->site, l->site) == 0 &&
			    strcmp(m->name, names->all[i].text) == 0)
				break;
		if (!m)
			m = make_mirror(l, names->all[i].text);
		if (!m) {
			link_fail(l, "no memory");
			return;
		}
		m->link = l;
		event_del(m->grace);
		m->complained = false;
		ask(m);
	}
}

void mirrors_down(struct link *l)
{
	struct bridge *b = link_bridge(l);
	struct mirror *m;

	TAILQ_FOREACH (m, &b->channels->mirrors, in_all) {
		if (m->link != l)
			continue;
		m->link = NULL;
		event_del(m->again);
		drop_incoming(m);
		timer_in(m->grace, b->settings->grace_ms);
	}
}

void mirrors_close(struct bridge *b)
{
	struct mirror *m;

	while ((m = TAILQ_FIRST(&b->channels->mirrors)) != NULL)
		mirror_free(m);
}

json_t *mirrors_describe(struct bridge *b, const struct link *l)
{
	json_t *list = json_array();
	const struct mirror *m;

	TAILQ_FOREACH (m, &b->channels->mirrors, in_all)
		if (m->channel && (m->link == l || (!m->link && strcmp(m->site, l->site) == 0)))
			json_array_append_new(
			    list, json_pack("{s:s, s:s, s:I, s:I, s:I}", "channel", m->name, "as",
					    "mirror", "messages", (json_int_t)m->sent, "credits",
					    (json_int_t)(m->depth - (m->next - m->told)), "depth",
					    (json_int_t)m->depth));
	return list;
}
