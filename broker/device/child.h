/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct broker;
struct event;
struct object_kind;

/*
 * The process of an agent, known by its pidfd: the broker before this one may have started it, and
 * then it is the keeper's to wait for. Once it is told to end it is watched until it has ended,
 * however long that takes, and by the next broker if this one dies.
 */
struct child {
	LIST_ENTRY(child) link; /* in the list of those that are told to end */
	struct broker *broker;
	pid_t pid;
	int pidfd;
	struct event *end;
	bool is_watched;
	uint32_t record;
};

/* Makes a child whose process is yet to be filled in. NULL without memory. */
struct child *child_new(struct broker *b);
/* Frees a child that has no process. */
void child_free(struct child *c);
/* Kills the process, and collects it when it has ended, whenever that is; logs how it ended, unless
 * it was killed. The child is not the caller's any more. */
void child_end(struct child *c);
/* How many there are that were told to end and have not ended yet. */
unsigned children_count(const struct broker *b);
/* Looks at those whose end nobody would be told of, as there was no memory to watch them. */
void children_look(struct broker *b);
/* Those that were told to end, for a broker that comes after another one. */
extern const struct object_kind child_kind;
/* Notes each of them in the journal again. */
void children_note(struct broker *b);
/* Forgets at the end of the broker those that have not ended. */
void children_forget(struct broker *b);
