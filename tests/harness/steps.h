/* SPDX-License-Identifier: MIT */
#pragma once

#include <signal.h>
#include <stdbool.h>

/*
 * This thread, one instruction after the other: what a test does after each of them is what others
 * see that are there when the thread is killed just then. Processors of other kinds than x86-64 are
 * not known here.
 */
#if defined(__x86_64__)
#define STEPS_ARE_KNOWN true
/* The flag of single steps; below the red zone, where a function that calls nothing has data. */
#define STEPS_SET_FLAG(how)                                         \
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" how \
			 "\n\tpopfq\n\t"                            \
			 "lea 128(%%rsp), %%rsp" ::                 \
			     : "memory", "cc")
#else
#define STEPS_ARE_KNOWN     false
#define STEPS_SET_FLAG(how) (void)0
#endif

static void (*steps_each)(void);

static inline void steps_on_trap(int signal)
{
	(void)signal;
	steps_each();
}

static inline void steps_begin(void (*each)(void))
{
	struct sigaction action = {.sa_handler = steps_on_trap};

	steps_each = each;
	sigaction(SIGTRAP, &action, NULL);
	STEPS_SET_FLAG("orq $0x100, (%%rsp)");
}

static inline void steps_end(void)
{
	STEPS_SET_FLAG("andq $~0x100, (%%rsp)");
}
