/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_STATE_H
#define LIBSHARE_CHANNEL_STATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "libshare/buffer/buffer.h"
#include "libshare/channel/channel.h"
#include "libshare/channel/message.h"
#include "libshare/client/rpc.h"
#include "libshare/order/order.h"
#include "libshare/program/struct.h"

/*
 * What a channel consists of, by who may touch it:
 *
 *   share_channel       does not change between open and end, so everybody may read it
 *   .in_client          is guarded by the client's lock
 *   struct members      who else takes part; struct sender, of a producer; struct receiver, of a
 *                       consumer: all three are guarded by the channel's lock
 *
 * The last three lie where only lock.c finds them. So whoever has a pointer to one of them has
 * taken the lock (inside.h has the rule), and the compiler refuses the rest.
 */

/* A member that the broker has told us of before we have asked. */
struct channel_told {
	STAILQ_ENTRY(channel_told) link;
	struct wire_member member;
	struct fd_list fds;
	bool after; /* it was told after the last answer */
};
STAILQ_HEAD(channel_told_list, channel_told);

/* What the client's dispatch and its channel share. */
struct channel_in_client {
	LIST_ENTRY(share_channel) link;
	struct channel_told_list told;
	bool told_lost;      /* there was no memory to keep what was told */
	struct call call;    /* the question to the broker; one thread asks at a time */
	struct reply answer; /* its answer, which is the asking thread's once it has come */
	bool has_background;
	uint64_t looked; /* the count client->looks when the thread looked last */
};

struct share_channel {
	struct handle handle;
	share_client *client;
	struct channel_in_client in_client;
	bool enlisted; /* the client knows of it */
	int role;
	struct channel_shape shape;
	enum channel_layout layout;
	uint64_t member, pool;
	uint32_t slot;
	uint32_t stall_ms;
	int send_timeout_ms;
	uint32_t wait_for;
	bool writable;
	bool latest; /* a consumer that gets the latest message alone */
	void *own;   /* our page: the ring of a producer, the ledger of a consumer */
	const struct channel_control *control;
	int doorbell; /* an epoll that is readable when our bell has rung, or the broker is lost */
	int epoll;    /* has the doorbell, `wakeup`, pidfds of peers and the timer */
	int wakeup;   /* wakes the background thread of a producer */
	int room;     /* tells the event loop of a producer (ready.c) */
	_Atomic int timer; /* for the event loop of a consumer; -1 until that asks */
	_Atomic(void *) owner;
	void (*before_ack)(void *owner, share_message *m);
	void (*came_back)(void *owner);
	void (*end)(void *channel); /* gives up all of it when nobody has it any more (close.c) */

	pthread_mutex_t lock;
	struct bell changed; /* whoever waits looks again */
};
HANDLES_OF(share_channel, channel, HANDLE_CHANNEL);

/* ------------------------------------------------------------------------------------------- */
/* Of both roles                                                                               */

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
	uint32_t patience_ms;        /* how long it may keep us waiting */
	struct channel_owner *owner; /* of a consumer that is known */
	bool charged;                /* its user was charged for how long it has kept us waiting */
	int64_t stalled_since;
	bool lost;              /* it was dead before its timelines could be asked for */
	struct held_fence hold; /* of its timelines, so that they are here when they are needed */
};

struct members;

/*
 * What a role does where both do something else (sender.c, receiver.c). The functions are called
 * with the channel's lock held if they take the members; NULL stands for nothing to be done.
 */
struct channel_role {
	/* Makes its half of a channel, of zeros but for what refers to the rest. False without
	 * memory. */
	bool (*begin)(struct members *members);
	/* Our page is mapped. 0 or an error. */
	int (*open)(struct members *members);
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
	/* The broker has expelled us, or NULL. */
	void (*note_expelled)(struct members *members);
	/* What else it has said, once all that it has named are known; or NULL. */
	void (*hear)(struct members *members, const struct wire_channel_members *said);
	/* It was asked, whatever came of that; or NULL. */
	void (*after_sync)(struct members *members);
	/* Whether somebody is there who could do what we wait for. */
	bool (*others_may_act)(struct members *members);
};
/* By SHARE_PRODUCER and SHARE_CONSUMER; in libshare/rooms.c. */
extern const struct channel_role *const channel_roles[];

