/* SPDX-License-Identifier: MIT */

/*
 * The configuration, read again while the broker serves: what counts from then on, what stays and
 * is told, and that a file which is wrong changes nothing. Nobody loses what they hold, and nobody
 * waits while the file is being read: that takes as long as a test wants, as the file may be a
 * FIFO.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/support/kinds.h"
#include "tests/support/visit.h"

#define MIB (UINT64_C(1) << 20)

/* Everything but the limits and the keys of the pool is as in the harness's own. */
#define CONFIG(keys, pool)                                                             \
	"{" keys                                                                       \
	"\"pools\": [{\"name\": \"default\", \"kind\": \"host\", "                     \
	"\"limit\": \"16MiB\", \"segment_size\": \"1MiB\", \"release_threshold\": 0, " \
	"\"reuse\": \"gate\", "                                                        \
	"\"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}" pool "]}"
#define POOL(limit, more)                                                              \
	"{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"" limit \
	"\", \"segment_size\": \"1MiB\", \"release_threshold\": 0" more "}]}"

static share_client *client;
static share_pool *pool;

static void start(void)
{
	setenv("SHARE_MAGAZINES", "0", 1);
	fixture_start_with(CONFIG("", ""));
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(reload, .init = start, .fini = stop, .timeout = 60);

static char told[1 << 17];

/* A line each; what stays as it is begins with "! ". */
static int note(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);
	size_t n = strlen(told);

	(void)data;
	check(row != NULL);
	snprintf(told + n, sizeof(told) - n, "%s%s: %s\n",
		 json_is_true(json_object_get(row, "now")) ? "" : "! ",
		 json_string_value(json_object_get(row, "key")),
		 json_string_value(json_object_get(row, "change")));
	json_decref(row);
	return 0;
}

static void reload(const char *config, const char *wanted)
{
	broker_write_config(config);
	told[0] = '\0';
	check_ok(share_reload(client, note, NULL));
	if (strcmp(told, wanted) != 0)
		check_failed(__FILE__, __LINE__, "was told:\n%snot:\n%s", told, wanted);
}

/* ------------------------------------------------------------------------------------------- */

Test(reload, the_same_file_changes_nothing)
{
	reload(CONFIG("", ""), "");
	check(broker_said("was read again: nothing is new"));
	check_ok(share_reload(client, NULL, NULL));
}

Test(reload, who_is_above_a_lower_limit_keeps_all_and_gets_no_more)
{
	static const char *const names[] = {"a", "b", "c"};
	share_buffer *b = allocate(pool, MIB, NULL), *more = NULL;

	for (int i = 0; i < 3; i++)
		check_ok(share_publish(b, names[i], NULL));
	reload(CONFIG("\"limits\": {\"names\": 2, \"bytes\": \"512KiB\"},", ""),
	       "limits.bytes: none -> 512KiB\nlimits.names: 65536 -> 2\n");
	for (int i = 0; i < 3; i++) {
		check_ok(share_lookup(client, names[i], SHARE_RDONLY, 0, NULL, &more));
		check_ok(share_release(more, NULL));
	}
	check_error(share_publish(b, "d", NULL), SHARE_EQUOTA);
	check_error(share_alloc(pool, 1, NULL, &more), SHARE_EQUOTA);
	check_ok(share_unpublish(client, "a"));
	check_error(share_publish(b, "d", NULL), SHARE_EQUOTA);
	check_ok(share_unpublish(client, "b"));
	check_ok(share_publish(b, "d", NULL));
	check_ok(share_unpublish(client, "c"));
	check_ok(share_unpublish(client, "d"));
	check_ok(share_release(b, NULL));
	b = allocate(pool, 1, NULL);
	check_ok(share_release(b, NULL));
}

Test(reload, a_higher_limit_counts_at_once)
{
	share_buffer *b;

	reload(CONFIG("\"limits\": {\"bytes\": 4096},", ""), "limits.bytes: none -> 4KiB\n");
	check_error(share_alloc(pool, MIB, NULL, &b), SHARE_EQUOTA);
	reload(CONFIG("\"limits\": {\"bytes\": \"1MiB\"},", ""), "limits.bytes: 4KiB -> 1MiB\n");
	b = allocate(pool, MIB, NULL);
	check_ok(share_release(b, NULL));
}

