/* SPDX-License-Identifier: MIT */

/*
 * How members of a channel leave, for a model checker: two producers, two consumers, the streams of
 * the consumers, and a broker. Anybody may die, close or be left behind at any moment, and the rows
 * and blocks of those who are gone are used again by those who come.
 *
 * What is modelled
 *
 *   Claims    the broker makes one for each producer and consumer that are there together. It has a
 *             row of the consumer's ledger. It is over when the consumer has drained a producer that
 *             is gone, has closed, or is dead; it ends when it is over, no fence in its row is still
 *             to be reached, and the broker keeps nothing for it.
 *   Take over a producer that closes or is dead: claim by claim, then its leases go; others act in
 *             between. One that has left a consumer behind asks for this claim alone (STALL): it
 *             names its tickets, is answered, and takes note, in three steps.
 *   Rows      a consumer has ROWS. When all are taken and a producer comes, a claim of which nothing
 *             is owed gives its row away. Without one, the consumer is expelled: it gets no more, and
 *             receives what those who are gone have sent it before it closes.
 *   Blocks    belong to who has a lease, or are kept for claims; else to whoever comes first.
 *   Streams   use a block after it was acknowledged, until their work is done or their pidfd tells
 *             of the death.
 *   Queue     a consumer that dies, leaves or is left behind makes the other one get what it has not
 *             acknowledged: marked if it had it, and set aside when that is too often.
 *   Reject    (REJECTS, in queues) a consumer gives back what it has, when its streams are done with
 *             it: the word in its row says which delivery it means, as it may get the same again.
 *   Orphans   (ORPHANS, in queues) what a producer that goes has sent, and nobody has acknowledged.
 *             The producer's page has a copy of each message, by ticket, and in whose lane it is.
 *             The broker makes an orphan of each, which is owned by who has it in its lane, or waits.
 *             An owner that can acknowledge no more gives it back; who is there fetches those that
 *             wait, one at a time, whatever claim it needs for that.
 *   Joining   consumer 1 comes at any time (JOIN), and so does producer 1 (SECOND); with one row,
 *             when producer 0 is gone.
 *   Broker    it may die (BROKER_DIES). The others go on, and see deaths by pidfds.
 *
 * What has to hold in every order
 *
 *   - No block is used again while somebody holds it or a stream reads it (reused_too_early).
 *   - Who had joined before a send looked at the epoch is known to it (message_missed).
 *   - In a queue a message has one owner (two_owners), and comes again only with a mark (unmarked).
 *   - Who is expelled owes something to each producer in its rows (expelled_for_nothing).
 *   - Every message of a producer that goes on is acknowledged or set aside, and who does not close
 *     receives all that it was sent (message_lost).
 *   - With ORPHANS that is so of producers that are gone, too: unless nobody is there to receive it.
 *     Nobody gets what its owner has acknowledged (acknowledged_again), or more often than the
 *     channel allows (delivered_too_often). One exception: what somebody acknowledges late that was
 *     left behind with it, another one may have by then, and a producer that is gone sees it not.
 *   - In the end tickets, blocks, claims and rows are back (something_left).
 *
 * What is not: words of shared memory (ring.pml), blocks sent anew while their ticket cools and
 * leases of consumers (channel.pml), sleep (sleep.pml), want of memory, hostile pages.
 *
 * Options: BROADCAST; MESSAGES and TICKETS of a producer; ROWS; BLOCKS; MORTAL and LEAVERS are bits of
 * who may die and who may close early: producers 1 and 2, consumers 4 and 8. HOLDS: consumer 0, once
 * it leaves or was left behind, never acknowledges what it has. LOOPS: consumers receive until there
 * is nothing more to come, and close then. DELIVERIES: as often is a message delivered at most.
 *
 * Each of these breaks one rule and has to be found out. The pair comes first: PAIR_LATE,
 * EPOCH_IGNORED. Take over, then drop: LEASES_FIRST, TAKE_NOTHING, RECYCLE_ABANDONED. Wait: NO_WAIT,
 * NO_FENCE_WAIT, LEFT_BEHIND_IS_SAFE. A claim's end: NOT_QUIET, END_AT_CLOSE, DRAINED_EARLY,
 * ROW_OF_THE_GONE, ANY_ROW. Who goes: NO_EXPEL, EXPEL_ALWAYS, EXPELLED_GETS_NOTHING. Of queues:
 * HAND_ON_HELD, NO_REDELIVERY, NO_MARK. Of deaths: DEAD_COUNT. Orphans, what is stored in which order:
 * COPY_AFTER_ENTRY, PLACE_AFTER_ENTRY, MARK_AFTER_RETURN. R6, they come before the leases go: ORPHANS_AFTER_LEASES,
 * WAITING_ARE_NONE, ONLY_WAITING_ARE. R7, who cannot acknowledge it gives it back: NO_GIVE_BACK,
 * DRAINED_IS_DONE, KEEP_UNTAKEN, GIVE_BACK_LEFT, GIVE_BACK_HELD, LOOK_BEFORE_END, NO_ORPHAN_MARK,
 * ASIDE_NEVER, ENTRY_WITH_ORPHAN. R8, what is acknowledged is noted before a row goes: FORGET_ACKS.
 * R9, it is told when it is so: TELL_BEFORE_COMMIT, LANE_AGAIN. The end of a loop: END_EARLY. Of what is
 * rejected: OLD_REJECT, ANY_REJECT, REJECT_IS_ACK, REJECT_WHILE_READING, REJECT_FREES, NOTE_REJECT.
 */

#ifndef MESSAGES
#define MESSAGES 1
#endif
#ifndef TICKETS
#define TICKETS 1
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef MORTAL
#define MORTAL 0
#endif
#ifndef LEAVERS
#define LEAVERS 0
#endif
#ifndef DELIVERIES
#define DELIVERIES 2 /* then it is set aside */
#endif

#define BIT(i)         (1 << (i))
#define MEMBER(c)      (2 + (c)) /* of a consumer; a producer's is its own number */
#define CLAIM(p, c)    ((p) * 2 + (c))
#define PRODUCER_OF(k) ((k) / 2)
#define CONSUMER_OF(k) ((k) % 2)
#define T(p, i)        ((p) * TICKETS + (i)) /* a ticket */
#define C(k, i)        ((k) * TICKETS + (i)) /* a ticket, as one consumer has it */
#define A(k, i)        (ROW(k) * TICKETS + (i)) /* where it is acknowledged */
#define ROW(k)         (CONSUMER_OF(k) * ROWS + row[k])
#define M(p, n)        ((p) * MESSAGES + (n) - 1) /* a message, from 1 */

/* Deaths. */
bool stopped[4]; /* the host takes no further step */
bool gone[4];    /* its pidfd is readable; its streams have ended */

/* The broker's. */
#define AWAY 0
#define HERE 1
#define LEFT 2
#define GONE 3
byte standing[4];
bool closing[2];
bool claimed[4], over[4], taken[4];
byte row[4];
byte kept[4 * TICKETS], kept_version[4 * TICKETS]; /* blocks */
byte lease[BLOCKS + 1];                            /* producer + 1 */
byte epoch;
bool broker_is_dead;
#define NONE     0
#define UNOWNED  1 /* waits */
#define OWNED(c) (2 + (c))
byte orphan[2 * TICKETS];
byte noted[2 * TICKETS]; /* the version of it that somebody has acknowledged whose row has gone */
byte told[4 * TICKETS];  /* the version that a consumer was told it has fetched */
#ifdef LOOK_BEFORE_END
bool stale[4 * TICKETS];
#endif

/* The producers' pages. */
bool admitted[4], left_behind[4];
byte buffer[2 * TICKETS], version[2 * TICKETS];
bool copied[2 * TICKETS]; /* the copy of the message is that of this version */
byte placed[2 * TICKETS]; /* in whose lane it is: as owner[] */
chan lane[4] = [TICKETS] of { byte, byte, byte, byte, byte }; /* ticket, version, block, deliveries, number */

/* The consumers' pages. */
byte row_is_for[2 * ROWS]; /* producer + 1 */
byte ack[2 * ROWS * TICKETS];
byte rejects[2 * ROWS * TICKETS]; /* which delivery, in the same word; 0: it is acknowledged */
bool receives_no_more[2];

