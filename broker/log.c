/* SPDX-License-Identifier: MIT */

/* Words for the operator. Knows no object of the broker; a service manager adds the time. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/log.h"

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

static enum log_level log_level = LOG_LEVEL_INFO;

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

static void __attribute__((format(printf, 2, 0)))
write_line(enum log_level level, const char *format, va_list args)
{
	char line[1024];
	int n;

	if (level > log_level)
		return;
	n = snprintf(line, sizeof(line), "share-broker: %s: ", level_names[level]);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n] = '\n';
	fwrite(line, 1, (size_t)n + 1, stderr); /* one write a line: stderr is unbuffered */
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

void log_violation(uint64_t client, pid_t pid, uid_t uid, const char *what)
{
	log_warning("client %" PRIu64 " (pid %d, uid %u) broke the protocol and is dropped: %s",
		    client, (int)pid, (unsigned)uid, what);
}

void log_quota(uid_t uid, const char *resource, uint64_t limit)
{
	log_warning("uid %u has reached its limit of %" PRIu64 " %s", (unsigned)uid, limit,
		    resource);
}