Test(reload, a_users_own_limits_come_and_go)
{
	char config[1024], wanted[256];
	share_buffer *b;

	snprintf(config, sizeof(config),
		 CONFIG("\"users\": {\"%u\": {\"limits\": {\"bytes\": 4096}}},", ""), geteuid());
	snprintf(wanted, sizeof(wanted), "users[%u].limits.bytes: none -> 4KiB\n", geteuid());
	reload(config, wanted);
	check_error(share_alloc(pool, MIB, NULL, &b), SHARE_EQUOTA);
	snprintf(wanted, sizeof(wanted), "users[%u].limits.bytes: 4KiB -> none\n", geteuid());
	reload(CONFIG("", ""), wanted);
	b = allocate(pool, MIB, NULL);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */

Test(reload, a_wrong_file_is_refused_whole_with_line_and_key)
{
	share_buffer *b;

	broker_write_config(
	    "{\"limits\": {\"bytes\": 4096},\n"
	    " \"pools\": [{\"name\": \"new\", \"kind\": \"host\"},\n"
	    "  {\"name\": \"default\",\n"
	    "   \"limit\": \"10 parsecs\"}]}");
	check_error(share_reload(client, note, NULL), SHARE_EINVAL);
	check_detail("/broker.json:4: pools[1].limit: \"10 parsecs\" is not a size");
	check(broker_said("the configuration stays as it was: "));
	check(broker_said("/broker.json:4: pools[1].limit: \"10 parsecs\" is not a size"));
	b = allocate(pool, MIB, NULL);
	check_ok(share_release(b, NULL));
	check_error(share_pool_open(client, "new", &(share_pool *){NULL}), SHARE_ENOENT);
	/* and another one is read */
	reload(CONFIG("\"limits\": {\"names\": 3},", ""), "limits.names: 65536 -> 3\n");
}

Test(reload, a_file_that_is_gone_is_refused)
{
	check(unlink(broker_config()) == 0);
	check_error(share_reload(client, note, NULL), SHARE_ESYSTEM);
	check_detail("/broker.json: No such file or directory");
	reload(CONFIG("", ""), "");
}

Test(reload, only_administrators_may)
{
	struct raw r;

	skip_unless_root();
	check(chmod(broker_socket(), 0666) == 0);
	check(seteuid(ALICE) == 0);
	raw_open(&r, "alice");
	check(seteuid(0) == 0);
	raw_ask_error(&r, &(struct wire_message){.type = WIRE_RELOAD}, SHARE_EACCES);
	/* one that is made an administrator is one at once, */
	reload(CONFIG("\"admins\": [4711],", ""), "admins: user 4711: added\n");
	raw_ask(&r, &(struct wire_message){.type = WIRE_RELOAD}, WIRE_REPORT);
	/* and hears of it when that ends */
	broker_write_config(CONFIG("", ""));
	raw_ask(&r, &(struct wire_message){.type = WIRE_RELOAD}, WIRE_REPORT);
	check(strstr((const char *)r.m.report.rows.data, "user 4711: removed"));
	raw_ask_error(&r, &(struct wire_message){.type = WIRE_RELOAD}, SHARE_EACCES);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* ------------------------------------------------------------------------------------------- */

#define FRAMES ", {\"name\": \"frames\", \"kind\": \"host\", \"limit\": \"4MiB\"}"

Test(reload, a_pool_is_added)
{
	share_pool *p;
	share_buffer *b;

	check_error(share_pool_open(client, "frames", &p), SHARE_ENOENT);
	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	check_ok(share_pool_open(client, "frames", &p));
	b = allocate(p, MIB, NULL);
	share_pool_close(p);
	/* it stays without users, as others of the file */
	check_ok(share_release(b, NULL));
	check_ok(share_pool_open(client, "frames", &p));
	share_pool_close(p);
	reload(CONFIG("", FRAMES), "");
}

static const char removed[] =
    "pools[\"frames\"]: removed: it ends when nobody has it open and its "
    "last buffer is released\n";

Test(reload, a_pool_that_was_removed_ends_with_its_last_user)
{
	share_pool *p, *again;
	share_buffer *b;

	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	check_ok(share_pool_open(client, "frames", &p));
	reload(CONFIG("", ""), removed);
	b = allocate(p, MIB, NULL);
	check_ok(share_pool_open(client, "frames", &again));
	share_pool_close(again);
	reload(CONFIG("", ""), "");
	share_pool_close(p);
	check_ok(share_publish(b, "frames/left", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_pool_open(client, "frames", &p));
	share_pool_close(p);
	check_ok(share_unpublish(client, "frames/left"));
	settle(client, s.pools == 1);
	check_error(share_pool_open(client, "frames", &p), SHARE_ENOENT);
	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
}

Test(reload, a_pool_that_nobody_uses_ends_when_it_is_removed)
{
	share_pool *p;

	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	reload(CONFIG("", ""), removed);
	check_error(share_pool_open(client, "frames", &p), SHARE_ENOENT);
}

Test(reload, a_pool_that_was_removed_and_put_back_stays)
{
	share_pool *p;

	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	check_ok(share_pool_open(client, "frames", &p));
	reload(CONFIG("", ""), removed);
	reload(CONFIG("", FRAMES), "pools[\"frames\"]: in the file again: stays\n");
	share_pool_close(p);
	check_ok(share_pool_open(client, "frames", &p));
	share_pool_close(p);
}

Test(reload, a_pool_that_was_destroyed_is_made_again)
{
	share_pool *p;

	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	check_ok(share_pool_destroy(client, "frames"));
	check_error(share_pool_open(client, "frames", &p), SHARE_ENOENT);
	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
	check_ok(share_pool_open(client, "frames", &p));
	share_pool_close(p);
}

Test(reload, a_pool_of_a_client_is_left_alone)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	char taken[512];
	share_pool *p;

	options.kind = "host";
	options.limit = 8 * MIB;
	check_ok(share_pool_create(client, "frames", &options, &p));
	snprintf(taken, sizeof(taken),
		 "! pools[\"frames\"]: not added: user %u has made a pool of that name; read the "
		 "configuration again when that has ended\n",
		 geteuid());
	reload(CONFIG("", FRAMES), taken);
	check_ok(share_pool_get_info(p, &info));
	check_eq(info.limit, 8 * MIB);
	reload(CONFIG("", FRAMES), taken);
	share_pool_close(p);
	settle(client, s.pools == 1);
	reload(CONFIG("", FRAMES), "pools[\"frames\"]: added\n");
}

static int64_t pool_number(const char *key)
{
	json_t *rows = report(client, "pools");
	int64_t n = number_of(row_named(rows, "pool", "default"), key);

	json_decref(rows);
	return n;
}

Test(reload, a_pool_above_a_lower_limit_keeps_its_memory_and_gets_no_more)
{
	share_buffer *b[4], *more;

	for (int i = 0; i < 4; i++)
		b[i] = allocate(pool, MIB, NULL);
	reload(POOL("2MiB", ""),
	       "pools[\"default\"].limit: 16MiB -> 2MiB\n"
	       "pools[\"default\"].access: everyone: rw -> nothing\n");
	check_eq(pool_number("reserved"), 4 * MIB);
	check_eq(pool_number("largest_free"), 0);
	check_error(share_alloc(pool, 1, NULL, &more), SHARE_ENOMEM);
	check_ok(share_release(b[3], NULL));
	check_error(share_alloc(pool, MIB, NULL, &more), SHARE_ENOMEM);
	check_ok(share_release(b[2], NULL));
	check_error(share_alloc(pool, MIB, NULL, &more), SHARE_ENOMEM);
	check_eq(pool_number("reserved"), 2 * MIB);
	check_ok(share_release(b[1], NULL));
	b[1] = allocate(pool, MIB, NULL);
	reload(POOL("3MiB", ""), "pools[\"default\"].limit: 2MiB -> 3MiB\n");
	b[2] = allocate(pool, MIB, NULL);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], NULL));
}

