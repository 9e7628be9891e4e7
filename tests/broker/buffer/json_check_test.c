/* SPDX-License-Identifier: MIT */

/*
 * What is JSON, and what jansson says of the same texts: of some that are known to be difficult,
 * and of many that were made from pieces of others, always the same ones.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include "broker/buffer/json_check.h"

TestSuite(json_check, .timeout = 120);

#define DEPTH 64

static bool is_json_in_pieces(const char *text, size_t size, size_t n)
{
	size_t takes, left = size + 8;
	struct json_check *j = json_check_new(text, size, DEPTH, &takes);
	enum json_check_result result;
	struct json_fault fault;

	cr_assert(j && takes > size);
	do
		result = json_check_some(j, n, &fault);
	while (result == JSON_CHECK_MORE && --left > 0);
	json_check_free(j);
	cr_assert(result != JSON_CHECK_MORE);
	return result == JSON_CHECK_DONE;
}

/* A copy of its exact size, so that the sanitizer sees a look beyond it. */
static bool is_json(const char *text, size_t size, struct json_fault *fault)
{
	char *copy = malloc(size + !size);
	bool is;

	memcpy(copy, text, size);
	is = json_check(copy, size, DEPTH, fault);
	for (size_t n = 1; n < 8; n += 3)
		cr_assert(is_json_in_pieces(copy, size, n) == is, "%.*s: %d in one piece",
			  (int)size, text, is);
	free(copy);
	return is;
}

static bool jansson_takes(const char *text, size_t size)
{
	json_error_t error;
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);

	json_decref(root);
	return root != NULL;
}

static void compare(const char *text, size_t size)
{
	struct json_fault fault = {0};
	bool ours = is_json(text, size, &fault), theirs = jansson_takes(text, size);

	cr_assert(ours == theirs, "%.*s: %d (%s), jansson: %d", (int)size, text, ours,
		  ours ? "" : fault.text, theirs);
}

Test(json_check, difficult_texts_are_what_jansson_says)
{
	static const char *const texts[] = {
	    "",
	    " ",
	    "1",
	    "\"a\"",
	    "null",
	    "[]",
	    "{}",
	    " [ ] ",
	    "\t{\r\n}\n",
	    "[1,2]",
	    "[1,]",
	    "[,1]",
	    "[1 2]",
	    "{\"a\":1}",
	    "{\"a\":1,}",
	    "{\"a\"}",
	    "{\"a\":}",
	    "{a:1}",
	    "{\"a\":1,\"a\":2}",
	    "{\"a\":1,\"\\u0061\":2}",
	    "{\"\xe2\x82\xac\":1,\"\\u20ac\":2}",
	    "{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":2}",
	    "{\"\xc3\xa9\":1,\"\\u00e9\":2}",
	    "{\"\\n\":1,\"\\u000a\":2}",
	    "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
	    "[{\"a\":1},{\"a\":1}]",
	    "{\"a\":{\"b\":1,\"b\":1}}",
	    "{\"a\":[{\"b\":1}],\"b\":1,\"c\":[],\"a\":1}",
	    "{\"\":1}",
	    "{\"\":1,\"\":1}",
	    "[\"\\u0000\"]",
	    "[\"\\ud800\"]",
	    "[\"\\udc00\"]",
	    "[\"\\ud800\\ud800\"]",
	    "[\"\\ud800x\"]",
	    "[\"\\ud83d\\ude00\"]",
	    "[\"\\x\"]",
	    "[\"\\u12g4\"]",
	    "[\"\\u12",
	    "[\"\\",
	    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
	    "[\"\t\"]",
	    "[\"\x7f\"]",
	    "[\"\xff\"]",
	    "[\"\xc0\x80\"]",
	    "[\"\xed\xa0\x80\"]",
	    "[\"\xf4\x90\x80\x80\"]",
	    "[\"\xf4\x8f\xbf\xbf\"]",
	    "[\"\xe2\x82\"]",
	    "\xef\xbb\xbf[]",
	    "[0]",
	    "[-0]",
	    "[00]",
	    "[01]",
	    "[-]",
	    "[+1]",
	    "[.5]",
	    "[1.]",
	    "[1.5]",
	    "[1e]",
	    "[1e+]",
	    "[1E-5]",
	    "[1e5.5]",
	    "[1e999]",
	    "[-1e999]",
	    "[1e-999]",
	    "[0e999]",
	    "[0.0e99999999999999]",
	    "[1e99999999999999999999]",
	    "[0.0000000001e317]",
	    "[0.0000000001e318]",
	    "[0.0000000001e319]",
	    "[1e308]",
	    "[1e309]",
	    "[1.7976931348623157e308]",
	    "[1.7976931348623159e308]",
	    "[17.976931348623157e307]",
	    "[17.976931348623159e307]",
	    "[179769313486231570.0e291]",
	    "[0.17976931348623157e309]",
	    "[0.17976931348623159e309]",
	    "[9223372036854775807]",
	    "[9223372036854775808]",
	    "[-9223372036854775808]",
	    "[-9223372036854775809]",
	    "[99999999999999999999]",
	    "[99999999999999999999.0]",
	    "[true,false,null]",
	    "[tru]",
	    "[nulll]",
	    "[True]",
	    "[] []",
	    "[]x",
	    "[}",
	    "{]",
	    "[[]",
	    "[1",
	    "[//\n]",
	    "[NaN]",
	    "['a']",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		compare(texts[i], strlen(texts[i]));
	compare("[\0]", 3);
	compare("[\"\0\"]", 5);
	compare("[\"\\\0\"]", 6);
	compare("[]\0", 3);
}

