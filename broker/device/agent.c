/* SPDX-License-Identifier: MIT */

/*
 * Agents as processes. One request is with the process at a time. So when the process ends it is
 * clear what it ended on, and the other requests go to the next one. Nothing here waits: a process
 * that cannot even be killed (the driver holds it in the kernel) is left behind, and collected when
 * it goes.
 *
 * A process outlives its broker, if the broker has a keeper. The next broker takes the process
 * over. What the dead broker had asked may still be answered, which the serial of the answer tells;
 * what came of that is nobody's (agent_takeover.c).
 *
 * This file must not know what is asked.
 */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/agent_process.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/inside.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"

#define BACK_OFF_FIRST_MS 100
#define BACK_OFF_LAST_MS  10000
#define LATE_MS           1000 /* no broker that runs is that late to see a limit pass */

struct agent_request {
	TAILQ_ENTRY(agent_request) link;
	struct wire_message m;
	int fd; /* borrowed */
	agent_answer *answer;
	void *data;
	uint32_t incarnation; /* the process that runs, or is to be started, when it is asked */
	uint64_t deadline_ms; /* until then it has to be with a process */
	bool again;           /* a process has ended with it already */
};

static const char *name_of(const struct agent *a)
{
	return a->device[0] ? a->device : "all devices";
}

static void set_timer(struct agent *a, uint64_t at_ms)
{
	uint64_t now = clock_ms();

	broker_set_timer(a->broker, a->timer, at_ms > now ? at_ms - now : 0);
}

/* Sets the timer for the next thing that time brings: a start, or the first deadline. */
static void schedule(struct agent *a)
{
	const struct agent_request *first = TAILQ_FIRST(&a->requests);
	uint64_t at;

	if (!first) {
		event_del(a->timer);
		return;
	}
	at = a->limit_ms;
	if (!a->sent) {
		at = a->socket < 0 && a->not_before_ms > clock_ms() ? a->not_before_ms : 0;
		if (at > first->deadline_ms)
			at = first->deadline_ms;
	}
	set_timer(a, at);
}

/* Answers a request. It is taken off the list before, as the callee may ask again. */
static void answer(struct agent *a, struct agent_request *q, const struct wire_message *m,
		   struct fd_list *fds, int error, const char *text)
{
	struct fd_list none = {.n = 0};

	TAILQ_REMOVE(&a->requests, q, link);
	q->answer(q->data, m, fds ? fds : &none, error, text);
	free(q);
}

static void end_process(struct agent *a)
{
	broker_free_event(a->readable);
	a->readable = NULL;
	a->sent = false;
	if (!a->process)
		return;
	a->socket = kept_close(a->socket);
	a->pid_before = a->process->pid;
	child_end(a->process);
	a->process = NULL;
	a->incarnation++;
	agent_note(a);
}

static void back_off(struct agent *a)
{
	uint64_t delay = BACK_OFF_FIRST_MS;

	for (unsigned i = 0; i < a->failures && delay < BACK_OFF_LAST_MS; i++)
		delay *= 2;
	a->failures++;
	a->not_before_ms = clock_ms() + (delay < BACK_OFF_LAST_MS ? delay : BACK_OFF_LAST_MS);
}

/*
 * Whether a request is tried again. Whoever killed the process may have meant the process and not
 * the request. So the next one gets it once more, unless it is about something that only the last
 * one knew.
 */
static bool try_again(struct agent_request *q)
{
	bool again = !q->again && wire_describe(q->m.type)->flags & WIRE_REPEATABLE;

	q->again = true;
	return again;
}

/* Gives up a process that cannot go on. The request that it was at is answered with an error; the
 * others wait for the next process. */
static void lose(struct agent *a, const char *why, bool has_ended)
{
	struct agent_request *first = a->sent ? TAILQ_FIRST(&a->requests) : NULL;
	char text[512];

	log_warning("the agent of %s (pid %d) %s; another one takes over", name_of(a),
		    (int)agent_pid(a), why);
	end_process(a);
	back_off(a);
	if (first && !(has_ended && try_again(first))) {
		snprintf(text, sizeof(text), "%s: the agent %s while it was asked for this (%s)",
			 name_of(a), why, wire_describe(first->m.type)->name);
		answer(a, first, NULL, NULL, SHARE_EDEVICE, text);
	}
	schedule(a);
}

static bool is_last(const struct agent *a, const struct wire_message *m)
{
	return a->device[0] || m->type != WIRE_AGENT_DEVICE;
}

/* A serial has the number of its broker and that of a request, so that one which an agent may still
 * answer is never given out again. */
#define SERIAL_REQUESTS 12 /* bits of the request's number */

static uint32_t serial_of_broker(const struct agent *a)
{
	return (uint32_t)a->broker->generation << SERIAL_REQUESTS;
}

