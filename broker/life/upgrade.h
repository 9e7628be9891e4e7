/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_UPGRADE_H
#define BROKER_LIFE_UPGRADE_H

struct broker;
struct upgrade;

/* 0 or negative errno. */
int upgrade_new(struct upgrade **out);
/* Frees it; NULL is fine. */
void upgrade_free(struct upgrade *u);

/* Called between two turns of the loop. If a client has asked for it, and a broker of the program
 * that is on the disk now could go on, this process ends here. */
void upgrade_if_asked(struct broker *b);

#endif
