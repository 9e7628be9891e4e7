/* SPDX-License-Identifier: MIT */

/*
 * The broker: what it answers (to the client `me`), and what it does of itself when a client ends.
 * broker/order/fence.c, broker/buffer/grant.c, buffer.c and lease.c there, and broker/client/end.c
 * are the real one. How a request gets to it is in at_once.pml and restart.pml.
 */

#define FREE (lease[0] + lease[1] == 0 && name_fence == 0)

/* What shows that the owner is not on its way out, now that its value has been read. */
#ifdef TRUST_A_LOOK
#define PROVED_ALIVE(who) (!gone[who])
#elif defined(HOST_MEMORY)
#define PROVED_ALIVE(who) (!poisoned[who])
#else
#define PROVED_ALIVE(who) (!exiting[who])
#endif

/* Those that are reached, or whose owner is dead, need not be waited for. */
inline prune(i)
{
	gate[i] = (value[i] >= gate[i] && PROVED_ALIVE((i) / SLOTS) || last[i] >= gate[i] ||
				   poisoned[(i) / SLOTS] ->
			   0 :
			   gate[i])
}

#define GATE(i) (gate[i] == 0 -> 0 : FENCE(i, gate[i]))

inline take_gate()
{
	prune(0); prune(1); prune(2); prune(3);
	f0 = GATE(0); f1 = GATE(1); f2 = GATE(2); f3 = GATE(3)
}

inline join_gate(fence)
{
	gate[SLOT(fence)] = (gate[SLOT(fence)] > VALUE(fence) -> gate[SLOT(fence)] : VALUE(fence))
}

inline allocate()
{
	generation++;
	lease[me]++;
	g = generation;
	take_gate();
#ifdef FORGET_GATE /* who gets it may die before it waits for it */
	gate[0] = 0; gate[1] = 0; gate[2] = 0; gate[3] = 0
#endif
}

inline look_up()
{
	g = generation;
	giver = name_fence;
	lease[me]++;
	if
	:: name_writable ->
#ifndef ORDERED_BY_GIVER_ONLY
		take_gate();
#endif
		join_gate(giver)
	:: else
	fi
}

inline release(fence)
{
	lease[me]--;
#ifndef FREE_BEFORE_FENCE
	join_gate(fence)
#endif
}

inline poison(who)
{
#if defined(TRUST_LATE_SIGNAL) || defined(HOST_MEMORY)
	if
	:: !poisoned[who] ->
		last[who * SLOTS] = value[who * SLOTS];
		last[who * SLOTS + 1] = value[who * SLOTS + 1]
	:: else -> /* by a broker that died at it; the values are poison now */
#ifdef TAKE_POISON_FOR_A_VALUE
		last[who * SLOTS] = 15;
		last[who * SLOTS + 1] = 15
#else
		skip
#endif
	fi;
#endif
	poisoned[who] = true
}

inline drop(who)
{
	dropped[who] = true;
	lease[who] = 0;
	if
	:: name_fence != 0 && OWNER(name_fence) == who -> name_fence = 0; name_writable = false
	:: else
	fi
}

#ifdef DROP_AT_HANGUP
#define MAY_DROP(who) stopped[who]
#else
#define MAY_DROP(who) gone[who]
#endif
#ifdef POISON_AT_HANGUP
#define MAY_POISON(who) stopped[who]
#elif defined(NO_POISON)
#define MAY_POISON(who) false
#else
#define MAY_POISON(who) gone[who]
#endif

#define HAS_NEWS(who) \
	(value[who * SLOTS] > last[who * SLOTS] || value[who * SLOTS + 1] > last[who * SLOTS + 1])

inline look(who)
{
	last[who * SLOTS] = value[who * SLOTS];
	last[who * SLOTS + 1] = value[who * SLOTS + 1]
}
