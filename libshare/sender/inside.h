/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/loan.h"
#include "libshare/channel/lock.h"
#include "libshare/channel/message.h"
#include "libshare/channel/wait.h"
#include "libshare/sender/sender.h"

/*
 * What the files of this room share. None calls one that calls it, as tests/rooms_test.py looks.
 * From below to above:
 *
 *   ready.c, returns.c       what an event loop is told, and what comes back
 *   patience.c               who comes, goes, and keeps the sender waiting
 *   abandon.c, aside.c       what others keep for too long, and what they do not want
 *   background.c             the thread
 *   outgoing.c               a message before it is sent
 *   producer.c               sending
 *   send.c, drain.c          what the program calls
 *   sender.c                 the role, which those ask that open and end a channel
 */

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
	uint32_t uid;
	uint32_t patience_ms; /* how long it may keep us waiting */
};

/* A ticket whose message was acknowledged by streams that have not got there yet. */
struct channel_cooling {
	STAILQ_ENTRY(channel_cooling) link;
	uint32_t ticket;
	int64_t since_ms;
	uint32_t n;
	struct {
		struct held_fence fence;
		struct channel_owner *owner;
	} held[];
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
	uint32_t stall_ms;  /* how long one may, and its user for longer by little; or UINT32_MAX */
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
	uint32_t wait_for;                  /* nothing is sent to fewer consumers */
	STAILQ_HEAD(, channel_cooling) cooling;
	struct channel_aside_list aside; /* messages to be taken back, at most `in_flight` */
	uint32_t n_aside;
	struct channel_aside_list taken; /* those of them that the program has */
	uint64_t n_taken;                /* how many it has ever had */
	LIST_HEAD(, channel_owner) owners;
	struct patience patience;
	struct background background;
	struct {
		int room;             /* the descriptor; it is readable while any is told */
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
/* ready.c                                                                                     */

/* A call is to answer that it may be made again later, and the event loop will be told when. Called
 * before it is looked for the last time whether it can be done; false: nobody wants to be told, so
 * that the look may be spared. */
bool sender_arm(struct sender *sender, uint32_t call);
/* The call has not answered so after all: there is nothing to tell of it. */
void sender_disarm(struct sender *sender, uint32_t call);
/* These calls may answer otherwise, if they are armed. */
void sender_tell(struct sender *sender, uint32_t calls);
/* Whether consumers are to ring for it. */
bool sender_waits_to_tell(const struct sender *sender);
/* Consumers are to ring the doorbell: not only who sleeps for room has to be told. */
bool sender_wants_doorbell(const struct sender *sender);
/* The sender is awake, unless somebody else still has to be told. */
void sender_awake(struct sender *sender);
/* A message was sent, though one was refused before. */
void sender_found_room(struct sender *sender);
/* A message was set aside. */
void sender_has_set_aside(struct sender *sender);
int sender_get_fd(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* returns.c                                                                                   */

/* A consumer has one from when it is admitted on until it is gone and none of its fences is left.
 * NULL without memory. */
struct channel_owner *owner_new(struct sender *sender, const struct channel_peer *p);
void owner_is_gone(struct channel_owner *owner);
void owner_done_with_fence(struct channel_owner *owner);
/* As whom it takes part; NULL: it is gone. */
struct channel_peer *owner_peer(struct sender *sender, const struct channel_owner *owner);
/* So that who comes has room for a fence on what is kept for those who come. */
void sender_forget_fences(struct sender *sender);
/* At the end of the channel. */
void owners_deinit(struct sender *sender);
static inline struct channel_owner *owner_of(const struct ring_owned_fence *f)
{
	return (struct channel_owner *)(void *)f->owner;
}

/* Buffers that go back are collected with the lock held, and given back without. */
#define CHANNEL_RETURNS_SOME 16 /* of messages; the last of which may have several buffers */
#define CHANNEL_RETURNS      (CHANNEL_RETURNS_SOME + CHANNEL_BUFFERS_MAX - 1)
struct channel_returns {
	size_t n;
	struct channel_return {
		share_buffer *buffer;
		struct fences fences;
		bool shared;
	} returns[CHANNEL_RETURNS + 1];
};
/* Collects those of up to @limit messages; @all: looks at every message in flight. False when there
 * may be more than fits. */
bool sender_collect(struct sender *sender, bool all, size_t limit, struct channel_returns *out);
void channel_give_back(struct channel_returns *r);
/* Does both, and looks at every message, until there is nothing left. */
void sender_reclaim_unlocking(struct sender *sender);
/* Frees tickets whose fences were reached. */
void sender_cool(struct sender *sender, bool all);
/* The same as a set, for buffer_release_after(). */
void channel_given_fences(share_channel *ch, struct ring_fence given, struct fences *out);
/* Where messages wait for consumers to have room, the background thread is told when they have. */
void sender_watch_backlog_unlocking(struct sender *sender);

/* ------------------------------------------------------------------------------------------- */
/* patience.c                                                                                  */

/* The same for the user of one that has gone before. */
void sender_charge_gone(struct sender *sender, uint32_t uid);
/* There is no room: leaves those behind that have kept us waiting for too long. True when there
 * were any. */
bool sender_leave_stalled_unlocking(struct sender *sender);
/* Of the fences that a ticket waits for, whether consumer @i has kept this one for as long as it
 * may keep us waiting. */
bool sender_cools_too_long(struct sender *sender, const struct channel_cooling *c, uint32_t i,
			   int64_t now);
/* There was room, so all clocks stop. */
void sender_has_room(struct sender *sender);
/* Tells the broker, once, when somebody has waited in vain for long. */
void sender_tell_of_stall_unlocking(struct sender *sender);
/* Says how long to sleep before looking again, of what is @left; -1 is no limit. */
int sender_slice(struct sender *sender, int left);
/* Whether the time alone changes something for who waits for room. */
bool sender_clock_runs(struct sender *sender);

/* These are of the role. */
int sender_meet(struct members *members, struct channel_peer *p);
/* A consumer is dead, or has left, or is the broker's to look after. */
void sender_let_go(struct members *members, struct channel_peer *p);
void sender_wake_all(struct members *members);
bool sender_may_find_room(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* abandon.c                                                                                   */

/* Tickets are missing: tells the background thread if it can get some. */
void sender_want_tickets(struct sender *sender);
/* Gets them from the broker. */
void sender_abandon_unlocking(struct sender *sender);

/* ------------------------------------------------------------------------------------------- */
/* outgoing.c                                                                                  */

/* Signals once for all messages. Those without a buffer are behind it, too: their data may be about
 * what @stream does. */
int channel_signal_for(share_channel *ch, const share_outgoing *messages, size_t n, void *stream,
		       struct ring_fence *out);
/* Words for these consumers (bit by slot, at least one), which have yet to do something: "pid 7 and
 * 2 others have". */
#define SENDER_NAME_SIZE 64
const char *sender_name(const struct sender *sender, uint64_t who, char out[SENDER_NAME_SIZE]);
/* Says who is in the way: SHARE_ETIMEDOUT, or SHARE_EAGAIN. */
int sender_no_room(struct sender *sender, bool timed_out);

/* ------------------------------------------------------------------------------------------- */
/* background.c                                                                                */

int background_start(share_channel *ch);
void background_stop(share_channel *ch);
/* There is something in flight. */
void background_rouse(struct sender *sender);
