/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct bridge;

/* What a channel is like, as the broker reports it: the caller's; NULL: there is none. */
json_t *shape_of(struct bridge *b, const char *channel);
/* 0: it does not say, or what makes no sense. */
uint32_t shape_number(const json_t *shape, const char *key);
/* Whether its messages take parts (bridge/data/header.h): a consumer has to say that it wants so
 * much. */
bool shape_has_parts(const json_t *shape);
