/* SPDX-License-Identifier: MIT */
/*
 * Users and groups, and lists of them. They are numbers: to compare them asks nobody.
 *
 * Must not know where a peer's uid and groups come from, nor who reads a list.
 */
#include "broker/rights/principal.h"

#include <errno.h>
#include <stdlib.h>

bool principal_equal(struct principal a, struct principal b)
{
	return a.type == b.type && a.id == b.id;
}

bool principal_is(struct principal who, uid_t uid, const gid_t *groups, size_t n_groups)
{
	switch (who.type) {
	case PRINCIPAL_EVERYONE:
		return true;
	case PRINCIPAL_USER:
		return who.id == uid;
	case PRINCIPAL_GROUP:
		for (size_t i = 0; i < n_groups; i++) {
			if (who.id == groups[i])
				return true;
		}
		return false;
	}
	return false;
}

bool principal_list_has(const struct principal_list *list, struct principal who)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_equal(list->entries[i], who))
			return true;
	}
	return false;
}

int principal_list_add(struct principal_list *list, struct principal who)
{
	if (principal_list_has(list, who))
		return 0;

	struct principal *grown =
	    reallocarray(list->entries, list->n_entries + 1, sizeof(*list->entries));
	if (!grown)
		return -ENOMEM;
	grown[list->n_entries++] = who;
	list->entries = grown;
	return 0;
}

bool principal_match(const struct principal_list *list, uid_t uid, const gid_t *groups,
		     size_t n_groups)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_is(list->entries[i], uid, groups, n_groups))
			return true;
	}
	return false;
}

void principal_list_deinit(struct principal_list *list)
{
	free(list->entries);
	*list = (struct principal_list){0};
}
