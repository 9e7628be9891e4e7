/* SPDX-License-Identifier: MIT */

/*
 * The keeper, and what it keeps for a broker that dies: a socket and a timeline page of each client.
 * broker/keeper/, and broker_commit() in broker/life/commit.c, are the real ones.
 *
 * What is modelled
 *
 *   Keeper    gives what it is handed a number, which is free again when it has let it go. It answers
 *             everything. What a dead broker has said is handled or thrown away, and then the next
 *             one is forked, which has all that the keeper has.
 *   Records   The socket's number is in a record, which counts at a commit. The page's is in a
 *             record that lasts longer, and is written there in place: none when its owner is dead.
 *   Broker    may die between any two steps, RESTARTS times in all. The next one takes what records
 *             name, and closes what none names.
 *   Clients   come, are told, and leave, one after the other or together.
 *
 * What has to hold in every order
 *
 *   - The next broker has what a client was told of. A record never names another's descriptor.
 *   - In the end the keeper has nothing, and no record is left.
 *   - While there is a broker, the keeper is never the last to close something: that may take long.
 *
 * Each of these breaks a rule: RECORD_FIRST, TELL_FIRST, LET_GO_BEFORE_COMMIT, PAGE_BY_COMMIT, NO_SWEEP,
 * LISTEN_TO_THE_DEAD, BROKER_CLOSES_FIRST.
 */

#ifndef RESTARTS
#define RESTARTS 2
#endif

#define CLIENTS 3

#define NUMBERS   (2 * CLIENTS + 1) /* 0 is none */
#define SOCKET(c) (2 * (c) + 1)
#define PAGE(c)   (2 * (c) + 2)
#define THINGS    (2 * CLIENTS + 1)

/* The keeper: the thing behind each number. */
byte kept[NUMBERS];

/* What records say. */
byte j_socket[CLIENTS];
bool j_page[CLIENTS];  /* there is one */
byte in_place[CLIENTS]; /* its number */

/* The broker's own. */
bool has[THINGS], taken[NUMBERS];
byte number_of[THINGS];
byte restarts;
bool is_down;

/* Clients. */
byte n_came;
bool told[CLIENTS], left[CLIENTS];

bool lost, wrong_descriptor, left_open, keeper_closes_last;

#define MUST(condition, failure) failure = !(condition); assert(!failure)

mtype = { KEEP, LET_GO };
chan to_keeper = [1] of { mtype, byte };
chan answer = [1] of { byte };

inline let_go(number)
{
	if
	:: kept[number] != 0 ->
		MUST(is_down || has[kept[number]], keeper_closes_last);
		kept[number] = 0
	:: else
	fi
}

/* The lowest number that is free. */
inline keep(thing)
{
	i = 1;
	do
	:: kept[i] == 0 -> break
	:: else -> i++
	od;
	kept[i] = thing;
	arg = i
}

active proctype keeper()
{
	mtype word;
	byte arg, i;

end:
	do
	:: d_step {
		to_keeper?word, arg ->
		if
		:: word == KEEP -> keep(arg)
		:: word == LET_GO -> let_go(arg)
		fi;
		answer!arg;
		i = 0;
		arg = 0
	   }
	:: atomic {
		is_down ->
#ifndef LISTEN_TO_THE_DEAD
		if
		:: nempty(to_keeper) -> to_keeper?_, _
		:: empty(to_keeper)
		fi;
#endif
		if
		:: nempty(answer) -> answer?_
		:: empty(answer)
		fi;
		d_step {
			i = 1;
			do
			:: i < NUMBERS -> has[kept[i]] = true; i++
			:: else -> break
			od;
			has[0] = false;
			i = 0
		};
		is_down = false
	   }
	od
}

active [CLIENTS] proctype client()
{
end:
	told[_pid - 1] -> left[_pid - 1] = true
}

/* ---------------------------------------------------------------------------------------------- */

#define MAY_DIE \
	if \
	:: restarts < RESTARTS -> goto died \
	:: true \
	fi

inline hand_over(thing)
{
	to_keeper!KEEP(thing);
	MAY_DIE;
	answer?number;
	number_of[thing] = number;
	number = 0
}

/* The keeper's first. */
inline close(thing)
{
#ifdef BROKER_CLOSES_FIRST
	has[thing] = false;
#endif
	to_keeper!LET_GO(number_of[thing]);
	MAY_DIE;
	answer?_;
	has[thing] = false;
	number_of[thing] = 0
}

