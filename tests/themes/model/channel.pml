/* SPDX-License-Identifier: MIT */

/*
 * A channel and the deaths of its members, for a model checker: a producer, two consumers, the
 * streams of all three, a broker, and somebody else who gets every block of memory that becomes
 * free. spin tries every order of their steps, and every moment at which one of them may be killed.
 *
 * What is modelled
 *
 *   Lanes     one for each consumer, in order. How words of shared memory make that is ring.pml's;
 *             a message is received in one step here. In a broadcast both get every message, in a
 *             queue one of them.
 *   Tickets    what a message holds of its block: from before it is sent until all who got it have
 *             acknowledged and the fences of that are reached. The page says so to the broker.
 *   Blocks    are the producer's again as soon as they are acknowledged, and sent anew by another
 *             ticket while the first one cools: its stream waits for the fences.
 *   Streams   fill a block when those fences are reached; read it after it was filled, or its
 *             producer is dead; and may do so long after the host has acknowledged.
 *   Death     ends the host's steps at once; the streams go on until the pidfd tells (what fence.pml
 *             is about). Of the others the producer may give one up that lives (LEAVE).
 *   Queue     what a consumer that died or was left behind has not acknowledged goes to the other
 *             one, marked if it may have been seen; under the same ticket, which both hold then.
 *   Leaving   a consumer says that it receives no more (CLOSE): what it has taken it goes on to
 *             acknowledge, or never does, and the producer goes on (HOLDS); the rest goes to the
 *             other one.
 *   Joining   in a broadcast, consumer 1 comes at any time (JOIN), and gets what was sent when nobody
 *             was there. The producer goes on.
 *   Dropping  in a broadcast where nobody is there, a message waits in the only place that there is,
 *             until a newer one is sent (DROPS); who comes is told how many went so.
 *   Retain    a consumer takes a lease from the broker before it acknowledges.
 *   Take over when the producer has closed the channel or is dead, the broker keeps, for each
 *             consumer, the blocks of all tickets that it may still use; then the leases go. How
 *             that goes on, and how rows are used again, is membership.pml's.
 *
 * What has to hold in every order
 *
 *   - Nobody writes a block while a stream may read it, or a host that holds it may enqueue reads;
 *     and who reads finds what was sent, unless the producer died before it was written.
 *   - In a queue every message is acknowledged by somebody, while the producer lives and has not
 *     closed, or is with one who has left and keeps it; it comes a second time only with a mark,
 *     and not when it was acknowledged.
 *   - What is sent in a broadcast when nobody is there, or all have said that they receive no more,
 *     waits for the first that comes, or that one is told that it was dropped.
 *   - In the end every block is free, and nobody waits.
 *
 * What is not: the limit of deliveries, how the broker tells of who comes, and its death
 * (membership.pml), hostile pages.
 *
 * Each of these breaks one rule and has to be found out: RECYCLE_AT_ONCE, NO_GATE, RETIRE_AT_ACK,
 * TICKET_AFTER_ENTRY, CLOSE_AND_KEEP, SAFE_AT_HANGUP, WAIT_FOR_LEAVING, LOOK_BEFORE_WORD,
 * LEFT_BEHIND_IS_SAFE, NO_REDELIVERY, NO_MARK, IGNORE_RETAINED, DEAD_COUNT,
 * STOPS_COUNTING_TWICE, SEND_TO_WHO_HAS_LEFT, DROP_WHAT_IS_CLAIMED.
 */

#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#define TICKETS    2
#define CONSUMERS 2

/* Who may die: bits. The producer is 0, consumers are 1 and 2. */
#ifndef MORTAL
#define MORTAL 1
#endif
#define PROCESSES 3

#define AT(c, i) ((c) * TICKETS + (i))

/* Deaths. */
bool stopped[PROCESSES]; /* the host takes no further step */
bool gone[PROCESSES];    /* its pidfd is readable; its streams have ended */

/* The producer's page. A block is its number + 1 everywhere. */
byte buffer[TICKETS], version[TICKETS];
bool left_behind[CONSUMERS];
chan lane[CONSUMERS] = [TICKETS + 1] of { byte, byte, byte, byte }; /* ticket, version, block, deliveries */

