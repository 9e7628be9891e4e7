/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/queue.h>

struct bridge;

/*
 * A second thread, in which the broker is asked for what the first one need not wait for: while it
 * answers, content comes and goes. What is asked is a task. They are run one after the other, in
 * their order.
 */

struct task {
	TAILQ_ENTRY(task) next;
	/* In the second thread, which alone has what the task is about from helper_do() on. */
	void (*run)(struct task *t);
	/* In the first one, from its loop: the task is over, and its memory the caller's again. */
	void (*done)(struct task *t);
	int state; /* 0: there is none; the rest is helper.c's */
};

/* 0 or -1. */
int helper_open(struct bridge *b);
/* What was not run yet is never run: whoever has a task has called it back. */
void helper_close(struct bridge *b);

void helper_do(struct bridge *b, struct task *t);
/* Waits until it was run, and `done` is not called then. If there is none it does nothing. */
void helper_wait(struct bridge *b, struct task *t);
