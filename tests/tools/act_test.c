/* SPDX-License-Identifier: MIT */

/*
 * Which clients sharectl drop-client means by a number, without a broker: one would have to be
 * connected to very often before the number of a client is that of a process.
 */

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tools/sharectl/act.h"

static uint64_t dropped[8];
static size_t n_dropped;

int share_inspect(share_client *c, const char *what, int (*each)(const char *json, void *data),
		  void *data)
{
	static const char *const rows[] = {
	    "{\"client\":7,\"pid\":4711,\"uid\":0,\"label\":\"a\",\"state\":\"ready\"}",
	    "{\"client\":8,\"pid\":7,\"uid\":0,\"label\":\"b\",\"state\":\"ready\"}",
	    "{\"client\":9,\"pid\":4711,\"uid\":0,\"label\":\"c\",\"state\":\"ready\"}",
	    "{\"client\":10,\"pid\":10,\"uid\":0,\"label\":\"d\",\"state\":\"ready\"}",
	};
	int r = 0;

	(void)c;
	cr_assert_str_eq(what, "clients");
	for (size_t i = 0; r == 0 && i < sizeof(rows) / sizeof(rows[0]); i++)
		r = each(rows[i], data);
	return r;
}

int share_drop_client(share_client *c, uint64_t client)
{
	(void)c;
	dropped[n_dropped++] = client;
	return 0;
}

const char *share_error_detail(void)
{
	return "";
}

int share_end_channel(share_client *c, const char *name)
{
	(void)c, (void)name;
	return SHARE_ENOENT;
}

int share_unpublish(share_client *c, const char *name)
{
	(void)c, (void)name;
	return SHARE_ENOENT;
}

int share_pool_destroy(share_client *c, const char *name)
{
	(void)c, (void)name;
	return SHARE_ENOENT;
}

int share_revoke_id(share_client *c, uint64_t token)
{
	(void)c, (void)token;
	return SHARE_ENOENT;
}

/* How many failed of this one. */
static int drop(const char *word)
{
	const struct act *a = act_find("drop-client");

	n_dropped = 0;
	cr_assert(a->takes(word));
	return act_run(a, NULL, &word, 1, true);
}

TestSuite(act, .init = cr_redirect_stdout);

Test(act, a_number_of_a_process_means_all_its_clients)
{
	cr_assert_eq(drop("4711"), 0);
	cr_assert(n_dropped == 2 && dropped[0] == 7 && dropped[1] == 9);
}

Test(act, a_number_of_a_client_means_that_one)
{
	cr_assert_eq(drop("8"), 0);
	cr_assert(n_dropped == 1 && dropped[0] == 8);
	cr_assert_eq(drop("10"), 0);
	cr_assert(n_dropped == 1 && dropped[0] == 10);
}

Test(act, a_number_of_both_means_neither_until_it_is_said_which)
{
	cr_redirect_stderr();
	cr_assert_eq(drop("7"), 1);
	cr_assert_eq(n_dropped, 0);
	cr_assert_stderr_eq_str(
	    "sharectl: 7 is one client, and the process of another: say "
	    "client:7 or pid:7\n");
	cr_assert_eq(drop("client:7"), 0);
	cr_assert(n_dropped == 1 && dropped[0] == 7);
	cr_assert_eq(drop("pid:7"), 0);
	cr_assert(n_dropped == 1 && dropped[0] == 8);
}

Test(act, what_is_no_number_is_refused_before_anybody_is_asked)
{
	static const char *const wrong[] = {"",        "x",
					    "-1",      "1 ",
					    "client:", "client:x",
					    "pid:",    "pid: 1",
					    "0x10",    "99999999999999999999999"};
	const struct act *a = act_find("drop-client");

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert(!a->takes(wrong[i]), "%s", wrong[i]);
	a = act_find("revoke");
	cr_assert(a->takes("0x100000000") && a->takes("1f"));
	cr_assert(!a->takes("") && !a->takes("0x") && !a->takes("g"));
	cr_assert(!a->takes("1x2"));
}
