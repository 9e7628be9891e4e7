/* SPDX-License-Identifier: MIT */

/*
 * What happens, told to those who ask. A monitor has room for some of it, which was paid for when
 * it began, and what does not fit is counted. So a client that does not read costs no more than one
 * that does, and nobody waits for either. A client is told when its MONITOR is answered. If a
 * MONITOR waits, that is soon, and from the loop: otherwise whoever does what is told would pay for
 * it, however many are told.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <share/admin.h>
#include <share/share.h>

#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/monitor/monitor.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

#define ROOM        60000 /* bytes of rows */
#define ROOM_END    128   /* bytes of the row that says how many are missing */
#define NUMBERS_MAX 64    /* bytes of two numbers with their keys */
#define ROW_MAX     4096  /* bytes of one row, more than all texts in it can come to */

struct monitor {
	LIST_ENTRY(monitor) link;
	struct client *client;
	struct deferred_list waits; /* a request, if one waits to be told */
	struct charge charge, charge_room;
	uint64_t lost;
	/* which notices are told */
	uint32_t flags;
	uid_t uid;
	size_t pool_size, prefix_size;
	char pool[SHARE_NAME_MAX], prefix[SHARE_NAME_MAX];

	/* There is one row for all that a client had in a pool, when it ends. This says what the
	 * last row is, if it is such a one. */
	struct {
		uint64_t client, count, size;
		const char *pool;
		size_t begins, numbers, ends;
	} freed;
	/* The client of whose end it was told last because of what that freed in a pool. */
	uint64_t ended;

	size_t size;
	char rows[ROOM + ROOM_END];
};