/* The consumers' pages. */
byte ack[CONSUMERS * TICKETS]; /* version */
bool retained[CONSUMERS * TICKETS], taken[CONSUMERS * TICKETS];
bool receives_no_more[CONSUMERS];

/* The producer's own. */
mtype = { FREE, SENT, COOLING };
mtype state[TICKETS] = FREE;
byte expected[TICKETS]; /* who has to acknowledge: bits */
byte number[TICKETS];   /* of the message, from 1 */
byte sends[TICKETS];    /* the block */
byte deliveries[TICKETS];
bool homeless[TICKETS]; /* a queue: nobody is there to get it */
byte base;              /* a broadcast: nobody is there to get what has a higher number */
bool magazine[BLOCKS + 1];
bool counts[CONSUMERS];
bool known[CONSUMERS]; /* has come, and is not gone for good */
bool had[CONSUMERS * TICKETS]; /* taken, when that was looked at */
byte messages;
bool closed, closed_early;

/* Streams: what is to be filled, and what consumers do with which block: WAITING, READING. */
#define WAITING 1
#define READING 2
byte filling[TICKETS];
byte gates[TICKETS]; /* what that comes after: bits, by AT() */
byte work[CONSUMERS * TICKETS], block[CONSUMERS * TICKETS], held[CONSUMERS * TICKETS];
byte content[BLOCKS + 1]; /* number of the message */
byte kept[CONSUMERS];     /* a block with a lease of its own */

/* The broker's. */
bool lease[BLOCKS + 1], lease_of[CONSUMERS];
bool has_come[CONSUMERS], has_left[CONSUMERS], drained[CONSUMERS];
bool taken_over, leases_dropped;
byte keeps[CONSUMERS * TICKETS]; /* a block */
bool reused[BLOCKS + 1]; /* by somebody else: the end */

/* By message: who received it, whether it was acknowledged. */
byte seen[MESSAGES + 1]; /* bits */
bool acknowledged[MESSAGES + 1];
#ifdef JOIN
bool is_for_newcomer[MESSAGES + 1];
#endif
#ifdef DROPS
bool dropped[MESSAGES + 1];
byte untold, told; /* so many of them who comes is to be told of, and has been */
#endif

/* What must never be. Each is asserted where it is set, so that it is reported by its name. */
bool reused_too_early, wrong_read, unmarked, delivered_again, message_lost, something_left;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

#define BIT(i)              (1 << (i))
#define ACKNOWLEDGED(c, i)  (ack[AT(c, i)] == version[i])
#define MISSING(c, i)       ((expected[i] & BIT(c)) && !ACKNOWLEDGED(c, i))
#define NOBODY_COUNTS       (!counts[0] && !counts[1])
#ifdef BROADCAST
#define IS_HOMELESS(i) (NOBODY_COUNTS && number[i] > base)
#else
#define IS_HOMELESS(i) homeless[i]
#endif
#define ALL_ACKNOWLEDGED(i) (!IS_HOMELESS(i) && !MISSING(0, i) && !MISSING(1, i))

/* The fence of an acknowledgement: reached, or its owner is dead. */
#define OVER(c, i)   (work[AT(c, i)] == 0 || gone[c + 1])
#define OPEN(a)      (work[a] != 0 && !gone[1 + (a) / TICKETS])
#define PASSED(mask) (!((mask) & 1 && OPEN(0)) && !((mask) & 2 && OPEN(1)) && \
		      !((mask) & 4 && OPEN(2)) && !((mask) & 8 && OPEN(3)))

#define READS(a, b)      (work[a] != 0 && block[a] == (b))
#define IN_USE(b)                                                                \
	(READS(0, b) || READS(1, b) || READS(2, b) || READS(3, b) || kept[0] == (b) || \
	 kept[1] == (b))

hidden byte k; /* within one step */

/* ---------------------------------------------------------------------------------------------
 * The producer.
 */

