/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_CHANNEL_H
#define LIBSHARE_CHANNEL_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <share/channel.h>

#include "libshare/buffer/buffer.h"
#include "libshare/client/rpc.h"
#include "libshare/order/order.h"
#include "ring/ring.h"

/*
 * Channels: what ring/ring.h does in memory, with clients, descriptors, streams and threads
 * around it.
 *
 * channel.c           a membership
 * close.c     its end
 * members.c   who else takes part
 * sync.c      asking the broker
 * settle.c    what it has of producers that have lost their place
 * abandon.c   what those left behind have is left to the broker
 * producer.c  sending
 * patience.c  how long consumers are waited for
 * outgoing.c  what may be sent, and the signal
 * returns.c   what consumers have acknowledged goes back
 * keeper.c    a producer's thread, for when the program does nothing
 * consumer.c  receiving
 * lent.c      the memory of a message, and its handle
 * ack.c       acknowledging
 * sleep.c     waiting for the other side
 * direct.c    what services need
 *
 * A channel's lock is taken before the client's. Nothing is sent to the broker, and nobody sleeps,
 * while it is held; the exception is a condition variable of the channel's own.
 */

struct client_room;
extern const struct client_room channel_room;

/* A member of the other role, by slot. */
struct channel_peer {
	uint64_t member; /* 0: nobody */
	uint64_t page;   /* of its client's timelines */
	void *map;       /* its ring or ledger, read-only; NULL: not looked at any more */
	int pidfd, doorbell;
	uint32_t seen;        /* by which answer of the broker */
	uint16_t state;       /* enum wire_member_state */
	uint16_t flags;       /* enum wire_member_flags */
	bool known;           /* to the ring or the ledger: admitted, attached */
	bool left;            /* a consumer that stopped counting, though it may use what it has */
	bool over;            /* it is not looked at any more, nor waited for */
	bool forgotten;       /* a producer of which the broker knows nothing any more */
	uint32_t uid;         /* its user's */
	uint32_t patience_ms; /* how long it may keep us waiting */
	bool charged;         /* what it has kept us waiting is its user's by now */
	int64_t stalled_since;
	bool lost;              /* it was dead before its timelines could be asked for */
	struct held_fence hold; /* of its timelines, so that they are here when they are needed */
};

/* A message in flight stands for a reference on its buffer. */
struct channel_sent {
	share_buffer *buffer;
	struct ring_fence given; /* of our own; where it was the program's: what that did with it */
	struct channel_sent *next; /* free */
};

/* Acknowledged, by streams that have not got there yet. */
struct channel_cooling {
	STAILQ_ENTRY(channel_cooling) link;
	uint32_t token;
	int64_t since_ms;
	struct fences fences;
	uint64_t members[]; /* whose fences these are */
};

/* A message that was delivered too often. */
struct channel_aside {
	STAILQ_ENTRY(channel_aside) link;
	share_buffer *buffer;
	struct ring_fence given;
	struct ring_message message;
	uint64_t receipt; /* of the message that the program has */
};

/* Received, but not handed out: what is to be done for it could not be done yet. */
struct channel_stashed {
	STAILQ_ENTRY(channel_stashed) link;
	share_message message;
	int error;
};

/* Members that are gone, of whom there may be fences in what is in flight. */
struct channel_ghost {
	uint64_t member, page;
	uint32_t uid, patience_ms;
};

/* What a user's consumers have kept us waiting (patience.c). */
struct channel_user {
	uint32_t uid;
	int64_t spent_ms; /* at that time: */
	int64_t at_ms;
};

/* A member that the broker has told us of before we have asked. */
struct channel_told {
	STAILQ_ENTRY(channel_told) link;
	struct wire_member member;
	struct fd_list fds;
	bool after; /* the last answer */
};

