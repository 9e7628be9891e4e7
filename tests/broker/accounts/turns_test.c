/* SPDX-License-Identifier: MIT */

/* Which of a user's descriptors the loop watches itself, that nobody is forgotten by it, and who of
 * two comes first. */

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <event2/event.h>

#include "broker/accounts/turns.h"

/* More turns than it takes to be watched by the loop itself. */
#define MANY 100

/* Something that a user has at the broker, and its other end. */
struct thing {
	struct turn turn;
	int ours, theirs;
	int n_served, when; /* `when`: after how many others it was the last time */
	uint32_t events;
	bool reads, ends;
	struct thing *has_wait, *has_end; /* what becomes of others in its turn */
	struct event *leaves;             /* for the loop to do after its turn */
	bool sets_timer;
};

static struct event_base *base;
static struct turns turns;
static struct user_turns user, other;
static struct thing first, second;
static int n_turns;

static void serve(struct turn *turn, uint32_t events)
{
	struct thing *thing = (struct thing *)turn;
	char byte;

	thing->n_served++;
	thing->when = n_turns++;
	thing->events = events;
	if (thing->reads && (events & EPOLLIN))
		cr_assert(read(thing->ours, &byte, 1) >= 0);
	if (thing->ends)
		turn_end(turn);
	if (thing->has_wait)
		turn_await(&thing->has_wait->turn, EPOLLPRI);
	if (thing->has_end)
		turn_end(&thing->has_end->turn);
	if (thing->leaves)
		event_active(thing->leaves, EV_TIMEOUT, 0);
	if (thing->sets_timer)
		turns_leave_work(&turns);
}

static void open_thing(struct thing *thing, struct user_turns *of, bool reads)
{
	int pair[2];

	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
	*thing =
	    (struct thing){.turn.serve = serve, .ours = pair[0], .theirs = pair[1], .reads = reads};
	cr_assert(turn_start(&turns, of, &thing->turn, thing->ours, EPOLLIN) == 0);
}

static void close_thing(struct thing *thing)
{
	turn_end(&thing->turn);
	close(thing->ours);
	close(thing->theirs);
}

static void start(void)
{
	base = event_base_new();
	cr_assert(base && turns_init(&turns, base) == 0);
	open_thing(&first, &user, true);
	open_thing(&second, &user, true);
}

static void stop(void)
{
	close_thing(&first);
	close_thing(&second);
	user_turns_deinit(&user);
	turns_deinit(&turns);
	event_base_free(base);
}

TestSuite(turns, .init = start, .fini = stop, .timeout = 30);

static void say(const struct thing *thing)
{
	cr_assert(write(thing->theirs, "x", 1) == 1);
}

