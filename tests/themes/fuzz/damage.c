/* SPDX-License-Identifier: MIT */

#include <string.h>
#include <unistd.h>

#include "broker/journal/inside.h"
#include "tests/themes/fuzz/damage.h"

struct wish {
	uint8_t kind, type;
	uint16_t nth, at;
	uint8_t how, value;
};
_Static_assert(sizeof(struct wish) == DAMAGE_SIZE, "a damage is these bytes");

static uint64_t number_of(uint8_t value)
{
	static const uint64_t numbers[] = {
	    0,          1,
	    2,          3,
	    4,          63,
	    64,         255,
	    256,        4096,
	    65535,      1 << 20,
	    INT32_MAX,  UINT32_MAX - 1,
	    UINT32_MAX, (uint64_t)1 << 32,
	    UINT64_MAX,
	};

	return numbers[value % (sizeof(numbers) / sizeof(numbers[0]))];
}

/* A record in use, counted over all chunks of its type; of no type that there is: of all. */
static unsigned char *find_record(struct journal *j, const struct wish *w, struct chunk **out)
{
	enum record_type type = (enum record_type)(w->type % RECORD_TYPES);
	bool any = j->count[type] == 0;
	unsigned left = 0, pass;

	for (pass = 0; pass < 2; pass++) {
		struct chunk *chunk = NULL;

		left = pass ? w->nth % (left ? left : 1) : 0;
		while ((chunk = chunk_next(j, chunk))) {
			for (uint32_t i = 0; (any || chunk->type == type) && i < chunk->n; i++) {
				unsigned char *entry =
				    chunk->entries + (size_t)i * chunk->entry_size;

				if (!entry_sum_now(entry))
					continue;
				if (pass && left-- == 0) {
					*out = chunk;
					return entry;
				}
				left += !pass;
			}
		}
	}
	return NULL;
}

static void make_sum_right(struct journal *j, const struct chunk *chunk, unsigned char *entry)
{
	uint32_t sum = entry_sum((enum record_type)chunk->type, entry_place(j, entry), entry + 4,
				 chunk->entry_size - 4);

	if (entry_sum_now(entry) & 1)
		memcpy(entry, &sum, 4);
}

/* Where in a record, and how much of it; the bytes after it are free. */
static unsigned char *field(const struct wish *w, const struct chunk *chunk, unsigned char *entry,
			    size_t size)
{
	size_t head = entry_sum_now(entry) & 1 ? 4 : 8, room = chunk->entry_size - head;

	if (room < size)
		return NULL;
	return entry + head +
	       w->at % (room - size + 1) / (size > 4 ? 4 : size) * (size > 4 ? 4 : size);
}

static void change_record(struct journal *j, const struct wish *w)
{
	static const size_t sizes[] = {1, 4, 8, 4};
	size_t size = sizes[w->how % 4];
	struct chunk *chunk, *other_chunk;
	unsigned char *entry = find_record(j, w, &chunk), *other, *at;
	struct wish next = *w;
	uint64_t number = size == 1 ? w->value : number_of(w->value);

	at = entry ? field(w, chunk, entry, size) : NULL;
	if (!at)
		return;
	/* or what another record has there */
	next.nth = (uint16_t)(w->nth + 1);
	other = find_record(j, &next, &other_chunk);
	if (w->how & 4 && other && other_chunk->entry_size == chunk->entry_size)
		memcpy(&number, other + (at - entry), size);
	memcpy(at, &number, size);
	make_sum_right(j, chunk, entry);
}

static void drop_record(struct journal *j, const struct wish *w)
{
	struct chunk *chunk;
	unsigned char *entry = find_record(j, w, &chunk);

	if (entry)
		memset(entry, 0, 4);
}

