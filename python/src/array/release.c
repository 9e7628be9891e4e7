/* SPDX-License-Identifier: MIT */

/*
 * Releases references in destructors, which cannot fail. A stream that is being captured takes no
 * signal. So a reference that has to be released behind such a stream waits in a list here until
 * the next release. The owner of the stream waits with it, because to the driver a stream that was
 * destroyed is a wild pointer.
 *
 * This file must not use Python: the deleter of a DLPack tensor can run in any thread, even when no
 * interpreter is left.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <share/private/core.h>
#include <share/share.h>

struct later {
	struct later *next;
	share_buffer *b;
	void *stream, *owner;
};

static pthread_mutex_t releases_lock = PTHREAD_MUTEX_INITIALIZER;
static struct later *first_release;

void *release_behind(share_buffer *b, void *stream, void *owner);
void stream_drop(void *owner);
bool release_at_once(share_buffer *b);

/* Returns 0 when the reference is gone, and SHARE_ENOTSUP when the stream is being captured. */
static int try(share_buffer *b, void *stream)
{
	int r = share_release(b, stream);

	if (r == SHARE_EINVAL && stream)
		r = share_release(b, NULL);
	return r == SHARE_ENOTSUP ? r : 0;
}

static void put_off(share_buffer *b, void *stream, void *owner)
{
	struct later *l = malloc(sizeof(*l));

	if (!l) /* both are leaked until the process ends */
		return;
	*l = (struct later){.b = b, .stream = stream, .owner = owner};
	pthread_mutex_lock(&releases_lock);
	l->next = first_release;
	first_release = l;
	pthread_mutex_unlock(&releases_lock);
}

static void try_again(void)
{
	struct later *all, *next;

	pthread_mutex_lock(&releases_lock);
	all = first_release;
	first_release = NULL;
	pthread_mutex_unlock(&releases_lock);
	for (; all; all = next) {
		next = all->next;
		if (try(all->b, all->stream) == 0)
			stream_drop(all->owner);
		else
			put_off(all->b, all->stream, all->owner);
		free(all);
	}
}

bool release_at_once(share_buffer *b)
{
	return !__atomic_load_n(&first_release, __ATOMIC_RELAXED) && share_try_release(b) == 0;
}

void *release_behind(share_buffer *b, void *stream, void *owner)
{
	if (__atomic_load_n(&first_release, __ATOMIC_RELAXED))
		try_again();
	if (try(b, stream) == 0)
		return owner;
	put_off(b, stream, owner);
	return NULL;
}
