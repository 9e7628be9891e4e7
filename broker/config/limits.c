/* SPDX-License-Identifier: MIT */
/*
 * What users may hold: the one table of all limits, and what the configuration says of them for all
 * users and for single ones.
 */
#include "broker/config/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/config/who.h"

#define MAX_COUNT INT32_MAX

/* All limits. Those in bytes take sizes, the others plain numbers. */
static const struct {
	const char *name;
	uint64_t standard;
	const char *one, *many; /* the noun behind a number; of bytes only one, behind a size */
	bool bytes;
	bool optional; /* 0 stands for no limit */
} limit_table[LIMIT_KINDS] = {
    [LIMIT_CONNECTIONS] = {"connections", 1024, "connection", "connections", false, false},
    [LIMIT_LEASES] = {"leases", 4194304, "lease", "leases", false, false},
    [LIMIT_BYTES] = {"bytes", LIMIT_NONE, "memory", NULL, true, true},
    [LIMIT_NAMES] = {"names", 65536, "name", "names", false, false},
    [LIMIT_TOKENS] = {"tokens", 65536, "token", "tokens", false, false},
    [LIMIT_WATCHES] = {"watches", 1024, "watch", "watches", false, false},
    [LIMIT_WAITS] = {"waits", 4096, "waiting look-up", "waiting look-ups", false, false},
    [LIMIT_POOLS] = {"pools", 64, "pool", "pools", false, false},
    [LIMIT_METADATA] = {"metadata", 64 * MIB, "metadata", NULL, true, false},
    [LIMIT_UNSENT] = {"unsent", 16 * MIB, "messages that wait", NULL, true, false},
    [LIMIT_EVENTS] = {"events", 1024, "event", "events", false, false},
    [LIMIT_CHANNELS] = {"channels", 1024, "membership in channels", "memberships in channels",
			false, false},
    [LIMIT_FENCES] = {"fences", 4194304, "fence", "fences", false, false},
    [LIMIT_SEGMENTS] = {"segments", 16384, "segment", "segments", false, false},
    [LIMIT_DESCRIPTORS] = {"descriptors", 65536, "descriptor of the broker's",
			   "descriptors of the broker's", false, false},
    [LIMIT_MEMORY] = {"broker_memory", LIMIT_NONE, "memory of the broker's own", NULL, true, true},
};

const char *limit_name(enum limit_kind kind)
{
	return limit_table[kind].name;
}

const char *limit_noun(enum limit_kind kind, uint64_t n)
{
	return limit_table[kind].bytes || n == 1 ? limit_table[kind].one : limit_table[kind].many;
}

bool limit_is_size(enum limit_kind kind)
{
	return limit_table[kind].bytes;
}

char *limit_text(enum limit_kind kind, uint64_t limit, char out[static SIZE_EXACT_MAX])
{
	if (limit == LIMIT_NONE && limit_table[kind].optional)
		strcpy(out, "none");
	else if (limit_table[kind].bytes)
		size_tell(limit, out);
	else
		snprintf(out, SIZE_EXACT_MAX, "%" PRIu64, limit);
	return out;
}

const struct limits *config_limits_for(const struct config *c, uid_t uid)
{
	for (size_t i = 0; i < c->n_users; i++) {
		if (c->users[i].uid == uid)
			return &c->users[i].limits;
	}
	return &c->limits;
}

struct limits config_standard_limits(void)
{
	struct limits limits;

	for (size_t i = 0; i < LIMIT_KINDS; i++)
		limits.max[i] = limit_table[i].standard;
	return limits;
}

static int read_limit(const struct config_reader *r, const struct config_path *path,
		      const json_t *object, enum limit_kind kind, uint64_t *out)
{
	const json_t *value = json_object_get(object, path->key);

	if (limit_table[kind].bytes) {
		int e = config_read_size(r, path, object, limit_table[kind].optional, out);

		if (e == 0 && *out == 0)
			*out = LIMIT_NONE;
		return e;
	}
	if (!value)
		return 0;
	json_int_t count = json_integer_value(value);
	if (!json_is_integer(value) || count < 1 || count > MAX_COUNT)
		return config_fail_value(r, path, value, "is not a limit (an integer from 1 to %d)",
					 MAX_COUNT);
	*out = (uint64_t)count;
	return 0;
}

int config_read_limits(const struct config_reader *r, const struct config_path *path,
		       json_t *object, struct limits *limits)
{
	const char *names[LIMIT_KINDS];
	int e = config_check_object(r, path, object, "{\"connections\": 1024}");

	for (size_t i = 0; i < LIMIT_KINDS; i++)
		names[i] = limit_table[i].name;
	if (e == 0)
		e = config_check_keys(r, path, object, names, N_OF(names));
	for (size_t i = 0; e == 0 && i < LIMIT_KINDS; i++)
		e = read_limit(r, CONFIG_KEY(path, names[i]), object, (enum limit_kind)i,
			       &limits->max[i]);
	return e;
}

static int read_user(const struct config_reader *r, const struct config_path *path, json_t *object,
		     struct config *c)
{
	static const char *const keys[] = {"limits"};
	struct user_limits user = {.limits = c->limits};
	int e = principal_find_user(path->key, &user.uid);

	if (e > 0)
		return config_fail(r, path, "there is no such user");
	if (e == -ENOMEM)
		return config_fail_memory(r);
	if (e < 0) {
		config_fail(r, path, "cannot be looked up: %s", strerror(-e));
		return e;
	}
	for (size_t i = 0; i < c->n_users; i++) {
		if (c->users[i].uid == user.uid)
			return config_fail(r, path, "this user is here twice (uid %u)", user.uid);
	}

	e = config_check_object(r, path, object, "{\"limits\": {\"connections\": 16}}");
	if (e == 0)
		e = config_check_keys(r, path, object, keys, N_OF(keys));
	json_t *limits = json_object_get(object, keys[0]);
	if (e == 0 && limits)
		e = config_read_limits(r, CONFIG_KEY(path, keys[0]), limits, &user.limits);
	if (e == 0)
		c->users[c->n_users++] = user;
	return e;
}

int config_read_users(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct config *c)
{
	const char *name;
	json_t *value;
	int e = config_check_object(r, path, object,
				    "{\"alice\": {\"limits\": {\"connections\": 16}}}");

	if (e != 0)
		return e;
	c->users = calloc(json_object_size(object) + 1, sizeof(*c->users));
	if (!c->users)
		return config_fail_memory(r);
	json_object_foreach (object, name, value) {
		e = read_user(r, CONFIG_KEY(path, name), value, c);
		if (e != 0)
			return e;
	}
	return 0;
}
