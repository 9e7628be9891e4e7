/* SPDX-License-Identifier: MIT */

/*
 * The scenario on a device: agents are started, segments made, memory zeroed for another user, and
 * events leased. Where an agent is needed and cannot be had, that is an error of the device's.
 */

#include <string.h>

#include <share/admin.h>
#include <share/event.h>
#include <share/share.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/child.h"
#include "tests/support/visit.h"
#include "tests/themes/failure/scenario.h"
#include "tests/themes/failure/scenario_try.h"

#define SIZE       (UINT64_C(2) << 20)
#define try_gpu(c) try_or(SHARE_EDEVICE, c)

static int on_row(const char *json, void *data)
{
	check(json[0] == '{');
	++*(int *)data;
	return 0;
}

static void use_events(share_client *c)
{
	share_event *e = NULL, *same = NULL;
	share_event_options o = SHARE_EVENT_OPTIONS_INIT;
	share_token token;

	o.name = "scenario";
	if (!try_gpu(share_event_create(c, &o, &e))) {
		check(e == NULL);
		return;
	}
	if (try(share_event_open(c, "scenario", &same)))
		share_event_release(same);
	same = NULL;
	if (try(share_event_export(e, &token)) && try(share_event_import(c, &token, &same)))
		share_event_release(same);
	share_event_release(e);
}

static void use_memory(share_client *c, share_pool *pool, int mine)
{
	share_buffer *b = NULL, *v = NULL;
	unsigned char text[16] = "";

	if (!try_gpu(share_alloc(pool, SIZE, NULL, &b))) {
		check(b == NULL);
		return;
	}
	/* what the other user has left is gone; one's own need not be */
	if (try(share_copy_to_host(b, 0, text, sizeof(text), NULL)))
		for (size_t i = 0; i < sizeof(text); i++)
			check(text[i] == 0 || text[i] == mine);
	memset(text, mine, sizeof(text));
	try(share_copy_from_host(b, 0, text, sizeof(text), NULL));
	if (try(share_publish(b, "scenario/gpu", NULL)) &&
	    try(share_lookup(c, "scenario/gpu", SHARE_RDONLY, -1, NULL, &v)))
		try(share_release(v, NULL));
	try(share_release(b, NULL));
}

static void user(struct child *self, void *data)
{
	share_connect_options o = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c = NULL;
	share_pool *pool = NULL;
	int n = 0;

	scenario_begin();
	child_become(*(const uid_t *)data, 0);
	o.label = "user";
	if (!try_or(SHARE_EQUOTA, share_connect_with(broker_socket(), &o, &c)))
		goto end;
	if (try_gpu(share_pool_open(c, "test", &pool)))
		use_memory(c, pool, *(const uid_t *)data == ALICE ? 0xaa : 0xbb);
	use_events(c);
	if (try_gpu(share_inspect(c, "devices", on_row, &n)))
		check_eq(n, 1);
	share_pool_close(pool);
	share_disconnect(c);
end:
	n = scenario_failures();
	child_point_with(self, "done", &n, sizeof(n));
}

int scenario_devices(void)
{
	static uid_t users[] = {ALICE, BOB};
	int failures = 0, n;

	scenario_begin();
	for (int i = 0; i < 2; i++) {
		struct child *child = child_start(user, &users[i]);

		child_wait_with(child, "done", &n, sizeof(n));
		child_go(child);
		child_finish(child);
		failures += n;
	}
	return failures;
}
