/* SPDX-License-Identifier: MIT */

/*
 * A message of two buffers, for a model checker: a producer of a queue, two consumers, a broker, and
 * somebody whom a consumer sends a buffer on to. Each buffer has a ticket of its own. What is said of
 * the first one's is said of the message; the other one goes with it, though the broker looks at each
 * ticket by itself. Anybody may die between any two stores, and the tickets and blocks are used again.
 *
 * What is modelled
 *
 *   Sending   the other ticket comes first: its copy, which says that it is no message, then that it
 *             is in use, then what lies by the first ticket about it. The first ticket is the last.
 *   Words     a consumer acknowledges the other buffer first and says whether it keeps that, and then
 *             the first one: until then it has the message, whatever it has said of a part.
 *   Keeping   a consumer has a lease of a buffer made before it acknowledges; and may have sent it on
 *             to somebody, who has it when the consumer is dead.
 *   Producer  looks at the first ticket's words alone, and reads what was said of the other when that
 *             is acknowledged. Who is dead may have sent on each of what it had.
 *   Left      (STALL) consumer 0 is not waited for any more: the broker is told of both tickets that
 *   behind    it may use, and keeps each until its own word is there.
 *   Take over as in membership.pml: what a producer that has closed or died has sent becomes an
 *             orphan, which keeps both blocks itself, whatever its owner has said of a part.
 *
 * What has to hold in every order
 *
 *   - No block is free, or filled anew, while somebody has it (reused_too_early); who receives a
 *     message finds both its blocks as they were sent (wrong_read).
 *   - A message has one owner (two_owners), and no part of one is taken for a message (half_a_message).
 *   - What was sent is acknowledged, or set aside, while a consumer is there (message_lost).
 *   - In the end tickets and blocks are back (something_left).
 *
 * What is not: words of lanes (ring.pml), fences and rows (membership.pml), rejections, the broker's
 * death.
 *
 * Each of these breaks one rule and has to be found out: ACK_FIRST_FIRST, FORGET_FURTHER_RETAINED,
 * FURTHER_BY_ITSELF, RETAIN_FIRST_ALONE, FURTHER_IS_A_MESSAGE, FIRST_BUFFER_ALONE, DONE_BY_FURTHER,
 * FURTHER_OF_OWNER, with STALL ASK_FOR_FIRST_ALONE; and NO_TAG with FIRST_IN_USE_FIRST, as each of
 * these two rules makes up for the other here (ring.pml has what breaks without the tag alone).
 */

#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef MORTAL
#define MORTAL 0 /* bits: the producer 1, consumers 2 and 4 */
#endif
#define DELIVERIES 2 /* then it is set aside */

#define BIT(i)   (1 << (i))
#define FIRST    0 /* tickets, and the blocks that they stand for */
#define OTHER    1
#define C(c, t)  ((c) * 2 + (t))
#define NOBODY   0 /* else consumer + 1 */
#define FINISHED 3

bool stopped[3]; /* the producer, the consumers: takes no further step */
bool gone[3];    /* its pidfd is readable */

/* The producer's page, by ticket. */
byte buffer[2], version[2];
byte copied[2], placed[2]; /* the copy's version; in whose lane it is */
byte marks;                /* the first one's copy: which delivery it is */
byte tag, further;         /* by the first ticket: of which of its versions, and the other's */
chan lane[2] = [1] of { byte, byte };
bool left_behind;

/* The consumers' pages. */
byte ack[4];
bool keeps[4];

/* The producer's own. */
bool in_flight, answered, retained[2], counts[2], asked, kept_for;
byte owner, pending, sent;

/* The broker's. */
byte lease[2];   /* by block: bits: the producer 1, consumers 2 and 4, who it was sent on to 8 */
byte kept[4];    /* the version of it that a consumer may have */
bool further_of[4]; /* that goes with its orphan */
#define NONE     0
#define UNOWNED  1
#define OWNED(c) (2 + (c))
byte orphan;
bool closing, taken_over;

/* What consumers have, and what is in the blocks. */
byte has[4], received[2], content[2];
bool lease_is_made[2]; /* by each only once */
bool done[MESSAGES + 1], written[MESSAGES + 1];

bool reused_too_early, wrong_read, two_owners, half_a_message, message_lost, something_left;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

#define HAS_IT(c) (has[C(c, FIRST)] || has[C(c, OTHER)])

/* ---------------------------------------------------------------------------------------------
 * Blocks.
 */

