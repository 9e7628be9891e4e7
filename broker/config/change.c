/* SPDX-License-Identifier: MIT */
/*
 * What a configuration that is read again changes of the one that is in force.
 *
 * There are keys that can change while the broker runs and keys that cannot; this file knows which.
 * The second kind is told as well, as an operator who has written something and does not find it
 * at work would look for the reason. What was told keeps being true: the configuration in force has
 * the values that are in force, so the next file is compared with them and not with the last file.
 *
 * A pool that is in the file no more stays in the configuration as long as the pool is there, as
 * one that is leaving; put back into the file, it stays.
 *
 * Must not know the objects that are made from a configuration.
 */
#include "broker/config/change.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/size.h"
#include "broker/config/limits.h"

#define KEY_MAX  512 /* bytes; the name of a pool has up to 255 */
#define TEXT_MAX 512

void config_changes_add(struct config_changes *changes, bool now, const char *key,
			const char *format, ...)
{
	struct config_change *grown =
	    reallocarray(changes->entries, changes->n + 1, sizeof(*changes->entries));
	struct config_change change = {.now = now};
	char text[TEXT_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	change.key = strdup(key);
	change.text = strdup(text);
	if (grown)
		changes->entries = grown;
	if (grown && change.key && change.text) {
		changes->entries[changes->n++] = change;
		return;
	}
	free(change.key);
	free(change.text);
	changes->error = -ENOMEM;
}

void config_changes_deinit(struct config_changes *changes)
{
	for (size_t i = 0; i < changes->n; i++) {
		free(changes->entries[i].key);
		free(changes->entries[i].text);
	}
	free(changes->entries);
	*changes = (struct config_changes){0};
}

/* ------------------------------------------------------------------------------------------- */
/* Single values                                                                               */

/* Compares one value, as it is written in both configurations; NULL: it is not. */
static void compare(struct config_changes *out, bool can_change, const char *key, const char *now,
		    const char *file)
{
	if (now == file || (now && file && strcmp(now, file) == 0))
		return;
	now = now ? now : "the default";
	file = file ? file : "the default";
	if (can_change)
		config_changes_add(out, true, key, "%s -> %s", now, file);
	else
		config_changes_add(out, false, key, "stays %s; %s takes a restart", now, file);
}

static void compare_size(struct config_changes *out, bool can_change, const char *key, uint64_t now,
			 uint64_t file)
{
	char one[SIZE_EXACT_MAX], other[SIZE_EXACT_MAX];

	compare(out, can_change, key, size_tell(now, one), size_tell(file, other));
}

/* ------------------------------------------------------------------------------------------- */
/* Lists                                                                                       */

static void name_principal(struct principal who, char out[static 32])
{
	if (who.type == PRINCIPAL_EVERYONE)
		strcpy(out, "everyone");
	else
		snprintf(out, 32, "%s %u", who.type == PRINCIPAL_USER ? "user" : "group",
			 (unsigned)who.id);
}

/* Tells which entries of @list @other lacks. */
static void tell_lacking(struct config_changes *out, const char *key,
			 const struct principal_list *list, const struct principal_list *other,
			 const char *what)
{
	char name[32];

	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_list_has(other, list->entries[i]))
			continue;
		name_principal(list->entries[i], name);
		config_changes_add(out, true, key, "%s: %s", name, what);
	}
}

static void compare_principals(struct config_changes *out, const char *key,
			       const struct principal_list *now, const struct principal_list *file)
{
	tell_lacking(out, key, now, file, "removed");
	tell_lacking(out, key, file, now, "added");
}

/* Returns what the list says of exactly this user or group. */
static unsigned mode_of(const struct access_list *list, struct principal who)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_equal(list->entries[i].who, who))
			return list->entries[i].mode;
	}
	return 0;
}

static void compare_entry(struct config_changes *out, const char *key, struct principal who,
			  unsigned now, unsigned file)
{
	char name[32];

	if (now == file)
		return;
	name_principal(who, name);
	config_changes_add(out, true, key, "%s: %s -> %s", name, access_mode_name(now),
			   access_mode_name(file));
}

