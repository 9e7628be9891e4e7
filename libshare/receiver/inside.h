/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/loan.h"
#include "libshare/channel/lock.h"
#include "libshare/channel/message.h"
#include "libshare/channel/wait.h"
#include "libshare/receiver/receiver.h"

/*
 * What the files of this room share. None calls one that calls it, as tests/rooms_test.py looks.
 * From below to above:
 *
 *   data.c, behind.c, lent.c    what the receiver has of messages
 *   incoming.c, producers.c     what comes, and from whom
 *   give_up.c, ack.c            what is given back
 *   waiting.c                   what is put by, who has gone, and waiting
 *   consumer.c                  what the program calls to receive
 *   receiver.c                  the role, which those ask that open and end a channel
 */

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

struct receiver {
	share_channel *ch;
	struct members *members;
	struct ring_consumer *ring;
	bool writable;      /* what is received may be written to */
	bool latest;        /* it gets the latest message alone */
	bool had_producers; /* so that their end is something to tell */
	int last_end;       /* SHARE_EOWNERDEAD or SHARE_EPIPE, of the last producer that went; 0:
			     * none has that we know */
	bool stale;         /* we were left behind, or expelled */
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

/* ------------------------------------------------------------------------------------------- */
/* behind.c                                                                                    */

/* Of answers. 0 or negative errno. */
int receiver_count_behind(struct receiver *receiver);
/* So many were acknowledged behind this, of our own timelines. */
void receiver_acked_behind(struct receiver *receiver, struct ring_fence work, uint32_t messages);

/* ------------------------------------------------------------------------------------------- */
/* lent.c                                                                                      */

/* Reserves handles, so that the next @n calls of lent_new() do not fail. False without memory. */
bool lent_reserve(struct receiver *receiver, uint32_t n);
struct lent_buffer *lent_new(struct receiver *receiver);
void lent_free(struct receiver *receiver, struct lent_buffer *l);
/* Makes it the handle of a message. False if the message's fence makes no sense. */
bool lent_fill(struct receiver *receiver, struct lent_buffer *l, uint32_t row,
	       const struct ring_message *m);
/* Makes the memory of a message reachable. 0 or an error. */
int lent_reach(share_channel *ch, share_buffer *b);
/* Does so only where the broker need not be asked, and says whether that was enough. */
bool lent_is_mapped(share_channel *ch, share_buffer *b);
/* Orders @stream behind what the producer did. 0 or an error. */
int lent_order(share_message *m, void *stream, int timeout_ms);

/* ------------------------------------------------------------------------------------------- */
/* incoming.c                                                                                  */

/* So many at most are taken in one step. */
#define RECEIVER_RUN 16

/* Up to @n messages that are there and are data alone, or one of another kind, into an array of
 * that @stride: how many, 0 when there is none, or an error. */
int receiver_take_run(struct receiver *receiver, share_message *out, size_t stride, uint32_t n);
/* It was left behind, or expelled. What others have sent comes before that is said: as much as
 * there can be of it now, since they may go on sending. */
void receiver_become_stale(struct receiver *receiver);
/* What an answer of the broker's says of orphans, once its producers are known; one that it gives
 * us is received. */
void receiver_hear(struct members *members, const struct wire_channel_members *m);

/* ------------------------------------------------------------------------------------------- */
/* producers.c                                                                                 */

/* Tells the broker of producers that are gone and have nothing more for us, but for so many that
 * @keep their rows. True when there are others that are gone. */
bool receiver_forget_drained_unlocking(struct receiver *receiver, uint32_t keep);
/* These are of the role. */
int receiver_meet(struct members *members, struct channel_peer *p);
void receiver_note_death(struct members *members, struct channel_peer *p);
void receiver_let_go(struct members *members, struct channel_peer *p);
void receiver_ask(struct members *members, struct wire_channel_sync *question);
bool receiver_may_get_more(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* give_up.c                                                                                   */

#define RECEIPT(row, ticket, version) ((uint64_t)(version) << 32 | (uint64_t)(ticket) << 8 | (row))
#define RECEIPT_RETAINED              0x80 /* its handle has a lease */
#define RECEIPT_ROW(receipt)          ((uint32_t)((receipt)&0x7f))
#define RECEIPT_TICKET(receipt)       ((uint32_t)((receipt) >> 8 & 0xffff))
#define RECEIPT_VERSION(receipt)      ((uint32_t)((receipt) >> 32))

/* The program may have written into the message. */
static inline bool receipt_is_valid(const struct receiver *receiver, uint64_t receipt)
{
	return RECEIPT_ROW(receipt) < receiver->ch->shape.rows &&
	       RECEIPT_TICKET(receipt) < receiver->ch->shape.in_flight;
}

/* Acknowledges one message behind @fence, or gives it back for somebody else, if that is NULL;
 * receiver_wake_producers() is due afterwards. False if it was given up before. */
static inline bool receiver_return(struct receiver *receiver, uint64_t producer, uint64_t receipt,
				   const struct ring_fence *fence, bool retained)
{
	uint32_t row = RECEIPT_ROW(receipt), ticket = RECEIPT_TICKET(receipt),
		 version = RECEIPT_VERSION(receipt);

	if (!receipt_is_valid(receiver, receipt))
		return false;
	return fence
		   ? ring_consumer_ack(receiver->ring, row, producer, ticket, version, *fence,
				       retained)
		   : ring_consumer_reject(receiver->ring, row, producer, ticket, version, retained);
}

static inline void receiver_wake_producers(struct receiver *receiver)
{
	members_ring_doorbells(receiver->members, ring_consumer_wake(receiver->ring));
}

static inline bool channel_has_further(const share_channel *ch)
{
	return __builtin_expect(ch->shape.buffers > 1, 0);
}

static inline bool loan_is_lent(share_buffer *handle)
{
	return atomic_load_explicit(&buffer_of(handle)->lent, memory_order_acquire);
}

static inline bool loan_is_plain(share_buffer *handle)
{
	return loan_is_lent(handle) &&
	       atomic_load_explicit(&buffer_of(handle)->refs, memory_order_acquire) == 1;
}

/* Called with each buffer of messages that is not given up, until it returns something else than 0,
 * which is returned then. */
typedef int loan_visit(share_buffer *handle, void *data);
int message_visit_further(const share_message *m, loan_visit *visit, void *data);
static inline __attribute__((always_inline)) int messages_visit(const share_channel *ch,
								const share_message *messages,
								size_t n, loan_visit *visit,
								void *data)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = messages[i].buffer ? visit(messages[i].buffer, data) : 0;
		if (r == 0 && channel_has_further(ch))
			r = message_visit_further(&messages[i], visit, data);
	}
	return r;
}