#define IS_USED(t) (has[C(0, t)] || has[C(1, t)] || (lease[t] & ~1))
#ifdef FIRST_BUFFER_ALONE
#define IS_ORPHANS(t) (orphan && (t) == FIRST)
#elif defined(FURTHER_OF_OWNER)
#define IS_ORPHANS(t) (orphan && ((t) == FIRST || orphan == UNOWNED))
#else
#define IS_ORPHANS(t) (orphan != NONE)
#endif
#define IS_FREE(t) (!lease[t] && !kept[C(0, t)] && !kept[C(1, t)] && !IS_ORPHANS(t))
/* Whoever allocates next would get what is somebody's, or is yet to be. */
#define CHECK_BLOCKS()                                                                    \
	MUST(!(IS_FREE(0) && (IS_USED(0) || orphan)) && !(IS_FREE(1) && (IS_USED(1) || orphan)), \
	     reused_too_early)
/* The producer knows of nobody else's leases. */
#define CAN_HAVE(t) ((lease[t] & 1) || IS_FREE(t))

/* ---------------------------------------------------------------------------------------------
 * The producer.
 */

#define IS_ACKED(c, t, v) (ack[C(c, t)] == (v))
#ifdef DONE_BY_FURTHER
#define SAYS_DONE(c, v) (IS_ACKED(c, FIRST, v) || IS_ACKED(c, OTHER, v))
#else
#define SAYS_DONE(c, v) IS_ACKED(c, FIRST, v)
#endif

inline use_other()
{
	buffer[OTHER] = OTHER + 1;
	version[OTHER] = sent
}

inline use_first()
{
	copied[FIRST] = sent;
	placed[FIRST] = NOBODY;
	marks = 1;
	buffer[FIRST] = FIRST + 1;
	version[FIRST] = sent
}

inline deliver()
{
	MUST((has[C(0, FIRST)] != sent || left_behind) && has[C(1, FIRST)] != sent, two_owners);
	owner = (counts[0] && !(pending & 1) -> 1 : (counts[1] && !(pending & 2) -> 2 : NOBODY));
	placed[FIRST] = owner;
	if
	:: owner ->
		pending = pending | BIT(owner - 1);
		received[owner - 1] = 0
	:: else
	fi
}

inline put()
{
	if
	:: owner -> lane[owner - 1]!sent, marks
	:: else
	fi;
	written[sent] = true
}

inline observe(c)
{
	pending = pending & ~BIT(c);
	answered = true;
	retained[FIRST] = retained[FIRST] || IS_ACKED(c, FIRST, sent) && keeps[C(c, FIRST)];
#ifndef FORGET_FURTHER_RETAINED
	retained[OTHER] = retained[OTHER] || IS_ACKED(c, OTHER, sent) && keeps[C(c, OTHER)];
#endif
	owner = (owner == (c) + 1 || owner == NOBODY -> FINISHED : owner);
	placed[FIRST] = (owner == FINISHED -> FINISHED : placed[FIRST])
}

/* It may use nothing of it any more, but whoever it has sent it on to. */
inline retain_all()
{
	retained[FIRST] = true;
#ifndef RETAIN_FIRST_ALONE
	retained[OTHER] = true
#else
	skip
#endif
}

#define HAD(c) (received[c] == version[FIRST])

/* It goes to the other one. */
inline give_to_others(c, had)
{
	if
	:: owner != (c) + 1
	:: owner == (c) + 1 && answered -> owner = FINISHED; placed[FIRST] = FINISHED
	:: owner == (c) + 1 && !answered && had && marks == DELIVERIES ->
		done[sent] = true;
		owner = FINISHED;
		placed[FIRST] = FINISHED
	:: owner == (c) + 1 && !answered && !(had && marks == DELIVERIES) ->
		marks = marks + (had -> 1 : 0);
		deliver();
		put()
	fi
}

inline dismiss(c)
{
	counts[c] = false;
	if
	:: (pending & BIT(c)) && SAYS_DONE(c, sent) -> observe(c)
	:: (pending & BIT(c)) && !SAYS_DONE(c, sent) ->
		pending = pending & ~BIT(c);
		if
		:: HAD(c) -> retain_all(); give_to_others(c, true)
		:: else -> lane[c]?_, _; give_to_others(c, false)
		fi
	:: else
	fi
}