static void compare_access(struct config_changes *out, const char *key,
			   const struct access_list *now, const struct access_list *file)
{
	const struct access_entry *e;

	for (e = now->entries; e < now->entries + now->n_entries; e++)
		compare_entry(out, key, e->who, e->mode, mode_of(file, e->who));
	for (e = file->entries; e < file->entries + file->n_entries; e++) {
		if (mode_of(now, e->who) == 0)
			compare_entry(out, key, e->who, 0, e->mode);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Limits                                                                                      */

static void compare_limit(struct config_changes *out, const char *object, enum limit_kind kind,
			  uint64_t now, uint64_t file)
{
	char one[SIZE_EXACT_MAX], other[SIZE_EXACT_MAX], key[KEY_MAX];

	snprintf(key, sizeof(key), "%s.%s", object, limit_name(kind));
	compare(out, true, key, limit_text(kind, now, one), limit_text(kind, file, other));
}

/* Compares the limits of one user. A limit that is the one of all users, in both configurations, is
 * told for all. */
static void compare_user(struct config_changes *out, const struct config *now,
			 const struct config *file, uid_t uid)
{
	const struct limits *one = config_limits_for(now, uid);
	const struct limits *other = config_limits_for(file, uid);
	char object[64];

	snprintf(object, sizeof(object), "users[%u].limits", (unsigned)uid);
	for (size_t i = 0; i < LIMIT_KINDS; i++) {
		if (one->max[i] != now->limits.max[i] || other->max[i] != file->limits.max[i])
			compare_limit(out, object, (enum limit_kind)i, one->max[i], other->max[i]);
	}
}

static bool has_user(const struct config *c, uid_t uid)
{
	return config_limits_for(c, uid) != &c->limits;
}

static void compare_limits(struct config_changes *out, const struct config *now,
			   const struct config *file)
{
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		compare_limit(out, "limits", (enum limit_kind)i, now->limits.max[i],
			      file->limits.max[i]);
	for (size_t i = 0; i < now->n_users; i++)
		compare_user(out, now, file, now->users[i].uid);
	for (size_t i = 0; i < file->n_users; i++) {
		if (!has_user(now, file->users[i].uid))
			compare_user(out, now, file, file->users[i].uid);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

static struct pool_config *find_pool(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_pools; i++) {
		if (strcmp(c->pools[i].name, name) == 0)
			return &c->pools[i];
	}
	return NULL;
}

/* `pools["frames"].limit`, or without @key the pool. */
static const char *pool_key(char out[static KEY_MAX], const struct pool_config *p, const char *key)
{
	snprintf(out, KEY_MAX, "pools[\"%s\"]%s%s", p->name, key ? "." : "", key ? key : "");
	return out;
}

static void compare_pool(struct config_changes *out, const struct pool_config *now,
			 const struct pool_config *file)
{
	const struct {
		const char *key;
		bool can_change;
		uint64_t now, file;
	} sizes[] = {
	    {"limit", true, now->limit, file->limit},
	    {"segment_size", false, now->segment_size, file->segment_size},
	    {"alignment", false, now->alignment, file->alignment},
	    {"release_threshold", true, now->release_threshold, file->release_threshold},
	    {"prefault", false, now->prefault, file->prefault},
	};
	char key[KEY_MAX], numa[2][POOL_NUMA_MAX];

	compare(out, false, pool_key(key, file, "kind"), now->kind, file->kind);
	compare(out, false, pool_key(key, file, "device"), now->device, file->device);
	compare(out, false, pool_key(key, file, "same_address"),
		now->same_address ? "true" : "false", file->same_address ? "true" : "false");
	compare(out, false, pool_key(key, file, "reuse"), pool_reuse_name(now->reuse),
		pool_reuse_name(file->reuse));
	compare(out, false, pool_key(key, file, "huge_pages"),
		pool_huge_pages_name(now->huge_pages), pool_huge_pages_name(file->huge_pages));
	compare(out, false, pool_key(key, file, "numa"), pool_numa_name(now->numa, numa[0]),
		pool_numa_name(file->numa, numa[1]));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		compare_size(out, sizes[i].can_change, pool_key(key, file, sizes[i].key),
			     sizes[i].now, sizes[i].file);
	compare_access(out, pool_key(key, file, "access"), &now->access, &file->access);
}

static void compare_pools(struct config_changes *out, const struct config *now,
			  const struct config *file)
{
	char key[KEY_MAX];

	for (size_t i = 0; i < file->n_pools; i++) {
		const struct pool_config *p = &file->pools[i], *had = find_pool(now, p->name);

		if (!had)
			config_changes_add(out, true, pool_key(key, p, NULL), "added");
		else if (had->leaving)
			config_changes_add(out, true, pool_key(key, p, NULL),
					   "in the file again: stays");
		if (had)
			compare_pool(out, had, p);
	}
	for (size_t i = 0; i < now->n_pools; i++) {
		const struct pool_config *p = &now->pools[i];

		if (!p->leaving && !find_pool(file, p->name))
			config_changes_add(out, true, pool_key(key, p, NULL),
					   "removed: it ends when nobody has it open and its "
					   "last buffer is released");
	}
}

static void compare_owners(struct config_changes *out, const struct name_owner *now,
			   const struct name_owner *file)
{
	static const struct name_owner nobody = {0};
	const char *prefix = now ? now->prefix : file->prefix;
	char key[SHARE_NAME_MAX + 32];

	snprintf(key, sizeof(key), "names[\"%s\"]", prefix);
	if (!now || !file)
		config_changes_add(out, true, key, now ? "removed" : "added");
	now = now ? now : &nobody;
	file = file ? file : &nobody;
	for (int i = 0; i < NAME_RIGHTS; i++) {
		snprintf(key, sizeof(key), "names[\"%s\"].%s", prefix, name_rights[i]);
		compare_principals(out, key, &now->lists[i], &file->lists[i]);
	}
}

static void compare_names(struct config_changes *out, const struct name_owners *now,
			  const struct name_owners *file)
{
	for (size_t i = 0; i < now->n_entries; i++)
		compare_owners(out, &now->entries[i],
			       name_owners_find(file, now->entries[i].prefix));
	for (size_t i = 0; i < file->n_entries; i++)
		if (!name_owners_find(now, file->entries[i].prefix))
			compare_owners(out, NULL, &file->entries[i]);
}

/* ------------------------------------------------------------------------------------------- */

static void compare_ms(struct config_changes *out, const char *key, unsigned now, unsigned file)
{
	char one[16], other[16];

	snprintf(one, sizeof(one), "%u", now);
	snprintf(other, sizeof(other), "%u", file);
	compare(out, true, key, one, other);
}

int config_compare(const struct config *now, const struct config *file, struct config_changes *out)
{
	char one[16], other[16];

	compare(out, false, "socket", now->socket, file->socket);
	snprintf(one, sizeof(one), "%04o", (unsigned)now->socket_mode);
	snprintf(other, sizeof(other), "%04o", (unsigned)file->socket_mode);
	compare(out, false, "socket_mode", one, other);
	compare_principals(out, "admins", &now->rights.admins, &file->rights.admins);
	compare_principals(out, "create_pools", &now->rights.create_pools,
			   &file->rights.create_pools);
	compare_names(out, &now->rights.names, &file->rights.names);
	compare_limits(out, now, file);
	compare_pools(out, now, file);
	compare_size(out, true, "default_pool_limit", now->default_pool_limit,
		     file->default_pool_limit);
	compare_size(out, true, "broker_memory", now->broker_memory, file->broker_memory);
	compare_ms(out, "agent_timeout_ms", now->agent_timeout_ms, file->agent_timeout_ms);
	compare_ms(out, "drain_ms", now->drain_ms, file->drain_ms);
	compare_ms(out, "hang_ms", now->hang_ms, file->hang_ms);
	return out->error;
}

static size_t count_leaving(const struct config *now, const struct config *file)
{
	size_t n = 0;

	for (size_t i = 0; i < now->n_pools; i++)
		n += !find_pool(file, now->pools[i].name);
	return n;
}

/* Gives @file what cannot change of a pool. The strings change places, so that each is freed
 * once. */
static void keep_pool(struct pool_config *now, struct pool_config *file)
{
	char *device = file->device;

	file->device = now->device;
	now->device = device;
	file->kind = now->kind;
	file->same_address = now->same_address;
	file->reuse = now->reuse;
	file->segment_size = now->segment_size;
	file->alignment = now->alignment;
	file->prefault = now->prefault;
	file->huge_pages = now->huge_pages;
	file->numa = now->numa;
}

int config_replace(struct config *now, struct config *file)
{
	size_t n = file->n_pools, leaving = count_leaving(now, file);
	struct pool_config *pools = reallocarray(file->pools, n + leaving + 1, sizeof(*pools));
	char *socket = file->socket;
	struct config before;

	if (!pools)
		return -ENOMEM;
	file->pools = pools;
	file->socket = now->socket;
	now->socket = socket;
	file->socket_mode = now->socket_mode;
	for (size_t i = 0; i < n; i++) {
		struct pool_config *had = find_pool(now, pools[i].name);

		if (had)
			keep_pool(had, &pools[i]);
	}
	for (size_t i = 0; i < now->n_pools; i++) {
		if (find_pool(file, now->pools[i].name))
			continue;
		pools[file->n_pools] = now->pools[i];
		pools[file->n_pools++].leaving = true;
		now->pools[i] = (struct pool_config)POOL_CONFIG_INIT;
	}
	before = *now;
	*now = *file;
	*file = before;
	return 0;
}
