/* SPDX-License-Identifier: MIT */

/*
 * What the log says, and how often: with a clock that the test puts forward, so that a minute takes
 * no time.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "broker/accounts/account.h"
#include "broker/log/log.h"
#include "tests/themes/fuzz/fuzz.h"

static int log_fd = -1;

static void start(void)
{
	log_fd = memfd_create("log", MFD_CLOEXEC);
	cr_assert(log_fd >= 0 && dup2(log_fd, STDERR_FILENO) == STDERR_FILENO);
}

TestSuite(log, .init = start);

/* What was written since the last time. */
static const char *written(void)
{
	static char text[1 << 14];
	ssize_t n = pread(log_fd, text, sizeof(text) - 1, 0);

	cr_assert(n >= 0 && ftruncate(log_fd, 0) == 0 && lseek(log_fd, 0, SEEK_SET) == 0);
	text[n] = '\0';
	return text;
}

Test(log, has_a_refusal_once_a_minute_and_counts_the_others)
{
	struct log_rate rate = {0}, other = {0};

	log_refusal(&rate, 0, "no");
	cr_assert_str_eq(written(), "share-broker: warning: no\n");
	log_refusal(&rate, 0, "no");
	clock_advance(59900);
	log_refusal(&rate, 0, "no, again");
	cr_assert_str_eq(written(), "");
	log_refusal(&other, 0, "not that either");
	cr_assert_str_eq(written(), "share-broker: warning: not that either\n");
	clock_advance(101);
	log_refusal(&rate, 0, "still not");
	cr_assert_str_eq(written(),
			 "share-broker: warning: still not (left out since the last "
			 "line like this: 2)\n");
	clock_advance(60001);
	log_refusal(&rate, 0, "no");
	cr_assert_str_eq(written(), "share-broker: warning: no\n");
}

#define WHERE " (sharectl users shows what it has, sharectl clients in which processes)"

static struct accounts *accounts;

static struct account *account_with(struct config *config, uint64_t limit)
{
	for (int i = 0; i < LIMIT_KINDS; i++)
		config->limits.max[i] = limit;
	cr_assert(accounts_new(config, &accounts) == 0);
	return account_get(accounts, 1000);
}

static const char *refusal(struct account *a, enum limit_kind kind)
{
	static char detail[256];
	struct failure failure;

	account_refuse(a, kind, "", &failure);
	snprintf(detail, sizeof(detail), "%.255s", failure.text);
	return detail;
}

Test(log, and_who_was_refused_have_the_same_words)
{
	struct config config = {0};
	struct account *a = account_with(&config, 1);
	char line[512];

	cr_assert_str_eq(refusal(a, LIMIT_LEASES),
			 "uid 1000 has reached its limit of 1 lease" WHERE);
	snprintf(line, sizeof(line), "share-broker: warning: %s\n", refusal(a, LIMIT_TOKENS));
	cr_assert(strstr(written(), line));
	account_unref(a);
	accounts_free(accounts);
}

Test(log, counts_in_proper_english)
{
	struct config config = {0};
	struct account *a = account_with(&config, 1);

	cr_assert_str_eq(refusal(a, LIMIT_WATCHES),
			 "uid 1000 has reached its limit of 1 watch" WHERE);
	cr_assert_str_eq(refusal(a, LIMIT_BYTES),
			 "uid 1000 has reached its limit of 1B of memory" WHERE);
	account_unref(a);
	accounts_free(accounts);
	a = account_with(&config, 2048);
	cr_assert_str_eq(refusal(a, LIMIT_WATCHES),
			 "uid 1000 has reached its limit of 2048 watches" WHERE);
	cr_assert_str_eq(refusal(a, LIMIT_METADATA),
			 "uid 1000 has reached its limit of 2KiB of metadata" WHERE);
	account_unref(a);
	accounts_free(accounts);
	written();
	log_start("1.2.3", "/run/s", NULL, 1, "'default'");
	log_stop("on SIGINT", 90061000, 1);
	log_start("1.2.3", "/run/s", "/etc/c", 0, "");
	log_drain("on SIGTERM", 1, 5000);
	log_drain("on SIGTERM", 2, 0);
	log_waited_for(&(struct log_client){3, 7, 1000, "one"}, &(struct holdings){.names = 2},
		       false);
	log_waited_for(&(struct log_client){3, 7, 1000, "one"}, &(struct holdings){.names = 2},
		       true);
	log_stop("on SIGTERM", 59999, 2);
	cr_assert_str_eq(
	    written(),
	    "share-broker: info: version 1.2.3 serves at /run/s; built-in configuration; 1 pool: "
	    "'default'\n"
	    "share-broker: info: ends on SIGINT, after 1d 01:01:01; 1 client connected\n"
	    "share-broker: info: version 1.2.3 serves at /run/s; configuration /etc/c; 0 pools\n"
	    "share-broker: info: is to end on SIGTERM, and waits until 1 client no longer holds "
	    "anything, for 5000 ms at most\n"
	    "share-broker: info: is to end on SIGTERM, and waits until 2 clients no longer hold "
	    "anything, for 0 ms at most\n"
	    "share-broker: info: client 3 (pid 7, uid 1000, 'one') is waited for: it holds 2 "
	    "names\n"
	    "share-broker: info: client 3 (pid 7, uid 1000, 'one') still holds 2 names as the "
	    "broker ends\n"
	    "share-broker: info: ends on SIGTERM, after 0d 00:00:59; 2 clients connected\n");
}

