/* SPDX-License-Identifier: MIT */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include <share/share.h>

/*
 * Assertions that work in a Criterion test, in a plain program, in a forked child and in any
 * thread: what fails says so on stderr and ends the test (or the child, or the program).
 */

/* Called by the failing test's main thread in its first process; does not return when it is set.
 * The fixture sets it to Criterion's. */
extern void (*check_on_failure)(void);

void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Something in this process has failed: do not look for what it left behind. */
bool check_has_failed(void);
/* From now on, failing means to exit with 1. For forked children. */
void check_in_child(void);

void check_result(const char *file, int line, const char *text, int64_t got, int64_t wanted);
void check_equal(const char *file, int line, const char *text, uint64_t a, uint64_t b);

#define check(condition) \
	((condition) ? (void)0 : check_failed(__FILE__, __LINE__, "not so: %s", #condition))
/* A function of libshare returns 0, or this error. */
#define check_ok(call)           check_result(__FILE__, __LINE__, #call, (call), 0)
#define check_error(call, error) check_result(__FILE__, __LINE__, #call, (call), (error))
#define check_eq(a, b)           check_equal(__FILE__, __LINE__, #a " == " #b, (uint64_t)(a), (uint64_t)(b))
/* Of the last failing call in this thread. */
#define check_detail(part) check_detail_has(__FILE__, __LINE__, (part))
void check_detail_has(const char *file, int line, const char *part);
/* It was called with a handle, or a message, that was given up. */
#define check_given_up(call)                     \
	do {                                     \
		check_error(call, SHARE_EINVAL); \
		check_detail("given up");        \
	} while (0)

/*
 * Waiting for something that has to come true, without sleeping for a guessed time: the condition
 * is looked at until it holds. How long that may take is no part of the test; the limit is there so
 * that a test which waits for ever says what it was waiting for.
 * $SHARE_TEST_LIMIT_MS makes it shorter where a rule is broken on purpose.
 */
#define HARNESS_LIMIT_MS 30000

struct deadline {
	int64_t end_ms;
};
struct deadline deadline_in(int ms);
/* False when the time is over, else after a moment. */
bool deadline_pause(const struct deadline *d);

#define until(condition)                                                                       \
	for (struct deadline until_ = deadline_in(HARNESS_LIMIT_MS); !(condition);)            \
		if (!deadline_pause(&until_)) {                                                \
			check_failed(__FILE__, __LINE__, "this never came true: " #condition); \
			break;                                                                 \
		}