/* A fence that has come with an acknowledgement of this message. */
#define COOLS(c, i) ((expected[i] & BIT(c)) && ACKNOWLEDGED(c, i) && !OVER(c, i))
#define IS_COOL(i)  (state[i] == COOLING && !COOLS(0, i) && !COOLS(1, i) && !filling[i])

#ifdef NO_GATE
#define COOLS_FOR(i, b, c) 0
#else
#define COOLS_FOR(i, b, c) (state[i] == COOLING && buffer[i] == (b) && COOLS(c, i) -> BIT(AT(c, i)) : 0)
#endif

inline take_block(b)
{
	magazine[b] = false;
	mine = b;
	pending = COOLS_FOR(0, b, 0) | COOLS_FOR(0, b, 1) | COOLS_FOR(1, b, 0) | COOLS_FOR(1, b, 1)
}

inline take_ticket(i)
{
	state[i] = SENT;
	ticket = i;
	messages++;
	number[i] = messages;
	sends[i] = mine;
	deliveries[i] = 1;
	expected[i] = 0;
	taken[AT(0, i)] = false;
	taken[AT(1, i)] = false;
	filling[i] = mine;
	gates[i] = pending;
	pending = 0
}

inline hand_to(c, i)
{
	expected[i] = expected[i] | BIT(c);
	taken[AT(c, i)] = false;
	lane[c]!i, version[i], sends[i], deliveries[i]
}

inline enter(i)
{
#ifdef BROADCAST
	if
	:: counts[0] -> hand_to(0, i)
	:: else
	fi;
	if
	:: counts[1] -> hand_to(1, i)
	:: else
	fi
#else
	homeless[i] = false;
	if
	:: counts[0] && !(expected[i] & BIT(0)) -> hand_to(0, i)
	:: counts[1] && !(expected[i] & BIT(1)) -> hand_to(1, i)
	:: !counts[0] && !counts[1] -> homeless[i] = true
	fi
#endif
}

/* It gets what nobody has, in order. */
inline adopt(c, i)
{
	if
	:: state[i] == SENT && IS_HOMELESS(i) -> hand_to(c, i)
	:: else
	fi
}

inline admit(c)
{
#ifdef DROPS
	told = told + (NOBODY_COUNTS -> untold : 0);
	untold = 0;
#endif
	if
	:: number[0] < number[1] -> adopt(c, 0); adopt(c, 1)
	:: else -> adopt(c, 1); adopt(c, 0)
	fi;
	known[c] = true;
	counts[c] = true
}

inline publish()
{
#ifdef TICKET_AFTER_ENTRY
	atomic { version[ticket]++; enter(ticket) };
	d_step { buffer[ticket] = mine; mine = 0; ticket = 0 }
#else
	buffer[ticket] = mine;
	version[ticket]++;
	atomic { enter(ticket); mine = 0; ticket = 0 }
#endif
}

#ifdef IGNORE_RETAINED
#define WAS_RETAINED(i) false
#else
#define WAS_RETAINED(i) \
	(retained[AT(0, i)] && (expected[i] & BIT(0)) || retained[AT(1, i)] && (expected[i] & BIT(1)))
#endif

/* The block is used again here, unless somebody else has a lease on it now. */
inline reclaim(i)
{
	state[i] = COOLING;
	magazine[buffer[i]] = !(WAS_RETAINED(i));
#ifdef RETIRE_AT_ACK
	state[i] = (WAS_RETAINED(i) -> COOLING : FREE);
	buffer[i] = (WAS_RETAINED(i) -> buffer[i] : 0)
#endif
}

#ifdef DROP_WHAT_IS_CLAIMED
#define WAITS(i) (state[i] == SENT && number[i] > base)
#else
#define WAITS(i) (state[i] == SENT && IS_HOMELESS(i))
#endif
#ifdef DROPS
#define HAS_ROOM (!WAITS(0) && !WAITS(1))
#else
#define HAS_ROOM true
#endif

inline drop(i)
{
	dropped[number[i]] = true;
	untold++;
	reclaim(i)
}

