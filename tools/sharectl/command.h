/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/share.h>

/* Commands that are neither reports nor end something. */

struct arguments;

struct command {
	const char *name;
	/* 0, an error of libshare, or a positive errno */
	int (*run)(const struct arguments *a, share_client *client);
	bool needs_broker;  /* else its client is NULL when there is none */
	const char *object; /* what its words are; NULL: it takes none */
};

/* Returns NULL when there is no command of that name. */
const struct command *command_find(const char *name);