/* The producers' own. A ticket is free, or stands for a block that is to be sent, or was. */
#define FREE   0
#define FILLED 1
#define SENT   2
#define NOBODY   0 /* else consumer + 1 */
#define FINISHED 3
byte stage[2 * TICKETS], owner[2 * TICKETS], pending[2 * TICKETS];
byte deliveries[2 * TICKETS], number[2 * TICKETS];
bool answered[2 * TICKETS]; /* somebody has acknowledged it */
bool retained[2 * TICKETS];
bool counts[4];
byte asked[4]; /* tickets that the broker is to look after */
bool kept_for[4], forgotten[4]; /* it does; its fences are not waited for here any more */
byte known[2], sent[2];

/* What consumers have, and what their streams do with it. */
#define HELD  1
#define READS 2
byte has[4 * TICKETS], has_version[4 * TICKETS], has_block[4 * TICKETS];
byte received[4 * TICKETS]; /* version */
byte has_marks[4 * TICKETS]; /* which delivery of it this is */
bool attached[4];

/* By block and message: what is in it; who got it, who was sent it. */
byte content[BLOCKS + 1];
byte seen[2 * MESSAGES], meant[2 * MESSAGES];
bool acknowledged[2 * MESSAGES], aside[2 * MESSAGES], left_open[2 * MESSAGES];
bool written[2 * MESSAGES], by_owner[2 * MESSAGES]; /* acknowledged by who owned it */
bool was_expelled[2], has_looped[2];

/* What must never be. Each is asserted where it is set, so that it is reported by its name. */
bool reused_too_early, message_missed, two_owners, unmarked, delivered_again, expelled_for_nothing;
bool message_lost, something_left, acknowledged_again, delivered_too_often;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

hidden byte j; /* within one step */

#if TICKETS == 1
#define ANY(what, x)  (what(x, 0))
#define ALL(what, x)  (what(x, 0))
#define ANY2(what, p, c) (what(p, c, 0))
#else
#define ANY(what, x)  (what(x, 0) || what(x, 1))
#define ALL(what, x)  (what(x, 0) && what(x, 1))
#define ANY2(what, p, c) (what(p, c, 0) || what(p, c, 1))
#endif

/* ---------------------------------------------------------------------------------------------
 * Blocks.
 */

#define USES(a, b) (has[a] && has_block[a] == (b))
#if TICKETS == 1
#define IS_USED(b) (USES(0, b) || USES(1, b) || USES(2, b) || USES(3, b))
#define IS_KEPT(b) (kept[0] == (b) || kept[1] == (b) || kept[2] == (b) || kept[3] == (b))
#else
#define IS_USED(b)                                                                        \
	(USES(0, b) || USES(1, b) || USES(2, b) || USES(3, b) || USES(4, b) || USES(5, b) || \
	 USES(6, b) || USES(7, b))
#define IS_KEPT(b)                                                                         \
	(kept[0] == (b) || kept[1] == (b) || kept[2] == (b) || kept[3] == (b) || kept[4] == (b) || \
	 kept[5] == (b) || kept[6] == (b) || kept[7] == (b))
#endif
#ifdef ORPHANS
#define IS_ORPHANS(b, a) (orphan[a] && buffer[a] == (b))
#if TICKETS == 1
#define IS_ORPHANED(b) (IS_ORPHANS(b, 0) || IS_ORPHANS(b, 1))
#else
#define IS_ORPHANED(b) \
	(IS_ORPHANS(b, 0) || IS_ORPHANS(b, 1) || IS_ORPHANS(b, 2) || IS_ORPHANS(b, 3))
#endif
#else
#define IS_ORPHANED(b) false
#endif
#define IS_FREE(b) (!lease[b] && !IS_KEPT(b) && !IS_ORPHANED(b))

/* Whoever allocates next would get it. */
#define CHECK_BLOCKS() \
	MUST(!(IS_FREE(1) && IS_USED(1)) && !(IS_FREE(BLOCKS) && IS_USED(BLOCKS)), reused_too_early)

#define STANDS(b, p, i) (buffer[T(p, i)] == (b))
#if TICKETS == 1
#define IN_FLIGHT(p, b) (STANDS(b, p, 0))
#else
#define IN_FLIGHT(p, b) (STANDS(b, p, 0) || STANDS(b, p, 1))
#endif
#define CAN_HAVE(p, b)                                                                \
	(IS_FREE(b) && !broker_is_dead && standing[p] == HERE || lease[b] == (p) + 1 && !IN_FLIGHT(p, b))

/* ---------------------------------------------------------------------------------------------
 * What a row says.
 */

#ifdef ANY_ROW
#define IS_ITS_ROW(k) true
#else
#define IS_ITS_ROW(k) (row_is_for[ROW(k)] == PRODUCER_OF(k) + 1)
#endif
#define SAYS(k, i, v) (IS_ITS_ROW(k) && ack[A(k, i)] == (v))
#ifdef REJECTS
#define IS_ACKED(k, i, v)    (SAYS(k, i, v) && !rejects[A(k, i)])
#define IS_REJECTED(k, i, v) (SAYS(k, i, v) && rejects[A(k, i)])
#else
#define IS_ACKED(k, i, v)    SAYS(k, i, v)
#define IS_REJECTED(k, i, v) false
#endif
/* Once a broker looks after it. */
#ifdef REJECT_FREES
#define IS_FREED(k, i, v) SAYS(k, i, v)
#else
#define IS_FREED(k, i, v) IS_ACKED(k, i, v)
#endif
#ifdef OLD_REJECT
#define IS_CURRENT(k, i) true
#else
#define IS_CURRENT(k, i) (rejects[A(k, i)] == deliveries[T(PRODUCER_OF(k), i)])
#endif
#define RUNS(k, i, v)     (has[C(k, i)] == READS && has_version[C(k, i)] == (v))

/* ---------------------------------------------------------------------------------------------
 * A producer: tickets.
 */

#define IS_SENT(p, i)     (stage[T(p, i)] == SENT)
#define WAITS(p, c, i)    (IS_SENT(p, i) && (pending[T(p, i)] & BIT(c)))
#define HAD(k, i)         (received[C(k, i)] == version[T(PRODUCER_OF(k), i)])
#ifdef REJECT_IS_ACK
#define SEES_ACK(p, c, i) (SAYS(CLAIM(p, c), i, version[T(p, i)]))
#else
#define SEES_ACK(p, c, i) (IS_ACKED(CLAIM(p, c), i, version[T(p, i)]))
#endif
/* Of who was left behind with it that is nobody's word: it may have got it again since. */
#ifdef ANY_REJECT
#define SEES_REJECT(p, c, i) \
	(!SEES_ACK(p, c, i) && IS_REJECTED(CLAIM(p, c), i, version[T(p, i)]) && \
	 (owner[T(p, i)] != (c) + 1 || IS_CURRENT(CLAIM(p, c), i)))
#else
#define SEES_REJECT(p, c, i) \
	(!SEES_ACK(p, c, i) && IS_REJECTED(CLAIM(p, c), i, version[T(p, i)]) && \
	 owner[T(p, i)] == (c) + 1 && IS_CURRENT(CLAIM(p, c), i))
#endif
#define SEES_NEITHER(p, c, i) (!SEES_ACK(p, c, i) && !SEES_REJECT(p, c, i))
#define CAN_GET(p, c, i)  (counts[CLAIM(p, c)] && !(pending[T(p, i)] & BIT(c)))

/* It still has it, and has not been told that it is somebody else's. */
#define OWNS(k, i)                                                                          \
	(has[C(k, i)] == HELD && has_version[C(k, i)] == version[T(PRODUCER_OF(k), i)] && \
	 !left_behind[k] && !gone[MEMBER(CONSUMER_OF(k))])

inline hand_to(p, c, i)
{
	placed[T(p, i)] = (c) + 1;
	pending[T(p, i)] = pending[T(p, i)] | BIT(c);
	meant[M(p, number[T(p, i)])] = meant[M(p, number[T(p, i)])] | BIT(c);
	received[C(CLAIM(p, c), i)] = 0; /* of this place in its lane */
	lane[CLAIM(p, c)]!i, version[T(p, i)], buffer[T(p, i)], deliveries[T(p, i)], number[T(p, i)]
}

/* Queue: to one who counts and has not had it, if there is one. */
inline deliver(p, i)
{
	MUST(!OWNS(CLAIM(p, 0), i) && !OWNS(CLAIM(p, 1), i), two_owners);
	if
	:: CAN_GET(p, 0, i) -> hand_to(p, 0, i); owner[T(p, i)] = 1
	:: CAN_GET(p, 1, i) -> hand_to(p, 1, i); owner[T(p, i)] = 2
	:: !CAN_GET(p, 0, i) && !CAN_GET(p, 1, i) -> placed[T(p, i)] = NOBODY; owner[T(p, i)] = NOBODY
	fi
}

