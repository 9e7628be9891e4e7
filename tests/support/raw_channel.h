/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <share/channel.h>

#include "pages/channel_page.h"
#include "tests/harness/raw.h"

/* A member of a channel without libshare: writes what it likes into its page. */
struct party {
	struct raw *r;
	uint64_t id, pool;
	uint32_t role, slot;
	uint32_t row;        /* of a producer, in the ledger of a consumer: set it if it is not 0 */
	uint32_t sync_flags; /* of its CHANNEL_SYNCs */
	uint32_t had;        /* messages that it has fetched, as it says */
	struct channel_shape shape;
	enum channel_layout layout;
	void *page; /* its own, mapped for writing */
	struct channel_control *control;
	int bell;     /* as others have it */
	int doorbell; /* an epoll that watches it */
	int page_fd;
};

/* A CHANNEL_OPEN of these; to be filled in further. */
struct wire_message party_request(const char *name, uint32_t role);
/* The membership, not ready yet. Expects success. */
void party_open(struct party *p, struct raw *r, struct wire_message *open);
void party_ready(struct party *p);
/* All of it, with the defaults. */
void party_join(struct party *p, struct raw *r, const char *name, uint32_t role);
/* CHANNEL_CLOSE, and party_forget(). */
void party_close(struct party *p);
/* What this process has of it. */
void party_forget(struct party *p);

uint32_t party_epoch(const struct party *p);
/* Whether its doorbell has rung since the last time. */
bool party_was_rung(struct party *p);
/* The next wait at most HARNESS_LIMIT_MS. */
void party_wait_for_ring(struct party *p);

/* Who is there, by CHANNEL_SYNC; the descriptors are in p->r->fds. */
struct listing {
	uint32_t epoch, more, expelled, n;
	struct wire_member members[CHANNEL_MEMBERS_MAX];
	struct wire_channel_members said; /* without these */
};
void party_sync(struct party *p, struct listing *out);
/* NULL: it is not in it. */
const struct wire_member *listed(const struct listing *l, const struct party *p);

/* What a producer writes of a message: that it is in flight, and who gets it. */
void party_put(struct party *producer, uint32_t ticket, uint64_t buffer, uint32_t version);
void party_admit(struct party *producer, const struct party *consumer);
/* What a consumer writes: @slot 0: no fence. */
void party_acknowledge(struct party *consumer, const struct party *producer, uint32_t ticket,
		       uint32_t version, uint32_t slot, uint64_t value);
void party_drained(struct party *consumer, uint64_t producer);

/* The same of a message in a queue, with its copy: in this position of the lane of this slot, + 1.
 */
void party_put_copy(struct party *producer, uint32_t ticket, uint64_t buffer, uint32_t version,
		    uint32_t slot, uint64_t sequence);
/* A message of a producer that is gone, which counts as one that this consumer had; false: there is
 * none. */
bool party_fetch(struct party *consumer, struct listing *out);
