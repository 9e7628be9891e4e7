/* SPDX-License-Identifier: MIT */

/* Errors: numbers and names are pinned, and every number has a name and a text that can be printed.
 */

#include <limits.h>
#include <stddef.h>

#include <criterion/criterion.h>

#include <share/share.h>

TestSuite(error, .timeout = 30);

/* Never changed, and added to at the end only. */
static const struct {
	int number;
	const char *name;
} pinned[] = {
    {0, "SHARE_OK"},           {-1, "SHARE_EINVAL"},         {-2, "SHARE_ENOMEM"},
    {-3, "SHARE_ENOENT"},      {-4, "SHARE_EEXIST"},         {-5, "SHARE_EACCES"},
    {-6, "SHARE_EQUOTA"},      {-7, "SHARE_EAGAIN"},         {-8, "SHARE_ETIMEDOUT"},
    {-9, "SHARE_ECANCELED"},   {-10, "SHARE_EBUSY"},         {-11, "SHARE_ESTALE"},
    {-12, "SHARE_ENOTSUP"},    {-13, "SHARE_EDISCONNECTED"}, {-14, "SHARE_EFORK"},
    {-15, "SHARE_EOWNERDEAD"}, {-16, "SHARE_EPROTO"},        {-17, "SHARE_ESYSTEM"},
    {-18, "SHARE_ENOBROKER"},  {-19, "SHARE_ENODEV"},        {-20, "SHARE_EDEVICE"},
    {-21, "SHARE_EPIPE"},
};
#define N_PINNED ((int)(sizeof(pinned) / sizeof(pinned[0])))

Test(error, numbers_and_names_stay_what_they_are)
{
	int n = 1; /* SHARE_OK is not in the list of errors */

	for (int i = 0; i < N_PINNED; i++) {
		cr_assert_eq(pinned[i].number, -i);
		cr_assert_str_eq(share_error_name(-i), pinned[i].name);
	}
#define COUNT(name, number, text)                                      \
	cr_assert_eq(number, -n);                                      \
	cr_assert_eq(name, -n);                                        \
	cr_assert_str_eq(share_strerror(number), text);                \
	cr_assert(n < N_PINNED, "pin the new one as well: %s", #name); \
	n++;
	SHARE_ERRORS(COUNT)
#undef COUNT
	cr_assert_eq(n, N_PINNED);
}

Test(error, every_number_has_a_name_and_a_text)
{
	const int good[] = {0, 1, 64, INT_MAX}, unknown[] = {-N_PINNED, -1000, INT_MIN};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_str_eq(share_error_name(good[i]), "SHARE_OK");
		cr_assert_str_eq(share_strerror(good[i]), "success");
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		cr_assert_str_eq(share_error_name(unknown[i]), "SHARE_E?");
		cr_assert_str_eq(share_strerror(unknown[i]), "unknown error");
	}
}
