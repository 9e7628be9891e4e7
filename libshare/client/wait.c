/* SPDX-License-Identifier: MIT */

/*
 * Sleeping, and being woken by those who take no lock. What the kernel waits for is a word of this
 * process's that whoever wakes changes; or a word of others, which can only be woken at. Who is
 * woken there a moment before it falls asleep misses that: so it sleeps on that word alone for a
 * short time, and after that on a word of its own as well. A kernel that cannot wait for several
 * words has us look every now and then.
 */

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <share/private/core.h>

#include "base/clock.h"
#include "base/system/descriptor.h"
#include "libshare/client/inside.h"
#include "libshare/client/wait.h"
#include "libshare/program/error.h"

#define MOST_POLLED            4
#define SLICE_WITHOUT_WAITV_MS 20
#define SHORT_MS               50 /* beyond the next tick: an earlier one is set in the hardware */

/* Of a thread whose waits may end early. */
static _Thread_local struct {
	const share_client *client; /* NULL: they do not */
	uint32_t count;             /* of that client, when they began to */
	int soon_ms;                /* of sleep, or 0 */
	int64_t until;              /* 0: nothing has slept yet, so no clock was asked */
	bool signalled;
} early;

/* How long to sleep at most. Whoever asks has looked whether the wait is over. */
int wait_sleep_ms(int timeout_ms)
{
	int64_t left;

	if (!early.client || early.soon_ms == 0)
		return timeout_ms;
	if (early.until == 0)
		early.until = deadline_from(early.soon_ms);
	left = early.until - (int64_t)clock_ms();
	if (left < 1)
		left = 1;
	return timeout_ms < 0 || left < timeout_ms ? (int)left : timeout_ms;
}

static bool is_early(const share_client *c)
{
	if (early.client && early.until != 0 && (int64_t)clock_ms() >= early.until)
		return true;
	return early.client && (early.signalled || (c == early.client &&
						    atomic_load(&c->waiters.early) != early.count));
}

void wait_note_signal(int error)
{
	if (error == EINTR && early.client)
		early.signalled = true;
}

static void wake(const _Atomic uint32_t *word, int private)
{
	syscall(SYS_futex, word, FUTEX_WAKE | private, INT_MAX, NULL, NULL, 0);
}

void bell_ring(struct bell *b)
{
	atomic_fetch_add(&b->count, 1);
	if (atomic_load(&b->sleepers) > 0)
		wake(&b->count, FUTEX_PRIVATE_FLAG);
}

/* With the count as it was when the lock was held. */
static void sleep_at(struct bell *b, uint32_t count, int timeout_ms)
{
	struct timespec t = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

	if (syscall(SYS_futex, &b->count, FUTEX_WAIT_PRIVATE, count, timeout_ms < 0 ? NULL : &t,
		    NULL, 0) < 0)
		wait_note_signal(errno);
}

/* Who has rung since does not see us, and the count is another one then. */
void bell_wait_from(struct bell *b, uint32_t count, pthread_mutex_t *lock, int timeout_ms)
{
	atomic_fetch_add(&b->sleepers, 1);
	pthread_mutex_unlock(lock);
	sleep_at(b, count, timeout_ms);
	pthread_mutex_lock(lock);
	atomic_fetch_sub(&b->sleepers, 1);
}

void bell_wait(struct bell *b, pthread_mutex_t *lock, int timeout_ms)
{
	bell_wait_from(b, atomic_load(&b->count), lock, timeout_ms);
}

/* ------------------------------------------------------------------------------------------- */

struct waiter *waiter_take(share_client *c)
{
	struct waiter *w = atomic_load(&c->waiters.all), *first;

	for (; w; w = w->next)
		if (!atomic_load_explicit(&w->taken, memory_order_relaxed) &&
		    !atomic_exchange(&w->taken, true))
			return w;
	w = calloc(1, sizeof(*w));
	if (!w) {
		fail_system(-ENOMEM, "waiting for others");
		return NULL;
	}
	w->client = c;
	w->fd = -1;
	atomic_init(&w->taken, true);
	first = atomic_load(&c->waiters.all);
	do
		w->next = first;
	while (!atomic_compare_exchange_weak(&c->waiters.all, &first, w));
	return w;
}

void waiter_give_back(struct waiter *w)
{
	/* who still sees one of these wakes somebody for nothing */
	atomic_store_explicit(&w->bell, NULL, memory_order_relaxed);
	atomic_store_explicit(&w->word, NULL, memory_order_relaxed);
	atomic_store_explicit(&w->polls, false, memory_order_relaxed);
	atomic_store_explicit(&w->of_client, false, memory_order_relaxed);
	atomic_store_explicit(&w->taken, false, memory_order_release);
}

