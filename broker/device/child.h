/* SPDX-License-Identifier: MIT */
#ifndef BROKER_DEVICE_CHILD_H
#define BROKER_DEVICE_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct broker;
struct event;

/*
 * The process of an agent, by its pidfd: the broker before this one may have started it, and then
 * it is the keeper's to wait for. Once it is told to end it is watched until it has, however long
 * that takes, and by the next broker if this one dies.
 */
struct child {
	LIST_ENTRY(child) link; /* of those that are told to end */
	struct broker *broker;
	pid_t pid;
	int pidfd;
	struct event *end;
	bool is_watched;
	uint32_t record;
};

/* NULL without memory. Whose process it is is yet to be said. */
struct child *child_new(struct broker *b);
/* One that has no process. */
void child_free(struct child *c);
/* Kills it, and collects it when it has ended, whenever that is; logs how unless it was killed. The
 * caller has it no more. */
void child_end(struct child *c);
/* Those that have not ended yet. */
unsigned children_count(const struct broker *b);
/* Those whose end nobody would be told of. */
void children_look(struct broker *b);
/* A broker that comes after another one: those that were told to end. 0 or negative errno. */
int children_restore(struct broker *b);
/* The journal says each of them again. */
void children_note(struct broker *b);
/* At the end of the broker: forgets those that have not. */
void children_forget(struct broker *b);

#endif