struct share_channel {
	struct handle handle;
	share_client *client;
	LIST_ENTRY(share_channel) of_client; /* this and the next two: under the client's lock */
	STAILQ_HEAD(channel_told_list, channel_told) told;
	bool told_lost; /* for want of memory */
	bool enlisted;
	int role;
	struct channel_shape shape;
	uint64_t member, pool;
	uint32_t slot;
	uint32_t stall_ms;
	int send_timeout_ms;
	bool writable;
	void *own; /* the page */
	const struct channel_control *control;
	int doorbell;      /* an epoll: readable when ours has rung */
	int epoll;         /* the doorbell, the keeper's wake-up, pidfds of peers, the timer */
	_Atomic int timer; /* of a consumer's event loop; -1: none */
	void *owner;
	void (*before_ack)(void *owner, share_message *m);

	pthread_mutex_t lock;
	pthread_cond_t changed; /* somebody may go on: who waits looks again */
	uint32_t epoch;         /* that we have synced */
	uint32_t answers;       /* of the broker */
	bool syncing;
	bool asking;         /* the broker has not answered yet */
	bool slow;           /* nor has it for some time */
	uint32_t first;      /* of the answers to come */
	struct call sync;    /* the question; one thread at a time, see `syncing` */
	struct reply answer; /* to it */
	bool alone;          /* the broker is lost */
	bool afresh;         /* something that the broker has told us was lost */
	bool asleep;         /* some thread sleeps for all */
	bool armed;          /* an event loop does */
	bool wants_fd;
	bool backlog; /* messages wait for consumers to have room */
	bool awaited; /* somebody wants to be the last to have what is in flight */
	bool closed;
	uint32_t held; /* messages that the program has */
	uint64_t sleeps;
	struct ring_message message; /* for the length of a call */
	struct channel_peer peers[CHANNEL_MEMBERS_MAX];

	/* of a producer */
	struct ring_producer *producer;
	struct channel_sent *sent, *unsent; /* all, and the free ones */
	STAILQ_HEAD(, channel_cooling) cooling;
	STAILQ_HEAD(, channel_aside) aside;
	uint32_t n_aside;
	STAILQ_HEAD(, channel_aside) taken; /* of these, by the program */
	uint64_t n_taken;                   /* ever */
	uint64_t stalling;                  /* bit by slot: their clocks run */
	int64_t look_at;      /* when to look at those clocks; 0: nobody is waited for */
	int64_t full_since;   /* while somebody is */
	uint32_t patience_ms; /* the least of those that there are */
	struct channel_user users[CHANNEL_MEMBERS_MAX];
	bool wants_tokens;    /* of those who were left behind: the keeper is to get them */
	int64_t abandon_at;   /* not before that */
	uint32_t with_memory; /* messages in flight that have a buffer */
	struct channel_ghost *ghosts;
	size_t n_ghosts, room_for_ghosts;
	struct ring_return returned; /* for the length of a call */
	pthread_t keeper;
	bool has_keeper, keeper_rests, keeper_ends;
	uint64_t looked; /* of client->looks; this and has_keeper: under the client's lock */
	int wakeup;      /* the keeper's */
	int room;        /* an event loop's: the sender may find room */
	const _Atomic uint32_t *sleeps_on; /* some sender */

	/* of a consumer */
	struct ring_consumer *consumer;
	bool had_producers, stale;
	bool some_gone;          /* producers of which there may be an end to tell */
	unsigned looks, in_vain; /* the latter: spins, one after the other */
	int last_end; /* SHARE_EOWNERDEAD or SHARE_EPIPE, of the last producer that went */
	STAILQ_HEAD(, channel_stashed) stash;
	STAILQ_HEAD(, channel_displaced) displaced;
	struct lent_buffer *handles; /* free */
	uint32_t n_handles;
};
HANDLES_OF(share_channel, channel, HANDLE_CHANNEL);

/* ------------------------------------------------------------------------------------------- */
/* For services                                                                                */

/* A consumer that a message can be sent to. */
struct channel_target {
	uint64_t member;
	uint64_t page; /* of its client's timelines */
	uint32_t slot;
};

/* share_channel_...(), of an object instead of a handle. */
void channel_close(share_channel *ch);
int channel_get_fd(share_channel *ch);
int channel_get_stats(share_channel *ch, share_channel_stats *out);
int channel_take_back(share_channel *ch, share_message *out);

