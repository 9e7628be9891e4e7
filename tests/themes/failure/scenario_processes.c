/* SPDX-License-Identifier: MIT */

/*
 * Scenarios of several processes. What one of them could not do is in nobody's way: it stops where
 * it is, and the others go on with what there is.
 */

#include <stdio.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/share.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/child.h"
#include "tests/harness/descriptors.h"
#include "tests/themes/failure/scenario.h"
#include "tests/themes/failure/scenario_try.h"

#define SOON_MS 20
#define SIZE    3000

static share_client *try_connect(const char *label)
{
	share_connect_options o = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c = NULL;

	o.label = label;
	if (!try_or(SHARE_EQUOTA, share_connect_with(broker_socket(), &o, &c)))
		check(c == NULL);
	return c;
}

static share_pool *try_open(share_client *c, const char *name)
{
	share_pool *p = NULL;

	if (c && !try(share_pool_open(c, name, &p)))
		check(p == NULL);
	return p;
}

static share_channel *try_join(share_client *c, int role)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;

	o.mode = SHARE_QUEUE;
	o.when_full = SHARE_FULL_FAIL;
	o.depth = 8;
	if (c && !try(share_channel_open(c, "scenario/death", role, &o, &ch)))
		check(ch == NULL);
	return ch;
}

static void send_some(share_channel *ch, share_pool *pool, int n)
{
	for (int i = 0; ch && pool && i < n; i++) {
		share_buffer *b = NULL;

		if (!try(share_alloc(pool, SIZE, NULL, &b)))
			return;
		memset(share_ptr(b), 7, SIZE);
		if (!try_or(SHARE_EAGAIN, share_give(ch, b, "text", 5, NULL)))
			try(share_release(b, NULL));
	}
}

/* As far as there is something. A dead sender's may be void, and the last sender gone. */
static void receive_all(share_channel *ch, int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = 0;

	while (ch && r == 0) {
		r = share_recv(ch, timeout_ms, NULL, &m);
		if (r != 0 && r != SHARE_EOWNERDEAD && r != SHARE_EAGAIN && r != SHARE_EPIPE)
			check_clean("share_recv", r, SHARE_ETIMEDOUT);
		if (r == SHARE_EOWNERDEAD)
			r = 0;
		if (m.channel)
			try(share_ack(&m, NULL));
	}
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)b, (void)error, (void)data;
}

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

/* ------------------------------------------------------------------------------------------- */

/* Has one of everything when it dies. */
static void dies(struct child *self, void *data)
{
	share_client *c = try_connect("dies");
	share_pool *pool = try_open(c, "default");
	share_buffer *b = NULL;
	share_operation *o;
	share_message m = SHARE_MESSAGE_INIT;
	share_token token;
	share_channel *ch;
	share_watch *w;

	(void)data;
	if (pool && try(share_alloc(pool, SIZE, NULL, &b))) {
		try(share_publish(b, "scenario/dead", NULL));
		try(share_export(b, NULL, &token));
		try(share_watch_names(c, "scenario/", on_change, NULL, &w));
		try(share_lookup_async(c, "scenario/none", SHARE_RDONLY, 60000, NULL, on_lookup,
				       NULL, &o));
	}
	ch = try_join(c, SHARE_CONSUMER);
	if (ch && share_recv(ch, SOON_MS, NULL, &m) != 0)
		m.channel = NULL;
	send_some(try_join(c, SHARE_PRODUCER), pool, 3);
	child_point(self, "there");
}

int scenario_death(void)
{
	share_channel *producer, *consumer;
	struct child *child;
	share_client *c;
	share_pool *pool;

	scenario_begin();
	c = try_connect("survivor");
	pool = try_open(c, "default");
	producer = try_join(c, SHARE_PRODUCER);
	send_some(producer, pool, 2);
	child = child_start(dies, NULL);
	child_wait(child, "there");
	consumer = try_join(c, SHARE_CONSUMER);
	receive_all(consumer, 0);
	child_kill(child);
	receive_all(consumer, 0);
	send_some(producer, pool, 1);
	receive_all(consumer, 0);
	share_channel_close(consumer);
	share_channel_close(producer);
	share_pool_close(pool);
	share_disconnect(c);
	return scenario_failures();
}

/* ------------------------------------------------------------------------------------------- */

