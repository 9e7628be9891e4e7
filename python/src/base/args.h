/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/object.h"

/* wait.c: time limits in seconds, and waits that ^C ends */

struct wait {
	int64_t deadline; /* in ms of CLOCK_MONOTONIC; -1: none */
	int look_ms; /* for how long the next call may wait before signals are looked at; 0: long */
	bool once;   /* the time limit is 0 */
	struct listener *listener; /* which hears of signals then; NULL: there is none */
};

/* Starts a time limit of @timeout seconds; NULL or None: no limit. Returns false with an
 * exception. */
bool wait_begin(struct wait *w, PyObject *timeout);
/* Returns how many ms the next call of the library may wait; -1: without limit. */
int wait_ms(const struct wait *w);
bool wait_is_over(const struct wait *w);
/* Around a call of the library that waits: a signal, or handle_close(), ends it early from here on.
 */
void wait_starts(struct wait *w, const struct handle *h);
/* To be called after it, with what it has returned. Returns 1 to call it again, as it was ended
 * early; 0: its answer counts; -1 with an exception, which a signal may have caused. */
int wait_again(struct wait *w, const struct handle *h, int r);
/* In place of calling it again. */
void wait_ends(struct wait *w);
/* Makes a call that waits without the GIL, and again where it was ended early; @r is its answer,
 * and
 * @again as wait_again() says. Nobody closes @h between the look and the call, as closing wakes. */
#define WAITING(w, h, again, r, call)           \
	do {                                    \
		wait_starts(w, h);              \
		if ((h)->closed)                \
			(r) = SHARE_EINTR;      \
		else                            \
			UNLOCKED((r) = (call)); \
		(again) = wait_again(w, h, r);  \
	} while ((again) > 0)
/* Sleeps without the GIL, for something that nothing signals. */
void wait_a_moment(int ms);

/* listener.c: signals that come while the main thread waits, and interrupt no sleep */

bool listener_ready(void);
/* From now on signals end the waits by this connection, until listener_end(), until which the
 * connection stays. Who has started it looks for signals once more then. 1: it listens; 0: signals
 * are not handled in this thread; -1: it cannot. */
int listener_start(share_waits *waits, struct listener **out);
void listener_end(struct listener *l);
/* It has heard of some since listener_forget(), after which one looks for them. */
bool listener_has_heard(const struct listener *l);
void listener_forget(struct listener *l);
/* _listeners_forget(): in a child that was forked while some listened, whose signals are not the
 * parent's. */
PyObject *listeners_forget(PyObject *module, PyObject *nothing);

/* args.c */

/* Puts the arguments of a METH_FASTCALL | METH_KEYWORDS function into @out, in the order of @names
 * (borrowed; NULL: not given). @names ends with NULL. The first @required arguments must be given,
 * and those from @keyword_only on must be named. Returns false with an exception. */
struct signature {
	const char *function;
	const char *names[12];
	int required, keyword_only;
	PyObject *interned[12];
};
bool args_spread(struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
		 PyObject **out);
/* The UTF-8 of a name, which @o keeps. Returns NULL with an exception if it is no text, or has a
 * NUL. */
const char *arg_text(PyObject *o);
/* Read a whole number. Return false with an exception if it is none or does not fit. If @o is NULL,
 * @out is left as it is. */
bool arg_uint64(PyObject *o, uint64_t *out);
bool arg_int64(PyObject *o, int64_t *out);
/* Reads 'r' or 'rw' as enum share_access. Returns false with an exception. */
bool mode_from(PyObject *o, uint32_t *out);
/* Returns false with an exception if it has another size. */
bool token_from(const char *bytes, Py_ssize_t n, share_token *out);