inline hand_if_it_counts(p, c, i)
{
	if
	:: counts[CLAIM(p, c)] -> hand_to(p, c, i); owner[T(p, i)] = FINISHED
	:: else
	fi
}

inline enter(p, i)
{
#ifdef BROADCAST
	hand_if_it_counts(p, 0, i);
	hand_if_it_counts(p, 1, i)
#else
	deliver(p, i)
#endif
}

/* What nobody has got yet is the newcomer's. */
inline adopt(p, c, i)
{
	if
	:: IS_SENT(p, i) && owner[T(p, i)] == NOBODY && CAN_GET(p, c, i) ->
#ifdef BROADCAST
		hand_if_it_counts(p, c, i)
#else
		deliver(p, i)
#endif
	:: else
	fi
}

/* The page says so, too: by the time that the ticket is free its owner's row may be gone. */
inline see_finished(p, i)
{
	placed[T(p, i)] = (owner[T(p, i)] == FINISHED -> FINISHED : placed[T(p, i)])
}

inline observe(p, c, i)
{
	pending[T(p, i)] = pending[T(p, i)] & ~BIT(c);
	answered[T(p, i)] = true;
	owner[T(p, i)] = (owner[T(p, i)] == (c) + 1 -> FINISHED : owner[T(p, i)]);
	see_finished(p, i)
}

/* Nobody has it, and it is marked if somebody had it: one word says both, as the producer may die
 * behind any store. */
inline come_back(p, i, had)
{
	placed[T(p, i)] = NOBODY;
#ifndef MARK_AFTER_RETURN
	deliveries[T(p, i)] = deliveries[T(p, i)] + (had -> 1 : 0);
#endif
	if
	:: (MORTAL & BIT(p)) && !stopped[p] -> stopped[p] = true
	:: true ->
#ifdef MARK_AFTER_RETURN
		deliveries[T(p, i)] = deliveries[T(p, i)] + (had -> 1 : 0);
#endif
		deliver(p, i)
	fi
}

/* Queue: it is not the one to acknowledge this any more. */
inline give_to_others(p, c, i, had)
{
#ifndef BROADCAST
	if
	:: owner[T(p, i)] != (c) + 1
	:: owner[T(p, i)] == (c) + 1 && answered[T(p, i)] -> owner[T(p, i)] = FINISHED
#ifdef NO_REDELIVERY
	:: owner[T(p, i)] == (c) + 1 && !answered[T(p, i)] && had -> owner[T(p, i)] = FINISHED
	:: owner[T(p, i)] == (c) + 1 && !answered[T(p, i)] && !(had) -> deliver(p, i)
#else
	:: owner[T(p, i)] == (c) + 1 && !answered[T(p, i)] && had && deliveries[T(p, i)] == DELIVERIES ->
		aside[M(p, number[T(p, i)])] = true;
		owner[T(p, i)] = FINISHED
	:: owner[T(p, i)] == (c) + 1 && !answered[T(p, i)] && !(had && deliveries[T(p, i)] == DELIVERIES) ->
#ifdef ORPHANS
		come_back(p, i, had)
#else
#ifndef NO_MARK
		deliveries[T(p, i)] = deliveries[T(p, i)] + (had -> 1 : 0);
#endif
		deliver(p, i)
#endif
#endif
	fi;
	see_finished(p, i)
#else
	skip
#endif
}

inline observe_reject(p, c, i)
{
	pending[T(p, i)] = pending[T(p, i)] & ~BIT(c);
	give_to_others(p, c, i, true)
}

#define LEAVES  0
#define BEHIND  1
#define SAFE    2

inline part_from_ticket(p, c, i, parting)
{
	if
	:: WAITS(p, c, i) && SEES_ACK(p, c, i) -> observe(p, c, i)
	:: WAITS(p, c, i) && SEES_REJECT(p, c, i) -> observe_reject(p, c, i)
	:: WAITS(p, c, i) && SEES_NEITHER(p, c, i) && !HAD(CLAIM(p, c), i) ->
		pending[T(p, i)] = pending[T(p, i)] & ~BIT(c);
		give_to_others(p, c, i, false)
	:: WAITS(p, c, i) && SEES_NEITHER(p, c, i) && HAD(CLAIM(p, c), i) ->
		if
#ifdef HAND_ON_HELD
		:: parting == LEAVES -> give_to_others(p, c, i, true)
#else
		:: parting == LEAVES
#endif
		:: parting == BEHIND -> give_to_others(p, c, i, true)
		:: parting == SAFE ->
			pending[T(p, i)] = pending[T(p, i)] & ~BIT(c);
			give_to_others(p, c, i, true)
		fi
	:: else
	fi
}

inline empty_lane(k)
{
	do
	:: lane[k]?_, _, _, _, _
	:: empty(lane[k]) -> break
	od
}

inline part_from(p, c, parting)
{
	counts[CLAIM(p, c)] = false;
	part_from_ticket(p, c, 0, parting);
#if TICKETS > 1
	part_from_ticket(p, c, 1, parting);
#endif
	empty_lane(CLAIM(p, c))
}

inline dismiss(p, c, parting)
{
	left_behind[CLAIM(p, c)] = true;
	part_from(p, c, parting)
}

/* ---------------------------------------------------------------------------------------------
 * A producer: members.
 */

#define MATTERS(p, c) (counts[CLAIM(p, c)] || ANY2(WAITS, p, c))
#ifdef DEAD_COUNT
#define HAS_GONE(c) false
#else
#define HAS_GONE(c) (standing[MEMBER(c)] == GONE)
#endif

inline meet(p, c)
{
	if
	:: claimed[CLAIM(p, c)] && standing[MEMBER(c)] == HERE && !admitted[CLAIM(p, c)] ->
		admitted[CLAIM(p, c)] = true;
		counts[CLAIM(p, c)] = true;
		adopt(p, c, 0);
#if TICKETS > 1
		adopt(p, c, 1)
#endif
	:: standing[MEMBER(c)] == LEFT && counts[CLAIM(p, c)] -> dismiss(p, c, BEHIND)
	:: HAS_GONE(c) && MATTERS(p, c) -> dismiss(p, c, SAFE)
	:: else
	fi
}

inline ask_who_is_there(p)
{
	known[p] = epoch;
	meet(p, 0);
	meet(p, 1)
}

#define TAKES_PART(c) (standing[MEMBER(c)] == HERE && !receives_no_more[c] && !stopped[MEMBER(c)])

inline look_at_epoch(p)
{
	due = (TAKES_PART(0) && !broker_is_dead -> 1 : 0) | (TAKES_PART(1) && !broker_is_dead -> 2 : 0);
#ifndef EPOCH_IGNORED
	if
	:: known[p] != epoch && !broker_is_dead -> ask_who_is_there(p)
	:: else
	fi
#endif
}

#define IS_LATE(p, c) ((due & BIT(c)) && TAKES_PART(c) && !admitted[CLAIM(p, c)])

inline fill(p, i)
{
	stage[T(p, i)] = FILLED;
	version[T(p, i)]++;
	buffer[T(p, i)] = mine;
	sent[p]++;
	number[T(p, i)] = sent[p];
	content[mine] = M(p, sent[p]) + 1;
	deliveries[T(p, i)] = 1;
	owner[T(p, i)] = NOBODY;
	placed[T(p, i)] = NOBODY;
#ifdef COPY_AFTER_ENTRY
	copied[T(p, i)] = false;
#else
	copied[T(p, i)] = true;
	written[M(p, sent[p])] = true;
#endif
	ticket = i
}

inline send(p)
{
	MUST(!IS_LATE(p, 0) && !IS_LATE(p, 1), message_missed);
	stage[T(p, ticket)] = SENT;
	enter(p, ticket);
	ticket = 0;
	mine = 0;
	due = 0
}

/* The same in two steps, as the producer may die between them: in whose lane it is to be is said
 * before it is there. */
inline place(p)
{
	MUST(!IS_LATE(p, 0) && !IS_LATE(p, 1), message_missed);
	stage[T(p, ticket)] = SENT;
	if
	:: CAN_GET(p, 0, ticket) -> owner[T(p, ticket)] = 1
	:: CAN_GET(p, 1, ticket) -> owner[T(p, ticket)] = 2
	:: !CAN_GET(p, 0, ticket) && !CAN_GET(p, 1, ticket)
	fi;
#ifndef PLACE_AFTER_ENTRY
	placed[T(p, ticket)] = owner[T(p, ticket)]
#endif
}