inline retire(i)
{
	lease[buffer[i]] = lease[buffer[i]] && !(WAS_RETAINED(i));
	buffer[i] = 0;
	sends[i] = 0;
	state[i] = FREE;
	expected[i] = 0
}

/* Something that @c had, and has not acknowledged, is somebody else's now. */
inline hand_on(c, i, safe)
{
	if
	:: state[i] == SENT && MISSING(c, i) ->
		if
		:: safe || !taken[AT(c, i)] -> expected[i] = expected[i] & ~BIT(c)
		:: else
		fi;
#if !defined(BROADCAST) && !defined(NO_REDELIVERY)
		if
		:: expected[i] & BIT(1 - (c)) -> skip /* it was handed on before */
		:: else ->
#ifndef NO_MARK
			deliveries[i] = (taken[AT(c, i)] -> deliveries[i] + 1 : deliveries[i]);
#endif
			enter(i)
		fi
#endif
	:: else
	fi
}

inline empty_lane(c)
{
	do
	:: lane[c]?_, _, _, _
	:: empty(lane[c]) -> break
	od
}

/* Once for each that has come. After the last one, what is sent is for who comes next. */
inline stop_counting(c)
{
	if
#ifdef STOPS_COUNTING_TWICE
	:: true ->
#else
	:: counts[c] ->
#endif
		counts[c] = false;
		base = (NOBODY_COUNTS -> messages : base)
#ifndef STOPS_COUNTING_TWICE
	:: else
#endif
	fi
}

inline dismiss(c, safe)
{
	stop_counting(c);
	known[c] = known[c] && !(safe);
	left_behind[c] = true;
	hand_on(c, 0, safe);
	hand_on(c, 1, safe);
	empty_lane(c)
}

/* It takes no more; what it has taken stays its own. */
inline part_from(c, i)
{
	if
	:: state[i] == SENT && MISSING(c, i) && !had[AT(c, i)] ->
		expected[i] = expected[i] & ~BIT(c);
#ifndef BROADCAST
		if
		:: expected[i] & BIT(1 - (c)) -> skip
		:: else -> enter(i)
		fi
#endif
	:: else
	fi
}

inline look_how_far(c)
{
	had[AT(c, 0)] = taken[AT(c, 0)];
	had[AT(c, 1)] = taken[AT(c, 1)]
}

inline notice_leaving(c)
{
#ifndef LOOK_BEFORE_WORD
	look_how_far(c);
#endif
	stop_counting(c);
	part_from(c, 0);
	part_from(c, 1);
	empty_lane(c);
	had[AT(c, 0)] = false;
	had[AT(c, 1)] = false
}

/* Before a message is sent. */
inline look_who_is_there()
{
#ifdef JOIN
	is_for_newcomer[messages + 1] = !counts[0] || receives_no_more[0] || counts[1];
#endif
#if defined(BROADCAST) && defined(CLOSE) && !defined(SEND_TO_WHO_HAS_LEFT)
	if
	:: counts[0] && receives_no_more[0] -> notice_leaving(0)
	:: else
	fi
#else
	skip
#endif
}

#ifdef SAFE_AT_HANGUP
#define IS_DEAD(c) stopped[c + 1]
#elif defined(DEAD_COUNT)
#define IS_DEAD(c) false
#else
#define IS_DEAD(c) gone[c + 1]
#endif

#define HAS_SAID_GOODBYE(c) (has_left[c] && !stopped[c + 1])

inline drop_leases()
{
	d_step {
#if BLOCKS > 1
		lease[2] = false;
#endif
		lease[1] = false;
		leases_dropped = true
	}
}

#if defined(HOLDS) || defined(JOIN)
#define PRODUCER_STAYS
#endif