static uint32_t next_serial(struct agent *a)
{
	uint32_t n = ++a->n_requests & ((1u << SERIAL_REQUESTS) - 1);

	return serial_of_broker(a) | (n ? n : (a->n_requests = 1));
}

/* Whether an answer is to the broker before, so that what came of it is nobody's. */
static bool is_late(const struct agent *a, const struct wire_message *m)
{
	return a->is_taken_over &&
	       m->serial >> SERIAL_REQUESTS != serial_of_broker(a) >> SERIAL_REQUESTS;
}

static void deliver(struct agent *a, const struct wire_message *m, struct fd_list *fds)
{
	struct agent_request *first = a->sent ? TAILQ_FIRST(&a->requests) : NULL;
	char text[1024];

	if (is_late(a, m))
		return;
	a->is_taken_over = false;
	if (!first || m->serial != a->serial ||
	    (m->type != WIRE_AGENT_FAILED && m->type != WIRE_AGENT_DONE &&
	     m->type != wire_describe(first->m.type)->reply)) {
		lose(a, "says what nobody asked it", false);
		return;
	}
	if (!is_last(a, m)) {
		first->answer(first->data, m, fds, 0, NULL);
		return;
	}
	a->sent = false;
	if (m->type != WIRE_AGENT_FAILED) {
		a->failures = 0;
		answer(a, first, m, fds, 0, NULL);
		schedule(a);
		return;
	}
	snprintf(text, sizeof(text), "%.*s", (int)m->agent_failed.text.size,
		 (const char *)m->agent_failed.text.data);
	if (m->agent_failed.fatal) {
		log_warning("the agent of %s: %s; another one takes over", name_of(a), text);
		end_process(a);
		back_off(a);
	} else {
		a->failures = 0;
	}
	answer(a, first, NULL, NULL,
	       m->agent_failed.error < 0 ? m->agent_failed.error : SHARE_EDEVICE, text);
	schedule(a);
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct agent *a = data;
	struct broker *b = a->broker;
	_cleanup_fd_list_ struct fd_list fds = {.n = 0};
	size_t size = sizeof(b->devices->packet);
	struct wire_message m;
	int r;

	(void)what;
	r = packet_receive(fd, b->devices->packet, &size, &fds, false);
	if (r == -EAGAIN)
		return;
	if (r < 0)
		lose(a, "has ended", true);
	else if (wire_decode(&m, WIRE_FROM_AGENT, b->devices->packet, size, fds.n) != 0)
		lose(a, "says what is no message", false);
	else
		deliver(a, &m, &fds);
}

/* ------------------------------------------------------------------------------------------- */

int agent_listen(struct agent *a)
{
	a->readable = event_new(a->broker->base, a->socket, EV_READ | EV_PERSIST, on_readable, a);
	return a->readable && event_add(a->readable, NULL) == 0 ? 0 : -ENOMEM;
}

/* Starts a process. 0, or negative errno with @program set as far as it is known. */
static int start(struct agent *a, char program[PATH_MAX])
{
	struct child *child = child_new(a->broker);
	struct agent_process p;
	int r = child ? agent_process_start(a->device, program, &p) : -ENOMEM;

	if (r < 0) {
		if (child)
			child_free(child);
		return r;
	}
	child->pid = p.pid;
	child->pidfd = p.pidfd;
	a->process = child;
	a->socket = p.socket;
	a->is_taken_over = false;
	r = agent_listen(a);
	if (r == 0 && a->device[0])
		r = kept_keep((const int[]){a->socket, child->pidfd}, NULL, 2);
	if (r < 0) {
		end_process(a);
		return r;
	}
	agent_note(a);
	log_debug("agent of %s: pid %d", name_of(a), (int)child->pid);
	return 0;
}

/*
 * Whether a request concerns the process that runs. What one process calls something means
 * something else to the next. Nothing has to be destroyed that has ended with its process; other
 * requests tell all that is needed without a handle.
 */
static bool concerns_this_process(const struct agent *a, struct agent_request *q)
{
	if (q->incarnation == a->incarnation)
		return true;
	if (q->m.type == WIRE_AGENT_SCRUB)
		q->m.agent_scrub.handle = 0;
	return !(wire_describe(q->m.type)->flags & WIRE_OF_ONE_PROCESS);
}

static void send_first(struct agent *a)
{
	const struct wire_message done = {.type = WIRE_AGENT_DONE};
	struct broker *b = a->broker;
	struct agent_request *first = TAILQ_FIRST(&a->requests);
	size_t size;

	/* an agent may be told to destroy something: no record has that any more by then */
	if (!journal_is_committed(b->journal))
		broker_commit(b);
	if (!concerns_this_process(a, first)) {
		answer(a, first, &done, NULL, 0, NULL);
		return;
	}
	a->limit_ms = clock_ms() + b->config->agent_timeout_ms;
	a->serial = first->m.serial = next_serial(a);
	size = wire_encode(&first->m, b->scratch, sizeof(b->scratch));
	a->sent = true;
	if (packet_send(a->socket, b->scratch, size, &first->fd, first->fd >= 0, false) < 0)
		lose(a, "has ended", true);
}

