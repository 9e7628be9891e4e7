/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_INSIDE_H
#define LIBSHARE_CHANNEL_INSIDE_H

#include "libshare/channel/ready.h"
#include "libshare/channel/state.h"

/*
 * What the files of this room share. None calls one that calls it, as tests/rooms_test.py looks.
 * From below to above:
 *
 *   lock.c, sleep.c        the doors to a channel's state, and waiting for the other side
 *   members.c, sync.c      who else takes part; direct.c, what services need; loan.c
 *   close.c, channel.c     what ends and what opens
 *   ready.c to patience.c  of the sender, what comes back, and who keeps it waiting: returns.c,
 *                          consumers.c
 *   data.c to incoming.c   of the receiver, what it is lent: behind.c, lent.c, producers.c
 *   producer.c             the sender: outgoing.c, abandon.c, aside.c, background.c, drain.c
 *   consumer.c             the receiver: retain.c, ack.c, reject.c, stash.c, ends.c, waiting.c
 *   sender.c, receiver.c   these roles, which those that open and end a channel ask
 *
 * The rule of the lock. A `struct members *`, `struct sender *` or `struct receiver *` is only had
 * by taking the channel's lock: a function that takes one is called with the lock held and returns
 * with it held. If its name ends with `_unlocking`, it lets go of the lock in between, so that
 * whatever was read before the call has to be read again. A function that takes a `share_channel *`
 * is called without the lock, or needs none. `_client_locked` says that the client's lock is held.
 *
 * A channel's lock is taken before the client's. Nobody sends to the broker, gives a buffer back or
 * sleeps with the channel's lock held; the condition variable of the channel lets go of it.
 */

/* ------------------------------------------------------------------------------------------- */
/* lock.c                                                                                      */

/* Makes a channel of zeros, with nothing but its lock and its parts; NULL without memory. */
share_channel *channel_alloc(int role);
void channel_free(share_channel *ch);

/* Finds the channel of a handle, of which the program has to have this role; 0: any. */
int channel_resolve_as(share_channel **ch, int role);
int channel_check_role(const share_channel *ch, int role);
/* In a call that has begun when another thread gives the channel up, where it would not wait:
 * SHARE_EINVAL. */
int channel_given_up(void);