Test(reload, what_is_kept_beyond_a_lower_threshold_goes_at_once)
{
	share_buffer *b = allocate(pool, MIB, NULL);

	reload(CONFIG("", ""), "");
	broker_write_config(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
	    "\"limit\": \"16MiB\", \"segment_size\": \"1MiB\"}]}");
	check_ok(share_reload(client, NULL, NULL));
	check_ok(share_release(b, NULL));
	check_eq(pool_number("reserved"), MIB);
	reload(POOL("16MiB", ""), "pools[\"default\"].release_threshold: 1MiB -> 0\n");
	check_eq(pool_number("reserved"), 0);
}

Test(reload, what_cannot_change_is_told_each_time_and_stays)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p;
	static const char wanted[] =
	    "! socket: stays the default; /elsewhere takes a restart\n"
	    "! pools[\"default\"].kind: stays host; vmm takes a restart\n"
	    "! pools[\"default\"].segment_size: stays 1MiB; 2MiB takes a "
	    "restart\n";
	static const char config[] =
	    "{\"socket\": \"/elsewhere\", \"pools\": [{\"name\": \"default\", \"kind\": \"vmm\", "
	    "\"limit\": \"16MiB\", \"segment_size\": \"2MiB\", \"release_threshold\": 0, "
	    "\"reuse\": \"gate\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

	reload(config, wanted);
	reload(config, wanted);
	check(broker_said("warning: socket: stays the default; /elsewhere takes a restart"));
	check_ok(share_pool_open(client, "default", &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "host") == 0);
	check_eq(info.segment_size, MIB);
	share_pool_close(p);
}

