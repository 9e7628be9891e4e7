/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_RELOAD_H
#define BROKER_LIFE_RELOAD_H

struct broker;
struct reload;

/* Reading the configuration again while the broker serves. */

/* 0 or negative errno. */
int reload_new(struct broker *b, struct reload **out);
/* Frees it; NULL is fine. */
void reload_free(struct reload *r);

/* Reads the configuration again for somebody who waits for no answer: the log says what is new. */
void reload_on_signal(struct broker *b);

#endif
