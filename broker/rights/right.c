/* SPDX-License-Identifier: MIT */

/*
 * Who may do what, decided in one place: everything that the broker is asked for by way of a name
 * or an identifier comes here with who asks, what for, and what it is. The lists that decide are
 * read by others (access.c, name_owner.c); what is answered is the business of who asks.
 *
 * Two things have to agree. A pool's list says who reaches its memory; what a name begins with says
 * who may use what is called so, publish and create under it, and end what others have made there.
 * Whoever has made something keeps it: its pool's list and its name's beginning take nothing away
 * from its maker, but that a buffer's memory is reached through its pool. Administrators are not
 * asked.
 *
 * Must not know where users and objects come from, nor what is done with the answer.
 */
#include "broker/rights/right.h"

enum access_right access_right_of(unsigned mode)
{
	return mode & ACCESS_WRITE ? RIGHT_WRITE : RIGHT_READ;
}

static bool is_its_own(const struct access_who *who, const struct access_object *o)
{
	return o->is_owned && o->owner == who->uid;
}

static bool name_lets(const struct rights *rules, const struct access_who *who,
		      enum name_right right, const struct access_object *o)
{
	return !o->name || name_owners_allow(&rules->names, o->name, o->size, right, who->uid,
					     who->groups, who->n_groups);
}

/* Whether the pool's list lets somebody use its memory in these modes. */
static bool pool_lets(const struct rights *rules, const struct access_who *who, unsigned modes,
		      const struct access_object *pool)
{
	if (is_its_own(who, pool))
		return true;
	return pool->access &&
	       (access_check(pool->access, who->uid, who->groups, who->n_groups) & modes) ==
		   modes &&
	       name_lets(rules, who, NAME_USE, pool);
}

static bool may_reach(const struct rights *rules, const struct access_who *who, unsigned modes,
		      const struct access_object *o)
{
	switch (o->kind) {
	case OBJECT_POOL:
		return pool_lets(rules, who, modes, o);
	case OBJECT_NAME:
	case OBJECT_CHANNEL:
		return pool_lets(rules, who, modes, o->pool) &&
		       (is_its_own(who, o) || name_lets(rules, who, NAME_USE, o));
	case OBJECT_PROCESS:
	case OBJECT_BROKER:
		break;
	}
	return is_its_own(who, o);
}

bool access_may(const struct rights *rules, const struct access_who *who, enum access_right right,
		const struct access_object *o)
{
	if (principal_match(&rules->admins, who->uid, who->groups, who->n_groups))
		return true;
	switch (right) {
	case RIGHT_READ:
		return may_reach(rules, who, ACCESS_RO, o);
	case RIGHT_WRITE:
		return may_reach(rules, who, ACCESS_RW, o);
	case RIGHT_PUBLISH:
		return (!o->pool || pool_lets(rules, who, ACCESS_RO, o->pool)) &&
		       name_lets(rules, who, NAME_PUBLISH, o) &&
		       (!o->is_owned || is_its_own(who, o) ||
			name_lets(rules, who, NAME_MANAGE, o));
	case RIGHT_CREATE:
		return (o->kind != OBJECT_POOL || principal_match(&rules->create_pools, who->uid,
								  who->groups, who->n_groups)) &&
		       name_lets(rules, who, NAME_CREATE, o);
	case RIGHT_MANAGE:
		return is_its_own(who, o) || (o->name && name_lets(rules, who, NAME_MANAGE, o)) ||
		       (o->kind == OBJECT_POOL && pool_lets(rules, who, ACCESS_MANAGE, o));
	}
	return false;
}
