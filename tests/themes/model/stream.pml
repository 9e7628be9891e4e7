/* SPDX-License-Identifier: MIT */

/*
 * The GPU's half: what a stream does with what was put into it, and what becomes of that when its
 * process ends. Knows slots and the block; not who has which lease.
 */

/* What WRITE and READ carry: the generation, and whether this client has allocated it. */
#define WORK(g, own)     ((g) << 1 | (own))
#define GENERATION(work) ((work) >> 1)
#define IS_OWN(work)     ((work) & 1)

/* What is read behind somebody who is dying is void, and may be read at any time: it hurts nobody. */
#define IS_VOID(who, work) (!IS_OWN(work) && exiting[1 - (who)])

#define EARLIER_RUNS(g)                               \
	((g) > 1 && running[1] || (g) > 2 && running[2] || \
	 (g) > 3 && running[3])

/* All work of earlier generations is over, none of later ones has begun. */
inline begin(work, void)
{
	MUST(GENERATION(work) >= latest, work_too_early);
	MUST(void || !(EARLIER_RUNS(GENERATION(work))), work_too_early);
	latest = (void -> latest : GENERATION(work));
	running[GENERATION(work)]++
}

inline finish(work)
{
	running[GENERATION(work)]--;
	work = 0
}

inline check(who, work)
{
	if
	:: content != GENERATION(work) ->
		MUST(IS_VOID(who, work), wrong_read);
		MUST(!(told_reached[who] & 1 << GENERATION(work)), void_called_reached);
		misread[who] = misread[who] | 1 << GENERATION(work)
	:: else
	fi
}

inline write_value(fence)
{
	MUST(VALUE(fence) > value[SLOT(fence)], value_went_back);
	MUST(!poisoned[OWNER(fence)], poison_undone);
	value[SLOT(fence)] = VALUE(fence)
}

proctype stream(byte me)
{
	mtype op;
	byte arg;
#ifdef SIGNAL_OVERTAKES
	byte overtaken;
#endif

end:
	do
	:: atomic {
		queue[me]?WAIT(arg) ->
		streams_waiting++;
		if
		:: OVER(arg) -> streams_waiting--; arg = 0
		:: exiting[me / STREAMS] -> streams_waiting--; goto cut_off
		fi
	   }
	:: atomic { queue[me]?WRITE(arg) -> begin(arg, false); content = 0 };
		if
		:: d_step { true -> content = GENERATION(arg); finish(arg) }
		:: exiting[me / STREAMS] -> goto cut_off_working
		fi
	:: atomic {
		queue[me]?READ(arg) ->
		begin(arg, IS_VOID(me / STREAMS, arg));
		check(me / STREAMS, arg)
	   };
		if
		:: d_step { true -> check(me / STREAMS, arg); finish(arg) }
		:: exiting[me / STREAMS] -> goto cut_off_working
		fi
	:: d_step { queue[me]?SIGNAL(arg) -> write_value(arg); arg = 0 }
	:: exiting[me / STREAMS] -> goto cut_off
	od;

	/* Late signals, none or some, in their order. */
cut_off_working:
#ifdef SIGNAL_OVERTAKES
	overtaken = arg;
#else
	finish(arg);
#endif
cut_off:
	arg = 0;
	do
#ifndef HOST_MEMORY
	:: atomic {
		queue[me]?op, arg ->
		if
		:: op == SIGNAL -> write_value(arg)
		:: else
		fi;
		op = 0;
		arg = 0
	   }
#endif
	:: atomic {
		true ->
		do
		:: queue[me]?_, _
		:: empty(queue[me]) -> break
		od;
#ifdef SIGNAL_OVERTAKES
		if
		:: overtaken != 0 -> finish(overtaken)
		:: else
		fi;
#endif
		cut[me] = true;
		break
	   }
	od
}
