/* SPDX-License-Identifier: MIT */

/*
 * An object that the program has given up ends when the last call is over that is about it: not
 * before, and by nobody else; in whichever threads these calls are, and however they end.
 */

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libshare/handle/hazard.h"

struct object {
	struct handle handle;
	atomic_bool lives;
};

static atomic_uint ended;

TestSuite(hazards, .timeout = 60);

static struct object *new_object(void)
{
	struct object *o = handle_new(HANDLE_EVENT, sizeof(*o));

	cr_assert(o);
	atomic_store(&o->lives, true);
	handle_give(o);
	return o;
}

static void end(void *object)
{
	struct object *o = object;

	atomic_store(&o->lives, false);
	atomic_fetch_add(&ended, 1);
	handle_free(o);
}

static void give_up(struct object *o)
{
	cr_assert(handle_take(handle_of(o), HANDLE_EVENT));
	hazard_end(o, end);
}

/* A call in another thread. */
struct call {
	struct object *about;
	unsigned times; /* it says so */
	bool exits;
	pthread_t thread;
	sem_t begun, goes_on;
};

static void *in_call(void *data)
{
	HAZARDS;
	struct call *c = data;
	void *found;

	for (unsigned i = 0; i < c->times; i++)
		cr_assert_eq(hazard_find(handle_of(c->about), HANDLE_EVENT, &found), 0);
	sem_post(&c->begun);
	sem_wait(&c->goes_on);
	if (c->exits)
		pthread_exit(NULL);
	return NULL;
}

static void begin(struct call *c, struct object *about)
{
	c->about = about;
	if (c->times == 0)
		c->times = 1;
	sem_init(&c->begun, 0, 0);
	sem_init(&c->goes_on, 0, 0);
	cr_assert_eq(pthread_create(&c->thread, NULL, in_call, c), 0);
	sem_wait(&c->begun);
}

static void finish(struct call *c)
{
	sem_post(&c->goes_on);
	cr_assert_eq(pthread_join(c->thread, NULL), 0);
}

/* A call, whose end is one of those that look what there is to end. */
static void any_call(void)
{
	HAZARDS;
}

/* ------------------------------------------------------------------------------------------- */

Test(hazards, what_nobody_is_about_ends_at_once)
{
	give_up(new_object());
	cr_assert_eq(atomic_load(&ended), 1);
}

Test(hazards, what_others_are_about_ends_with_the_last_of_them)
{
	struct object *o = new_object(), *other = new_object();
	struct call first = {0}, second = {0}, third = {0};
	void *found;

	begin(&first, o);
	begin(&second, o);
	begin(&third, other);
	give_up(o);
	cr_assert_eq(atomic_load(&ended), 0);
	cr_assert_neq(hazard_find(handle_of(o), HANDLE_EVENT, &found), 0);
	any_call();
	finish(&first);
	cr_assert_eq(atomic_load(&ended), 0);
	cr_assert(atomic_load(&o->lives));
	hazards_leave_others(*hazards_top() - 1); /* this thread has asked for it, too */
	finish(&second);
	cr_assert_eq(atomic_load(&ended), 1);
	finish(&third);
	give_up(other);
	cr_assert_eq(atomic_load(&ended), 2);
}

Test(hazards, a_call_may_be_about_more_than_there_is_room_for_in_one_place)
{
	struct object *o = new_object();
	struct call many = {.times = 5 * HAZARDS_AT_ONCE}, again = {.times = HAZARDS_AT_ONCE};

	begin(&many, o);
	begin(&again, o);
	give_up(o);
	finish(&again);
	cr_assert_eq(atomic_load(&ended), 0);
	finish(&many);
	cr_assert_eq(atomic_load(&ended), 1);
	/* and then they have places again, as those before */
	o = new_object();
	begin(&many, o);
	finish(&many);
	give_up(o);
	cr_assert_eq(atomic_load(&ended), 2);
}

static void inner(struct object *o)
{
	HAZARDS;
	void *found;

	cr_assert(hazard_is_set(o));
	for (unsigned i = 0; i < 2 * HAZARDS_AT_ONCE; i++)
		cr_assert_eq(hazard_find(handle_of(o), HANDLE_EVENT, &found), 0);
}

static void outer(struct object *o)
{
	HAZARDS;
	void *found;

	cr_assert_eq(hazard_find(handle_of(o), HANDLE_EVENT, &found), 0);
	inner(o);
	cr_assert(hazard_is_set(o));
	give_up(o);
	any_call();
	cr_assert_eq(atomic_load(&ended), 0);
}

Test(hazards, what_is_given_up_in_a_call_about_it_ends_after_that)
{
	outer(new_object());
	cr_assert_eq(atomic_load(&ended), 1);
}

Test(hazards, a_thread_that_ends_in_the_middle_of_a_call_is_out_of_it)
{
	struct object *o = new_object();
	struct call call = {.times = 2 * HAZARDS_AT_ONCE, .exits = true};

	begin(&call, o);
	give_up(o);
	cr_assert_eq(atomic_load(&ended), 0);
	finish(&call);
	any_call();
	cr_assert_eq(atomic_load(&ended), 1);
}

Test(hazards, a_child_is_in_no_call_of_its_parents)
{
	struct object *o = new_object();
	struct call call = {0};
	int status;
	pid_t pid;

	begin(&call, o);
	pid = fork();
	if (pid == 0) {
		give_up(o);
		_exit(atomic_load(&ended) == 1 ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	give_up(o);
	cr_assert_eq(atomic_load(&ended), 0);
	finish(&call);
	cr_assert_eq(atomic_load(&ended), 1);
}

Test(hazards, nothing_ends_while_the_handler_of_a_signal_looks)
{
	hazards_stop();
	give_up(new_object());
	any_call();
	cr_assert_eq(atomic_load(&ended), 0);
	hazards_go_on();
	any_call();
	cr_assert_eq(atomic_load(&ended), 1);
}

/* ------------------------------------------------------------------------------------------- */

#define ROUNDS 30000

static _Atomic(void *) current;
static atomic_bool over, found_dead;

static bool look(void)
{
	HAZARDS;
	const struct object *o;
	void *found;

	if (hazard_find(atomic_load(&current), HANDLE_EVENT, &found) != 0)
		return false;
	o = found;
	for (unsigned i = 0; i < 20; i++)
		if (!atomic_load(&o->lives))
			atomic_store(&found_dead, true);
	return true;
}

static void *look_again_and_again(void *data)
{
	(void)data;
	while (!atomic_load(&over))
		look();
	return NULL;
}

Test(hazards, who_finds_an_object_finds_it_alive)
{
	pthread_t lookers[2];

	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&lookers[i], NULL, look_again_and_again, NULL), 0);
	for (unsigned i = 0; i < ROUNDS && !atomic_load(&found_dead); i++) {
		struct object *o = new_object();

		atomic_store(&current, handle_of(o));
		for (unsigned k = 0; k < i % 8; k++)
			look();
		give_up(o);
	}
	atomic_store(&over, true);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(pthread_join(lookers[i], NULL), 0);
	cr_assert_not(atomic_load(&found_dead));
	any_call();
	cr_assert_eq(atomic_load(&hazards_limbo) & ~HAZARDS_FENCE, 0);
}
