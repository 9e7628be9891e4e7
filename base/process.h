/* SPDX-License-Identifier: MIT */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

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
 * Whether what a GPU wrote for another process can be believed. A process that is killed begins to
 * exit, then the driver takes its GPU work down, in which a value may still be written though the
 * work before it never finished (measured: the pidfd becomes readable some 50 ms after the kill).
 * So: look at the value first, then ask whether its owner has begun to exit.
 */
enum process_state {
	PROCESS_RUNS,
	PROCESS_EXITS,   /* or has */
	PROCESS_UNKNOWN, /* /proc is not there, or hides it */
};

/* @stat keeps a descriptor between calls: -1 at first, the caller's to close. */
enum process_state process_state(int pidfd, int *stat);

/*
 * From now on no other process of this user attaches to this one, reads its memory or takes its
 * descriptors, and it leaves no core: for the broker, and for agents, as exec makes every program
 * dumpable again. Not where $SHARE_DUMPABLE is 1, nor where a sanitizer attaches to its own
 * process. Returns 0 or a negative errno.
 */
int process_hide(void);

#endif
