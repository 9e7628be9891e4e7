/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <bsd/sys/tree.h>

#include "broker/buffer/buffer.h"
#include "broker/order/fence.h"
#include "broker/reply/deferred.h"
#include "broker/rights/right.h"
#include "wire/wire.h"

struct object_kind;

/*
 * A name, which leads to a buffer, or is waited for; or both, as those who may not find it go on
 * waiting. It goes when it is neither.
 */
struct name {
	RB_ENTRY(name) tree;
	struct buffer *buffer; /* NULL: not published */
	uint64_t version;
	uint32_t mode; /* the most that those get who look it up */
	bool persistent;
	uid_t uid;                /* the publisher's user */
	struct client *publisher; /* NULL when persistent */
	LIST_ENTRY(name) of_publisher;
	struct fence fence;      /* the fence of the hand-over */
	struct metadata *tensor; /* for those who look it up; NULL: none */
	struct charge charge;
	struct referrer referrer;
	struct deferred_list waits; /* look-ups, in the order in which they came */
	uint32_t record;
	size_t size;
	char text[]; /* with a NUL behind it, which @size does not count */
};

struct publication {
	struct client *client;
	struct buffer *buffer;
	const char *name;
	size_t size;
	uint32_t flags; /* enum share_publish_flags */
	uint32_t mode;
	uint64_t expected;   /* the version to replace; 0: any, or none */
	struct fence *fence; /* consumed on success */
	struct wire_bytes tensor;
};

/* 0, or a SHARE_E... number: then nothing has changed, and @failure has the reason. */
int name_publish(struct broker *b, const struct publication *p, uint64_t *version,
		 struct failure *failure);

/* Answers a LOOKUP, now or when it has waited; and an UNPUBLISH. False if it is refused. */
bool name_look_up(struct request *r);
bool name_unpublish_by(struct request *r);

void name_unpublish(struct broker *b, struct name *n);
/* Notes in the journal what the name is now. */
void name_note(struct broker *b, struct name *n);
/* Whether the client has this right to a name that is published. */
bool name_may(const struct name *n, const struct client *client, enum access_right right);
extern const struct object_kind name_kind;
/* Returns the first published name after @after, or (@inclusive) from it on, in byte order; NULL
 * when there is none. */
struct name *name_next(struct broker *b, const void *after, size_t size, bool inclusive);
