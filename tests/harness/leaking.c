/* SPDX-License-Identifier: MIT */

/* What a variable leads to is no leak, and what nothing leads to is one; see leaks_test. */

#include <stdio.h>
#include <stdlib.h>

static void *kept[100000]; /* so far from where the program's variables begin */

int main(void)
{
	volatile char *lost;

	kept[99999] = malloc(100);
	lost = malloc(33);
	*lost = 0;
	lost = NULL;
	return 0;
}
