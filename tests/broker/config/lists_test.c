/* SPDX-License-Identifier: MIT */
/*
 * Who may do what: reading lists, and asking them.
 *
 * The only names used are those of uid 0 and gid 0, which every system has; all others are numbers.
 */
#include <errno.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "broker/config/lists.h"
#include "broker/config/who.h"
#include "broker/rights/access.h"

TestSuite(access, .timeout = 30);
TestSuite(principals, .timeout = 30);

#define ALICE 70001
#define BOB   70002
#define VIDEO 70044

static struct access_list parse(const char *text)
{
	struct access_list list = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(access_parse_text(text, strlen(text), &list, error, sizeof(error)), 0, "%s",
		     error);
	cr_assert_str_eq(error, "");
	return list;
}

static void expect_error(const char *text, const char *expected)
{
	struct access_list list = {.n_entries = 7};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(access_parse_text(text, strlen(text), &list, error, sizeof(error)),
		     CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	cr_assert_eq(list.n_entries, 7);
	cr_assert_null(list.entries);
}

/* As in the configuration file, with names. */
static int parse_configured(const char *text, struct access_list *out, char *error, size_t size)
{
	const struct config_reader r = {
	    .text = text, .size = strlen(text), .error = error, .error_size = size};
	const struct config_path root = {.key = "access"};
	json_t *array;
	int e = config_parse(&r, &root, &array);

	if (e == 0) {
		e = access_parse(&r, &root, array, out);
		json_decref(array);
	}
	return e;
}

static void expect_configured_error(const char *text, const char *expected)
{
	struct access_list list = {.n_entries = 7};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse_configured(text, &list, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	cr_assert_eq(list.n_entries, 7);
	cr_assert_null(list.entries);
}

static unsigned ask(const struct access_list *list, uid_t uid, gid_t group)
{
	const gid_t groups[] = {70100, group};

	return access_check(list, uid, groups, 2);
}

Test(access, an_empty_list_lets_nobody_in)
{
	struct access_list list = parse("[]");

	cr_assert_eq(list.n_entries, 0);
	cr_assert_eq(ask(&list, 0, 0), 0);
	access_list_deinit(&list);
}

Test(access, modes_include_the_lesser_ones)
{
	struct access_list list = parse(
	    "[{\"user\": 70001, \"mode\": \"ro\"},"
	    "{\"user\": 70002, \"mode\": \"rw\"},"
	    "{\"user\": 70003, \"mode\": \"manage\"}]");

	cr_assert_eq(ask(&list, ALICE, VIDEO), 1);
	cr_assert_eq(ask(&list, BOB, VIDEO), 3);
	cr_assert_eq(ask(&list, 70003, VIDEO), 7);
	cr_assert_eq(ask(&list, 70004, VIDEO), 0);
	access_list_deinit(&list);
}

Test(access, entries_add_up_in_any_order)
{
	struct access_list list = parse(
	    "[{\"user\": 70001, \"mode\": \"rw\"},"
	    "{\"user\": \"*\", \"mode\": \"ro\"},"
	    "{\"group\": 70044, \"mode\": \"manage\"}]");

	cr_assert_eq(ask(&list, ALICE, 1), ACCESS_RW);
	cr_assert_eq(ask(&list, BOB, 1), ACCESS_RO);
	cr_assert_eq(ask(&list, BOB, VIDEO), ACCESS_ALL);
	cr_assert_eq(access_check(&list, BOB, NULL, 0), ACCESS_RO);
	access_list_deinit(&list);
}

Test(access, lists_that_say_the_same_are_equal)
{
	static const char *const unlike[] = {
	    "[]",
	    "[{\"user\": 70001, \"mode\": \"rw\"}]",
	    "[{\"user\": 70001, \"mode\": \"rw\"}, {\"group\": 70044, \"mode\": \"rw\"}]",
	    "[{\"group\": 70001, \"mode\": \"rw\"}, {\"group\": 70044, \"mode\": \"ro\"}]",
	    "[{\"user\": 70001, \"mode\": \"rw\"}, {\"group\": 70044, \"mode\": \"ro\"},"
	    "{\"user\": \"*\", \"mode\": \"ro\"}]",
	};
	struct access_list list = parse(
	    "[{\"user\": 70001, \"mode\": \"rw\"},"
	    "{\"group\": 70044, \"mode\": \"ro\"}]");
	struct access_list other = parse(
	    "[{\"group\": 70044, \"mode\": \"ro\"},"
	    "{\"user\": 70001, \"mode\": \"ro\"},"
	    "{\"user\": 70001, \"mode\": \"rw\"}]");

	cr_assert(access_list_equal(&list, &other));
	access_list_deinit(&other);
	cr_assert(access_list_equal(&other, &other));
	for (size_t i = 0; i < sizeof(unlike) / sizeof(unlike[0]); i++) {
		other = parse(unlike[i]);
		cr_assert_not(access_list_equal(&list, &other), "%s", unlike[i]);
		cr_assert_not(access_list_equal(&other, &list), "%s", unlike[i]);
		access_list_deinit(&other);
	}
	access_list_deinit(&list);
}

Test(access, a_list_says_whether_several_users_may_write)
{
	static const struct {
		const char *list;
		uid_t own;
		bool several;
	} cases[] = {
	    {"[]", 0, false},
	    {"[]", ALICE, false},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}]", 0, false},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}]", ALICE, false},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}]", BOB, true},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}, {\"user\": 0, \"mode\": \"manage\"}]", 0,
	     false},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}, {\"user\": 70002, \"mode\": \"ro\"}]", 0,
	     false},
	    {"[{\"user\": 70001, \"mode\": \"rw\"}, {\"user\": 70002, \"mode\": \"rw\"}]", 0, true},
	    {"[{\"user\": \"*\", \"mode\": \"ro\"}]", ALICE, false},
	    {"[{\"user\": \"*\", \"mode\": \"rw\"}]", 0, true},
	    {"[{\"group\": 70044, \"mode\": \"ro\"}]", ALICE, false},
	    {"[{\"group\": 70044, \"mode\": \"manage\"}]", 0, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct access_list list = parse(cases[i].list);

		cr_assert_eq(access_lets_several_write(&list, cases[i].own), cases[i].several, "%s",
			     cases[i].list);
		access_list_deinit(&list);
	}
}

