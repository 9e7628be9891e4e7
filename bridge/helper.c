/* SPDX-License-Identifier: MIT */

#include "bridge/helper.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "base/system/thread.h"
#include "bridge/bridge.h"

enum { NONE, WAITS, OVER };

TAILQ_HEAD(tasks, task);

struct helper {
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows, up to the gap, and of tasks that are there */
	pthread_cond_t come, over;
	struct tasks waiting, done;
	bool ends;

	struct event *readable;
	int bell; /* an eventfd: the first thread has something to look at */
};

static void *run_tasks(void *arg)
{
	const uint64_t one = 1;
	struct helper *h = arg;
	struct task *t;

	pthread_mutex_lock(&h->lock);
	while (!h->ends) {
		t = TAILQ_FIRST(&h->waiting);
		if (!t) {
			pthread_cond_wait(&h->come, &h->lock);
			continue;
		}
		TAILQ_REMOVE(&h->waiting, t, next);
		pthread_mutex_unlock(&h->lock);
		t->run(t);
		pthread_mutex_lock(&h->lock);
		t->state = OVER;
		if (TAILQ_EMPTY(&h->done) && write(h->bell, &one, sizeof(one)) < 0)
			abort(); /* it has room for more than there can be */
		TAILQ_INSERT_TAIL(&h->done, t, next);
		pthread_cond_signal(&h->over);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

static struct task *take_done(struct helper *h)
{
	struct task *t;

	pthread_mutex_lock(&h->lock);
	t = TAILQ_FIRST(&h->done);
	if (t) {
		TAILQ_REMOVE(&h->done, t, next);
		t->state = NONE;
	}
	pthread_mutex_unlock(&h->lock);
	return t;
}

static void on_bell(evutil_socket_t fd, short what, void *arg)
{
	struct helper *h = arg;
	struct task *t;
	uint64_t times;

	(void)what;
	if (read(fd, &times, sizeof(times)) < 0)
		return; /* somebody has waited for it */
	while ((t = take_done(h)) != NULL)
		t->done(t);
}

void helper_do(struct bridge *b, struct task *t)
{
	struct helper *h = b->helper;

	pthread_mutex_lock(&h->lock);
	t->state = WAITS;
	TAILQ_INSERT_TAIL(&h->waiting, t, next);
	pthread_cond_signal(&h->come);
	pthread_mutex_unlock(&h->lock);
}

void helper_wait(struct bridge *b, struct task *t)
{
	struct helper *h = b->helper;

	pthread_mutex_lock(&h->lock);
	if (t->state != NONE) {
		while (t->state != OVER)
			pthread_cond_wait(&h->over, &h->lock);
		TAILQ_REMOVE(&h->done, t, next);
		t->state = NONE;
	}
	pthread_mutex_unlock(&h->lock);
}

int helper_open(struct bridge *b)
{
	struct helper *h = b->helper = calloc(1, sizeof(*h));

	if (!h)
		return -1;
	TAILQ_INIT(&h->waiting);
	TAILQ_INIT(&h->done);
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->come, NULL);
	pthread_cond_init(&h->over, NULL);
	h->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->bell >= 0)
		h->readable = event_new(b->base, h->bell, EV_READ | EV_PERSIST, on_bell, h);
	if (h->readable && event_add(h->readable, NULL) == 0 &&
	    thread_start(&h->thread, run_tasks, h) == 0)
		return 0;
	say("there is no second thread");
	if (h->readable)
		event_free(h->readable);
	fd_close(h->bell);
	free(h);
	b->helper = NULL;
	return -1;
}

void helper_close(struct bridge *b)
{
	struct helper *h = b->helper;

	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->ends = true;
	pthread_cond_signal(&h->come);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	event_free(h->readable);
	fd_close(h->bell);
	pthread_cond_destroy(&h->come);
	pthread_cond_destroy(&h->over);
	pthread_mutex_destroy(&h->lock);
	free(h);
	b->helper = NULL;
}
