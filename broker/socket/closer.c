/* SPDX-License-Identifier: MIT */

/*
 * Threads that close sockets in which descriptors of a stranger may lie unread. No request but
 * ADOPT carries descriptors, and a client may send some all the same. When the broker closes the
 * socket, the kernel throws these descriptors away, too. If such a descriptor was the last one of
 * its file, the thread that closes waits until the file has ended: a TCP socket that lingers, until
 * its peer has read everything; a file in memory, until all its pages are free. The broker's loop
 * must not wait, so a thread does.
 *
 * A client that has said that it will adopt memory brings descriptors in its own socket, which the
 * broker takes as they are, and closes here as well: they may be of anything, and a file in memory
 * may be large.
 *
 * Where the kernel can do that (SO_PASSRIGHTS, Linux 6.16), the listening socket refuses
 * descriptors, and the sockets that it accepts inherit this. Then nothing can lie unread in them,
 * and the loop closes them itself. On older kernels the broker looks whether a packet carries
 * descriptors before it takes the packet, drops the client if it does, and leaves every socket in
 * which some may lie to these threads.
 *
 * A close that lingers ends as soon as the thread gets a signal. A timer sends the thread signals
 * while it closes, so a lingering socket costs a moment, however many there are. Other files cost
 * the time that the kernel needs to end them, and some (of a device or a network, for example)
 * ignore the signal. Therefore each of the few threads closes for one user at a time: a user who
 * sends many such files holds up one thread only, and the others go on.
 *
 * A process that exits does not wait for these threads.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/system/descriptor.h"
#include "base/system/thread.h"
#include "broker/broker.h"
#include "broker/keeper/kept.h"
#include "broker/socket/closer.h"

#define THREADS_MAX      4
#define AGAIN_MS         20
#define TICK_NANOSECONDS 100000
#define TICK_SIGNAL      SIGALRM

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct closing {
	STAILQ_ENTRY(closing) link;
	struct closer *closer;
	int fd;
	uid_t uid;
};

struct closer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	STAILQ_HEAD(, closing) queue;
	size_t n_waiting; /* in the queue, and being closed */
	struct {
		bool busy;
		uid_t uid;
	} threads[THREADS_MAX];
	unsigned n_threads, n_idle;
	unsigned refs; /* the broker's, and the threads' */
	bool ended;

	struct broker *broker;
	struct event *again; /* tries to start a thread again after that has failed */
};

/* The closer of a broker that has ended, and that threads still use. Nobody reads this: it shows
 * leak checkers that the memory is not lost. */
static struct closer *volatile left_to_threads;

static void on_tick(int signal)
{
	(void)signal;
}

static void unref_locked(struct closer *c)
{
	unsigned left = --c->refs;
	struct closing *closing;

	pthread_mutex_unlock(&c->lock);
	if (left > 0)
		return;
	while ((closing = STAILQ_FIRST(&c->queue))) {
		STAILQ_REMOVE_HEAD(&c->queue, link);
		free(closing);
	}
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->changed);
	free(c);
}

/* ------------------------------------------------------------------------------------------- */
/* A thread                                                                                    */

static bool has_thread(const struct closer *c, uid_t uid)
{
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (c->threads[i].busy && c->threads[i].uid == uid)
			return true;
	return false;
}

/* The first socket in the queue of a user for whom no thread works. */
static struct closing *next_locked(struct closer *c)
{
	struct closing *closing;

	STAILQ_FOREACH (closing, &c->queue, link)
		if (!has_thread(c, closing->uid))
			return closing;
	return NULL;
}

/* Makes the timer of this thread. False when there is none: then a socket that lingers takes its
 * time. */
static bool make_timer(timer_t *out)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TICK_SIGNAL};
	sigset_t tick;

	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	sigemptyset(&tick);
	sigaddset(&tick, TICK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &tick, NULL);
	return timer_create(CLOCK_MONOTONIC, &event, out) == 0;
}

