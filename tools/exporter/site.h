/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct event_base;

/* What is served by HTTP: /metrics, /state.json, /healthz and the page at /. */

struct site_options {
	const char *address; /* of the broker; NULL: where programs find it */
	const char *host;    /* to listen at, as digits */
	uint16_t port;       /* 0: any that is free */
};

struct site;

/* Listens. Returns 0, or a negative errno. */
int site_new(struct event_base *base, const struct site_options *options, struct site **out);
/* Returns the port that it listens at. */
uint16_t site_port(const struct site *s);
/* Returns false if the broker hangs, so that nothing but the end of the process frees it. */
bool site_free(struct site *s);