/* Of which agents make the segments, and clients unmap them later. */
#define GPU(limit)                                                                \
	CONFIG("", ", {\"name\": \"gpu\", \"kind\": \"vmm\", \"limit\": \"" limit \
		   "\", \"segment_size\": \"2MiB\", \"release_threshold\": 0, "   \
		   "\"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}")

static int64_t gpu_reserved(void)
{
	json_t *rows = report(client, "pools");
	int64_t n = number_of(row_named(rows, "pool", "gpu"), "reserved");

	json_decref(rows);
	return n;
}

static void start_on_devices(void)
{
	setenv("SHARE_MAGAZINES", "0", 1);
	kinds_start_on("", CONFIG("\"create_pools\": [\"*\"],", ""));
	client = connect_as("test");
	pool = open_pool(client);
}

Test(reload_devices, a_pool_of_a_device_above_a_lower_limit_gets_no_more, .init = start_on_devices,
     .fini = stop, .timeout = 60)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_buffer *b[4], *more;
	share_pool *p;

	skip_unless_possible("vmm");
	broker_write_config(GPU("8MiB"));
	check_ok(share_reload(client, NULL, NULL));
	check_ok(share_pool_open(client, "gpu", &p));
	for (int i = 0; i < 4; i++)
		b[i] = allocate(p, 2 * MIB, NULL);
	reload(GPU("4MiB"), "pools[\"gpu\"].limit: 8MiB -> 4MiB\n");
	check_eq(gpu_reserved(), 8 * MIB);
	check_error(share_alloc(p, 1, NULL, &more), SHARE_ENOMEM);
	for (int i = 3; i > 0; i--)
		check_ok(share_release(b[i], NULL));
	until(share_ping(client) == 0 && gpu_reserved() == 2 * MIB);
	b[1] = allocate(p, 2 * MIB, NULL);
	check_error(share_alloc(p, 2 * MIB, NULL, &more), SHARE_ENOMEM);
	reload(GPU("8MiB"), "pools[\"gpu\"].limit: 4MiB -> 8MiB\n");
	b[2] = allocate(p, 2 * MIB, NULL);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], NULL));
	share_pool_close(p);
	/* more than the device has */
	reload(GPU("512GiB"), "pools[\"gpu\"].limit: 8MiB -> 512GiB\n");
	check_ok(share_pool_open(client, "gpu", &p));
	check_ok(share_pool_get_info(p, &info));
	check(info.limit < 512 * 1024 * MIB);
	share_pool_close(p);
	/* its last user has gone, and so does it */
	reload(CONFIG("", ""),
	       "pools[\"gpu\"]: removed: it ends when nobody has it open and its last "
	       "buffer is released\n");
	settle(client, s.pools == 1);
}

