/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <ucp/api/ucp.h>

#include "bridge/data/data.h"
#include "bridge/data/memory.h"
#include "bridge/data/staging.h"

/* What context.c (UCX for all links), data.c (workers and endpoints of it), content.c (the way that
 * a content takes) and pieces.c (the longest of these ways) know of each other. */

struct data {
	ucp_context_h context;
	struct staging *staging;
	bool cuda;        /* UCX takes memory of GPUs as it is, with new links */
	bool has_remains; /* of a link that was lost meanwhile, which UCX cannot end */
	bool few;         /* processors for this process and others */
	bool in_context;  /* of a device, as some versions of UCX want who calls them */
};

struct pieces {
	TAILQ_HEAD(, outbound) out;
	TAILQ_HEAD(, inbound) in;
	TAILQ_HEAD(, piece) waiting; /* for a slot to be received in */
	uint64_t last;               /* number of a content that goes out */
	unsigned n_out, n_in;        /* slots that are in use; or as much from where it is */
	unsigned n_waiting;
	bool starting;
};

/* This end of a link. */
struct data_end {
	struct link *link;
	struct data *data;
	ucp_worker_h worker;
	ucp_ep_h endpoint;
	ucp_address_t *address;
	size_t address_size;
	struct event *readable, *idle, *later;
	TAILQ_HEAD(, transfer) transfers; /* under way */
	struct pieces pieces;
	uint64_t awake_until; /* on the clock of clock_ns(); 0: it may sleep */
	bool has_waited;      /* since then */
	bool wants_pieces;    /* the peer does */
	bool cuda;            /* UCX takes memory of GPUs as it is */
	bool ending;          /* nothing is begun any more */
	unsigned in_vain;
};

static inline void tell(data_done done, int error, void *arg)
{
	if (done)
		done(error, arg);
}

/* Memory of a device that UCX does not take as it is goes by pinned memory. */
static inline bool is_staged(const struct data_end *d, int ordinal)
{
	return ordinal >= 0 && !d->cuda;
}

/* What is sent may be of any pool, and what is received is of the bridge's. */
static inline bool reach_is_staged(const struct data_end *d, const struct reach *from)
{
	return is_staged(d, from->ordinal) || (from->ordinal >= 0 && !from->is_cuda);
}

/* What goes with a header as it is. @done always comes, perhaps before this returns. */
void data_put(struct data_end *d, const struct data_header *h, const void *memory, size_t size,
	      bool on_device, data_done done, void *arg);
/* Receives what has not come yet. @done as above. */
void data_fetch(struct data_end *d, void *what, void *to, size_t size, bool on_device,
		data_done done, void *arg);
/* Nobody wants it any more, or it has been read. */
void data_let_go(struct data_end *d, void *what);

/* Why a link ends when a device does not do what it should: whoever waits for the content begins
 * anew with the next link. */
#define DATA_LOST "what it sent could not be received"

#define LITTLE UINT64_C(65536) /* for which it is not worth while to ask first */

/* pieces.c */
void pieces_begin(struct data_end *d);
bool pieces_have_to(const struct data_end *d, uint64_t size, const struct reach *from);
/* The header goes at once, the rest when the peer says so. @done as above, or with the end. */
void pieces_send(struct data_end *d, const struct data_header *h, const struct reach *from,
		 data_done done, void *arg);
void pieces_receive(struct data_end *d, uint64_t number, uint64_t size, const struct reach *to,
		    data_done done, void *arg);
void pieces_refuse(struct data_end *d, uint64_t number);
/* NULL, or what is wrong. */
const char *pieces_hear_go(struct data_end *d, const struct data_header *h);
const char *pieces_hear(struct data_end *d, const struct data_header *h, struct parcel *p);
/* While there is a worker; and when there is none any more. */
void pieces_drop(struct data_end *d);
void pieces_end(struct data_end *d);