/* The loans of a message's buffers end: its memory is not to be used. */
void receiver_free_loans(struct receiver *receiver, const share_message *m);
/* Gives one message up: it is acknowledged behind @fence, or rejected if that is NULL. 0, or
 * SHARE_EINVAL if the program has given up a copy of it before. */
int receiver_give_up(struct receiver *receiver, share_message *m, const struct ring_fence *fence);
/* The same with nothing else to be done: a channel that is closed may end with it. */
int message_give_up(share_channel *ch, share_message *m, const struct ring_fence *fence);

/* Of several, each that is kept gets a lease before anything is given up: the message is
 * acknowledged as a whole, so that none of its loans can go on alone. 0 or an error. */
int message_lease_kept(share_message *m);
/* Handles that the program keeps get leases, and are released as such; or the loan goes on. */
int message_let_go_of_kept(share_message *m, void *stream, bool rejected);

/* ------------------------------------------------------------------------------------------- */
/* waiting.c                                                                                   */

/* Puts a message by for the next call, which may have it in so many milliseconds. */
void channel_stash(share_channel *ch, share_message *m, int ms);
/* Messages that were received and not handed out go to others. */
void receiver_drop_stash(struct receiver *receiver);
/* The program was not told of the end, as it was given messages in the same call. */
void channel_tell_end_again(share_channel *ch);

#define RECEIVER_LOOKS_ONLY (-2) /* as a time limit: 0, without being asked again */
/* So many looks until it is seen that a producer has died, by who never sleeps. */
#define RECEIVER_LOOKS 1024
/* So often it is looked whether the broker has answered, or memory has come. */
#define RECEIVER_SLOW_MS    20
#define RECEIVER_NO_MESSAGE "there is no message"

/* 1 and a message, or an error: @deadline is 0 if there is nothing to wait for. */
int receiver_wait_unlocking(struct receiver *receiver, int timeout_ms, int64_t deadline,
			    share_message *out);
