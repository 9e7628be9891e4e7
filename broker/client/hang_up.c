/* SPDX-License-Identifier: MIT */

/* How a connection ends. The loop does the rest (end.c), as a function that is sending to this
 * client may be going through its lists. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/log/log.h"

void client_close_connection(struct client *c)
{
	if (c->connection)
		c->logged.held = c->holds;
	connection_free(c->connection);
	c->connection = NULL;
	c->socket = -1;
	unanswered_drop(c);
	client_note(c);
}

void client_outlive_connection_soon(struct client *c)
{
	broker_set_timer(c->broker, c->end.timer, 0);
}

void client_hang_up(struct client *c, int error, const char *why)
{
	struct log_client who = client_in_log(c);

	if (!c->connection)
		return;
	c->end.forfeits |= why != NULL && !MUTATION(dropped_keep_tokens);
	if (why) {
		c->broker->counters.dropped++;
		log_violation(&who, why);
		connection_send_rest(c->connection);
		connection_farewell(c->socket, error, why);
	}
	client_close_connection(c);
	/* the loop does the rest, as a function that is sending to this client may be going through
	 * its lists */
	if (c->state < CLIENT_QUARANTINED)
		client_outlive_connection_soon(c);
}

void client_drop(struct client *c, const struct client *by)
{
	struct log_client who = client_in_log(c);
	char why[128];

	snprintf(why, sizeof(why), "uid %u has dropped this client (sharectl drop-client)",
		 (unsigned)by->peer.uid);
	c->end.forfeits = !MUTATION(dropped_keep_tokens);
	log_dropped(&who, by->peer.uid);
	connection_send_rest(c->connection);
	connection_farewell(c->socket, SHARE_EDISCONNECTED, why);
	client_hang_up(c, 0, NULL);
}

void client_lose(struct client *c, int error)
{
	struct log_client who = client_in_log(c);
	char why[128];

	/* a connection that the peer has ended is not worth a line */
	if (c->connection && error != -EPIPE && error != -ECONNRESET) {
		snprintf(why, sizeof(why), "the broker cannot go on with this connection: %s",
			 strerror(-error));
		log_lost(&who, why);
		connection_send_rest(c->connection);
		connection_farewell(c->socket, SHARE_ESYSTEM, why);
	}
	client_hang_up(c, 0, NULL);
}
