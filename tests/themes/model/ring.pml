/* SPDX-License-Identifier: MIT */

/*
 * The ring of a channel, for a model checker, step by step as the two halves read and write each
 * other's words (ring/ring.h, pages/channel_page.h): one producer, one lane, a consumer that is
 * there from the start and one that joins at any time. spin tries every order of their steps.
 *
 * What is modelled
 *
 *   Entries   are written in pieces, and copied in pieces by consumers, who look at the sequence
 *             number before and after. The position is used again when all have taken it.
 *   Dropping  (DROP) the producer raises `head`, then reads each consumer's `taken`: who has got
 *             beyond has the message. A consumer stores `taken`, then reads `head`: if that is
 *             beyond, it cannot know what the producer saw, so it acknowledges without looking.
 *             Never does it go past a position without this: the producer would take what was
 *             skipped for taken, and wait for an acknowledgement that nobody gives.
 *   Left      (LEAVE) a consumer that is not waited for any more: the same with `left_behind` in
 *   behind    place of `head`, which is everybody's. What it had taken stays its own.
 *   Latest    (LATEST) the second one gets the latest message alone, and may stop for ever (STOPS). It
 *             has a head of its own, which the producer raises when anything is wanted that it keeps
 *             without having taken it. It acknowledges what it leaves out, and then says that it is
 *             beyond; also what is below its head, as a producer that sees that counts on it.
 *   Tickets    stand for blocks of memory; consumers acknowledge them in any order, by version.
 *   Several   (SEVERAL) a message has another ticket and block besides: what is said of these lies by
 *             the message's own ticket, which is used again before its entry is. So it says in the
 *             word with the other ticket's version of which version it is, and who finds another one
 *             leaves it out, if the message was dropped.
 *   Joining   at the newest message, or at the oldest (OLDEST) that is still there.
 *
 * What has to hold in every order
 *
 *   - No block is filled while somebody has it, and who has it finds in it what was sent.
 *   - Each consumer gets the messages in order and none twice; none is missing unless it was
 *     dropped or the consumer left behind; whoever has joined gets all that is sent from then on.
 *   - Nobody acknowledges a ticket that it was not sent (acknowledged_unsent), or takes an honest
 *     producer for one that lies (called_a_liar).
 *   - In the end all is received, and every ticket is back.
 *
 * What is not: deaths, lanes of a queue, fences (channel.pml), sleep (sleep.pml), hostile pages, and
 * memory order: that a store comes before a later load is what the mutations turn round.
 *
 * Each of these breaks one rule and has to be found out: NO_LOOK_BACK, LOOK_BACK_FIRST,
 * RAISE_AFTER_LOOK, NO_SECOND_LOOK, JUMP, NO_UNSEEN_ACK, NO_VERSION, LEAVE_AFTER_LOOK,
 * FORGET_LEFT_BEHIND, OVERWRITE_EARLY, EPOCH_IGNORED, ADMIT_FREELY; with LATEST also NO_LOOK_BACK,
 * PASS_AFTER_LOOK, ABOVE_HEAD_ONLY, and with STOPS BEYOND_FIRST and KEEP_LATEST; with SEVERAL NO_TAG,
 * PASSED_IS_NONSENSE, FAR_AFTER_ENTRY.
 */

#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef TICKETS
#define TICKETS 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif
#define CONSUMERS 2

/* The producer's page. */
byte head;
byte sequence[DEPTH], entry_ticket[DEPTH], entry_version[DEPTH];
#ifdef SEVERAL
byte far_version[TICKETS], far_block[TICKETS]; /* the other ticket's counts with the message's own */
#endif
bool admitted[CONSUMERS], left_behind[CONSUMERS];
byte start[CONSUMERS];
byte passed; /* the head of who gets the latest alone */

/* The consumers' pages. */
byte taken[CONSUMERS];
byte ack[CONSUMERS * TICKETS]; /* version */

/* The broker's: who has joined. */
bool joined[CONSUMERS];