/* share_channel_open(); @mode: enum channel_mode, 0: as @options say. */
int channel_open(share_client *c, const char *name, int role, uint32_t mode,
		 const share_channel_options *options, share_channel **out);

/* share_send(); @to in CHANNEL_DIRECT, else NULL. @timeout_ms 0: SHARE_EAGAIN when there is no
 * room, whatever the channel does then. SHARE_ENOENT: there is no such consumer. @signalled: what
 * was signalled on @stream; may be NULL. */
int channel_send(share_channel *ch, const struct channel_target *to, share_buffer *b,
		 const void *data, size_t size, void *stream, int timeout_ms,
		 struct ring_fence *signalled);

/* share_recv() in two steps: receive, without ordering anything; and order. An error of the second
 * leaves the message as it is. */
int channel_receive(share_channel *ch, int timeout_ms, share_message *out);
int channel_order(share_message *m, void *stream, int timeout_ms);

/* A message that was received, but could not be ordered yet: it is received again. */
void channel_put_back(share_message *m);

/* share_ack() right after channel_send() of @sent on the same stream: where the one's memory is on
 * the same device as the other's, the signal of the message is that of the acknowledgement, too. */
int channel_ack_behind(share_message *m, void *stream, const share_buffer *sent,
		       struct ring_fence signalled);

/* Acknowledges what nothing was done with. Calls no hook. */
void channel_ack_unused(share_message *m);

void channel_self(share_channel *ch, struct channel_target *out);
/* The page of the timelines of the message's producer; 0: it is gone. */
uint64_t channel_sender_page(const share_message *m);

/* The `call` of a token of the producer's ring. SHARE_EOWNERDEAD when it is gone. Does not block.
 */
int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out);
/* The same of our own. */
void channel_set_call(share_channel *ch, uint32_t index, uint32_t value);