static void repeat_record(struct journal *j, const struct wish *w)
{
	struct chunk *chunk;
	unsigned char *entry = find_record(j, w, &chunk);

	for (uint32_t i = 0; entry && i < chunk->n; i++) {
		unsigned char *copy = chunk->entries + (size_t)i * chunk->entry_size;
		uint32_t sum =
		    entry_sum_in_place((enum record_type)chunk->type, entry_place(j, copy));

		if (entry_sum_now(copy))
			continue;
		memcpy(copy, entry, chunk->entry_size);
		if (entry_sum_now(copy) & 1)
			make_sum_right(j, chunk, copy);
		else
			memcpy(copy, &sum, 4);
		return;
	}
}

/* As if the last packet had come in once more, or something like it. */
static void repeat_packet(struct journal *j, const struct wish *w)
{
	struct inbox *inbox = &j->head->inbox;

	inbox->number++;
	if (w->how & 1)
		inbox->client = number_of(w->value);
	if (w->how & 2)
		inbox->packet[w->at % 256] = w->value;
	if (w->how & 4 || inbox->header.msg_len == 0)
		inbox->header.msg_len = w->nth;
	inbox->check = inbox_check(inbox);
}

static void change_group(struct journal *j, const struct wish *w)
{
	struct group *g = group_of(j, j->head->committed);
	struct operation *op = (struct operation *)(void *)g->operations;

	if (g->n == 0)
		return;
	for (uint32_t i = w->nth % g->n; i > 0; i--)
		op = (struct operation *)(void *)((unsigned char *)op + operation_room(op->size));
	switch (w->how % 4) {
	case 0:
		op->place = (uint32_t)number_of(w->value);
		break;
	case 1:
		op->sum = (uint32_t)number_of(w->value);
		break;
	case 2:
		op->size = (uint32_t)number_of(w->value);
		break;
	default:
		op->place += w->value;
		break;
	}
	group_seal(g);
}

static void change_chunk(struct journal *j, const struct wish *w)
{
	struct chunk *chunk;

	if (!find_record(j, w, &chunk))
		return;
	switch (w->how % 4) {
	case 0:
		chunk->type = w->value;
		break;
	case 1:
		chunk->entry_size = (uint32_t)number_of(w->value);
		break;
	case 2:
		chunk->n = (uint32_t)number_of(w->value);
		break;
	default:
		chunk->span = w->value;
		break;
	}
	chunk->sum = chunk_sum(j, chunk);
}

static void flip(struct journal *j, const struct wish *w)
{
	uint64_t at = (uint64_t)w->at << 16 | w->nth, size = offsetof(struct head, inbox.packet);
	uint64_t from = 0;

	if (w->how & 1) {
		from = FIRST_CHUNK;
		size = j->used - FIRST_CHUNK;
	} else if (w->how & 2) {
		struct group *g = group_of(j, j->head->committed);

		from = (uint64_t)((unsigned char *)g - j->memory);
		size = sizeof(*g) + g->size;
	}
	j->memory[from + at % (size + 1)] ^= (unsigned char)(1u << w->value % 8);
}

static void cut_off(const struct journal *j, int fd, const struct wish *w)
{
	uint64_t size = (uint64_t)w->at << 16 | w->nth;

	size = w->how & 1 ? size % (HEAD_SIZE + 1) : FIRST_CHUNK + size % (j->size - FIRST_CHUNK);
	expect(ftruncate(fd, (off_t)size) == 0);
}

bool damage(struct journal *j, int fd, const uint8_t bytes[DAMAGE_SIZE])
{
	struct wish w;

	memcpy(&w, bytes, sizeof(w));
	switch (w.kind % 16) {
	case 0:
		flip(j, &w);
		return false;
	case 1:
		drop_record(j, &w);
		return true;
	case 2:
		repeat_record(j, &w);
		return true;
	case 3:
		repeat_packet(j, &w);
		return true;
	case 4:
		change_group(j, &w);
		return false;
	case 5:
		change_chunk(j, &w);
		return false;
	case 6:
		cut_off(j, fd, &w);
		return false;
	default:
		change_record(j, &w);
		return true;
	}
}
