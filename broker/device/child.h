/* SPDX-License-Identifier: MIT */
#ifndef BROKER_DEVICE_CHILD_H
#define BROKER_DEVICE_CHILD_H

#include <sys/types.h>

struct broker;

/* Collects a child when it has ended, whenever that is, and logs how unless it was killed. */
void child_collect(struct broker *b, pid_t pid);
/* Those that have not been collected yet. */
unsigned children_count(const struct broker *b);
/* At the end of the broker: forgets those that have not. */
void children_forget(struct broker *b);

#endif
