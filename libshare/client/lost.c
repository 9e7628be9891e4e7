/* SPDX-License-Identifier: MIT */

/* Whether the broker is lost, and what happens then. */

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "libshare/client/inside.h"
#include "libshare/client/room.h"

bool client_is_lost(share_client *c)
{
	if (!atomic_load(&c->lost))
		return false;
	/* what follows from it is done when this returns */
	pthread_mutex_lock(&c->lock);
	pthread_mutex_unlock(&c->lock);
	return true;
}

bool client_sees_loss(share_client *c)
{
	struct pollfd p = {.fd = c->connection->socket};

	return client_is_lost(c) || (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR));
}

int client_lost(share_client *c)
{
	return fail(SHARE_EDISCONNECTED, "%s", c->connection->lost_detail);
}

void client_mark_lost(share_client *c, const char *why)
{
	struct connection *n = c->connection;
	struct call *call;

	if (c->lost)
		return;
	c->lost = true;
	snprintf(n->lost_detail, sizeof(n->lost_detail), "%s", why);
	/* nothing more is said or heard; the descriptor stays, as event loops poll it */
	shutdown(n->socket, SHUT_RDWR);
	while ((call = LIST_FIRST(&n->calls))) {
		LIST_REMOVE(call, link);
		call->error = SHARE_EDISCONNECTED;
		call->done = true;
		if (call->answered)
			call->answered(c, call, NULL, SHARE_EDISCONNECTED);
	}
	for (size_t i = 0; client_rooms[i]; i++)
		if (client_rooms[i]->lose_broker)
			client_rooms[i]->lose_broker(c);
	bell_ring(&c->arrived);
}
