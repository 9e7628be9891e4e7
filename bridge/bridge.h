/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <jansson.h>
#include <share/share.h>

#include "bridge/settings.h"

/*
 * share-bridge: names, channels and services of one host appear on another. It is an ordinary
 * client of its broker, and holds what an ordinary client holds: when it dies, its leases and names
 * go.
 *
 * There is one thread, and a second one that waits for the broker (helper.h). The parts, from
 * below: settings (what the operator said), staging (copies between GPUs and the host), data (UCX,
 * which carries all content), link (one peer: TLS carries what is said about content), names_in and
 * names_out, channels, services, status.
 */

struct helper;
struct data;
struct channels;
struct services;
struct status;
TAILQ_HEAD(links, link);

struct bridge {
	struct settings *settings;
	struct event_base *base;
	share_client *client;
	share_pool *pool;
	int ordinal; /* of the pool's device; -1: it has memory of the host */
	struct event *broker_event;
	struct helper *helper;
	struct data *data;
	share_watch *names_watch; /* of what may go out; NULL: nothing may */
	struct status *status;
	struct channels *channels;
	struct services *services;
	struct links links;
	struct evconnlistener *listener;
	void *tls_server, *tls_client; /* SSL_CTX */
	char run[33];                  /* tells this run of the program from others */
	json_t *awaited;               /* names that somebody waits for, with "demand" */
	bool lost;                     /* the broker is, or the device */
	uint64_t last_id;              /* of transfers and the like; never used again */
};

/* A line of the log; @format is a text of the program, as lines are counted by it. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* Whether it has a control character, which would be printed as "\x1b" and the like. */
bool say_has_control(const char *text);

/* What the bridge cannot be without is lost: it ends with an error, to be started again. */
void bridge_give_up(struct bridge *b);

/* Ends the program without memory. */
void timer_in(struct event *timer, uint32_t ms);

/* For a callback that has made its own event active again: the loop would go on with that and with
 * what was active before, and look at no descriptor and no timer until it stops. */
void let_others(struct bridge *b);