Test(access, a_list_is_shown_as_it_is_written_as_far_as_it_fits)
{
	static const char text[] =
	    "[{\"user\": 70001, \"mode\": \"rw\"}, "
	    "{\"group\": 70044, \"mode\": \"ro\"}, "
	    "{\"user\": \"*\", \"mode\": \"manage\"}]";
	struct access_list list = parse(text), none = {0};
	char out[sizeof(text) + 8], *space;

	cr_assert_str_eq(access_format(&none, out, sizeof(out)), "[]");
	cr_assert_str_eq(access_format(&list, out, sizeof(out)), text);
	/* memory of its own, so that a byte too many is found */
	for (size_t size = 8; size < sizeof(out); size++) {
		space = malloc(size);
		access_format(&list, space, size);
		cr_assert_lt(strlen(space), size);
		cr_assert_eq(space[strlen(space) - 1], ']', "%s", space);
		free(space);
	}
	cr_assert_str_eq(access_format(&list, out, 8), "[...]");
	cr_assert_str_eq(access_format(&list, out, 80),
			 "[{\"user\": 70001, \"mode\": \"rw\"}, "
			 "{\"group\": 70044, \"mode\": \"ro\"}, ...]");
	access_list_deinit(&list);
}

Test(access, a_gid_is_not_a_uid)
{
	struct access_list list = parse("[{\"group\": 70044, \"mode\": \"rw\"}]");

	cr_assert_eq(ask(&list, VIDEO, 1), 0);
	cr_assert_eq(ask(&list, ALICE, VIDEO), ACCESS_RW);
	access_list_deinit(&list);
}

Test(access, granting_twice_changes_nothing)
{
	const struct principal owner = {.type = PRINCIPAL_USER, .id = ALICE};
	struct access_list list = parse("[{\"user\": 70001, \"mode\": \"ro\"}]");

	cr_assert_eq(access_grant(&list, owner, ACCESS_ALL), 0);
	cr_assert_eq(access_grant(&list, owner, ACCESS_ALL), 0);
	cr_assert_eq(list.n_entries, 1);
	cr_assert_eq(ask(&list, ALICE, 1), ACCESS_ALL);
	access_list_deinit(&list);
	access_list_deinit(&list);
}

