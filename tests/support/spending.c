/* SPDX-License-Identifier: MIT */

#include <stdio.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/status.h"
#include "tests/support/spending.h"

/* Of the process that serves, without what it shares with others. */
static int64_t own_memory(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)broker_pid());
	f = fopen(path, "re");
	check(f != NULL);
	while (fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %ld", &kib) != 1)
		;
	fclose(f);
	return kib * 1024;
}

struct spending spending_now(share_client *client)
{
	json_t *rows = report(client, "status");
	struct spending s = {own_memory() + number_of(json_array_get(rows, 0), "journal_bytes"),
			     used_of(client, "broker_memory")};

	json_decref(rows);
	return s;
}

struct spending spending_since(const struct spending *before, share_client *client)
{
	struct spending now = spending_now(client);

	now.allocated -= before->allocated;
	now.charged -= before->charged;
	return now;
}
