/* SPDX-License-Identifier: MIT */

/*
 * Words for the operator. Knows no object of the broker.
 *
 * What a line begins with depends on who reads stderr. The journal knows who speaks and when, and
 * takes the priority from "<N>"; it says that stderr is its own in $JOURNAL_STREAM, which is
 * inherited by programs whose stderr is something else, so that the descriptor is compared
 * (systemd.exec(5)). Anybody else gets the time, in a form that sorts and says its offset.
 */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "base/text.h"
#include "broker/log/log.h"
#include "broker/log/rate.h"
#include "broker/log/sink.h"

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

/* priorities as in syslog(3), for the journal */
static const char priorities[] = {
    [LOG_LEVEL_ERROR] = '3',
    [LOG_LEVEL_WARNING] = '4',
    [LOG_LEVEL_INFO] = '6',
    [LOG_LEVEL_DEBUG] = '7',
};

static enum log_level log_level = LOG_LEVEL_INFO;
static enum { FORM_PLAIN, FORM_DATED, FORM_JOURNAL } form = FORM_PLAIN;
static bool locks_nothing;
static long offset_then; /* in seconds, as it was when that began */

int log_level_from_name(const char *name)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++)
		if (strcmp(level_names[i], name) == 0)
			return (int)i;
	return -1;
}

void log_set_level(enum log_level level)
{
	log_level = level;
}

static bool is_of_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[48];
	struct stat st;

	if (!stream || fstat(fd, &st) < 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, own) == 0;
}

void log_open(void)
{
	form = is_of_journal(STDERR_FILENO) ? FORM_JOURNAL : FORM_DATED;
	locks_nothing = false;
	log_sink_open();
}

void log_lock_nothing(void)
{
	time_t now = time(NULL);
	struct tm local = {0};

	if (localtime_r(&now, &local))
		offset_then = local.tm_gmtoff;
	locks_nothing = true;
}

/* Does what gmtime_r() does, which locks what localtime_r() does. Years are counted from March, and
 * in turns of 400, after which all days are the same again. */
static struct tm break_down(int64_t seconds, long offset)
{
	int64_t day = seconds / 86400 + 719468; /* since 1 March of the year 0 */
	int64_t turn = day / 146097, in_turn = day % 146097;
	int64_t year = (in_turn - in_turn / 1460 + in_turn / 36524 - in_turn / 146096) / 365;
	int64_t in_year = in_turn - (365 * year + year / 4 - year / 100);
	int month = (int)((5 * in_year + 2) / 153); /* March is 0 */

	return (struct tm){.tm_sec = (int)(seconds % 60),
			   .tm_min = (int)(seconds / 60 % 60),
			   .tm_hour = (int)(seconds / 3600 % 24),
			   .tm_mday = (int)(in_year - (153 * month + 2) / 5 + 1),
			   .tm_mon = (month + 2) % 12,
			   .tm_year = (int)(turn * 400 + year + (month >= 10) - 1900),
			   .tm_gmtoff = offset};
}

static bool find_local(time_t now, struct tm *out)
{
	if (!locks_nothing)
		return localtime_r(&now, out);
	*out = break_down((int64_t)now + offset_then, offset_then);
	return true;
}