/* The producer's own: what a ticket stands for (a sequence number + 1), and who has to acknowledge. */
byte next;
bool sending;
byte version[TICKETS], sent[TICKETS], expected[TICKETS];

/* The memory: what a ticket's block holds, and who has it. */
byte content[TICKETS], used_by[TICKETS];

/* Since when a consumer may count on messages; how many it got, and heard that it lost. */
byte due[CONSUMERS], received[CONSUMERS], lost[CONSUMERS];
bool done[CONSUMERS];

/* What must never be. Each is asserted where it is set, so that it is reported by its name. */
bool reused_too_early, wrong_read, message_missed, ticket_lost, stuck;
bool acknowledged_unsent, called_a_liar;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

#define BIT(c) (1 << (c))
#define COUNTS(c) (admitted[c] && !left_behind[c])
#ifdef LATEST
#define PAST(c, s) (taken[c] > (s) || start[c] > (s) || ((c) == 1 && passed > (s)))
#else
#define PAST(c, s) (taken[c] > (s) || start[c] > (s))
#endif

#ifdef NO_VERSION
#define ACKNOWLEDGED(c, i) (ack[(c) * TICKETS + i] != 0)
#else
#define ACKNOWLEDGED(c, i) (ack[(c) * TICKETS + i] == version[i])
#endif
#define MISSING(c, i) ((expected[i] & BIT(c)) && !ACKNOWLEDGED(c, i))
#define IS_FREE(i) (sent[i] == 0 || !MISSING(0, i) && !MISSING(1, i))

inline not_expected(c, i)
{
	expected[i] = expected[i] & ~BIT(c)
}

/* Everything from @from on, if it is still in use, need not be acknowledged by @c; up to @to. */
inline forget(c, from, to)
{
	if
	:: sent[0] > from && sent[0] <= to -> not_expected(c, 0)
	:: else
	fi;
	if
	:: sent[1] > from && sent[1] <= to -> not_expected(c, 1)
	:: else
	fi;
#if TICKETS > 2
	if
	:: sent[2] > from && sent[2] <= to -> not_expected(c, 2)
	:: else
	fi
#endif
}

/* Those that are back are free before anybody joins. */
inline reclaim(i)
{
	sent[i] = (IS_FREE(i) -> 0 : sent[i]);
	expected[i] = (sent[i] == 0 -> 0 : expected[i])
}
inline reclaim_all()
{
	reclaim(0);
	reclaim(1);
#if TICKETS > 2
	reclaim(2)
#endif
}

#if TICKETS > 2
#define IN_USE(s) (sent[0] == (s) + 1 || sent[1] == (s) + 1 || sent[2] == (s) + 1)
#else
#define IN_USE(s) (sent[0] == (s) + 1 || sent[1] == (s) + 1)
#endif

inline expect_from(c, i)
{
	expected[i] = (sent[i] > start[c] -> expected[i] | BIT(c) : expected[i])
}

/* In the control page is a new epoch: somebody has come. */
inline admit(c)
{
	start[c] = next;
#ifdef OLDEST
	do
	:: start[c] > 0 && start[c] > head && start[c] + DEPTH > next && IN_USE(start[c] - 1) ->
		start[c]--
	:: else -> break
	od;
#endif
#ifndef ADMIT_FREELY
	expect_from(c, 0);
	expect_from(c, 1);
#if TICKETS > 2
	expect_from(c, 2);
#endif
#endif
	admitted[c] = true
}

inline sync()
{
	if
	:: joined[1] && !admitted[1] -> reclaim_all(); admit(1)
	:: else
	fi
}

/* What @c has not taken by now it does not have. */
inline look_after_raising(c)
{
	atomic {
		seen = taken[c];
		if
		:: COUNTS(c) && seen < next - DEPTH + 1 -> forget(c, next - DEPTH, next - DEPTH + 1)
		:: else
		fi;
		seen = 0
	}
}

