/* SPDX-License-Identifier: MIT */

/* What of a client is this room's: when it begins and ends, and what the broker says of it. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"
#include "libshare/client/room.h"

/* For those who count what the broker has. */
static bool wants_magazines(void)
{
	const char *value = secure_getenv("SHARE_MAGAZINES");

	return !value || strcmp(value, "0") != 0;
}

static bool dumps_mine(void)
{
	const char *value = secure_getenv("SHARE_DUMP");

	return value && strcmp(value, "mine") == 0;
}

static int begin(share_client *c, const share_connect_options *options)
{
	struct buffers *b = calloc(1, sizeof(*b));

	(void)options;
	if (!b)
		return fail_system(-ENOMEM, "connecting");
	pthread_mutex_init(&b->magazines.lock, NULL);
	LIST_INIT(&b->magazines.list);
	b->magazines.wanted = wants_magazines();
	b->dumps_mine = dumps_mine();
	pthread_mutex_init(&b->uses_lock, NULL);
	LIST_INIT(&b->awaited.list);
	c->buffers = b;
	return 0;
}

static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	(void)fds;
	if (m->type != WIRE_TRIM)
		return 0;
	magazines_trim(c, &m->trim);
	return 1;
}

static void done(share_client *c)
{
	struct buffers *b = c->buffers;

	if (!b)
		return;
	pthread_mutex_destroy(&b->magazines.lock);
	pthread_mutex_destroy(&b->uses_lock);
	free(b);
	c->buffers = NULL;
}

const struct client_room buffer_room = {
    .begin = begin,
    .hear = hear,
    .lose_broker = messages_lose_broker,
    .do_chores = buffers_cooled_meanwhile,
    .dispatch = buffers_look_again,
    .leave = magazines_end,
    .free = done,
};

void buffers_look_again(share_client *c)
{
	buffers_cooled(c, false);
}
