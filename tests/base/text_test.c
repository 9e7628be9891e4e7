/* SPDX-License-Identifier: MIT */
/*
 * What is text, what is a name, how foreign text is shown, how sizes are read.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/size.h"
#include "base/text.h"

TestSuite(text, .timeout = 30);
TestSuite(size, .timeout = 30);

static bool utf8(const char *text)
{
	/* A copy of its exact size, so that the sanitizer sees a look beyond it. */
	size_t size = strlen(text);
	char *copy = malloc(size + !size);
	memcpy(copy, text, size);
	bool is = text_is_utf8(copy, size);
	free(copy);
	return is;
}

static bool name(const char *text)
{
	return text_is_valid_name(text, strlen(text));
}

Test(text, utf8_of_every_length_is_accepted)
{
	cr_assert(utf8(""));
	cr_assert(utf8("plain"));
	cr_assert(utf8("\xc2\x80"));
	cr_assert(utf8("\xdf\xbf"));
	cr_assert(utf8("\xe0\xa0\x80"));
	cr_assert(utf8("\xed\x9f\xbf"));
	cr_assert(utf8("\xee\x80\x80"));
	cr_assert(utf8("\xef\xbf\xbf"));
	cr_assert(utf8("\xf0\x90\x80\x80"));
	cr_assert(utf8("\xf4\x8f\xbf\xbf"));
	cr_assert(text_is_utf8("a\0b", 3));
}

Test(text, overlong_forms_are_refused)
{
	cr_assert_not(utf8("\xc0\x80"));
	cr_assert_not(utf8("\xc1\xbf"));
	cr_assert_not(utf8("\xe0\x80\x80"));
	cr_assert_not(utf8("\xe0\x9f\xbf"));
	cr_assert_not(utf8("\xf0\x80\x80\x80"));
	cr_assert_not(utf8("\xf0\x8f\xbf\xbf"));
}

Test(text, surrogates_are_refused)
{
	cr_assert_not(utf8("\xed\xa0\x80"));
	cr_assert_not(utf8("\xed\xbf\xbf"));
}

Test(text, nothing_beyond_the_last_character_is_accepted)
{
	cr_assert_not(utf8("\xf4\x90\x80\x80"));
	cr_assert_not(utf8("\xf5\x80\x80\x80"));
	cr_assert_not(utf8("\xf8\x88\x80\x80\x80"));
	cr_assert_not(utf8("\xfe"));
	cr_assert_not(utf8("\xff"));
}

Test(text, broken_sequences_are_refused)
{
	cr_assert_not(utf8("\x80"));
	cr_assert_not(utf8("a\xbf"));
	cr_assert_not(utf8("\xc3"));
	cr_assert_not(utf8("\xe2\x82"));
	cr_assert_not(utf8("\xf0\x9f\x98"));
	cr_assert_not(utf8("\xc3("));
	cr_assert_not(utf8("\xe2\x82("));
	cr_assert_not(utf8("\xf0\x9f\x98("));
}

/* Every scalar value, and every three-byte form that is none, against the definition. */
Test(text, utf8_agrees_with_its_definition)
{
	for (uint32_t c = 0; c < 0x10000; c++) {
		char three[3] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 0x3f)),
				 (char)(0x80 | (c & 0x3f))};
		bool scalar = c >= 0x800 && (c < 0xd800 || c > 0xdfff);
		cr_assert(text_is_utf8(three, 3) == scalar, "U+%04X", c);
	}
	for (uint32_t c = 0; c < 0x200000; c++) {
		char four[4] = {(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 0x3f)),
				(char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f))};
		bool scalar = c >= 0x10000 && c <= 0x10ffff;
		if (text_is_utf8(four, 4) != scalar)
			cr_assert_fail("U+%04X", c);
	}
}

Test(text, names_are_1_to_255_bytes)
{
	char longest[257];

	memset(longest, 'n', sizeof(longest));
	cr_assert_not(text_is_valid_name(longest, 0));
	cr_assert(text_is_valid_name(longest, 1));
	cr_assert(text_is_valid_name(longest, 255));
	cr_assert_not(text_is_valid_name(longest, 256));
}

Test(text, names_may_have_spaces_slashes_and_other_scripts)
{
	cr_assert(name("frames/left"));
	cr_assert(name(" "));
	cr_assert(name("..."));
	cr_assert(name("кадры 左 😀"));
	cr_assert(name("\xc2\xa0"));
}

Test(text, names_have_no_control_characters)
{
	for (char c = 1; c < 0x20; c++)
		cr_assert_not(text_is_valid_name((char[]){'a', c}, 2), "U+%04X", c);
	cr_assert_not(text_is_valid_name("a\0", 2));
	cr_assert_not(name("a\x7f"));
	for (int c = 0x80; c <= 0x9f; c++)
		cr_assert_not(text_is_valid_name((char[]){(char)0xc2, (char)c}, 2), "U+%04X", c);
	cr_assert_not(name("a\xff"));
}

