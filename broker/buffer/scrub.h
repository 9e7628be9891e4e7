/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

struct broker;
struct buffer;
struct client;
struct failure;
struct object_kind;
struct request;

/*
 * Zeroes what one user left before another gets it. The buffer is made by then, and belongs to the
 * request. Nobody else can be given its memory until it is known that nothing writes to it any
 * more, whatever becomes of the client that asked.
 */

/* Whether @r's client must not see what is in the buffer. */
bool scrub_is_needed(const struct request *r, const struct buffer *buffer);

/* Begins to zero the buffer. 0: it is zero now. SCRUB_LATER: the caller's reference and the answer
 * were taken over. Anything else is a SHARE_E... number with a sentence, and the tag is as it
 * was. */
#define SCRUB_LATER 1
int scrub_start(struct request *r, struct buffer *buffer, struct failure *failure);

/* Abandons some of the scrubs of a client that is gone: their blocks go back when they are zero.
 * True when there are none any more. */
bool client_abandon_scrubs(struct client *c, int *budget);

/* Gives back what agents that failed may have been writing to, once they have ended. */
void scrubs_look_again(struct broker *b);

/* At the end of the broker, when there are no agents any more: gives back everything. */
void scrubs_end(struct broker *b);

/* Notes each of them in the journal again. */
void scrubs_note(struct broker *b);
/* For a broker that comes after another one. */
extern const struct object_kind scrub_kind;
