/* SPDX-License-Identifier: MIT */

/*
 * The fence protocol, for a model checker: two clients with up to two streams each, a broker, and
 * one block of memory which they allocate, fill, hand over, read or fill again, release and allocate
 * once more, while they may be killed between any two of their steps. spin tries every order in
 * which all this can happen.
 *
 * What is modelled
 *
 *   Streams   (stream.pml) run what was put into them in order, at any later time.
 *   Timelines are slots of two per client: counters that its streams write. A new stream takes a
 *             slot of an old one only when every signal put there has been executed.
 *   Broker    (broker.pml) counts leases and names; keeps the fences of everyone who released the
 *             block, and gives those not yet reached to who gets it next; gives who looks a buffer
 *             up its giver's fence, and if it may write, also those that the block itself comes
 *             after; and on a client's pidfd, nothing earlier, poisons its page and drops what it
 *             held.
 *   Death     ends a client's host code at once. (So does the loss of its socket, after which it may
 *             go on using the GPU until it exits.) Its streams go on. At some time before the pidfd
 *             each is cut off: the work that runs is stopped, what has not begun never begins, but
 *             signals further on may still be written.
 *   Status    of a fence. A late signal looks like any other, so a value says "reached" only with a
 *             proof, obtained after it was read, that its owner was not exiting yet; the two are
 *             one step here, as what holds later has held before. The broker looks now and then.
 *             After the owner's death, what it had come to believe is reached, and all else dead.
 *
 * What has to hold in every order (the failures are named where they are declared)
 *
 *   - No work on the block begins while that of an earlier owner may still run, nor after that of a
 *     later one. Reading behind a giver who is dying is let be: it is void, and hurts nobody.
 *   - Who allocated reads back what it wrote, and who looked up what its giver wrote, unless the
 *     giver was dying; then it is never told that the giver's fence was reached.
 *   - Counters never go backwards and no signal undoes the poison: what is reached stays so.
 *   - In the end nobody waits, nobody holds the block and nothing gates it. No run is endless: the
 *     test looks for cycles as well.
 *
 * What is not
 *
 *   - Requests are answered at once, in the client's own step (at_once.pml), but for worlds in which
 *     the broker dies: restart.pml. A message under way changes nothing: the socket of a dead client
 *     is read to its end before its leases are dropped.
 *   - Memory order, futexes, cyclic comparison, and the poison's value, which is a flag here.
 *   - The budget of parked waits (rule 7), which is about hardware. Of waits on the host side
 *     (rule 8) there is one, for a status.
 *   - A /proc that hides whether a process is exiting; receivers who hand over
 *     again; several blocks, which share nothing but timelines.
 *
 * One thing is assumed of the GPU: when a stream of a killed process writes a late signal, the work
 * before it has been stopped, finished or not. Otherwise no gate could hold between the kill and the
 * pidfd, as a waiting stream cannot ask for proofs. SIGNAL_OVERTAKES takes the assumption away.
 *
 * Each of these breaks one rule and has to be found out: NO_WAIT, FREE_BEFORE_FENCE, FORGET_GATE,
 * ORDERED_BY_GIVER_ONLY, DROP_AT_HANGUP, POISON_AT_HANGUP, NO_POISON, HAND_OUT_BEFORE_SIGNAL,
 * TRUST_LATE_SIGNAL, TRUST_A_LOOK, REUSE_SLOT_EARLY, SIGNAL_OVERTAKES. HOST_MEMORY breaks none: there
 * streams are threads, which end where they are, so that a value is always to be trusted.
 */

#ifndef FIRST
#define FIRST 2 /* what the first client does: so often it allocates or looks up */
#endif
#ifndef SECOND
#define SECOND 1
#endif
#ifndef DEATHS
#define DEATHS 1 /* 1: the first client may be killed; 2: both may */
#endif
#ifndef TWO_STREAMS
#define TWO_STREAMS 1
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* how often the broker may die */
#endif

#define CLIENTS 2
#define STREAMS 2 /* of each client, one after the other */
#define SLOTS   2 /* of each client */