static void start_and_send(struct agent *a)
{
	struct agent_request *first = TAILQ_FIRST(&a->requests);
	char program[PATH_MAX], text[PATH_MAX + 128];
	int r;

	if (a->socket < 0) {
		if (a->not_before_ms > clock_ms())
			return;
		r = start(a, program);
		if (r < 0) {
			snprintf(text, sizeof(text), "cannot start %s: %s", program, strerror(-r));
			log_warning("%s", text);
			back_off(a);
			answer(a, first, NULL, NULL, SHARE_EDEVICE, text);
			return;
		}
	}
	send_first(a);
}

/* Gives the process up when its time is over. If the broker was stopped meanwhile (SIGSTOP, a
 * container that was paused), it gives the agent its time again, because the agent was perhaps
 * stopped as well. */
static void on_limit(struct agent *a)
{
	unsigned timeout = a->broker->config->agent_timeout_ms;
	uint64_t now = clock_ms();
	char text[256];

	if (now - a->limit_ms >= LATE_MS) {
		a->limit_ms = now + timeout;
		schedule(a);
		return;
	}
	snprintf(text, sizeof(text), "did not answer within %u ms", timeout);
	lose(a, text, false);
}

static void on_timer(evutil_socket_t fd, short what, void *data)
{
	struct agent *a = data;
	struct agent_request *first = TAILQ_FIRST(&a->requests);
	char text[256];

	(void)fd, (void)what;
	if (a->sent && a->limit_ms <= clock_ms()) {
		on_limit(a);
		return;
	}
	if (first && !a->sent && first->deadline_ms <= clock_ms()) {
		snprintf(text, sizeof(text), "%s: no agent could be had within %u ms", name_of(a),
			 a->broker->config->agent_timeout_ms);
		answer(a, first, NULL, NULL, SHARE_EDEVICE, text);
	} else if (first && !a->sent) {
		start_and_send(a);
	}
	schedule(a);
}

/* ------------------------------------------------------------------------------------------- */

int agent_new(struct broker *b, const char *device, struct agent **out)
{
	struct agent *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->broker = b;
	a->socket = -1;
	if (device)
		snprintf(a->device, sizeof(a->device), "%s", device);
	TAILQ_INIT(&a->requests);
	a->timer = event_new(b->base, -1, 0, on_timer, a);
	if (!a->timer) {
		free(a);
		return -ENOMEM;
	}
	*out = a;
	return 0;
}

void agent_free(struct agent *a)
{
	if (!a)
		return;
	end_process(a);
	while (!TAILQ_EMPTY(&a->requests))
		answer(a, TAILQ_FIRST(&a->requests), NULL, NULL, SHARE_ECANCELED,
		       "the broker is ending");
	event_free(a->timer);
	free(a);
}

int agent_ask(struct agent *a, const struct wire_message *m, int fd, agent_answer *callback,
	      void *data)
{
	struct agent_request *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->m = *m;
	q->fd = fd;
	q->answer = callback;
	q->data = data;
	q->incarnation = a->incarnation;
	q->deadline_ms = clock_ms() + a->broker->config->agent_timeout_ms;
	TAILQ_INSERT_TAIL(&a->requests, q, link);
	schedule(a);
	return 0;
}

static void on_destroyed(void *what, const struct wire_message *m, struct fd_list *fds, int error,
			 const char *text)
{
	(void)m, (void)fds;
	if (error && error != SHARE_ECANCELED)
		log_warning("%s could not be destroyed: %s", (const char *)what, text);
}

void agent_ask_to_destroy(struct agent *a, const struct wire_message *m, const char *what)
{
	agent_ask(a, m, -1, on_destroyed, (void *)(uintptr_t)what);
}

void agent_replace(struct agent *a, const char *why)
{
	struct agent_request *first = a->sent ? TAILQ_FIRST(&a->requests) : NULL;

	if (why)
		log_info("the agent of %s (pid %d) is replaced: %s", name_of(a), (int)agent_pid(a),
			 why);
	end_process(a);
	if (first)
		answer(a, first, NULL, NULL, SHARE_EDEVICE, why ? why : "the agent was let go");
	schedule(a);
}

void agent_distrust(struct agent *a, const char *why)
{
	lose(a, why, false);
}

void agent_look(struct agent *a)
{
	event_active(a->timer, EV_TIMEOUT, 0);
}

uint32_t agent_incarnation(const struct agent *a)
{
	return a->incarnation;
}

pid_t agent_pid(const struct agent *a)
{
	return a->process ? a->process->pid : 0;
}

pid_t agent_pid_before(const struct agent *a)
{
	return a->pid_before;
}

unsigned agent_failures(const struct agent *a)
{
	return a->failures;
}
