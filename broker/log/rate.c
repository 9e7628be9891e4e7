/* SPDX-License-Identifier: MIT */

/*
 * How often the log says something. Most lines are about what clients do, and clients can do it as
 * often as they like. So lines have a user that has caused them, and each user has so many a
 * minute; what is beyond that is counted, and the count is said: at once that there will be one,
 * and how high it is when the minute is over and somebody causes another line, or the broker ends.
 * Nobody can fill the disk that way, nor hide what others do. What users are refused comes once a
 * minute beside that, as it says nothing new.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "broker/log/rate.h"

#define MINUTE_MS        60000
#define LINES_PER_MINUTE 200
#define USERS            64 /* users with a count of their own; all others have one together */

/* The lines of @uid in the minute that ends at @ends_ms. Zeroed: of nobody. */
static struct user_lines {
	uid_t uid;
	unsigned lines;
	uint64_t ends_ms, left_out;
} users[USERS], others;

static const char *user_text(const struct user_lines *u, char out[static 48])
{
	if (u == &others || u->uid == LOG_UID_UNKNOWN)
		strcpy(out, "users who are not counted one by one");
	else
		snprintf(out, 48, "uid %u", (unsigned)u->uid);
	return out;
}

static void end_minute(struct user_lines *u)
{
	char text[48];

	if (u->left_out > 0)
		log_warning("%" PRIu64 " line%s that %s caused %s left out", u->left_out,
			    text_plural(u->left_out), user_text(u, text),
			    u->left_out == 1 ? "was" : "were");
	*u = (struct user_lines){0};
}

static struct user_lines *lines_of(uid_t uid, uint64_t now)
{
	struct user_lines *unused = NULL, *its = NULL;

	for (struct user_lines *u = users; u < users + USERS; u++) {
		if (u->ends_ms <= now)
			end_minute(u);
		if (u->ends_ms == 0)
			unused = u;
		else if (u->uid == uid)
			its = u;
	}
	if (others.ends_ms <= now)
		end_minute(&others);
	if (!its)
		its = unused ? unused : &others;
	if (its->ends_ms == 0)
		*its = (struct user_lines){.uid = uid, .ends_ms = now + MINUTE_MS};
	return its;
}

bool log_rate_user(uid_t uid)
{
	struct user_lines *u = lines_of(uid, clock_ms());
	char text[48];

	if (u->lines < LINES_PER_MINUTE) {
		u->lines++;
		return true;
	}
	if (u->left_out++ == 0)
		log_warning(
		    "%s caused %d lines within a minute: more are left out until it is "
		    "over, and counted",
		    user_text(u, text), LINES_PER_MINUTE);
	return false;
}

void log_rate_end(void)
{
	for (struct user_lines *u = users; u < users + USERS; u++)
		end_minute(u);
	end_minute(&others);
}

bool log_rate_is_due(struct log_rate *rate, char *also, size_t size)
{
	uint64_t now = clock_ms();

	if (now < rate->next_ms) {
		rate->left_out++;
		return false;
	}
	also[0] = '\0';
	if (rate->left_out)
		snprintf(also, size, " (left out since the last line like this: %" PRIu64 ")",
			 rate->left_out);
	*rate = (struct log_rate){.next_ms = now + MINUTE_MS};
	return true;
}
