/* SPDX-License-Identifier: MIT */

/*
 * How copies of the library find each other: by a word that the dynamic linker makes one of for all
 * that is loaded into the process, by whatever name and with RTLD_LOCAL as well. That is what
 * STB_GNU_UNIQUE means, and C has no word for it. The environment would do as well, but is the
 * program's, and passed on to others.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "libshare/program/copies.h"

__asm__(
    ".pushsection .bss.share_first_copy, \"aw\", %nobits\n"
    ".globl share_first_copy\n"
    ".type share_first_copy, %gnu_unique_object\n"
    ".size share_first_copy, 8\n"
    ".balign 8\n"
    "share_first_copy:\n"
    ".zero 8\n"
    ".popsection\n");

/* The address of something in the copy that came first; 0: none has. */
extern __attribute__((visibility("default"))) _Atomic uint64_t share_first_copy;

bool copies_is_first(void)
{
	static char here;
	uint64_t none = 0, own = (uintptr_t)&here;

	return atomic_load_explicit(&share_first_copy, memory_order_relaxed) == own ||
	       atomic_compare_exchange_strong(&share_first_copy, &none, own);
}
