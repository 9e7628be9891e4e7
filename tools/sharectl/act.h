/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_SHARECTL_ACT_H
#define TOOLS_SHARECTL_ACT_H

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

/* The commands by which an operator ends something. */

struct act;

/* Returns NULL when there is no command of that name. */
const struct act *act_find(const char *name);
const char *act_name(const struct act *a);
/* Returns whether it asks before it acts. */
bool act_asks(const struct act *a);
/* Returns the word for what it acts on: "NAME". */
const char *act_object(const struct act *a);
/* Returns NULL if it takes @word, else the reason as the rest of a sentence that begins with the
 * word. */
const char *act_refuses(const struct act *a, const char *word);

/* Acts on each of @words and says so on stdout. A failure is printed to stderr, and the other words
 * are still acted on. With @yes it does not ask. Returns how many words failed. */
int act_run(const struct act *a, share_client *client, const char *const *words, size_t n,
	    bool yes);

#endif
