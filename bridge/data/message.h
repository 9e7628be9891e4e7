/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/channel.h>

#include "bridge/data/data.h"

struct bridge;

/* Messages of channels and services, on their way: their buffers and their data, in as many frames
 * as that takes (header.h). */

/* Sends a message with all that it has; its buffers' work is done. @h says which one it is, and is
 * filled in here. What is sent stays as it is until @done, also when the message is acknowledged
 * before; @done always comes, perhaps before this returns. */
void message_send(struct link *l, struct data_header *h, const share_message *m, data_done done,
		  void *arg);

/* A message that comes. Zeroed memory has none. */
struct message_in {
	struct data_header header; /* of the first frame */
	struct part *parts;        /* NULL: nothing has come, or it was given up */
	unsigned char *data;       /* if it is more than goes with the header */
	unsigned n, n_buffers, size;
	unsigned missing; /* frames that have not come */
	unsigned under_way;
	bool begun; /* it is being received, or was */
	int error;
	data_done done;
	void *arg;
};

/* A frame has come, the first of them before the others. NULL, or what is wrong. Whoever calls this
 * receives the message then, if it is whole, or else keeps it. */
const char *message_hear(struct message_in *m, const struct data_header *h, struct parcel *p);
/* All of its frames have come, and it can be received: once. */
bool message_is_whole(const struct message_in *m);
/* Allocates all that it needs, so that no two messages wait for what the other has, and receives
 * it. 0, and @done always comes, perhaps before this returns; or a negative error: there is no
 * memory at this time. */
int message_receive(struct bridge *b, struct message_in *m, data_done done, void *arg);
/* To receive it later, outside of the callback that brought the frame. */
void message_keep(struct message_in *m);

/* What was received, to be sent on. @buffers has room for DATA_BUFFERS. */
void message_pass(const struct message_in *m, share_outgoing *out, share_buffer **buffers);
/* Its buffers were given. */
void message_given(struct message_in *m);

/* Gives up what there is of it. Not while it is being received. */
void message_end(struct message_in *m);
