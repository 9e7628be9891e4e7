/* SPDX-License-Identifier: MIT */

/*
 * Errors: numbers to words, and the sentence that says what happened in this thread. The library
 * never logs; this is all it says.
 */

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <share/share.h>

#include "base/failure.h"
#include "libshare/program/error.h"

static _Thread_local char detail[sizeof(((struct detail_before *)NULL)->text)];
static _Thread_local const char *constant; /* instead of it */
static _Thread_local unsigned staying;     /* blocks with DETAIL_STAYS around this call */

const char *share_strerror(int error)
{
	switch (error) {
#define CASE(name, number, text) \
	case number:             \
		return text;
		SHARE_ERRORS(CASE)
#undef CASE
	default:
		return error >= 0 ? "success" : "unknown error";
	}
}

const char *share_error_detail(void)
{
	return constant ? constant : detail;
}

const char *share_version(void)
{
	return SHARE_VERSION;
}

int detail_stays(void)
{
	return (int)++staying;
}

void detail_changes(const int *ignored)
{
	(void)ignored;
	staying--;
}

void detail_before(const int *result, struct detail_before *before)
{
	before->result = result;
	before->constant = constant;
	memcpy(before->text, detail, strlen(detail) + 1);
}

void detail_put_back(const struct detail_before *before)
{
	if (*before->result != 0)
		return;
	constant = before->constant;
	memcpy(detail, before->text, strlen(before->text) + 1);
}

int fail(int error, const char *format, ...)
{
	va_list args;

	if (staying > 0)
		return error;
	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	constant = NULL;
	return error;
}

int fail_constant(int error, const char *text)
{
	if (staying == 0)
		constant = text;
	return error;
}

int fail_system(int r, const char *what)
{
	char limit[FAILURE_LIMIT_TEXT];

	if (r == -ENOMEM)
		return fail(SHARE_ENOMEM, "%s: this process is out of memory%s", what,
			    failure_limit(ENOMEM, limit));
	return fail(SHARE_ESYSTEM, "%s: %s", what, strerror(-r));
}

/* The broker looks no names up, so it says "user 1000 may not ...". */
int fail_remote(int error, const char *text)
{
	struct passwd entry, *found = NULL;
	char space[1024];
	unsigned uid;
	int n = 0;

	if (error == SHARE_EACCES && sscanf(text, "user %u%n", &uid, &n) == 1 && uid == geteuid() &&
	    getpwuid_r(uid, &entry, space, sizeof(space), &found) == 0 && found)
		return fail(error, "user %s (%u)%s", entry.pw_name, uid, text + n);
	return fail(error, "%s", text);
}

int name_check(const char *name)
{
	size_t size = name ? strnlen(name, SHARE_NAME_MAX + 1) : 0;

	/* UTF-8 and control characters are the broker's to judge; it does not take our word */
	if (size == 0 || size > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL,
			    "a name is 1 to %d bytes of UTF-8 without control characters",
			    SHARE_NAME_MAX);
	return 0;
}

int fail_fork(void)
{
	return fail(SHARE_EFORK,
		    "this handle belongs to the parent process: connect again in the child");
}
