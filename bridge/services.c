/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/service.h>

#include "bridge/bridge.h"
#include "bridge/data.h"
#include "bridge/link.h"
#include "bridge/memory.h"
#include "bridge/services.h"

#define AT_ONCE   64 /* requests of one desk that are not answered */
#define LOOK_MS   10 /* for callers that have given up, and for answers */
#define DESKS_MAX 256

/* One request: at a desk the message that is to be answered, over there the call. */
struct errand {
	TAILQ_ENTRY(errand) in_end;
	struct end *end; /* NULL: nobody waits for it any more */
	uint64_t id;
	share_message message; /* at a desk the request; at the counter the answer */
	share_pending *call;
	struct parcel parcel;
	struct data_header header; /* of what has come */
	struct reach sent, received;
	bool sending, receiving, here;
};

/* One end of a service: the desk, where callers come, or the counter, where the workers are. */
struct end {
	TAILQ_ENTRY(end) in_all;
	struct bridge *bridge;
	struct link *link;
	char *name;
	share_service *service;
	struct event *readable, *look;
	TAILQ_HEAD(, errand) errands;
	uint64_t done;
	uint32_t which; /* as the desk's side calls it */
	unsigned n;
	bool desk;
};

struct services {
	TAILQ_HEAD(, end) ends;
	unsigned n;
};

static void free_errand(struct errand *e)
{
	reach_end(&e->sent);
	reach_end(&e->received);
	if (e->message.channel)
		share_ack(&e->message, NULL);
	free(e);
}

/* UCX may still use its memory. */
static void finish(struct errand *e)
{
	struct end *s = e->end;

	TAILQ_REMOVE(&s->errands, e, in_end);
	s->n--;
	s->done++;
	e->end = NULL;
	share_call_cancel(e->call);
	e->call = NULL;
	data_drop(&e->parcel);
	if (!e->sending && !e->receiving)
		free_errand(e);
}