/* Who else takes part, and the questions to the broker about it; and who of us waits. */
struct members {
	share_channel *ch;
	const struct channel_role *role;
	union { /* what our role has, which it alone knows */
		struct sender *sender;
		struct receiver *receiver;
	};
	struct channel_peer peers[CHANNEL_MEMBERS_MAX]; /* see members_index() */
	bool some_gone; /* there are producers of which there may be an end to tell */

	uint32_t epoch;   /* the broker's count, as of the last answer that was applied */
	uint32_t answers; /* how many there were */
	uint32_t first;   /* the number of the first answer to this question */
	bool syncing;     /* some thread asks, or waits for the answer, for all */
	bool asking;      /* the broker has not answered yet */
	bool alone;       /* the broker is lost */
	bool afresh;      /* something that the broker has told us was lost here */

	bool asleep;            /* some thread sleeps for all: */
	struct waiter *sleeper; /* where; NULL: it is no thread of the program's, or none */
	uint32_t waiting;       /* threads of the program that are in a call which may wait */
	bool given_up;          /* nobody waits any more */
	bool wants_fd;          /* an event loop was given a descriptor */
	uint64_t sleeps;        /* for the statistics */
	uint32_t held;          /* messages that the program has */
	bool closed;            /* the channel ends when `held` and `waiting` are 0, */
	bool ended;             /* and has: when nobody is in a call any more, it goes */
};

/* ------------------------------------------------------------------------------------------- */
/* Of a producer                                                                               */

/* A message in flight stands for a reference on its buffer. */
struct channel_sent {
	share_buffer *buffer;
	struct ring_fence given;   /* our own; if the program gave its reference, behind its work */
	struct channel_sent *next; /* among those that are free */
	struct channel_sent *further; /* of the message's next buffer; NULL: it was the last */
};

/* A consumer as whose fences are: it may be gone by the time that they are reached. */
struct channel_owner {
	struct ring_owner ring; /* first */
	LIST_ENTRY(channel_owner) link;
	bool gone;              /* it is no peer any more, so that this goes with the last fence */
	struct held_fence hold; /* of its timelines */
	uint32_t uid, patience_ms;
};

/* A ticket whose message was acknowledged by streams that have not got there yet. */
struct channel_cooling {
	STAILQ_ENTRY(channel_cooling) link;
	uint32_t ticket;
	int64_t since_ms;
	struct fences fences;
	struct channel_owner *owners[]; /* of each of these */
};

/* A message that was delivered too often, for share_channel_take_back(). */
struct channel_aside {
	STAILQ_ENTRY(channel_aside) link;
	struct ring_fence given;
	struct ring_message message;
	uint64_t receipt; /* of the message that the program has */
	uint32_t n_buffers;
	share_buffer **handles;  /* for the program, once it was taken back */
	share_buffer *buffers[]; /* then as many handles, and the data of `message` */
};
STAILQ_HEAD(channel_aside_list, channel_aside);

/* How long consumers have kept us waiting, and may (patience.c). */
struct patience {
	uint64_t stalling;  /* bit by slot: consumers whose clocks run */
	int64_t look_at;    /* when to look at those clocks; 0: nobody is waited for */
	int64_t full_since; /* when there was no room first; 0: there is some */
	bool told;          /* that there has been none for long */
	uint32_t least_ms;  /* the least patience that there is with a consumer */
	struct channel_user {
		uint32_t uid;
		int64_t spent_ms; /* what its consumers had spent at this time: */
		int64_t at_ms;
	} users[CHANNEL_MEMBERS_MAX];
};

/* The producer's thread (background.c). */
struct background {
	pthread_t thread;
	bool rests, ends;
	bool idles; /* what is in flight has not changed for long: it rests, and is rung for */
	bool wants_tickets; /* it is to get those of consumers that were left behind (abandon.c) */
	int64_t abandon_at; /* it does not ask for them before this time */
};

/* Calls of which an event loop is told when they are to be made again, bit by bit. */
enum ready {
	READY_SEND = 1 << 0,
	READY_TAKE_BACK = 1 << 1,
	READY_DRAIN = 1 << 2,
	READY_FLUSH = 1 << 3,
	READY_CALLS = READY_SEND | READY_TAKE_BACK | READY_DRAIN | READY_FLUSH,
	READY_REFUSED = 1 << 4, /* armed: sending was, before there was an event loop */
	READY_UNKNOWN =
	    1 << 5, /* told: it was just made, and any call may have been refused before */
};

