/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the operator said, by options and by the file of --config. */

#define SITE_MAX 63 /* bytes of a site's name */

enum policy {
	POLICY_EAGER = 1, /* each version travels as soon as it is announced, the newest first */
	POLICY_DEMAND,    /* a name travels when somebody waits for it, and from then on eagerly */
};

/* Which names: a pattern of fnmatch(3), in which "*" matches "/" as well. */
struct pattern {
	char *text;
	enum policy policy;
};

struct patterns {
	struct pattern *all;
	size_t n;
};

struct settings {
	char *broker; /* where it is; NULL: where programs find it */
	char *site;   /* what this side is called; no two that are connected are called alike */
	char *listen; /* HOST:PORT or NULL */
	char *pool;   /* in which memory for what comes in is allocated */
	char *prefix; /* of all names that come in */
	char *key_file;
	struct patterns peers;   /* HOST:PORT of each */
	struct patterns in, out; /* names */
	struct patterns channels_in, channels_out;
	struct patterns services_in, services_out;
	bool cuda;           /* UCX takes memory of GPUs as it is, if it can */
	uint32_t grace_ms;   /* for which the names of a lost link stay, marked stale */
	uint32_t timeout_ms; /* a peer that says nothing for so long is lost */
	unsigned char key[32];
};

/* Reads the command line, the file, and the key. Says what is wrong and ends the program. */
void settings_read(struct settings *s, int argc, char **argv);
void settings_free(struct settings *s);

/* Whether a site can be called so: without "/" and control characters. */
bool settings_is_site(const char *name);

/* The first pattern that a name matches, or NULL. */
const struct pattern *patterns_match(const struct patterns *p, const char *name);