static void *close_all(void *data)
{
	const struct itimerspec never = {0}, ticks = {{0, TICK_NANOSECONDS}, {0, TICK_NANOSECONDS}};
	struct closer *c = data;
	unsigned self;
	timer_t timer;
	bool has_timer = make_timer(&timer);

	pthread_mutex_lock(&c->lock);
	self = c->n_threads++;
	for (;;) {
		struct closing *closing = next_locked(c);

		if (!closing && c->ended)
			break;
		if (!closing) {
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		STAILQ_REMOVE(&c->queue, closing, closing, link);
		c->n_idle--;
		c->threads[self].busy = true;
		c->threads[self].uid = closing->uid;
		pthread_mutex_unlock(&c->lock);
		if (has_timer)
			timer_settime(timer, 0, &ticks, NULL);
		fd_close(closing->fd);
		if (has_timer)
			timer_settime(timer, 0, &never, NULL);
		free(closing);
		pthread_mutex_lock(&c->lock);
		c->threads[self].busy = false;
		c->n_idle++;
		c->n_waiting--;
	}
	if (has_timer)
		timer_delete(timer);
	unref_locked(c);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* The loop's side                                                                             */

/* Starts a thread, in which all signals but the timer's are blocked, as they are the loop's. The
 * thread counts as idle at once, as it first looks what there is to close. */
static bool start_thread_locked(struct closer *c)
{
	const struct sigaction tick = {.sa_handler = on_tick};

	sigaction(TICK_SIGNAL, &tick, NULL);
	if (thread_start_detached(close_all, c) < 0)
		return false;
	c->refs++;
	c->n_idle++;
	return true;
}

/* Starts one more thread for a user whom those that are there do not serve. At the end of the
 * broker it starts none: the process exits next, which closes all that is left and waits for none
 * of it. A thread that started just then has been seen to stop LeakSanitizer, which waited for it
 * for ever. */
static void look_for_threads(struct closer *c)
{
	bool again = false;

	pthread_mutex_lock(&c->lock);
	/* `refs` counts a thread from its start, `n_threads` only from when it runs */
	if (next_locked(c) && c->n_idle == 0 && c->refs <= THREADS_MAX && !c->broker->has_ended)
		again = !start_thread_locked(c);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (again)
		broker_set_timer(c->broker, c->again, AGAIN_MS);
}

static void on_again(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	look_for_threads(data);
}

int closer_new(struct broker *b, struct closer **out)
{
	struct closer *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->again = event_new(b->base, -1, 0, on_again, c);
	if (!c->again) {
		free(c);
		return -ENOMEM;
	}
	c->broker = b;
	c->refs = 1;
	STAILQ_INIT(&c->queue);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	*out = c;
	return 0;
}

void closer_free(struct closer *c)
{
	if (!c)
		return;
	event_free(c->again);
	pthread_mutex_lock(&c->lock);
	c->ended = true;
	left_to_threads = c->refs > 1 ? c : NULL;
	pthread_cond_broadcast(&c->changed);
	unref_locked(c);
}

struct closing *closing_new_for(struct closer *c, uid_t uid)
{
	struct closing *closing = calloc(1, sizeof(*closing));

	if (closing)
		*closing = (struct closing){.closer = c, .uid = uid};
	return closing;
}

struct closing *closing_new(struct closer *c)
{
	return closing_new_for(c, (uid_t)-1);
}

void closing_free(struct closing *closing)
{
	free(closing);
}

void closing_start(struct closing *closing, int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof(peer);

	/* the peer learns of the end now, and nothing more comes in */
	shutdown(fd, SHUT_RDWR);
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	closing->uid = peer.uid;
	closing_start_other(closing, fd);
}

static void start_kept(void *closing, int fd)
{
	closing_start(closing, fd);
}

void closing_start_kept(struct closing *closing, int fd)
{
	kept_close_by(fd, start_kept, closing);
}

void closing_start_other(struct closing *closing, int fd)
{
	struct closer *c = closing->closer;

	closing->fd = fd;
	pthread_mutex_lock(&c->lock);
	STAILQ_INSERT_TAIL(&c->queue, closing, link);
	c->n_waiting++;
	pthread_mutex_unlock(&c->lock);
	look_for_threads(c);
}

bool closer_is_behind(struct closer *c, uid_t uid, size_t most)
{
	const struct closing *closing;
	size_t n = 0;

	pthread_mutex_lock(&c->lock);
	STAILQ_FOREACH (closing, &c->queue, link) {
		n += closing->uid == uid;
		if (n > most)
			break;
	}
	pthread_mutex_unlock(&c->lock);
	return n > most;
}

size_t closer_waiting(struct closer *c)
{
	size_t n;

	pthread_mutex_lock(&c->lock);
	n = c->n_waiting;
	pthread_mutex_unlock(&c->lock);
	return n;
}