/* A user's events come in one round of the loop, the turn that they ask for in the next. */
static void go_round(int times)
{
	for (int i = 0; i < 2 * times; i++)
		cr_assert(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

static void ask_often(struct thing *thing)
{
	int before = thing->n_served;

	for (int i = 0; i < MANY; i++) {
		say(thing);
		go_round(1);
	}
	cr_expect_eq(thing->n_served, before + MANY, "each question is a turn, and nothing is");
	cr_expect_eq(user.lone, &thing->turn);
}

Test(turns, who_asks_alone_is_watched_by_the_loop_until_another_asks)
{
	cr_expect_null(user.lone);
	ask_often(&first);
	go_round(MANY);
	cr_expect_eq(first.n_served, MANY);
	say(&second);
	go_round(1);
	cr_expect_eq(second.n_served, 1);
	cr_expect_null(user.lone);
	say(&first);
	go_round(1);
	cr_expect_eq(first.n_served, MANY + 1);
	ask_often(&second);
	ask_often(&first);
}

Test(turns, another_is_served_beside_one_that_never_ends)
{
	first.reads = false;
	say(&first);
	go_round(MANY);
	cr_assert_eq(user.lone, &first.turn);
	for (int i = 1; i <= MANY; i++) {
		say(&second);
		go_round(2);
		cr_assert_eq(second.n_served, i, "the other waits behind %d turns", first.n_served);
	}
}

Test(turns, what_it_waits_for_can_change)
{
	ask_often(&first);
	turn_await(&first.turn, 0);
	say(&first);
	go_round(2);
	cr_expect_eq(first.n_served, MANY);
	turn_await(&first.turn, EPOLLOUT);
	go_round(1);
	cr_expect_eq(first.events, EPOLLOUT);
	turn_await(&first.turn, EPOLLIN);
	go_round(2);
	cr_expect_eq(first.events, EPOLLIN, "what came meanwhile is there");
	ask_often(&first);
}

Test(turns, an_end_is_seen)
{
	ask_often(&second);
	shutdown(second.theirs, SHUT_RDWR);
	go_round(2);
	cr_expect(second.events & (EPOLLIN | EPOLLHUP));
	cr_expect_gt(second.n_served, MANY);
	turn_end(&second.turn);
	cr_expect_null(user.lone);
	say(&first);
	go_round(1);
	cr_expect_eq(first.n_served, 1);
}

Test(turns, it_can_end_in_its_own_turn_and_with_all_that_the_user_has)
{
	ask_often(&first);
	first.ends = true;
	say(&first);
	go_round(3);
	cr_expect_eq(first.n_served, MANY + 1);
	cr_expect_null(user.lone);
	turn_end(&second.turn);
	user_turns_deinit(&user);
	cr_assert(turn_start(&turns, &user, &second.turn, second.ours, EPOLLIN) == 0);
	ask_often(&second);
}

/* Whichever of them the loop hears of first. */
Test(turns, who_has_had_less_comes_first_of_two_that_want_something_at_once)
{
	struct thing third;

	open_thing(&third, &other, true);
	ask_often(&first);
	say(&first);
	say(&third);
	go_round(2);
	cr_expect_eq(first.n_served, MANY + 1);
	cr_expect_eq(third.n_served, 1);
	cr_expect_lt(third.when, first.when);
	for (int i = 0; i < MANY; i++) {
		say(&first);
		go_round(1);
	}
	say(&third);
	say(&first);
	go_round(2);
	cr_expect_eq(third.n_served, 2);
	cr_expect_lt(third.when, first.when);
	close_thing(&third);
	user_turns_deinit(&other);
}

/* Where the loop has nothing else to do, whoever wants something is served in the same round. */
static int served_in_a_round(void)
{
	int before = n_turns;

	say(&first);
	say(&second);
	cr_assert(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
	return n_turns - before;
}

Test(turns, several_of_a_user_are_served_at_once_where_nobody_else_has_any)
{
	struct user_turns listener = {.is_nobodys = true};
	struct thing third, fourth;

	cr_expect_eq(served_in_a_round(), 2);
	open_thing(&third, &listener, true);
	cr_expect_eq(served_in_a_round(), 2, "there is mostly a listener");
	open_thing(&fourth, &other, true);
	cr_expect_eq(served_in_a_round(), 1);
	go_round(1);
	cr_expect_eq(first.n_served + second.n_served, 6);
	close_thing(&third);
	user_turns_deinit(&listener);
	cr_expect_eq(served_in_a_round(), 1, "a broker that drains has none");
	go_round(1);
	close_thing(&fourth);
	user_turns_deinit(&other);
	cr_expect_eq(served_in_a_round(), 2);
}

Test(turns, what_was_ready_is_not_served_when_it_has_ended_or_waits_for_something_else)
{
	first.has_wait = &second;
	second.has_wait = &first;
	cr_expect_eq(served_in_a_round(), 1);
	first.has_wait = second.has_wait = NULL;
	turn_await(&first.turn, EPOLLIN);
	turn_await(&second.turn, EPOLLIN);
	go_round(1);
	cr_expect_eq(first.n_served + second.n_served, 2);
	first.has_end = &second;
	second.has_end = &first;
	cr_expect_eq(served_in_a_round(), 1);
	go_round(1);
	cr_expect_eq(first.n_served + second.n_served, 3);
}

static void on_left(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	*(int *)data = n_turns;
}

/* As the steps in which a dead client is ended. Whoever asks next finds them done. */
Test(turns, what_a_turn_leaves_for_the_loop_comes_before_the_next_turn)
{
	struct user_turns third_user = {0};
	struct thing third;
	int when = -1;
	struct event *left = event_new(base, -1, 0, on_left, &when);

	first.leaves = second.leaves = left;
	for (int i = 1; i <= MANY; i++) {
		cr_expect_eq(served_in_a_round(), 1);
		/* the other one is found already, and nobody who comes meanwhile is forgotten for
		 * that */
		open_thing(&third, &third_user, true);
		say(&third);
		go_round(3);
		cr_expect_eq(third.n_served, 1);
		close_thing(&third);
		user_turns_deinit(&third_user);
		cr_expect_eq(first.n_served, i);
		cr_expect_eq(second.n_served, i);
	}
	cr_expect_geq(when, 0);
	event_free(left);
}

Test(turns, what_a_turn_leaves_is_done_behind_it_alone)
{
	int when = -1;
	struct event *left = event_new(base, -1, 0, on_left, &when);

	first.leaves = second.leaves = left;
	say(&first);
	say(&second);
	while (when < 0)
		cr_assert(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
	cr_expect_eq(when, 1, "it was done behind %d turns", when);
	event_free(left);
}

Test(turns, so_does_a_timer_that_is_due_at_once)
{
	first.sets_timer = second.sets_timer = true;
	cr_expect_eq(served_in_a_round(), 1);
	first.sets_timer = second.sets_timer = false;
	go_round(2);
	cr_expect_eq(n_turns, 2);
	cr_expect_eq(served_in_a_round(), 2);
}

/* Some of them are found and not served yet when all that the user has ends. */
Test(turns, what_was_found_is_forgotten_with_its_user)
{
	int when = -1;
	struct event *left = event_new(base, -1, 0, on_left, &when);

	first.leaves = second.leaves = left;
	cr_expect_eq(served_in_a_round(), 1);
	close_thing(&first);
	close_thing(&second);
	user_turns_deinit(&user);
	open_thing(&first, &user, true);
	open_thing(&second, &user, true);
	cr_expect_eq(served_in_a_round(), 2);
	event_free(left);
}