/* "2026-11-22T14:03:07.123+0100 " */
static int write_time(char *out, size_t size)
{
	struct timespec now;
	struct tm local;
	long minutes;

	clock_gettime(CLOCK_REALTIME, &now);
	if (!find_local(now.tv_sec, &local))
		return 0;
	minutes = labs(local.tm_gmtoff) / 60;
	/* strftime() may lock what localtime_r() locks */
	return snprintf(out, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03ld%c%02ld%02ld ",
			local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour,
			local.tm_min, local.tm_sec, now.tv_nsec / 1000000,
			local.tm_gmtoff < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

static int write_head(char *out, size_t size, enum log_level level)
{
	int n = 0;

	if (form == FORM_JOURNAL)
		return snprintf(out, size, "<%c>", priorities[level]);
	if (form == FORM_DATED)
		n = write_time(out, size);
	return n + snprintf(out + n, size - (size_t)n, "share-broker: %s: ", level_names[level]);
}

static bool __attribute__((format(printf, 2, 0)))
try_line(enum log_level level, const char *format, va_list args)
{
	char line[1280];
	int n;

	n = write_head(line, sizeof(line), level);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n] = '\n';
	return log_sink_write(line, (size_t)n + 1); /* one write is one line */
}

static bool __attribute__((format(printf, 2, 3)))
try_text(enum log_level level, const char *format, ...)
{
	va_list args;
	bool written;

	va_start(args, format);
	written = try_line(level, format, args);
	va_end(args);
	return written;
}

static uint64_t unwritten; /* how many lines stderr has had no room for */

static void __attribute__((format(printf, 2, 0)))
write_line(enum log_level level, const char *format, va_list args)
{
	if (level > log_level)
		return;
	if (unwritten > 0 && try_text(LOG_LEVEL_WARNING,
				      "stderr had no room for %" PRIu64 " line%s, which are left "
				      "out here",
				      unwritten, text_plural(unwritten)))
		unwritten = 0;
	if (unwritten > 0 || !try_line(level, format, args))
		unwritten++;
}

#define LOG_FUNCTION(name, level)                \
	void log_##name(const char *format, ...) \
	{                                        \
		va_list args;                    \
		va_start(args, format);          \
		write_line(level, format, args); \
		va_end(args);                    \
	}
LOG_FUNCTION(error, LOG_LEVEL_ERROR)
LOG_FUNCTION(warning, LOG_LEVEL_WARNING)
LOG_FUNCTION(info, LOG_LEVEL_INFO)
LOG_FUNCTION(debug, LOG_LEVEL_DEBUG)

void log_bug(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error("BUG: %s", text);
	if (getenv("SHARE_ABORT_ON_BUG"))
		abort();
}

/* ------------------------------------------------------------------------------------------- */
/* What users cause                                                                            */

#define LOG_FUNCTION_OF(name, level)                             \
	void log_##name##_of(uid_t uid, const char *format, ...) \
	{                                                        \
		va_list args;                                    \
		if (level > log_level || !log_rate_user(uid))    \
			return;                                  \
		va_start(args, format);                          \
		write_line(level, format, args);                 \
		va_end(args);                                    \
	}
LOG_FUNCTION_OF(warning, LOG_LEVEL_WARNING)
LOG_FUNCTION_OF(info, LOG_LEVEL_INFO)

/* ------------------------------------------------------------------------------------------- */
/* The broker                                                                                  */

void log_start(const char *version, const char *socket, const char *config, size_t n_pools,
	       const char *pools)
{
	log_info("version %s serves at %s; %s%s; %zu pool%s%s%s", version, socket,
		 config ? "configuration " : "built-in configuration", config ? config : "",
		 n_pools, text_plural(n_pools), n_pools ? ": " : "", pools);
}

void log_drain(const char *why, uint32_t n_clients, unsigned limit_ms)
{
	log_info("is to end %s, and waits until %" PRIu32
		 " client%s no longer hold%s anything, "
		 "for %u ms at most",
		 why, n_clients, text_plural(n_clients), n_clients == 1 ? "s" : "", limit_ms);
}

void log_stop(const char *why, uint64_t uptime_ms, uint32_t n_clients)
{
	uint64_t s = uptime_ms / 1000;

	log_rate_end();
	log_info("ends %s, after %" PRIu64 "d %02u:%02u:%02u; %" PRIu32 " client%s connected", why,
		 s / 86400, (unsigned)(s / 3600 % 24), (unsigned)(s / 60 % 60), (unsigned)(s % 60),
		 n_clients, text_plural(n_clients));
}

/* ------------------------------------------------------------------------------------------- */
/* Clients                                                                                     */

#define CLIENT_FORMAT   "client %" PRIu64 " (pid %d, uid %u, '%s')"
#define CLIENT_WORDS(c) (c)->id, (int)(c)->pid, (unsigned)(c)->uid, (c)->label

struct list {
	char text[192];
	size_t size;
};

static void __attribute__((format(printf, 2, 3))) add(struct list *l, const char *format, ...)
{
	va_list args;

	if (l->size)
		l->size += (size_t)sprintf(l->text + l->size, ", ");
	va_start(args, format);
	l->size += (size_t)vsnprintf(l->text + l->size, sizeof(l->text) - l->size, format, args);
	va_end(args);
}

static void add_count(struct list *l, uint64_t n, const char *noun)
{
	if (n > 0)
		add(l, "%" PRIu64 " %s%s", n, noun, text_plural(n));
}

/* "9 leases (1.5MiB), 1 token" */
static struct list words_of(const struct holdings *h)
{
	char bytes[SIZE_TEXT_MAX];
	struct list l = {.size = 0};

	if (h->leases > 0)
		add(&l, "%" PRIu64 " lease%s (%s)", h->leases, text_plural(h->leases),
		    size_round(h->bytes, bytes));
	add_count(&l, h->names, "name");
	add_count(&l, h->tokens, "token");
	add_count(&l, h->memberships, "channel membership");
	add_count(&l, h->events, "event");
	if (l.size == 0)
		add(&l, "mappings only");
	return l;
}

bool holdings_any(const struct holdings *h)
{
	return h->leases || h->names || h->tokens || h->memberships || h->events;
}

void log_violation(const struct log_client *c, const char *what)
{
	log_warning_of(c->uid, CLIENT_FORMAT " broke the protocol and is dropped: %s",
		       CLIENT_WORDS(c), what);
}

void log_lost(const struct log_client *c, const char *why)
{
	log_warning_of(c->uid, CLIENT_FORMAT " is hung up on: %s", CLIENT_WORDS(c), why);
}

void log_dropped(const struct log_client *c, uid_t by)
{
	log_info_of(by, CLIENT_FORMAT " is dropped, as uid %u asked for it", CLIENT_WORDS(c),
		    (unsigned)by);
}

void log_in_channel(const struct log_client *c, const char *what, const char *channel,
		    const char *why)
{
	log_warning_of(c->uid, CLIENT_FORMAT " %s channel '%s': %s", CLIENT_WORDS(c), what, channel,
		       why);
}

void log_died(const struct log_client *c, const struct holdings *h)
{
	log_info_of(c->uid, CLIENT_FORMAT " died holding %s", CLIENT_WORDS(c), words_of(h).text);
}

void log_hung_up(const struct log_client *c, const struct holdings *h)
{
	log_info_of(c->uid, CLIENT_FORMAT " hung up holding %s", CLIENT_WORDS(c), words_of(h).text);
}

void log_quarantine(const struct log_client *c, const struct holdings *h)
{
	log_warning_of(c->uid,
		       CLIENT_FORMAT
		       " is quarantined: its connection has ended, its process lives "
		       "and keeps %s",
		       CLIENT_WORDS(c), words_of(h).text);
}

void log_quarantine_over(const struct log_client *c, const struct holdings *h)
{
	log_info_of(c->uid, CLIENT_FORMAT " has left quarantine: its process has ended, holding %s",
		    CLIENT_WORDS(c), words_of(h).text);
}

void log_waited_for(const struct log_client *c, const struct holdings *h, bool in_vain)
{
	log_info_of(c->uid,
		    in_vain ? CLIENT_FORMAT " still holds %s as the broker ends"
			    : CLIENT_FORMAT " is waited for: it holds %s",
		    CLIENT_WORDS(c), words_of(h).text);
}

/* ------------------------------------------------------------------------------------------- */
/* What comes often                                                                            */

void log_refusal(struct log_rate *rate, uid_t uid, const char *why)
{
	char also[80];

	if (log_rate_is_due(rate, also, sizeof(also)))
		log_warning_of(uid, "%s%s", why, also);
}

void log_unpublished(struct log_rate *rate, const char *name, uid_t by)
{
	char also[80];

	if (log_rate_is_due(rate, also, sizeof(also)))
		log_info_of(by, "name '%s' is unpublished, as uid %u asked for it%s", name,
			    (unsigned)by, also);
}

void log_full(struct log_rate *rate, const struct log_client *c, const char *why)
{
	char also[80];

	if (log_rate_is_due(rate, also, sizeof(also)))
		log_warning_of(c->uid, CLIENT_FORMAT " gets no memory: %s%s", CLIENT_WORDS(c), why,
			       also);
}
