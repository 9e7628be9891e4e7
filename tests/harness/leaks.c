/* SPDX-License-Identifier: MIT */

/*
 * Where LeakSanitizer looks. Criterion runs each test in a process of its own, for which boxfort
 * sets BXFI_MAP; those are looked at. The process that only starts them is not: where a test has
 * another time limit than those before it, it ends with 48 bytes of Criterion's.
 */

#include <stdlib.h>

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return getenv("BXFI_MAP") == NULL;
}
