/* SPDX-License-Identifier: MIT */

/*
 * Sleep in a channel, for a model checker: a producer that sleeps while there is no room, a
 * consumer that sleeps while there is no message, and a broker that tells both of somebody new.
 * spin tries every order of their steps.
 *
 * Who goes to sleep reads the other's bell, says so in its own page, with a new number each time,
 * looks once more whether there is something to do, and then waits: on a futex, if the bell is still what it was and nobody has
 * come or gone (the epoch, a second futex word), or on its doorbell, which stays rung until it is
 * drained. The other one does something first, and then looks whether anybody sleeps; it rings once
 * for each number. Between storing and looking there is a full barrier on both sides (or one side's
 * is the kernel's, made to pass by the other): without it the look may come first.
 *
 * With ENDS there is no broker, and the producer closes the channel after its last message: it writes a word into its own
 * page and rings for the consumer, whether that sleeps or not. The consumer reads the word before it
 * looks whether there is nothing to receive, as the last message may come in between.
 *
 * What has to hold: nobody sleeps for good while there is something to do; and who hears of the end
 * has received everything. There are no time limits
 * here; where the kernel cannot wait on two words, the library's are what EPOCH_UNWATCHED needs.
 *
 * Each of these breaks one rule and has to be found out: NO_BARRIER_IN_SEND, NO_BARRIER_IN_TAKE,
 * NO_BARRIER_IN_SLEEP, NO_LAST_LOOK, BELL_READ_LATE, BELL_UNCHANGED, EPOCH_UNWATCHED, DRAIN_LATE,
 * SAME_NUMBER; with ENDS: END_WORD_LATE, END_UNRUNG, END_BEFORE_THE_LAST, END_ONCE_ASLEEP.
 */

#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif
#define PRODUCER 0
#define CONSUMER 1

byte tail, taken;

/* By process: in its page, how it sleeps; the bell its peer waits on. */
#define AWAKE       0
#define ON_FUTEX    1
#define ON_DOORBELL 2
byte sleeps[2], bell[2];
byte rung[2]; /* its own: the last of the other's sleeps that it has rung for */

#define HOW(word) ((word) & 3)
#ifdef SAME_NUMBER
#define NEXT(word) 4
#else
#define NEXT(word) (((word) & ~3) + 4)
#endif

/* The kernel's. */
bool waits[2];    /* on a futex */
bool doorbell[2]; /* rung */

/* In the producer's page: it sends no more. */
bool ended;

/* The broker's, and what each has seen of it. */
byte epoch, seen[2];
bool done[2];

bool somebody_sleeps, message_missed;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

#define HAS_WORK(me) (me == PRODUCER && tail - taken < DEPTH || me == CONSUMER && tail > taken)
#define NEWS(me)     (epoch != seen[me])

#ifdef ENDS
#define IS_TO_END(me)   (me == PRODUCER && !ended)
#define IS_TO_HEAR(me)  (me == CONSUMER && !heard)
#else
#define IS_TO_END(me)   false
#define IS_TO_HEAR(me)  false
#endif
#define HAS_ENDED(me)   (IS_TO_HEAR(me) && ended)

inline do_work()
{
	d_step {
		if
		:: me == PRODUCER -> tail++
		:: else -> taken++
		fi;
		left--
	}
}

inline ring_if(how)
{
	if
	:: HOW(how) != AWAKE && how == rung[me]
	:: d_step { HOW(how) == ON_FUTEX && how != rung[me] ->
		rung[me] = how;
#ifndef BELL_UNCHANGED
		bell[me]++
#endif
	   };
		waits[1 - me] = false
	:: d_step { HOW(how) == ON_DOORBELL && how != rung[me] -> rung[me] = how; doorbell[1 - me] = true }
	:: HOW(how) == AWAKE
	fi;
	how = AWAKE
}

/* One ring too many does no harm, so nobody is asked whether he sleeps. */
inline ring_always()
{
#ifndef END_UNRUNG
	bell[PRODUCER]++;
	waits[CONSUMER] = false;
	doorbell[CONSUMER] = true
#else
	skip
#endif
}