/* Has closed its socket, but not its mappings. */
static void hangs_up(struct child *self, void *data)
{
	share_client *c = try_connect("hangs up");
	share_pool *pool = try_open(c, "default");
	share_buffer *b = NULL;
	share_channel *ch = try_join(c, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	if (pool && try(share_alloc(pool, SIZE, NULL, &b)))
		try(share_publish(b, "scenario/hung-up", NULL));
	if (ch && share_recv(ch, SOON_MS, NULL, &m) != 0)
		m.channel = NULL;
	send_some(try_join(c, SHARE_PRODUCER), pool, 2);
	descriptors_close_but(self->channel);
	child_point(self, "hung up");
}

static int on_row(const char *json, void *data)
{
	check(json[0] == '{');
	++*(int *)data;
	return 0;
}

int scenario_hang_up(void)
{
	share_channel *producer, *consumer;
	struct child *child;
	share_client *c;
	share_pool *pool;
	int n = 0;

	scenario_begin();
	c = try_connect("survivor");
	pool = try_open(c, "default");
	producer = try_join(c, SHARE_PRODUCER);
	send_some(producer, pool, 2);
	child = child_start(hangs_up, NULL);
	child_wait(child, "hung up");
	if (c && try(share_inspect(c, "clients", on_row, &n)))
		check(n >= 1);
	consumer = try_join(c, SHARE_CONSUMER);
	receive_all(consumer, 0);
	share_channel_close(producer);
	child_kill(child);
	receive_all(consumer, 0);
	share_channel_close(consumer);
	share_pool_close(pool);
	share_disconnect(c);
	return scenario_failures();
}

/* ------------------------------------------------------------------------------------------- */

static void reach_the_limits(share_client *c, share_pool *pool)
{
	share_buffer *b[3] = {NULL};
	char name[32];

	for (int i = 0; i < 3; i++)
		try_or(SHARE_ENOMEM, share_alloc(pool, 400000, NULL, &b[i]));
	for (int i = 0; b[0] && i < 6; i++) { /* four are allowed */
		snprintf(name, sizeof(name), "scenario/%d", i);
		try_or(SHARE_EQUOTA, share_publish(b[0], name, NULL));
	}
	(void)c;
	for (int i = 0; i < 3; i++)
		if (b[i])
			try(share_release(b[i], NULL));
}

int scenario_operator(void)
{
	static const char *const reports[] = {"status",  "pools", "segments", "clients",
					      "buffers", "names", "events",   "channels"};
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_channel *ch;
	share_pool *pool = NULL;
	share_client *c;
	bool watches;
	int told = 0;

	scenario_begin();
	c = try_connect("operator");
	o.kind = "host";
	o.limit = o.segment_size = 1 << 20;
	o.release_threshold = SHARE_KEEP_NONE;
	/* what happens from here on is told, or what is missing of it */
	watches = c && try(share_monitor(c, NULL, -1, on_row, &told));
	ch = try_join(c, SHARE_CONSUMER);
	if (c && try(share_pool_create(c, "operator", &o, &pool))) {
		reach_the_limits(c, pool);
		for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
			int n = 0;

			if (try(share_inspect(c, reports[i], on_row, &n)))
				check(n >= 1 || i >= 4);
		}
		try(share_pool_destroy(c, "operator"));
		told = 0;
		if (watches && try(share_monitor(c, NULL, 0, on_row, &told)))
			check(told >= 1);
	}
	share_channel_close(ch);
	share_pool_close(pool);
	share_disconnect(c);
	return scenario_failures();
}

/* ------------------------------------------------------------------------------------------- */

static const char *base_config, *other_config;

void scenario_reload_with(const char *base, const char *other)
{
	base_config = base;
	other_config = other;
}

int scenario_reload(void)
{
	share_pool *pool = NULL;
	share_client *c;
	int n = 0, tries = 3;
	bool done;

	scenario_begin();
	c = try_connect("operator");
	broker_write_config(other_config);
	/* what was read is there as a whole; what was refused may be so still, after a failure that
	 * was only that of the answer */
	if (c && try(share_reload(c, on_row, &n)) && try(share_pool_open(c, "extra", &pool)))
		share_pool_close(pool);
	broker_write_config(base_config);
	do
		done = !c || try(share_reload(c, on_row, &n));
	while (!done && --tries > 0);
	share_disconnect(c);
	return scenario_failures();
}
