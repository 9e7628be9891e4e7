/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LOG_LOG_H
#define BROKER_LOG_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The broker's log: lines on stderr, which nothing waits for. It keeps the level, who reads the
 * lines, and how many of them each user has caused within a minute. */

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* -1: no such level. */
int log_level_from_name(const char *name);
void log_set_level(enum log_level level);
/* From now on the lines are a log: with priorities if stderr leads to the journal, else with the
 * time. Before, they are what a program says to who has called it. */
void log_open(void);
/* From now on, until log_open(), lines have the offset from UTC that holds now, and nothing in the
 * C library is locked for them: one who is killed over a line would leave that locked for who goes
 * on with the same memory. */
void log_lock_nothing(void);
/* What it then writes to; -1: stderr itself. Who closes what it does not know has to keep this. */
int log_descriptor(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, of what this user has caused: 200 lines a minute, the others are counted. */
#define LOG_UID_UNKNOWN ((uid_t)-1)
void log_warning_of(uid_t uid, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_info_of(uid_t uid, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An invariant is broken: the line says "BUG", and with $SHARE_ABORT_ON_BUG the broker aborts, so
 * that tests cannot miss it. */
void log_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The first line and the last one of a broker that serves. @config is its file, NULL: built in.
 * @pools names what it has, as in "'frames', 'weights'". */
void log_start(const char *version, const char *socket, const char *config, size_t n_pools,
	       const char *pools);
/* It waits for @n of them before the latter. */
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
	uint64_t leases, bytes; /* of these */
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
/* And those whom a broker that is to end waits for, and at its end: has waited for in vain. */
void log_waited_for(const struct log_client *c, const struct holdings *h, bool in_vain);

/* What clients can have said as often as they like stands in the log once a minute, with how many
 * lines were left out before; and of each user no more than other lines. Zeroed: there was none
 * yet. */
struct log_rate {
	uint64_t next_ms;
	uint64_t left_out;
};
void log_refusal(struct log_rate *rate, uid_t uid, const char *why);
/* By another client than the one that published it. */
void log_unpublished(struct log_rate *rate, const char *name, uid_t by);
void log_full(struct log_rate *rate, const struct log_client *c, const char *why);

#endif
