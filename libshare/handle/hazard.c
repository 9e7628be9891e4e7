/* SPDX-License-Identifier: MIT */

/* Hazard pointers, as far as they are not on the way of each call: where threads have them, and the
 * ends of objects. */

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mutation.h"
#include "libshare/handle/hazard.h"

/* Of who has none yet. */
static struct hazards none;
static _Thread_local _Atomic(void *) *first_free = &none.at[HAZARDS_AT_ONCE];
atomic_uint hazards_limbo;
bool hazards_fence;

/* Of which callers know nothing, not even which registers it leaves alone. */
#if __has_attribute(noipa)
#define ALONE __attribute__((noipa))
#else
#define ALONE __attribute__((noinline))
#endif

/* By a descriptor (CMakeLists.txt): four instructions where the library came with the program.
 * Until glibc 2.40, the first time in a thread changed registers that such a look-up has to keep,
 * but a call has not: so this is a function and nothing else is in it. */
ALONE _Atomic(void *) **hazards_top(void)
{
	return &first_free;
}

static _Atomic(struct hazards *) all;
static atomic_uint handlers; /* of signals, between hazards_stop() and hazards_go_on() */
static pthread_key_t of_thread;
static bool has_key;

static pthread_mutex_t hazards_lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *limbo; /* with the lock */
/* The same for all of a kind, so that whoever writes it writes what is there. */
static _Atomic(void (*)(void *object)) ends[HANDLE_KINDS];

static int barrier(int what)
{
	return (int)syscall(SYS_membarrier, what, 0, 0);
}

static void give_back(void *data)
{
	struct hazards *h = data;

	/* it may have ended in the middle of a call */
	hazards_leave_others(&none.at[HAZARDS_AT_ONCE]);
	*hazards_top() = &none.at[HAZARDS_AT_ONCE];
	atomic_store_explicit(&h->taken, false, memory_order_release);
}

static void hazards_before_fork(void)
{
	pthread_mutex_lock(&hazards_lock);
}

static void hazards_after_fork(void)
{
	pthread_mutex_unlock(&hazards_lock);
}

/* Of the threads the one that has forked is left, and what was to end is the parent's. */
static void start_anew(void)
{
	struct hazards *h, *mine;

	for (h = atomic_load(&all); h; h = h->next) {
		for (mine = hazards_of(*hazards_top()); mine != &none && mine != h;)
			mine = mine->before;
		if (mine == h)
			continue;
		for (unsigned i = 0; i < HAZARDS_AT_ONCE; i++)
			atomic_store(&h->at[i], NULL);
		atomic_store(&h->taken, false);
	}
	limbo = NULL;
	atomic_fetch_and(&hazards_limbo, HAZARDS_FENCE);
	atomic_store(&handlers, 0);
	pthread_mutex_unlock(&hazards_lock);
}

__attribute__((constructor)) static void prepare(void)
{
	hazards_fence = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
	if (hazards_fence)
		atomic_fetch_or(&hazards_limbo, HAZARDS_FENCE);
	has_key = pthread_key_create(&of_thread, give_back) == 0;
	pthread_atfork(hazards_before_fork, hazards_after_fork, start_anew);
}

/* ------------------------------------------------------------------------------------------- */

static struct hazards *take(void)
{
	struct hazards *h, *first;

	for (h = atomic_load(&all); h; h = h->next)
		if (!atomic_load_explicit(&h->taken, memory_order_relaxed) &&
		    !atomic_exchange(&h->taken, true))
			return h;
	h = aligned_alloc(HAZARDS_ALIGNED, sizeof(*h));
	if (!h)
		return NULL;
	memset(h, 0, sizeof(*h));
	atomic_store_explicit(&h->taken, true, memory_order_relaxed);
	first = atomic_load(&all);
	do
		h->next = first;
	while (!atomic_compare_exchange_weak(&all, &first, h));
	return h;
}

_Atomic(void *) *hazards_more(void)
{
	struct hazards *h = take();

	if (!h)
		return NULL;
	h->before = hazards_of(*hazards_top());
	/* the thread keeps its first one; without a key it is never given back */
	if (h->before == &none && has_key)
		pthread_setspecific(of_thread, h);
	return h->at;
}

static void clear(_Atomic(void *) *from)
{
	for (_Atomic(void *) *at = *hazards_top(); at > from; *hazards_top() = at)
		atomic_store_explicit(--at, NULL, memory_order_release);
}

/* What is said in others that came to it since as well. */
void hazards_leave_others(_Atomic(void *) *from)
{
	struct hazards *h;

	while ((h = hazards_of(*hazards_top())) != hazards_of(from)) {
		clear(h->at);
		if (h->before == &none) /* its first one */
			return;
		*hazards_top() = &h->before->at[HAZARDS_AT_ONCE];
		atomic_store_explicit(&h->taken, false, memory_order_release);
	}
	clear(from);
}

/* ------------------------------------------------------------------------------------------- */

static bool is_in_call(const void *object)
{
	if (MUTATION(end_without_hazards))
		return false;
	for (const struct hazards *h = atomic_load(&all); h; h = h->next)
		for (unsigned i = 0; i < HAZARDS_AT_ONCE; i++)
			if (atomic_load_explicit(&h->at[i], memory_order_acquire) == object)
				return true;
	return false;
}

static enum handle_kind kind_of(const struct handle *h)
{
	return (enum handle_kind)(atomic_load_explicit(&h->word, memory_order_relaxed) >> 40);
}

/* Out of the limbo: those that nobody is about. */
static struct handle *take_out_locked(void)
{
	struct handle *out = NULL, **at = &limbo;

	while (*at && atomic_load(&handlers) == 0) {
		struct handle *h = *at;

		if (is_in_call(h)) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		h->next = out;
		out = h;
		atomic_fetch_sub(&hazards_limbo, 1);
	}
	return out;
}

/* Who was about one of these when it was given up is seen, after the barrier; who says so since
 * finds that the program has it no more. */
void hazards_end_limbo(void)
{
	struct handle *h, *next;

	if (hazards_fence && (atomic_fetch_or(&hazards_limbo, 0) & ~HAZARDS_FENCE) == 0)
		return;
	pthread_mutex_lock(&hazards_lock);
	h = take_out_locked();
	pthread_mutex_unlock(&hazards_lock);
	for (; h; h = next) {
		next = h->next;
		h->next = NULL;
		atomic_load_explicit(&ends[kind_of(h)], memory_order_relaxed)(h);
	}
}

void hazard_end(void *object, void (*end)(void *object))
{
	struct handle *h = object;

	/* before the barrier: who comes out of a call either has done so before it, and that is
	 * seen, or finds that there is something to end */
	atomic_fetch_add(&hazards_limbo, 1);
	if (!hazards_fence && !handle_is_alone() &&
	    barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
		/* it was forbidden since: the object stays, for who may be about it */
		atomic_fetch_sub(&hazards_limbo, 1);
		return;
	}
	pthread_mutex_lock(&hazards_lock);
	atomic_store_explicit(&ends[kind_of(h)], end, memory_order_relaxed);
	h->next = limbo;
	limbo = h;
	pthread_mutex_unlock(&hazards_lock);
	hazards_end_limbo();
}

void hazards_stop(void)
{
	atomic_fetch_add(&handlers, 1);
}

/* What is in the limbo goes with the next call that is over. */
void hazards_go_on(void)
{
	atomic_fetch_sub(&handlers, 1);
}
