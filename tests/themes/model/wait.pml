/* SPDX-License-Identifier: MIT */

/*
 * How waits in libshare end, for a model checker: two threads of a program wait in one handle for a
 * message each, or for one answer of the broker each; a third one closes the handle, and a signal
 * handler interrupts the client. spin tries every order of their steps.
 *
 * Who waits enters its place in the list of the client's waiters, looks whether there is a message,
 * whether the handle was closed, whether the client was interrupted, and sleeps then in one of three
 * ways:
 *
 *   bell    on a word of the library's, if that is still what it was before the looks. Whoever has
 *           something to say changes the word and wakes who sleeps on it.
 *   page    on a word of the other side's, which only that one can change. A signal handler and who
 *           closes can wake a sleeper, but miss one that is about to sleep. So it sleeps on that word
 *           alone for a short time only, and then on a word of its own as well, which these change.
 *   answer  in the socket, until the broker has answered, or a descriptor of its own says that the wait
 *           may be over. Then it cancels the request itself, and the broker answers at once. A signal
 *           handler could not, where the socket is full.
 *
 * An interruption stays until it is cleared, which nobody does here. A message comes first: who has
 * taken one returns it, though the handle was closed meanwhile or the client interrupted.  Who closes never waits for those who
 * are in the handle; the last one that is out frees it.
 *
 * What has to hold: nobody waits for good once the handle is closed, the client is interrupted, or
 * there is a message; nobody looks into a handle that was freed; it is freed once; and no message is
 * lost.
 *
 * Each of these breaks one rule and has to be found out: LOOK_BEFORE_PLACE, WORD_AFTER_LOOK,
 * WAKE_BEFORE_WORD, BELL_UNCHANGED, OWN_UNWATCHED, HANDLER_CANCELS, CLOSE_FREES, NOBODY_FREES,
 * END_BEFORE_MESSAGE, ENDS_ONE.
 */

#define WAITERS 2
#ifndef MESSAGES
#define MESSAGES 1
#endif

#define NOWHERE   0
#define ON_BELL   1
#define ON_PAGE   2
#define IN_SOCKET 3

/* The handle. */
byte messages, users;
bool closed, freed;

/* The client. */
bool interrupted;
byte place[WAITERS]; /* where a waiter sleeps, or is about to */
byte own[WAITERS];   /* its own word */

/* Words that are slept on, and the kernel's: who does. */
byte bell, page;
bool sleeps[WAITERS];

/* The broker's. */
bool asked[WAITERS], canceled[WAITERS], answered[WAITERS];

byte got, ended; /* messages returned; waiters that have come back */
bool closer_done, handler_done;

bool waits_for_good, used_after_free, freed_twice, never_freed, message_lost;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

inline use_handle()
{
	MUST(!freed, used_after_free)
}

inline free_handle()
{
	d_step { MUST(!freed, freed_twice); freed = true }
}

/* To all that sleep in the handle, and to those of the client: what they are to see is there. */
inline wake_all(i)
{
	i = 0;
	do
	:: i < WAITERS ->
		if
		:: place[i] == NOWHERE
		:: place[i] == ON_BELL ->
#ifndef BELL_UNCHANGED
			bell++;
#endif
			d_step { sleeps[0] = false; sleeps[1] = false }
		:: place[i] == ON_PAGE -> own[i]++; sleeps[i] = false
		:: place[i] == IN_SOCKET ->
#ifdef HANDLER_CANCELS
			if
			:: asked[i] -> canceled[i] = true
			:: true /* the socket is full */
			fi
#else
			own[i]++
#endif
		fi;
		i++
#ifdef ENDS_ONE
		; break
#endif
	:: else -> break
	od;
	i = 0
}

/* A message, or not. With the lock of the handle held; who has given it up says so with it, too. */
inline take()
{
	atomic {
		use_handle();
		if
		:: messages > 0 && !closed -> messages--; has = true
		:: else
		fi
	}
}

#define IS_OVER (closed || interrupted)

inline sleep_on_bell()
{
	if
	:: atomic { bell == seen -> sleeps[me] = true }; !sleeps[me]
	:: bell != seen
	fi
}

