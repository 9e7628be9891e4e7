/* SPDX-License-Identifier: MIT */

/*
 * A test that fails, as CTest expects: it looks whether what differs is shown, for which libgit2 is
 * loaded on demand.
 */

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(differs, what_differs_is_shown)
{
	char one[] = "the same\nthis\n";
	char other[] = "the same\nthat\n";

	cr_assert(eq(str, one, other));
}
