/* SPDX-License-Identifier: MIT */

/*
 * What ends the broker, and how that goes: signals, the lifeline, the end of its terminal.
 *
 * Names, tokens and accounts end with the broker. So a client that holds something is told, and
 * gets some time to finish and to let go. A client that holds nothing loses nothing, and is not
 * waited for; nor is a process that has lost its connection already, as it cannot be told.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/system/descriptor.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/listener.h"
#include "broker/keeper/kept.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"

/* How often a broker that drains looks whether it has to wait any more. */
#define LOOK_MS 10

struct ending {
	struct broker *broker;
	int drain_ms;
	bool ends_with_terminal;
	const char *why;    /* NULL: nothing has ended it yet */
	struct event *look; /* while it drains */
	struct event *term, *interrupt, *hangup, *lifeline;
};

/* Whether the broker waits for the client: it holds something, or waits itself until all that is
 * released. */
static bool is_waited_for(const struct client *c)
{
	return c->connection && (c->state == CLIENT_ENDING || holdings_any(&c->holds));
}

static uint32_t count_waited_for(const struct broker *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		n += b->clients->by_slot[i] && is_waited_for(b->clients->by_slot[i]);
	return n;
}

/* Names in the log whom the broker waits for: when the waiting begins, and at its end if it was in
 * vain. */
static void name_waited_for(const struct broker *b, bool in_vain)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		const struct client *c = b->clients->by_slot[i];
		struct log_client who;

		if (!c || !is_waited_for(c))
			continue;
		who = client_in_log(c);
		log_waited_for(&who, &c->holds, in_vain);
	}
}

static void end_now(struct ending *e)
{
	struct broker *b = e->broker;

	if (broker_is_ending(b))
		name_waited_for(b, true);
	log_stop(e->why, clock_ms() - b->started_ms, b->clients->n);
	event_base_loopbreak(b->base);
}

static void look(struct ending *e)
{
	if (clock_ms() >= e->broker->life->drains_until_ms || count_waited_for(e->broker) == 0)
		end_now(e);
	else
		broker_set_timer(e->broker, e->look, LOOK_MS);
}

static void on_look(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	look(data);
}

static void tell_clients(const struct broker *b, unsigned within_ms)
{
	const struct wire_message m = {.type = WIRE_ENDING, .ending = {.within = within_ms}};

	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];

		if (c && c->connection && c->state == CLIENT_READY)
			client_send(c, &m, NULL, 0);
	}
}

/* Begins to wait for clients. Those that come from now on are refused, but for operators, who may
 * want to see whom the broker waits for. If a service manager has made the socket, all wait there
 * for the next broker instead. */
static void drain(struct ending *e, unsigned limit_ms)
{
	struct broker *b = e->broker;

	log_drain(e->why, count_waited_for(b), limit_ms);
	name_waited_for(b, false);
	if (b->life->socket_stays) {
		listener_free(b->listener);
		b->listener = NULL;
	}
	b->life->drains_until_ms = clock_ms() + limit_ms;
	tell_clients(b, limit_ms);
	look(e);
}

/* ------------------------------------------------------------------------------------------- */

static void on_signal(evutil_socket_t fd, short what, void *data)
{
	struct ending *e = data;
	int limit_ms = e->drain_ms;

	(void)what;
	if (limit_ms == DRAIN_AS_CONFIGURED)
		limit_ms = (int)e->broker->config->drain_ms;
	e->why = fd == SIGINT ? "on SIGINT" : "on SIGTERM";
	if (limit_ms == 0 || broker_is_ending(e->broker) || count_waited_for(e->broker) == 0) {
		end_now(e);
		return;
	}
	/* whoever has sent the signal need not have told the keeper */
	kept_told_to_end(fd);
	drain(e, (unsigned)limit_ms);
}

static void on_lifeline(evutil_socket_t fd, short what, void *data)
{
	struct ending *e = data;

	(void)fd, (void)what;
	e->why = "as who has started it is gone";
	end_now(e);
}

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	fd_close(fd);
	return fd >= 0;
}

/* A broker ends with its terminal, like any program in a terminal, unless it was told not to
 * (nohup). To any other broker the signal says that the configuration has changed. */
static void on_hangup(evutil_socket_t fd, short what, void *data)
{
	struct ending *e = data;

	(void)fd, (void)what;
	if (!e->ends_with_terminal || has_terminal()) {
		reload_on_signal(e->broker);
		return;
	}
	e->why = "as its terminal is gone";
	end_now(e);
}

/* Hears of hang-ups from now on; one that came since main() began comes now. */
static int listen_for_hangups(struct ending *e)
{
	struct sigaction before;
	sigset_t signals;

	sigaction(SIGHUP, NULL, &before);
	e->ends_with_terminal = before.sa_handler != SIG_IGN && has_terminal();
	e->hangup = evsignal_new(e->broker->base, SIGHUP, on_hangup, e);
	if (!e->hangup || evsignal_add(e->hangup, NULL) < 0)
		return -ENOMEM;
	sigemptyset(&signals);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
	return 0;
}

static int take_signals(struct ending *e, int lifeline_fd)
{
	struct event_base *base = e->broker->base;

	e->look = event_new(base, -1, 0, on_look, e);
	e->term = evsignal_new(base, SIGTERM, on_signal, e);
	e->interrupt = evsignal_new(base, SIGINT, on_signal, e);
	if (!e->look || !e->term || !e->interrupt || evsignal_add(e->term, NULL) < 0 ||
	    evsignal_add(e->interrupt, NULL) < 0)
		return -ENOMEM;
	if (lifeline_fd < 0)
		return 0;
	e->lifeline = event_new(base, lifeline_fd, EV_READ, on_lifeline, e);
	return e->lifeline && event_add(e->lifeline, NULL) == 0 ? 0 : -ENOMEM;
}

int ending_new(struct broker *b, int lifeline_fd, int drain_ms, struct ending **out)
{
	struct ending *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->broker = b;
	e->drain_ms = lifeline_fd >= 0 && drain_ms == DRAIN_AS_CONFIGURED ? 0 : drain_ms;
	if (take_signals(e, lifeline_fd) < 0 || listen_for_hangups(e) < 0) {
		ending_free(e);
		return -ENOMEM;
	}
	*out = e;
	return 0;
}

void ending_free(struct ending *e)
{
	if (!e)
		return;
	broker_free_event(e->look);
	broker_free_event(e->term);
	broker_free_event(e->interrupt);
	broker_free_event(e->hangup);
	broker_free_event(e->lifeline);
	e->broker->life->drains_until_ms = 0;
	free(e);
}
