/* SPDX-License-Identifier: MIT */

/*
 * Memory order, for a model checker: what two threads see of each other's words on a processor that
 * keeps no order but the one it is told to (arm64 is one; x86 is not, and hides most mistakes). The
 * shapes below are those of docs/orderings.md, one at a time; spin tries every order of their steps,
 * and everything that a load may find.
 *
 * Every word keeps all that was ever stored in it. A thread has a view: for each word, the oldest
 * store that it may still find. A load finds any store from there on, and the view of the thread is
 * at that store then. A store that releases carries the view of its thread, and a load that acquires
 * and finds it takes that over; a relaxed one carries what the last fence has left, and what a
 * relaxed load finds is taken over at the next fence. Fences that are sequentially consistent have
 * one view in common, and so have such loads and stores, word by word. What is not modelled: a load
 * that is overtaken by a later store of its own thread.
 *
 *   PASS   One is written, and then the word that says so. Who finds the word finds the other.
 *   ENTRY  An entry is overwritten while another thread reads it, the way of a sequence lock.
 *   BOTH   Each stores a word and looks at the other's. One at least sees the other. With ACCESSES
 *          it is by the order of the stores and loads, with KERNEL by a barrier that one thread has
 *          the kernel make the other pass; else by a barrier in each.
 *   LAST   Two give up what both have used, and the last one frees it. With ALONE, who finds that
 *          nobody else has it does not count down.
 *   BELL   A word is said, and a bell rung. Who sleeps as long as the bell is as it was, and read
 *          the bell before it looked for the word, does not sleep for good.
 *
 * Each of these takes one order away, and has to be found out: NO_RELEASE, NO_ACQUIRE; of an entry
 * NOT_ZERO, NO_RELEASE_FENCE, NO_ACQUIRE_FENCE; of both NO_BARRIER, NO_OTHER_BARRIER,
 * NO_KERNEL_BARRIER, RELAXED_STORE, RELAXED_LOAD; of who is alone ALONE_RELAXED.
 */

#define WORDS  3
#define STORES 4 /* in a word, with the one that was there */

/* What was in the words before: an entry is whole, and two have what is counted. */
#if defined(ENTRY)
#define AT_FIRST 1
#elif defined(LAST)
#define AT_FIRST 2
#else
#define AT_FIRST 0
#endif

byte value[WORDS * STORES] = AT_FIRST;
byte newest[WORDS];
byte carries[WORDS * STORES * WORDS];

/* By thread: its view; what its relaxed loads have found; what its relaxed stores carry. */
byte sees[2 * WORDS], found[2 * WORDS], fenced[2 * WORDS];
byte common[WORDS];

bool not_published, mixture, both_missed, freed_too_early, sleeps_for_good;
bool looked[2], saw[2], asleep;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

#define VIEW(w)          [me * WORDS + (w)]
#define CARRIED(w, n, x) carries[((w) * STORES + (n)) * WORDS + x]
#define MORE(a, b)       (a > b -> a : b)

#define RELAXED 0
#define STRONG  1 /* releases, or acquires, or both */

inline carry(w, strong, x)
{
	CARRIED(w, newest[w], x) =
		MORE(CARRIED(w, newest[w], x), (strong -> sees VIEW(x) : fenced VIEW(x)))
}

inline carry_all(w, strong)
{
	carry(w, strong, 0);
	carry(w, strong, 1);
	carry(w, strong, 2);
	CARRIED(w, newest[w], w) = newest[w]
}

inline store(w, what, strong)
{
	d_step {
		newest[w]++;
		value[(w) * STORES + newest[w]] = what;
		sees VIEW(w) = newest[w];
		carry_all(w, strong)
	}
}

inline find(w, n, strong, x)
{
	found VIEW(x) = MORE(found VIEW(x), CARRIED(w, n, x));
	sees VIEW(x) = (strong -> MORE(sees VIEW(x), CARRIED(w, n, x)) : sees VIEW(x))
}

inline find_all(w, n, strong)
{
	sees VIEW(w) = n;
	find(w, n, strong, 0);
	find(w, n, strong, 1);
	find(w, n, strong, 2)
}

inline load(w, into, strong)
{
	atomic {
		at = sees VIEW(w);
		do
		:: at < newest[w] -> at++
		:: break
		od;
		into = value[(w) * STORES + at];
		find_all(w, at, strong);
		at = 0
	}
}

/* Always of the newest. What that carries goes on with the one that takes its place. */
inline add(w, what, into, acquires, releases)
{
	d_step {
		into = value[(w) * STORES + newest[w]];
		find_all(w, newest[w], acquires);
		newest[w]++;
		value[(w) * STORES + newest[w]] = into + what;
		sees VIEW(w) = newest[w];
		CARRIED(w, newest[w], 0) = CARRIED(w, newest[w] - 1, 0);
		CARRIED(w, newest[w], 1) = CARRIED(w, newest[w] - 1, 1);
		CARRIED(w, newest[w], 2) = CARRIED(w, newest[w] - 1, 2);
		carry_all(w, releases)
	}
}

inline release_fence()
{
	d_step {
		fenced VIEW(0) = sees VIEW(0);
		fenced VIEW(1) = sees VIEW(1);
		fenced VIEW(2) = sees VIEW(2)
	}
}

