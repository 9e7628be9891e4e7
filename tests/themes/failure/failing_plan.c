/* SPDX-License-Identifier: MIT */

/* How a plan is made: for programs whose own calls do not fail as well. */

#include "tests/themes/failure/failing.h"

void failing_plan_set(struct failing_plan *plan, unsigned what, unsigned long nth, int error,
		      bool all_after)
{
	plan->what = FAILING_NOTHING;
	plan->count = 0;
	plan->nth = nth;
	plan->error = error;
	plan->all_after = all_after;
	plan->what = what;
}
