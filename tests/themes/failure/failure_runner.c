/* SPDX-License-Identifier: MIT */

/*
 * One run of the scenario in which one call fails: a program of its own, so that whatever it leaves
 * behind is seen at its exit, by the sanitizers and by the broker.
 *
 * usage: failure_runner SOCKET KIND NTH ERRNO ALL_AFTER
 *
 * Exits with 0; with RUNNER_PAST_THE_LAST when there are fewer calls of that kind; with anything
 * else when something was not clean.
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
	unsigned long nth, count;
	int before, failures;

	if (argc != 6)
		return 2;
	json_set_alloc_funcs(failing_malloc, free);
	/* once without: what is made once is made then */
	check_eq(scenario_run(argv[1]), 0);
	before = descriptors_count(0);
	nth = strtoul(argv[3], NULL, 10);
	failing_set((enum failing)atoi(argv[2]), nth, atoi(argv[4]), atoi(argv[5]));
	failures = scenario_run(argv[1]);
	count = failing_count();
	failing_set(FAILING_NOTHING, 0, 0, false);
	if (descriptors_count(0) != before) {
		descriptors_list(0);
		check_failed(__FILE__, __LINE__, "failure %lu left descriptors open", nth);
	}
	if (count >= nth)
		return 0;
	check_eq(failures, 0);
	return RUNNER_PAST_THE_LAST;
}
