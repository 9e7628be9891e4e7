/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LOG_H
#define BROKER_LOG_H

#include <stdint.h>
#include <sys/types.h>

/* The broker's log: lines on stderr. The only state is the level, set once at start. */

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* -1: no such level. */
int log_level_from_name(const char *name);
void log_set_level(enum log_level level);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An invariant is broken: the line says "BUG", and with $SHARE_ABORT_ON_BUG the broker aborts, so
 * that tests cannot miss it. */
void log_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Every broken rule and every limit reached is worded here and nowhere else. */
void log_violation(uint64_t client, pid_t pid, uid_t uid, const char *what);
void log_quota(uid_t uid, const char *resource, uint64_t limit);

#endif
