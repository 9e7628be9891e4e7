/* SPDX-License-Identifier: MIT */
/*
 * Who may do what with a pool: users and groups, each with a mode.
 *
 * There is no way to take something away: what entries allow adds up, so their order means nothing
 * and a list can be read without simulating it.
 *
 * Must not know where a peer's uid and groups come from, nor what a pool is.
 */
#include "broker/rights/access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned mode;
} modes[] = {{"ro", ACCESS_RO}, {"rw", ACCESS_RW}, {"manage", ACCESS_ALL}};

int access_grant(struct access_list *list, struct principal who, unsigned mode)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_equal(list->entries[i].who, who)) {
			list->entries[i].mode |= mode;
			return 0;
		}
	}

	struct access_entry *grown =
	    reallocarray(list->entries, list->n_entries + 1, sizeof(*list->entries));
	if (!grown)
		return -ENOMEM;
	grown[list->n_entries++] = (struct access_entry){.who = who, .mode = mode};
	list->entries = grown;
	return 0;
}

unsigned access_check(const struct access_list *list, uid_t uid, const gid_t *groups,
		      size_t n_groups)
{
	unsigned mode = 0;

	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_is(list->entries[i].who, uid, groups, n_groups))
			mode |= list->entries[i].mode;
	}
	return mode;
}

bool access_lets_several_write(const struct access_list *list, uid_t own)
{
	size_t n = own != 0;

	for (size_t i = 0; i < list->n_entries; i++) {
		const struct access_entry *e = &list->entries[i];

		if (!(e->mode & ACCESS_WRITE))
			continue;
		if (e->who.type != PRINCIPAL_USER)
			return true;
		n += e->who.id != 0 && e->who.id != own;
	}
	return n > 1;
}

/* No principal is twice in a list, so it suffices to count equal entries. */
bool access_list_equal(const struct access_list *a, const struct access_list *b)
{
	size_t same = 0;

	for (size_t i = 0; i < a->n_entries; i++) {
		for (size_t k = 0; k < b->n_entries; k++)
			same += principal_equal(a->entries[i].who, b->entries[k].who) &&
				a->entries[i].mode == b->entries[k].mode;
	}
	return same == a->n_entries && same == b->n_entries;
}

const char *access_mode_name(unsigned mode)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (modes[i].mode == mode)
			return modes[i].name;
	}
	return "nothing";
}

unsigned access_mode_named(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, name) == 0)
			return modes[i].mode;
	}
	return 0;
}

char *access_format(const struct access_list *list, char *out, size_t size)
{
	static const char rest[] = ", ...]";
	size_t n = (size_t)snprintf(out, size, "[");
	char one[64];

	for (size_t i = 0; i < list->n_entries; i++) {
		const struct access_entry *e = &list->entries[i];
		int more = e->who.type == PRINCIPAL_EVERYONE
			       ? snprintf(one, sizeof(one), "{\"user\": \"*\", \"mode\": \"%s\"}",
					  access_mode_name(e->mode))
			       : snprintf(one, sizeof(one), "{\"%s\": %u, \"mode\": \"%s\"}",
					  e->who.type == PRINCIPAL_GROUP ? "group" : "user",
					  (unsigned)e->who.id, access_mode_name(e->mode));

		if (n + (size_t)more + sizeof(rest) + 1 >= size) {
			snprintf(out + n, size - n, "%s", i > 0 ? rest : &rest[2]);
			return out;
		}
		n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", one);
	}
	snprintf(out + n, size - n, "]");
	return out;
}

void access_list_deinit(struct access_list *list)
{
	free(list->entries);
	*list = (struct access_list){0};
}

int access_list_copy(struct access_list *out, const struct access_list *from)
{
	struct access_entry *entries = calloc(from->n_entries + 1, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_entries; i++)
		entries[i] = from->entries[i];
	*out = (struct access_list){.entries = entries, .n_entries = from->n_entries};
	return 0;
}