/* What a child does as somebody else, a reload at a time. */
static void alice_loses_access(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b, *v;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_pool(c);
	b = allocate(p, 4096, NULL);
	strcpy(share_ptr(b), "alice's");
	check_ok(share_publish(b, "alice", NULL));
	check_error(share_pool_create(c, "alices", NULL, &(share_pool *){NULL}), SHARE_EACCES);
	child_point(self, "holds");
	check_error(share_alloc(p, 1, NULL, &v), SHARE_EACCES);
	check_error(share_lookup(c, "alice", SHARE_RDONLY, 0, NULL, &v), SHARE_ENOENT);
	check(strcmp(share_ptr(b), "alice's") == 0);
	child_point(self, "is out");
	check_ok(share_lookup(c, "alice", SHARE_RDONLY, 0, NULL, &v));
	check_ok(share_release(v, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	check_ok(share_pool_create(c, "alices", NULL, &p));
	share_pool_close(p);
	share_disconnect(c);
}

Test(reload, access_and_who_may_create_pools_count_at_once)
{
	struct child *alice;

	skip_unless_root();
	alice = child_start(alice_loses_access, NULL);
	child_wait(alice, "holds");
	reload(POOL("16MiB", ""), "pools[\"default\"].access: everyone: rw -> nothing\n");
	child_go(alice);
	child_wait(alice, "is out");
	reload(CONFIG("\"create_pools\": [4711],", ""),
	       "create_pools: user 4711: added\n"
	       "pools[\"default\"].access: everyone: nothing -> rw\n");
	child_go(alice);
	child_finish(alice);
}

/* A consumer, told what to do by what is in reach of it. */
static void alice_receives(struct child *self, void *data)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;
	share_client *c;
	share_buffer *b;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	o.pool = "default";
	check_ok(share_channel_open(c, "frames", SHARE_CONSUMER, &o, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, SHARE_WAIT_FOREVER, NULL, &m));
	check(strcmp(share_ptr(m.buffer), "first") == 0);
	check_ok(share_ack(&m, NULL));
	child_point(self, "out");
	/* in a segment that she has, and which a lease is not to be had of */
	check_ok(share_recv(ch, SHARE_WAIT_FOREVER, NULL, &m));
	check(strcmp(share_ptr(m.buffer), "second") == 0);
	b = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	child_point(self, "kept");
	check_ok(share_release(b, NULL));
	/* and in one that was made since */
	check_ok(share_recv(ch, SHARE_WAIT_FOREVER, NULL, &m));
	check_error(m.error, SHARE_EACCES);
	check(m.channel && !m.buffer);
	check_ok(share_ack(&m, NULL));
	child_point(self, "in");
	check_ok(share_recv(ch, SHARE_WAIT_FOREVER, NULL, &m));
	check(strcmp(share_ptr(m.buffer), "third") == 0);
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

static void send(share_channel *ch, share_buffer *b, const char *text)
{
	strcpy(share_ptr(b), text);
	check_ok(share_send(ch, b, NULL, 0, NULL));
}

/* Leases of others than this process. */
static json_int_t leases_of_others(void)
{
	json_t *rows = report(client, "clients");
	json_int_t leases = 0;
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "label")), "alice") == 0)
			leases += number_of(row, "leases");
	json_decref(rows);
	return leases;
}

