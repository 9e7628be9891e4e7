/* SPDX-License-Identifier: MIT */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <share/share.h>

/*
 * Waiting for others. It ends in three ways: what is waited for is there, another thread has given
 * the handle up (SHARE_ECANCELED), or the client was interrupted (SHARE_EINTR). The handler of a
 * signal may interrupt, and takes no lock. So whoever waits says first where it is about to sleep,
 * in a place that the client keeps, and looks then whether it is interrupted; the handler says that
 * it is, and wakes whoever is in a place. tests/themes/model/wait.pml is the model.
 *
 * Calls inside a driver (copies, synchronising a stream) end by themselves alone.
 */

/* A count on which threads of this process sleep, in place of a condition variable, as a handler
 * can ring it. All zeros is one that never rang. */
struct bell {
	_Atomic uint32_t count, sleepers;
};
/* What the sleepers look at has changed. */
void bell_ring(struct bell *b);
/* Sleeps until it rings, for at most @timeout_ms, or for nothing; -1: without limit. Called with
 * the lock that guards what is waited for, which it lets go of meanwhile. */
void bell_wait(struct bell *b, pthread_mutex_t *lock, int timeout_ms);
/* The same, where it has not rung since that was its count. */
void bell_wait_from(struct bell *b, uint32_t count, pthread_mutex_t *lock, int timeout_ms);

/* A thread that waits for others. */
struct waiter {
	struct waiter *next; /* of the client's */
	share_client *client;
	atomic_bool taken;
	/* Where it sleeps, or is about to: at a bell; on a word in a page of others; on `fd`. */
	_Atomic(struct bell *) bell;
	_Atomic(const _Atomic uint32_t *) word;
	atomic_bool polls;
	_Atomic uint32_t woken; /* counts */
	int fd;                 /* -1 until it was needed */
	atomic_bool of_client;  /* the call is one with the handle of the client */
};

/* Of a client. */
struct waiters {
	_Atomic(struct waiter *) all; /* none goes before the client does */
	atomic_bool interrupted;
	atomic_bool given_up;   /* the handle of the client */
	_Atomic uint32_t early; /* how often waits were ended that may end early */
};
void waiters_free(share_client *c);

/* One that sleeps nowhere yet. NULL: there is no memory, and fail() was called. */
struct waiter *waiter_take(share_client *c);
void waiter_give_back(struct waiter *w);
/* Wakes it, or has it not fall asleep; for handlers of signals, too. */
void waiter_wake(struct waiter *w);
/* All of a client, or those in calls with its handle. */
void waiters_wake(share_client *c, bool of_client);

/* Whether waits of the program are to end, for who is in its place; and those of calls with the
 * handle of the client, which may have been given up. */
bool wait_is_over(share_client *c, bool of_client);
/* A wait has ended with this error: EINTR counts as an interruption in a thread that has asked for
 * it (share_wait_early()). */
void wait_note_signal(int error);
/* How long a thread sleeps at most that would for so long (-1: without limit), as its waits may end
 * early (share_wait_early()). */
int wait_sleep_ms(int timeout_ms);
/* It is, or was: SHARE_EINTR or SHARE_ECANCELED. */
int wait_why_over(share_client *c, bool of_client);
/* Whether it is interrupted: 0, or SHARE_EINTR. */
int wait_interrupted(share_client *c);
/* SHARE_ECANCELED: another thread has given the handle up. */
int wait_given_up(void);

/* bell_wait() that can be interrupted: 0, or an error. */
int wait_at_bell(share_client *c, struct bell *b, pthread_mutex_t *lock, int timeout_ms);

/* While *word is @value, and *also, if not NULL, @also_value. */
struct word_sleep {
	const _Atomic uint32_t *word, *also;
	uint32_t value, also_value;
};
/* Sleeps on a word of others until it changes, the waiter is woken or the time is over; true if it
 * is. @woken is what w->woken was before @w was in its place, see waiter_at_word(). */
bool waiter_sleep(struct waiter *w, const struct word_sleep *s, uint32_t woken, int timeout_ms);
uint32_t waiter_at_word(struct waiter *w, const _Atomic uint32_t *word);
/* The same in poll(), until @fd is readable: 0, or an error. Where whoever wakes takes a lock to
 * find the waiter, waiter_at_poll() is called with it before. */
void waiter_at_poll(struct waiter *w);
bool waiter_can_poll(struct waiter *w); /* else this process has no descriptor left */
int waiter_poll(struct waiter *w, int fd, int timeout_ms);
/* Of @n descriptors, up to 4, without the look before. */
void waiter_poll_with(struct waiter *w, struct pollfd *p, size_t n, int timeout_ms);
