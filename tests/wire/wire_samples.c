/* SPDX-License-Identifier: MIT */

/* Messages with random content, and a place for packets where memory ends. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "tests/wire/wire_samples.h"

unsigned char packet[ROOM];

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint64_t random_u64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

size_t random_below(size_t n)
{
	return (size_t)(random_u64() % n);
}

void random_bytes(void *out, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)out)[i] = (unsigned char)random_u64();
}

unsigned char *edge(size_t size)
{
	static unsigned char *end;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (ROOM / page + 1) * page;

	if (!end) {
		unsigned char *start = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		cr_assert_neq(start, MAP_FAILED);
		end = start + room;
		cr_assert_eq(mprotect(end, page, PROT_NONE), 0);
	}
	return end - size;
}

unsigned char *at_the_edge(const void *data, size_t size)
{
	return memcpy(edge(size), data, size);
}

static void *member(struct wire_message *m, const struct wire_field *f)
{
	return (unsigned char *)&m->hello + f->offset;
}

struct wire_bytes bytes_of(struct wire_message *m, const struct wire_field *f)
{
	struct wire_bytes bytes;

	memcpy(&bytes, member(m, f), sizeof(bytes));
	return bytes;
}

void set_bytes(struct wire_message *m, const struct wire_field *f, const void *data, uint32_t size)
{
	memcpy(member(m, f), &(struct wire_bytes){data, size}, sizeof(struct wire_bytes));
}

static int32_t random_error(void)
{
#define ERROR(name, number, text) name,
	static const int32_t errors[] = {SHARE_ERRORS(ERROR)};
#undef ERROR

	return errors[random_below(sizeof(errors) / sizeof(errors[0]))];
}

void fill(struct wire_message *m, unsigned type, uint32_t cap)
{
	static unsigned char content[WIRE_PACKET_MAX];
	const struct wire_description *d = wire_describe(type);
	size_t used = 0;

	memset(m, 0, sizeof(*m));
	m->type = (enum wire_type)type;
	m->serial = (uint32_t)random_u64();
	random_bytes(content, cap ? 4096 : sizeof(content));
	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];
		uint32_t most = cap && cap < f->max ? cap : f->max;

		if (f->max) {
			uint32_t size = cap ? (uint32_t)random_below(most + 1) : most;

			set_bytes(m, f, content + used, size);
			used += size;
		} else if (f->is_error) { /* others have no number on the wire */
			memcpy(member(m, f), &(int32_t){random_error()}, sizeof(int32_t));
		} else {
			random_bytes(member(m, f), f->size);
		}
	}
}

static bool is_zero(const void *data, size_t size)
{
	const unsigned char *p = data;

	while (size > 0 && p[size - 1] == 0)
		size--;
	return size == 0;
}

bool field_is_zero(struct wire_message *m, const struct wire_field *f)
{
	return f->max ? bytes_of(m, f).size == 0 : is_zero(member(m, f), f->size);
}

bool field_is_same(struct wire_message *a, struct wire_message *b, const struct wire_field *f)
{
	struct wire_bytes x, y;

	if (!f->max)
		return memcmp(member(a, f), member(b, f), f->size) == 0;
	x = bytes_of(a, f);
	y = bytes_of(b, f);
	return x.size == y.size && (x.size == 0 || memcmp(x.data, y.data, x.size) == 0);
}

void assert_same(struct wire_message *sent, struct wire_message *got)
{
	const struct wire_description *d = wire_describe(sent->type);

	cr_assert_eq(got->type, sent->type, "%s", d->name);
	cr_assert_eq(got->serial, sent->serial, "%s", d->name);
	for (size_t i = 0; i < d->n_fields; i++)
		cr_assert(field_is_same(sent, got, &d->fields[i]), "%s.%s", d->name,
			  d->fields[i].name);
}

void assert_inside(struct wire_message *m, const unsigned char *in, size_t size)
{
	const struct wire_description *d = wire_describe(m->type);

	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];
		struct wire_bytes bytes;

		if (!f->max)
			continue;
		bytes = bytes_of(m, f);
		cr_assert_leq(bytes.size, f->max, "%s.%s", d->name, f->name);
		if (bytes.size == 0)
			continue;
		cr_assert((const unsigned char *)bytes.data >= in + WIRE_HEADER_SIZE &&
			      (const unsigned char *)bytes.data + bytes.size <= in + size,
			  "%s.%s", d->name, f->name);
	}
}

size_t encode(const struct wire_message *m, void *out)
{
	size_t size = wire_encode(m, out, WIRE_PACKET_MAX);

	cr_assert_neq(size, 0, "%s", wire_describe(m->type)->name);
	return size;
}

int decode(struct wire_message *m, const struct wire_description *d, const void *in, size_t size)
{
	return wire_decode(m, (enum wire_direction)d->direction, in, size, d->fds_min);
}

uint16_t word(const unsigned char *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

void set_word(unsigned char *p, size_t value)
{
	p[0] = (unsigned char)value;
	p[1] = (unsigned char)(value >> 8);
}

size_t position(const struct wire_description *d, size_t i)
{
	size_t at = WIRE_HEADER_SIZE;

	for (size_t j = 0; j < i; j++)
		at += d->fields[j].size;
	return at;
}
