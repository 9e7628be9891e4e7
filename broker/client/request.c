/* SPDX-License-Identifier: MIT */

/*
 * From packets to handlers and back. Every message is checked against the table and the client's
 * state before a handler sees it; handlers check what only they can know.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/request.h"
#include "broker/config/text.h"
#include "broker/log/log.h"
#include "broker/memory/fence.h"
#include "broker/memory/pool.h"

#define ASKED_MAX   256
#define OVERDUE_MAX 4096

#define TO_BROKER_ENTRY(NAME, name) [WIRE_##NAME] = handle_##name,
#define TO_CLIENT_ENTRY(NAME, name)
#define TO_AGENT_ENTRY(NAME, name)
#define FROM_AGENT_ENTRY(NAME, name)
#define ENTRY(NAME, name, number, direction, ...) direction##_ENTRY(NAME, name)

/* A message of the table without a handler does not link. */
static const request_handler handlers[WIRE_TYPE_COUNT] = {WIRE_MESSAGES(ENTRY)};

/* A connection begins with two messages, each in its place, and all others come after them. */
static bool is_allowed(const struct client *c, const struct wire_description *d)
{
	switch (c->state) {
	case CLIENT_CONNECTED:
		return d->flags & WIRE_FIRST;
	case CLIENT_GREETED:
		return d->flags & WIRE_SECOND;
	case CLIENT_READY:
		return !(d->flags & (WIRE_FIRST | WIRE_SECOND));
	default:
		return false;
	}
}

static bool may_lack_serial(const struct wire_description *d)
{
	return d->reply == WIRE_NOTHING || d->flags & WIRE_SERIAL_OPTIONAL;
}

bool request_handle(struct client *client, const void *data, size_t size, struct fd_list *fds)
{
	struct wire_message m;
	struct request r = {client->broker, client, &m, 0, false};
	const struct wire_description *d;
	char why[128];
	int fault;

	client->broker->counters.requests++;
	fault = wire_decode(&m, WIRE_TO_BROKER, data, size, fds->n);
	if (fault) {
		client_hang_up(client, SHARE_EPROTO, wire_error_text(fault));
		return false;
	}
	if (client->state == CLIENT_ENDING)
		return false; /* it has said goodbye; what it says after that is for nobody */
	d = wire_describe(m.type);
	if (!is_allowed(client, d)) {
		snprintf(why, sizeof(why), "%s was not expected now (state: %s)", d->name,
			 client_state_name(client->state));
		client_hang_up(client, SHARE_EPROTO, why);
		return false;
	}
	if (m.serial == 0 && !may_lack_serial(d)) {
		snprintf(why, sizeof(why), "%s needs a serial", d->name);
		client_hang_up(client, SHARE_EPROTO, why);
		return false;
	}
	/* libshare unmaps before it makes its next request; who never does piles up segments */
	if (client->n_asked > ASKED_MAX && ++client->n_overdue > OVERDUE_MAX) {
		client_hang_up(client, SHARE_EPROTO, "it does not unmap segments it was asked to");
		return false;
	}
	handlers[m.type](&r);
	return m.serial != 0;
}

void request_handle_again(struct client *client, const struct wire_message *m, uint64_t since_ms)
{
	struct request r = {client->broker, client, m, since_ms, false};

	if (client->state == CLIENT_READY && client->connection)
		handlers[m->type](&r);
}

void request_reply(struct request *r, struct wire_message *m, const int *fds, size_t n_fds)
{
	m->serial = r->m->serial;
	if (m->serial)
		client_send(r->client, m, fds, n_fds);
}

void request_done(struct request *r)
{
	struct wire_message m = {.type = WIRE_DONE};

	request_reply(r, &m, NULL, 0);
}

void request_reply_error(struct client *client, uint32_t serial, int error, const char *detail)
{
	struct wire_message m = {.type = WIRE_ERROR, .serial = serial};

	m.error.error = error;
	m.error.detail = (struct wire_bytes){detail, (uint32_t)strnlen(detail, 1024)};
	client_send(client, &m, NULL, 0);
}

