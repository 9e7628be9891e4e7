/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_ENDING_H
#define BROKER_LIFE_ENDING_H

struct broker;
struct ending;

/* The limit is that of the configuration; a private broker has 0, as it ends together with the
 * process that has started it. */
#define DRAIN_AS_CONFIGURED (-1)

/*
 * Takes signals from now on, and looks at @lifeline_fd (-1: there is none). On SIGTERM and SIGINT
 * the broker drains for at most @drain_ms: it lets nobody in but operators, tells its clients, and
 * ends when nobody holds anything any more. A second signal ends it at once, and so does the
 * lifeline. 0 or -ENOMEM.
 */
int ending_new(struct broker *b, int lifeline_fd, int drain_ms, struct ending **out);
/* Frees it; NULL is fine. */
void ending_free(struct ending *e);

#endif