/* They turn the direction round, have no width, or end a line. */
static const char *const unseen[] = {
    "\xe2\x80\xae" /* U+202E */, "\xe2\x81\xa6" /* U+2066 */, "\xe2\x81\xa9" /* U+2069 */,
    "\xe2\x80\x8b" /* U+200B */, "\xe2\x80\x8f" /* U+200F */, "\xe2\x80\xa8" /* U+2028 */,
    "\xe2\x80\xa9" /* U+2029 */, "\xef\xbb\xbf" /* U+FEFF */, "\xe2\x81\xa0" /* U+2060 */,
    "\xd8\x9c" /* U+061C */,     "\xc2\xad" /* U+00AD */,     "\xe3\x85\xa4" /* U+3164 */,
};

Test(text, names_have_nothing_that_makes_them_look_like_others)
{
	char text[8];

	for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
		snprintf(text, sizeof(text), "a%sb", unseen[i]);
		cr_assert_not(name(text), "%zu", i);
	}
	cr_assert_not(name("a\xf3\xa0\x81\xa1")); /* U+E0061, a tag */
	/* their neighbours are seen */
	cr_assert(name("\xe2\x80\x8a \xe2\x80\x90 \xe2\x80\xa7 \xe2\x80\xb0 \xe2\x81\xb0"));
	cr_assert(name("\xd8\x9b \xc2\xac \xc2\xae \xef\xbb\xbc"));
}

Test(text, printable_text_is_shown_as_it_is)
{
	char out[32];

	cr_assert_str_eq(text_printable("a \"b\" \\ é", out, sizeof(out)), "a \"b\" \\ é");
	cr_assert_str_eq(text_printable("", out, sizeof(out)), "");
}

Test(text, control_characters_and_bytes_that_are_no_text_are_escaped)
{
	char out[64];

	cr_assert_str_eq(text_printable("\x1b[2J\n\x7f", out, sizeof(out)),
			 "\\u001b[2J\\u000a\\u007f");
	cr_assert_str_eq(text_printable("\xc2\x9b", out, sizeof(out)), "\\u009b");
	cr_assert_str_eq(text_printable("a\xff\xc3z", out, sizeof(out)), "a\\xff\\xc3z");
	cr_assert_str_eq(text_printable("gpj\xe2\x80\xaegnp", out, sizeof(out)), "gpj\\u202egnp");
	cr_assert_str_eq(text_printable("\xf3\xa0\x81\xa1", out, sizeof(out)), "\\U000e0061");
}

Test(text, what_does_not_fit_is_cut_between_characters)
{
	char out[9];

	cr_assert_str_eq(text_printable("12345678", out, sizeof(out)), "12345678");
	cr_assert_str_eq(text_printable("123456789", out, sizeof(out)), "12345...");
	cr_assert_str_eq(text_printable("1234é6789", out, sizeof(out)), "1234...");
	cr_assert_str_eq(text_printable("12\x1b", out, sizeof(out)), "12\\u001b");
	cr_assert_str_eq(text_printable("123\x1b", out, sizeof(out)), "123...");
	cr_assert_str_eq(text_printable("12345", out, 4), "...");
}

Test(text, a_misspelled_word_is_found)
{
	static const char *const words[] = {"limit", "limits", "segment_size", "name"};

	cr_assert_str_eq(text_nearest("limt", words, 4), "limit");
	cr_assert_str_eq(text_nearest("lmiits", words, 4), "limits");
	cr_assert_str_eq(text_nearest("segmentSize", words, 4), "segment_size");
	cr_assert_str_eq(text_nearest("segment-size", words, 4), "segment_size");
	cr_assert_str_eq(text_nearest("naem", words, 4), "name");
}

Test(text, another_word_is_not_taken_for_a_misspelled_one)
{
	static const char *const words[] = {"limit", "limits", "segment_size", "name"};

	cr_assert_null(text_nearest("colour", words, 4));
	cr_assert_null(text_nearest("", words, 4));
	cr_assert_null(text_nearest("segment_size_segment_size_segment_size", words, 4));
}

static uint64_t bytes(const char *text)
{
	uint64_t value = 0;

	cr_assert_eq(size_parse(text, &value), 0, "%s", text);
	return value;
}

Test(size, bytes_and_binary_units_are_read)
{
	cr_assert_eq(bytes("0"), 0);
	cr_assert_eq(bytes("512"), 512);
	cr_assert_eq(bytes("64KiB"), 65536);
	cr_assert_eq(bytes("64 MiB"), 64 * MIB);
	cr_assert_eq(bytes("4GiB"), 4 * GIB);
	cr_assert_eq(bytes("1TiB"), TIB);
	cr_assert_eq(bytes("0064KiB"), 65536);
	cr_assert_eq(bytes("18446744073709551615"), UINT64_MAX);
	cr_assert_eq(bytes("16777215TiB"), UINT64_C(16777215) << 40);
}

