/* SPDX-License-Identifier: MIT */

/*
 * The list of what frameworks have of our memory. Adding and removing is a few stores, as both are
 * part of each tensor's life; to find something is to walk the list, which only those do who hand a
 * tensor on. It begins with what was lent last, as that is what is handed on most often.
 *
 * It knows nothing of Python, as deleters run without it.
 */

#include <pthread.h>
#include <stdint.h>

#include "python/src/by_address.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct by_address *first;

/* A forked child has all of the list, whatever other threads were at: what is its parent's there is
 * taken out like anything else, when it ends. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

void by_address_add(struct by_address *l)
{
	pthread_mutex_lock(&lock);
	l->next = first;
	l->back = &first;
	if (first)
		first->back = &l->next;
	first = l;
	pthread_mutex_unlock(&lock);
}

void by_address_remove(struct by_address *l)
{
	pthread_mutex_lock(&lock);
	*l->back = l->next;
	if (l->next)
		l->next->back = l->back;
	pthread_mutex_unlock(&lock);
}

static bool holds(share_buffer *b, const void *address)
{
	uintptr_t start = (uintptr_t)share_ptr(b), at = (uintptr_t)address;

	return start != 0 && at >= start && at - start < share_size(b);
}

bool by_address_find(const void *address, struct by_address *out)
{
	struct by_address *l;

	pthread_mutex_lock(&lock);
	for (l = first; l; l = l->next)
		if (holds(l->b, address))
			break;
	if (l) {
		*out = *l;
		share_retain(l->b);
	}
	pthread_mutex_unlock(&lock);
	return l != NULL;
}
