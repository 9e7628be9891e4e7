/* SPDX-License-Identifier: MIT */

/* Both sides of a channel by hand: the requests, and the few words in the pages that the broker
 * looks at. */

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "pages/page.h"
#include "tests/harness/check.h"
#include "tests/support/raw_channel.h"

struct wire_message party_request(const char *name, uint32_t role)
{
	struct wire_message m = {.type = WIRE_CHANNEL_OPEN};

	m.channel_open.role = role;
	m.channel_open.name = raw_text(name);
	return m;
}

static size_t page_size(const struct party *p)
{
	return p->role == SHARE_PRODUCER ? channel_ring_size(&p->shape, p->layout)
					 : channel_ledger_size(&p->shape);
}

void party_open(struct party *p, struct raw *r, struct wire_message *open)
{
	struct epoll_event change = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
	const struct wire_channel *m = &r->m.channel;
	void *control;

	*p = (struct party){.r = r, .role = open->channel_open.role};
	raw_ask(r, open, WIRE_CHANNEL);
	p->id = m->member;
	p->pool = m->pool;
	p->slot = m->slot;
	check_eq(m->shape.size, CHANNEL_SHAPE_SENT);
	memcpy(&p->shape, m->shape.data, CHANNEL_SHAPE_SENT);
	p->shape.buffers = m->buffers;
	p->layout = m->layout;
	check(channel_shape_is_valid(&p->shape));
	check_eq(r->fds.n, 3);
	check(page_map(r->fds.fds[0], page_size(p), true, &p->page) == 0);
	check(page_map(r->fds.fds[1], CHANNEL_CONTROL_SIZE, false, &control) == 0);
	p->control = control;
	p->page_fd = fd_list_take(&r->fds, 0);
	p->bell = fd_list_take(&r->fds, 2);
	p->doorbell = epoll_create1(EPOLL_CLOEXEC);
	check(epoll_ctl(p->doorbell, EPOLL_CTL_ADD, p->bell, &change) == 0);
	party_was_rung(p); /* as it looks to begin with */
	fd_list_close(&r->fds);
}

void party_ready(struct party *p)
{
	struct wire_message m = {.type = WIRE_CHANNEL_READY};

	m.channel_ready.member = p->id;
	raw_ask(p->r, &m, WIRE_DONE);
}

void party_join(struct party *p, struct raw *r, const char *name, uint32_t role)
{
	struct wire_message open = party_request(name, role);

	party_open(p, r, &open);
	party_ready(p);
}

void party_forget(struct party *p)
{
	page_unmap(p->page, page_size(p));
	page_unmap(p->control, CHANNEL_CONTROL_SIZE);
	fd_close(p->doorbell);
	fd_close(p->bell);
	fd_close(p->page_fd);
	memset(p, 0, sizeof(*p));
}

void party_close(struct party *p)
{
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE};

	m.channel_close.member = p->id;
	raw_ask(p->r, &m, WIRE_DONE);
	party_forget(p);
}

uint32_t party_epoch(const struct party *p)
{
	return atomic_load(&p->control->epoch);
}

bool party_was_rung(struct party *p)
{
	struct epoll_event change;

	return epoll_wait(p->doorbell, &change, 1, 0) == 1;
}

void party_wait_for_ring(struct party *p)
{
	struct pollfd fd = {.fd = p->doorbell, .events = POLLIN};

	check(poll(&fd, 1, HARNESS_LIMIT_MS) == 1);
	check(party_was_rung(p));
}

void party_sync(struct party *p, struct listing *out)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC};
	const struct wire_channel_members *got = &p->r->m.channel_members;

	m.channel_sync.member = p->id;
	m.channel_sync.flags = p->sync_flags;
	m.channel_sync.had = p->had;
	raw_ask(p->r, &m, WIRE_CHANNEL_MEMBERS);
	*out = (struct listing){
	    .epoch = got->epoch,
	    .more = got->more,
	    .expelled = got->expelled,
	    .n = got->members.size / (uint32_t)sizeof(struct wire_member),
	};
	out->said = *got;
	out->said.members = (struct wire_bytes){NULL, 0};
	check_eq(got->members.size % sizeof(struct wire_member), 0);
	memcpy(out->members, got->members.data, got->members.size);
}

const struct wire_member *listed(const struct listing *l, const struct party *p)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->members[i].member == p->id)
			return &l->members[i];
	return NULL;
}

void party_put(struct party *producer, uint32_t ticket, uint64_t buffer, uint32_t version)
{
	struct channel_ticket *t = channel_ticket_at(producer->page, &producer->shape, ticket);

	atomic_store(&t->buffer, buffer);
	atomic_store(&t->version, version);
}

void party_admit(struct party *producer, const struct party *consumer)
{
	struct channel_admission *a =
	    channel_admission_at(producer->page, &producer->shape, consumer->slot);

	atomic_store(&a->consumer, consumer->id);
}

void party_acknowledge(struct party *consumer, const struct party *producer, uint32_t ticket,
		       uint32_t version, uint32_t slot, uint64_t value)
{
	struct channel_row *row = channel_row_at(consumer->page, &consumer->shape, producer->row);

	atomic_store(&row->producer, producer->id);
	atomic_store(&row->acks[ticket].value, value);
	atomic_store(&row->acks[ticket].word, (uint64_t)version << 32 | slot);
}

void party_drained(struct party *consumer, uint64_t producer)
{
	struct wire_message m = {.type = WIRE_CHANNEL_DRAINED};

	m.channel_drained.member = consumer->id;
	m.channel_drained.producer = producer;
	check(raw_send(consumer->r, &m) == 0);
}

void party_put_copy(struct party *producer, uint32_t ticket, uint64_t buffer, uint32_t version,
		    uint32_t slot, uint64_t sequence)
{
	struct channel_entry *copy = channel_copy_at(producer->page, &producer->shape, ticket);

	*copy = (struct channel_entry){
	    .number = ticket,
	    .buffer = buffer == CHANNEL_NO_BUFFER ? 0 : buffer,
	    .size_deliveries = CHANNEL_PACK(0, 1),
	    .version = version,
	    .ticket = (uint16_t)slot,
	};
	atomic_store(&copy->sequence, sequence);
	party_put(producer, ticket, buffer, version);
}

bool party_fetch(struct party *consumer, struct listing *out)
{
	uint32_t before = consumer->sync_flags;

	consumer->sync_flags |= WIRE_CHANNEL_SYNC_FETCH;
	party_sync(consumer, out);
	consumer->sync_flags = before;
	consumer->had += out->said.given;
	return out->said.given;
}
