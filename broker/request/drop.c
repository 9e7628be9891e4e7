/* SPDX-License-Identifier: MIT */

/*
 * What a user may end that another process has made: a token, a connection, or messages. These are
 * a user's own or, for administrators, anybody's; of those of others a user does not even learn
 * that they are there. The rest of what operators end has requests of its own, which are not for
 * them alone.
 */

#include <inttypes.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/records.h"
#include "broker/names/token.h"
#include "broker/orphan/orphan.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

static bool drop_token(struct request *r, uint64_t id)
{
	struct token *t = token_by_id(r->broker, id);

	if (!t || !token_is_for(t, r->client))
		return request_fail(r, SHARE_ENOENT, "there is no token 0x%" PRIx64 " of yours",
				    id);
	token_free(r->broker, t, TOKEN_REVOKED);
	return request_done(r);
}

static bool drop_client(struct request *r, uint64_t id)
{
	struct client *c = clients_find(r->broker->clients, id);

	if (!c || !client_answers_for(r->client, c->peer.uid))
		return request_fail(r, SHARE_ENOENT, "there is no client %" PRIu64 " of yours", id);
	if (c == r->client)
		return request_fail(r, SHARE_EINVAL,
				    "client %" PRIu64 " is who asks: it may disconnect", id);
	if (!c->connection)
		return request_fail(r, SHARE_ESTALE,
				    "client %" PRIu64
				    " has lost its connection already: what it still "
				    "holds comes back when process %d ends",
				    id, (int)c->peer.pid);
	client_drop(c, r->client);
	return request_done(r);
}

static bool drop_messages(struct request *r, const struct wire_bytes *channel)
{
	uint64_t n;

	/* messages that have come to wait since the request came are ended with the others */
	if (!channel_drop_messages(r->broker, channel->data, channel->size, r->client, &n))
		return request_go_on_later(r);
	if (n > 0 || r->deferred_ms)
		return request_done(r);
	return request_fail(r, SHARE_ENOENT,
			    "there is nothing to end in a channel '%.*s': only messages that "
			    "wait though their producers are gone are ended, by their users",
			    (int)channel->size, (const char *)channel->data);
}

bool handle_drop(struct request *r)
{
	const struct wire_drop *m = &r->m->drop;

	switch (m->what) {
	case WIRE_DROP_CLIENT:
		return drop_client(r, m->id);
	case WIRE_DROP_TOKEN:
		return drop_token(r, m->id);
	case WIRE_DROP_MESSAGES:
		return drop_messages(r, &m->channel);
	default:
		return request_fail(r, SHARE_EINVAL, "the broker does not know what %u is",
				    m->what);
	}
}
