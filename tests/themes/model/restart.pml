/* SPDX-License-Identifier: MIT */

/*
 * A broker that may be killed between any two of its steps, RESTARTS times in all, and the next one,
 * which goes on from what the journal says. broker/life/commit.c (broker_commit()), broker/life/restore.c,
 * broker/journal/, broker/client/queue.c and broker/client/records.c are the real one, and
 * libshare/client/deliver.c the client's half.
 *
 * What is modelled
 *
 *   Requests  wait in a socket, which outlives the broker. One is received into the inbox, which is
 *             memory that outlives it as well, and is handled again if the broker dies before the
 *             commit. One that cannot be answered yet is a record until it is.
 *   Commit    The books, that the inbox is handled, and which answer is owed count at once. Between
 *             commits the books are in the broker's own memory, and are gone when it dies.
 *   Answers   are sent after the commit. The record goes with a later commit, so an answer may be
 *             sent twice; it has a number.
 *   In place  are written, and count at once: what is believed of a timeline, its poison, and that
 *             its owner has died. They are done twice when the broker dies between.
 *   Death     of a client, while there is no broker: the next one sees the same pidfd.
 *
 * What has to hold as well
 *
 *   - Every request has its effect once, in the order in which its client has sent them, and is
 *     answered once. A lease is there as long as its client has it.
 *   - What the broker has called reached, nobody ever calls dead.
 *
 * What is not
 *
 *   - The broker's steps on a request are one step here, with deaths between them: nobody sees
 *     them, and what they have read of timelines and processes goes on to hold.
 *   - How the journal makes a commit one step; what the keeper does (keeper.pml).
 *   - Farewells; requests that kill one broker after the other.
 *
 * Each of these breaks a rule: APPLY_BEFORE_COMMIT, SEND_BEFORE_COMMIT, FORGET_INBOX, HANDLE_TWICE,
 * HANDLED_BY_ANY_COMMIT, FORGET_WAITING, FORGET_ANSWERS, TAKE_ANSWERS_TWICE, FORGET_GATES,
 * FORGET_BELIEVED, FORGET_DEATHS, KEEP_LEASES, POISON_BEFORE_COMMIT, REMEMBER_LAST, and
 * of host memory TAKE_POISON_FOR_A_VALUE.
 */

mtype = { ALLOC, PUBLISH, PUBLISH_WRITABLE, UNPUBLISH, RELEASE };

/* What outlives the broker: sockets, with the number of each request of its client; */
chan socket[CLIENTS] = [1] of { mtype, byte, byte };
chan answers[CLIENTS] = [RESTARTS + 1] of { byte, byte, byte, byte, byte, byte, byte, byte };

/* the inbox; */
bool unhandled;
mtype inbox_op;
byte inbox_client, inbox_arg, inbox_asked;

/* what is written in place, beside `last` and `poisoned`; */
bool dead[CLIENTS];
bool remembered[CLIENTS]; /* as one that has died: of others that are gone, all was reached */

/* and records. */
typedef packet {
	byte number, about, g, giver, f0, f1, f2, f3
};
byte j_generation, j_lease[CLIENTS], j_name_fence, j_gate[CLIENTS * SLOTS];
bool j_name_writable, j_ending[CLIENTS], j_dropped[CLIENTS], j_owes[CLIENTS];
mtype j_waiting[CLIENTS];
byte j_waiting_asked[CLIENTS];
packet j_owed[CLIENTS]; /* while it is owed */

/* The broker's own memory, beside the books. */
bool ending[CLIENTS]; /* its owner is dead, and what it has sent is read */
mtype waiting[CLIENTS];
byte waiting_asked[CLIENTS];
bool owes[CLIENTS];
byte n_sent[CLIENTS];
#ifdef FORGET_DEATHS
bool unnoticed[CLIENTS];
#endif

byte restarts;
#define MAY_DIE (restarts < RESTARTS)

/* Who waits for an answer; and of which request the effects came last. */
bool awaits[CLIENTS];
byte done[CLIENTS];

bool done_twice, not_in_order, answered_twice, never_answered, lease_lost, journal_refused;

/* ---------------------------------------------------------------------------------------------- */
/* The client's half                                                                              */

#define TELL atomic

inline say(op, arg)
{
	asked++;
	socket[me]!op(arg, asked)
}

/* What has come before is thrown away. */
inline ask_for(op)
{
	awaits[me] = true;
	say(op, 0);
	do
	:: answers[me]?number, about, g, giver, f0, f1, f2, f3;
		if
#ifndef TAKE_ANSWERS_TWICE
		:: number <= last_number
		:: number > last_number -> break
#else
		:: break
#endif
		fi
	od;
	MUST(about == asked, answered_twice);
	last_number = number;
	number = 0;
	about = 0;
	awaits[me] = false
}