inline sleep_on_page()
{
	/* for a short time: the kernel ends it, whatever happens */
	if
	:: atomic { page == seen -> sleeps[me] = true };
		if
		:: !sleeps[me]
		:: sleeps[me] = false; brief = true
		fi
	:: page != seen
	fi;
	if
	:: brief ->
		if
#ifdef OWN_UNWATCHED
		:: atomic { page == seen -> sleeps[me] = true }; !sleeps[me]
		:: page != seen
#else
		:: atomic { page == seen && own[me] == mine -> sleeps[me] = true }; !sleeps[me]
		:: page != seen || own[me] != mine
#endif
		fi;
		brief = false
	:: else
	fi
}

proctype waiter(byte me; byte way)
{
	byte seen, mine;
	bool has, brief;

	/* whoever comes later has no handle */
	atomic {
		if
		:: closed -> goto out
		:: else -> users++
		fi
	};
	do
	:: way == IN_SOCKET ->
		asked[me] = true;
		mine = own[me];
#ifdef LOOK_BEFORE_PLACE
		has = interrupted;
		place[me] = IN_SOCKET;
#else
		place[me] = IN_SOCKET;
		has = interrupted;
#endif
		do
		:: answered[me] -> break
		:: !answered[me] && has && !canceled[me] -> canceled[me] = true
		:: !answered[me] && own[me] != mine && !canceled[me] ->
			mine = own[me];
			has = interrupted
		od;
		has = false;
		break
	:: way != IN_SOCKET ->
#ifdef LOOK_BEFORE_PLACE
		if
		:: IS_OVER -> break
		:: else
		fi;
#endif
#ifndef WORD_AFTER_LOOK
		d_step { seen = (way == ON_BELL -> bell : page); mine = own[me] }
#endif
		place[me] = way;
#ifdef END_BEFORE_MESSAGE
		take();
		if
		:: IS_OVER -> has = false; break
		:: has -> break
		:: else
		fi;
#else
		take();
		if
		:: has -> break
		:: else
		fi;
#ifndef LOOK_BEFORE_PLACE
		if
		:: IS_OVER -> break
		:: else
		fi;
#endif
#endif
#ifdef WORD_AFTER_LOOK
		d_step { seen = (way == ON_BELL -> bell : page); mine = own[me] }
#endif
		if
		:: way == ON_BELL -> sleep_on_bell()
		:: else -> sleep_on_page()
		fi;
		place[me] = NOWHERE
	od;
	place[me] = NOWHERE;
	d_step { got = got + has; has = false; seen = 0; mine = 0 }
	atomic {
		use_handle();
		users--;
#ifndef NOBODY_FREES
		if
		:: users == 0 && closed -> free_handle()
		:: else
		fi
#endif
	};
out:
	ended++
}

/* The other side, which sends. */
proctype sender()
{
	byte left = MESSAGES;

	do
	:: left > 0 ->
		messages++;
		atomic { bell++; page++; sleeps[0] = false; sleeps[1] = false };
		left--
	:: else -> break
	od
}

proctype closer()
{
	byte i;

#ifdef WAKE_BEFORE_WORD
	wake_all(i);
#endif
	atomic {
		closed = true;
#ifdef CLOSE_FREES
		free_handle()
#else
		if
		:: users == 0 -> free_handle()
		:: else
		fi
#endif
	};
#ifndef WAKE_BEFORE_WORD
	wake_all(i);
#endif
	closer_done = true
}

proctype handler()
{
	byte i;

#ifdef WAKE_BEFORE_WORD
	wake_all(i);
	interrupted = true;
#else
	interrupted = true;
	wake_all(i);
#endif
	handler_done = true
}

proctype broker()
{
end:	do
	:: atomic { asked[0] && canceled[0] && !answered[0] -> answered[0] = true }
	:: atomic { asked[1] && canceled[1] && !answered[1] -> answered[1] = true }
	od
}

/* When nothing can move any more. */
proctype end_of_the_run()
{
	timeout ->
	MUST(ended == WAITERS, waits_for_good);
	MUST(freed || !closed, never_freed);
	MUST(got + messages == MESSAGES, message_lost)
}

init {
	atomic {
		run end_of_the_run();
		run waiter(0, FIRST);
		run waiter(1, SECOND);
		run sender();
		run broker();
#ifdef CLOSES
		run closer();
#endif
#ifdef INTERRUPTS
		run handler()
#endif
	}
}
