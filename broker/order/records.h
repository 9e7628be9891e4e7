/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "pages/timeline.h"

/* What the journal has of timelines and fences. */
struct accounts;
struct broker;
struct fence;
struct journal;
struct order;
struct record;
struct timelines;

/* What the next broker has to know of a page. It counts as soon as it is written. */
struct timelines_record {
	uint64_t id;
	uint64_t client; /* the client's identifier */
	uint32_t fd;     /* the keeper's number of it, once it has the page */
	uint32_t uid;
	uint32_t dead;
	uint32_t known; /* to others than its owner: they may sleep on it, and remember its slot */
	uint64_t last[TIMELINE_SLOTS];
};

/* Makes timelines from their record, without a client and its pidfd, until they are given to
 * one. */
int timelines_again(struct journal *journal, uint32_t record, struct accounts *accounts,
		    struct timelines **out);
/* A fence as records have it (journal/record.h). Zeros: reached, and there is none. */
struct fence_record {
	uint64_t page, value;
	uint32_t slot;
	uint32_t unused;
};
void record_fence(struct record *r, struct fence *f);
struct fence_record fence_to_record(const struct fence *f);
struct fence fence_of_record(struct broker *b, const struct fence_record *r);

/* The owner of this timeline page has died, and has not said goodbye before. */
void order_page_died(struct order *o, uint64_t page);

/* For a broker that comes after another one. 0 or negative errno. */
int order_check_died(const struct order *o);
int timelines_restore(struct broker *b);
struct timelines *timelines_find(struct broker *b, uint64_t page); /* borrowed */
/* Called when all that has fences has been read. 0 or negative errno. */
int timelines_restored(struct broker *b);