proctype producer()
{
	byte mine, ticket, pending;

	{
#ifdef PRODUCER_STAYS
end:
#endif
		do
		:: atomic { messages < MESSAGES && magazine[1] && HAS_ROOM -> look_who_is_there(); take_block(1) };
			if
			:: atomic { state[0] == FREE -> take_ticket(0) }
			:: atomic { state[1] == FREE -> take_ticket(1) }
			fi;
			publish()
#if BLOCKS > 1
		:: atomic { messages < MESSAGES && magazine[2] && HAS_ROOM -> look_who_is_there(); take_block(2) };
			if
			:: atomic { state[0] == FREE -> take_ticket(0) }
			:: atomic { state[1] == FREE -> take_ticket(1) }
			fi;
			publish()
#endif
#ifdef RECYCLE_AT_ONCE
		:: d_step { state[0] == SENT && ACKNOWLEDGED(0, 0) -> reclaim(0) }
#endif
		:: d_step { state[0] == SENT && ALL_ACKNOWLEDGED(0) -> reclaim(0) }
		:: d_step { state[1] == SENT && ALL_ACKNOWLEDGED(1) -> reclaim(1) }
		:: d_step { IS_COOL(0) -> retire(0) }
		:: d_step { IS_COOL(1) -> retire(1) }
#ifdef JOIN
		:: atomic { has_come[1] && !known[1] -> admit(1) }
#endif
#ifdef DROPS
		:: d_step { messages < MESSAGES && WAITS(0) -> drop(0) }
		:: d_step { messages < MESSAGES && WAITS(1) -> drop(1) }
#endif
		:: atomic { IS_DEAD(0) && known[0] -> dismiss(0, true) }
		:: atomic { IS_DEAD(1) && known[1] -> dismiss(1, true) }
		:: atomic { HAS_SAID_GOODBYE(0) && known[0] -> dismiss(0, true) }
		:: atomic { HAS_SAID_GOODBYE(1) && known[1] -> dismiss(1, true) }
#if defined(CLOSE) && !defined(WAIT_FOR_LEAVING)
#ifdef LOOK_BEFORE_WORD
		:: d_step { counts[0] -> look_how_far(0) }
#endif
		:: atomic { counts[0] && receives_no_more[0] -> notice_leaving(0) }
#endif
#ifdef LEAVE
#ifdef LEFT_BEHIND_IS_SAFE
		:: atomic { counts[0] -> dismiss(0, true) }
#else
		:: atomic { counts[0] -> dismiss(0, false) }
#endif
#endif
#ifndef PRODUCER_STAYS
		:: messages == MESSAGES -> break
#endif
		od;
		/* What is not acknowledged must not stay in the magazine; nothing of the page is
		 * written after this. */
		atomic {
			closed = true;
			closed_early = state[0] == SENT || state[1] == SENT
		};
#ifdef CLOSE_AND_KEEP
		d_step { PASSED(15) && !filling[0] && !filling[1] -> skip };
		drop_leases()
#else
		(taken_over);
		drop_leases()
#endif
	} unless { stopped[0] }
}

inline fill(i)
{
	MUST(!reused[filling[i]], reused_too_early);
	for (k : 0 .. CONSUMERS * TICKETS - 1) {
		MUST(work[k] == 0 || block[k] != filling[i] || work[k] == WAITING && filling[k % TICKETS],
		     reused_too_early)
	}
	MUST(kept[0] != filling[i] && kept[1] != filling[i], reused_too_early);
	k = 0;
	content[filling[i]] = number[i];
	filling[i] = 0
}

#define IS_NEXT(i) (!filling[1 - (i)] || number[i] < number[1 - (i)])

proctype stream_of_producer()
{
end:
	do
	:: atomic { filling[0] && IS_NEXT(0) && PASSED(gates[0]) -> fill(0) }
	:: atomic { filling[1] && IS_NEXT(1) && PASSED(gates[1]) -> fill(1) }
	od unless { gone[0] }
}

/* ---------------------------------------------------------------------------------------------
 * A consumer. What it has is in work, from when it receives it until its stream is done.
 */

inline receive()
{
	taken[AT(me, ticket)] = true;
#ifdef BROADCAST
	MUST(!(seen[number[ticket]] & BIT(me)), delivered_again);
#else
	MUST(!seen[number[ticket]] || marks > 1, unmarked);
#endif
	seen[number[ticket]] = seen[number[ticket]] | BIT(me);
	work[AT(me, ticket)] = WAITING;
	held[AT(me, ticket)] = copy;
	block[AT(me, ticket)] = what;
	ticket = 0;
	what = 0;
	copy = 0;
	marks = 0
}

