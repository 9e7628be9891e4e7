/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_RELOAD_H
#define BROKER_LIFE_RELOAD_H

struct broker;
struct reload;

/* Reading the configuration again while the broker serves. */

/* 0 or negative errno. */
int reload_new(struct broker *b, struct reload **out);
/* NULL is fine. */
void reload_free(struct reload *r);

/* Somebody wants it who waits for no answer: the log has it. */
void reload_on_signal(struct broker *b);

#endif