struct sender {
	share_channel *ch;
	struct members *members;
	struct ring_producer *ring;
	struct channel_sent *sent, *unsent; /* all of them, and those that are free */
	uint32_t with_memory;               /* messages in flight that have a buffer */
	STAILQ_HEAD(, channel_cooling) cooling;
	struct channel_aside_list aside; /* messages to be taken back, at most `in_flight` */
	uint32_t n_aside;
	struct channel_aside_list taken; /* those of them that the program has */
	uint64_t n_taken;                /* how many it has ever had */
	LIST_HEAD(, channel_owner) owners;
	struct patience patience;
	struct background background;
	struct {
		uint32_t armed, told; /* enum ready */
		uint64_t done;        /* when draining was armed: how many were */
		uint32_t waiting;     /* when flushing was: how many waited for consumers */
		bool of_service;
		bool came_back; /* of a service: something was set aside, and that was not said */
	} ready;                /* what an event loop is told (ready.c) */
	uint32_t blocked;       /* threads that wait for room */
	bool backlog;           /* messages wait for consumers to have room */
	bool awaited;           /* somebody wants to be the last to have what is in flight */
	uint32_t drains;        /* threads that wait for acknowledgements */
};

/* ------------------------------------------------------------------------------------------- */
/* Of a consumer                                                                               */

/* The handle of a message's buffer is a loan, until channel_retain() makes a lease of it. */
struct lent {
	share_channel *channel;
	uint64_t producer; /* member */
	uint64_t segment;
	uint32_t row, ticket, version;
	bool rejected; /* the program has rejected the message, and the loan goes on */
};
struct lent_buffer {
	share_buffer b; /* first: it is freed as one when it is an ordinary one */
	struct lent lent;
	union {
		share_buffer *handle;     /* the program's, as the only buffer of the message */
		struct lent_buffer *next; /* among those that are free */
	};
};

/* The data of a message that was received and not given up (data.c). */
struct channel_data {
	uint64_t receipt, producer; /* of the message; no producer: it is free */
	uint32_t place;             /* in the receiver's table */
	struct channel_data *next;  /* among those that are free */
	unsigned char note[CHANNEL_NOTE_SIZE];
	uint32_t n_further; /* buffers behind the first one, of which that is: */
	uint32_t retained;  /* bit by bit: the program has a lease, and the handle is its own */
	struct ring_further *further; /* their tickets. NULL where there are none */
	share_buffer **handles;       /* of all buffers; NULL: given up */
	unsigned char bytes[];        /* as many as a message of the channel has at most */
};

/* A message that was received, but not handed out: it could not be made ready yet. */
struct channel_stashed {
	STAILQ_ENTRY(channel_stashed) link;
	share_message message;
};

struct channel_behind;

struct receiver {
	share_channel *ch;
	struct members *members;
	struct ring_consumer *ring;
	bool had_producers;    /* so that their end is something to tell */
	int last_end;          /* SHARE_EOWNERDEAD or SHARE_EPIPE, of the last producer that went */
	bool stale;            /* we were left behind, or expelled */
	uint64_t before_stale; /* so many messages may come before that is said */
	bool slow;             /* the broker takes its time to answer */
	unsigned looks;
	unsigned in_vain; /* spins for nothing, one after the other */
	/* What the broker has said last of orphans: messages of producers that are gone. */
	bool sleeps_long; /* nobody has rung for a while */
	bool look_again;  /* a service has something else to look at */
	struct {
		bool wanted; /* the next question asks for one: there is nothing else */
		bool asked;  /* so did the last one that was answered, and nothing has changed since
			      */
		uint32_t had; /* so many were given to us */
		uint32_t turn;
		uint32_t waiting, others;
		uint64_t lost, lost_told; /* in all; and said to the program, or before it came */
	} orphans;
	STAILQ_HEAD(, channel_stashed) stash;
	struct lent_buffer *handles; /* free ones */
	uint32_t n_handles;
	struct channel_data **data; /* all there are: a power of two, or the next above */
	uint32_t n_data;
	struct channel_data *free_data;
	struct {
		struct channel_behind *all; /* NULL: it is nobody's business here */
		uint32_t n;
		uint32_t messages; /* in all of them, as far as we know */
	} behind;                  /* answers, and work that is not done (behind.c) */
};

#endif
