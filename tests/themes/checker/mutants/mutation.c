/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/mutation.h"

const char *mutation_on;

static void __attribute__((constructor)) read_mutation(void)
{
	mutation_on = getenv("SHARE_MUTATION");
}
