/* SPDX-License-Identifier: MIT */

/*
 * What consumers that are gone have acknowledged of a producer that is there and has not looked
 * yet. Their rows go, and if it dies then, nothing else says that these messages are no orphans
 * (R8).
 */

#include <errno.h>
#include <stdlib.h>

#include <share/channel.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/channel/page.h"
#include "broker/channel/records.h"
#include "broker/journal/journal.h"

bool producer_has_noted(const struct member *producer, uint32_t ticket, uint32_t version)
{
	const struct acknowledged *a = producer->as_producer.acknowledged;

	return a && a->versions[ticket] == version;
}

static size_t size_of_versions(const struct member *producer)
{
	return producer->channel->shape.in_flight * sizeof(uint32_t);
}

/* Returns what there is of this producer, or makes it. NULL without memory. */
static struct acknowledged *acknowledged_of(struct member *producer)
{
	struct producer *p = &producer->as_producer;
	size_t size = size_of_versions(producer);

	if (p->acknowledged)
		return p->acknowledged;
	p->acknowledged = calloc(1, sizeof(*p->acknowledged) + size);
	if (p->acknowledged) {
		p->acknowledged->producer = producer;
		p->acknowledged->size = size;
	}
	return p->acknowledged;
}

static int acknowledged_attach(struct broker *b, void *object)
{
	struct acknowledged *a = object;
	struct member *producer = a->producer;

	(void)b;
	if (!producer || producer->role != SHARE_PRODUCER || producer->state == MEMBER_GONE ||
	    producer->as_producer.acknowledged || a->size != size_of_versions(producer))
		return -EBADMSG;
	producer->as_producer.acknowledged = a;
	a->is_noted = true;
	return 0;
}

static void acknowledged_fields(struct record *r, void *object)
{
	struct acknowledged *a = object;

	record_member(r, &a->producer);
	record_rest_of(r, (char *)a->versions, &a->size);
}

const struct object_kind acknowledged_kind =
    OBJECT_KIND(RECORD_ACKNOWLEDGED, "producer's messages that were acknowledged by who is gone",
		struct acknowledged, acknowledged_fields, acknowledged_attach);

void acknowledged_note(struct acknowledged *a)
{
	object_put(a->producer->channel->broker->journal, &acknowledged_kind, a);
}

bool orphan_note_acknowledged(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	struct member *producer = claim->producer;
	struct acknowledged *a;
	struct copy copy;

	if (producer->state == MEMBER_GONE || !copy_ask(producer, ticket, &copy) ||
	    copy.version != version || copy.sequence == CHANNEL_COPY_FINISHED ||
	    copy.sequence == CHANNEL_COPY_WAITS || !copy_was_of(&copy, claim) ||
	    MUTATION(forget_acknowledged))
		return true;
	a = acknowledged_of(producer);
	if (!a)
		return false;
	a->is_noted &= a->versions[ticket] == version;
	a->versions[ticket] = version;
	return true;
}

void producer_note_acknowledged(const struct member *producer)
{
	struct acknowledged *a = producer->as_producer.acknowledged;

	if (!a || a->is_noted)
		return;
	acknowledged_note(a);
	a->is_noted = true;
}

void producer_forget_acknowledged(struct member *producer)
{
	struct producer *p = &producer->as_producer;

	if (p->acknowledged)
		journal_drop(producer->channel->broker->journal, &p->acknowledged->record);
	free(p->acknowledged);
	p->acknowledged = NULL;
}