void waiters_free(share_client *c)
{
	struct waiter *w;

	while ((w = atomic_load(&c->waiters.all))) {
		atomic_store(&c->waiters.all, w->next);
		fd_close(w->fd);
		free(w);
	}
}

void waiter_wake(struct waiter *w)
{
	const _Atomic uint32_t *word = atomic_load(&w->word);
	struct bell *bell = atomic_load(&w->bell);
	eventfd_t one = 1;

	atomic_fetch_add(&w->woken, 1);
	if (bell) {
		atomic_fetch_add(&bell->count, 1);
		wake(&bell->count, FUTEX_PRIVATE_FLAG);
	}
	if (word) {
		wake(&w->woken, 0);
		wake(word, 0);
	}
	if (atomic_load(&w->polls) && write(w->fd, &one, sizeof(one)) < 0)
		return; /* it says so already */
}

void waiters_wake(share_client *c, bool of_client)
{
	int error = errno;

	for (struct waiter *w = atomic_load(&c->waiters.all); w; w = w->next)
		if (atomic_load(&w->taken) && (!of_client || atomic_load(&w->of_client)))
			waiter_wake(w);
	errno = error;
}

/* ------------------------------------------------------------------------------------------- */

bool wait_is_over(share_client *c, bool of_client)
{
	return is_early(c) || atomic_load(&c->waiters.interrupted) ||
	       (of_client && atomic_load(&c->waiters.given_up));
}

int wait_why_over(share_client *c, bool of_client)
{
	if (of_client && atomic_load(&c->waiters.given_up))
		return wait_given_up();
	if (is_early(c))
		return fail_constant(SHARE_EINTR, "a signal has come, or the wait was ended");
	return fail_constant(SHARE_EINTR, "the connection was interrupted (share_interrupt())");
}

int wait_interrupted(share_client *c)
{
	return wait_is_over(c, false) ? wait_why_over(c, false) : 0;
}

int wait_given_up(void)
{
	return fail_constant(SHARE_ECANCELED,
			     "the handle was given up by another thread while this one waited");
}