inline get_block()
{
	ask_for(ALLOC)
}

inline get_lease(how)
{
	ask_for(how)
}

inline give_back(fence)
{
	say(RELEASE, fence)
}

inline publish(fence)
{
	atomic { say(PUBLISH, fence) }
}

inline publish_writable(fence)
{
	atomic { say(PUBLISH_WRITABLE, fence) }
}

inline unpublish()
{
	atomic { say(UNPUBLISH, 0) }
}

/* A look-up may wait for a name that never comes. */
#define IS_ANSWERED(who) \
	(stopped[who] || !awaits[who] || waiting[who] == READ_NAME || waiting[who] == WRITE_NAME)

/* ---------------------------------------------------------------------------------------------- */
/* The journal                                                                                    */

inline put_books()
{
	j_generation = generation;
#ifdef KEEP_LEASES
	j_lease[0] = (lease[0] > j_lease[0] -> lease[0] : j_lease[0]);
	j_lease[1] = (lease[1] > j_lease[1] -> lease[1] : j_lease[1]);
#else
	j_lease[0] = lease[0]; j_lease[1] = lease[1];
#endif
	j_name_fence = name_fence; j_name_writable = name_writable;
	j_ending[0] = ending[0]; j_ending[1] = ending[1];
	j_dropped[0] = dropped[0]; j_dropped[1] = dropped[1];
	j_gate[0] = gate[0]; j_gate[1] = gate[1]; j_gate[2] = gate[2]; j_gate[3] = gate[3];
	j_waiting[0] = waiting[0]; j_waiting[1] = waiting[1];
	j_waiting_asked[0] = waiting_asked[0]; j_waiting_asked[1] = waiting_asked[1]
}

/* An answer that is not owed any more is gone with it. */
inline put_answers()
{
	j_owes[0] = owes[0]; j_owes[1] = owes[1];
	if
	:: !owes[0] -> forget_packet(0)
	:: else
	fi;
	if
	:: !owes[1] -> forget_packet(1)
	:: else
	fi
}

inline forget_packet(who)
{
	j_owed[who].number = 0; j_owed[who].about = 0; j_owed[who].g = 0; j_owed[who].giver = 0;
	j_owed[who].f0 = 0; j_owed[who].f1 = 0; j_owed[who].f2 = 0; j_owed[who].f3 = 0
}

/* Without another death nobody reads it. */
inline commit()
{
	if
	:: MAY_DIE -> put_books(); put_answers()
	:: else
	fi
}

inline read_books()
{
	generation = j_generation;
	lease[0] = j_lease[0]; lease[1] = j_lease[1];
	name_fence = j_name_fence; name_writable = j_name_writable;
	ending[0] = j_ending[0]; ending[1] = j_ending[1];
	dropped[0] = j_dropped[0]; dropped[1] = j_dropped[1];
#ifndef FORGET_GATES
	gate[0] = j_gate[0]; gate[1] = j_gate[1]; gate[2] = j_gate[2]; gate[3] = j_gate[3];
#endif
#ifndef FORGET_WAITING
	waiting[0] = j_waiting[0]; waiting[1] = j_waiting[1];
	waiting_asked[0] = j_waiting_asked[0]; waiting_asked[1] = j_waiting_asked[1];
#endif
#ifndef FORGET_ANSWERS
	owes[0] = j_owes[0]; owes[1] = j_owes[1]
#endif
}

/* Nobody will read them, so states differ no more by what is in them. */
inline forget_records()
{
	j_generation = 0;
	j_lease[0] = 0; j_lease[1] = 0;
	j_name_fence = 0; j_name_writable = false;
	j_ending[0] = false; j_ending[1] = false;
	j_dropped[0] = false; j_dropped[1] = false;
	j_gate[0] = 0; j_gate[1] = 0; j_gate[2] = 0; j_gate[3] = 0;
	j_waiting[0] = 0; j_waiting[1] = 0;
	j_waiting_asked[0] = 0; j_waiting_asked[1] = 0;
	j_owes[0] = false; j_owes[1] = false
}

inline forget_books()
{
	generation = 0;
	lease[0] = 0; lease[1] = 0;
	name_fence = 0; name_writable = false;
	ending[0] = false; ending[1] = false;
	dropped[0] = false; dropped[1] = false;
	gate[0] = 0; gate[1] = 0; gate[2] = 0; gate[3] = 0;
	waiting[0] = 0; waiting[1] = 0;
	waiting_asked[0] = 0; waiting_asked[1] = 0;
	owes[0] = false; owes[1] = false;
	n_sent[0] = 0; n_sent[1] = 0
}

