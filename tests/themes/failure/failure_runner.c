/* SPDX-License-Identifier: MIT */

/*
 * Runs of the scenario in each of which one call fails: a program of its own, so that whatever they
 * leave behind is seen at its exit, by the sanitizers and by the broker.
 *
 * usage: failure_runner SOCKET KIND NTH RUNS ERRNO ALL_AFTER
 *
 * Call NTH fails in the first run, the next one in the next, and so on: RUNS of them, but none
 * after one in which the connection was lost. Exits with RUNNER_ENDED and how many of these calls
 * there were, or RUNNER_PAST_THE_LAST and that if there was one less; with anything else when
 * something was not clean.
 */

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "tests/harness/check.h"
#include "tests/harness/descriptors.h"
#include "tests/themes/failure/failing.h"
#include "tests/themes/failure/scenario.h"

int main(int argc, char **argv)
{
	unsigned long nth, first, end, count;
	int before, failures;

	if (argc != 7)
		return 2;
	json_set_alloc_funcs(failing_malloc, free);
	/* once without: what is made once is made then */
	check_eq(scenario_run(argv[1]), 0);
	before = descriptors_count(0);
	first = strtoul(argv[3], NULL, 10);
	end = first + strtoul(argv[4], NULL, 10);
	for (nth = first; nth < end && scenario_disconnects() == 0; nth++) {
		failing_set((enum failing)atoi(argv[2]), nth, atoi(argv[5]), atoi(argv[6]));
		failures = scenario_run(argv[1]);
		count = failing_count();
		failing_set(FAILING_NOTHING, 0, 0, false);
		if (descriptors_count(0) != before) {
			descriptors_list(0);
			check_failed(__FILE__, __LINE__, "failure %lu left descriptors open", nth);
		}
		if (count < nth) {
			check_eq(failures, 0);
			return RUNNER_PAST_THE_LAST + (int)(nth - first);
		}
	}
	return RUNNER_ENDED + (int)(nth - first);
}
