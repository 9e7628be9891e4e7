/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_UNPAID_H
#define BROKER_LIFE_UNPAID_H

#include <stdint.h>

struct broker;

struct unpaid {
	/* the file that says how much memory there is; it stays open, so that a look needs no
	 * descriptor */
	int memory;
	/* `least`: the least that was seen since memory was given back */
	uint64_t n_commits, least;
};

void unpaid_init(struct unpaid *u);
void unpaid_deinit(struct unpaid *u);
/* Looks now and then how much is unpaid. Called after each commit. */
void unpaid_count(struct broker *b);

#endif
