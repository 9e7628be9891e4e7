/* SPDX-License-Identifier: MIT */
#pragma once

#include <jansson.h>

struct bridge;
struct data_header;
struct link;
struct parcel;

/*
 * A service of one side, on the other: who wants it is a worker there (a desk), and sends each
 * request to who has it, which is a caller of the real service. Each request is answered once: by
 * the answer, or, when the link is lost or the service has none, as canceled. A caller that gives
 * up, or whose time is over, is noticed at the desk, and its call is canceled over there.
 */

int services_open(struct bridge *b);
void services_close(struct bridge *b);
void services_up(struct link *l);
void services_down(struct link *l);
const char *services_hear_call(struct link *l, json_t *o);
const char *services_hear_called(struct link *l, json_t *o);
const char *services_content(struct link *l, const struct data_header *h, struct parcel *p);
json_t *services_describe(struct bridge *b, const struct link *l);
