/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The broker's log: lines on stderr, which nothing waits for. It keeps the level, who reads the
 * lines, and how many of them each user has caused within a minute. */

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Returns the level of that name; -1: there is none. */
int log_level_from_name(const char *name);
void log_set_level(enum log_level level);
/* Makes the lines a log from now on: with priorities if stderr leads to the journal, else with the
 * time. Before that they are what a program says to whoever has called it. */
void log_open(void);
/* Makes lines, until log_open(), have the offset from UTC that holds now, and lock nothing in the C
 * library. A process that is killed over a line would leave that locked for the one that goes on
 * with the same memory. */
void log_lock_nothing(void);
/* Returns what the log then writes to; -1: stderr itself. Whoever closes what it does not know has
 * to keep this. */
int log_descriptor(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for what this user has caused: 200 lines a minute are written, the others are
 * counted. */
#define LOG_UID_UNKNOWN ((uid_t)-1)
void log_warning_of(uid_t uid, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_info_of(uid_t uid, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says that an invariant is broken: the line begins with "BUG", and with $SHARE_ABORT_ON_BUG the
 * broker aborts, so that tests cannot miss it. */
void log_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The first line and the last one of a broker that serves. @config is its file, NULL: built in.
 * @pools names what it has, as in "'frames', 'weights'". */
void log_start(const char *version, const char *socket, const char *config, size_t n_pools,
	       const char *pools);
/* A line for a broker that waits for so many clients before it ends. */
void log_drain(const char *why, uint32_t n_clients, unsigned limit_ms);
void log_stop(const char *why, uint64_t uptime_ms, uint32_t n_clients);

/* Who a line is about, and what that one holds. */
struct log_client {
	uint64_t id;
	pid_t pid;
	uid_t uid;
	const char *label; /* printable */
};
struct holdings {
	uint64_t leases, bytes; /* bytes of these leases */
	uint64_t names, tokens, memberships, events;
};
bool holdings_any(const struct holdings *h);
void log_violation(const struct log_client *c, const char *what);
void log_lost(const struct log_client *c, const char *why);
void log_dropped(const struct log_client *c, uid_t by);
/* @what ends with "in", and @channel is printable. */
void log_in_channel(const struct log_client *c, const char *what, const char *channel,
		    const char *why);
/* How clients go that do not say goodbye: one line for each that held something, two for one that
 * went through quarantine. */
void log_died(const struct log_client *c, const struct holdings *h);
void log_hung_up(const struct log_client *c, const struct holdings *h);
void log_quarantine(const struct log_client *c, const struct holdings *h);
void log_quarantine_over(const struct log_client *c, const struct holdings *h);
/* Clients whom a broker that is to end waits for and, at its end, has waited for @in_vain. */
void log_waited_for(const struct log_client *c, const struct holdings *h, bool in_vain);

/* What clients can have said as often as they like is in the log once a minute, with how many lines
 * were left out before; and these are counted among the lines of their users. Zeroed: there was
 * none yet. */
struct log_rate {
	uint64_t next_ms;
	uint64_t left_out;
};
void log_refusal(struct log_rate *rate, uid_t uid, const char *why);
/* A name was unpublished by another client than the one that published it. */
void log_unpublished(struct log_rate *rate, const char *name, uid_t by);
void log_full(struct log_rate *rate, const struct log_client *c, const char *why);
