/* SPDX-License-Identifier: MIT */

/*
 * What a test says when it fails. Knows three places where that may happen: the test's main thread,
 * which Criterion wants to hear of; any other thread and a plain program, which can only end the
 * process; and a forked child, which must not talk to Criterion at all.
 */

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/check.h"

void (*check_on_failure)(void);

static atomic_bool failed;
static bool in_child;

void check_in_child(void)
{
	in_child = true;
}

bool check_has_failed(void)
{
	return failed;
}

void check_failed(const char *file, int line, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "%s:%d: %s%s\n", file, line, in_child ? "in a child: " : "", text);
	failed = true;
	if (in_child || gettid() != getpid() || !check_on_failure)
		_exit(1);
	check_on_failure();
}

void check_result(const char *file, int line, const char *text, int64_t got, int64_t wanted)
{
	if (got < 0 && strcmp(share_error_name((int)got), "SHARE_E?") == 0)
		check_failed(file, line, "%s: %" PRId64 " is none of the library's errors", text,
			     got);
	if (got == wanted)
		return;
	check_failed(file, line, "%s: %" PRId64 " %s (%s), not %s", text, got,
		     share_error_name((int)got), got < 0 ? share_error_detail() : "",
		     share_error_name((int)wanted));
}

void check_equal(const char *file, int line, const char *text, uint64_t a, uint64_t b)
{
	if (a != b)
		check_failed(file, line, "%s: %" PRIu64 " and %" PRIu64, text, a, b);
}

void check_detail_has(const char *file, int line, const char *part)
{
	if (!strstr(share_error_detail(), part))
		check_failed(file, line, "the detail says \"%s\", not \"%s\"", share_error_detail(),
			     part);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct deadline deadline_in(int ms)
{
	const char *limit = getenv("SHARE_TEST_LIMIT_MS");

	if (limit && atoi(limit) < ms)
		ms = atoi(limit);
	return (struct deadline){now_ms() + ms};
}

bool deadline_pause(const struct deadline *d)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
	return now_ms() < d->end_ms;
}