/* These take the lock. The last two are for channels of that role. */
struct members *channel_lock(share_channel *ch);
struct sender *sender_lock(share_channel *ch);
struct receiver *receiver_lock(share_channel *ch);
/* This answers NULL if somebody else has the lock. */
struct receiver *receiver_trylock(share_channel *ch);
void channel_unlock(share_channel *ch);
/* Lets go of the lock after a message was given up; the last one of a closed channel ends it. */
void channel_unlock_and_end(share_channel *ch);
/* Before anybody else has the channel, and when nobody has it any more, no lock is needed. */
struct members *channel_unshared(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* close.c                                                                                     */

/* The last message of a closed channel was given up, and nobody is in a call about it. */
void channel_end(void *channel);
/* Tells the broker. */
void channel_leave(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* members.c                                                                                   */

/* Of what a member of this role writes: the ring of a producer, the ledger of a consumer. */
size_t channel_page_size(const share_channel *ch, int role);

/* Consumers are found by their slot, which is their lane, and producers by the row of our ledger
 * that is about them. */
static inline uint32_t members_index(const share_channel *ch, const struct wire_member *m)
{
	return ch->role == SHARE_PRODUCER ? m->slot : m->row;
}

static inline uint32_t members_index_of(const struct members *m, const struct channel_peer *p)
{
	return (uint32_t)(p - m->peers);
}

/* To the broker's knowledge, a moment ago. */
static inline bool members_is_there(const struct channel_peer *p)
{
	return p->state == WIRE_MEMBER_HERE || p->state == WIRE_MEMBER_LEFT;
}

/* How a producer went that sends nothing more. */
static inline int members_end_of(const struct channel_peer *p)
{
	return p->state == WIRE_MEMBER_DEAD && !p->ended ? SHARE_EOWNERDEAD : SHARE_EPIPE;
}

static inline bool members_are_out_of_date(const struct members *m)
{
	return !m->alone &&
	       atomic_load_explicit(&m->ch->control->epoch, memory_order_acquire) != m->epoch;
}

/* Applies what the broker has told us unasked. 0 or an error. */
int members_apply_told(struct members *members, struct channel_told *t);
/* Applies one answer of the broker. 0 or an error. */
int members_apply(struct members *members, struct reply *reply);
/* Makes those known to the ring that are only known by name. 0 or an error. */
int members_meet_all_unlocking(struct members *members);
/* The same after the last answer to a question. Who was not named since the answer @first is
 * forgotten. */
int members_meet_unlocking(struct members *members, uint32_t first);

/* Closes what is open of one that is not looked at any more; its entry stays until the broker has
 * forgotten it too. */
void members_close_peer(struct members *members, struct channel_peer *p);
/* As the kernel says, without asking the broker. */
bool members_is_dead(const struct channel_peer *p);
/* Notices all those that died. */
void members_look_for_deaths(struct members *members);
/* How many of the other role are there, as far as this member knows. */
uint32_t members_count(const struct members *members);
/* Lets go of all peers when the channel ends. */
void members_deinit(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* consumers.c                                                                                 */

/* These are of the role. */
int sender_meet(struct members *members, struct channel_peer *p);
/* A consumer is dead, or has left, or is the broker's to look after. */
void sender_let_go(struct members *members, struct channel_peer *p);
void sender_wake_all(struct members *members);
bool sender_may_find_room(struct members *members);

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
void receiver_note_expelled(struct members *members);
bool receiver_may_get_more(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* sync.c                                                                                      */

/* The client is told who comes, from the first of these calls to the second. */
void channel_enlist(share_channel *ch);
void channel_delist(share_channel *ch);

/* Learns who takes part, if that has changed. 0, an error, or 1 when the broker has not answered by
 * @deadline: the next one who asks goes on waiting for the answer. */
int members_sync_until_unlocking(struct members *members, int64_t deadline);
/* Before waiting for others to do something, or for somebody to come: 0, or SHARE_EDISCONNECTED
 * when the broker is gone and nobody is there who could. If that was not known, members are out of
 * date now: there may be more to see before that is said. */
int members_look_for_broker(struct members *members);
/* Waits for an answer that nobody wants any more, when the channel ends. */
void members_sync_deinit(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* sleep.c                                                                                     */

/* Rings the doorbells of peers, bit by slot. */
void members_ring_doorbells(struct members *members, uint64_t slots);
/* Sets our own doorbell back, and says whether it has rung since the last time. */
bool channel_drain_doorbell(share_channel *ch);
/* Opens it: @bell, borrowed, is what others ring it by. 0 or negative errno. */
int channel_open_doorbell(share_channel *ch, int bell);

/* The sleeper sleeps as the ring has it, for at most @timeout_ms. 0: it was woken; 1: perhaps not;
 * or an error, as of members_wait_unlocking(). */
int members_sleep_unlocking(struct members *members, const struct ring_sleep *s, int timeout_ms);
/* Waits until somebody says that something has changed, for a thread of the program: 0, or an error
 * when the wait is to end: SHARE_ECANCELED, SHARE_EINTR. */
int members_wait_unlocking(struct members *members, int timeout_ms);
/* Has those that sleep look again. */
void members_wake_others(struct members *members);
/* Tells an event loop to look again later, as nobody will say when what has come is ready. */
#define MEMBERS_LOOK_SOON_MS 1 /* a GPU wakes nobody up */
void members_look_again(struct members *members, int ms);
void channel_look_again_soon(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* patience.c                                                                                  */

/* A consumer was admitted, and is given its patience. */
void sender_set_patience(struct sender *sender, struct channel_peer *p);
/* A consumer goes. If we are waiting, its user is charged for that. */
void sender_charge_stall(struct sender *sender, struct channel_peer *p);
/* The same for the user of one that has gone before. */
void sender_charge_gone(struct sender *sender, uint32_t uid);
/* Leaves a consumer behind: it is not waited for any more. */
void sender_leave(struct sender *sender, struct channel_peer *p);
/* There is no room: leaves those behind that have kept us waiting for too long. True when there
 * were any. */
bool sender_leave_stalled_unlocking(struct sender *sender);
/* Of the fences that a ticket waits for, whether consumer @i has kept this one for as long as it
 * may keep us waiting. */
bool sender_cools_too_long(struct sender *sender, const struct channel_cooling *c, size_t i,
			   int64_t now);
/* There was room, so all clocks stop. */
void sender_has_room(struct sender *sender);
/* Tells the broker, once, when somebody has waited in vain for long. */
void sender_tell_of_stall_unlocking(struct sender *sender);
/* Says how long to sleep before looking again, of what is @left; -1 is no limit. */
int sender_slice(struct sender *sender, int left);
/* Whether the time alone changes something for who waits for room. */
bool sender_clock_runs(struct sender *sender);

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
/* returns.c                                                                                   */

/* A consumer has one from when it is admitted on until it is gone and none of its fences is left.
 * NULL without memory. */
struct channel_owner *owner_new(struct sender *sender, const struct channel_peer *p);
void owner_is_gone(struct sender *sender, struct channel_owner *owner);
void owner_done_with_fence(struct sender *sender, struct channel_owner *owner);
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
/* Does both until there is nothing left. */
void sender_reclaim_unlocking(struct sender *sender, bool all);
/* Frees tickets whose fences were reached. */
void sender_cool(struct sender *sender, bool all);
/* Makes a fence of what the giver of a reference still does with the memory. False if it does
 * nothing any more. */
bool channel_hold_given(share_channel *ch, struct ring_fence given, struct held_fence *out);
/* The same as a set, for buffer_release_after(). */
void channel_given_fences(share_channel *ch, struct ring_fence given, struct fences *out);
/* Where messages wait for consumers to have room, the background thread is told when they have. */
void sender_watch_backlog_unlocking(struct sender *sender);

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
/* background.c                                                                                */

int background_start(share_channel *ch);
void background_stop(share_channel *ch);
/* There is something in flight. */
void background_rouse(struct sender *sender);

/* ------------------------------------------------------------------------------------------- */
/* incoming.c                                                                                  */

/* So many at most are taken in one step. */
#define RECEIVER_RUN 16

/* Up to @n messages that are there and are data alone, or one of another kind, into an array of
 * that @stride: how many, 0 when there is none, or an error. */
int receiver_take_run(struct receiver *receiver, share_message *out, size_t stride, uint32_t n);
/* One: 1, 0 or an error. */
int receiver_take(struct receiver *receiver, share_message *out);
/* It was left behind, or expelled. What others have sent comes before that is said: as much as
 * there can be of it now, since they may go on sending. */
void receiver_become_stale(struct receiver *receiver);
/* What an answer of the broker's says of orphans, once its producers are known; one that it gives
 * us is received. */
void receiver_hear(struct members *members, const struct wire_channel_members *m);

/* ------------------------------------------------------------------------------------------- */
/* stash.c                                                                                     */

/* Puts a message by for the next call, which may have it in so many milliseconds. */
void channel_stash(share_channel *ch, share_message *m, int ms);
/* There is one: answers 1 and the message, whose error is the thread's last one. */
int receiver_take_from_stash(struct receiver *receiver, share_message *out);
/* Messages that were received and not handed out go to others. */
void receiver_drop_stash(struct receiver *receiver);

/* ------------------------------------------------------------------------------------------- */
/* ends.c                                                                                      */

/* Learns who takes part: 0 or an error. Who always has something to receive looks for no ends, and
 * needs rows as well. */
int receiver_learn_who_is_there_unlocking(struct receiver *receiver);
/* Producers that say themselves that they have closed the channel. */
void receiver_note_ends(struct receiver *receiver);
/* Of those that are gone: what is drained, and whether it was the last. 0, 1 and an orphan, or an
 * error. */
int receiver_look_for_ends_unlocking(struct receiver *receiver, share_message *out);
/* Whether the broker has an orphan for who asks, and the question: 1 and a message, 0 or an error.
 */
bool receiver_wants_orphan(const struct receiver *receiver);
int receiver_ask_for_orphan_unlocking(struct receiver *receiver, share_message *out);
/* The program was not told of the end, as it was given messages in the same call. */
void channel_tell_end_again(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* waiting.c                                                                                   */

#define RECEIVER_LOOKS_ONLY (-2) /* as a time limit: 0, without being asked again */
/* So many looks until it is seen that a producer has died, by who never sleeps. */
#define RECEIVER_LOOKS 1024
/* So often it is looked whether the broker has answered, or memory has come. */
#define RECEIVER_SLOW_MS    20
#define RECEIVER_NO_MESSAGE "there is no message"

/* 1 and a message, or an error: @deadline is 0 if there is nothing to wait for. */
int receiver_wait_unlocking(struct receiver *receiver, int timeout_ms, int64_t deadline,
			    share_message *out);

/* ------------------------------------------------------------------------------------------- */
/* loan.c                                                                                      */

static inline struct lent_buffer *lent_of(share_buffer *b)
{
	return (struct lent_buffer *)(void *)b;
}
/* Makes an ordinary handle of a loan. 0 or an error. */
int channel_retain(share_buffer *b);

/* ------------------------------------------------------------------------------------------- */
/* lent.c                                                                                      */

/* Reserves a handle, so that the next call of lent_new() does not fail. False without memory. */
bool lent_reserve(struct receiver *receiver);
/* So many. */
bool lent_reserve_all(struct receiver *receiver, uint32_t n);
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
/* ack.c                                                                                       */

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

/* Acknowledges one message; receiver_wake_producers() is due afterwards. False if it was
 * acknowledged before. */
static inline bool receiver_ack(struct receiver *receiver, uint64_t producer, uint64_t receipt,
				struct ring_fence fence, bool retained)
{
	return receipt_is_valid(receiver, receipt) &&
	       ring_consumer_ack(receiver->ring, RECEIPT_ROW(receipt), producer,
				 RECEIPT_TICKET(receipt), RECEIPT_VERSION(receipt), fence,
				 retained);
}

/* Gives one back, for somebody else: the same. */
static inline bool receiver_reject(struct receiver *receiver, uint64_t producer, uint64_t receipt,
				   bool retained)
{
	return receipt_is_valid(receiver, receipt) &&
	       ring_consumer_reject(receiver->ring, RECEIPT_ROW(receipt), producer,
				    RECEIPT_TICKET(receipt), RECEIPT_VERSION(receipt), retained);
}

static inline void receiver_wake_producers(struct receiver *receiver)
{
	members_ring_doorbells(receiver->members, ring_consumer_wake(receiver->ring));
}

static inline bool channel_has_further(const share_channel *ch)
{
	return __builtin_expect(ch->shape.buffers > 1, 0);
}
/* Where they are. It stays as long as the message is not given up, and others keep off it: who
 * gives the message up has taken it. NULL: there are none. */
struct channel_data *message_find_further(const share_message *m);
static inline struct channel_data *message_further(const share_message *m)
{
	return m->channel && channel_has_further(channel_of(m->channel)) ? message_find_further(m)
									 : NULL;
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

/* What was told of loans by share_release() comes before what is done on the stream next. */
struct loans_work {
	void *stream;
	share_buffer *first; /* NULL: there are none; all have memory of the same pool */
};
loan_visit loan_order_uses;

/* The loans of a message's buffers behind its first one end: its memory is not to be used. */
void receiver_free_further(struct receiver *receiver, const share_message *m);
/* Gives one message up: it is acknowledged behind @fence, or rejected if that is NULL. 0, or
 * SHARE_EINVAL if the program has given up a copy of it before. */
int receiver_give_up(struct receiver *receiver, share_message *m, const struct ring_fence *fence);
/* To a program that gives up the copy of a message. */
#define GIVEN_UP "this message was given up before"

/* Whether these can be given up together: 0 or an error. */
int messages_check(const share_message *messages, size_t n);
/* The references that messages have to their buffers are taken from them, so that of two who give
 * the same message up one does; and are theirs still, where they were not given up. */
int messages_take_all(share_message *messages, size_t n);
void messages_keep_all(share_message *messages, size_t n);
static inline bool channel_has_owner(const share_channel *ch)
{
	return atomic_load_explicit(&ch->owner, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------- */
/* retain.c                                                                                    */

/* Of several, each that is kept gets a lease before anything is given up: the message is
 * acknowledged as a whole, so that none of its loans can go on alone. 0 or an error. */
int message_lease_kept(share_message *m);
/* Handles that the program keeps get leases, and are released as such; or the loan goes on. */
int message_let_go_of_kept(share_message *m, void *stream, bool rejected);

/* ------------------------------------------------------------------------------------------- */
/* behind.c                                                                                    */

/* Of answers. 0 or negative errno. */
int receiver_count_behind(struct receiver *receiver);
/* So many were acknowledged behind this, of our own timelines. */
void receiver_acked_behind(struct receiver *receiver, struct ring_fence work, uint32_t messages);

/* ------------------------------------------------------------------------------------------- */
/* aside.c                                                                                     */

/* Gives up one that was taken back: 0 or an error, as share_ack(). */
int sender_ack_taken_back(share_channel *ch, share_message *m, void *stream);

#endif
