/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/themes/fuzz/fuzz.h"

/* A broker in this process, and three clients of it that do what an input says. */

struct keeper;

extern struct broker *broker;

void play_init(void);
int play_start(const struct keeper *keeper); /* as broker_new() */
void play(struct input *in);
void play_run(void); /* what there is to do for the broker */
/* All clients hang up. */
void play_hang_up(void);
/* All of them are dead: the broker has nothing left, and ends. */
void play_end(void);
/* Their mappings are gone as well. */
void play_forget(void);

/* The configuration: the first one, and which others there are to be read. */
extern bool play_is_as_at_first;
struct config *play_load(void);
void play_configure(unsigned which);