inline put(p)
{
	if
	:: owner[T(p, ticket)] ->
		pending[T(p, ticket)] = BIT(owner[T(p, ticket)] - 1);
		lane[CLAIM(p, owner[T(p, ticket)] - 1)]!ticket, version[T(p, ticket)], buffer[T(p, ticket)], 1,
			number[T(p, ticket)]
	:: else
	fi;
	written[M(p, number[T(p, ticket)])] = true
}

inline end_of_send(p)
{
	copied[T(p, ticket)] = true;
	placed[T(p, ticket)] = owner[T(p, ticket)];
	ticket = 0;
	mine = 0;
	due = 0
}

/* Fences that came with acknowledgements. */
#ifdef NO_FENCE_WAIT
#define COOLS(p, c, i) false
#else
#define COOLS(p, c, i) (!forgotten[CLAIM(p, c)] && RUNS(CLAIM(p, c), i, version[T(p, i)]))
#endif
#define IS_THROUGH(p, i) (IS_SENT(p, i) && owner[T(p, i)] == FINISHED && !pending[T(p, i)])
#define IS_COOL(p, i)    (IS_THROUGH(p, i) && !COOLS(p, 0, i) && !COOLS(p, 1, i))

inline retire(p, i)
{
	lease[buffer[T(p, i)]] = (retained[T(p, i)] -> 0 : lease[buffer[T(p, i)]]);
	buffer[T(p, i)] = 0;
	stage[T(p, i)] = FREE;
	number[T(p, i)] = 0;
	owner[T(p, i)] = NOBODY;
	deliveries[T(p, i)] = 0;
	answered[T(p, i)] = false;
	retained[T(p, i)] = false;
	copied[T(p, i)] = false;
	placed[T(p, i)] = NOBODY;
	CHECK_BLOCKS()
}

/* What is missing because of a consumer that was left behind, is left to the broker. */
#define IS_MISSED(p, c, i) (IS_SENT(p, i) && ((pending[T(p, i)] & BIT(c)) || COOLS(p, c, i)))
#if TICKETS == 1
#define MISSED(p, c) (IS_MISSED(p, c, 0) -> 1 : 0)
#else
#define MISSED(p, c) ((IS_MISSED(p, c, 0) -> 1 : 0) | (IS_MISSED(p, c, 1) -> 2 : 0))
#endif

inline abandon_ticket(p, c, i)
{
#ifndef RECYCLE_ABANDONED
	retained[T(p, i)] = retained[T(p, i)] || WAITS(p, c, i) || COOLS(p, c, i);
#endif
	skip
}

inline abandon(p, c)
{
	abandon_ticket(p, c, 0);
#if TICKETS > 1
	abandon_ticket(p, c, 1);
#endif
	forgotten[CLAIM(p, c)] = true;
	kept_for[CLAIM(p, c)] = false;
	part_from(p, c, SAFE)
}

#ifdef LEFT_BEHIND_IS_SAFE
#define LEFT_HOW SAFE
#else
#define LEFT_HOW BEHIND
#endif

#define RESTS(p, i) (stage[T(p, i)] == FREE || IS_SENT(p, i) && owner[T(p, i)] == NOBODY && !pending[T(p, i)])
#define HAS_SENT_ALL(p) (sent[p] == MESSAGES && ALL(RESTS, p))
#define IS_IDLE(p, i) (stage[T(p, i)] == FREE)

inline leave_open(p, i)
{
	if
	:: number[T(p, i)] -> left_open[M(p, number[T(p, i)])] = true
	:: else
	fi
}

inline close(p)
{
	closing[p] = true;
	leave_open(p, 0);
#if TICKETS > 1
	leave_open(p, 1)
#endif
}

#ifdef REJECTS
#define SEES(c, i)                                                                          \
	:: d_step { WAITS(me, c, i) && SEES_ACK(me, c, i) -> observe(me, c, i) }             \
	:: atomic { WAITS(me, c, i) && SEES_REJECT(me, c, i) -> observe_reject(me, c, i) }
#else
#define SEES(c, i) :: d_step { WAITS(me, c, i) && SEES_ACK(me, c, i) -> observe(me, c, i) }
#endif

proctype producer(byte me)
{
	byte mine, ticket, due;

	{
end:
		do
		:: atomic {
			sent[me] < MESSAGES && ANY(IS_IDLE, me) && (CAN_HAVE(me, 1) || CAN_HAVE(me, BLOCKS)) ->
			mine = (CAN_HAVE(me, 1) -> 1 : BLOCKS);
			MUST(!IS_USED(mine), reused_too_early);
			lease[mine] = me + 1
		   };
			atomic { look_at_epoch(me) };
			d_step {
				if
				:: IS_IDLE(me, 0) -> fill(me, 0)
#if TICKETS > 1
				:: else -> fill(me, 1)
#endif
				fi
			};
#ifdef ORPHANS
			atomic { place(me) };
			d_step { put(me) };
			d_step { end_of_send(me) }
#else
			atomic { send(me) }
#endif
		SEES(0, 0)
		SEES(1, 0)
		:: d_step { IS_COOL(me, 0) -> retire(me, 0) }
#if TICKETS > 1
		SEES(0, 1)
		SEES(1, 1)
		:: d_step { IS_COOL(me, 1) -> retire(me, 1) }
#endif
		:: atomic { known[me] != epoch && !broker_is_dead -> ask_who_is_there(me) }
#ifndef DEAD_COUNT
		:: atomic { gone[MEMBER(0)] && MATTERS(me, 0) -> dismiss(me, 0, SAFE) }
		:: atomic { gone[MEMBER(1)] && MATTERS(me, 1) -> dismiss(me, 1, SAFE) }
#endif
		:: atomic { counts[CLAIM(me, 0)] && receives_no_more[0] -> part_from(me, 0, LEAVES) }
		:: atomic { counts[CLAIM(me, 1)] && receives_no_more[1] -> part_from(me, 1, LEAVES) }
#ifdef STALL
		:: atomic { ANY2(WAITS, me, 0) && !left_behind[CLAIM(me, 0)] -> dismiss(me, 0, LEFT_HOW) }
		:: d_step {
			left_behind[CLAIM(me, 0)] && claimed[CLAIM(me, 0)] && !taken[CLAIM(me, 0)] &&
			!asked[CLAIM(me, 0)] && !broker_is_dead && MISSED(me, 0) ->
			asked[CLAIM(me, 0)] = MISSED(me, 0)
		   }
		:: atomic { kept_for[CLAIM(me, 0)] -> abandon(me, 0) }
#endif
		:: d_step { HAS_SENT_ALL(me) || (LEAVERS & BIT(me)) -> close(me) }; break
		od
	} unless { stopped[me] }
}

/* ---------------------------------------------------------------------------------------------
 * A consumer.
 */

#define OTHER(k)          (CLAIM(1 - PRODUCER_OF(k), CONSUMER_OF(k)))
#define HOLDS_IT(k, i)    (has[C(k, i)] == HELD)
#define WAS_TOLD(k, i)    (told[C(k, i)])
#define HOLDS_NONE_OF(k)  (!ANY(HOLDS_IT, k) && !ANY(WAS_TOLD, k))
#define HOLDS_NOTHING(c)  (HOLDS_NONE_OF(CLAIM(0, c)) && HOLDS_NONE_OF(CLAIM(1, c)))
#define MUST_GO(c)        (standing[MEMBER(c)] == LEFT || left_behind[CLAIM(0, c)] || left_behind[CLAIM(1, c)])
#define HAS_MORE(k)       (claimed[k] && !over[k] && !left_behind[k] && len(lane[k]) > 0)
#ifdef EXPELLED_GETS_NOTHING
#define IS_DRY(c) true
#define MAY_RECEIVE(c) (standing[MEMBER(c)] != LEFT)
#else
#define IS_DRY(c) (!HAS_MORE(CLAIM(0, c)) && !HAS_MORE(CLAIM(1, c)))
#define MAY_RECEIVE(c) true
#endif
#define CAN_RECEIVE(k)                                                                            \
	(attached[k] && !receives_no_more[CONSUMER_OF(k)] && !left_behind[k] && len(lane[k]) > 0 && \
	 MAY_RECEIVE(CONSUMER_OF(k)))
