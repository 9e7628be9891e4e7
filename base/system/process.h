/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether this is built with a sanitizer that attaches to its own process: gcc says so with a
 * macro, clang with a feature. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROCESS_IS_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(leak_sanitizer)
#define PROCESS_IS_INSTRUMENTED 1
#endif
#endif
#ifndef PROCESS_IS_INSTRUMENTED
#define PROCESS_IS_INSTRUMENTED 0
#endif

/*
 * Whether one can trust a value that a GPU wrote for another process. When a process is killed, it
 * first begins to exit, and then the driver takes its GPU work down. While that happens, a value
 * may still be written though the work before it never finished (measured: the pidfd becomes
 * readable some 50 ms after the kill). So a reader looks at the value first, and asks afterwards
 * whether its owner has begun to exit.
 */
enum process_state {
	PROCESS_RUNS,
	PROCESS_EXITS,   /* it has begun to exit, or is dead */
	PROCESS_UNKNOWN, /* /proc is not mounted, or hides the process */
};

/* Returns the state of the process behind @pidfd. @stat keeps a descriptor of /proc between calls:
 * it is -1 before the first one, and the caller closes it in the end. */
enum process_state process_state(int pidfd, int *stat);

/* Whether the process behind @pidfd has ended. One that is about to end has not. */
bool process_has_ended(int pidfd);

/* Returns how much memory this process has for itself alone, in bytes; 0 when nobody can say, or
 * when it would be a sanitizer's. @memory is of process_open_memory(), in this process; -1 when
 * /proc cannot be read. */
int process_open_memory(void);
uint64_t process_own_memory(int memory);

/* Returns the number of the process behind @pidfd as this process sees it; 0 when it does not see
 * it, or /proc is not mounted. */
long process_pid(int pidfd);

/*
 * From now on no other process of this user can attach to this one, read its memory or take its
 * descriptors, and it leaves no core. The broker and each agent call it for themselves, because
 * exec makes every program dumpable again. It does nothing where $SHARE_DUMPABLE is 1, or where a
 * sanitizer has to attach to its own process. Returns 0 or a negative errno.
 */
int process_hide(void);