inline acknowledge(i)
{
	ack[AT(me, i)] = held[AT(me, i)];
	held[AT(me, i)] = 0;
	acknowledged[number[i]] = true
}

/* The broker has granted a lease; what the stream does goes by that from now on. */
inline retain(i)
{
	kept[me] = block[AT(me, i)];
	lease_of[me] = true;
	retained[AT(me, i)] = true;
	work[AT(me, i)] = 0;
	block[AT(me, i)] = 0;
	acknowledge(i)
}

/* What it has when it leaves, it may keep for ever. */
#ifdef HOLDS
#define KEEPS receives_no_more[me]
#else
#define KEEPS false
#endif

#define HOLDS_NOTHING (held[AT(me, 0)] + held[AT(me, 1)] == 0)

proctype consumer(byte me)
{
	byte ticket, copy, what, marks;

	{
#ifdef JOIN
		has_come[me] = true;
#endif
#ifdef PRODUCER_STAYS
end:
#endif
		do
		:: atomic {
			!left_behind[me] && !receives_no_more[me] && nempty(lane[me]) ->
			lane[me]?ticket, copy, what, marks;
			receive()
		   }
		:: d_step { held[AT(me, 0)] != 0 && !KEEPS -> acknowledge(0) }
		:: d_step { held[AT(me, 1)] != 0 && !KEEPS -> acknowledge(1) }
#ifdef RETAIN
		:: d_step { me == 1 && held[AT(me, 0)] != 0 && work[AT(me, 0)] == READING && !kept[me] -> retain(0) }
		:: d_step { kept[me] -> kept[me] = 0; lease_of[me] = false }
#endif
#ifdef CLOSE
		:: d_step { me == 0 && !receives_no_more[me] -> receives_no_more[me] = true }
		:: atomic { receives_no_more[me] && HOLDS_NOTHING -> has_left[me] = true; break }
#ifdef HOLDS
		:: receives_no_more[me] && !HOLDS_NOTHING -> break
#endif
#endif
		:: atomic { left_behind[me] && HOLDS_NOTHING -> has_left[me] = true; break }
		:: atomic {
			(closed || gone[0]) && empty(lane[me]) && HOLDS_NOTHING && kept[me] == 0 ->
			drained[me] = true;
			break
		   }
		od
	} unless { stopped[me + 1] }
}

/* It has waited for the producer's fence, or that is dead. */
inline begin(a, i)
{
	MUST(!reused[block[a]], reused_too_early);
	MUST(gone[0] || content[block[a]] == number[i], wrong_read);
	work[a] = READING
}

inline end_of_work(a, i)
{
	MUST(gone[0] || stopped[0] || content[block[a]] == number[i], wrong_read);
	work[a] = 0;
	block[a] = 0
}

proctype stream(byte me)
{
end:
	do
	:: atomic { work[AT(me, 0)] == WAITING && (!filling[0] || gone[0]) -> begin(AT(me, 0), 0) }
	:: atomic { work[AT(me, 1)] == WAITING && (!filling[1] || gone[0]) -> begin(AT(me, 1), 1) }
	:: atomic { work[AT(me, 0)] == READING && !held[AT(me, 0)] -> end_of_work(AT(me, 0), 0) }
	:: atomic { work[AT(me, 1)] == READING && !held[AT(me, 1)] -> end_of_work(AT(me, 1), 1) }
	od unless { gone[me + 1] }
}

proctype fate(byte who)
{
	stopped[who] = true;
	d_step {
		gone[who] = true;
		if
		:: who == 0 -> filling[0] = 0; filling[1] = 0
		:: else ->
			work[AT(who - 1, 0)] = 0;
			work[AT(who - 1, 1)] = 0;
			kept[who - 1] = 0
		fi
	}
}

/* ---------------------------------------------------------------------------------------------
 * The broker.
 */

#define GONE(c) (gone[c + 1] || has_left[c] || drained[c])

