/* SPDX-License-Identifier: MIT */
#pragma once

/* Each sets the calling thread's detail and returns the error to return. */

int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* @text is kept, not copied: for what is no error but an answer, on the way of messages. */
int fail_constant(int error, const char *text);
int fail_system(int negative_errno, const char *what);
/* What the broker answered. */
int fail_remote(int error, const char *text);
int fail_fork(void);

/* From here to the end of the block, failures are nobody's business: something is given up or
 * looked after on the way, perhaps since a call has failed or while one succeeds, and the detail
 * has to stay what it is. Not around what fills in the answer of a call. */
#define DETAIL_STAYS \
	__attribute__((cleanup(detail_changes), unused)) const int detail_stays_ = detail_stays()

int detail_stays(void);
void detail_changes(const int *ignored);

/* From here to the end of the block: if @result is 0 then, the detail is what it is now, whatever
 * has failed on the way. Of an answer that may have an error of its own. */
#define DETAIL_OF(result)                                                                      \
	__attribute__((cleanup(detail_put_back), unused)) struct detail_before detail_before_; \
	detail_before(&(result), &detail_before_)

struct detail_before {
	const int *result;
	const char *constant;
	char text[1024]; /* as long as the detail */
};
void detail_before(const int *result, struct detail_before *before);
void detail_put_back(const struct detail_before *before);

/* A name that the caller gives to something: 0, or SHARE_EINVAL when it cannot be one. */
int name_check(const char *name);

/* What follows a noun of which there are @n. */
static inline const char *plural(unsigned long long n)
{
	return n == 1 ? "" : "s";
}
