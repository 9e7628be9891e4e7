/* SPDX-License-Identifier: MIT */

/* A build that found no CUDA headers: everything is there, and says that it can do nothing. */

#include <string.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/import.h"
#include "tests/agent/agent_process.h"

#define WORDS "this build has no GPU support"

TestSuite(without_cuda, .timeout = 30);

Test(without_cuda, a_scout_says_that_the_build_has_no_gpu_support)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET};
	struct agent_process agent;

	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &m, SHARE_ENODEV, false, WORDS, "CUDA headers");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(without_cuda, an_agent_of_a_device_says_so_and_ends)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_CREATE};
	struct agent_process agent;

	agent_start(&agent, "GPU-00000000-0000-0000-0000-000000000000");
	agent_ask_failing(&agent, &m, SHARE_ENODEV, true, WORDS, "device GPU-00000000");
	cr_assert_eq(agent_end(&agent), 1);
}

Test(without_cuda, nothing_on_a_device_can_be_imported)
{
	static const enum memory_kind_id kinds[] = {MEMORY_VMM, MEMORY_MEMPOOL};
	struct memory_recipe recipe = {.size = MEMORY_ALIGNMENT, .device = {1}};
	struct memory_mapping m;
	struct failure failure;

	for (size_t i = 0; i < 2; i++) {
		cr_assert_eq(
		    memory_import(memory_kind_by_id(kinds[i]), &recipe, 0, true, &m, &failure),
		    SHARE_ENODEV);
		cr_assert(strstr(failure.text, WORDS), "%s", failure.text);
	}
	cr_assert_not(memory_driver_is_loaded());
}