/* Slots are numbered through all clients. A fence is a slot and a value; 0 is none: reached. */
#define FENCE(slot, v) ((slot) << 4 | (v))
#define SLOT(fence)    ((fence) >> 4)
#define VALUE(fence)   ((fence) & 15)
#define OWNER(fence)   (SLOT(fence) / SLOTS)
#define PASSED(fence)  (value[SLOT(fence)] >= VALUE(fence))
#define OVER(fence)    (PASSED(fence) || poisoned[OWNER(fence)])

/* Timelines: the pages, and what their owners know about them. */
byte value[CLIENTS * SLOTS];
byte signalled[CLIENTS * SLOTS]; /* put into a stream, executed or not */
byte last[CLIENTS * SLOTS];      /* what the broker believes; stands after the owner's death */
bool poisoned[CLIENTS];

/* A client's way out. */
bool stopped[CLIENTS]; /* its host code takes no further step; its socket hangs up from here on */
bool exiting[CLIENTS]; /* its streams may be cut off */
bool cut[CLIENTS * STREAMS];
bool gone[CLIENTS];    /* its pidfd is readable */

/* The block: the latest generation of owners whose work has begun, and how much of each runs. */
byte latest, running[5];
byte content; /* the generation that has filled it; 0: none, or not wholly */

/* The broker's books. */
byte generation;
byte lease[CLIENTS];
byte name_fence; /* the giver's; 0: there is no name */
bool name_writable;
bool dropped[CLIENTS];
byte gate[CLIENTS * SLOTS]; /* what it comes after: the highest value on each timeline */

/* By client, a bit for each generation: what it read wrong, and was told to be reached. */
byte misread[CLIENTS], told_reached[CLIENTS];
byte told[CLIENTS * SLOTS]; /* what the broker has called reached */

/* Who waits: streams, and the clients' host threads. */
byte streams_waiting;
bool asking[CLIENTS];

/* What must never be. Each is asserted where it is set, so that it is reported by its name. */
bool work_too_early, wrong_read, void_called_reached, value_went_back, poison_undone;
bool waiter_stuck, something_left;
bool reached_called_dead;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

mtype = { WAIT, WRITE, READ, SIGNAL };
mtype = { READ_NAME, WRITE_NAME }; /* what a look-up is for */
chan queue[CLIENTS * STREAMS] = [10] of { mtype, byte };

#include "stream.pml"
#include "broker.pml"
#if RESTARTS > 0
#include "restart.pml"
#else
#include "at_once.pml"
#endif

/* On the stream itself it is in order anyway. */
inline wait_for(fence)
{
#ifndef NO_WAIT
	if
	:: fence != 0 && SLOT(fence) != slot -> queue[cu]!WAIT(fence)
	:: else
	fi;
#endif
	fence = 0
}

/* The signal is in the stream before anybody hears of its value. HAND_OUT_BEFORE_SIGNAL saves it for
 * the next batch, where it comes after the waits. */
inline signal()
{
	signalled[slot]++;
	mine = FENCE(slot, signalled[slot]);
#ifdef HAND_OUT_BEFORE_SIGNAL
	owed = mine
#else
	queue[cu]!SIGNAL(mine)
#endif
}

inline put(op, work)
{
	flush();
	queue[cu]!op(work)
}

inline flush()
{
#ifdef HAND_OUT_BEFORE_SIGNAL
	if
	:: owed != 0 -> queue[cu]!SIGNAL(owed); owed = 0
	:: else
	fi
#else
	skip
#endif
}

/* The first stream has been destroyed, with whatever is still in it. */
inline new_stream()
{
	flush();
	cu = me * STREAMS + 1;
	cut[cu] = false;
	run stream(cu);
#ifndef REUSE_SLOT_EARLY
	if
	:: value[slot] == signalled[slot]
	:: else -> slot++
	fi
#endif
}

inline be_told_reached()
{
	MUST(!(misread[me] & 1 << g), void_called_reached);
	asking[me] = false;
	told_reached[me] = told_reached[me] | 1 << g
}

