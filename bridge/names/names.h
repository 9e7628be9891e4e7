/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <jansson.h>

struct bridge;
struct data_header;
struct link;
struct parcel;

/*
 * A name of one side, on the other. Who has it announces its versions; who wants it asks for one,
 * is told what it is, allocates memory, says so, and receives it in place. Then it publishes the
 * name, so that readers keep the old version until the new one is whole.
 *
 * In the metadata of what came in, "bridge" says by which sites it came ("path", the last one the
 * nearest), which version it is there, and whether that may be out of date ("stale"). What came by
 * a site is never sent to that site, so nothing goes round in circles.
 */

/* What comes in. It is kept for a link that was lost, until its time of grace is over. */
int names_in_make(struct link *l);
void names_in_free(struct link *l);
bool names_in_is_empty(const struct link *l);
void names_in_move(struct link *from, struct link *to);
void names_in_up(struct link *l);
void names_in_down(struct link *l);
const char *names_in_hear_name(struct link *l, json_t *o);
const char *names_in_hear_gone(struct link *l, json_t *o);
const char *names_in_hear_listed(struct link *l, json_t *o);
const char *names_in_hear_content(struct link *l, json_t *o);
const char *names_in_hear_failed(struct link *l, json_t *o);
const char *names_in_content(struct link *l, const struct data_header *h, struct parcel *p);
/* Somebody waits for a name: it travels if it was announced. */
void names_in_demand(struct link *l, const char *local_name);
void names_in_count(const struct link *l, unsigned *here, unsigned *stale, unsigned *on_the_way);

/* What goes out. */
int names_out_open(struct bridge *b);
void names_out_close(struct bridge *b);
void names_out_up(struct link *l);
void names_out_down(struct link *l);
const char *names_out_hear_want(struct link *l, json_t *o);
const char *names_out_hear_ready(struct link *l, json_t *o);