inline acquire_fence()
{
	d_step {
		sees VIEW(0) = MORE(sees VIEW(0), found VIEW(0));
		sees VIEW(1) = MORE(sees VIEW(1), found VIEW(1));
		sees VIEW(2) = MORE(sees VIEW(2), found VIEW(2))
	}
}

inline pass(who, w)
{
	common[w] = MORE(common[w], MORE(sees[(who) * WORDS + w], found[(who) * WORDS + w]));
	sees[(who) * WORDS + w] = common[w];
	fenced[(who) * WORDS + w] = common[w]
}

inline barrier(who)
{
	d_step { pass(who, 0); pass(who, 1); pass(who, 2) }
}

/* ------------------------------------------------------------------------------------------- */

#ifdef NO_RELEASE
#define RELEASE RELAXED
#else
#define RELEASE STRONG
#endif
#ifdef NO_ACQUIRE
#define ACQUIRE RELAXED
#else
#define ACQUIRE STRONG
#endif

#ifdef PASS

active proctype writer()
{
	byte me = 0;

	store(0, 1, RELAXED);
	store(1, 1, RELEASE)
}

active proctype reader()
{
	byte me = 1, at, word, other;

	load(1, word, ACQUIRE);
	if
	:: word == 1 -> load(0, other, RELAXED); MUST(other == 1, not_published)
	:: else
	fi
}

#endif
#ifdef ENTRY

/* 0: the sequence number; 1, 2: what is in it. */
active proctype writer()
{
	byte me = 0;

#ifndef NOT_ZERO
	store(0, 0, RELEASE);
#ifndef NO_RELEASE_FENCE
	release_fence();
#endif
#endif
	store(1, 2, RELAXED);
	store(2, 2, RELAXED);
	store(0, 2, RELEASE)
}

active proctype reader()
{
	byte me = 1, at, number, again, first, second;

	load(0, number, ACQUIRE);
	load(1, first, RELAXED);
	load(2, second, RELAXED);
#ifndef NO_ACQUIRE_FENCE
	acquire_fence();
#endif
	load(0, again, RELAXED);
	if
	:: number != 0 && number == again -> MUST(first == number && second == number, mixture)
	:: else
	fi
}

#endif
#ifdef BOTH

inline say(w, relaxed)
{
#ifdef ACCESSES
	d_step {
		store(w, 1, STRONG);
		common[w] = (relaxed -> common[w] : newest[w])
	}
#else
	store(w, 1, RELAXED)
#endif
}

inline look(w, relaxed)
{
#ifdef ACCESSES
	atomic {
		sees VIEW(w) = (relaxed -> sees VIEW(w) : MORE(sees VIEW(w), common[w]));
		load(w, word, STRONG)
	};
#else
	load(w, word, RELAXED);
#endif
	atomic {
		saw[me] = word == 1;
		looked[me] = true;
		if
		:: looked[1 - me] -> MUST(saw[0] || saw[1], both_missed)
		:: else
		fi
	}
}

#ifdef RELAXED_STORE
#define STORE_IS_RELAXED true
#else
#define STORE_IS_RELAXED false
#endif
#ifdef RELAXED_LOAD
#define LOAD_IS_RELAXED true
#else
#define LOAD_IS_RELAXED false
#endif

/* Who goes to sleep, drops a message, leaves somebody behind, or shuts a magazine. */
active proctype one()
{
	byte me = 0, at, word;

	say(0, STORE_IS_RELAXED);
#if !defined(ACCESSES) && !defined(NO_BARRIER)
	barrier(0);
#endif
#if defined(KERNEL) && !defined(NO_KERNEL_BARRIER)
	barrier(1);
	barrier(0);
#endif
	look(1, false)
}

/* Who sends or acknowledges, takes a message, or puts a block into a magazine. */
active proctype other()
{
	byte me = 1, at, word;

	say(1, false);
#if !defined(ACCESSES) && !defined(KERNEL) && !defined(NO_OTHER_BARRIER)
	barrier(1);
#endif
	look(0, LOAD_IS_RELAXED)
}

#endif
#ifdef LAST

/* 0: how many have it; 1, 2: what each has done to it. */
active [2] proctype user()
{
	byte me = _pid, at, left, done;

	store(1 + me, 1, RELAXED);
#ifdef ALONE
#ifdef ALONE_RELAXED
	load(0, left, RELAXED);
#else
	load(0, left, STRONG);
#endif
	if
	:: left == 1
	:: else ->
#endif
		add(0, 255, left, ACQUIRE, RELEASE);
#ifdef ALONE
	fi;
#endif
	if
	:: left == 1 -> load(2 - me, done, RELAXED); MUST(done == 1, freed_too_early)
	:: else
	fi
}

#endif
#ifdef BELL

/* 0: the word; 1: the bell, whose value the kernel compares with what is in memory then. */
active proctype ringer()
{
	byte me = 0, before;

	store(0, 1, STRONG);
	add(1, 1, before, RELAXED, RELEASE);
	asleep = false
}

active proctype sleeper()
{
	byte me = 1, at, bell, word;

	load(1, bell, ACQUIRE);
	load(0, word, RELAXED);
	if
	:: word == 0 -> atomic {
		if
		:: value[STORES + newest[1]] == bell -> asleep = true
		:: else
		fi
	   }
	:: else
	fi
}

active proctype end_of_the_run()
{
	timeout -> MUST(!asleep, sleeps_for_good)
}

#endif
