/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_ACT_H
#define TOOLS_ACT_H

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

/* What an operator has the broker do. */

struct act;

/* NULL when there is none of that name. */
const struct act *act_find(const char *name);
const char *act_name(const struct act *a);
/* Whether it asks before it acts. */
bool act_asks(const struct act *a);
/* What it acts on: "NAME". */
const char *act_object(const struct act *a);
/* Why @word cannot be one of these, as what comes after it in a sentence; NULL: it can. */
const char *act_refuses(const struct act *a, const char *word);

/* Does it to each of @words, and says so on stdout; what fails is said on stderr, and is no reason
 * to leave the others. @yes: without asking. Returns how many of them failed. */
int act_run(const struct act *a, share_client *client, const char *const *words, size_t n,
	    bool yes);

#endif
