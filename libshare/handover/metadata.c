/* SPDX-License-Identifier: MIT */

/*
 * Metadata: JSON text that belongs to a buffer. The broker keeps it as it comes, so everybody who
 * may write in the buffer can have left anything there: it is checked where it is set, so that a
 * mistake is told to who makes it, and again where it is read.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "libshare/handover/inside.h"

#define DEPTH_MAX 64

/* How many brackets are open at most, if it is JSON. The parser calls itself for each. */
static unsigned depth_of(const char *text, size_t size)
{
	unsigned depth = 0, deepest = 0;
	bool in_string = false;

	for (size_t i = 0; i < size; i++) {
		if (text[i] == '"')
			in_string = !in_string;
		else if (in_string)
			i += text[i] == '\\';
		else if (text[i] == '[' || text[i] == '{')
			deepest = ++depth > deepest ? depth : deepest;
		else if ((text[i] == ']' || text[i] == '}') && depth > 0)
			depth--;
	}
	return deepest;
}

/* The parser takes a string for a mistake when there is no memory for it: so what is wrong has to
 * be so twice, and with memory there. -ENOMEM: there was none. */
static int parse(const char *text, size_t size, json_error_t *wrong)
{
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, wrong);
	void *volatile room; /* or the compiler knows that there always is */
	bool memory;

	if (!root)
		root = json_loadb(text, size, JSON_REJECT_DUPLICATES, wrong);
	json_decref(root);
	if (root)
		return 0;
	room = malloc(size + 1);
	memory = room;
	free(room);
	return memory && *wrong->text ? -EINVAL : -ENOMEM;
}

/*
 * Whether it is one JSON object or array that every reader understands alike: UTF-8, no key twice
 * in an object, no NUL, integers of 64 bits, no number beyond a double. 0; @error if it is not so;
 * or SHARE_ESYSTEM.
 */
int metadata_check(const char *text, size_t size, int error)
{
	json_error_t wrong = {.text = "", .line = 1, .column = 1};
	int r = -EINVAL;

	if (memchr(text, 0, size))
		snprintf(wrong.text, sizeof(wrong.text), "it has a byte 0");
	else if (depth_of(text, size) > DEPTH_MAX)
		snprintf(wrong.text, sizeof(wrong.text), "it is nested deeper");
	else
		r = parse(text, size, &wrong);
	if (r == 0)
		return 0;
	if (r == -ENOMEM)
		return fail_system(r, "reading metadata");
	return fail(error,
		    "metadata is not a JSON object or array, nested no deeper than %d: line %d, "
		    "column %d: %s",
		    DEPTH_MAX, wrong.line, wrong.column, wrong.text);
}

int share_metadata_set(share_buffer *b, const char *json)
{
	struct wire_message m = {.type = WIRE_METADATA_SET};
	size_t size = json ? strnlen(json, SHARE_METADATA_MAX + 1) : 0;
	int r = buffer_resolve(&b);

	if (r != 0)
		return r;
	if (b->mode != SHARE_RDWR)
		return fail(SHARE_EACCES, "this handle is read-only");
	if (size > SHARE_METADATA_MAX)
		return fail(SHARE_EINVAL, "metadata has at most %d bytes", SHARE_METADATA_MAX);
	r = json ? metadata_check(json, size, SHARE_EINVAL) : 0;
	if (r != 0)
		return r;
	m.metadata_set.buffer = buffer_tell_id(b); /* which makes it known */
	m.metadata_set.json = (struct wire_bytes){json, (uint32_t)size};
	return rpc(b->client, &m, NULL);
}

/* @reply: has the answer, which is not empty. Of a loan this client may have no lease: the broker
 * finds it by its message. */
static int ask_for_metadata(share_buffer *b, struct reply *reply)
{
	struct wire_message m = {.type = WIRE_METADATA_GET, .metadata_get = {.buffer = b->id}};
	struct wire_channel_metadata lent = {.buffer = b->id};
	bool loan = buffer_carrier.name_loan(b, &lent.member, &lent.producer);
	bool old = b->client->version < WIRE_VERSION_CHANNEL_METADATA;
	int r;

	if (loan && !old)
		m = (struct wire_message){.type = WIRE_CHANNEL_METADATA, .channel_metadata = lent};
	r = rpc(b->client, &m, reply);
	if (r == SHARE_ESTALE && loan && old)
		return fail(SHARE_ENOTSUP,
			    "this broker is too old to tell the metadata of a message's buffer: "
			    "call share_retain(), and acknowledge the message first");
	if (r == 0 && reply->m.metadata.json.size == 0)
		r = fail(SHARE_ENOENT, "the buffer has no metadata");
	return r;
}

/* A NUL follows, which does not count. */
static int copy(const struct wire_bytes *bytes, char **out)
{
	char *text = malloc(bytes->size + (size_t)1);

	if (!text)
		return fail_system(-ENOMEM, "reading metadata");
	memcpy(text, bytes->data, bytes->size);
	text[bytes->size] = '\0';
	*out = text;
	return 0;
}

int share_metadata_get(const share_buffer *handle, char **out)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	const struct wire_bytes *json = &reply.m.metadata.json;
	share_buffer *b = NULL;
	int r = buffer_find(handle, &b);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r == 0)
		r = ask_for_metadata(b, &reply);
	if (r == 0)
		r = metadata_check(json->data, json->size, SHARE_EPROTO);
	return r == 0 ? copy(json, out) : r;
}

int share_metadata_get_raw(const share_buffer *handle, void **out, size_t *size)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	share_buffer *b = NULL;
	char *bytes;
	int r = buffer_find(handle, &b);

	if (r == 0 && (!out || !size))
		r = fail(SHARE_EINVAL, "out or size is NULL");
	if (r == 0)
		r = ask_for_metadata(b, &reply);
	if (r == 0)
		r = copy(&reply.m.metadata.json, &bytes);
	if (r != 0)
		return r;
	*out = bytes;
	*size = reply.m.metadata.json.size;
	return 0;
}
