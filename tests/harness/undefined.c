/* SPDX-License-Identifier: MIT */

/* Its behaviour is undefined; see undefined_test. */

#include <limits.h>
#include <stdio.h>

int main(void)
{
	volatile int largest = INT_MAX;

	largest = largest + 1;
	puts("it went on");
	return 0;
}
