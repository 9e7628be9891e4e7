/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/state.h"

/* A member of the other role. */
struct channel_peer {
	uint64_t member; /* 0: nobody is here */
	uint64_t page;   /* of its client's timelines */
	void *map;       /* its ring or ledger, read-only; NULL once it is over */
	int pidfd, doorbell;
	uint16_t row;                /* of the ledger of a consumer: the one about us */
	uint32_t claim;              /* the number of what we may have of each other */
	uint32_t seen;               /* the number of the broker's answer that named it last */
	uint16_t state;              /* enum wire_member_state */
	uint16_t flags;              /* enum wire_member_flags */
	bool known;                  /* the ring knows it: it was admitted, or attached */
	bool left;                   /* a consumer that counts no longer, but may use what it has */
	bool over;                   /* it is neither looked at nor waited for any more */
	bool ended;                  /* a producer that sends no more, as its own page says */
	bool end_told;               /* the program knows that the last of those there has gone */
	uint32_t uid;                /* its user's */
	struct channel_owner *owner; /* of a consumer that is known */
	bool charged;                /* its user was charged for how long it has kept us waiting */
	int64_t stalled_since;
	bool lost;              /* it was dead before its timelines could be asked for */
	struct held_fence hold; /* of its timelines, so that they are here when they are needed */
};

struct members;

/*
 * What a role does where both do something else: sender_role and receiver_role. The functions are
 * called with the channel's lock held if they take the members; NULL stands for nothing to be done.
 */
struct channel_role {
	/* Makes its half of a channel, of zeros but for what refers to the rest. False without
	 * memory. */
	bool (*begin)(struct members *members);
	/* Our page is mapped. Of @o it takes what is of this role alone. 0 or an error. */
	int (*open)(struct members *members, const share_channel_options *o);
	/* Who takes part is known: 0 or an error. Or NULL. */
	int (*start)(share_channel *ch);
	/* For an event loop: a descriptor, or an error. */
	int (*get_fd)(struct members *members);
	void (*get_stats)(struct members *members, share_channel_stats *out);
	/* The program closes it. */
	void (*close)(share_channel *ch);
	/* Nobody has it any more, and its peers are gone: frees its half. */
	void (*end)(struct members *members);

	/* What it makes of the members of the other one, which members.c and sync.c know. */
	/* Makes one known to the ring, or takes note of what has become of it. 0 or an error. */
	int (*meet)(struct members *members, struct channel_peer *p);
	/* Its process is seen to be dead. */
	void (*note_death)(struct members *members, struct channel_peer *p);
	/* It is over: nothing more is to come of it, or to be acknowledged. */
	void (*let_go)(struct members *members, struct channel_peer *p);
	/* What the broker is asked besides who takes part, or NULL. */
	void (*ask)(struct members *members, struct wire_channel_sync *question);
	/* What else it has said, once all that it has named are known; or NULL. */
	void (*hear)(struct members *members, const struct wire_channel_members *said);
	/* It was asked, whatever came of that; or NULL. */
	void (*after_sync)(struct members *members);
	/* Whether somebody is there who could do what we wait for. */
	bool (*others_may_act)(struct members *members);
};
/* By SHARE_PRODUCER and SHARE_CONSUMER; in libshare/rooms.c. */
extern const struct channel_role *const channel_roles[];