/* @before_ack is called by share_ack() for each message, with nothing locked. */
void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m));
void *channel_owner(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* The handle of a message's buffer: on loan, until CHANNEL_RETAIN makes a lease of it.        */

struct lent {
	share_channel *channel;
	uint64_t producer; /* member */
	uint64_t segment;
	uint32_t slot, token, version;
};
struct lent_buffer {
	share_buffer b; /* first: it is freed as one when it is an ordinary one */
	struct lent lent;
	struct lent_buffer *next; /* free */
};

/* buffer_release() of one whose `lent` is set. */
int channel_release(share_buffer *b, void *stream, bool *kept);

/* Makes an ordinary handle of it. 0 or an error. */
int channel_retain(share_buffer *b);

/* ------------------------------------------------------------------------------------------- */
/* Between the files of channels                                                               */

/* From a handle to the channel, of which the program has this role; 0: any. */
int channel_resolve_as(share_channel **ch, int role);
int channel_check_role(const share_channel *ch, int role);

size_t channel_own_page_size(const share_channel *ch);

/* close.c. The last message of a closed channel was given up. */
void channel_end(share_channel *ch);

/* members.c */
static inline bool channel_is_out_of_date(const share_channel *ch)
{
	return !ch->alone &&
	       atomic_load_explicit(&ch->control->epoch, memory_order_acquire) != ch->epoch;
}

/* From making it known to its client until its end: the client is told who comes. */
void channel_enlist(share_channel *ch);
void channel_delist(share_channel *ch);

/* What the broker has told us unasked. 0 or an error. */
int channel_apply_told_locked(share_channel *ch, struct channel_told *t);
/* Those that are known by name only. Gives the lock up. */
int channel_meet_all_locked(share_channel *ch);

/* What an answer says; and when that was the last, since @first: who was not named is forgotten,
 * and the others are got to know. 0 or an error. With the lock held, given up in between. */
int channel_apply_locked(share_channel *ch, struct reply *reply);
int channel_meet_locked(share_channel *ch, uint32_t first);

/* sync.c. Learns who takes part, if that has changed. With the lock held, which is given up
 * in between. */
int channel_sync_locked(share_channel *ch);
/* The same, but for 1 when the broker has not said so by then: the next one goes on waiting. */
int channel_sync_until_locked(share_channel *ch, int64_t deadline);
/* Waits for an answer that nobody wants any more. Without the lock. */
void channel_sync_done(share_channel *ch);

/* members.c */
/* Those that died, without asking the broker. With the lock held. */
void channel_look_for_deaths_locked(share_channel *ch);
/* Producers that are gone and have nothing more for us: says so to the broker, giving the lock up.
 * True when there are others that are gone. */
bool channel_forget_drained_locked(share_channel *ch);
void channel_peers_done(share_channel *ch);

/* A consumer that is dead, or has left, or is the broker's to look after. */
void channel_dismiss_locked(share_channel *ch, struct channel_peer *p);

/* abandon.c. Tokens are what is missing: some of them may be with consumers that are left
 * behind, or behind fences for longer than those may take. True when another one was left behind.
 */
bool channel_leave_cooling_locked(share_channel *ch, int64_t now);
/* Tokens are missing: tells the keeper if it can get some. */
void channel_want_tokens_locked(share_channel *ch);
/* Gets them, giving the lock up in between. */
void channel_abandon_locked(share_channel *ch);

/* patience.c. A consumer was admitted. */
void channel_set_patience_locked(share_channel *ch, struct channel_peer *p);
/* It goes: if we are waiting, its user has had that. */
void channel_charge_stall_locked(share_channel *ch, struct channel_peer *p);
/* The same of one that has gone. */
void channel_charge_ghost_locked(share_channel *ch, uint32_t uid);
/* It is waited for no more. */
void channel_leave_locked(share_channel *ch, struct channel_peer *p);
/* There is no room: those that keep us waiting, for as long as they do. True when one was left
 * behind. */
bool channel_leave_behind_locked(share_channel *ch);
/* There was. */
void channel_has_room_locked(share_channel *ch);
/* How long to sleep before looking again, of what is @left (-1: no limit). */
int channel_slice_locked(const share_channel *ch, int left);

/* outgoing.c. 0 or an error. */
int channel_check_outgoing(share_channel *ch, const share_outgoing *m, void *stream);
/* One for all of them; also for messages without a buffer: their data may be about what @stream
 * does. */
int channel_signal_for(share_channel *ch, const share_outgoing *messages, size_t n, void *stream,
		       struct ring_fence *out);

/* returns.c. Consumers that are gone may have left fences. Before anybody is admitted: all
 * who are may go, and are to be remembered then. */
int channel_make_room_for_ghosts_locked(share_channel *ch);
void channel_remember_ghost_locked(share_channel *ch, const struct channel_peer *p);

/* returns.c. What goes back is collected with the lock held, and given back without. */
#define CHANNEL_RETURNS 16
struct channel_returns {
	size_t n;
	struct channel_return {
		share_buffer *buffer;
		struct fences fences;
		bool shared;
	} returns[CHANNEL_RETURNS];
};
/* Up to @limit messages. False when there may be more than fits. @all: look at every message in
 * flight. */
bool channel_collect_locked(share_channel *ch, bool all, size_t limit, struct channel_returns *out);
void channel_give_back(share_channel *ch, struct channel_returns *r);
/* What the giver of a reference still does with the memory. False: nothing. */
bool channel_hold_given(share_channel *ch, struct ring_fence given, struct held_fence *out);
/* The same, for buffer_release_after(). */
void channel_given_fences(share_channel *ch, struct ring_fence given, struct fences *out);
/* All of it, giving the lock up in between. */
void channel_reclaim_locked(share_channel *ch, bool all);
void channel_cool_locked(share_channel *ch, bool all);
/* Where messages wait for room, the keeper is told of it. */
void channel_watch_backlog_locked(share_channel *ch);
/* The sender is awake, unless somebody else has to be told. */
void channel_awake_locked(share_channel *ch);

/* sleep.c. Doorbells of others, bit by slot; and ours. */
void channel_ring_doorbells_locked(share_channel *ch, uint64_t slots);
bool channel_drain_doorbell(share_channel *ch); /* whether it has rung since */
/* @bell, borrowed, is what others ring ours by. 0 or negative errno. */
int channel_open_doorbell(share_channel *ch, int bell);

/* sleep.c: senders that sleep look again. With the lock held. */
void channel_wake_senders_locked(share_channel *ch);

/* lent.c: asks the broker for a segment of the channel's pool; a GRANT brings it, if it is
 * not here. 0 or an error. Without the lock. */
int channel_ask_for_segment(share_channel *ch, uint64_t segment);

/* sleep.c: what has come is not ready, and nobody will say when it is: an event loop is
 * told to look. Without the lock. */
void channel_look_again_soon(share_channel *ch);
void channel_look_again_locked(share_channel *ch, int ms);

/* keeper.c */
int keeper_start(share_channel *ch);
void keeper_stop(share_channel *ch);
/* There is something in flight. With the lock held. */
void keeper_rouse_locked(share_channel *ch);
/* Has all keepers of the client look for what was acknowledged, and then whenever something is, as
 * long as buffers_are_awaited() says so. With the client's lock held, and then: whether all that
 * were there have looked since; client->arrived is told. */
uint64_t keepers_look_locked(share_client *c);
bool keepers_have_looked_locked(const share_client *c, uint64_t look);

/* lent.c. Handles are got and put with the lock held. */
bool lent_reserve_locked(share_channel *ch); /* so that the next does not fail */
struct lent_buffer *lent_new_locked(share_channel *ch);
void lent_free_locked(share_channel *ch, struct lent_buffer *l);
struct lent_buffer *lent_of(share_buffer *b);
/* Makes the memory of a message reachable. 0 or an error. */
int lent_reach(share_channel *ch, share_buffer *b);
/* The same without asking the broker, where that is enough. */
bool lent_is_mapped(share_channel *ch, share_buffer *b);
/* Makes it the handle of a message. False: its fence is none. */
bool lent_fill_locked(share_channel *ch, struct lent_buffer *l, uint32_t slot,
		      const struct ring_message *m);

/* ack.c */
#define RECEIPT(slot, token, version) ((uint64_t)(version) << 32 | (uint64_t)(token) << 8 | (slot))
#define RECEIPT_RETAINED              0x80 /* its handle has a lease */
#define RECEIPT_SLOT(receipt)         ((uint32_t)((receipt)&0x7f))
#define RECEIPT_TOKEN(receipt)        ((uint32_t)((receipt) >> 8 & 0xffff))
#define RECEIPT_VERSION(receipt)      ((uint32_t)((receipt) >> 32))
/* One acknowledgement. With the lock held; channel_wake_producers_locked() is due. False: it was
 * acknowledged before. */
bool channel_ack_locked(share_channel *ch, uint64_t producer, uint64_t receipt,
			struct ring_fence fence, bool retained);
void channel_wake_producers_locked(share_channel *ch);

/* settle.c. The producer in this slot loses it to another one. 0 or an error. */
int channel_displace_locked(share_channel *ch, uint32_t slot);
bool channel_ack_displaced_locked(share_channel *ch, uint64_t producer, uint32_t token,
				  uint32_t version, struct ring_fence fence);
/* Tells the broker what there is to tell, giving the lock up in between. After acknowledging,
 * before the channel is looked at as one that may end. */
void channel_settle_locked(share_channel *ch);
void channel_displaced_done(share_channel *ch);

/* sleep.c. Without the lock: sleeps while *@word is @value and the control page says
 * @epoch, at most
 * @timeout_ms, or until woken. True when the time is over. */
bool channel_sleep_on(share_channel *ch, const struct ring_sleep *s, uint32_t epoch,
		      int timeout_ms);

/* Until somebody says that something has changed. With the lock held, which is given up. */
void channel_wait_changed_locked(share_channel *ch, int timeout_ms);

#endif
