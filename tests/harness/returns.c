/* SPDX-License-Identifier: MIT */

#include "tests/harness/returns.h"

#include <stdio.h>
#include <stdlib.h>

#include <share/error.h>

int check_returned(const char *function, int r, const int *errors, int counts, int callback)
{
	if (r == 0 || (r > 0 && counts) || (callback && share_error_name(r)[7] == '?'))
		return r;
	for (; *errors; errors++)
		if (r == *errors)
			return r;
	fprintf(
	    stderr,
	    "BUG: %s() has returned %d (%s), which its comment in include/share does not list\n",
	    function, r, share_error_name(r));
	abort();
}
