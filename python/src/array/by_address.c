/* SPDX-License-Identifier: MIT */

/*
 * The list of the memory that was lent to frameworks. Adding and removing takes a few stores,
 * because both happen for each tensor. Finding an address walks the list, but only a program that
 * passes a tensor on does that. The last entry that was added comes first, because it is passed on
 * most often.
 *
 * This file must not know Python, because deleters call it without the interpreter.
 */

#include <pthread.h>
#include <stdint.h>

#include "python/src/array/by_address.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct by_address *first;

/* The lock is held during a fork, so that the child gets a whole list, whatever other threads were
 * doing. In the child, the entries of the parent are removed like any others, when they end. */
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

void by_address_set(struct by_address *l, share_buffer *b)
{
	pthread_mutex_lock(&lock);
	l->b = b;
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
