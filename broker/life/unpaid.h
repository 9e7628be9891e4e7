/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_UNPAID_H
#define BROKER_LIFE_UNPAID_H

struct broker;

/* After each commit. */
void unpaid_count(struct broker *b);

#endif