static void end_free(struct end *s)
{
	struct errand *e;

	while ((e = TAILQ_FIRST(&s->errands)) != NULL) {
		if (e->message.channel)
			share_ack(&e->message, NULL); /* the caller is told at once */
		finish(e);
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

static struct errand *add(struct end *s, uint64_t id)
{
	struct errand *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->end = s;
	e->id = id;
	TAILQ_INSERT_TAIL(&s->errands, e, in_end);
	s->n++;
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
/* Both ends                                                                                   */

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
	reach_end(&e->sent);
	if (!e->end->desk)
		finish(e);
}

/* The message of an errand, or at the counter a status alone. */
static void send_on(struct errand *e, enum data_kind kind, int status)
{
	struct data_header h = {
	    .kind = kind, .which = e->end->which, .id = e->id, .status = status};
	const share_message *m = &e->message;

	if (m->channel && status == 0) {
		h.n_more = m->data_size;
		memcpy(h.more, m->data, m->data_size);
		if (m->buffer && reach_to_read(share_retain(m->buffer), &e->sent) == 0) {
			h.flags = DATA_HAS_BUFFER;
			h.size = share_size(m->buffer);
		} else if (m->buffer) {
			h.status = SHARE_ENOMEM;
			h.n_more = 0;
		}
	}
	e->sending = true;
	data_send(e->end->link, &h, e->sent.memory, on_sent, e);
}

static void act(struct errand *e);

static void on_received(int error, void *arg)
{
	struct errand *e = arg;
	int r;

	e->receiving = false;
	if (!e->end) {
		if (!e->sending)
			free_errand(e);
		return;
	}
	if (error)
		return; /* the link is lost, and with it the errand */
	e->here = true;
	r = reach_written(&e->received);
	if (r != 0)
		e->header.status = r;
	act(e);
}

/* false: there is no memory at this time. The errand may be over afterwards. */
static bool receive(struct errand *e, struct parcel *p)
{
	struct bridge *b = e->end->bridge;
	share_buffer *buffer;

	if (!(e->header.flags & DATA_HAS_BUFFER)) {
		e->here = true;
		act(e);
		return true;
	}
	if (share_alloc(b->pool, e->header.size, NULL, &buffer) != 0 ||
	    reach_to_write(buffer, &e->received) != 0)
		return false;
	e->receiving = true;
	data_receive(p, e->received.memory, on_received, e);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* The desk                                                                                    */

static void answer(struct errand *e)
{
	const struct data_header *h = &e->header;

	if (h->status == 0)
		share_reply(&e->message, e->received.buffer, h->more, h->n_more, NULL);
	finish(e); /* acknowledged without an answer, the caller is told that there is none */
}

static void cancel(struct errand *e)
{
	struct data_header h = {.kind = DATA_CANCEL, .which = e->end->which, .id = e->id};
	struct link *l = e->end->link;

	finish(e);
	data_send(l, &h, NULL, NULL, NULL);
}

/* Takes requests as long as there are not too many. */
static void take_requests(struct end *s)
{
	while (s->link->up && s->n < AT_ONCE) {
		share_message m = {0};
		int r = share_next_request(s->service, 0, NULL, &m);
		struct errand *e;

		if (!m.channel && r != SHARE_EPIPE)
			return;
		if (!m.channel)
			continue;
		e = r == 0 ? add(s, ++s->bridge->last_id) : NULL;
		if (!e) {
			share_ack(&m, NULL);
			continue;
		}
		e->message = m;
		send_on(e, DATA_REQUEST, 0);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* The counter                                                                                 */

static void call(struct errand *e)
{
	const struct data_header *h = &e->header;
	int r;

	if (e->call || e->sending)
		return;
	if (h->status != 0) { /* what it is about could not be received */
		send_on(e, DATA_ANSWER, h->status);
		return;
	}
	r = share_call_start(e->end->service, e->received.buffer, h->more, h->n_more, 0, NULL,
			     &e->call);
	if (r == SHARE_EAGAIN)
		return; /* there is room later */
	reach_end(&e->received);
	if (r != 0) {
		e->call = NULL;
		send_on(e, DATA_ANSWER, r);
	}
}

static void look_for_answer(struct errand *e)
{
	int r;

	if (!e->call || e->sending)
		return;
	r = share_call_finish(e->call, 0, NULL, &e->message);
	if (r == SHARE_EAGAIN)
		return;
	e->call = NULL;
	send_on(e, DATA_ANSWER, r);
}

static void act(struct errand *e)
{
	if (e->end->desk)
		answer(e);
	else
		call(e);
}

/* ------------------------------------------------------------------------------------------- */

static void look_at(struct errand *e)
{
	if (e->parcel.kept)
		receive(e, &e->parcel);
	else if (!e->end->desk && e->here)
		call(e);
}

static void look(struct end *s)
{
	struct errand *e, *next;

	for (e = TAILQ_FIRST(&s->errands); e; e = next) {
		next = TAILQ_NEXT(e, in_end);
		if (s->desk && !e->receiving && share_request_status(&e->message) != 0)
			cancel(e);
		else if (!s->desk && e->call)
			look_for_answer(e);
		else
			look_at(e);
	}
	if (s->desk)
		take_requests(s);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct end *s = arg;

	(void)fd, (void)what;
	look(s);
	if (s->n > 0)
		timer_in(s->look, LOOK_MS);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	on_look(fd, what, arg);
}

static struct end *make(struct link *l, const char *name, uint32_t which, bool desk)
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
	if (s->name && share_service_open(b->client, name, desk ? SHARE_WORKER : SHARE_CALLER,
					  &options, &s->service) == 0) {
		s->look = evtimer_new(b->base, on_look, s);
		s->readable = event_new(b->base, share_service_get_fd(s->service),
					EV_READ | EV_PERSIST, on_readable, s);
	}
	if (!s->look || !s->readable || event_add(s->readable, NULL) != 0) {
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
	uint32_t which;
	bool made;

	if (!read_end(o, &which, &name))
		return "it calls a service that is none";
	made = patterns_match(&link_bridge(l)->settings->services_out, name) &&
	       make(l, name, which, false);
	link_say(l, json_pack("{s:s, s:I, s:s, s:b}", "say", "called", "which", (json_int_t)which,
			      "name", name, "open", made));
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
	s = make(l, name, which, true);
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

const char *services_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	struct end *s = find_end(l, h);
	struct errand *e = s ? find(s, h->id) : NULL;

	if (((h->flags & DATA_HAS_BUFFER) != 0) != (h->size > 0) ||
	    h->n_more > SHARE_REQUEST_DATA_MAX)
		return "its request or answer makes no sense";
	if (h->kind == DATA_CANCEL) {
		if (e && !e->sending)
			finish(e);
		return NULL;
	}
	if (h->kind == DATA_REQUEST) {
		if (e || (s && s->n >= AT_ONCE))
			return "it asks too much at a time";
		e = s ? add(s, h->id) : NULL;
		if (!e)
			refuse(l, h);
	}
	if (!e || e->receiving || e->here || e->parcel.kept)
		return NULL; /* nobody waits for it any more */
	e->header = *h;
	if (!receive(e, p))
		data_keep(p, &e->parcel);
	if (s->n > 0)
		timer_in(s->look, LOOK_MS);
	return NULL;
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
