/* SPDX-License-Identifier: MIT */

/*
 * Part of those tests that look at what the broker has of a buffer that was released, or at the
 * calls made for it: nothing is kept in between, unless the environment says so.
 */

#include <stdlib.h>

static void __attribute__((constructor)) keep_nothing(void)
{
	setenv("SHARE_MAGAZINES", "0", 0);
}