int wait_at_bell(share_client *c, struct bell *b, pthread_mutex_t *lock, int timeout_ms)
{
	struct waiter *w = waiter_take(c);
	uint32_t count;
	int r;

	if (!w)
		return SHARE_ENOMEM;
	atomic_fetch_add(&b->sleepers, 1);
	count = atomic_load(&b->count);
	atomic_store(&w->bell, b);
	r = wait_interrupted(c);
	if (r == 0) {
		pthread_mutex_unlock(lock);
		sleep_at(b, count, wait_sleep_ms(timeout_ms));
		pthread_mutex_lock(lock);
	}
	atomic_fetch_sub(&b->sleepers, 1);
	waiter_give_back(w);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* On words of others                                                                          */

uint32_t waiter_at_word(struct waiter *w, const _Atomic uint32_t *word)
{
	uint32_t woken = atomic_load(&w->woken);

	atomic_store(&w->word, word);
	return woken;
}

#ifdef SYS_futex_waitv
/* False when the kernel has no such thing. */
static bool wait_for_any(const struct waiter *w, const struct word_sleep *s, uint32_t woken,
			 int timeout_ms, bool *timed_out)
{
	static atomic_bool missing;
	struct futex_waitv all[3] = {
	    {.val = s->value, .uaddr = (uintptr_t)s->word, .flags = FUTEX_32},
	    {.val = woken, .uaddr = (uintptr_t)&w->woken, .flags = FUTEX_32},
	    {.val = s->also_value, .uaddr = (uintptr_t)s->also, .flags = FUTEX_32},
	};
	struct timespec until = clock_after_ms(timeout_ms);

	if (atomic_load_explicit(&missing, memory_order_relaxed))
		return false;
	if (syscall(SYS_futex_waitv, all, s->also ? 3 : 2, 0, &until, CLOCK_MONOTONIC) >= 0)
		return true;
	*timed_out = errno == ETIMEDOUT;
	wait_note_signal(errno);
	if (errno == ENOSYS || errno == EPERM)
		atomic_store(&missing, true);
	return !atomic_load(&missing);
}
#else
static bool wait_for_any(const struct waiter *w, const struct word_sleep *s, uint32_t woken,
			 int timeout_ms, bool *timed_out)
{
	(void)w, (void)s, (void)woken, (void)timeout_ms, (void)timed_out;
	return false;
}
#endif

/* True when it was not woken, and its word is what it was. */
static bool wait_for_one(const struct word_sleep *s, int timeout_ms)
{
	struct timespec t = {0, (long)timeout_ms * 1000000};

	if (syscall(SYS_futex, s->word, FUTEX_WAIT, s->value, &t, NULL, 0) >= 0)
		return false;
	wait_note_signal(errno);
	return errno == ETIMEDOUT;
}

/* To wait for several words costs more, and is not worth it where the answer is under way. */
bool waiter_sleep(struct waiter *w, const struct word_sleep *s, uint32_t woken, int timeout_ms)
{
	bool timed_out = false;
	int limit = wait_sleep_ms(timeout_ms);

	/* the wait ends early then, and is not over */
	if (limit != timeout_ms)
		return wait_for_one(s, limit < SHORT_MS ? limit : SHORT_MS) && false;
	if (!wait_for_one(s, timeout_ms < SHORT_MS ? timeout_ms : SHORT_MS))
		return false;
	timeout_ms -= SHORT_MS;
	if (timeout_ms <= 0)
		return true;
	if (wait_for_any(w, s, woken, timeout_ms, &timed_out))
		return timed_out;
	return wait_for_one(s, timeout_ms < SLICE_WITHOUT_WAITV_MS ? timeout_ms
								   : SLICE_WITHOUT_WAITV_MS);
}

bool waiter_can_poll(struct waiter *w)
{
	if (w->fd < 0)
		w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return w->fd >= 0;
}

void waiter_at_poll(struct waiter *w)
{
	atomic_store(&w->polls, waiter_can_poll(w));
}

int waiter_poll(struct waiter *w, int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r =
	    w->fd < 0 ? fail_system(-EMFILE, "waiting for others") : wait_interrupted(w->client);

	if (r == 0)
		waiter_poll_with(w, &p, 1, timeout_ms);
	atomic_store(&w->polls, false);
	return r;
}

void waiter_poll_with(struct waiter *w, struct pollfd *p, size_t n, int timeout_ms)
{
	struct pollfd all[MOST_POLLED + 1];
	eventfd_t ignored;
	int r;

	for (size_t i = 0; i < n; i++)
		all[i] = p[i];
	all[n] = (struct pollfd){.fd = w->fd, .events = POLLIN};
	r = poll(all, n + 1, wait_sleep_ms(timeout_ms));
	if (r < 0)
		wait_note_signal(errno);
	if (r > 0 && all[n].revents)
		eventfd_read(w->fd, &ignored);
	for (size_t i = 0; i < n; i++)
		p[i].revents = (short)(r > 0 ? all[i].revents : 0);
}

/* ------------------------------------------------------------------------------------------- */

/* Says nothing but numbers: it may be called by the handler of a signal. */
int share_set_interrupted(share_client *c, int interrupted)
{
	int r = SHARE_EINVAL;

	hazards_stop();
	c = handle_find(c, HANDLE_CLIENT);
	if (c && client_is_forked(c)) {
		r = SHARE_EFORK;
	} else if (c) {
		atomic_store(&c->waiters.interrupted, interrupted != 0);
		if (interrupted)
			waiters_wake(c, false);
		r = 0;
	}
	hazards_go_on();
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* For an interpreter                                                                          */

share_waits *share_waits_of(share_client *c)
{
	HAZARDS;
	return client_resolve(&c) == 0 ? (void *)c : NULL;
}

int share_wait_early(share_waits *w, int soon_ms)
{
	int was = early.client && is_early(early.client);

	early.signalled = false;
	early.client = (share_client *)(void *)w;
	early.soon_ms = soon_ms;
	early.until = 0;
	if (early.client)
		early.count = atomic_load(&early.client->waiters.early);
	return was;
}

void share_wake_early(share_waits *w)
{
	share_client *c = (void *)w;

	atomic_fetch_add(&c->waiters.early, 1);
	waiters_wake(c, false);
}

static int wait_for(share_client *c, struct waiter *w, struct pollfd *p, size_t n, int timeout_ms)
{
	int64_t deadline = deadline_from(timeout_ms);
	bool any = false;

	if (!waiter_can_poll(w))
		return fail_system(-EMFILE, "waiting for others");
	waiter_at_poll(w);
	while (!any) {
		int left = deadline_left(deadline);

		if (wait_is_over(c, false))
			return wait_why_over(c, false);
		waiter_poll_with(w, p, n, left);
		for (size_t i = 0; i < n; i++)
			any |= p[i].revents != 0;
		if (left == 0)
			break;
	}
	return any;
}

int share_wait_for(share_client *c, const int *fds, size_t n, int timeout_ms)
{
	HAZARDS;
	struct pollfd p[MOST_POLLED];
	struct waiter *w;
	int r = client_resolve(&c);

	if (r == 0 && n > MOST_POLLED)
		r = fail(SHARE_EINVAL, "so many descriptors are not waited for");
	if (r != 0)
		return r;
	for (size_t i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	w = waiter_take(c);
	if (!w)
		return SHARE_ENOMEM;
	r = wait_for(c, w, p, n, timeout_ms);
	waiter_give_back(w);
	return r;
}