/* It has acknowledged that and its stream is done, or does nothing more with it. */
#define IS_DONE_WITH(c, i) (ACKNOWLEDGED(c, i) -> OVER(c, i) : GONE(c))

inline keep(c, i)
{
	keeps[AT(c, i)] = (buffer[i] && lease[buffer[i]] && !(IS_DONE_WITH(c, i)) -> buffer[i] : 0)
}

#define GIVES_UP(c, i) :: d_step { keeps[AT(c, i)] && IS_DONE_WITH(c, i) -> keeps[AT(c, i)] = 0 }

proctype broker()
{
end:
	do
	:: d_step {
		(closed || gone[0]) && !taken_over ->
		keep(0, 0);
		keep(0, 1);
		keep(1, 0);
		keep(1, 1);
		taken_over = true
	   }
	:: d_step { gone[0] && taken_over && !leases_dropped ->
		lease[1] = false;
#if BLOCKS > 1
		lease[2] = false;
#endif
		leases_dropped = true
	   }
	GIVES_UP(0, 0)
	GIVES_UP(0, 1)
	GIVES_UP(1, 0)
	GIVES_UP(1, 1)
	:: d_step { gone[1] && lease_of[0] -> lease_of[0] = false }
	:: d_step { gone[2] && lease_of[1] -> lease_of[1] = false }
	od
}

#define FILLED(b) (filling[0] != (b) && filling[1] != (b))
#define IS_KEPT(b) (keeps[0] == (b) || keeps[1] == (b) || keeps[2] == (b) || keeps[3] == (b))
#define IS_FREE(b)                                                               \
	(!lease[b] && !IS_KEPT(b) && !(lease_of[0] && kept[0] == (b)) && \
	 !(lease_of[1] && kept[1] == (b)) && FILLED(b))

/* Whoever gets a block when it is free, and writes it. */
inline reuse(b)
{
	MUST(!IN_USE(b), reused_too_early);
	reused[b] = true
}

proctype somebody_else()
{
end:
	do
	:: atomic { IS_FREE(1) && !reused[1] -> reuse(1) }
#if BLOCKS > 1
	:: atomic { IS_FREE(2) && !reused[2] -> reuse(2) }
#endif
	od
}

/* By the one who has left. */
#define KEPT(k) \
	(held[AT(0, 0)] != 0 && number[0] == (k) || held[AT(0, 1)] != 0 && number[1] == (k))

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout ->
	d_step {
#ifdef JOIN
		MUST(state[0] == FREE && state[1] == FREE, something_left);
		for (k : 1 .. MESSAGES) {
#ifdef DROPS
			MUST(acknowledged[k] || dropped[k] || !is_for_newcomer[k], message_lost);
			told = told - (dropped[k] -> 1 : 0)
#else
			MUST(acknowledged[k] || !is_for_newcomer[k], message_lost)
#endif
		}
#ifdef DROPS
		MUST(told == 0 && untold == 0, message_lost)
#endif
#else
#ifndef HOLDS
		MUST(reused[1], something_left);
#if BLOCKS > 1
		MUST(reused[2], something_left);
#endif
		for (k : 0 .. CONSUMERS * TICKETS - 1) {
			MUST(work[k] == 0, something_left)
		}
#endif
		for (k : 1 .. MESSAGES) {
			MUST(stopped[0] || closed_early || acknowledged[k] || KEPT(k), message_lost)
		}
#endif
	}
}

init {
	atomic {
		counts[0] = true;
		known[0] = true;
#ifndef JOIN
		counts[1] = true;
		known[1] = true;
#endif
		lease[1] = true;
		magazine[1] = true;
#if BLOCKS > 1
		lease[2] = true;
		magazine[2] = true;
#endif
		run end_of_the_run();
		run broker();
		run somebody_else();
		run stream_of_producer();
		run stream(0);
		run stream(1);
		run producer();
		run consumer(0);
		run consumer(1);
		if
		:: MORTAL & 1 -> run fate(0)
		:: else
		fi;
		if
		:: MORTAL & 2 -> run fate(1)
		:: else
		fi;
		if
		:: MORTAL & 4 -> run fate(2)
		:: else
		fi
	}
}
