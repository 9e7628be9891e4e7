/* SPDX-License-Identifier: MIT */
#pragma once

#include "broker/names/token.h"

#define NO_GROUP ((gid_t)-1) /* no group: the token's user may use the pool as a user */

/* token.c */
void tokens_end(struct broker *b);
/* Has the token end at that time. False without memory. */
bool token_limit(struct broker *b, struct token *t, uint64_t ends_ms);
/* Puts the token into its maker's list, or into its pool's list of tokens without a maker; and
 * takes it out of that, after which it has no maker. */
void token_join(struct token *t);
void token_detach(struct token *t);

/* token_left.c. Ends a token whose maker goes, or has it outlive the maker; or ends another one
 * that is in its way. It is called until the maker has no token. */
void token_lose_maker(struct broker *b, struct token *t);
/* Whether its maker is gone, and the maker's user may not use the pool any more. */
bool token_right_is_lost(const struct token *t);
/* Returns how the token of these bytes has ended, if that is remembered and this client may know
 * it; else NULL. */
const char *token_how_it_ended(const struct client *client, const unsigned char *bytes);
