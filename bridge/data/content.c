/* SPDX-License-Identifier: MIT */

/*
 * The way that a content takes. Memory of the host goes as it is, and so does that of a GPU where
 * UCX takes it. Else much of it goes in pieces, and a little has a copy of its own: to ask the peer
 * first whether it may come would take longer than the rest.
 */

#include <stdlib.h>
#include <string.h>

#include "bridge/data/inside.h"
#include "bridge/link.h"

/* Memory of a device comes or goes: for those who look at the link, and for UCX. */
static void note(struct data_end *d, const struct reach *r)
{
	struct data *data = d->data;

	if (r->ordinal < 0)
		return;
	d->link->traffic.gpu = reach_is_staged(d, r) ? "staged" : "cuda";
	if (d->cuda && !data->in_context)
		data->in_context = staging_stay(data->staging, r->ordinal) == 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Sending                                                                                     */

struct copy {
	data_done done;
	void *arg;
	unsigned char memory[];
};

static void on_copy_sent(int error, void *arg)
{
	struct copy *c = arg;

	tell(c->done, error, c->arg);
	free(c);
}

/* At once, as messages stay in their order. */
static void send_copy(struct data_end *d, const struct data_header *h, const struct reach *from,
		      data_done done, void *arg)
{
	struct copy *c = malloc(sizeof(*c) + h->size);

	if (!c ||
	    staging_fetch(d->data->staging, from->ordinal, c->memory, from->memory, h->size) != 0) {
		free(c);
		link_fail(d->link, "what it is to be sent cannot be copied");
		tell(done, -1, arg);
		return;
	}
	c->done = done;
	c->arg = arg;
	data_put(d, h, c->memory, h->size, false, on_copy_sent, c);
}

void data_send(struct link *l, const struct data_header *h, const struct reach *from,
	       data_done done, void *arg)
{
	struct data_end *d = l->data;

	if (!d) {
		tell(done, -1, arg);
		return;
	}
	if (!from || !from->memory || h->size == 0) {
		data_put(d, h, NULL, 0, false, done, arg);
		return;
	}
	note(d, from);
	if (pieces_have_to(d, h->size, from))
		pieces_send(d, h, from, done, arg);
	else if (reach_is_staged(d, from))
		send_copy(d, h, from, done, arg);
	else
		data_put(d, h, from->memory, h->size, from->ordinal >= 0, done, arg);
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

/* What comes as a whole, and into memory of a device. */
struct landing {
	struct data_end *end;
	void *what, *to;
	size_t size;
	int ordinal;
	bool here;
	void *copy;
	data_done done;
	void *arg;
};

static void finish_content(int error, void *arg)
{
	struct landing *l = arg;

	if (error)
		link_fail(l->end->link, DATA_LOST);
	tell(l->done, error, l->arg);
	free(l->copy);
	free(l);
}

static void on_content_copied(int error, void *arg)
{
	struct landing *l = arg;

	if (l->here)
		data_let_go(l->end, l->what);
	finish_content(error, l);
}

static void copy(struct landing *l, const void *from)
{
	if (l->end->ending || staging_copy(l->end->data->staging, l->ordinal, FROM_HOST, l->to,
					   from, l->size, on_content_copied, l, l->end) != 0)
		on_content_copied(-1, l);
}

static void on_fetched(int error, void *arg)
{
	struct landing *l = arg;

	if (error)
		finish_content(error, l);
	else
		copy(l, l->copy);
}

/* The device may write there. */
static void on_content_gate(int error, void *arg)
{
	struct landing *l = arg;
	struct data_end *d = l->end;

	if (!error && !l->here && !d->cuda) {
		l->copy = malloc(l->size);
		error = l->copy ? 0 : -1;
	}
	if (error || d->ending) {
		data_let_go(d, l->what);
		finish_content(-1, l);
	} else if (l->here) {
		copy(l, l->what);
	} else if (d->cuda) {
		data_fetch(d, l->what, l->to, l->size, true, finish_content, l);
	} else {
		data_fetch(d, l->what, l->copy, l->size, false, on_fetched, l);
	}
}

static void land(struct parcel *p, const struct reach *to, data_done done, void *arg)
{
	struct data_end *d = p->from;
	bool may = d->cuda || p->size <= LITTLE; /* the rest was to come in pieces */
	struct landing *l = may ? calloc(1, sizeof(*l)) : NULL;

	if (!l) {
		link_fail(d->link, may ? DATA_LOST : "it sends too much as a whole");
		data_drop(p);
		tell(done, -1, arg);
		return;
	}
	*l = (struct landing){.end = d,
			      .what = p->what,
			      .to = to->memory,
			      .size = p->size,
			      .ordinal = to->ordinal,
			      .here = p->here,
			      .done = done,
			      .arg = arg};
	p->taken = true;
	p->kept = false;
	if (staging_pass_gate(d->data->staging, to->ordinal, on_content_gate, l, d) != 0)
		on_content_gate(-1, l);
}

static void receive_here(struct parcel *p, const struct reach *to, data_done done, void *arg)
{
	if (p->size > 0)
		memcpy(to->memory, p->what, p->size);
	p->taken = p->kept;
	data_drop(p);
	tell(done, 0, arg);
}

void data_receive(struct parcel *p, const struct reach *to, data_done done, void *arg)
{
	struct data_end *d = p->from;

	note(d, to);
	if (p->in_pieces) {
		p->taken = true;
		p->kept = false;
		pieces_receive(d, p->number, p->size, to, done, arg);
	} else if (p->size == 0 || (p->here && to->ordinal < 0)) {
		receive_here(p, to, done, arg);
	} else if (to->ordinal >= 0) {
		land(p, to, done, arg);
	} else {
		p->taken = true;
		p->kept = false;
		data_fetch(d, p->what, to->memory, p->size, false, done, arg);
	}
}

void data_keep(struct parcel *p, struct parcel *kept)
{
	p->taken = true;
	*kept = *p;
	kept->kept = true;
}

void data_drop(struct parcel *kept)
{
	if (kept->kept && kept->in_pieces)
		pieces_refuse(kept->from, kept->number);
	else if (kept->kept && kept->size > 0)
		data_let_go(kept->from, kept->what);
	kept->kept = false;
}