inline be_told_dead(fence)
{
	MUST(told[SLOT(fence)] < VALUE(fence), reached_called_dead);
	asking[me] = false
}

/* A host thread waits for a fence, and then finds out what its end is worth. */
inline ask(fence)
{
	asking[me] = true;
	OVER(fence);
	if
	:: atomic { PROVED_ALIVE(OWNER(fence)) && !poisoned[OWNER(fence)] -> be_told_reached() }
	:: atomic {
		poisoned[OWNER(fence)] ->
		if
		:: last[SLOT(fence)] >= VALUE(fence) -> be_told_reached()
		:: else -> be_told_dead(fence)
		fi
	   }
	fi
}

proctype client(byte me; byte rounds)
{
	byte g, mine, giver, f0, f1, f2, f3;
	byte cu = me * STREAMS, slot = me * SLOTS;
#ifdef HAND_OUT_BEFORE_SIGNAL
	byte owed;
#endif
#if RESTARTS > 0
	byte asked, number, last_number, about;
#endif

	{
		do
		:: atomic { rounds > 0 && FREE -> rounds--; get_block() };
			atomic {
				wait_for(f0); wait_for(f1); wait_for(f2); wait_for(f3);
				put(WRITE, WORK(g, 1));
				signal()
			};
			if
			:: publish(mine);
				atomic { put(READ, WORK(g, 1)); signal() }
			:: publish_writable(mine)
			fi;
			TELL { give_back(mine); mine = 0; g = 0 };
			unpublish()
		:: atomic { rounds > 0 && name_fence != 0 && !name_writable -> rounds--; get_lease(READ_NAME) };
			atomic { f0 = giver; wait_for(f0); put(READ, WORK(g, 0)); signal() };
			if
			:: ask(giver)
			:: true
			fi;
			TELL { give_back(mine); mine = 0; g = 0; giver = 0 }
		:: atomic { rounds > 0 && name_fence != 0 && name_writable -> rounds--; get_lease(WRITE_NAME) };
			atomic {
				wait_for(f0); wait_for(f1); wait_for(f2); wait_for(f3);
				wait_for(giver);
				put(WRITE, WORK(g, 0));
				signal()
			};
			TELL { give_back(mine); mine = 0; g = 0 }
		:: atomic {
			TWO_STREAMS && rounds == 1 && signalled[slot] && cu == me * STREAMS ->
			new_stream()
		   }
		:: atomic { true -> flush(); break }
		od
	} unless { stopped[me] }
}

/* A client is killed, or loses its socket and lives on for a while without. */
proctype fate(byte me)
{
	stopped[me] = true;
	exiting[me] = true;
	cut[me * STREAMS] && cut[me * STREAMS + 1];
	gone[me] = true
}

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout ->
	d_step {
		MUST(streams_waiting == 0, waiter_stuck);
		MUST((!asking[0] || stopped[0]) && (!asking[1] || stopped[1]), waiter_stuck);
		MUST(FREE && !running[1] && !running[2] && !running[3] && !running[4], something_left);
#ifndef NO_POISON /* there let it be somebody who waits for it */
		prune(0); prune(1); prune(2); prune(3);
		MUST(gate[0] + gate[1] + gate[2] + gate[3] == 0, something_left);
#endif
#if RESTARTS > 0
		MUST(IS_ANSWERED(0) && IS_ANSWERED(1), never_answered);
		/* those whose look-up has found nothing */
		stopped[0] = true;
		stopped[1] = true
#endif
	}
}

init {
	atomic {
		cut[1] = true;
		cut[STREAMS + 1] = true;
		run stream(0);
		run stream(STREAMS);
		run end_of_the_run();
		if
		:: DEATHS >= 1 -> run fate(0)
		:: true
		fi;
		if
		:: DEATHS >= 2 -> run fate(1)
		:: true
		fi;
		run client(0, FIRST);
		run client(1, SECOND)
	}
}
