/* SPDX-License-Identifier: MIT */

/* The records of orphans. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/records.h"
#include "broker/channel/records.h"
#include "broker/journal/object.h"
#include "broker/orphan/inside.h"

/* What the record says of a buffer behind the first one. */
struct further_fields {
	uint64_t buffer;
	uint32_t ticket, version;
};

static void read_further_record(struct record *r, struct orphan *o, const struct iovec *part)
{
	size_t n = part->iov_len / sizeof(struct further_fields);
	struct further_fields f;

	if (n == 0 || !record_reads(r))
		return;
	o->further = n < CHANNEL_BUFFERS_MAX ? calloc(n, sizeof(*o->further)) : NULL;
	if (!o->further) {
		record_fail(r, n < CHANNEL_BUFFERS_MAX ? -ENOMEM : -EBADMSG);
		return;
	}
	o->n_further = (uint8_t)n;
	for (size_t i = 0; i < n; i++) {
		memcpy(&f, (const char *)part->iov_base + i * sizeof(f), sizeof(f));
		o->further[i].buffer = buffer_find(r->broker, f.buffer);
		o->further[i].ticket = f.ticket;
		o->further[i].version = f.version;
		if (!o->further[i].buffer)
			record_fail(r, -EBADMSG);
	}
	if (!record_reads(r))
		free(o->further);
}

static void record_further(struct record *r, struct orphan *o)
{
	static struct further_fields
	    all[CHANNEL_BUFFERS_MAX - 1]; /* used until the record is put */
	size_t n = r->is_read ? 0 : o->n_further;
	struct iovec part;

	for (size_t i = 0; i < n; i++)
		all[i] = (struct further_fields){
		    .buffer = buffer_id(o->further[i].buffer),
		    .ticket = o->further[i].ticket,
		    .version = o->further[i].version,
		};
	part = record_rest(r, all, n * sizeof(all[0]), sizeof(all[0]));
	if (r->is_read)
		read_further_record(r, o, &part);
}

static void orphan_fields(struct record *r, void *object)
{
	struct orphan *o = object;
	bool owned = o->owner;

	record_member(r, &o->producer);
	record_u64(r, &o->number);
	record_buffer_or_none(r, &o->buffer);
	record_u64(r, &o->position);
	record_flag(r, &owned);
	record_claim(r, &o->owner);
	if (record_reads(r) && owned && !o->owner)
		record_fail(r, -EBADMSG);
	record_u32(r, &o->ticket);
	record_u32(r, &o->version);
	record_u32(r, &o->deliveries);
	record_u32(r, &o->fetch);
	if (record_has(r, 1))
		record_further(r, o);
	r->order = o->number;
}

const struct object_kind orphan_kind =
    OBJECT_KIND(RECORD_ORPHAN, "message of a producer that is gone", struct orphan, orphan_fields,
		orphan_attach);

void orphan_note(struct orphan *o)
{
	object_put(o->producer->channel->broker->journal, &orphan_kind, o);
}