static uint32_t next_number(void)
{
	static uint64_t state = 12;

	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

Test(json_check, texts_of_many_pieces_are_what_jansson_says)
{
	static const char *const pieces[] = {
	    "[", "]", "{",    "}",     ",",    ":",       "\"a\"",   "\"b\":", "\"a\":", "\"",
	    "1", "0", "-2.5", "1e308", "true", "null",    "\"\\u00", "61\"",   "\\",     " ",
	    "1", ",", "[",    "]",     "{}",   "\"c\":1", "\xc3",    "\xa9",   "e5",     "\n",
	};
	char text[256];
	size_t size, n = 0;

	for (int i = 0; i < 300000; i++) {
		size = (size_t)sprintf(text, next_number() % 2 ? "[" : "{");
		for (uint32_t k = next_number() % 14; k > 0; k--)
			size += (size_t)sprintf(
			    text + size, "%s",
			    pieces[next_number() % (sizeof(pieces) / sizeof(pieces[0]))]);
		size += (size_t)sprintf(text + size, text[0] == '[' ? "]" : "}");
		n += jansson_takes(text, size);
		compare(text, size);
	}
	cr_assert(n > 1000, "%zu", n);
}

static bool nested(int depth)
{
	char text[256];
	struct json_fault fault;

	memset(text, '[', (size_t)depth);
	memset(text + depth, ']', (size_t)depth);
	return is_json(text, 2 * (size_t)depth, &fault);
}

Test(json_check, depth_is_limited)
{
	cr_assert(nested(DEPTH));
	cr_assert(!nested(DEPTH + 1));
	cr_assert(!nested(DEPTH + 50));
}

Test(json_check, as_many_keys_as_fit_are_told_apart)
{
	char *text = malloc(JSON_CHECK_MAX + 64);
	struct json_fault fault;
	size_t size = 1;
	int i = 0;

	text[0] = '{';
	while (size < JSON_CHECK_MAX - 20)
		size += (size_t)sprintf(text + size, "\"%x\":0,", i++);
	cr_assert(i > 6000);
	text[size - 1] = '}';
	cr_assert(is_json(text, size, &fault));
	size += (size_t)sprintf(text + size - 1, ",\"7f\":0}") - 1;
	cr_assert(!is_json(text, size, &fault));
	cr_assert(strstr(fault.text, "twice") != NULL);
	free(text);
}

Test(json_check, it_says_where_the_fault_is)
{
	static const char text[] = "{\"a\": 1,\n \"b\": x}";
	struct json_fault fault;

	cr_assert(!is_json(text, sizeof(text) - 1, &fault));
	cr_assert(fault.line == 2 && fault.column == 7, "%u, %u", fault.line, fault.column);
}

/* Whatever it consists of, a text takes many pieces: each looks at no more than it was told. */
Test(json_check, a_piece_ends_within_strings_and_space)
{
	static const char *const fill[] = {" ", "a", "\xc3\xa9", "\\n", "0,", "[],", "{\"\":0},"};
	char *text = malloc(JSON_CHECK_MAX);
	struct json_fault fault;

	for (size_t i = 0; i < sizeof(fill) / sizeof(fill[0]); i++) {
		const bool string = i > 0 && i < 4;
		size_t size = 0, takes;
		struct json_check *j;
		int pieces = 1;

		size += (size_t)sprintf(text, string ? "[\"" : "[");
		while (size < JSON_CHECK_MAX - 16)
			size += (size_t)sprintf(text + size, "%s", fill[i]);
		if (text[size - 1] == ',')
			size--;
		size += (size_t)sprintf(text + size, string ? "\"]" : "]");
		j = json_check_new(text, size, DEPTH, &takes);
		cr_assert_not_null(j);
		while (json_check_some(j, 4096, &fault) == JSON_CHECK_MORE)
			pieces++;
		cr_assert(pieces >= 15, "%s: %d", fill[i], pieces);
		cr_assert_eq(json_check_some(j, 4096, &fault), JSON_CHECK_DONE);
		json_check_free(j);
	}
	free(text);
}
