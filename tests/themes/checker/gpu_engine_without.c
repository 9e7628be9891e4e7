/* SPDX-License-Identifier: MIT */

/* Where the CUDA headers were not found when this was built. */

#include <stdio.h>

#include "tests/themes/checker/worker.h"

static int start(struct worker *w)
{
	(void)w;
	fprintf(stderr, "share-checker: was built without the CUDA headers\n");
	return 77;
}

const struct engine gpu_engine = {.start = start};