Test(reload, who_may_not_use_a_pool_any_more_is_sent_no_more_of_it_by_channels)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	share_buffer *a, *b;
	struct child *alice;

	skip_unless_root();
	o.pool = "default";
	check_ok(share_channel_open(client, "frames", SHARE_PRODUCER, &o, &ch));
	a = allocate(pool, 4096, NULL);
	alice = child_start(alice_receives, NULL);
	child_wait(alice, "open");
	child_go(alice);
	send(ch, a, "first");
	child_wait(alice, "out");
	reload(POOL("16MiB", ""), "pools[\"default\"].access: everyone: rw -> nothing\n");
	b = allocate(pool, MIB, NULL); /* a segment */
	check_ok(share_reclaim(a, SHARE_WAIT_FOREVER, NULL));
	send(ch, a, "second");
	child_go(alice);
	child_wait(alice, "kept");
	check_eq(leases_of_others(), 0);
	send(ch, b, "third");
	child_go(alice);
	child_wait(alice, "in");
	reload(CONFIG("", ""), "pools[\"default\"].access: everyone: nothing -> rw\n");
	send(ch, b, "third");
	child_go(alice);
	child_finish(alice);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	share_channel_close(ch);
}

/* More than a page has room for. */
Test(reload, of_a_thousand_changes_the_log_has_all)
{
	size_t size = 1 << 20, n = sizeof(CONFIG("", "")) - 1 - strlen("]}");
	char *config = malloc(size);

	strcpy(config, CONFIG("", ""));
	for (int i = 0; i < 1000; i++)
		n += (size_t)snprintf(config + n, size - n,
				      ", {\"name\": \"pool-%04d\", \"kind\": \"host\"}", i);
	strcpy(config + n, "]}");
	broker_write_config(config);
	free(config);
	told[0] = '\0';
	check_ok(share_reload(client, note, NULL));
	check(strstr(told, "pools[\"pool-0000\"]: added\n"));
	check(strstr(told, " more changes, which the broker's log has\n"));
	settle(client, s.pools == 1001);
	check(broker_said("pools[\"pool-0999\"]: added"));
	broker_write_config(CONFIG("", ""));
	check_ok(share_reload(client, NULL, NULL));
	settle(client, s.pools == 1);
}

/* ------------------------------------------------------------------------------------------- */
/* SIGHUP                                                                                      */

static int64_t limit_of_names(void)
{
	json_t *rows = report(client, "users"), *row;
	int64_t limit = 0;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "resource")), "names") == 0)
			limit = number_of(row, "limit");
	json_decref(rows);
	return limit;
}

Test(reload, a_hangup_reads_the_file)
{
	share_buffer *b = allocate(pool, 1, NULL);

	check_ok(share_publish(b, "name", NULL));
	broker_write_config(CONFIG("\"limits\": {\"names\": 5},", ""));
	kill(broker_pid(), SIGHUP);
	until(limit_of_names() == 5);
	check(broker_said("broker.json was read again: this is new"));
	check(broker_said("info: limits.names: 65536 -> 5"));
	broker_write_config("{\"limits\": {\"names\": 6},\n\"pool\": []}");
	kill(broker_pid(), SIGHUP);
	until(broker_said("error: the configuration stays as it was: "));
	check(broker_said("/broker.json:2: pool: unknown key (did you mean \"pools\"?)"));
	check_eq(limit_of_names(), 5);
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
}