Test(size, fractions_are_read_when_they_are_exact)
{
	cr_assert_eq(bytes("1.5GiB"), 3 * GIB / 2);
	cr_assert_eq(bytes("0.5KiB"), 512);
	cr_assert_eq(bytes("1.000"), 1);
	cr_assert_eq(bytes("1.0009765625KiB"), 1025);
	cr_assert_eq(bytes("16777215.9999999999990905052982270717620849609375TiB"), UINT64_MAX);
	cr_assert_eq(bytes("0.5000000000000000000000000000000000000000000000000000000KiB"), 512);
}

Test(size, fractions_of_a_byte_are_refused)
{
	uint64_t value = 7;

	cr_assert_eq(size_parse("1.5", &value), SIZE_EINEXACT);
	cr_assert_eq(size_parse("1.3KiB", &value), SIZE_EINEXACT);
	cr_assert_eq(size_parse("0.1TiB", &value), SIZE_EINEXACT);
	cr_assert_eq(size_parse("0.00000000000000000000000000000000000000000000001TiB", &value),
		     SIZE_EINEXACT);
	cr_assert_eq(value, 7);
}

Test(size, more_than_64_bits_are_refused)
{
	uint64_t value = 7;

	cr_assert_eq(size_parse("18446744073709551616", &value), SIZE_EOVERFLOW);
	cr_assert_eq(size_parse("99999999999999999999999999", &value), SIZE_EOVERFLOW);
	cr_assert_eq(size_parse("16777216TiB", &value), SIZE_EOVERFLOW);
	cr_assert_eq(size_parse("18446744073709551615KiB", &value), SIZE_EOVERFLOW);
	cr_assert_eq(value, 7);
}

Test(size, what_is_not_a_size_is_refused)
{
	static const char *const wrong[] = {
	    "",      " ",   "KiB",    "10 parsecs", "-1",    "+1",    "64MB",  "64M",
	    "64mib", "64 ", " 64",    "64  MiB",    "1.",    ".5GiB", "1.GiB", "1,5GiB",
	    "0x10",  "1e3", "64MiB ", "64MiBs",     "1.2.3", "inf",
	};
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_eq(size_parse(wrong[i], &value), SIZE_EINVALID, "\"%s\"", wrong[i]);
	cr_assert_eq(value, 7);
}

Test(size, a_size_is_written_in_its_largest_whole_unit)
{
	char text[SIZE_TEXT_MAX];

	cr_assert_str_eq(size_format(0, text), "0");
	cr_assert_str_eq(size_format(1000, text), "1000");
	cr_assert_str_eq(size_format(65536, text), "64KiB");
	cr_assert_str_eq(size_format(3 * GIB / 2, text), "1536MiB");
	cr_assert_str_eq(size_format(4 * GIB, text), "4GiB");
	cr_assert_str_eq(size_format(TIB, text), "1TiB");
	cr_assert_str_eq(size_format(UINT64_MAX, text), "18446744073709551615");
}

Test(size, of_many_digits_is_told_rounded_as_well)
{
	char text[SIZE_EXACT_MAX];

	cr_assert_str_eq(size_tell(0, text), "0");
	cr_assert_str_eq(size_tell(3 * GIB / 2, text), "1536MiB");
	cr_assert_str_eq(size_tell(99999, text), "99999");
	cr_assert_str_eq(size_tell(100000, text), "97.7KiB (100000)");
	cr_assert_str_eq(size_tell(12342048 * KIB, text), "11.8GiB (12342048KiB)");
	cr_assert_str_eq(size_tell(UINT64_MAX, text), "16.0EiB (18446744073709551615)");
}

Test(size, is_exact_for_people)
{
	char text[SIZE_EXACT_MAX];

	cr_assert_str_eq(size_exact(0, text), "0 bytes");
	cr_assert_str_eq(size_exact(1, text), "1 byte");
	cr_assert_str_eq(size_exact(1023, text), "1023 bytes");
	cr_assert_str_eq(size_exact(1024, text), "1KiB");
	cr_assert_str_eq(size_exact(65537, text), "65537 bytes");
	cr_assert_str_eq(size_exact(MIB + 1, text), "1048577 bytes (1.0MiB)");
	cr_assert_str_eq(size_exact(3 * MIB, text), "3MiB");
	cr_assert_str_eq(size_exact(UINT64_C(5000000000), text), "5000000000 bytes (4.7GiB)");
	cr_assert_str_eq(size_exact(UINT64_MAX, text), "18446744073709551615 bytes (16.0EiB)");
}

Test(size, is_rounded_for_people)
{
	char text[SIZE_TEXT_MAX];

	cr_assert_str_eq(size_round(0, text), "0B");
	cr_assert_str_eq(size_round(1, text), "1B");
	cr_assert_str_eq(size_round(1023, text), "1023B");
	cr_assert_str_eq(size_round(1 << 10, text), "1KiB");
	cr_assert_str_eq(size_round(1000000, text), "976.6KiB");
	cr_assert_str_eq(size_round(MIB - 1, text), "1.0MiB");
	cr_assert_str_eq(size_round(3 * GIB / 2, text), "1.5GiB");
	cr_assert_str_eq(size_round(4 * GIB, text), "4GiB");
	cr_assert_str_eq(size_round(UINT64_MAX, text), "16.0EiB");
}
