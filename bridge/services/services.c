/* SPDX-License-Identifier: MIT */

/* The ends of services, of both kinds, and their errands. */

#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/link.h"
#include "bridge/services/inside.h"
#include "bridge/shape.h"

#define LOOK_MS   10 /* for callers that have given up, and for answers */
#define DESKS_MAX 256

/* Of the data of a message, what a service has for itself. */
#define OF_SERVICE (SHARE_MESSAGE_DATA_MAX - SHARE_REQUEST_DATA_MAX)

static void free_errand(struct errand *e)
{
	message_end(&e->received);
	if (e->message.channel)
		share_ack(&e->message, NULL);
	free(e);
}

void errand_finish(struct errand *e)
{
	struct end *s = e->end;

	TAILQ_REMOVE(&s->errands, e, in_end);
	s->n--;
	s->done++;
	if (!s->desk && s->n == 0)
		event_del(s->readable);
	e->end = NULL;
	share_call_cancel(e->call);
	e->call = NULL;
	if (e->holding) {
		share_cancel(e->holding);
		e->holding = NULL;
		e->sending = false;
	}
	if (!e->receiving)
		message_end(&e->received);
	if (!e->sending && !e->receiving)
		free_errand(e);
}

static void end_free(struct end *s)
{
	struct errand *e;

	while ((e = TAILQ_FIRST(&s->errands)) != NULL) {
		if (e->message.channel)
			share_ack(&e->message, NULL); /* the caller is told at once */
		errand_finish(e);
	}
	if (s->readable)
		event_free(s->readable);
	if (s->look)
		event_free(s->look);
	share_service_close(s->service);
	TAILQ_REMOVE(&s->bridge->services->ends, s, in_all);
	s->bridge->services->n--;
	free(s->name);
	free(s);
}

/* As long as there is an errand, it is looked at, whatever else happens or does not. */
static void keep_looking(struct end *s)
{
	if (s->n > 0 && !evtimer_pending(s->look, NULL))
		timer_in(s->look, LOOK_MS);
}

struct errand *errand_add(struct end *s, uint64_t id)
{
	struct errand *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->end = s;
	e->id = id;
	e->message = (share_message)SHARE_MESSAGE_INIT;
	TAILQ_INSERT_TAIL(&s->errands, e, in_end);
	s->n++;
	keep_looking(s);
	/* Who asks nobody does not look for answers, and the descriptor would stay readable. */
	if (!s->desk && s->n == 1)
		event_add(s->readable, NULL);
	return e;
}

static struct errand *find(struct end *s, uint64_t id)
{
	struct errand *e;

