/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <share/share.h>

/*
 * A private broker that has a keeper. What is started by share_connect("embedded") is not used, as
 * the benchmark has to know what it measures, and kills it.
 */
struct kept_broker {
	pid_t keeper;
	char directory[PATH_MAX];
	char socket[PATH_MAX + 16];
};

/* @program: NULL for share-broker. @config may be NULL. What is asked of it is answered when it has
 * started. */
void kept_broker_start(struct kept_broker *b, const char *program, const char *config);
void kept_broker_stop(struct kept_broker *b);

/* The process that serves @c just now. */
pid_t kept_broker_serving(share_client *c);
/* Kills it, and returns when it is dead: the time of the kill, as now_us() has it. */
double kept_broker_kill(pid_t serving);
