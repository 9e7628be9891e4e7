/* SPDX-License-Identifier: MIT */
#ifndef BASE_FAILURE_H
#define BASE_FAILURE_H

#include <stdbool.h>

/*
 * Why something could not be done: a number for programs and a sentence for people, filled in where
 * it happens and handed on as it is. A function that may fail takes one of these; it means
 * something only after that function has said that it failed, so it needs no initialiser.
 *
 * The number is always a SHARE_E... of <share/error.h>. An errno is another thing, with values of
 * its own, and becomes a failure in failure_system() alone.
 */
struct failure {
	int error;  /* SHARE_E... */
	bool fatal; /* what failed is broken for the rest of this process's life, as a driver can be
		     */
	char text[1024];
};

/* Fills @f, not fatal, and returns @error. NULL: nobody asks why. */
int failure_set(struct failure *f, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "@who is out of memory": of this process, and nothing that who asked could do about.
 * SHARE_ESYSTEM. */
int failure_no_memory(struct failure *f, const char *who);

/* For an errno: "@what: No space left on device". SHARE_ENOMEM where room is missing, which may be
 * there later, else SHARE_ESYSTEM. */
int failure_system(struct failure *f, const char *what, int number);

#endif