inline leave_behind()
{
	left_behind = true;
	counts[0] = false;
	if
	:: SAYS_DONE(0, sent) -> observe(0)
	:: !SAYS_DONE(0, sent) && HAD(0) -> give_to_others(0, true)
	:: !SAYS_DONE(0, sent) && !HAD(0) ->
		lane[0]?_, _;
		pending = pending & ~1;
		give_to_others(0, false)
	fi
}

/* The mutation: what is said of the other buffer is believed though the message is not acknowledged. */
inline observe_other()
{
	buffer[OTHER] = 0;
	lease[OTHER] = lease[OTHER] & ~1;
	CHECK_BLOCKS()
}

/* Its lease of what somebody else keeps goes. */
inline retire_ticket(t)
{
	buffer[t] = 0;
	lease[t] = (retained[t] -> lease[t] & ~1 : lease[t]);
	retained[t] = false;
	CHECK_BLOCKS()
}

#ifdef CLOSES
#define MAY_CLOSE true
#else
#define MAY_CLOSE (sent == MESSAGES && (!in_flight || owner == NOBODY && !pending))
#endif
#define IS_THROUGH (in_flight && owner == FINISHED && !pending)

proctype producer()
{
	{
end:
		do
		:: atomic {
			sent < MESSAGES && !in_flight && buffer[OTHER] == 0 && CAN_HAVE(0) && CAN_HAVE(1) ->
			MUST(!IS_USED(0) && !IS_USED(1), reused_too_early);
			sent++;
			in_flight = true;
			answered = false;
			owner = NOBODY;
			lease[0] = lease[0] | 1;
			lease[1] = lease[1] | 1;
			content[0] = sent;
			content[1] = sent
		   };
#ifdef FIRST_IN_USE_FIRST
			d_step { use_first() };
#endif
			d_step {
				copied[OTHER] = sent;
#ifdef FURTHER_IS_A_MESSAGE
				placed[OTHER] = NOBODY
#else
				placed[OTHER] = FINISHED
#endif
			};
			d_step { use_other() };
			d_step { tag = sent; further = sent };
#ifndef FIRST_IN_USE_FIRST
			d_step { use_first() };
#endif
			d_step { deliver() };
			d_step { put() }
		:: d_step { (pending & 1) && SAYS_DONE(0, sent) -> observe(0) }
		:: d_step { (pending & 2) && SAYS_DONE(1, sent) -> observe(1) }
#ifdef FURTHER_BY_ITSELF
		:: d_step {
			in_flight && buffer[OTHER] &&
			(IS_ACKED(0, OTHER, sent) || IS_ACKED(1, OTHER, sent)) ->
			observe_other()
		   }
#endif
		:: d_step { gone[1] && counts[0] -> dismiss(0) }
		:: d_step { gone[2] && counts[1] -> dismiss(1) }
		/* who is left behind and dies is dismissed once more */
		:: d_step { gone[1] && left_behind && (pending & 1) -> dismiss(0) }
		:: d_step { IS_THROUGH -> in_flight = false; retire_ticket(FIRST) };
			d_step { retire_ticket(OTHER) }
#ifdef STALL
		:: d_step { !left_behind && !stopped[1] && (pending & 1) -> leave_behind() }
		:: d_step { left_behind && (pending & 1) && !asked && !kept_for -> asked = true }
		:: d_step { kept_for && (pending & 1) && !SAYS_DONE(0, sent) -> pending = pending & ~1; retain_all() }
#endif
		:: d_step { MAY_CLOSE -> closing = true }; break
		od
	} unless { stopped[0] }
}

/* ---------------------------------------------------------------------------------------------
 * A consumer.
 */

inline get(c, n)
{
	MUST(further == n && buffer[OTHER] && content[0] == n && content[1] == n, wrong_read);
	MUST(!IS_FREE(0) && !IS_FREE(1), reused_too_early);
	MUST(!(has[C(1 - (c), FIRST)] == n && !((c) == 1 && left_behind)), two_owners);
	received[c] = n;
	has[C(c, FIRST)] = n;
	has[C(c, OTHER)] = n
}

inline acknowledge(t)
{
	ack[C(me, t)] = has[C(me, t)];
	keeps[C(me, t)] = (lease[t] & (BIT(me + 1) | 8)) != 0;
	has[C(me, t)] = 0
}

