/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CONFINE_H
#define BROKER_CONFINE_H

#include <stdbool.h>

/* Whether this is built with a sanitizer that attaches to its own process: gcc says so with a
 * macro, clang with a feature. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONFINE_IS_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(leak_sanitizer)
#define CONFINE_IS_INSTRUMENTED 1
#endif
#endif
#ifndef CONFINE_IS_INSTRUMENTED
#define CONFINE_IS_INSTRUMENTED 0
#endif

/*
 * From now on this process, and what it starts, has no capabilities and cannot get any, is not to
 * be looked into by others of its user, and has only the system calls that it needs. Returns 0, or
 * a negative errno with what could not be done in @what (the rest is done). Before there is a
 * second thread.
 */
int confine(bool dumpable, const char **what);

#endif
