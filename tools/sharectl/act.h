/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

/* The commands by which an operator ends something. */

struct act {
	const char *name;
	const char *object;  /* the word for what it acts on: "NAME" */
	const char *refusal; /* why it does not take a word: a sentence that the word begins */
	bool asks;           /* before it acts */
	bool (*takes)(const char *word);
	/* Returns 0; an error of libshare; or > 0 when it failed and has printed why. */
	int (*run)(share_client *c, const char *word, bool yes);
};

/* Returns NULL when there is no command of that name. */
const struct act *act_find(const char *name);

/* Acts on each of @words and says so on stdout. A failure is printed to stderr, and the other words
 * are still acted on. With @yes it does not ask. Returns how many words failed. */
int act_run(const struct act *a, share_client *client, const char *const *words, size_t n,
	    bool yes);