Test(access, what_is_not_json_is_refused)
{
	expect_error("",
		     "access: not JSON: '[' or '{' expected near end of file (line 1, column 0)");
	expect_error("[{\"user\"}]", "access: not JSON: ':' expected near '}' (line 1, column 9)");
	expect_error("[] x", "access: not JSON: end of file expected near 'x' (line 1, column 4)");
	expect_error("[{\"user\": 1, \"mode\": \"ro\", \"user\": 2}]",
		     "access[0].user: given twice");
	expect_error("[{\"user\": 99999999999999999999}]",
		     "access[0].user: the number is too large");
}

Test(access, what_is_not_a_list_of_entries_is_refused)
{
	expect_error("{\"user\": \"root\"}",
		     "access: an object is not a list (like [{\"user\": "
		     "\"alice\", \"mode\": \"rw\"}])");
	expect_error("[\"root\"]",
		     "access[0]: \"root\" is not an entry (like {\"user\": \"alice\", "
		     "\"mode\": \"rw\"})");
}

Test(access, entries_need_one_principal_and_a_mode)
{
	expect_error("[{\"mode\": \"ro\"}]", "access[0]: lacks \"user\" or \"group\"");
	expect_error("[{\"user\": 1, \"group\": 1, \"mode\": \"ro\"}]",
		     "access[0]: has both \"user\" and \"group\" (make it two)");
	expect_error("[{\"user\": 1}]", "access[0]: lacks \"mode\" (ro, rw or manage)");
	expect_error("[{\"user\": 1, \"mode\": \"rx\"}]",
		     "access[0].mode: \"rx\" is not a mode (ro, rw or manage)");
	expect_error("[{\"user\": 1, \"mode\": 3}]",
		     "access[0].mode: 3 is not a mode (ro, rw or manage)");
	expect_error("[{\"usr\": 1, \"mode\": \"ro\"}]",
		     "access[0].usr: unknown key (did you mean \"user\"?)");
	expect_error("[{\"user\": 1, \"until\": \"noon\"}]",
		     "access[0].until: unknown key (known here: user, group, mode)");
}

Test(access, ids_that_nobody_can_have_are_refused)
{
	struct access_list list = parse("[{\"user\": 4294967294, \"mode\": \"ro\"}]");

	cr_assert_eq(ask(&list, 4294967294, 1), ACCESS_RO);
	access_list_deinit(&list);
	expect_error("[{\"user\": -1, \"mode\": \"ro\"}]",
		     "access[0].user: -1 is not the id of a user");
	expect_error("[{\"user\": 4294967295, \"mode\": \"ro\"}]",
		     "access[0].user: 4294967295 is not the id of a user");
	expect_error("[{\"group\": 4294967296, \"mode\": \"ro\"}]",
		     "access[0].group: 4294967296 is not the id of a group");
}

Test(access, clients_send_numbers)
{
	expect_error("[{\"user\": \"alice\", \"mode\": \"rw\"}]",
		     "access[0].user: \"alice\" is a name; clients send numbers (share_pool_create "
		     "translates names)");
	expect_error(
	    "[{\"user\": 1, \"mode\": \"ro\"}, {\"group\": \"video\", \"mode\": \"ro\"}]",
	    "access[1].group: \"video\" is a name; clients send numbers (share_pool_create "
	    "translates names)");
}

Test(access, what_clients_send_is_never_looked_up)
{
	/* Neither one that exists, nor what could be one. */
	expect_error("[{\"user\": \"root\", \"mode\": \"rw\"}]",
		     "access[0].user: \"root\" is a name; clients send numbers (share_pool_create "
		     "translates names)");
	expect_error("[{\"user\": \"70001\", \"mode\": \"rw\"}]",
		     "access[0].user: \"70001\" is a name; clients send numbers (share_pool_create "
		     "translates names)");
	expect_error("[{\"group\": \"*\", \"mode\": \"ro\"}]",
		     "access[0].group: \"*\" is a name; clients send numbers (share_pool_create "
		     "translates names)");
	expect_error("[{\"user\": \"\\u001b[2J\", \"mode\": \"ro\"}]",
		     "access[0].user: \"\\u001b[2J\" is a name; clients send numbers "
		     "(share_pool_create translates names)");
}

Test(access, a_principal_is_a_text_or_an_integer)
{
	expect_error("[{\"user\": null, \"mode\": \"ro\"}]",
		     "access[0].user: null is not a user (a name, \"*\" or a uid)");
	expect_error("[{\"group\": 1.5, \"mode\": \"ro\"}]",
		     "access[0].group: 1.5 is not a group (a name or a gid)");
}