inline say_the_end()
{
#ifdef END_WORD_LATE
	ring_always();
	ended = true
#else
	ended = true;
	ring_always()
#endif
}

/* Nothing more is to come. */
inline believe_the_end()
{
	d_step { MUST(tail == taken, message_missed); heard = true }
}

#if defined(NO_BARRIER_IN_SEND)
#define LOOKS_FIRST (me == PRODUCER)
#elif defined(NO_BARRIER_IN_TAKE)
#define LOOKS_FIRST (me == CONSUMER)
#else
#define LOOKS_FIRST false
#endif

inline fall_asleep()
{
	if
	:: how == ON_FUTEX ->
		if
#ifdef EPOCH_UNWATCHED
		:: atomic { bell[1 - me] == value -> waits[me] = true };
#else
		:: atomic { bell[1 - me] == value && !NEWS(me) -> waits[me] = true };
#endif
			!waits[me]
		:: bell[1 - me] != value
		:: NEWS(me)
		fi
	:: how == ON_DOORBELL ->
#ifdef DRAIN_LATE
		doorbell[me] = false;
#endif
		d_step { doorbell[me] -> doorbell[me] = false }
	fi
}

proctype member(byte me; byte left)
{
	byte how, value;
	bool heard;

	do
	:: left > 0 && HAS_WORK(me) ->
		if
		:: LOOKS_FIRST -> how = sleeps[1 - me]; do_work()
		:: !LOOKS_FIRST -> do_work(); how = sleeps[1 - me]
		fi;
		ring_if(how)
	:: NEWS(me) -> seen[me] = epoch
	:: IS_TO_END(me) && left == 0 -> say_the_end()
	:: HAS_ENDED(me) -> /* now it is looked whether there is nothing */
		if
		:: !HAS_WORK(me) -> believe_the_end()
		:: else
		fi
	:: (left > 0 || !seen[me] || IS_TO_HEAR(me)) && !(left > 0 && HAS_WORK(me)) && !NEWS(me) ->
#ifdef END_BEFORE_THE_LAST
		if
		:: HAS_ENDED(me) -> believe_the_end(); goto awake
		:: else
		fi;
#endif
		if
		:: how = ON_FUTEX
		:: how = ON_DOORBELL
		fi;
#ifdef NO_BARRIER_IN_SLEEP
		if
		:: HAS_WORK(me) || NEWS(me) -> goto awake
		:: else
		fi;
#endif
#ifndef BELL_READ_LATE
		value = bell[1 - me];
#endif
		sleeps[me] = NEXT(sleeps[me]) | how;
#if !defined(NO_BARRIER_IN_SLEEP) && !defined(NO_LAST_LOOK)
		if
		:: left > 0 && HAS_WORK(me) || NEWS(me) -> goto awake
#ifndef END_ONCE_ASLEEP
		:: HAS_ENDED(me) -> goto awake
#endif
		:: else
		fi;
#endif
#ifdef BELL_READ_LATE
		value = bell[1 - me];
#endif
		fall_asleep();
awake:
		atomic { sleeps[me] = sleeps[me] & ~3; how = AWAKE; value = 0 }
	:: left == 0 && seen[me] && !IS_TO_END(me) && !IS_TO_HEAR(me) -> break
	od;
	done[me] = true
}

/* Somebody has come. */
proctype broker()
{
	epoch = 1;
	waits[PRODUCER] = false;
	waits[CONSUMER] = false;
	doorbell[PRODUCER] = true;
	doorbell[CONSUMER] = true
}

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout -> MUST(done[PRODUCER] && done[CONSUMER], somebody_sleeps)
}

init {
	atomic {
		run end_of_the_run();
#ifdef ENDS
		epoch = 1;
		seen[PRODUCER] = 1;
		seen[CONSUMER] = 1;
#else
		run broker();
#endif
		run member(PRODUCER, MESSAGES);
		run member(CONSUMER, MESSAGES)
	}
}