/* What is below @to is not for who gets the latest alone, but what it has taken. */
inline pass_over(to)
{
	if
	:: COUNTS(1) && !PAST(1, (to) - 1) ->
#ifdef PASS_AFTER_LOOK
		atomic { seen = taken[1]; forget(1, seen, to); seen = 0 };
		passed = to
#else
		passed = to;
		atomic { seen = taken[1]; forget(1, seen, to); seen = 0 }
#endif
	:: else
	fi
}

#if TICKETS > 2
#define NONE_IS_FREE (!IS_FREE(0) && !IS_FREE(1) && !IS_FREE(2))
#else
#define NONE_IS_FREE (!IS_FREE(0) && !IS_FREE(1))
#endif

/* At any time, or when there is no room without it. */
inline make_latest_give_way()
{
	if
	:: next > 1 -> pass_over(next - 1)
	:: next >= DEPTH -> pass_over(next - DEPTH + 1)
	:: next < DEPTH || PAST(1, next - DEPTH)
	fi;
	if
	:: next >= DEPTH -> pass_over(next - DEPTH + 1)
	:: else
	fi;
#ifndef KEEP_LATEST
	if
	:: next > 0 && NONE_IS_FREE -> pass_over(next)
	:: else
	fi
#endif
}

inline make_room()
{
#ifdef LATEST
	make_latest_give_way();
#endif
	if
	:: next < DEPTH
	:: next >= DEPTH && (!COUNTS(0) || PAST(0, next - DEPTH)) &&
		(!COUNTS(1) || PAST(1, next - DEPTH))
#ifdef OVERWRITE_EARLY
	:: next >= DEPTH && PAST(0, next - DEPTH)
#endif
#ifdef DROP
	:: next >= DEPTH && !((!COUNTS(0) || PAST(0, next - DEPTH)) &&
			      (!COUNTS(1) || PAST(1, next - DEPTH))) ->
#ifdef RAISE_AFTER_LOOK
		look_after_raising(0);
		look_after_raising(1);
		head = next - DEPTH + 1
#else
		head = next - DEPTH + 1;
		look_after_raising(0);
		look_after_raising(1)
#endif
#endif
#ifdef LEAVE
	:: next >= DEPTH && COUNTS(1) && !PAST(1, next - DEPTH) ->
#ifdef LEAVE_AFTER_LOOK
		seen = taken[1];
		atomic { left_behind[1] = true; forget(1, seen, 255); seen = 0 };
#else
		left_behind[1] = true;
		atomic { seen = taken[1]; forget(1, seen, 255); seen = 0 };
#endif
#ifdef FORGET_LEFT_BEHIND
		d_step { not_expected(1, 0); not_expected(1, 1) };
#endif
		(PAST(0, next - DEPTH))
#endif
	fi
}

/* A ticket for a message, and its block. */
inline fill(i)
{
	MUST(used_by[i] == 0, reused_too_early);
	content[i] = next;
	version[i]++;
	sent[i] = next + 1;
	expected[i] = (COUNTS(0) -> BIT(0) : 0) | (COUNTS(1) -> BIT(1) : 0);
	ticket = i
}

proctype producer()
{
	byte ticket, seen;

	do
	:: next < MESSAGES ->
#ifdef EPOCH_IGNORED
		atomic { sending = true; if :: sync() :: true fi };
#else
		atomic { sending = true; sync() };
#endif
		make_room();
		if
		:: atomic { IS_FREE(0) -> fill(0) }
		:: atomic { IS_FREE(1) -> fill(1) }
#if TICKETS > 2
		:: atomic { IS_FREE(2) -> fill(2) }
#endif
		fi;
#if defined(SEVERAL) && !defined(FAR_AFTER_ENTRY)
		far_version[ticket] = version[ticket];
		far_block[ticket] = next;
#endif
		sequence[next % DEPTH] = 0;
		entry_ticket[next % DEPTH] = ticket;
		entry_version[next % DEPTH] = version[ticket];
#ifdef FAR_AFTER_ENTRY
		sequence[next % DEPTH] = next + 1;
		far_version[ticket] = version[ticket];
		far_block[ticket] = next;
#endif
		d_step {
			sequence[next % DEPTH] = next + 1;
			ticket = 0;
			next++;
			sending = false
		}
	:: next == MESSAGES -> break
	od;
	/* The keeper: somebody may still join. */
end:
	do
	:: atomic { joined[1] && !admitted[1] -> sync() }
	od
}