	TAILQ_FOREACH (e, &s->errands, in_end)
		if (e->id == id)
			return e;
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* Errands                                                                                     */

static void on_sent(int error, void *arg)
{
	struct errand *e = arg;

	(void)error; /* the link notices by itself */
	e->sending = false;
	if (!e->end) {
		if (!e->receiving)
			free_errand(e);
		return;
	}
	if (!e->end->desk)
		errand_finish(e);
}

static void send_now(struct errand *e, enum data_kind kind, int status)
{
	struct data_header h = {
	    .kind = kind, .which = e->end->which, .id = e->id, .status = status};

	e->sending = true;
	if (e->message.channel && status == 0)
		message_send(e->end->link, &h, &e->message, on_sent, e);
	else
		data_send(e->end->link, &h, NULL, on_sent, e);
}

static void on_good(int status, void *arg)
{
	struct errand *e = arg;

	share_cancel(e->holding);
	e->holding = NULL;
	send_now(e, e->kind, status);
}

/* On a GPU the work of who has sent it may still be under way. */
void errand_send(struct errand *e, enum data_kind kind, int status)
{
	share_buffer *b = status == 0 && e->message.channel ? e->message.buffer : NULL;

	e->kind = kind;
	if (b)
		status = share_buffer_status(b);
	if (status == SHARE_EAGAIN && share_buffer_watch(b, on_good, e, &e->holding) == 0)
		e->sending = true;
	else
		send_now(e, kind, status == SHARE_EAGAIN ? SHARE_ENOMEM : status);
}

static void act(struct errand *e)
{
	if (e->end->desk)
		desk_act(e);
	else
		counter_act(e);
}

static void on_received(int error, void *arg)
{
	struct errand *e = arg;

	e->receiving = false;
	if (!e->end) {
		if (!e->sending)
			free_errand(e);
		return;
	}
	if (error)
		return; /* the link is lost, and with it the errand */
	e->here = true;
	act(e);
}

/* When there is memory for it. The errand may be over afterwards, if this is true. */
static bool receive(struct errand *e)
{
	if (!message_is_whole(&e->received))
		return false;
	e->receiving = true;
	if (message_receive(e->end->bridge, &e->received, on_received, e) == 0)
		return true;
	e->receiving = false;
	return false;
}

/* ------------------------------------------------------------------------------------------- */
/* Ends                                                                                        */

static void look(struct end *s)
{
	struct errand *e, *next;

	for (e = TAILQ_FIRST(&s->errands); e; e = next) {
		next = TAILQ_NEXT(e, in_end);
		if (s->desk && desk_gives_up(e))
			continue;
		if (!receive(e) && !s->desk && e->here)
			counter_look_at(e);
	}
	if (s->desk)
		desk_take_requests(s);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct end *s = arg;

	(void)fd, (void)what;
	look(s);
	keep_looking(s);
}

/* Who takes part has to say it, where messages take parts; and how many may call, as that says how
 * much there is room for. */
static void learn(share_service_options *options, const json_t *shape)
{
	uint32_t data_max = shape_number(shape, "data_max");

	if (!shape_has_parts(shape))
		return;
	options->buffers = shape_number(shape, "buffers");
	options->data_max = data_max > OF_SERVICE ? data_max - OF_SERVICE : 0;
	options->callers = shape_number(shape, "producers_max");
}

/* @shape: of the channel of its requests over there, or at a counter here; NULL: none is known, or
 * the peer takes no parts. */
static struct end *make(struct link *l, const char *name, uint32_t which, bool desk,
			const json_t *shape)
{
	struct bridge *b = link_bridge(l);
	struct end *s = b->services->n < DESKS_MAX ? calloc(1, sizeof(*s)) : NULL;
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;

	if (!s)
		return NULL;
	s->bridge = b;
	s->link = l;
	s->which = which;
	s->desk = desk;
	TAILQ_INIT(&s->errands);
	TAILQ_INSERT_TAIL(&b->services->ends, s, in_all);
	b->services->n++;
	s->name = strdup(name);
	options.pool = b->settings->pool;
	learn(&options, shape);
	if (s->name && share_service_open(b->client, name, desk ? SHARE_WORKER : SHARE_CALLER,
					  &options, &s->service) == 0) {
		s->look = evtimer_new(b->base, on_look, s);
		s->readable = event_new(b->base, share_service_get_fd(s->service),
					EV_READ | EV_PERSIST, on_look, s);
	}
	if (!s->look || !s->readable || (desk && event_add(s->readable, NULL) != 0)) {
		say("service '%s': %s", name, share_error_detail());
		end_free(s);
		return NULL;
	}
	say("service '%s' is %s %s", name, desk ? "that of" : "called by", l->site);
	return s;
}

void services_up(struct link *l)
{
	struct bridge *b = link_bridge(l);
	const struct patterns *names = &b->settings->services_in;

	for (size_t i = 0; i < names->n; i++)
		link_say(l, json_pack("{s:s, s:I, s:s}", "say", "call", "which",
				      (json_int_t)++b->last_id, "name", names->all[i].text));
}

static bool read_end(json_t *o, uint32_t *which, const char **name)
{
	json_int_t value;

	if (json_unpack(o, "{s:I, s:s}", "which", &value, "name", name) != 0 || value <= 0 ||
	    value > UINT32_MAX)
		return false;
	*which = (uint32_t)value;
	return true;
}

/* The counter is open before anybody comes to the desk. */
const char *services_hear_call(struct link *l, json_t *o)
{
	const char *name;
	json_t *answer, *shape = NULL;
	uint32_t which;
	bool made = false;

	if (!read_end(o, &which, &name))
		return "it calls a service that is none";
	if (patterns_match(&link_bridge(l)->settings->services_out, name)) {
		shape = l->takes_parts ? shape_of(link_bridge(l), name) : NULL;
		made = make(l, name, which, false, shape);
	}
	answer = json_pack("{s:s, s:I, s:s, s:b}", "say", "called", "which", (json_int_t)which,
			   "name", name, "open", made);
	json_object_del(shape, "members");
	if (made && shape)
		json_object_set(answer, "shape", shape);
	json_decref(shape);
	link_say(l, answer);
	return NULL;
}

const char *services_hear_called(struct link *l, json_t *o)
{
	const char *name;
	uint32_t which;
	struct end *s;

	if (!read_end(o, &which, &name) ||
	    !patterns_match(&link_bridge(l)->settings->services_in, name))
		return "it has a service that nobody asked for";
	if (!json_is_true(json_object_get(o, "open"))) {
		say("service '%s' is not to be had of %s", name, l->site);
		return NULL;
	}
	s = make(l, name, which, true, json_object_get(o, "shape"));
	if (s)
		look(s);
	return NULL;
}

void services_down(struct link *l)
{
	struct end *s, *next;

	for (s = TAILQ_FIRST(&link_bridge(l)->services->ends); s; s = next) {
		next = TAILQ_NEXT(s, in_all);
		if (s->link == l)
			end_free(s);
	}
}

static void refuse(struct link *l, const struct data_header *h)
{
	struct data_header answer = {
	    .kind = DATA_ANSWER, .which = h->which, .id = h->id, .status = SHARE_ENOENT};

	data_send(l, &answer, NULL, NULL, NULL);
}

static struct end *find_end(struct link *l, const struct data_header *h)
{
	struct end *s;

