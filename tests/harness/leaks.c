/* SPDX-License-Identifier: MIT */

/*
 * Where LeakSanitizer looks. Criterion runs each test in a process of its own, for which boxfort
 * sets BXFI_MAP; those are looked at. The process that only starts them is not: now and then, on a
 * busy machine, it ends with 48 bytes of Criterion's.
 */

#include <stdlib.h>

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return getenv("BXFI_MAP") == NULL;
}
