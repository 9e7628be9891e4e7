/* SPDX-License-Identifier: MIT */

/* Whose names are: one pure function, and a table of who may make what. */

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "broker/name_owner.h"

#define ALICE 70001
#define BOB   70002
#define VIDEO 70044 /* a group */

#define TEXT                                                                                 \
	"{\"frames/\": [70001, \"@70044\"], \"frames/right/\": [70002], \"open/\": [\"*\"]," \
	" \"closed\": [], \"uid/70001/for-bob/\": [70002], \"uid/70002/\": [70001]}"

static int parse(const char *text, struct name_owners *out, char *error, size_t size)
{
	struct config_reader r = {
	    .text = text, .size = strlen(text), .error = error, .error_size = size};
	const struct config_path root = {.key = "names"};
	json_t *object;
	int e = config_parse(&r, &root, &object);

	if (e == 0) {
		e = name_owners_parse(&r, &root, object, out);
		json_decref(object);
	}
	return e;
}

static const struct {
	const char *name;
	uid_t uid;
	gid_t group; /* 0: none */
	bool allowed;
} table[] = {
    /* what nobody has said anything of is everybody's */
    {"left", BOB, 0, true},
    {"frame", BOB, 0, true},
    {"frames", BOB, 0, true},
    {"uid", BOB, 0, true},
    {"uid/", BOB, 0, true},
    {"uid/x/", BOB, 0, true},
    {"uid//", BOB, 0, true},
    /* a prefix is its owners' */
    {"frames/left", ALICE, 0, true},
    {"frames/left", BOB, VIDEO, true},
    {"frames/left", BOB, 0, false},
    {"frames/left", VIDEO, 0, false}, /* a gid is no uid */
    {"frames/", BOB, 0, false},
    {"frames/", ALICE, 0, true},
    {"open/house", BOB, 0, true},
    {"closed", ALICE, VIDEO, false},
    {"closed/door", BOB, 0, false},
    /* the longest one decides, alone */
    {"frames/right/1", BOB, 0, true},
    {"frames/right/1", ALICE, VIDEO, false},
    {"frames/right", ALICE, 0, true},
    {"frames/right", BOB, 0, false},
    /* each user has one, unless that is given away */
    {"uid/70001/x", ALICE, 0, true},
    {"uid/70001/x", BOB, VIDEO, false},
    {"uid/70001/for-bob/x", BOB, 0, true},
    {"uid/70001/for-bob/x", ALICE, 0, false},
    {"uid/70002/x", ALICE, 0, true},
    {"uid/70002/x", BOB, 0, false},
    {"uid/70003/x", 70003, 0, true},
    {"uid/70003/x", ALICE, 0, false},
    {"uid/070003/x", 70003, 0, false}, /* not as the number is written */
    {"uid/4294967296/x", 0, 0, false},
    {"uid/99999999999999999999999999/x", ALICE, 0, false},
    {"uid/70003", ALICE, 0, true}, /* not below it */
};

Test(name_owner, the_table)
{
	struct name_owners o = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse(TEXT, &o, error, sizeof(error)), 0, "%s", error);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		gid_t groups[] = {table[i].group};

		if (name_owners_allow(&o, table[i].name, strlen(table[i].name), table[i].uid,
				      groups, table[i].group != 0) != table[i].allowed)
			cr_assert_fail("'%s' of uid %u, group %u: not %d", table[i].name,
				       (unsigned)table[i].uid, (unsigned)table[i].group,
				       table[i].allowed);
	}
	name_owners_clear(&o);
}

/* Names come without a NUL. */
Test(name_owner, nothing_behind_a_name_counts)
{
	struct name_owners o = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse(TEXT, &o, error, sizeof(error)), 0, "%s", error);
	cr_assert(name_owners_allow(&o, "frames/left", 6, BOB, NULL, 0));
	cr_assert_not(name_owners_allow(&o, "frames/left", 7, BOB, NULL, 0));
	cr_assert(name_owners_allow(&o, "uid/70001/", 9, BOB, NULL, 0));
	cr_assert_not(name_owners_allow(&o, "uid/70001/", 10, BOB, NULL, 0));
	name_owners_clear(&o);
}

static void expect_error(const char *text, const char *expected)
{
	struct name_owners o = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse(text, &o, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	name_owners_clear(&o);
}

Test(name_owner, what_is_no_list_of_owners_is_refused)
{
	expect_error("[]",
		     "names: an array is not an object (like {\"frames/\": [\"alice\", "
		     "\"@video\"]})");
	expect_error("{\"\": []}", "names.: is not the beginning of a name");
	expect_error("{\"a/\": \"alice\"}",
		     "names.a/: \"alice\" is not a list (like [\"alice\", \"@video\", 1000])");
	expect_error("{\"a/\": [1, \"no-such\"]}",
		     "names.a/[1]: \"no-such\" is unknown here: there is no such user");
}
