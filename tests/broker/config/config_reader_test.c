/* SPDX-License-Identifier: MIT */
/*
 * Reading JSON that people write: the exact words about what is wrong, and in which line.
 */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include "broker/config/locate.h"
#include "broker/config/reader.h"

TestSuite(config_reader, .timeout = 30);
TestSuite(config_locate, .timeout = 30);

static void expect_error_of(const char *text, size_t size, const char *expected)
{
	char error[CONFIG_ERROR_MAX] = "";
	const struct config_reader r = {.file = "FILE",
					.text = text,
					.size = size,
					.error = error,
					.error_size = sizeof(error)};
	json_t *out = NULL;

	cr_assert_eq(config_parse(&r, NULL, &out), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	cr_assert_null(out);
}

static void expect_error(const char *text, const char *expected)
{
	expect_error_of(text, strlen(text), expected);
}

/* ------------------------------------------------------------------------------------------- */
/* What is not JSON                                                                            */

Test(config_reader, a_syntax_error_has_its_line)
{
	expect_error("", "FILE:1: not JSON: '[' or '{' expected near end of file (column 0)");
	expect_error("{\n  \"socket\": \"/a\"\n  \"pools\": []\n}\n",
		     "FILE:3: not JSON: '}' expected near '\"pools\"' (column 9)");
	expect_error("{\n  // comment\n}\n",
		     "FILE:2: not JSON: string or '}' expected near '/' (column 3)");
	expect_error("{}\n{}", "FILE:2: not JSON: end of file expected near '{' (column 1)");
	expect_error_of("{\n\"a\": \"\xff\"}", 11,
			"FILE:2: not JSON: unable to decode byte 0xff near '\"' (column 6)");
	expect_error_of("{\0}", 3,
			"FILE:1: not JSON: string or '}' expected near end of file (column 2)");
}

Test(config_reader, a_duplicate_key_has_its_line_and_path)
{
	expect_error("{\n  \"socket\": \"/a\",\n  \"pools\": [],\n  \"socket\": \"/b\"\n}\n",
		     "FILE:4: socket: given twice");
	expect_error(
	    "{\"pools\": [\n"
	    "  {\"name\": \"a\", \"limit\": 1},\n"
	    "  {\"name\": \"b\", \"limit\": [{}, {\"x\": \"}\\\"]\"}],\n"
	    "   \"release_threshold\": 1,\n"
	    "   \"release_threshold\"\n"
	    "   : 1}\n"
	    "]}\n",
	    "FILE:5: pools[1].release_threshold: given twice");
	expect_error(
	    "{\"users\": {\"somebody-with-a-long-name\": {}, \n"
	    "\"somebody-with-a-l\\u006fng-name\": {}}}",
	    "FILE:2: users.somebody-with-a-long-name: given twice");
}

Test(config_reader, a_number_beyond_64_bits_has_its_line_and_path)
{
	expect_error("{\"pools\": [\n  {\"name\": \"a\"},\n  {\"limit\":\n 99999999999999999999}]}",
		     "FILE:4: pools[1].limit: the number is too large");
	expect_error("{\"limits\": {\"leases\": -99999999999999999999}}",
		     "FILE:1: limits.leases: the number is too large");
	expect_error("{\"limits\": {\"leases\": 1e999}}",
		     "FILE:1: limits.leases: the number is too large");
}

Test(config_reader, what_is_nested_too_deeply_is_named_by_what_is_around_it)
{
	char text[256] = "";

	for (unsigned i = 0; i < 40; i++)
		strcat(text, "[\n");
	strcat(text, "{\"a\": 1, \"a\": 2}");
	for (unsigned i = 0; i < 40; i++)
		strcat(text, "]");
	expect_error(text,
		     "FILE:33: "
		     "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
		     "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: given twice");
}

/* ------------------------------------------------------------------------------------------- */
/* What is wrong in JSON                                                                       */

Test(config_reader, lines_are_right_after_strings_that_look_like_structure)
{
	static const char text[] =
	    "{\n"
	    "  \"pools\": [\n"
	    "    {\"name\": \"}]{[\\\"limit\\\": ,:\\\\\",\n"
	    "     \"limit\": \"1MiB\"},\n"
	    "    {\"name\": \"\\u007d\\\\\\\"\", \"limit\": 65536,\r\n"
	    "     \"access\": [ {\"user\": \"*\", \"mode\": \"ro\"},\n"
	    "       {\"mode\": \"ro\",\n"
	    "        \"m\\u006fde2\": 1} ]}\n"
	    "  ]\n"
	    "}\n";
	static const char *const keys[] = {"user", "group", "mode"};
	char error[CONFIG_ERROR_MAX] = "";
	const struct config_reader r = {.file = "FILE",
					.text = text,
					.size = strlen(text),
					.error = error,
					.error_size = sizeof(error)};
	const struct config_path *pool = CONFIG_INDEX(CONFIG_KEY(NULL, "pools"), 1);
	const struct config_path *entry = CONFIG_INDEX(CONFIG_KEY(pool, "access"), 1);
	json_t *document, *value;

	cr_assert_eq(config_parse(&r, NULL, &document), 0, "%s", error);
	value = json_array_get(json_object_get(document, "pools"), 1);
	value = json_array_get(json_object_get(value, "access"), 1);
	cr_assert_eq(config_check_keys(&r, entry, value, keys, 3), CONFIG_EINVALID);
	cr_assert_str_eq(error,
			 "FILE:8: pools[1].access[1].mode2: unknown key (did you mean \"mode\"?)");
	json_decref(document);
}

Test(config_reader, what_is_not_a_string_is_refused_and_what_is_not_there_is_not)
{
	char error[CONFIG_ERROR_MAX] = "";
	const struct config_reader r = {.error = error, .error_size = sizeof(error)};
	json_t *object = json_pack("{s:s, s:i}", "a", "x", "b", 5);
	const char *out = "untouched";

	cr_assert_eq(config_read_string(&r, CONFIG_KEY(NULL, "b"), object, "a name", &out),
		     CONFIG_EINVALID);
	cr_assert_str_eq(error, "b: 5 is not a name");
	cr_assert_str_eq(out, "untouched");
	cr_assert_eq(config_read_string(&r, CONFIG_KEY(NULL, "a"), object, "a name", &out), 0);
	cr_assert_str_eq(out, "x");
	cr_assert_eq(config_read_string(&r, CONFIG_KEY(NULL, "c"), object, "a name", &out), 0);
	cr_assert_null(out);
	json_decref(object);
}

/* ------------------------------------------------------------------------------------------- */
/* Lines                                                                                       */

static size_t line(const char *text, const struct config_path *path)
{
	/* A copy of its exact size, so that the sanitizer sees a look beyond it. */
	size_t size = strlen(text);
	char *copy = malloc(size + !size);
	memcpy(copy, text, size);
	size_t found = config_locate(copy, size, path);
	free(copy);
	return found;
}

Test(config_locate, keys_and_elements_are_found)
{
	static const char text[] = "\n{\n\"a\"\n:\n[1,\n\n[],\n{\"b\": {}, \n\"c\"\n: 1}\n]}";
	const struct config_path *a = CONFIG_KEY(NULL, "a");

	cr_assert_eq(line(text, NULL), 2);
	cr_assert_eq(line(text, a), 3);
	cr_assert_eq(line(text, CONFIG_INDEX(a, 0)), 5);
	cr_assert_eq(line(text, CONFIG_INDEX(a, 1)), 7);
	cr_assert_eq(line(text, CONFIG_INDEX(a, 2)), 8);
	cr_assert_eq(line(text, CONFIG_KEY(CONFIG_INDEX(a, 2), "c")), 9);
}

Test(config_locate, what_is_not_there_is_where_it_should_be)
{
	static const char text[] = "{\"a\": [\n1,\n{\"b\": 1}\n]}";
	const struct config_path *a = CONFIG_KEY(NULL, "a");

	cr_assert_eq(line(text, CONFIG_KEY(NULL, "z")), 1);
	cr_assert_eq(line(text, CONFIG_KEY(CONFIG_INDEX(a, 1), "z")), 3);
	cr_assert_eq(line(text, CONFIG_INDEX(a, 2)), 1);
	cr_assert_eq(line(text, CONFIG_KEY(CONFIG_INDEX(a, 0), "z")), 2);
	cr_assert_eq(line("[]", CONFIG_INDEX(NULL, 0)), 1);
}

Test(config_locate, keys_are_compared_as_they_are_meant)
{
	static const char text[] =
	    "{\"a\\tb\": 1,\n\"\\u00e9\": 1,\n\"\\uD83D\\ude00\": 1,\n"
	    "\"\\\"\\\\\\/\": 1,\n\"é2\": 1}";

	cr_assert_eq(line(text, CONFIG_KEY(NULL, "a\tb")), 1);
	cr_assert_eq(line(text, CONFIG_KEY(NULL, "é")), 2);
	cr_assert_eq(line(text, CONFIG_KEY(NULL, "😀")), 3);
	cr_assert_eq(line(text, CONFIG_KEY(NULL, "\"\\/")), 4);
	cr_assert_eq(line(text, CONFIG_KEY(NULL, "é2")), 5);
}

Test(config_locate, a_text_that_ends_anywhere_is_not_left)
{
	static const char text[] =
	    "{\"a\\u00e9\\\"\": [1, \"\\uD83D\\ude00\", {\"b\": [true]}], \"c\": 1}";
	const struct config_path *a = CONFIG_KEY(NULL, "a\xc3\xa9\"");
	char part[sizeof(text)];

	for (size_t size = 0; size < sizeof(text); size++) {
		memcpy(part, text, size);
		part[size] = '\0';
		cr_assert_eq(line(part, CONFIG_KEY(NULL, "c")), 1);
		cr_assert_eq(line(part, CONFIG_INDEX(CONFIG_KEY(CONFIG_INDEX(a, 2), "b"), 5)), 1);
	}
}

struct place {
	size_t line;
	size_t index;
	char key[16];
};

static void keep_place(void *data, size_t line, const struct config_path *path)
{
	struct place *place = data;

	place->line = line;
	place->index = path ? path->index : 0;
	strncpy(place->key, path && path->key ? path->key : "", sizeof(place->key) - 1);
}

static bool find_ending(const char *text, size_t size, size_t end, struct place *out)
{
	char *copy = malloc(size + !size);
	memcpy(copy, text, size);
	bool found = config_locate_ending(copy, size, end, NULL, keep_place, out);
	free(copy);
	return found;
}

Test(config_locate, a_place_is_found_by_where_it_ends)
{
	static const char text[] = "{\"a\":\n[10,\n20], \"b\"\n: true}";
	struct place place = {0};

	cr_assert(find_ending(text, strlen(text), 4, &place));
	cr_assert(place.line == 1 && strcmp(place.key, "a") == 0, "the key itself");
	cr_assert(find_ending(text, strlen(text), 9, &place));
	cr_assert(place.line == 2 && place.key[0] == '\0' && place.index == 0);
	cr_assert(find_ending(text, strlen(text), 13, &place));
	cr_assert(place.line == 3 && place.key[0] == '\0' && place.index == 1);
	cr_assert(find_ending(text, strlen(text), strlen(text) - 1, &place));
	cr_assert(place.line == 4 && strcmp(place.key, "b") == 0);
}

Test(config_locate, a_text_that_ends_anywhere_is_not_left_in_search_of_an_ending)
{
	static const char text[] =
	    "{\"a\\u00e9\\\"\": [1, \"\\uD83D\\ude00\", {\"b\": [true]}], \"c\": 1}";
	struct place place;

	for (size_t size = 0; size < sizeof(text); size++) {
		for (size_t end = 0; end <= size; end++)
			find_ending(text, size, end, &place);
	}
}
