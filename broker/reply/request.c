/* SPDX-License-Identifier: MIT */

/*
 * How requests are answered, and what all handlers check alike. Where they come from is
 * broker/request/dispatch.c's business.
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/log/log.h"
#include "broker/reply/request.h"

bool request_reply(struct request *r, struct wire_message *m, const int *fds, size_t n_fds)
{
	m->serial = r->m->serial;
	if (m->serial)
		client_send(r->client, m, fds, n_fds);
	return true;
}

bool request_done(struct request *r)
{
	struct wire_message m = {.type = WIRE_DONE};

	return request_reply(r, &m, NULL, 0);
}

void request_reply_error(struct client *client, enum wire_type request, uint32_t serial, int error,
			 const char *detail)
{
	struct wire_message m = {.type = WIRE_ERROR, .serial = serial};

	m.error.error = error;
	m.error.detail = (struct wire_bytes){detail, (uint32_t)strnlen(detail, 1024)};
	count_refusal(&client->broker->counters, request, error);
	client_send(client, &m, NULL, 0);
}

bool request_fail(struct request *r, int error, const char *format, ...)
{
	char detail[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	if (r->m->serial)
		request_reply_error(r->client, r->m->type, r->m->serial, error, detail);
	else
		/* nobody waits for the answer, so nobody would ever learn of the mistake */
		client_hang_up(r->client, error, detail);
	return false;
}

bool request_fail_with(struct request *r, const struct failure *failure)
{
	return request_fail(r, failure->error, "%s", failure->text);
}

bool request_fail_memory(struct request *r)
{
	return request_fail(r, SHARE_ESYSTEM, "the broker is out of memory");
}

bool request_fail_quota(struct request *r, enum limit_kind resource, const char *also)
{
	struct failure failure;

	account_refuse(r->client->account, resource, also, &failure);
	return request_fail_with(r, &failure);
}

bool request_name(struct request *r, const struct wire_bytes *name)
{
	if (text_is_valid_name(name->data, name->size))
		return true;
	return request_fail(
	    r, SHARE_EINVAL,
	    "a name is 1 to %d bytes of UTF-8 without control characters or others that "
	    "cannot be seen",
	    SHARE_NAME_MAX);
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

bool request_fail_foreign_name(struct request *r, int error, const char *what,
			       const struct wire_bytes *name)
{
	return request_fail(
	    r, error,
	    "user %u may not %s '%.*s': names that begin so are others' (\"names\" in the "
	    "broker's configuration; \"uid/%u/\" is this user's)",
	    (unsigned)r->client->peer.uid, what, (int)name->size, (const char *)name->data,
	    (unsigned)r->client->peer.uid);
}

bool request_fail_absent(struct request *r, const char *what, const struct wire_bytes *name)
{
	return request_fail(r, SHARE_ENOENT, "there is no %s '%.*s', or this user may not use it",
			    what, (int)name->size, (const char *)name->data);
}

void request_hide(const struct request *r, const char *format, ...)
{
	char why[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	log_refusal(&r->client->logged.hidden, r->client->peer.uid, why);
}

bool request_fail_unlike(struct request *r, const char *option, const char *what, const char *name,
			 const char *is, const char *wanted)
{
	return request_fail(
	    r, SHARE_EEXIST,
	    "%s of %s '%s' is %s, not %s; who opens it first says what it is like, so let "
	    "all ask for the same, or leave it at its default",
	    option, what, name, is, wanted);
}
