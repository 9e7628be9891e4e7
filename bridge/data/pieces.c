/* SPDX-License-Identifier: MIT */

/*
 * Content in pieces. Of each link, at most SLOTS pieces are under way at a time in either
 * direction, whatever there is to send: so much pinned memory it can have. While a piece is sent,
 * those after it are copied from the device; on the other side it is copied to the device while
 * those after it come. The receiver lets the pieces of a content come when it has memory for all of
 * it, so those that are under way never wait for memory, and no content holds up the others.
 */

#include <stdlib.h>
#include <string.h>

#include "bridge/data/inside.h"
#include "bridge/link.h"

#define SLOTS 8

/* UCX moves memory of a GPU to another by fragments of its own that have this size, as it cannot
 * show memory to others that was imported; and what is larger by the host (1.22). */
#define UCX_FRAGMENT (UINT64_C(4) << 20)

struct outbound {
	TAILQ_ENTRY(outbound) next;
	struct data_end *end;
	uint64_t number, size, at; /* what is before was begun */
	uint64_t piece;            /* bytes of each but the last */
	char *from;
	int ordinal;
	unsigned busy; /* pieces */
	bool staged, going, failed;
	data_done done;
	void *arg;
};

struct inbound {
	TAILQ_ENTRY(inbound) next;
	struct data_end *end;
	uint64_t number, size, here;
	char *to;
	int ordinal;
	unsigned busy;
	bool going, failed;
	data_done done;
	void *arg;
	unsigned char begun[]; /* a bit for each PIECE bytes: what comes twice has no place */
};

/* Of the one or of the other. */
struct piece {
	TAILQ_ENTRY(piece) next;
	struct outbound *out;
	struct inbound *in;
	struct slot *slot; /* NULL: it is sent from where it is, or received where it will be */
	uint64_t offset, size;
	void *what; /* as long as it was not received */
};

void pieces_begin(struct data_end *d)
{
	TAILQ_INIT(&d->pieces.out);
	TAILQ_INIT(&d->pieces.in);
	TAILQ_INIT(&d->pieces.waiting);
}