proctype consumer(byte me)
{
	byte n, which;

	{
end:
		do
		:: atomic {
			!HAS_IT(me) && len(lane[me]) > 0 && !(me == 0 && left_behind) ->
			lane[me]?n, which;
			get(me, n);
			n = 0;
			which = 0
		   }
		/* the broker's lease of one of them, for itself or for somebody else */
		:: atomic { has[C(me, FIRST)] && has[C(me, OTHER)] && !lease_is_made[me] ->
			lease_is_made[me] = true;
			if
			:: lease[FIRST] = lease[FIRST] | BIT(me + 1)
			:: lease[OTHER] = lease[OTHER] | BIT(me + 1)
			:: lease[OTHER] = lease[OTHER] | 8
			fi
		   }
#ifdef ACK_FIRST_FIRST
		:: d_step { has[C(me, FIRST)] -> acknowledge(FIRST) };
			d_step { acknowledge(OTHER); done[ack[C(me, FIRST)]] = true }
#else
		:: d_step { has[C(me, FIRST)] -> acknowledge(OTHER) };
			d_step { acknowledge(FIRST); done[ack[C(me, FIRST)]] = true }
#endif
		:: d_step { !HAS_IT(me) && (lease[0] & BIT(me + 1)) -> lease[0] = lease[0] & ~BIT(me + 1) }
		:: d_step { !HAS_IT(me) && (lease[1] & BIT(me + 1)) -> lease[1] = lease[1] & ~BIT(me + 1) }
		od
	} unless { stopped[me + 1] }
}

/* ---------------------------------------------------------------------------------------------
 * Deaths, and who was sent a buffer.
 */

proctype fate(byte who)
{
	stopped[who] = true;
	d_step {
		gone[who] = true;
		if
		:: who > 0 -> has[C(who - 1, FIRST)] = 0; has[C(who - 1, OTHER)] = 0
		:: else
		fi
	}
}

proctype somebody()
{
end:
	do
	:: d_step { lease[0] & 8 -> lease[0] = lease[0] & ~8 }
	:: d_step { lease[1] & 8 -> lease[1] = lease[1] & ~8 }
	od
}

/* ---------------------------------------------------------------------------------------------
 * The broker.
 */

inline keep_for(c)
{
	kept[C(c, FIRST)] = version[FIRST];
	kept[C(c, OTHER)] = version[OTHER];
#ifndef FURTHER_OF_OWNER
	further_of[C(c, OTHER)] = true;
#endif
	further_of[C(c, FIRST)] = true
}

/* Each is looked at by itself from now on. */
inline part_from_entries(c)
{
	further_of[C(c, FIRST)] = false;
	further_of[C(c, OTHER)] = false
}

inline give_back(had)
{
	if
	:: had && marks == DELIVERIES -> done[version[FIRST]] = true; orphan = NONE
	:: !(had && marks == DELIVERIES) -> marks = marks + (had -> 1 : 0); orphan = UNOWNED
	fi
}

/* @c has it in its lane, as the page says. */
inline orphan_of(c)
{
	if
	:: SAYS_DONE(c, version[FIRST])
	:: !SAYS_DONE(c, version[FIRST]) && gone[(c) + 1] -> give_back(HAD(c))
	:: !SAYS_DONE(c, version[FIRST]) && !gone[(c) + 1] -> orphan = OWNED(c); keep_for(c)
	fi
}

#ifdef NO_TAG
#define MAKES_SENSE true
#else
#define MAKES_SENSE (tag == version[FIRST])
#endif
#define IN_USE(t) (buffer[t] && copied[t] == version[t] && placed[t] != FINISHED)

inline make_orphan()
{
	MUST(!IN_USE(OTHER), half_a_message);
	if
	:: IN_USE(FIRST) && !MAKES_SENSE -> MUST(!written[version[FIRST]], message_lost)
	:: IN_USE(FIRST) && MAKES_SENSE && placed[FIRST] == NOBODY -> orphan = UNOWNED
	:: IN_USE(FIRST) && MAKES_SENSE && placed[FIRST] == 1 -> orphan_of(0)
	:: IN_USE(FIRST) && MAKES_SENSE && placed[FIRST] == 2 -> orphan_of(1)
	:: else
	fi
}

/* For who was left behind. */
inline take_ticket(t)
{
	kept[C(0, t)] =
	    (buffer[t] && (lease[t] & 1) && !IS_ACKED(0, t, version[t]) && !gone[1] && !kept[C(0, t)] ->
		     version[t] : kept[C(0, t)])
}