/* A user who is refused one thing does not hide that another one is. */
Test(log, tells_users_and_resources_apart)
{
	struct config config = {0};
	struct account *a = account_with(&config, 5), *b = account_get(accounts, 1001);
	const char *text;

	for (int i = 0; i < 10; i++) {
		refusal(a, LIMIT_NAMES);
		refusal(a, LIMIT_POOLS);
		refusal(b, LIMIT_NAMES);
	}
	text = written();
	cr_assert_str_eq(
	    text, "share-broker: warning: uid 1000 has reached its limit of 5 names" WHERE
		  "\n"
		  "share-broker: warning: uid 1000 has reached its limit of 5 pools" WHERE
		  "\n"
		  "share-broker: warning: uid 1001 has reached its limit of 5 names" WHERE "\n");
	account_unref(a);
	account_unref(b);
	accounts_free(accounts);
}

static int lines(const char *text, const char *what)
{
	int n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text += strlen(what);
	}
	return n;
}

static void say(uid_t uid, int times)
{
	for (int i = 0; i < times; i++)
		log_info_of(uid, "so");
}

Test(log, has_200_lines_a_minute_of_a_user_and_says_how_many_more_there_were)
{
	const char *text;

	say(1000, 200);
	cr_assert_eq(lines(written(), "info: so\n"), 200);
	say(1000, 300);
	cr_assert_str_eq(written(),
			 "share-broker: warning: uid 1000 caused 200 lines within a minute: more "
			 "are left out until it is over, and counted\n");
	say(1001, 1);
	cr_assert_str_eq(written(), "share-broker: info: so\n");
	clock_advance(60001);
	say(1001, 1); /* whoever is the next */
	cr_assert_str_eq(written(),
			 "share-broker: warning: 300 lines that uid 1000 caused were left out\n"
			 "share-broker: info: so\n");
	say(1000, 201);
	text = written();
	cr_assert_eq(lines(text, "info: so\n"), 200);
	cr_assert_eq(lines(text, "uid 1000 caused 200 lines"), 1);
	log_stop("on SIGTERM", 0, 0);
	cr_assert_str_eq(written(),
			 "share-broker: warning: 1 line that uid 1000 caused was left out\n"
			 "share-broker: info: ends on SIGTERM, after 0d 00:00:00; 0 clients "
			 "connected\n");
}

/* Whoever has many uids, as root or by way of namespaces, gains no more than so many counts. */
Test(log, counts_users_beyond_64_together)
{
	int n = 0;

	for (uid_t uid = 0; uid < 200; uid++)
		for (int i = 0; i < 4; i++) {
			say(uid, 50);
			n += lines(written(), "info: so\n");
		}
	cr_assert_eq(n, 65 * 200);
}

Test(log, does_not_count_what_its_level_leaves_out)
{
	log_set_level(LOG_LEVEL_WARNING);
	say(1000, 1000);
	log_warning_of(1000, "but this");
	cr_assert_str_eq(written(), "share-broker: warning: but this\n");
}

static time_t now; /* 0: the real one */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
	if (id != CLOCK_REALTIME || now == 0)
		return __real_clock_gettime(id, out);
	*out = (struct timespec){now, 0};
	return 0;
}

/* From 1970 to 2128, some four days and an odd time apart. */
static void expect_same_times(const char *zone)
{
	char expected[48], found[48];

	setenv("TZ", zone, 1);
	tzset();
	for (now = 86400; now < INT64_C(5000000000); now += 360007) {
		struct tm local;

		log_lock_nothing();
		log_error("x");
		snprintf(found, sizeof(found), "%.28s", written());
		cr_assert(localtime_r(&now, &local) &&
			  strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%S.000%z", &local));
		cr_assert_str_eq(found, expected);
	}
}

Test(log, has_the_same_times_without_locks)
{
	log_open();
	expect_same_times("UTC0");
	expect_same_times("XXX-5:45");
	expect_same_times("XXX+11");
}