static void give_back(struct data_end *d, struct piece *p)
{
	if (p->slot)
		staging_give(d->data->staging, p->slot);
	free(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Sending                                                                                     */

static void end_outbound(struct outbound *o, int error)
{
	TAILQ_REMOVE(&o->end->pieces.out, o, next);
	tell(o->done, error, o->arg);
	free(o);
}

static void send_pieces(struct data_end *d);

/* It is through with the piece, whatever has become of it. */
static void end_piece(int error, void *arg)
{
	struct piece *p = arg;
	struct outbound *o = p->out;
	struct data_end *d = o->end;

	give_back(d, p);
	d->pieces.n_out--;
	o->busy--;
	o->failed = o->failed || error;
	if (o->busy == 0 && (o->failed || o->at == o->size))
		end_outbound(o, o->failed ? -1 : 0);
	send_pieces(d);
}

static void send_piece(struct piece *p)
{
	struct outbound *o = p->out;
	struct data_end *d = o->end;
	struct data_header h = {
	    .kind = DATA_PIECE, .number = o->number, .offset = p->offset, .size = p->size};

	if (p->slot)
		data_put(d, &h, slot_memory(p->slot), p->size, false, end_piece, p);
	else
		data_put(d, &h, o->from + p->offset, p->size, o->ordinal >= 0, end_piece, p);
}

/* Without it the other side would wait for the rest. */
static void fail_copy(struct data_end *d)
{
	link_fail(d->link, "what it is to be sent cannot be copied");
}

static void on_piece_copied(int error, void *arg)
{
	struct piece *p = arg;

	if (!error) {
		send_piece(p);
		return;
	}
	fail_copy(p->out->end);
	end_piece(error, p);
}

static int copy_piece(struct piece *p)
{
	struct outbound *o = p->out;
	struct staging *s = o->end->data->staging;

	p->slot = staging_take(s, o->ordinal);
	return p->slot ? staging_copy(s, o->ordinal, TO_HOST, slot_memory(p->slot),
				      o->from + p->offset, p->size, on_piece_copied, p, o->end)
		       : -1;
}

/* 0 or -1: the link is about to end. */
static int begin_piece(struct outbound *o)
{
	struct data_end *d = o->end;
	struct piece *p = calloc(1, sizeof(*p));
	uint64_t rest = o->size - o->at;

	if (!p) {
		fail_copy(d);
		return -1;
	}
	p->out = o;
	p->offset = o->at;
	p->size = rest < o->piece ? rest : o->piece;
	o->at += p->size;
	o->busy++;
	d->pieces.n_out++;
	TAILQ_REMOVE(&d->pieces.out, o, next);
	TAILQ_INSERT_TAIL(&d->pieces.out, o, next); /* others have their turn */
	if (!o->staged) {
		send_piece(p);
	} else if (copy_piece(p) != 0) {
		fail_copy(d);
		end_piece(-1, p);
	}
	return 0;
}

static struct outbound *find_more(struct data_end *d)
{
	struct outbound *o;

	TAILQ_FOREACH (o, &d->pieces.out, next)
		if (o->going && !o->failed && o->at < o->size)
			return o;
	return NULL;
}

/* What is sent at once calls this again. */
static void send_pieces(struct data_end *d)
{
	struct outbound *o;

	if (d->pieces.starting || d->ending)
		return;
	d->pieces.starting = true;
	while (d->pieces.n_out < SLOTS && (o = find_more(d)) != NULL)
		if (begin_piece(o) != 0)
			break;
	d->pieces.starting = false;
}

bool pieces_have_to(const struct data_end *d, uint64_t size, const struct reach *from)
{
	if (d->wants_pieces || reach_is_staged(d, from))
		return size > LITTLE;
	return from->ordinal >= 0 && size > UCX_FRAGMENT;
}

void pieces_send(struct data_end *d, const struct data_header *h, const struct reach *from,
		 data_done done, void *arg)
{
	struct data_header first = *h;
	struct outbound *o = d->ending ? NULL : calloc(1, sizeof(*o));
	bool staged = reach_is_staged(d, from);

	if (!o) {
		tell(done, -1, arg);
		return;
	}
	*o = (struct outbound){.end = d,
			       .number = ++d->pieces.last,
			       .size = h->size,
			       .piece = d->wants_pieces || staged ? PIECE : UCX_FRAGMENT,
			       .from = from->memory,
			       .ordinal = from->ordinal,
			       .staged = staged,
			       .done = done,
			       .arg = arg};
	TAILQ_INSERT_TAIL(&d->pieces.out, o, next);
	first.flags |= DATA_IN_PIECES;
	first.number = o->number;
	data_put(d, &first, NULL, 0, false, NULL, NULL);
}

const char *pieces_hear_go(struct data_end *d, const struct data_header *h)
{
	struct outbound *o;

	TAILQ_FOREACH (o, &d->pieces.out, next)
		if (o->number == h->number)
			break;
	if (!o || o->going)
		return "it waits for what it was not offered";
	if (h->status != 0) { /* nobody wants it any more */
		end_outbound(o, 0);
		return NULL;
	}
	o->going = true;
	send_pieces(d);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

static void answer(struct data_end *d, uint64_t number, int status)
{
	struct data_header h = {.kind = DATA_GO, .number = number, .status = status};

	data_put(d, &h, NULL, 0, false, NULL, NULL);
}

void pieces_refuse(struct data_end *d, uint64_t number)
{
	answer(d, number, -1);
}

static void end_inbound(struct inbound *in, int error)
{
	if (error)
		link_fail(in->end->link, DATA_LOST);
	TAILQ_REMOVE(&in->end->pieces.in, in, next);
	tell(in->done, error, in->arg);
	free(in);
}

/* The device may write there. */
static void on_piece_gate(int error, void *arg)
{
	struct inbound *in = arg;

	if (error) {
		pieces_refuse(in->end, in->number);
		end_inbound(in, error);
		return;
	}
	in->going = true;
	answer(in->end, in->number, 0);
}

void pieces_receive(struct data_end *d, uint64_t number, uint64_t size, const struct reach *to,
		    data_done done, void *arg)
{
	struct inbound *in = d->ending ? NULL : calloc(1, sizeof(*in) + size / PIECE / 8 + 1);

	if (!in) {
		pieces_refuse(d, number);
		tell(done, -1, arg);
		return;
	}
	*in = (struct inbound){.end = d,
			       .number = number,
			       .size = size,
			       .to = to->memory,
			       .ordinal = to->ordinal,
			       .done = done,
			       .arg = arg};
	TAILQ_INSERT_TAIL(&d->pieces.in, in, next);
	if (to->ordinal < 0)
		on_piece_gate(0, in);
	else if (staging_pass_gate(d->data->staging, to->ordinal, on_piece_gate, in, d) != 0)
		on_piece_gate(-1, in);
}

static void receive_waiting(struct data_end *d);

/* It has come, and is where it belongs, or has not. */
static void end_arrival(int error, void *arg)
{
	struct piece *p = arg;
	struct inbound *in = p->in;
	struct data_end *d = in->end;

	in->failed = in->failed || error;
	in->here += p->size;
	in->busy--;
	if (p->slot)
		d->pieces.n_in--;
	give_back(d, p);
	if (in->busy == 0 && (in->failed || in->here == in->size))
		end_inbound(in, in->failed ? -1 : 0);
	receive_waiting(d);
}

static void on_piece_received(int error, void *arg)
{
	struct piece *p = arg;
	struct inbound *in = p->in;
	struct data_end *d = in->end;

	if (p->slot && !error && !d->ending) {
		error = staging_copy(d->data->staging, in->ordinal, FROM_HOST, in->to + p->offset,
				     slot_memory(p->slot), p->size, end_arrival, p, d);
		if (!error)
			return;
		link_fail(d->link, "what it sends cannot be copied to its place");
	}
	end_arrival(p->slot && d->ending ? -1 : error, p);
}

/* false: there is no slot for it at this time. */
static bool has_room(const struct data_end *d, const struct inbound *in)
{
	return !is_staged(d, in->ordinal) || d->pieces.n_in < SLOTS;
}

static void receive_piece(struct piece *p)
{
	struct inbound *in = p->in;
	struct data_end *d = in->end;
	void *to = in->to + p->offset;

	if (is_staged(d, in->ordinal)) {
		p->slot = staging_take(d->data->staging, in->ordinal);
		if (!p->slot) {
			link_fail(d->link, "no memory");
			data_let_go(d, p->what);
			end_arrival(-1, p);
			return;
		}
		d->pieces.n_in++;
		to = slot_memory(p->slot);
	}
	data_fetch(d, p->what, to, p->size, in->ordinal >= 0 && !p->slot, on_piece_received, p);
}

static void receive_waiting(struct data_end *d)
{
	struct piece *p;

	while (!d->ending && (p = TAILQ_FIRST(&d->pieces.waiting)) != NULL && has_room(d, p->in)) {
		TAILQ_REMOVE(&d->pieces.waiting, p, next);
		d->pieces.n_waiting--;
		receive_piece(p);
	}
}

static void on_here_placed(int error, void *arg)
{
	struct piece *p = arg;

	data_let_go(p->in->end, p->what);
	end_arrival(error, p);
}

/* It has come with its header, as UCX likes to do where there is little of it. */
static void place_here(struct piece *p, struct parcel *parcel)
{
	struct inbound *in = p->in;

	if (in->ordinal < 0) {
		memcpy(in->to + p->offset, p->what, p->size);
		end_arrival(0, p);
		return;
	}
	parcel->taken = true;
	if (staging_copy(in->end->data->staging, in->ordinal, FROM_HOST, in->to + p->offset,
			 p->what, p->size, on_here_placed, p, in->end) != 0)
		on_here_placed(-1, p);
}

/* It begins and ends where pieces do. */
static bool fits(const struct inbound *in, const struct data_header *h)
{
	return h->size > 0 && (h->size <= PIECE || !is_staged(in->end, in->ordinal)) &&
	       h->offset % PIECE == 0 && h->offset <= in->size && h->size <= in->size - h->offset &&
	       (h->size % PIECE == 0 || h->size == in->size - h->offset);
}

static bool is_new(struct inbound *in, const struct data_header *h)
{
	for (uint64_t i = h->offset / PIECE; i * PIECE < h->offset + h->size; i++) {
		if (in->begun[i / 8] & 1U << i % 8)
			return false;
		in->begun[i / 8] |= (unsigned char)(1U << i % 8);
	}
	return true;
}

const char *pieces_hear(struct data_end *d, const struct data_header *h, struct parcel *parcel)
{
	struct inbound *in;
	struct piece *p;

	TAILQ_FOREACH (in, &d->pieces.in, next)
		if (in->number == h->number && in->going)
			break;
	if (!in || !fits(in, h) || !is_new(in, h))
		return "it sends a piece that has no place";
	if (d->pieces.n_waiting == SLOTS)
		return "it sends too many pieces at a time";
	p = calloc(1, sizeof(*p));
	if (!p)
		return "no memory";
	*p = (struct piece){.in = in, .offset = h->offset, .size = h->size, .what = parcel->what};
	in->busy++;
	if (parcel->here) {
		place_here(p, parcel);
		return NULL;
	}
	parcel->taken = true;
	if (TAILQ_EMPTY(&d->pieces.waiting) && has_room(d, in)) {
		receive_piece(p);
	} else {
		TAILQ_INSERT_TAIL(&d->pieces.waiting, p, next);
		d->pieces.n_waiting++;
	}
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */

void pieces_drop(struct data_end *d)
{
	struct piece *p;

	while ((p = TAILQ_FIRST(&d->pieces.waiting)) != NULL) {
		TAILQ_REMOVE(&d->pieces.waiting, p, next);
		d->pieces.n_waiting--;
		data_let_go(d, p->what);
		end_arrival(-1, p);
	}
}

/* Nothing of them is under way any more. */
void pieces_end(struct data_end *d)
{
	struct outbound *o;
	struct inbound *in;

	while ((o = TAILQ_FIRST(&d->pieces.out)) != NULL)
		end_outbound(o, -1);
	while ((in = TAILQ_FIRST(&d->pieces.in)) != NULL)
		end_inbound(in, -1);
}
