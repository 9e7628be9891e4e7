/* SPDX-License-Identifier: MIT */

/* Members of records that take more than a copy. */

#include "broker/journal/record.h"

#include <errno.h>

#include "broker/journal/inside.h"

uint32_t state_layout(void)
{
	return STATE_LAYOUT;
}

void record_i32(struct record *r, int32_t *member)
{
	record_bytes(r, member, sizeof(*member), sizeof(*member));
}

void record_flag(struct record *r, bool *member)
{
	uint32_t value = *member;

	record_u32(r, &value);
	*member = value;
}

void record_flag8(struct record *r, bool *member)
{
	uint8_t value = *member;

	record_bytes(r, &value, sizeof(value), sizeof(value));
	*member = value;
}

/* Writes the text, or returns where it is in the record; NULL: it was written, or it makes no
 * sense. */
static const char *text_of(struct record *r, const char *text, size_t room)
{
	char *in_record = (char *)r->bytes + r->at;
	size_t size = r->is_read ? strnlen(in_record, room) : strnlen(text, room - 1);

	assert(r->at + room <= RECORD_FIXED_MAX);
	r->at += room;
	if (r->is_read) {
		if (size == room)
			record_fail(r, -EBADMSG);
		return size < room ? in_record : NULL;
	}
	memcpy(in_record, text, size);
	memset(in_record + size, 0, room - size);
	return NULL;
}

void record_text(struct record *r, char *text, size_t room)
{
	const char *in_record = text_of(r, text, room);

	if (in_record)
		memcpy(text, in_record, room);
}

void record_string(struct record *r, char **text, size_t room)
{
	const char *in_record = text_of(r, *text ? *text : "", room);

	if (!in_record || !*in_record || !record_reads(r))
		return;
	*text = strdup(in_record);
	if (!*text)
		record_fail(r, -ENOMEM);
}

struct iovec record_rest(struct record *r, const void *bytes, size_t size, size_t unit)
{
	struct iovec part = {(void *)(uintptr_t)bytes, size};
	uint32_t n = (uint32_t)(size / unit);

	record_u32(r, &n);
	if (!r->is_read) {
		assert(r->n_parts <= RECORD_RESTS);
		r->parts[r->n_parts++] = part;
		return part;
	}
	if (n > r->left / unit) {
		record_fail(r, -EBADMSG);
		n = 0;
	}
	part = (struct iovec){r->rest, n * unit};
	r->rest += part.iov_len;
	r->left -= part.iov_len;
	return part;
}

void record_rest_of(struct record *r, char *text, size_t *size)
{
	struct iovec part = record_rest(r, text, *size, 1);

	if (!record_reads(r))
		return;
	memcpy(text, part.iov_base, part.iov_len);
	*size = r->at_end = part.iov_len;
}