/* ---------------------------------------------------------------------------------------------- */
/* The broker                                                                                     */

inline receive(who)
{
	socket[who]?inbox_op, inbox_arg, inbox_asked;
	inbox_client = who;
	unhandled = true
}

#define CAN_ANSWER(op) \
	(op == ALLOC -> FREE : name_fence != 0 && name_writable == (op == WRITE_NAME))

/* Its answer is `g` and what comes with it; none: 0. */
inline handle()
{
	if
	:: op == PUBLISH -> name_fence = arg; name_writable = false
	:: op == PUBLISH_WRITABLE -> name_fence = arg; name_writable = true
	:: op == UNPUBLISH -> name_fence = 0; name_writable = false
	:: op == RELEASE -> MUST(lease[me] > 0, lease_lost); release(arg)
	:: op == ALLOC || op == READ_NAME || op == WRITE_NAME ->
		if
		:: !CAN_ANSWER(op) -> waiting[me] = op; waiting_asked[me] = asked
		:: CAN_ANSWER(op) ->
			waiting[me] = 0;
			waiting_asked[me] = 0;
			if
			:: op == ALLOC -> allocate()
			:: op != ALLOC -> look_up(); believe(giver)
			fi;
			n_sent[me]++;
			owes[me] = true
		fi
	fi
}

/* In place. */
inline believe(fence)
{
	if
	:: PASSED(fence) && PROVED_ALIVE(OWNER(fence)) && !poisoned[OWNER(fence)] &&
		last[SLOT(fence)] < VALUE(fence) -> last[SLOT(fence)] = VALUE(fence)
	:: else
	fi
}

/* Now the effects of the request count. */
inline note_effect()
{
	MUST(!from_inbox || asked > done[me], done_twice);
	MUST(!from_inbox || asked == done[me] + 1, not_in_order);
	done[me] = (from_inbox -> asked : done[me])
}

inline put_answer()
{
	if
	:: g != 0 ->
		j_owed[me].number = restarts << 4 | n_sent[me];
		j_owed[me].about = asked;
		j_owed[me].g = g;
		j_owed[me].giver = giver;
		j_owed[me].f0 = f0; j_owed[me].f1 = f1; j_owed[me].f2 = f2; j_owed[me].f3 = f3;
		if
		:: giver != 0 && last[SLOT(giver)] >= VALUE(giver) &&
			told[SLOT(giver)] < VALUE(giver) -> told[SLOT(giver)] = VALUE(giver)
		:: else
		fi
	:: else
	fi
}

inline send(who)
{
	if
	:: stopped[who]
	:: else ->
		answers[who]!j_owed[who].number, j_owed[who].about, j_owed[who].g,
			j_owed[who].giver, j_owed[who].f0, j_owed[who].f1, j_owed[who].f2,
			j_owed[who].f3
	fi
}

inline forget_request()
{
	me = 0; op = 0; arg = 0; asked = 0; from_inbox = false;
	g = 0; giver = 0; f0 = 0; f1 = 0; f2 = 0; f3 = 0
}

inline take_inbox()
{
	me = inbox_client; op = inbox_op; arg = inbox_arg; asked = inbox_asked;
	from_inbox = true
}

inline inbox_is_handled()
{
	unhandled = false;
	inbox_op = 0; inbox_client = 0; inbox_arg = 0; inbox_asked = 0
}

/* All of it, from a request to its answer, with the places where the broker may die. */
inline serve()
{
	handle();
#ifdef APPLY_BEFORE_COMMIT
	put_books();
	note_effect();
#endif
#ifdef SEND_BEFORE_COMMIT
	put_answer();
	if
	:: g != 0 -> send(me)
	:: else
	fi;
#endif
	if
	:: MAY_DIE -> goto dead_now
	:: true
	fi;
	d_step {
#ifndef APPLY_BEFORE_COMMIT
		note_effect();
#endif
		put_answer();
		commit();
#ifdef HANDLED_BY_ANY_COMMIT
		from_inbox = true;
#endif
#ifndef HANDLE_TWICE
		if
		:: from_inbox -> inbox_is_handled()
		:: else
		fi
#endif
	};
	if
	:: MAY_DIE -> goto dead_now
	:: true
	fi;
#ifdef HANDLE_TWICE
	inbox_is_handled();
#endif
	if
	:: owes[me] ->
#ifndef SEND_BEFORE_COMMIT
		send(me);
#endif
		owes[me] = false
	:: else
	fi;
	/* that it has gone out counts now, or with the next commit */
	if
	:: true -> d_step { commit(); drop_sent() }
	:: MAY_DIE
	fi;
	forget_request()
}