#ifdef HOLDS
#define ACKNOWLEDGES(c) ((c) != 0 || !receives_no_more[c] && !MUST_GO(c))
#else
#define ACKNOWLEDGES(c) true
#endif
#ifdef DRAINED_EARLY
#define IS_DRAINED(k) (left_behind[k] || len(lane[k]) == 0)
#else
#define IS_DRAINED(k) ((left_behind[k] || len(lane[k]) == 0) && HOLDS_NONE_OF(k))
#endif
#define CAN_DRAIN(k)                                                                                  \
	(attached[k] && claimed[k] && !over[k] && !broker_is_dead && IS_DRAINED(k) && \
	 (gone[PRODUCER_OF(k)] || standing[PRODUCER_OF(k)] == GONE))

/* What was in the lane is there for good. */
inline look_at_lane_again(k, i)
{
#ifdef LANE_AGAIN
	if
	:: version[T(PRODUCER_OF(k), i)] && HAD(k, i) && buffer[T(PRODUCER_OF(k), i)] ->
		lane[k]!i, version[T(PRODUCER_OF(k), i)], buffer[T(PRODUCER_OF(k), i)], 1,
			number[T(PRODUCER_OF(k), i)]
	:: else
	fi
#else
	skip
#endif
}

/* The row is about this producer from now on. Who was in it before is gone. */
inline attach(k)
{
	attached[OTHER(k)] = attached[OTHER(k)] && !(claimed[OTHER(k)] && row[OTHER(k)] == row[k]) &&
			     claimed[OTHER(k)];
	attached[k] = true;
	row_is_for[ROW(k)] = PRODUCER_OF(k) + 1;
	for (j : 0 .. TICKETS - 1) {
		ack[A(k, j)] = 0;
		rejects[A(k, j)] = 0
	}
	j = 0;
	look_at_lane_again(k, 0);
#if TICKETS > 1
	look_at_lane_again(k, 1)
#endif
}

inline receive(k)
{
	lane[k]?ticket, copy, block, marks, which;
	received[C(k, ticket)] = copy;
	has[C(k, ticket)] = HELD;
	has_version[C(k, ticket)] = copy;
	has_block[C(k, ticket)] = block;
	has_marks[C(k, ticket)] = marks;
	which = M(PRODUCER_OF(k), which);
	MUST(content[block] == which + 1 && !(IS_FREE(block)), reused_too_early);
#ifdef BROADCAST
	MUST(!(seen[which] & BIT(me)), delivered_again);
#else
	MUST(!seen[which] || marks > 1, unmarked);
#endif
	MUST(!by_owner[which], acknowledged_again);
	MUST(marks <= DELIVERIES, delivered_too_often);
#ifdef ORPHANS
	MUST(orphan[T(PRODUCER_OF(k), ticket)] == NONE || orphan[T(PRODUCER_OF(k), ticket)] == OWNED(me),
	     two_owners);
#endif
	seen[which] = seen[which] | BIT(me);
	ticket = 0;
	copy = 0;
	block = 0;
	marks = 0;
	which = 0
}

/* An orphan, read from the copy. The claim may be new. */
inline fetch(k, i)
{
	if
	:: !attached[k] -> attach(k)
	:: else
	fi;
	told[C(k, i)] = 0;
	received[C(k, i)] = version[T(PRODUCER_OF(k), i)];
	has[C(k, i)] = HELD;
	has_version[C(k, i)] = version[T(PRODUCER_OF(k), i)];
	has_block[C(k, i)] = buffer[T(PRODUCER_OF(k), i)];
	has_marks[C(k, i)] = deliveries[T(PRODUCER_OF(k), i)];
	which = content[has_block[C(k, i)]] - 1;
	MUST(which == M(PRODUCER_OF(k), number[T(PRODUCER_OF(k), i)]), reused_too_early);
	MUST(!seen[which] || deliveries[T(PRODUCER_OF(k), i)] > 1, unmarked);
	MUST(!by_owner[which], acknowledged_again);
	MUST(deliveries[T(PRODUCER_OF(k), i)] <= DELIVERIES, delivered_too_often);
	seen[which] = seen[which] | BIT(me);
	which = 0
}

/* Late: it was left behind with it, and somebody else may have it. */
#ifdef ORPHANS
#define IS_OWNER(k, i)                                                  \
	(orphan[T(PRODUCER_OF(k), i)] == NONE -> !left_behind[k] : \
		 orphan[T(PRODUCER_OF(k), i)] == OWNED(CONSUMER_OF(k)))
#else
#define IS_OWNER(k, i) false
#endif

/* Its stream goes on with it. */
inline acknowledge(k, i)
{
	if
	:: IS_OWNER(k, i) -> by_owner[content[has_block[C(k, i)]] - 1] = true
	:: else
	fi;
	has[C(k, i)] = READS;
	if
	:: row_is_for[ROW(k)] == PRODUCER_OF(k) + 1 ->
		ack[A(k, i)] = has_version[C(k, i)];
		rejects[A(k, i)] = 0
	:: else
	fi;
	has_marks[C(k, i)] = 0;
	acknowledged[content[has_block[C(k, i)]] - 1] = true
}

/* Its streams are done with it. */
inline reject(k, i)
{
	if
	:: row_is_for[ROW(k)] == PRODUCER_OF(k) + 1 ->
		ack[A(k, i)] = has_version[C(k, i)];
		rejects[A(k, i)] = has_marks[C(k, i)]
	:: else
	fi;
	has_marks[C(k, i)] = 0;
	has_version[C(k, i)] = 0;
#ifdef REJECT_WHILE_READING
	has[C(k, i)] = READS /* and no fence says how long */
#else
	has[C(k, i)] = 0;
	has_block[C(k, i)] = 0
#endif
}

/* Of no producer is anything to come, from whomever it came first. */
#define IS_THERE(p)   (standing[p] == HERE || standing[p] == LEFT)
#define IS_ORPHAN(p, i) (orphan[T(p, i)] != NONE)
#define IS_UNOWNED(p, i) (orphan[T(p, i)] == UNOWNED)
#ifdef END_EARLY
#define NONE_COMES(p) (!ANY(IS_UNOWNED, p))
#else
#define NONE_COMES(p) (!ANY(IS_ORPHAN, p))
#endif
#define LOOP_ENDS(c)                                                                       \
	(!IS_THERE(0) && !IS_THERE(1) && NONE_COMES(0) && NONE_COMES(1) && IS_DRY(c) && \
	 HOLDS_NOTHING(c) && !broker_is_dead)

inline goes_away(c)
{
	was_expelled[c] = was_expelled[c] || standing[MEMBER(c)] == LEFT;
	standing[MEMBER(c)] = GONE;
	over[CLAIM(0, c)] = true;
	over[CLAIM(1, c)] = true;
#ifdef END_AT_CLOSE
	claimed[CLAIM(0, c)] = false;
	claimed[CLAIM(1, c)] = false;
#endif
	epoch++
}

#define FETCHES(k, i)  :: d_step { told[C(k, i)] -> fetch(k, i) }
#ifdef REJECTS
#define CONSUMES(k, i)                                                           \
	:: d_step { HOLDS_IT(k, i) && ACKNOWLEDGES(me) -> acknowledge(k, i) }     \
	:: d_step { HOLDS_IT(k, i) && ACKNOWLEDGES(me) -> reject(k, i) }
#else
#define CONSUMES(k, i) :: d_step { HOLDS_IT(k, i) && ACKNOWLEDGES(me) -> acknowledge(k, i) }
#endif

