/* SPDX-License-Identifier: MIT */

/* Errors: numbers and names are pinned, and every number has a name and a text that can be printed.
 * And the version, which is in the header as a text and as numbers. */

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <share/share.h>

TestSuite(error, .timeout = 30);

/* Never changed, and added to at the end only. */
static const struct {
	int number;
	const char *name;
} pinned[] = {
    {-22, "SHARE_EINVAL"},          {-12, "SHARE_ENOMEM"},
    {-2, "SHARE_ENOENT"},           {-17, "SHARE_EEXIST"},
    {-13, "SHARE_EACCES"},          {-4097, "SHARE_EQUOTA"},
    {-11, "SHARE_EAGAIN"},          {-110, "SHARE_ETIMEDOUT"},
    {-125, "SHARE_ECANCELED"},      {-16, "SHARE_EBUSY"},
    {-116, "SHARE_ESTALE"},         {-95, "SHARE_ENOTSUP"},
    {-4098, "SHARE_EDISCONNECTED"}, {-4099, "SHARE_EFORK"},
    {-130, "SHARE_EOWNERDEAD"},     {-71, "SHARE_EPROTO"},
    {-4100, "SHARE_ESYSTEM"},       {-4101, "SHARE_ENOBROKER"},
    {-19, "SHARE_ENODEV"},          {-4102, "SHARE_EDEVICE"},
    {-32, "SHARE_EPIPE"},           {-4, "SHARE_EINTR"},
};
#define N_PINNED ((int)(sizeof(pinned) / sizeof(pinned[0])))

/* In the order of the list. */
Test(error, numbers_and_names_stay_what_they_are)
{
	int n = 0;

#define COUNT(name_, number_, text)                                     \
	cr_assert(n < N_PINNED, "pin the new one as well: %s", #name_); \
	cr_assert_eq(pinned[n].number, number_);                        \
	cr_assert_eq(name_, number_);                                   \
	cr_assert_str_eq(pinned[n].name, #name_);                       \
	cr_assert_str_eq(share_error_name(number_), #name_);            \
	cr_assert_str_eq(share_strerror(number_), text);                \
	n++;
	SHARE_ERRORS(COUNT)
#undef COUNT
	cr_assert_eq(n, N_PINNED);
}

/* strerror() is right about those that have an errno, and knows no others. */
Test(error, numbers_are_those_of_an_errno_of_that_name_or_of_none)
{
	for (int i = 0; i < N_PINNED; i++) {
		const char *errno_name = strerrorname_np(-pinned[i].number);

		if (pinned[i].number < -4095)
			cr_assert(!errno_name);
		else if (pinned[i].number == SHARE_ENOTSUP) /* two names for one number */
			cr_assert_eq(ENOTSUP, -SHARE_ENOTSUP);
		else
			cr_assert_str_eq(errno_name, pinned[i].name + strlen("SHARE_"));
	}
}

Test(error, every_number_has_a_name_and_a_text)
{
	const int good[] = {0, 1, 64, INT_MAX}, unknown[] = {-1, -1000, -4095, -4096, INT_MIN};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_str_eq(share_error_name(good[i]), "SHARE_OK");
		cr_assert_str_eq(share_strerror(good[i]), "success");
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		cr_assert_str_eq(share_error_name(unknown[i]), "SHARE_E?");
		cr_assert_str_eq(share_strerror(unknown[i]), "unknown error");
	}
}

Test(version, one_is_said_as_a_text_and_in_numbers)
{
	char text[64];

	snprintf(text, sizeof(text), "%d.%d.%d", SHARE_VERSION_MAJOR, SHARE_VERSION_MINOR,
		 SHARE_VERSION_PATCH);
	cr_expect_str_eq(text, SHARE_VERSION);
	cr_expect_str_eq(share_version(), SHARE_VERSION);
}