inline acknowledge(i)
{
	ack[me * TICKETS + i] = held[i];
	held[i] = 0
}

/* The application is done with a message. */
inline finish(i)
{
	MUST(content[i] == number[i], wrong_read);
	used_by[i] = used_by[i] & ~BIT(me);
	acknowledge(i)
}

inline deliver()
{
	MUST(content[ticket] == at, wrong_read);
#ifdef SEVERAL
	MUST(other == copy && block == at, wrong_read);
#endif
	used_by[ticket] = used_by[ticket] | BIT(me);
	held[ticket] = copy;
	number[ticket] = at;
	received[me]++
}

inline unseen()
{
#ifndef NO_UNSEEN_ACK
	ack[me * TICKETS + ticket] = copy;
#endif
#ifdef SEVERAL
	MUST(!other || other == copy, acknowledged_unsent);
#endif
	lost[me]++
}

#ifdef SEVERAL
#ifdef PASSED_IS_NONSENSE
#define WAS_PASSED false
#else
#define WAS_PASSED (head > at)
#endif

/* What lies by the ticket. That of another message is left out. */
inline read_further()
{
	other = far_version[ticket];
	block = far_block[ticket];
#ifndef NO_TAG
	if
	:: other != copy ->
		MUST(WAS_PASSED || sequence[at % DEPTH] != at + 1, called_a_liar);
		other = 0;
		block = 0
	:: else
	fi
#endif
}
#endif

/* What became of the message while it was taken. */
inline look_back()
{
#ifdef NO_LOOK_BACK
	over = false
#elif defined(LEAVE)
	over = left_behind[me]
#else
	over = head > at
#endif
}

inline next_position()
{
	at++;
	ticket = 0;
	copy = 0;
#ifdef SEVERAL
	other = 0;
	block = 0;
#endif
	over = false
}

proctype consumer(byte me)
{
	byte at, ticket, copy, held[TICKETS], number[TICKETS];
#ifdef SEVERAL
	byte other, block;
#endif
	bool over;

	atomic { joined[me] = true; due[me] = (sending -> next + 1 : next) };
	atomic {
		admitted[me] -> at = start[me];
		MUST(at <= due[me], message_missed);
		lost[me] = at
	};
	do
#ifdef JUMP
	:: d_step { at < MESSAGES && head > at -> lost[me] = lost[me] + head - at; at = head }
#endif
	:: atomic { at < MESSAGES && sequence[at % DEPTH] == at + 1 -> ticket = entry_ticket[at % DEPTH] };
		copy = entry_version[at % DEPTH];
#ifdef SEVERAL
		read_further();
#endif
		if
#ifndef NO_SECOND_LOOK
		:: d_step { sequence[at % DEPTH] != at + 1 -> lost[me]++; next_position() }
		:: sequence[at % DEPTH] == at + 1 ->
#else
		:: true ->
#endif
#ifdef LOOK_BACK_FIRST
			look_back();
			taken[me] = at + 1;
#else
			taken[me] = at + 1;
			look_back();
#endif
			if
			:: atomic { !over -> deliver(); next_position() }
			:: d_step { over -> unseen(); next_position() }
			fi
		fi
	:: d_step {
		at < MESSAGES && (sequence[at % DEPTH] > at + 1 || head > at && sequence[at % DEPTH] != at + 1) ->
		lost[me]++;
		next_position()
	   }
	:: atomic { held[0] != 0 -> finish(0) }
	:: atomic { held[1] != 0 -> finish(1) }
#if TICKETS > 2
	:: atomic { held[2] != 0 -> finish(2) }
	:: atomic { (at == MESSAGES || left_behind[me]) && held[0] + held[1] + held[2] == 0 -> break }
#else
	:: atomic { (at == MESSAGES || left_behind[me]) && held[0] + held[1] == 0 -> break }
#endif
	od;
	done[me] = true
}

