/* SPDX-License-Identifier: MIT */
#pragma once

#include <jansson.h>

struct bridge;
struct data_header;
struct link;
struct parcel;

/*
 * A channel of one side, on the other. Who has it is a consumer there (a source) and sends each
 * message on; who wants it is a producer of a channel of the same name (a mirror). There are as
 * many messages between a source and its mirror as the channel is deep: in a broadcast a message is
 * taken when the mirror has it, in a queue when a consumer of the mirror has acknowledged it. What
 * was not taken is not acknowledged at the source, and sent again when the link comes back; who
 * gets it twice drops it. So a message is lost or doubled only with the bridge itself, as with
 * every other member that dies.
 */

int channels_open(struct bridge *b);
void channels_close(struct bridge *b);
void channels_up(struct link *l);
void channels_down(struct link *l);
const char *channels_hear_open(struct link *l, json_t *o);
const char *channels_hear_begin(struct link *l, json_t *o);
const char *channels_hear_opened(struct link *l, json_t *o);
const char *channels_hear_closed(struct link *l, json_t *o);
const char *channels_content(struct link *l, const struct data_header *h, struct parcel *p);
json_t *channels_describe(struct bridge *b, const struct link *l);