	TAILQ_FOREACH (s, &link_bridge(l)->services->ends, in_all)
		if (s->link == l && s->which == h->which && s->desk == (h->kind == DATA_ANSWER))
			return s;
	return NULL;
}

/* UCX promises no order: a cancellation may come before the request, which is large, say. */
static void cancel_by_id(struct end *s, struct errand *e, uint64_t id)
{
	if (e && !e->sending)
		errand_finish(e);
	else if (!e)
		s->early[s->n_early++ % EARLY] = id;
}

static bool is_canceled(struct end *s, uint64_t id)
{
	for (size_t i = 0; i < EARLY; i++)
		if (s->early[i] == id) {
			s->early[i] = 0;
			return true;
		}
	return false;
}

/* The request, if it may come, as the first of its frames has. */
static const char *add_request(struct link *l, struct end *s, const struct data_header *h,
			       struct errand **e)
{
	if (*e || (s && s->n >= AT_ONCE))
		return "it asks too much at a time";
	if (s && h->id > s->newest)
		s->newest = h->id;
	if (s && is_canceled(s, h->id))
		return NULL;
	*e = s ? errand_add(s, h->id) : NULL;
	if (!*e)
		refuse(l, h);
	return NULL;
}

/* A message of which a frame was passed over would never be whole, and its caller would wait for
 * ever. One that nobody waits for any more has had its first frame, or it is not an errand here. */
static bool is_ahead(const struct end *s, const struct errand *e, const struct data_header *h)
{
	return e ? !e->received.parts : !s->desk && h->id > s->newest;
}

const char *services_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	struct end *s = find_end(l, h);
	struct errand *e = s ? find(s, h->id) : NULL;
	const char *wrong = NULL;

	if (h->kind == DATA_CANCEL) {
		if (s)
			cancel_by_id(s, e, h->id);
		return NULL;
	}
	if (h->kind == DATA_REQUEST && h->part == 0)
		wrong = add_request(l, s, h, &e);
	if (!wrong && s && h->part > 0 && is_ahead(s, e, h))
		return "it sends the first frame of a message after others of it";
	if (wrong || !e || (h->part == 0) != (e->received.parts == NULL))
		return wrong; /* or nobody waits for it any more */
	wrong = message_hear(&e->received, h, p);
	if (wrong || !receive(e))
		message_keep(&e->received);
	return wrong;
}

int services_open(struct bridge *b)
{
	b->services = calloc(1, sizeof(*b->services));
	if (!b->services)
		return -1;
	TAILQ_INIT(&b->services->ends);
	return 0;
}

void services_close(struct bridge *b)
{
	struct end *s;

	if (!b->services)
		return;
	while ((s = TAILQ_FIRST(&b->services->ends)) != NULL)
		end_free(s);
	free(b->services);
	b->services = NULL;
}

json_t *services_describe(struct bridge *b, const struct link *l)
{
	json_t *list = json_array();
	const struct end *s;

	TAILQ_FOREACH (s, &b->services->ends, in_all)
		if (s->link == l)
			json_array_append_new(
			    list, json_pack("{s:s, s:s, s:I, s:I}", "service", s->name, "as",
					    s->desk ? "desk" : "counter", "calls", (json_int_t)s->n,
					    "done", (json_int_t)s->done));
	return list;
}
