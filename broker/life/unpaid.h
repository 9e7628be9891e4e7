/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_UNPAID_H
#define BROKER_LIFE_UNPAID_H

#include <stdint.h>

struct broker;

struct unpaid {
	int memory; /* what says how much there is; it stays open, as a look opens none */
	uint64_t n_commits, least; /* the least since some was given back */
};

void unpaid_init(struct unpaid *u);
void unpaid_deinit(struct unpaid *u);
/* After each commit. */
void unpaid_count(struct broker *b);

#endif