void request_fail(struct request *r, int error, const char *format, ...)
{
	char detail[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	if (r->m->serial)
		request_reply_error(r->client, r->m->serial, error, detail);
	else
		/* nobody waits for the answer, so nobody would ever learn of the mistake */
		client_hang_up(r->client, error, detail);
}

void request_fail_memory(struct request *r)
{
	request_fail(r, SHARE_ESYSTEM, "the broker is out of memory");
}

void request_fail_quota(struct request *r, enum limit_kind resource, const char *also)
{
	char detail[256];

	account_refuse(r->client->account, resource, also, detail, sizeof(detail));
	request_fail(r, SHARE_EQUOTA, "%s", detail);
}

struct lease *request_lease(struct request *r, uint64_t id)
{
	struct buffer *buffer = buffer_find(r->broker, id);
	struct lease *lease = buffer ? lease_find(r->broker, r->client, buffer) : NULL;

	if (!lease)
		request_fail(r, SHARE_ESTALE, "this client does not hold a buffer %llx",
			     (unsigned long long)id);
	return lease;
}

bool request_fence(struct request *r, uint64_t timeline, uint64_t value, struct fence *out)
{
	struct timelines *t = r->client->timelines;
	uint32_t slot = WIRE_TIMELINE_SLOT(timeline);

	*out = (struct fence){0};
	if (timeline == 0)
		return true;
	if (WIRE_TIMELINE_PAGE(timeline) != t->id || slot == 0 || slot >= TIMELINE_SLOTS ||
	    value == 0 || value >= TIMELINE_POISON) {
		request_fail(r, SHARE_EINVAL, "not a fence on a timeline of this client's");
		return false;
	}
	if ((int64_t)(value - timeline_value(t->page, slot)) > FENCE_AHEAD_MAX) {
		request_fail(r, SHARE_EINVAL, "no stream gets that far: the fence is implausible");
		return false;
	}
	*out = (struct fence){timelines_ref(t), value, slot};
	if (timeline_is_by_gpu(t->page, slot))
		broker_watch_gpus(r->broker);
	return true;
}

bool request_name(struct request *r, const struct wire_bytes *name)
{
	if (text_is_valid_name(name->data, name->size))
		return true;
	request_fail(r, SHARE_EINVAL,
		     "a name is 1 to %d bytes of UTF-8 without control characters or others that "
		     "cannot be seen",
		     SHARE_NAME_MAX);
	return false;
}

bool request_may_name(const struct request *r, enum access_right right,
		      const struct wire_bytes *name)
{
	return client_may(
	    r->client, right,
	    &(struct access_object){.kind = right == RIGHT_PUBLISH ? OBJECT_NAME : OBJECT_CHANNEL,
				    .name = name->data,
				    .size = name->size});
}

void request_fail_foreign_name(struct request *r, int error, const char *what,
			       const struct wire_bytes *name)
{
	request_fail(r, error,
		     "user %u may not %s '%.*s': names that begin so are others' (\"names\" in the "
		     "broker's configuration; \"uid/%u/\" is this user's)",
		     (unsigned)r->client->peer.uid, what, (int)name->size, (const char *)name->data,
		     (unsigned)r->client->peer.uid);
}

void request_fail_absent(struct request *r, const char *what, const struct wire_bytes *name)
{
	request_fail(r, SHARE_ENOENT, "there is no %s '%.*s', or this user may not use it", what,
		     (int)name->size, (const char *)name->data);
}

void request_hide(const struct request *r, const char *format, ...)
{
	char why[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	log_refusal(&r->client->hidden, r->client->peer.uid, why);
}

struct pool *request_pool(struct request *r, const struct wire_bytes *name)
{
	struct pool *p = pool_find(r->broker, name->data, name->size);
	char detail[1024];

	if (p && pool_may(p, r->client, RIGHT_READ))
		return p;
	if (p) {
		pool_refuse(p, r->client, RIGHT_READ, detail, sizeof(detail));
		request_hide(r, "%s", detail);
	}
	request_fail_absent(r, "pool", name);
	return NULL;
}

void request_fail_unlike(struct request *r, const char *option, const char *what, const char *name,
			 const char *is, const char *wanted)
{
	request_fail(r, SHARE_EEXIST,
		     "%s of %s '%s' is %s, not %s; who opens it first says what it is like, so let "
		     "all ask for the same, or leave it at its default",
		     option, what, name, is, wanted);
}