/* A list of @n entries for different users, for free(). */
static char *long_list(size_t n)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	cr_assert_not_null(f);
	fputc('[', f);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s{\"user\": %zu, \"mode\": \"ro\"}", i > 0 ? "," : "", i);
	fputc(']', f);
	fclose(f);
	return text;
}

Test(access, lists_are_limited_to_256_entries)
{
	char *text = long_list(256);
	struct access_list list = parse(text);

	cr_assert_eq(list.n_entries, 256);
	access_list_deinit(&list);
	free(text);

	text = long_list(257);
	expect_error(text, "access: 257 entries are too many (at most 256)");
	free(text);
}

Test(access, texts_are_limited_to_16_kib)
{
	char text[ACCESS_MAX_TEXT + 2];

	memset(text, ' ', sizeof(text));
	text[0] = '[';
	text[ACCESS_MAX_TEXT - 1] = ']';
	text[ACCESS_MAX_TEXT] = '\0';
	struct access_list list = parse(text);
	access_list_deinit(&list);

	text[ACCESS_MAX_TEXT] = ' ';
	text[ACCESS_MAX_TEXT + 1] = '\0';
	expect_error(text, "access: 16385 bytes are too many (at most 16384)");
}

Test(access, a_small_error_buffer_is_not_overrun)
{
	struct access_list list = {0};
	char error[8] = "1234567";

	cr_assert_eq(access_parse_text("[1]", 3, &list, error, 5), CONFIG_EINVALID);
	cr_assert_str_eq(error, "acce");
	cr_assert_eq(memcmp(error + 5, "67", 3), 0);
	cr_assert_eq(access_parse_text("[1]", 3, &list, NULL, 0), CONFIG_EINVALID);
}

Test(access, a_copy_has_entries_of_its_own)
{
	const struct principal bob = {.type = PRINCIPAL_USER, .id = BOB};
	struct access_list list = parse(
	    "[{\"user\": 70001, \"mode\": \"rw\"},"
	    "{\"group\": 70044, \"mode\": \"ro\"}]");
	struct access_list copy = {.n_entries = 7};

	cr_assert_eq(access_list_copy(&copy, &list), 0);
	cr_assert_eq(copy.n_entries, 2);
	cr_assert_neq(copy.entries, list.entries);
	cr_assert_eq(access_grant(&copy, bob, ACCESS_ALL), 0);
	cr_assert_eq(ask(&list, BOB, 1), 0);
	access_list_deinit(&list);
	cr_assert_eq(ask(&copy, ALICE, 1), ACCESS_RW);
	cr_assert_eq(ask(&copy, 70003, VIDEO), ACCESS_RO);
	cr_assert_eq(ask(&copy, BOB, 1), ACCESS_ALL);
	access_list_deinit(&copy);
}

Test(access, the_copy_of_an_empty_list_is_empty)
{
	struct access_list list = {0}, copy = {.n_entries = 7};

	cr_assert_eq(access_list_copy(&copy, &list), 0);
	cr_assert_eq(copy.n_entries, 0);
	cr_assert_eq(ask(&copy, 0, 0), 0);
	access_list_deinit(&copy);
}

static bool calloc_fails;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_fails ? NULL : __real_calloc(n, size);
}

Test(access, a_copy_that_cannot_be_had_leaves_the_output_alone)
{
	struct access_entry entry = {.mode = ACCESS_RO};
	const struct access_list list = {.entries = &entry, .n_entries = 1};
	struct access_list copy = {.n_entries = 7};

	calloc_fails = true;
	cr_assert_eq(access_list_copy(&copy, &list), -ENOMEM);
	calloc_fails = false;
	cr_assert_eq(copy.n_entries, 7);
	cr_assert_null(copy.entries);
}

/* ------------------------------------------------------------------------------------------- */
/* In the configuration file                                                                   */