proctype consumer(byte me)
{
	byte ticket, copy, block, marks, which;

	{
end:
		do
		:: d_step { claimed[CLAIM(0, me)] && !over[CLAIM(0, me)] && !attached[CLAIM(0, me)] &&
			    !receives_no_more[me] -> attach(CLAIM(0, me)) }
		:: d_step { claimed[CLAIM(1, me)] && !over[CLAIM(1, me)] && !attached[CLAIM(1, me)] &&
			    !receives_no_more[me] -> attach(CLAIM(1, me)) }
		:: atomic { CAN_RECEIVE(CLAIM(0, me)) -> receive(CLAIM(0, me)) }
		:: atomic { CAN_RECEIVE(CLAIM(1, me)) -> receive(CLAIM(1, me)) }
		CONSUMES(CLAIM(0, me), 0)
		CONSUMES(CLAIM(1, me), 0)
#if TICKETS > 1
		CONSUMES(CLAIM(0, me), 1)
		CONSUMES(CLAIM(1, me), 1)
#endif
#ifdef ORPHANS
		FETCHES(CLAIM(0, me), 0)
		FETCHES(CLAIM(1, me), 0)
#if TICKETS > 1
		FETCHES(CLAIM(0, me), 1)
		FETCHES(CLAIM(1, me), 1)
#endif
#endif
#ifdef LOOPS
		:: d_step {
			!receives_no_more[me] && standing[MEMBER(me)] == HERE && LOOP_ENDS(me) ->
			has_looped[me] = true;
			receives_no_more[me] = true
		   }
#endif
		:: d_step { CAN_DRAIN(CLAIM(0, me)) -> over[CLAIM(0, me)] = true }
		:: d_step { CAN_DRAIN(CLAIM(1, me)) -> over[CLAIM(1, me)] = true }
		:: d_step {
			!receives_no_more[me] && standing[MEMBER(me)] != AWAY &&
			((LEAVERS & BIT(MEMBER(me))) || MUST_GO(me) && IS_DRY(me)) ->
			receives_no_more[me] = true
		   }
		:: d_step { receives_no_more[me] && HOLDS_NOTHING(me) && !broker_is_dead -> goes_away(me) }; break
		od
	} unless { stopped[MEMBER(me)] }
}

/* ---------------------------------------------------------------------------------------------
 * Streams and deaths.
 */

#define STREAM(a) :: d_step { has[a] == READS -> has[a] = 0; has_version[a] = 0; has_block[a] = 0 }

proctype streams()
{
end:
	do
	STREAM(0)
	STREAM(1)
	STREAM(2)
	STREAM(3)
#if TICKETS > 1
	STREAM(4)
	STREAM(5)
	STREAM(6)
	STREAM(7)
#endif
	od
}

proctype fate(byte who)
{
	stopped[who] = true;
	d_step {
		gone[who] = true;
		for (j : 0 .. 4 * TICKETS - 1) {
			if
			:: MEMBER(CONSUMER_OF(j / TICKETS)) == who ->
				has[j] = 0;
				has_version[j] = 0;
				has_block[j] = 0;
				has_marks[j] = 0
			:: else
			fi
		}
		j = 0
	}
}

proctype end_of_broker()
{
	broker_is_dead = true
}

/* ---------------------------------------------------------------------------------------------
 * The broker: who comes.
 */

#define KEEPS_NOT(k, i) (!kept[C(k, i)])
#define OWES_NOTHING(k)                                                             \
	(standing[PRODUCER_OF(k)] == GONE && ALL(KEEPS_NOT, k) && HOLDS_NOTHING(CONSUMER_OF(k)) && \
	 (left_behind[k] || len(lane[k]) == 0))

#ifdef ROW_OF_THE_GONE
#define IS_TAKEN(k, r) (claimed[OTHER(k)] && row[OTHER(k)] == (r) && standing[PRODUCER_OF(OTHER(k))] != GONE)
#else
#define IS_TAKEN(k, r) (claimed[OTHER(k)] && row[OTHER(k)] == (r))
#endif
#if ROWS == 1
#define IS_FULL(k) IS_TAKEN(k, 0)
#else
#define IS_FULL(k) false
#endif

#ifdef EXPEL_ALWAYS
#define GIVES_A_ROW(k) false
#else
#define GIVES_A_ROW(k) (OWES_NOTHING(OTHER(k)))
#endif

inline make_claim(k)
{
	if
	:: IS_FULL(k) && GIVES_A_ROW(k) -> claimed[OTHER(k)] = false
	:: else
	fi;
	if
	:: !(IS_FULL(k)) -> claimed[k] = true; row[k] = (IS_TAKEN(k, 0) -> 1 : 0)
#ifdef NO_EXPEL
	:: else
#else
	:: else ->
		MUST(!OWES_NOTHING(OTHER(k)), expelled_for_nothing);
		standing[MEMBER(CONSUMER_OF(k))] = LEFT;
		was_expelled[CONSUMER_OF(k)] = true
#endif
	fi
}

inline make_claim_if(k, partner)
{
	if
	:: partner -> make_claim(k)
	:: else
	fi
}

#define IS_PARTNER(p) (standing[p] == HERE && !closing[p])

inline pair_consumer(c)
{
	make_claim_if(CLAIM(0, c), IS_PARTNER(0));
	make_claim_if(CLAIM(1, c), IS_PARTNER(1))
}

inline pair_producer(p)
{
	make_claim_if(CLAIM(p, 0), standing[MEMBER(0)] == HERE);
	make_claim_if(CLAIM(p, 1), standing[MEMBER(1)] == HERE)
}

inline is_here(m)
{
	standing[m] = HERE;
	epoch++
}

#if ROWS > 1
#define MAY_COME(p) (standing[p] == AWAY)
#else
#define MAY_COME(p) (standing[p] == AWAY && standing[1 - (p)] == GONE)
#endif

/* ---------------------------------------------------------------------------------------------
 * The broker: who goes.
 */

/* Who has it in its lane has an orphan; of the others, only who was left behind may have it. */
#ifdef ORPHANS
#define MAY_HAVE(k) (left_behind[k])
#else
#define MAY_HAVE(k) true
#endif
#define MAY_USE(k, i)                                             \
	(IS_FREED(k, i, version[T(PRODUCER_OF(k), i)]) ->          \
		 RUNS(k, i, version[T(PRODUCER_OF(k), i)]) :         \
		 !over[k] && admitted[k] && MAY_HAVE(k))
#define HAS_LEASE(k, i) \
	(buffer[T(PRODUCER_OF(k), i)] && lease[buffer[T(PRODUCER_OF(k), i)]] == PRODUCER_OF(k) + 1)

inline take_ticket(k, i)
{
#ifndef TAKE_NOTHING
	if
	:: HAS_LEASE(k, i) && MAY_USE(k, i) ->
		kept[C(k, i)] = buffer[T(PRODUCER_OF(k), i)];
		kept_version[C(k, i)] = version[T(PRODUCER_OF(k), i)]
	:: else
	fi
#else
	skip
#endif
}

inline take(k)
{
	if
	:: claimed[k] && !taken[k] ->
		take_ticket(k, 0);
#if TICKETS > 1
		take_ticket(k, 1);
#endif
		taken[k] = true
	:: else
	fi
}

/* These tickets of a claim, for a producer that goes on. */
inline take_asked(k)
{
	if
	:: claimed[k] && !taken[k] && (asked[k] & 1) -> take_ticket(k, 0)
	:: else
	fi;
#if TICKETS > 1
	if
	:: claimed[k] && !taken[k] && (asked[k] & 2) -> take_ticket(k, 1)
	:: else
	fi;
#endif
	taken[k] = true;
	kept_for[k] = true
}

inline drop_leases(p)
{
	lease[1] = (lease[1] == (p) + 1 -> 0 : lease[1]);
	lease[BLOCKS] = (lease[BLOCKS] == (p) + 1 -> 0 : lease[BLOCKS]);
	CHECK_BLOCKS()
}

/* It waits for somebody; or is set aside, when that would be too often. */
inline give_back(p, i, had)
{
	if
#ifndef ASIDE_NEVER
	:: (had) && deliveries[T(p, i)] == DELIVERIES ->
		orphan[T(p, i)] = NONE;
		aside[M(p, number[T(p, i)])] = true;
		CHECK_BLOCKS()
	:: !((had) && deliveries[T(p, i)] == DELIVERIES) ->
#else
	:: true ->
#endif
#ifndef NO_ORPHAN_MARK
		deliveries[T(p, i)] = deliveries[T(p, i)] + ((had) -> 1 : 0);
#endif
		orphan[T(p, i)] = UNOWNED
	fi
}

inline ends_with(p, i)
{
	orphan[T(p, i)] = NONE;
	CHECK_BLOCKS()
}

#define IN_USE(p, i) (buffer[T(p, i)] && copied[T(p, i)] && placed[T(p, i)] != FINISHED)

/* @c has it in its lane, as far as the page says. */
inline orphan_of(p, c, i)
{
	if
	:: noted[T(p, i)] == version[T(p, i)] ||
	   claimed[CLAIM(p, c)] && IS_ACKED(CLAIM(p, c), i, version[T(p, i)])
#ifdef ONLY_WAITING_ARE
	:: else
#else
	:: else ->
		if
		:: claimed[CLAIM(p, c)] && !over[CLAIM(p, c)] ->
			orphan[T(p, i)] = OWNED(c);
			kept[C(CLAIM(p, c), i)] = buffer[T(p, i)];
			kept_version[C(CLAIM(p, c), i)] = version[T(p, i)]
		:: else -> give_back(p, i, HAD(CLAIM(p, c), i))
		fi
#endif
	fi
}