static json_int_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (json_int_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Adds a row of the monitor's own. It needs no memory, and there is room. */
static void add_own_row(struct monitor *m, const char *action, uint64_t count)
{
	m->size += (size_t)snprintf(m->rows + m->size, sizeof(m->rows) - m->size,
				    "{\"action\":\"%s\",\"time_ms\":%" JSON_INTEGER_FORMAT, action,
				    now_ms());
	if (count > 0)
		m->size += (size_t)snprintf(m->rows + m->size, sizeof(m->rows) - m->size,
					    ",\"count\":%" PRIu64, count);
	memcpy(m->rows + m->size, "}\n", 2);
	m->size += 2;
}

static void answer(struct monitor *m, uint32_t serial)
{
	struct wire_message reply = {.type = WIRE_REPORT, .serial = serial};

	if (m->lost > 0)
		add_own_row(m, "lost", m->lost);
	reply.report.rows = (struct wire_bytes){m->rows, (uint32_t)m->size};
	client_send(m->client, &reply, NULL, 0);
	m->lost = 0;
	m->size = 0;
	m->freed.client = 0;
}

/* ------------------------------------------------------------------------------------------- */

static const struct access_object *pool_of(const struct access_object *what)
{
	return !what || what->kind == OBJECT_POOL ? what : what->pool;
}

static uid_t uid_of(const struct notice *n)
{
	return n->client ? n->client->peer.uid : n->uid;
}

static bool may_see(const struct monitor *m, const struct notice *n)
{
	if (n->what && !n->is_private)
		return client_may(m->client, RIGHT_READ, n->what);
	return client_answers_for(m->client, uid_of(n));
}

static bool wants(const struct monitor *m, const struct notice *n)
{
	const struct access_object *what = n->what, *pool = pool_of(what);

	if (m->flags & SHARE_MONITOR_USER && uid_of(n) != m->uid)
		return false;
	if (m->pool_size > 0 &&
	    (!pool || pool->size != m->pool_size || memcmp(pool->name, m->pool, pool->size) != 0))
		return false;
	return m->prefix_size == 0 || (what && what != pool && what->size >= m->prefix_size &&
				       memcmp(what->name, m->prefix, m->prefix_size) == 0);
}

static int add_text(json_t *row, const char *key, const void *text, size_t size)
{
	return json_object_set_new(row, key, json_stringn(text, size));
}

static int add_number(json_t *row, const char *key, uint64_t value)
{
	return json_object_set_new(row, key, json_integer((json_int_t)value));
}

static int add_who(json_t *row, const struct notice *n)
{
	const struct client *c = n->client;
	int r = 0;

	if (c)
		r |= add_number(row, "client", c->id) |
		     add_number(row, "pid", (uint64_t)c->peer.pid);
	if (uid_of(n) != NOTICE_NOBODY)
		r |= add_number(row, "uid", uid_of(n));
	if (c && add_text(row, "label", c->label, strlen(c->label)) < 0)
		r |= add_text(row, "label", "?", 1);
	return r;
}

static int add_what(json_t *row, const struct notice *n)
{
	const struct access_object *what = n->what, *pool = pool_of(what);
	char id[19];
	int r = 0;

	if (pool)
		r |= add_text(row, "pool", pool->name, pool->size);
	if (what && what != pool)
		r |= add_text(row, what->kind == OBJECT_NAME ? "name" : "channel", what->name,
			      what->size);
	if (n->buffer) {
		snprintf(id, sizeof(id), "0x%" PRIx64, n->buffer);
		r |= add_text(row, "buffer", id, strlen(id));
	}
	if (n->size)
		r |= add_number(row, "size", n->size);
	if (n->count)
		r |= add_number(row, "count", n->count);
	if (n->detail)
		r |= add_text(row, "detail", n->detail, strlen(n->detail));
	return r;
}

/* Writes the row of a notice. Returns its size; 0 without memory. */
static size_t describe(const struct notice *n, char out[ROW_MAX])
{
	json_t *row = json_pack("{s:s, s:I}", "action", n->action, "time_ms", now_ms());
	size_t size = 0;

	if (row && add_who(row, n) == 0 && add_what(row, n) == 0)
		size = json_dumpb(row, out, ROW_MAX - 1, JSON_COMPACT);
	json_decref(row);
	if (size == 0 || size > ROW_MAX - 1)
		return 0;
	out[size] = '\n';
	return size + 1;
}

/* Adds a row. After a row that is missing all others are left out, until that is told: so the rows
 * stay in order. */
static void add(struct monitor *m, const char *row, size_t size)
{
	if (size == 0 || m->lost > 0 || size > ROOM - m->size) {
		m->lost++;
		return;
	}
	memcpy(m->rows + m->size, row, size);
	m->size += size;
}

/* ------------------------------------------------------------------------------------------- */
/* What a client leaves                                                                        */

const char *monitors_word_for_end(const struct client *c)
{
	return c->requests.goodbye ? "disconnect" : c->end.drained ? "death" : "hang-up";
}

/* Tells a monitor of one pool that a client ends, before that frees something there. It is not told
 * of clients otherwise. */
static void tell_of_end(struct monitor *m, const struct client *c)
{
	const struct notice end = {.action = monitors_word_for_end(c),
				   .client = c,
				   .count = c->logged.held.leases,
				   .size = c->logged.held.bytes};
	char row[ROW_MAX];

	if (m->pool_size == 0 || m->ended == c->id || !may_see(m, &end))
		return;
	m->ended = c->id;
	add(m, row, describe(&end, row));
}

/* Adds to the last row, if that is such a one of this client and pool: false if it is not. What
 * does not change is written with the second buffer, and from then on only the numbers behind
 * it. */
static bool add_to_freed(struct monitor *m, const struct notice *n)
{
	struct notice who = *n;
	char row[ROW_MAX];
	size_t size;

	if (m->freed.client != n->client->id || m->freed.pool != n->what->name ||
	    m->freed.ends != m->size || m->lost > 0)
		return false;
	if (m->freed.count == 1) {
		who.buffer = who.size = who.count = 0;
		size = describe(&who, row);
		if (size == 0 || size + NUMBERS_MAX > ROOM - m->freed.begins)
			return false;
		memcpy(m->rows + m->freed.begins, row, size);
		m->freed.numbers = m->freed.begins + size - strlen("}\n");
	}
	m->freed.count++;
	m->freed.size += n->size;
	m->size =
	    m->freed.numbers + (size_t)snprintf(m->rows + m->freed.numbers, NUMBERS_MAX,
						",\"size\":%" PRIu64 ",\"count\":%" PRIu64 "}\n",
						m->freed.size, m->freed.count);
	m->freed.ends = m->size;
	return true;
}

static void tell_of_freed(struct monitor *m, const struct notice *n)
{
	char row[ROW_MAX];

	if (add_to_freed(m, n))
		return;
	tell_of_end(m, n->client);
	m->freed.client = n->client->id;
	m->freed.pool = n->what->name;
	m->freed.count = 1;
	m->freed.size = n->size;
	m->freed.begins = m->size;
	add(m, row, describe(n, row));
	m->freed.ends = m->size;
}

/* ------------------------------------------------------------------------------------------- */

void monitors_tell(struct broker *b, const struct notice *n)
{
	bool is_left = n->client && n->client->state == CLIENT_ENDING && n->buffer && n->what &&
		       n->what->kind == OBJECT_POOL;
	struct monitor *m;
	char row[ROW_MAX];
	size_t size = 0;
	bool described = false;

	LIST_FOREACH (m, &b->monitors->list, link) {
		if (!wants(m, n) || !may_see(m, n))
			continue;
		if (!described && !is_left)
			size = describe(n, row);
		described = true;
		if (is_left)
			tell_of_freed(m, n);
		else
			add(m, row, size);
		deferred_wake_later(b, &m->waits);
	}
}

/* ------------------------------------------------------------------------------------------- */

static int fail_late(const struct wire_message *request, struct failure *failure)
{
	(void)request;
	return failure_set(failure, SHARE_ETIMEDOUT, "nothing has happened within the time limit");
}

static const struct wait_kind for_notice = {fail_late, NULL};

static int monitor_new(struct client *client, struct failure *failure)
{
	struct monitor *m = calloc(1, sizeof(*m));
	int r = 0;

	if (!m)
		return failure_no_memory(failure, "the broker");
	if (!charge_take(&m->charge, client->account, LIMIT_WATCHES, 1))
		r = account_refuse(client->account, LIMIT_WATCHES, "", failure);
	else if (!charge_take_with(&m->charge_room, client->account, LIMIT_UNSENT, sizeof(*m),
				   OWN_OF_PRICE(sizeof(*m))))
		r = account_refuse(client->account, LIMIT_UNSENT, ", what is watched among them",
				   failure);
	if (r != 0) {
		charge_return(&m->charge);
		free(m);
		return r;
	}
	TAILQ_INIT(&m->waits);
	m->client = client;
	client->monitor = m;
	LIST_INSERT_HEAD(&client->broker->monitors->list, m, link);
	client->broker->clients->n_told++;
	add_own_row(m, "start", 0);
	return 0;
}

bool client_drop_monitor(struct client *c, int *budget)
{
	struct monitor *m = c->monitor;

	(void)budget;
	if (!m)
		return true;
	c->monitor = NULL;
	LIST_REMOVE(m, link);
	c->broker->clients->n_told--;
	charge_return(&m->charge);
	charge_return(&m->charge_room);
	free(m);
	return true;
}

static void choose(struct monitor *m, const struct wire_monitor *wanted)
{
	m->flags = wanted->flags;
	m->uid = wanted->uid;
	m->pool_size = wanted->pool.size;
	m->prefix_size = wanted->prefix.size;
	memcpy(m->pool, wanted->pool.size ? wanted->pool.data : "", wanted->pool.size);
	memcpy(m->prefix, wanted->prefix.size ? wanted->prefix.data : "", wanted->prefix.size);
}

bool handle_monitor(struct request *r)
{
	const struct wire_monitor *wanted = &r->m->monitor;
	struct client *c = r->client;
	struct failure failure;

	if (wanted->flags & ~(uint32_t)SHARE_MONITOR_USER || wanted->timeout < -1 ||
	    !text_is_utf8(wanted->pool.data, wanted->pool.size) ||
	    !text_is_utf8(wanted->prefix.data, wanted->prefix.size))
		return request_fail(
		    r, SHARE_EINVAL,
		    "flags 0x%x or time limit %d are unknown, or a name is not UTF-8",
		    wanted->flags, wanted->timeout);
	if (!r->again && deferred_waits(c, &for_notice))
		return request_fail(r, SHARE_EBUSY,
				    "another thread of this client waits for the same");
	if (!c->monitor && monitor_new(c, &failure) != 0)
		return request_fail_with(r, &failure);
	if (!r->again)
		choose(c->monitor, wanted);
	if (c->monitor->size == 0 && c->monitor->lost == 0 && wanted->timeout != 0)
		return request_wait(r, &c->monitor->waits, &for_notice, wanted->timeout);
	answer(c->monitor, r->m->serial);
	return true;
}