Test(reload, the_last_of_many_hangups_reads_the_last_file)
{
	share_buffer *b = allocate(pool, 1, NULL);
	char config[1024];

	check_ok(share_publish(b, "name", NULL));
	for (int i = 1; i <= 50; i++) {
		/* in one step: what is half written is refused */
		char path[256];

		snprintf(config, sizeof(config), CONFIG("\"limits\": {\"names\": %d},", ""), i);
		snprintf(path, sizeof(path), "%s.new", broker_config());
		check(rename(broker_config(), path) == 0);
		broker_write_config(config);
		check(unlink(path) == 0);
		kill(broker_pid(), SIGHUP);
	}
	until(limit_of_names() == 50);
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* While the file is being read                                                                */

/* A new file, whose reader waits until the test gives up its lease on it. */
static int slow = -1;

static void make_slow(void)
{
	char path[256];

	signal(SIGIO, SIG_IGN); /* by which the kernel says that somebody waits */
	snprintf(path, sizeof(path), "%s.slow", broker_config());
	slow = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(slow >= 0 && fcntl(slow, F_SETLEASE, F_WRLCK) == 0);
	check(rename(path, broker_config()) == 0);
}

/* Once the broker reads. */
static int feed(void)
{
	until(fcntl(slow, F_GETLEASE) != F_WRLCK);
	return slow;
}

static void give(int fd, const char *config)
{
	check(write(fd, config, strlen(config)) == (ssize_t)strlen(config));
	close(fd);
}

static void asks(struct child *self, void *data)
{
	share_client *c = child_connect("asks");
	int r;

	(void)data;
	child_point(self, "asks");
	r = share_reload(c, NULL, NULL);
	child_point_with(self, "has asked", &r, sizeof(r));
	share_disconnect(c);
}

Test(reload, nobody_waits_while_the_file_is_being_read)
{
	struct child *child = child_start(asks, NULL);
	share_buffer *b;
	int fd, r;

	make_slow();
	child_wait(child, "asks");
	child_go(child);
	fd = feed();
	b = allocate(pool, MIB, NULL);
	check_ok(share_release(b, NULL));
	give(fd, CONFIG("\"limits\": {\"bytes\": 4096},", ""));
	child_wait_with(child, "has asked", &r, sizeof(r));
	check_eq(r, 0);
	check_error(share_alloc(pool, MIB, NULL, &b), SHARE_EQUOTA);
	child_go(child);
	child_finish(child);
}

/* Of the file as it is then: it may have been opened before it was changed. */
Test(reload, who_asks_meanwhile_is_answered_after_another_reading)
{
	struct child *first = child_start(asks, NULL), *second = child_start(asks, NULL);
	struct status s;
	int64_t asked;
	int fd, r;

	make_slow();
	child_wait(first, "asks");
	child_wait(second, "asks");
	child_go(first);
	fd = feed();
	status_read(client, &s);
	asked = s.requests;
	child_go(second);
	/* its request, and those with which this is found out */
	for (int64_t own = 1; status_read(client, &s), s.requests == asked + own; own++)
		;
	make_slow();
	give(fd, "{\"limits\": {\"bytes\": \"8 parsecs\"}}");
	child_wait_with(first, "has asked", &r, sizeof(r));
	check_eq(r, SHARE_EINVAL);
	give(feed(), CONFIG("\"limits\": {\"bytes\": 8192},", ""));
	child_wait_with(second, "has asked", &r, sizeof(r));
	check_eq(r, 0);
	check(broker_said("limits.bytes: none -> 8KiB"));
	child_go(first);
	child_finish(first);
	child_go(second);
	child_finish(second);
}

Test(reload, who_asked_may_die_meanwhile)
{
	struct child *child = child_start(asks, NULL);
	share_buffer *b;
	int fd;

	make_slow();
	child_wait(child, "asks");
	child_go(child);
	fd = feed();
	child_kill(child);
	settle(client, s.clients == 1);
	give(fd, CONFIG("\"limits\": {\"bytes\": 4096},", ""));
	until(broker_said("limits.bytes: none -> 4KiB"));
	check_error(share_alloc(pool, MIB, NULL, &b), SHARE_EQUOTA);
}

Test(reload, a_hangup_meanwhile_reads_it_once_more)
{
	int fd;

	make_slow();
	kill(broker_pid(), SIGHUP);
	fd = feed();
	kill(broker_pid(), SIGHUP);
	/* a signal has come before what is asked for after it */
	check_ok(share_ping(client));
	check_ok(share_ping(client));
	make_slow();
	give(fd, CONFIG("\"limits\": {\"bytes\": 4096},", ""));
	until(broker_said("limits.bytes: none -> 4KiB"));
	give(feed(), CONFIG("\"limits\": {\"bytes\": 8192},", ""));
	until(broker_said("limits.bytes: 4KiB -> 8KiB"));
}

Test(reload, a_broker_ends_though_the_file_cannot_be_read)
{
	int fd;

	make_slow();
	kill(broker_pid(), SIGHUP);
	fd = feed();
	share_pool_close(pool);
	share_disconnect(client);
	pool = NULL;
	client = NULL;
	check_eq(broker_let_go(), 0);
	close(fd);
}