inline make_orphan(p, i)
{
	if
	:: IN_USE(p, i) && placed[T(p, i)] == 1 -> orphan_of(p, 0, i)
	:: IN_USE(p, i) && placed[T(p, i)] == 2 -> orphan_of(p, 1, i)
#ifndef WAITING_ARE_NONE
	:: IN_USE(p, i) && placed[T(p, i)] == NOBODY -> orphan[T(p, i)] = UNOWNED
#endif
	:: else
	fi
}

inline make_orphans(p)
{
#ifdef ORPHANS
	make_orphan(p, 0);
#if TICKETS > 1
	make_orphan(p, 1);
#endif
#endif
	skip
}

inline take_over(p)
{
#ifdef LEASES_FIRST
	d_step { drop_leases(p) };
#endif
#ifdef ORPHANS_AFTER_LEASES
	d_step { drop_leases(p) };
#endif
	d_step { make_orphans(p) };
	d_step { take(CLAIM(p, 0)) };
	d_step { take(CLAIM(p, 1)) };
	d_step {
		standing[p] = GONE;
		drop_leases(p);
		epoch++
	}
}

#define GOES(p) (standing[p] == HERE && (closing[p] || gone[p]))

#ifdef NO_WAIT
#define IS_DONE_WITH(k, i) (IS_FREED(k, i, kept_version[C(k, i)]) || over[k])
#else
#define IS_DONE_WITH(k, i) \
	(IS_FREED(k, i, kept_version[C(k, i)]) -> !RUNS(k, i, kept_version[C(k, i)]) : over[k])
#endif
#define OWNS_ORPHAN(k, i) (orphan[T(PRODUCER_OF(k), i)] == OWNED(CONSUMER_OF(k)))
#define GIVES_UP(k, i)    (kept[C(k, i)] && IS_DONE_WITH(k, i))
#define IS_LOUD(k, i)  (IS_ITS_ROW(k) && ack[A(k, i)] && RUNS(k, i, ack[A(k, i)]))
#ifdef NOT_QUIET
#define IS_QUIET(k) true
#else
#define IS_QUIET(k) (!ANY(IS_LOUD, k))
#endif
#define HAS_PARTED(k) (standing[PRODUCER_OF(k)] == GONE || standing[MEMBER(CONSUMER_OF(k))] == GONE)
#define ENDS(k)       (claimed[k] && over[k] && HAS_PARTED(k) && ALL(KEEPS_NOT, k) && IS_QUIET(k))

/* It looks again and again. */
#define LOOKS_AT(k, i)                                                                           \
	:: d_step {                                                                              \
		GIVES_UP(k, i) && !OWNS_ORPHAN(k, i) -> kept[C(k, i)] = 0; kept_version[C(k, i)] = 0; \
		CHECK_BLOCKS()                                                                   \
	   }
#define LOOKS(k) :: d_step { ENDS(k) && ALL(OWNS_NONE, k) -> note_acks(k); claimed[k] = false }

/* What it has acknowledged while its producer has not looked is to be known when that goes. */
#define OWNS_NONE(k, i) (!OWNS_ORPHAN(k, i))
#ifdef NOTE_REJECT
#define IS_NOTED(k, i) SAYS(k, i, version[T(PRODUCER_OF(k), i)])
#else
#define IS_NOTED(k, i) IS_ACKED(k, i, version[T(PRODUCER_OF(k), i)])
#endif
inline note_ack(k, i)
{
	if
	:: standing[PRODUCER_OF(k)] == HERE && IS_NOTED(k, i) &&
	   placed[T(PRODUCER_OF(k), i)] == CONSUMER_OF(k) + 1 ->
		noted[T(PRODUCER_OF(k), i)] = version[T(PRODUCER_OF(k), i)]
	:: else
	fi
}

inline note_acks(k)
{
#if defined(ORPHANS) && !defined(FORGET_ACKS)
	note_ack(k, 0);
#if TICKETS > 1
	note_ack(k, 1);
#endif
#endif
	skip
}

/* What becomes of an orphan that is owned: its owner has acknowledged it, can do so no more, or is
 * never going to have it. */
inline lose_owner(k, i)
{
#ifdef NO_GIVE_BACK
	ends_with(PRODUCER_OF(k), i)
#else
	if
#ifdef DRAINED_IS_DONE
	:: standing[MEMBER(CONSUMER_OF(k))] != GONE -> ends_with(PRODUCER_OF(k), i)
	:: standing[MEMBER(CONSUMER_OF(k))] == GONE ->
#else
	:: true ->
#endif
		give_back(PRODUCER_OF(k), i, HAD(k, i) || told[C(k, i)])
	fi;
	told[C(k, i)] = 0
#endif
}

#ifdef ENTRY_WITH_ORPHAN
#define DROP_ENTRY(k, i) kept[C(k, i)] = 0; kept_version[C(k, i)] = 0
#else
#define DROP_ENTRY(k, i) skip
#endif
#ifdef GIVE_BACK_HELD
#define TAKES_IT(k, i) false
#else
#define TAKES_IT(k, i) (HAD(k, i) || told[C(k, i)])
#endif
#ifdef KEEP_UNTAKEN
#define IS_NOT_TAKEN(k, i) false
#else
#define IS_NOT_TAKEN(k, i) (receives_no_more[CONSUMER_OF(k)] && !TAKES_IT(k, i))
#endif
#ifdef GIVE_BACK_LEFT
#define IS_PAST(k) (over[k] || standing[MEMBER(CONSUMER_OF(k))] == LEFT)
#else
#define IS_PAST(k) (over[k])
#endif
#ifdef LOOK_BEFORE_END
#define IS_UNACKED(k, i) (stale[C(k, i)])
#define READS_ROW(k, i) \
	:: d_step { OWNS_ORPHAN(k, i) && !SEEN_ACKED(k, i) && !stale[C(k, i)] -> stale[C(k, i)] = true }
#else
#define IS_UNACKED(k, i) (!SEEN_ACKED(k, i))
#define READS_ROW(k, i)
#endif
#define SEEN_ACKED(k, i) IS_ACKED(k, i, version[T(PRODUCER_OF(k), i)])
/* It uses it no more, and may get it again: so the entry goes, too. */
#ifdef REJECTS
#define REJECTED_ORPHAN(k, i)                                                                 \
	:: d_step {                                                                           \
		OWNS_ORPHAN(k, i) && IS_REJECTED(k, i, version[T(PRODUCER_OF(k), i)]) &&      \
		IS_CURRENT(k, i) ->                                                           \
		kept[C(k, i)] = 0;                                                            \
		kept_version[C(k, i)] = 0;                                                    \
		lose_owner(k, i)                                                              \
	   }
#else
#define REJECTED_ORPHAN(k, i)
#endif
#define LOOKS_AT_ORPHAN(k, i)                                                                 \
	READS_ROW(k, i)                                                                       \
	:: d_step {                                                                           \
		OWNS_ORPHAN(k, i) && SEEN_ACKED(k, i) && !(IS_PAST(k) && IS_UNACKED(k, i)) -> \
		DROP_ENTRY(k, i); ends_with(PRODUCER_OF(k), i)                                \
	   }                                                                                  \
	:: d_step {                                                                           \
		OWNS_ORPHAN(k, i) && IS_UNACKED(k, i) && (IS_PAST(k) || IS_NOT_TAKEN(k, i)) -> \
		lose_owner(k, i)                                                              \
	   }                                                                                  \
	REJECTED_ORPHAN(k, i)

/* Somebody gets one that waits: with the claim that it has, or a new one. */
#define HAS_ROW(k) (!(IS_FULL(k)) || GIVES_A_ROW(k))
#define HAS_CLAIM(k) (claimed[k] && !over[k] || !claimed[k] && HAS_ROW(k))
#define MAY_FETCH(k)                                                                               \
	(standing[MEMBER(CONSUMER_OF(k))] == HERE && standing[PRODUCER_OF(k)] == GONE &&          \
	 !receives_no_more[CONSUMER_OF(k)] && !left_behind[CLAIM(0, CONSUMER_OF(k))] &&           \
	 !left_behind[CLAIM(1, CONSUMER_OF(k))] && HAS_CLAIM(k))

