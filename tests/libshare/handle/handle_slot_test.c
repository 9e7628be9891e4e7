/* SPDX-License-Identifier: MIT */

/*
 * Where objects are that programs have handles of: how long an old handle is known, and what
 * sanitizers can see.
 */

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/error.h>

#include "libshare/handle/handle.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

struct object {
	struct handle handle;
	unsigned char bytes[300];
};

TestSuite(handle_slots, .timeout = 60);

static void *new_handle(void)
{
	struct object *o = handle_new(HANDLE_EVENT, sizeof(*o));

	cr_assert(o);
	for (size_t i = 0; i < sizeof(o->bytes); i++)
		cr_assert_eq(o->bytes[i], 0);
	memset(o->bytes, 0xff, sizeof(o->bytes));
	return handle_give(o);
}

static void give_up(void *handle)
{
	struct object *o = handle_take(handle, HANDLE_EVENT);

	cr_assert(o);
	handle_free(o);
}

Test(handle_slots, a_handle_is_no_address_and_of_one_kind)
{
	void *handle = new_handle();

	cr_assert_neq(handle, handle_object(handle));
	cr_assert_eq(handle_find(handle, HANDLE_EVENT), handle_object(handle));
	cr_assert_null(handle_find(handle_object(handle), HANDLE_EVENT));
	cr_assert_null(handle_find(handle, HANDLE_WATCH));
	cr_assert_null(handle_take(handle, HANDLE_WATCH));
	cr_assert_null(handle_find(NULL, HANDLE_EVENT));
	cr_assert_null(handle_take(NULL, HANDLE_EVENT));
	cr_assert_eq(handle_fault(handle, HANDLE_WATCH), SHARE_EINVAL);
	give_up(handle);
	cr_assert_null(handle_take(handle, HANDLE_EVENT));
}

/* As share.h says. @n of them are there at any time. */
static void expect_long_memory(size_t n)
{
	void *old[64], *now[64];

	for (size_t i = 0; i < n; i++)
		old[i] = new_handle();
	for (size_t i = 0; i < n; i++)
		give_up(old[i]);
	for (size_t lives = 0; lives + n <= 16000; lives += n) {
		for (size_t i = 0; i < n; i++)
			now[i] = new_handle();
		for (size_t i = 0; i < n; i++)
			cr_assert(!handle_find(old[i], HANDLE_EVENT), "known for %zu lives", lives);
		for (size_t i = 0; i < n; i++)
			give_up(now[i]);
	}
}

Test(handle_slots, an_old_handle_is_known_for_16000_lives_one_after_the_other)
{
	expect_long_memory(1);
}

Test(handle_slots, an_old_handle_is_known_for_16000_lives_of_many_at_a_time)
{
	expect_long_memory(64);
}

/* What is used again is not more than what has to wait. */
Test(handle_slots, slots_are_used_again)
{
	size_t slots = 0;
	void *seen[200];

	for (size_t lives = 0; lives < 200000; lives++) {
		void *handle = new_handle(), *object = handle_object(handle);
		size_t i = 0;

		while (i < slots && seen[i] != object)
			i++;
		if (i == slots) {
			cr_assert_lt(slots, sizeof(seen) / sizeof(*seen));
			seen[slots++] = object;
		}
		give_up(handle);
	}
}

Test(handle_slots, references_are_taken_one_by_one)
{
	void *handle = new_handle();

	handle_keep(handle_object(handle));
	cr_assert(handle_take(handle, HANDLE_EVENT));
	cr_assert(handle_find(handle, HANDLE_EVENT));
	cr_assert(handle_take(handle, HANDLE_EVENT));
	cr_assert_null(handle_find(handle, HANDLE_EVENT));
	cr_assert_null(handle_take(handle, HANDLE_EVENT));
	/* it is there, and given out again is another one */
	cr_assert(handle_exists(handle, HANDLE_EVENT));
	cr_assert_neq(handle_give_again(handle_object(handle)), handle);
	cr_assert(!handle_exists(handle, HANDLE_EVENT));
	handle_free(handle_object(handle));
}

Test(handle_slots, a_loan_is_taken_by_its_holder_alone)
{
	struct object *o = handle_new(HANDLE_EVENT, sizeof(*o));
	void *handle = handle_lend(o);

	cr_assert(handle_find(handle, HANDLE_EVENT));
	cr_assert_null(handle_take(handle, HANDLE_EVENT));
	handle_keep(o);
	cr_assert(handle_take(handle, HANDLE_EVENT));
	cr_assert(handle_take_lent(handle, HANDLE_EVENT));
	cr_assert(!handle_take_lent(handle, HANDLE_EVENT));
	cr_assert_null(handle_find(handle, HANDLE_EVENT));
	handle_keep_lent(o);
	cr_assert(handle_take_lent(handle, HANDLE_EVENT));
	handle_free(o);
}

/* ------------------------------------------------------------------------------------------- */

static _Atomic int enough;

static void *make_and_free(void *data)
{
	(void)data;
	while (!enough)
		handle_free(handle_new(HANDLE_EVENT, sizeof(struct object)));
	return NULL;
}

Test(handle_slots, a_forked_child_of_a_busy_process_has_slots)
{
	pthread_t busy;

	cr_assert_eq(pthread_create(&busy, NULL, make_and_free, NULL), 0);
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			give_up(new_handle());
			_exit(0);
		}
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	enough = 1;
	pthread_join(busy, NULL);
}

#if defined(__SANITIZE_ADDRESS__)
Test(handle_slots, what_is_free_is_poison)
{
	void *handle = new_handle();
	struct object *o = handle_object(handle);

	cr_assert(!__asan_address_is_poisoned(o->bytes));
	give_up(handle);
	for (size_t i = 0; i < sizeof(o->bytes); i++)
		cr_assert(__asan_address_is_poisoned(&o->bytes[i]));
	cr_assert(!__asan_address_is_poisoned(&o->handle));
}

/* Of what LeakSanitizer finds nothing is to be read: then this test would have failed. */
static int count_leaks(void)
{
	int errors = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY), found;

	dup2(nowhere, STDERR_FILENO);
	found = __lsan_do_recoverable_leak_check();
	dup2(errors, STDERR_FILENO);
	close(errors);
	close(nowhere);
	return found;
}

/* Out of its sight, and out of the stack's. */
static __attribute__((noinline)) uintptr_t hidden_handle(void)
{
	return ~(uintptr_t)new_handle();
}

Test(handle_slots, what_a_program_loses_leaksanitizer_finds)
{
	void *handle = new_handle();
	uintptr_t hidden[20]; /* of some there may be a trace in a register */

	cr_assert_eq(count_leaks(), 0); /* a handle is as good as an address */
	for (size_t i = 0; i < 20; i++)
		hidden[i] = hidden_handle();
	cr_assert_neq(count_leaks(), 0);
	for (size_t i = 0; i < 20; i++)
		give_up((void *)~hidden[i]);
	cr_assert_eq(count_leaks(), 0);
	give_up(handle);
}
#endif
