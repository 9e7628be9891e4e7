/* SPDX-License-Identifier: MIT */

/*
 * Packets to clients on their way out: each is a record from when it was said until it has gone
 * out, so that nothing that counts goes unsaid.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/inside.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/keeper/kept.h"
#include "wire/wire.h"

void queued_free(struct connection *c, struct queued *q)
{
	TAILQ_REMOVE(&c->queue, q, link);
	if (q->is_news)
		TAILQ_REMOVE(&c->broker->clients->news, q, news);
	journal_drop(c->broker->journal, &q->record);
	charge_return(&q->charge);
	charge_return(&q->charge_descriptors);
	for (size_t i = 0; q->waits && i < q->fds.n; i++)
		kept_close(q->fds.fds[i]);
	if (q->is_spare)
		c->broker->clients->spare = q;
	else
		free(q);
}

void connection_send_rest(struct connection *c)
{
	struct queued *q;

	while (!c->waits && !c->client->end.drained && (q = TAILQ_FIRST(&c->queue)) &&
	       packet_send(c->socket, q->data, q->size, q->fds.fds, q->fds.n, false) == 0)
		queued_free(c, q);
}

void connection_drop_queue(struct connection *c)
{
	struct queued *q;

	connection_send_rest(c);
	while ((q = TAILQ_FIRST(&c->queue)))
		queued_free(c, q);
}

void queued_add_last(struct connection *c, struct queued *q)
{
	q->connection = c;
	TAILQ_INSERT_TAIL(&c->queue, q, link);
	TAILQ_INSERT_TAIL(&c->broker->clients->news, q, news);
	q->is_news = true;
}

/* Puts duplicates of descriptors in their place, which the keeper has as well. 0 or negative
 * errno, and nothing has changed. */
int queued_own_fds(struct fd_list *fds)
{
	struct fd_list own = {.n = 0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < fds->n; i++) {
		int fd = fds->fds[i] < 0 ? -EBADF : fd_dup(fds->fds[i]);

		if (fd < 0)
			r = fd;
		else
			own.fds[own.n++] = fd;
	}
	for (size_t i = 0; r == 0 && i < own.n; i += KEPT_AT_ONCE)
		r = kept_keep(own.fds + i, NULL,
			      own.n - i < KEPT_AT_ONCE ? own.n - i : KEPT_AT_ONCE);
	for (size_t i = 0; r < 0 && i < own.n; i++)
		kept_close(own.fds[i]);
	if (r == 0)
		*fds = own;
	return r;
}

bool queued_pay(struct client *c, struct queued *q)
{
	uint64_t size = sizeof(*q) + q->size, own = OWN_OF_PRICE(sizeof(*q)) + q->size;

	return account_bears(c->account, LIMIT_UNSENT, size) &&
	       charge_take_unasked(&q->charge, c->account, LIMIT_UNSENT, size, own) &&
	       charge_take(&q->charge_descriptors, c->account, LIMIT_DESCRIPTORS, q->fds.n);
}

int queued_let_wait(struct connection *c, struct queued *q)
{
	int r;

	if (q->waits)
		return 0;
	if (!queued_pay(c->client, q))
		return -EDQUOT;
	r = queued_own_fds(&q->fds);
	if (r < 0)
		return r;
	q->waits = true;
	if (q->fds.n > 0)
		queued_note(q);
	return 0;
}

/* Without memory the spare still serves for one packet at a time; a connection that needs another
 * one meanwhile fails. */
static struct queued *queued_new(struct clients *all, size_t size)
{
	struct queued *q = malloc(sizeof(*q) + size);
	bool is_spare = !q;

	if (!q) {
		q = all->spare;
		all->spare = NULL;
	}
	if (q)
		*q = (struct queued){.is_spare = is_spare};
	return q;
}

int connection_enqueue(struct connection *c, const void *data, size_t size, const int *fds,
		       size_t n_fds)
{
	uint64_t number = (uint64_t)c->broker->generation << 48 | ++c->n_sent;
	struct queued *q = queued_new(c->broker->clients, size + WIRE_NUMBER_SIZE);

	if (!q)
		return -ENOMEM;
	q->client = c->client->id;
	q->number = number;
	q->fds.n = n_fds;
	if (n_fds > 0)
		memcpy(q->fds.fds, fds, n_fds * sizeof(*fds));
	memcpy(q->data, data, size);
	q->size = wire_put_number(q->data, size, number);
	queued_add_last(c, q);
	if (!MUTATION(answer_not_noted))
		queued_note(q);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

/* Descriptors that were read belong to whatever object they are of, or are -1. */
static void record_fds(struct record *r, struct fd_list *fds)
{
	static uint32_t ids[WIRE_FDS_MAX];
	struct iovec part;

	for (size_t i = 0; !r->is_read && i < fds->n; i++)
		ids[i] = kept_id(fds->fds[i]);
	part = record_rest(r, ids, fds->n * sizeof(*ids), sizeof(*ids));
	if (part.iov_len > sizeof(ids))
		record_fail(r, -EBADMSG);
	if (!record_reads(r))
		return;
	memcpy(ids, part.iov_base, part.iov_len);
	fds->n = part.iov_len / sizeof(*ids);
	for (size_t i = 0; i < fds->n; i++)
		fds->fds[i] = kept_look(ids[i]);
}

static void queued_fields(struct record *r, void *object)
{
	struct queued *q = object;

	record_u64(r, &q->client);
	record_u64(r, &q->number);
	record_fds(r, &q->fds);
	record_rest_of(r, (char *)q->data, &q->size);
	r->order = q->number;
}

const struct object_kind queued_kind =
    OBJECT_KIND(RECORD_OUTGOING, "packet to a client", struct queued, queued_fields, queued_attach);

void queued_note(struct queued *q)
{
	object_put(q->connection->broker->journal, &queued_kind, q);
}