/* In place, and then by a commit: without that nobody looks at what is in place. */
inline note_client()
{
	d_step {
		in_place[c] = number_of[PAGE(c)];
		j_page[c] = true;
		j_socket[c] = number_of[SOCKET(c)]
	}
}

/* The number that it will have, as the broker sees which are free. */
inline guess(thing)
{
	do
	:: kept[number] == 0 && number > number_of[SOCKET(c)] -> break
	:: else -> number++
	od;
	number_of[thing] = number;
	number = 0
}

/* It connects, and is let in. */
inline come()
{
	c = n_came;
	n_came++;
	d_step { has[SOCKET(c)] = true; has[PAGE(c)] = true };
#ifdef RECORD_FIRST
	guess(SOCKET(c));
	guess(PAGE(c));
	note_client();
	MAY_DIE;
#endif
	hand_over(SOCKET(c));
	MAY_DIE;
	hand_over(PAGE(c));
	MAY_DIE;
#ifdef TELL_FIRST
	told[c] = true;
	MAY_DIE;
#endif
	note_client();
	MAY_DIE;
	told[c] = true
}

/* Its page is dead, and closed; a record of it stays as long as anybody has its fences. */
inline end_page()
{
#ifndef PAGE_BY_COMMIT
	in_place[c] = 0;
	MAY_DIE;
#endif
	close(PAGE(c))
}

inline end_client()
{
#ifdef LET_GO_BEFORE_COMMIT
	close(SOCKET(c));
	MAY_DIE;
#endif
	d_step { j_socket[c] = 0; j_page[c] = false; in_place[c] = 0 };
	MAY_DIE;
#ifndef LET_GO_BEFORE_COMMIT
	close(SOCKET(c))
#endif
}

inline take(thing, number)
{
	if
	:: number != 0 ->
		MUST(kept[number] == thing, wrong_descriptor);
		taken[number] = true;
		number_of[thing] = number
	:: else
	fi
}

/* What records name, in the broker's first step. */
inline take_over()
{
	do
	:: c < CLIENTS ->
		take(SOCKET(c), j_socket[c]);
		if
		:: j_page[c] -> take(PAGE(c), in_place[c])
		:: else
		fi;
		MUST(!told[c] || left[c] || j_socket[c] && in_place[c], lost);
		/* its answer was owed */
		told[c] = told[c] || j_socket[c];
		c++
	:: else -> break
	od;
	c = 0
}

/* What none names. */
inline sweep()
{
	number = 1;
	do
	:: number < NUMBERS && kept[number] != 0 && !taken[number] ->
		c = kept[number];
		number_of[c] = number;
		close(c);
		number++
	:: number < NUMBERS && (kept[number] == 0 || taken[number]) -> number++
	:: number == NUMBERS -> break
	od;
	number = 0;
	c = 0
}

inline forget_all()
{
	do
	:: c < NUMBERS -> taken[c] = false; has[c] = false; number_of[c] = 0; c++
	:: else -> break
	od;
	c = 0
}

#define IS_ENDING(who) (left[who] && j_socket[who] != 0)

active proctype broker()
{
	byte c, number;

end:
	do
	:: n_came < CLIENTS -> come(); c = 0
	:: atomic {
		if
		:: IS_ENDING(0) -> c = 0
		:: IS_ENDING(1) -> c = 1
		:: IS_ENDING(2) -> c = 2
		fi
	   };
		/* others come and end in between */
		if
		:: number_of[PAGE(c)] != 0 -> end_page()
		:: else -> end_client()
		fi;
		c = 0
	:: atomic {
		restarts < RESTARTS ->
died:
		restarts++;
		number = 0;
		c = 0;
		d_step { forget_all(); is_down = true }
	   };
		!is_down;
		d_step { take_over() };
#ifndef NO_SWEEP
		sweep();
#endif
		d_step {
			do
			:: c < NUMBERS -> taken[c] = false; c++
			:: else -> break
			od;
			c = 0
		}
	od
}

active proctype end_of_the_run()
{
	byte i;

	timeout ->
	d_step {
		do
		:: i < NUMBERS -> MUST(kept[i] == 0, left_open); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CLIENTS ->
			MUST(j_socket[i] == 0 && !j_page[i], left_open);
			i++
		:: else -> break
		od
	}
}
