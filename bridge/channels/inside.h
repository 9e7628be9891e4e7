/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>
#include <share/channel.h>

#include "bridge/channels/channels.h"
#include "bridge/data/data.h"
#include "bridge/data/message.h"

/* What sources.c and mirrors.c have in common: both outlive links, and are found by the peer's site
 * and the channel's name. */

struct channels {
	TAILQ_HEAD(, source) sources;
	TAILQ_HEAD(, mirror) mirrors;
	unsigned n_sources;
};

const char *source_open(struct link *l, uint32_t which, const char *name);
const char *source_begin(struct link *l, uint32_t which, uint64_t next);
const char *source_taken(struct link *l, const struct data_header *h);
void sources_down(struct link *l);
void sources_close(struct bridge *b);
json_t *sources_describe(struct bridge *b, const struct link *l);

void mirrors_down(struct link *l);
void mirrors_close(struct bridge *b);
const char *mirror_opened(struct link *l, uint32_t which, json_t *o);
const char *mirror_closed(struct link *l, uint32_t which);
const char *mirror_message(struct link *l, const struct data_header *h, struct parcel *p);
json_t *mirrors_describe(struct bridge *b, const struct link *l);
