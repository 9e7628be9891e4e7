/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * Why something could not be done: a number for programs and a sentence for people. The function
 * that fails fills it in, and its callers hand it on unchanged. Its content means something only
 * after the function has returned an error, so it needs no initialiser.
 *
 * The number is always a SHARE_E... of <share/error.h>. An errno has other values; only
 * failure_system() turns one into a failure.
 */
struct failure {
	int error; /* SHARE_E... */
	/* What failed is broken as long as this process lives, as the CUDA driver can be after an
	 * error. */
	bool fatal;
	char text[1024];
};

/* Fills @f, with `fatal` false, and returns @error. @f may be NULL when the caller does not need
 * it. */
int failure_set(struct failure *f, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says that @who is out of memory, where that is this process and the caller can do nothing about
 * it. Returns SHARE_ESYSTEM. */
int failure_no_memory(struct failure *f, const char *who);

/* Which limit of this process an errno may be about, for the end of a sentence: " (RLIMIT_FSIZE,
 * ulimit -f, is 1024 KiB)" of EFBIG; of ENOMEM that of addresses, if there is one. Else "". Returns
 * @out. */
#define FAILURE_LIMIT_TEXT 80
const char *failure_limit(int number, char out[FAILURE_LIMIT_TEXT]);

/* Says what an errno means: "@what: No space left on device". Returns SHARE_ENOMEM for errors that
 * say that room is missing, as there may be room later, and SHARE_ESYSTEM for all others. */
int failure_system(struct failure *f, const char *what, int number);
