/* SPDX-License-Identifier: MIT */
#ifndef BROKER_NAMES_INSIDE_H
#define BROKER_NAMES_INSIDE_H

#include "broker/names/token.h"

#define NO_GROUP ((gid_t)-1) /* its user may use the pool by itself */

/* token.c */
void tokens_end(struct broker *b);
/* Its time ends then. False without memory. */
bool token_limit(struct broker *b, struct token *t, uint64_t ends_ms);
/* From its maker, or from those that have none. */
void token_detach(struct token *t);

/* token_left.c: its maker goes. To be called until the maker has no token, as each call ends one or
 * has one outlive the maker. */
void token_lose_maker(struct broker *b, struct token *t);
void token_join_left(struct token *t);
void token_quit_left(struct token *t);
/* Its maker is gone, and that one's user may not use the pool any more. */
bool token_right_is_lost(const struct token *t);
void token_remember(struct broker *b, const struct token *t, enum token_end how);
/* As far as that is remembered, and this client may know; or NULL. */
const char *token_how_it_ended(const struct client *client, const unsigned char *bytes);

#endif
