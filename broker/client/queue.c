/* SPDX-License-Identifier: MIT */

/*
 * Packets to clients on their way out: each is a record from when it was said until it has gone
 * out, so that nothing that counts goes unsaid.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/descriptor.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "wire/messages.h"
#include "wire/packet.h"
#include "wire/wire.h"

/* Of a packet: the numbers of its descriptors follow, and then its bytes. */
struct outgoing_record {
	uint64_t client; /* identifier */
	uint64_t number;
	uint32_t n_fds, size;
};

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

	while (!c->waits && !c->client->drained && (q = TAILQ_FIRST(&c->queue)) &&
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

static void add(struct connection *c, struct queued *q)
{
	q->connection = c;
	TAILQ_INSERT_TAIL(&c->queue, q, link);
	TAILQ_INSERT_TAIL(&c->broker->clients->news, q, news);
	q->is_news = true;
}

void queued_note(const struct connection *c, struct queued *q)
{
	struct outgoing_record r = {.client = c->client->id,
				    .number = q->number,
				    .n_fds = (uint32_t)q->fds.n,
				    .size = (uint32_t)q->size};
	uint32_t ids[WIRE_FDS_MAX];
	const struct iovec parts[] = {
	    {&r, sizeof(r)}, {ids, q->fds.n * sizeof(*ids)}, {q->data, q->size}};

	for (size_t i = 0; i < q->fds.n; i++)
		ids[i] = kept_id(q->fds.fds[i]);
	journal_put_parts(c->broker->journal, RECORD_OUTGOING, &q->record, parts, 3);
}

int queued_let_wait(struct connection *c, struct queued *q)
{
	struct fd_list own = {.n = 0};
	int r = 0;

	if (q->waits)
		return 0;
	if (!charge_take(&q->charge, c->client->account, LIMIT_UNSENT, sizeof(*q) + q->size) ||
	    !charge_take(&q->charge_descriptors, c->client->account, LIMIT_DESCRIPTORS, q->fds.n))
		return -EDQUOT;
	for (size_t i = 0; r == 0 && i < q->fds.n; i++) {
		int fd = fd_dup(q->fds.fds[i]);

		if (fd < 0)
			r = fd;
		else
			own.fds[own.n++] = fd;
	}
	for (size_t i = 0; r == 0 && i < own.n; i += KEPT_AT_ONCE)
		r = kept_keep(own.fds + i, NULL,
			      own.n - i < KEPT_AT_ONCE ? own.n - i : KEPT_AT_ONCE);
	if (r < 0) {
		fd_list_close(&own);
		return r;
	}
	q->waits = true;
	q->fds = own;
	if (own.n > 0)
		queued_note(c, q);
	return 0;
}

struct queued *queued_spare_new(void)
{
	return malloc(sizeof(struct queued) + WIRE_PACKET_MAX + WIRE_NUMBER_SIZE);
}

/* Without memory one packet at a time is still said: the others' connections fail. */
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
	q->number = number;
	q->fds.n = n_fds;
	if (n_fds > 0)
		memcpy(q->fds.fds, fds, n_fds * sizeof(*fds));
	memcpy(q->data, data, size);
	q->size = wire_put_number(q->data, size, number);
	add(c, q);
	if (!MUTATION(answer_not_noted))
		queued_note(c, q);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

struct restoring {
	struct outgoing {
		uint64_t number;
		uint32_t record;
	} * all;
	size_t n;
};

static int find_outgoing(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct restoring *r = data;
	struct outgoing *grown = realloc(r->all, (r->n + 1) * sizeof(*grown));
	struct outgoing_record one;

	(void)size;
	if (!grown)
		return -ENOMEM;
	memcpy(&one, bytes, sizeof(one));
	r->all = grown;
	r->all[r->n++] = (struct outgoing){one.number, record};
	return 0;
}

static int compare_outgoing(const void *left, const void *right)
{
	const struct outgoing *a = left, *b = right;

	return (a->number > b->number) - (a->number < b->number);
}

/* Descriptors of its own, as what they were of may be gone by now. */
static int take_fds(struct queued *q, const uint32_t *ids)
{
	for (size_t i = 0; i < q->fds.n; i++) {
		int fd = kept_look(ids[i]);

		q->fds.fds[i] = fd < 0 ? -EBADF : fd_dup(fd);
		if (q->fds.fds[i] < 0) {
			q->fds.n = i;
			return -EBADMSG;
		}
	}
	for (size_t i = 0; i < q->fds.n; i += KEPT_AT_ONCE) {
		size_t n = q->fds.n - i < KEPT_AT_ONCE ? q->fds.n - i : KEPT_AT_ONCE;
		int r = kept_keep(q->fds.fds + i, NULL, n);

		if (r < 0)
			return r;
	}
	return 0;
}

static int restore_packet(struct connection *c, uint32_t record, const struct outgoing_record *r,
			  const unsigned char *bytes, size_t size)
{
	uint32_t ids[WIRE_FDS_MAX];
	struct queued *q;
	int e;

	if (r->n_fds > WIRE_FDS_MAX || r->n_fds * sizeof(*ids) + (uint64_t)r->size > size)
		return -EBADMSG;
	q = malloc(sizeof(*q) + r->size);
	if (!q)
		return -ENOMEM;
	*q = (struct queued){
	    .number = r->number, .size = r->size, .fds = {.n = r->n_fds}, .record = record};
	memcpy(ids, bytes, r->n_fds * sizeof(*ids));
	memcpy(q->data, bytes + r->n_fds * sizeof(*ids), r->size);
	e = take_fds(q, ids);
	q->waits = true;
	add(c, q);
	if (e == 0)
		queued_note(c, q);
	return e;
}

static void restore_outgoing(struct broker *b, uint32_t record)
{
	struct outgoing_record r;
	struct client *c;
	size_t size;
	const unsigned char *bytes = journal_bytes(b->journal, record, &size);

	memcpy(&r, bytes, sizeof(r));
	c = clients_find(b->clients, r.client);
	if (!c || !c->connection) {
		journal_drop(b->journal, &record);
		return;
	}
	/* one of which a descriptor is gone cannot go on: what it holds is its own until it ends */
	if (restore_packet(c->connection, record, &r, bytes + sizeof(r), size - sizeof(r)) < 0) {
		c->connection->waits = true; /* it is sent nothing of that again */
		client_hang_up(c, 0, NULL);
	}
}

int outgoing_restore(struct broker *b)
{
	struct restoring r = {.n = 0};
	int e = journal_read(b->journal, RECORD_OUTGOING, sizeof(struct outgoing_record),
			     find_outgoing, &r);

	if (r.n > 0)
		qsort(r.all, r.n, sizeof(*r.all), compare_outgoing);
	for (size_t i = 0; e == 0 && i < r.n; i++)
		restore_outgoing(b, r.all[i].record);
	free(r.all);
	return e;
}