#ifdef LATEST
#if TICKETS > 2
#define HOLDS (held[0] + held[1] + held[2])
#else
#define HOLDS (held[0] + held[1])
#endif

#ifdef BEYOND_FIRST
#define SAY_FIRST taken[me] = tail
#define SAY_LAST  skip
#else
#define SAY_FIRST skip
#define SAY_LAST  taken[me] = tail
#endif

/* So many messages before the latest are acknowledged one by one. */
inline leave_out()
{
	i = (tail > DEPTH && tail - DEPTH > at -> tail - DEPTH : at);
#ifdef ABOVE_HEAD_ONLY
	i = (passed > i -> passed : i);
#endif
	do
	:: atomic { i + 1 < tail ->
		if
		:: sequence[i % DEPTH] == i + 1 ->
			ack[me * TICKETS + entry_ticket[i % DEPTH]] = entry_version[i % DEPTH]
		:: else
		fi;
		i++ }
#ifdef STOPS
	:: i + 1 < tail -> goto stopped
#endif
	:: i + 1 >= tail -> break
	od;
	i = 0
}

inline take_latest()
{
	copy = entry_version[(tail - 1) % DEPTH];
	if
	:: sequence[(tail - 1) % DEPTH] != tail -> skip
	:: sequence[(tail - 1) % DEPTH] == tail ->
		SAY_FIRST;
		leave_out();
		SAY_LAST;
#ifdef NO_LOOK_BACK
		over = false;
#else
		over = passed >= tail;
#endif
		if
		:: atomic { !over ->
			lost[me] = lost[me] + tail - 1 - at;
			at = tail - 1;
			deliver();
			at = tail }
		:: d_step { over ->
			ack[me * TICKETS + ticket] = copy;
			lost[me] = lost[me] + tail - at;
			at = tail }
		fi
	fi;
	d_step { tail = 0; ticket = 0; copy = 0; over = false }
}

proctype latest(byte me)
{
	byte at, tail, i, ticket, copy, held[TICKETS], number[TICKETS];
	bool over;

	atomic { joined[me] = true; due[me] = (sending -> next + 1 : next) };
	atomic {
		admitted[me] -> at = start[me];
		lost[me] = at
	};
	do
	:: atomic { next > at && HOLDS == 0 && sequence[(next - 1) % DEPTH] == next ->
		tail = next;
		ticket = entry_ticket[(tail - 1) % DEPTH] };
		take_latest()
	:: atomic { held[0] != 0 -> finish(0) }
	:: atomic { held[1] != 0 -> finish(1) }
#if TICKETS > 2
	:: atomic { held[2] != 0 -> finish(2) }
#endif
#ifdef STOPS
	:: HOLDS != 0 -> goto stopped
#endif
	:: atomic { at == MESSAGES && HOLDS == 0 -> break }
	od;
	done[me] = true;
stopped:
	skip
}
#endif

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout ->
	d_step {
#ifdef STOPS
		MUST(next == MESSAGES && done[0] && received[0] == MESSAGES, stuck);
#else
		reclaim_all();
		MUST(sent[0] + sent[1] == 0, ticket_lost);
#if TICKETS > 2
		MUST(sent[2] == 0, ticket_lost);
#endif
		MUST(next == MESSAGES && done[0] && done[1], stuck);
		MUST(received[0] + lost[0] == MESSAGES, message_missed);
		MUST(left_behind[1] || received[1] + lost[1] == MESSAGES, message_missed);
#ifndef DROP
		MUST(lost[0] == 0, message_missed);
#ifndef LATEST
		MUST(left_behind[1] || lost[1] == start[1], message_missed);
#endif
#endif
#endif
	}
}

init {
	atomic {
		joined[0] = true;
		admitted[0] = true;
		run end_of_the_run();
		run producer();
		run consumer(0);
#ifdef LATEST
		run latest(1)
#else
		run consumer(1)
#endif
	}
}
