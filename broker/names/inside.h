/* SPDX-License-Identifier: MIT */
#ifndef BROKER_NAMES_INSIDE_H
#define BROKER_NAMES_INSIDE_H

#include "broker/names/token.h"

#define NO_GROUP ((gid_t)-1) /* no group: the token's user may use the pool as a user */

/* token.c */
void tokens_end(struct broker *b);
/* Has the token end at that time. False without memory. */
bool token_limit(struct broker *b, struct token *t, uint64_t ends_ms);
/* Takes the token out of its maker's list, or out of its pool's list of tokens without a maker. */
void token_detach(struct token *t);

/* token_left.c. Ends a token whose maker goes, or has it outlive the maker; or ends another one
 * that is in its way. It is called until the maker has no token. */
void token_lose_maker(struct broker *b, struct token *t);
void token_join_left(struct token *t);
void token_quit_left(struct token *t);
/* Whether its maker is gone, and the maker's user may not use the pool any more. */
bool token_right_is_lost(const struct token *t);
void token_remember(struct broker *b, const struct token *t, enum token_end how);
/* Returns how the token of these bytes has ended, if that is remembered and this client may know
 * it; else NULL. */
const char *token_how_it_ended(const struct client *client, const unsigned char *bytes);

#endif