inline commit_fetch(k, i)
{
	if
	:: !claimed[k] ->
		make_claim(k);
		over[k] = false;
		attached[k] = false;
		taken[k] = true
	:: else
	fi;
	orphan[T(PRODUCER_OF(k), i)] = OWNED(CONSUMER_OF(k));
	kept[C(k, i)] = buffer[T(PRODUCER_OF(k), i)];
	kept_version[C(k, i)] = version[T(PRODUCER_OF(k), i)]
}

inline tell_fetched(k, i)
{
	MUST(!OWNS(CLAIM(PRODUCER_OF(k), 0), i) && !OWNS(CLAIM(PRODUCER_OF(k), 1), i) &&
		     !told[C(CLAIM(PRODUCER_OF(k), 0), i)] && !told[C(CLAIM(PRODUCER_OF(k), 1), i)],
	     two_owners);
	told[C(k, i)] = version[T(PRODUCER_OF(k), i)]
}

#define CAN_FETCH(k, i) (IS_UNOWNED(PRODUCER_OF(k), i) && !kept[C(k, i)] && MAY_FETCH(k))
#ifdef TELL_BEFORE_COMMIT
/* The broker may die in between, and the next one knows nothing of it. */
#define HANDS_OUT(k, i)                                                       \
	:: d_step { CAN_FETCH(k, i) -> tell_fetched(k, i) };                  \
	   if                                                                 \
	   :: d_step { IS_UNOWNED(PRODUCER_OF(k), i) -> commit_fetch(k, i) }  \
	   :: skip                                                            \
	   fi
#else
#define HANDS_OUT(k, i) :: d_step { CAN_FETCH(k, i) -> commit_fetch(k, i); tell_fetched(k, i) }
#endif

proctype broker()
{
	{
end:
		do
#ifdef JOIN
#ifdef PAIR_LATE
		:: d_step { standing[MEMBER(1)] == AWAY -> is_here(MEMBER(1)) }; d_step { pair_consumer(1) }
#else
		:: d_step { standing[MEMBER(1)] == AWAY -> pair_consumer(1); is_here(MEMBER(1)) }
#endif
#endif
#ifdef SECOND
		:: atomic {
			MAY_COME(1) -> pair_producer(1);
			is_here(1);
			run producer(1);
			if
			:: MORTAL & 2 -> run fate(1)
			:: else
			fi
		   }
#endif
		:: GOES(0) -> take_over(0)
		:: GOES(1) -> take_over(1)
		:: d_step {
			gone[MEMBER(0)] && (standing[MEMBER(0)] == HERE || standing[MEMBER(0)] == LEFT) ->
			goes_away(0)
		   }
		:: d_step {
			gone[MEMBER(1)] && (standing[MEMBER(1)] == HERE || standing[MEMBER(1)] == LEFT) ->
			goes_away(1)
		   }
#ifdef STALL
		:: d_step { asked[0] && !kept_for[0] && !forgotten[0] && standing[0] == HERE -> take_asked(0) }
		:: d_step { asked[2] && !kept_for[2] && !forgotten[2] && standing[1] == HERE -> take_asked(2) }
#endif
#ifdef ORPHANS
		LOOKS_AT_ORPHAN(0, 0)
		LOOKS_AT_ORPHAN(1, 0)
		LOOKS_AT_ORPHAN(2, 0)
		LOOKS_AT_ORPHAN(3, 0)
		HANDS_OUT(0, 0)
		HANDS_OUT(1, 0)
		HANDS_OUT(2, 0)
		HANDS_OUT(3, 0)
#if TICKETS > 1
		LOOKS_AT_ORPHAN(0, 1)
		LOOKS_AT_ORPHAN(1, 1)
		LOOKS_AT_ORPHAN(2, 1)
		LOOKS_AT_ORPHAN(3, 1)
		HANDS_OUT(0, 1)
		HANDS_OUT(1, 1)
		HANDS_OUT(2, 1)
		HANDS_OUT(3, 1)
#endif
#endif
		LOOKS_AT(0, 0)
		LOOKS_AT(1, 0)
		LOOKS_AT(2, 0)
		LOOKS_AT(3, 0)
#if TICKETS > 1
		LOOKS_AT(0, 1)
		LOOKS_AT(1, 1)
		LOOKS_AT(2, 1)
		LOOKS_AT(3, 1)
#endif
		LOOKS(0)
		LOOKS(1)
		LOOKS(2)
		LOOKS(3)
		od
	} unless { broker_is_dead }
}

/* ---------------------------------------------------------------------------------------------
 * When nothing can move any more.
 */

#ifdef HOLDS
#define MAY_STAY(c) ((c) == 0)
#else
#define MAY_STAY(c) false
#endif

/* It has closed early, was left behind, or is dead: it need not receive what it was sent. */
#define WAS_LEFT(k) \
	(receives_no_more[CONSUMER_OF(k)] && (LEAVERS & BIT(MEMBER(CONSUMER_OF(k)))) || \
	 stopped[MEMBER(CONSUMER_OF(k))] || left_behind[k] || broker_is_dead)
#define HAS_GOT(p, c, n) \
	(!(meant[M(p, n)] & BIT(c)) || (seen[M(p, n)] & BIT(c)) || WAS_LEFT(CLAIM(p, c)))
/* Whoever is there, or has left because nothing was to come, ought to have got it. */
#define NEED_NOT_GET(c)                                                                          \
	(stopped[MEMBER(c)] || standing[MEMBER(c)] == AWAY || was_expelled[c] ||               \
	 left_behind[CLAIM(0, c)] || left_behind[CLAIM(1, c)] ||                                 \
	 receives_no_more[c] && !has_looped[c])
#ifdef ORPHANS
#define IS_SETTLED(p, n)                                                                \
	((n) > sent[p] || acknowledged[M(p, n)] || aside[M(p, n)] || !written[M(p, n)] || \
	 broker_is_dead || MAY_STAY(0) && (seen[M(p, n)] & 1) || NEED_NOT_GET(0) && NEED_NOT_GET(1))
#else
#define IS_SETTLED(p, n)                                                                    \
	(stopped[p] || (n) > sent[p] || acknowledged[M(p, n)] || aside[M(p, n)] || \
	 left_open[M(p, n)] || MAY_STAY(0))
#endif

proctype end_of_the_run()
{
	timeout ->
	d_step {
		MUST(closing[0] || stopped[0] || broker_is_dead, something_left);
		for (j : 0 .. 2 * TICKETS - 1) {
			MUST(stage[j] == FREE || stopped[j / TICKETS] || closing[j / TICKETS], something_left)
		}
		for (j : 0 .. 4 * TICKETS - 1) {
			MUST(!has[j] || MAY_STAY(CONSUMER_OF(j / TICKETS)), something_left);
			MUST(!kept[j] || broker_is_dead || MAY_STAY(CONSUMER_OF(j / TICKETS)), something_left)
		}
		for (j : 0 .. 3) {
			MUST(!claimed[j] || broker_is_dead || standing[PRODUCER_OF(j)] == HERE ||
				     MAY_STAY(CONSUMER_OF(j)),
			     something_left);
			MUST(len(lane[j]) == 0 || WAS_LEFT(j), message_lost)
		}
		for (j : 1 .. BLOCKS) {
			MUST(!lease[j] || broker_is_dead, something_left)
		}
		for (j : 1 .. MESSAGES) {
#ifdef BROADCAST
			MUST(HAS_GOT(0, 0, j) && HAS_GOT(0, 1, j), message_lost);
			MUST(HAS_GOT(1, 0, j) && HAS_GOT(1, 1, j), message_lost)
#else
			MUST(IS_SETTLED(0, j) && IS_SETTLED(1, j), message_lost)
#endif
		}
	}
}

init {
	atomic {
		epoch = 1;
		standing[0] = HERE;
		standing[MEMBER(0)] = HERE;
		claimed[CLAIM(0, 0)] = true;
#ifndef JOIN
		standing[MEMBER(1)] = HERE;
		claimed[CLAIM(0, 1)] = true;
#endif
		run end_of_the_run();
		run broker();
		run streams();
		run producer(0);
		run consumer(0);
		run consumer(1);
		if
		:: MORTAL & 1 -> run fate(0)
		:: else
		fi;
		if
		:: MORTAL & 4 -> run fate(MEMBER(0))
		:: else
		fi;
		if
		:: MORTAL & 8 -> run fate(MEMBER(1))
		:: else
		fi;
#ifdef BROKER_DIES
		run end_of_broker()
#else
		skip
#endif
	}
}