Test(access, names_are_looked_up_and_digits_are_ids)
{
	const struct group *group = getgrgid(0);
	char text[256], error[CONFIG_ERROR_MAX] = "";
	struct access_list list = {0};

	cr_assert_not_null(group);
	snprintf(text, sizeof(text),
		 "[{\"user\": \"root\", \"mode\": \"rw\"}, {\"group\": \"%s\", \"mode\": \"ro\"},"
		 " {\"user\": \"70001\", \"mode\": \"manage\"}]",
		 group->gr_name);
	cr_assert_eq(parse_configured(text, &list, error, sizeof(error)), 0, "%s", error);
	cr_assert_eq(list.n_entries, 3);
	cr_assert_eq(ask(&list, 0, 1), ACCESS_RW);
	cr_assert_eq(ask(&list, BOB, 0), ACCESS_RO);
	cr_assert_eq(ask(&list, ALICE, 1), ACCESS_ALL);
	access_list_deinit(&list);
}

Test(access, unknown_users_and_groups_are_refused)
{
	expect_configured_error(
	    "[{\"user\": \"no-such\", \"mode\": \"ro\"}]",
	    "access[0].user: \"no-such\" is unknown here: there is no such user");
	expect_configured_error(
	    "[{\"user\": 1, \"mode\": \"ro\"}, {\"group\": \"no-such\", \"mode\": \"ro\"}]",
	    "access[1].group: \"no-such\" is unknown here: there is no such group");
	expect_configured_error("[{\"group\": \"*\", \"mode\": \"ro\"}]",
				"access[0].group: \"*\" is unknown here: there is no such group");
	expect_configured_error("[{\"user\": \"\", \"mode\": \"ro\"}]",
				"access[0].user: \"\" is unknown here: there is no such user");
	expect_configured_error(
	    "[{\"user\": \"\\u001b[2J\", \"mode\": \"ro\"}]",
	    "access[0].user: \"\\u001b[2J\" is unknown here: there is no such user");
	expect_configured_error(
	    "[{\"user\": \"4294967295\", \"mode\": \"ro\"}]",
	    "access[0].user: \"4294967295\" is unknown here: there is no such user");
}

/* ------------------------------------------------------------------------------------------- */
/* Lists of principals                                                                         */

static int parse_principals(const char *text, struct principal_list *out, char *error, size_t size)
{
	struct config_reader r = {
	    .text = text, .size = strlen(text), .error = error, .error_size = size};
	const struct config_path root = {.key = "admins"};
	json_t *array;
	int e = config_parse(&r, &root, &array);

	if (e == 0) {
		e = principal_list_parse(&r, &root, array, out);
		json_decref(array);
	}
	return e;
}

static void expect_principal_error(const char *text, const char *expected)
{
	struct principal_list list = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse_principals(text, &list, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	cr_assert_null(list.entries);
}

Test(principals, users_groups_and_everyone_are_matched)
{
	const gid_t groups[] = {VIDEO};
	struct principal_list list = {0};
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(parse_principals("[\"root\", \"@70044\", 70001, \"70002\", 70001]", &list,
				      error, sizeof(error)),
		     0, "%s", error);
	cr_assert_eq(list.n_entries, 4);
	cr_assert(principal_match(&list, 0, NULL, 0));
	cr_assert(principal_match(&list, ALICE, NULL, 0));
	cr_assert(principal_match(&list, BOB, NULL, 0));
	cr_assert(principal_match(&list, 70003, groups, 1));
	cr_assert_not(principal_match(&list, 70003, NULL, 0));
	cr_assert_not(principal_match(&list, VIDEO, NULL, 0));
	principal_list_deinit(&list);

	cr_assert_eq(parse_principals("[\"*\"]", &list, error, sizeof(error)), 0, "%s", error);
	cr_assert(principal_match(&list, 70003, NULL, 0));
	principal_list_deinit(&list);
	cr_assert_not(principal_match(&list, 0, groups, 1));
}

Test(principals, what_names_nobody_is_refused)
{
	expect_principal_error("{}",
			       "admins: an object is not a list (like [\"alice\", \"@video\", "
			       "1000])");
	expect_principal_error("[1, true]",
			       "admins[1]: true is not a user (a name, \"@group\", "
			       "\"*\" or a uid)");
	expect_principal_error("[\"no-such\"]",
			       "admins[0]: \"no-such\" is unknown here: there is no such user");
	expect_principal_error("[\"@no-such\"]",
			       "admins[0]: \"@no-such\" is unknown here: there is no such group");
	expect_principal_error("[\"@\"]",
			       "admins[0]: \"@\" is unknown here: there is no such group");
	expect_principal_error("[-1]", "admins[0]: -1 is not the id of a user");
}
