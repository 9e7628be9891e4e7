/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_RESTORE_H
#define BROKER_LIFE_RESTORE_H

struct broker;

/* Takes over from the journal and the keeper what a broker that died had. */

/* Takes over all that it had. 0 or negative errno, with a line in the log. */
int restore_all(struct broker *b);
/* Takes over the requests that it had not answered. 0 or negative errno, and then nothing of it
 * counts. */
int restore_requests(struct broker *b);

#endif