/* Without another death nobody else forgets them. */
inline drop_sent()
{
	if
	:: !MAY_DIE -> forget_packet(0); forget_packet(1)
	:: else
	fi
}

#ifdef FORGET_DEATHS
#define NOTICES(who) !unnoticed[who]
#else
#define NOTICES(who) true
#endif
#define IS_READ(who) (empty(socket[who]) && !(unhandled && inbox_client == who))

/* Its page is dead only once its record says that it is ending: the next broker looks at both. */
inline start_ending(who)
{
	ending[who] = true;
	waiting[who] = 0;
	waiting_asked[who] = 0;
	owes[who] = false;
#ifndef POISON_BEFORE_COMMIT
	commit();
	drop_sent()
#endif
}

active proctype broker()
{
	mtype op;
	byte me, arg, asked, g, giver, f0, f1, f2, f3;
	bool from_inbox;

end:
	do
	:: atomic {
		if
		:: unhandled -> take_inbox()
		:: !unhandled && nempty(socket[0]) -> receive(0); take_inbox()
		:: !unhandled && nempty(socket[1]) -> receive(1); take_inbox()
		:: waiting[0] != 0 && !stopped[0] && CAN_ANSWER(waiting[0]) ->
			me = 0; op = waiting[0]; asked = waiting_asked[0]
		:: waiting[1] != 0 && !stopped[1] && CAN_ANSWER(waiting[1]) ->
			me = 1; op = waiting[1]; asked = waiting_asked[1]
		fi;
		serve()
	   }
#if DEATHS >= 1
	:: d_step { HAS_NEWS(0) && !poisoned[0] && PROVED_ALIVE(0) -> look(0) }
#endif
#if DEATHS >= 2
	:: d_step { HAS_NEWS(1) && !poisoned[1] && PROVED_ALIVE(1) -> look(1) }
#endif
	:: d_step { MAY_DROP(0) && NOTICES(0) && IS_READ(0) && !ending[0] -> start_ending(0) }
	:: d_step { MAY_DROP(1) && NOTICES(1) && IS_READ(1) && !ending[1] -> start_ending(1) }
	:: atomic {
		ending[0] && !dead[0] ->
#ifndef REMEMBER_LAST
		remembered[0] = true;
#endif
		poison(0);
		if
		:: MAY_DIE -> goto dead_now
		:: dead[0] = true
		fi;
#ifdef REMEMBER_LAST
		if
		:: MAY_DIE -> goto dead_now
		:: remembered[0] = true
		fi
#endif
	   }
	:: atomic {
		ending[1] && !dead[1] ->
#ifndef REMEMBER_LAST
		remembered[1] = true;
#endif
		poison(1);
		if
		:: MAY_DIE -> goto dead_now
		:: dead[1] = true
		fi;
#ifdef REMEMBER_LAST
		if
		:: MAY_DIE -> goto dead_now
		:: remembered[1] = true
		fi
#endif
	   }
	:: d_step { dead[0] && !dropped[0] -> drop(0); commit(); drop_sent() }
	:: d_step { dead[1] && !dropped[1] -> drop(1); commit(); drop_sent() }
	:: atomic {
		MAY_DIE ->
dead_now:
		restarts++;
		d_step {
			forget_request();
			forget_books();
#ifdef FORGET_INBOX
			unhandled = false;
			inbox_op = 0; inbox_client = 0; inbox_arg = 0; inbox_asked = 0;
#endif
			skip
		}
	   };
		/* for some time there is none */
		atomic {
			d_step {
				read_books();
				MUST(ending[0] || !dead[0], journal_refused);
				MUST(ending[1] || !dead[1], journal_refused);
				MUST(remembered[0] || !dead[0], void_called_reached);
				MUST(remembered[1] || !dead[1], void_called_reached);
				if
				:: !MAY_DIE -> forget_records()
				:: else
				fi;
#ifdef FORGET_DEATHS
				unnoticed[0] = gone[0];
				unnoticed[1] = gone[1];
#endif
#ifdef FORGET_BELIEVED
				if
				:: !dead[0] -> last[0] = 0; last[1] = 0
				:: else
				fi;
				if
				:: !dead[1] -> last[2] = 0; last[3] = 0
				:: else
				fi
#endif
			};
			if
			:: owes[0] -> send(0); owes[0] = false
			:: else
			fi;
			if
			:: owes[1] -> send(1); owes[1] = false
			:: else
			fi;
			if
			:: MAY_DIE -> goto dead_now
			:: true -> d_step { commit(); drop_sent() }
			:: MAY_DIE /* it counts later */
			fi;
#ifdef HANDLED_BY_ANY_COMMIT
			inbox_is_handled()
#endif
		}
	od
}