/* Who was left behind closes as soon as it has nothing; who has a lane of one that is gone drains it. */
#define IS_OVER(c) \
	(gone[(c) + 1] || !HAS_IT(c) && ((c) == 0 && left_behind || taken_over && len(lane[c]) == 0))
#define GOES ((closing || gone[0]) && !taken_over)
#define LOOKS_AT(c, t)                                                                          \
	:: d_step {                                                                             \
		kept[C(c, t)] && !further_of[C(c, t)] && (ack[C(c, t)] == kept[C(c, t)] || IS_OVER(c)) -> \
		kept[C(c, t)] = 0;                                                              \
		CHECK_BLOCKS()                                                                  \
	   }
#define LOOKS_AT_ORPHAN(c)                                                                      \
	:: d_step {                                                                             \
		orphan == OWNED(c) && SAYS_DONE(c, version[FIRST]) ->                           \
		orphan = NONE;                                                                  \
		part_from_entries(c);                                                           \
		CHECK_BLOCKS()                                                                  \
	   }                                                                                    \
	:: d_step {                                                                             \
		orphan == OWNED(c) && !SAYS_DONE(c, version[FIRST]) && gone[(c) + 1] ->         \
		part_from_entries(c);                                                           \
		give_back(HAD(c));                                                              \
		CHECK_BLOCKS()                                                                  \
	   }                                                                                    \
	:: d_step { /* its producer died before it was in its lane */                           \
		orphan == OWNED(c) && !HAD(c) && len(lane[c]) == 0 ->                           \
		part_from_entries(c);                                                           \
		give_back(false)                                                                \
	   }
/* It is told, and reads it from the copy. */
#define HANDS_OUT(c)                                                                            \
	:: d_step {                                                                             \
		orphan == UNOWNED && taken_over && !stopped[(c) + 1] && !((c) == 0 && left_behind) && \
		!HAS_IT(c) && !kept[C(c, FIRST)] && !kept[C(c, OTHER)] ->                       \
		get(c, version[FIRST]);                                                         \
		orphan = OWNED(c);                                                              \
		keep_for(c)                                                                     \
	   }

proctype broker()
{
end:
	do
	:: GOES -> d_step { make_orphan() };
		d_step {
			if
			:: left_behind -> take_ticket(FIRST); take_ticket(OTHER)
			:: else
			fi
		};
		d_step {
			taken_over = true;
			lease[0] = lease[0] & ~1;
			lease[1] = lease[1] & ~1;
			CHECK_BLOCKS()
		}
	:: d_step { gone[1] && ((lease[0] | lease[1]) & 2) -> lease[0] = lease[0] & ~2; lease[1] = lease[1] & ~2 }
	:: d_step { gone[2] && ((lease[0] | lease[1]) & 4) -> lease[0] = lease[0] & ~4; lease[1] = lease[1] & ~4 }
#ifdef STALL
	:: d_step {
		asked && !taken_over ->
		take_ticket(FIRST);
#ifndef ASK_FOR_FIRST_ALONE
		take_ticket(OTHER);
#endif
		kept_for = true;
		asked = false
	   }
#endif
	LOOKS_AT_ORPHAN(0)
	LOOKS_AT_ORPHAN(1)
	HANDS_OUT(0)
	HANDS_OUT(1)
	LOOKS_AT(0, FIRST)
	LOOKS_AT(0, OTHER)
	LOOKS_AT(1, FIRST)
	LOOKS_AT(1, OTHER)
	od
}

/* ------------------------------------------------------------------------------------------- */

#define IS_THERE(c) (!stopped[(c) + 1] && !((c) == 0 && left_behind))

/* The producer, for somebody to come. */
#define WAITS (!stopped[0] && in_flight && owner == NOBODY && !pending && !IS_THERE(0) && !IS_THERE(1))

hidden byte j;

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout ->
	d_step {
		MUST(taken_over && lease[0] == 0 && lease[1] == 0 || WAITS, something_left);
		for (j : 0 .. 3) {
			MUST(!kept[j] && !has[j], something_left)
		}
		if
		:: IS_THERE(0) || IS_THERE(1) ->
			MUST(orphan == NONE, something_left);
			for (j : 1 .. MESSAGES) {
				MUST(!written[j] || done[j], message_lost)
			}
		:: else
		fi
	}
}

init {
	atomic {
		counts[0] = true;
		counts[1] = true;
		run end_of_the_run();
		run somebody();
		run broker();
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
