/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <jansson.h>
#include <share/share.h>

#include "bridge/data/memory.h"
#include "bridge/helper.h"
#include "bridge/names/names.h"

/* What names_in.c (which names the peer has), arrivals.c (a version on its way) and publish.c (what
 * is to be seen of it here) have in common. */

struct pattern;

/* What is received outlives the name that it is for, as UCX writes into its memory. */
struct arrival {
	struct name_in *name; /* NULL: nobody wants it any more */
	struct reach reach;
};

/* What has become of a version that was told to the broker. */
struct outcome {
	uint64_t version; /* 0: it is not published */
	char *why;        /* NULL, or why not */
	bool described;
};

enum state {
	IDLE,
	QUEUED,    /* to be asked for */
	ASKED,     /* the peer looks it up */
	RECEIVING, /* there is memory for it */
	ENTERING,  /* all of it is here, and the broker is told so */
};

struct name_in {
	char *name; /* over there */
	char *local;
	TAILQ_ENTRY(name_in) in_all, in_queue;
	struct names_in *of;
	const struct pattern *pattern;
	uint64_t announced, have, refused; /* versions over there; 0: none */
	uint64_t published;                /* the version here; 0: it is not */
	uint64_t id;                       /* of the transfer */
	uint64_t coming;                   /* the version that it brings */
	uint64_t round;                    /* in which it was heard of */
	share_buffer *held;                /* what is published */
	struct arrival *arrival;           /* what is received */
	bool arriving;
	json_t *about; /* its metadata */
	char *tensor;
	struct task task; /* ENTERING: it has what the task is about, up to here, and `local` */
	struct outcome outcome;
	enum state state;
	bool wanted; /* or it waits for somebody to want it */
	bool stale;
	bool told; /* that others have the name here */
};

struct names_in {
	struct link *link;
	TAILQ_HEAD(, name_in) all, queue;
	void *by_name; /* of tsearch() */
	size_t n;
	uint64_t round;
	unsigned active;
	char run[33]; /* of the peer, which gave the versions */
	struct event *grace, *retry;
};

struct bridge *name_in_bridge(const struct name_in *n);

/* Asks for the newest version, in its turn, if it is wanted and not here. */
void arrival_want(struct name_in *n);
/* The state is IDLE afterwards, with nothing left of a transfer. */
void arrival_end(struct name_in *n);
/* Asks again for what was not to be had. */
void arrivals_on_retry(evutil_socket_t fd, short what, void *names_in);

/* Gives @b the metadata that it has over there, with where it came from, and publishes it. This is
 * for the second thread. */
void name_in_enter(const struct name_in *n, share_buffer *b, struct outcome *out);
/* The buffer of the arrival is what is published now, if it is. 0, or -1: it is not. */
int name_in_entered(struct name_in *n);
/* The metadata is the buffer's, so those who have looked it up see it, too. */
void name_in_mark(struct name_in *n, bool stale);
/* Somebody else may have the name by now, and keeps it. */
void name_in_withdraw(struct name_in *n);
