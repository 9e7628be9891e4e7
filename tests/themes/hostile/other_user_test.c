/* SPDX-License-Identifier: MIT */

/*
 * Other users: what they may do is what the pool's list says, and what they cannot do they cannot
 * do by way of a descriptor either. Root only, who can be anybody; the users need no entry in any
 * database.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/admin.h>

#include "base/system/process.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"

#define ALICE  4711
#define BOB    4712
#define CAROL  4713
#define CAMERA 4800 /* a group */

static const char config[] =
    "{\"create_pools\": [4711], \"admins\": [4713],"
    "\"limits\": {\"names\": 2},"
    "\"pools\": ["
    "{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": [{\"user\": "
    "\"*\", \"mode\": "
    "\"rw\"}]},"
    "{\"name\": \"alices\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": [{\"user\": 4711, "
    "\"mode\": "
    "\"manage\"},"
    " {\"group\": 4800, \"mode\": \"ro\"}]}]}";

static share_client *client;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("root");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(other_user, .init = start, .fini = stop, .timeout = 60);

static void run_as(child_function function)
{
	child_finish(child_start(function, NULL));
}

static share_pool *open_named(share_client *c, const char *name)
{
	share_pool *p;

	check_ok(share_pool_open(c, name, &p));
	return p;
}

/* Publishes "alice/name" in this pool, and stays. */
static void alice_publishes(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b;
	share_token token;

	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_named(c, data);
	b = allocate(p, 4096, NULL);
	strcpy(share_ptr(b), "alice's");
	check_ok(share_publish(b, "alice/name", NULL));
	check_ok(share_export(b, NULL, &token));
	child_point_with(self, "published", &token, sizeof(token));
	check_ok(share_unpublish(c, "alice/name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static share_token token_of_alice;

static struct child *start_alice(const char *pool)
{
	struct child *alice;

	skip_unless_root();
	alice = child_start(alice_publishes, (void *)(uintptr_t)pool);
	child_wait_with(alice, "published", &token_of_alice, sizeof(token_of_alice));
	return alice;
}

static void end_alice(struct child *alice)
{
	child_go(alice);
	child_finish(alice);
	settle(client, s.clients == 1 && s.names == 0);
}

static int count(const share_name_info *info, void *data)
{
	(void)info;
	++*(int *)data;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

static void leaves_a_secret(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b;

	(void)self;
	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_named(c, "default");
	b = allocate(p, 1 << 20, NULL);
	memset(share_ptr(b), 'S', 1 << 20);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void looks_for_it(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b;

	(void)self;
	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_named(c, "default");
	b = allocate(p, 1 << 20, NULL);
	check(memchr(share_ptr(b), 'S', 1 << 20) == NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* In all of the pool's memory, which it keeps in between. */
Test(other_user, what_one_user_leaves_in_a_pool_for_several_the_next_one_does_not_find)
{
	skip_unless_root();
	run_as(leaves_a_secret);
	settle(client, s.clients == 1 && s.segments == 1);
	run_as(looks_for_it);
}

/* "\t0000000000000000\n", as /proc has it of the broker. */
static bool broker_has(const char *key, const char *value)
{
	char path[64], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)broker_pid());
	f = fopen(path, "re");
	check(f != NULL);
	while (fgets(line, sizeof(line), f))
		found = found || (strncmp(line, key, strlen(key)) == 0 &&
				  strcmp(line + strlen(key), value) == 0);
	fclose(f);
	return found;
}

/* What is refused to it then is confine_test's. */
Test(other_user, the_broker_has_none_of_the_rights_of_who_has_started_it)
{
	check(broker_has("CapPrm:", "\t0000000000000000\n"));
	check(broker_has("CapEff:", "\t0000000000000000\n"));
	check(broker_has("NoNewPrivs:", "\t1\n"));
	check(PROCESS_IS_INSTRUMENTED || broker_has("Seccomp:", "\t2\n"));
}

static void bob_uses_what_is_for_all(struct child *self, void *data)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_pool_options either = SHARE_POOL_OPTIONS_INIT;
	share_client *c;
	share_buffer *b, *v;
	share_pool *p;
	int n = 0;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	/* who may not create pools may use what is there, and is told so when nothing is */
	either.flags = SHARE_POOL_OPEN_OR_CREATE;
	check_ok(share_pool_create(c, "default", &either, &p));
	share_pool_close(p);
	check_error(share_pool_create(c, "bobs", &either, &p), SHARE_EACCES);
	check_detail("create_pools");
	check_ok(share_lookup(c, "alice/name", SHARE_RDWR, 0, NULL, &v));
	check(strcmp(share_ptr(v), "alice's") == 0);
	check_ok(share_list(c, "", count, &n));
	check_eq(n, 1);
	/* but the name is hers */
	p = open_named(c, "default");
	b = allocate(p, 1, NULL);
	check_error(share_publish(b, "alice/name", NULL), SHARE_EACCES);
	check_error(share_publish(v, "alice/name", NULL), SHARE_EACCES);
	options.flags = SHARE_PUBLISH_EXCLUSIVE;
	check(share_publish_with(b, "alice/name", &options, NULL, NULL) < 0);
	check_error(share_unpublish(c, "alice/name"), SHARE_EACCES);
	check_ok(share_publish(b, "bob/name", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_release(v, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(other_user, a_name_is_for_all_who_may_use_its_pool_and_belongs_to_its_publisher)
{
	struct child *alice = start_alice("default");

	run_as(bob_uses_what_is_for_all);
	end_alice(alice);
}

static int changes;

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
	changes++;
}

static void bob_is_kept_out(struct child *self, void *data)
{
	share_pool_options either = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b = NULL;
	share_pool *p = NULL;
	share_client *c;
	share_watch *w;
	int n = 0;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_watch_names(c, "", on_change, NULL, &w));
	child_point(self, "watching");
	check_error(share_pool_open(c, "alices", &p), SHARE_ENOENT);
	either.flags = SHARE_POOL_OPEN_OR_CREATE;
	check_error(share_pool_create(c, "alices", &either, &p), SHARE_EACCES);
	check_error(share_lookup(c, "alice/name", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
	check_error(share_import(c, &token_of_alice, 0, NULL, &b), SHARE_ENOENT);
	check_error(share_unpublish(c, "alice/name"), SHARE_ENOENT);
	check_error(share_pool_destroy(c, "alices"), SHARE_ENOENT);
	check_error(share_pool_create(c, "bobs", NULL, &p), SHARE_EACCES);
	check_ok(share_list(c, "", count, &n));
	check_eq(n, 0);
	share_dispatch(c);
	check_eq(changes, 0);
	check(b == NULL && p == NULL);
	share_unwatch(w);
	share_disconnect(c);
}

Test(other_user, who_may_not_use_a_pool_sees_and_gets_nothing_of_it)
{
	struct child *alice, *bob;

	skip_unless_root();
	alice = start_alice("alices");
	bob = child_start(bob_is_kept_out, NULL);
	child_wait(bob, "watching");
	child_go(bob);
	child_finish(bob);
	end_alice(alice);
}

/* By a supplementary group: for reading. */
static void carols_colleague_reads(struct child *self, void *data)
{
	share_buffer *b, *none = NULL;
	share_client *c;
	share_pool *p;

	(void)self, (void)data;
	child_become(BOB, CAMERA);
	c = child_connect("bob");
	p = open_named(c, "alices");
	check_error(share_alloc(p, 1, NULL, &none), SHARE_EACCES);
	check_error(share_lookup(c, "alice/name", SHARE_RDWR, 0, NULL, &none), SHARE_EACCES);
	check_ok(share_lookup(c, "alice/name", SHARE_RDONLY, 0, NULL, &b));
	check(strcmp(share_ptr(b), "alice's") == 0);
	check_error(share_pool_destroy(c, "alices"), SHARE_EACCES);
	check_ok(share_release(b, NULL));
	check_ok(share_import(c, &token_of_alice, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(other_user, a_group_gives_what_it_says_and_no_more)
{
	struct child *alice = start_alice("alices");

	run_as(carols_colleague_reads);
	end_alice(alice);
}

/* ------------------------------------------------------------------------------------------- */

/* What @c is shown of a token, and of alice's client: their identifiers, 0 when nothing. */
static uint64_t first_token(share_client *c)
{
	json_t *rows = report(c, "tokens");
	const char *id = json_string_value(json_object_get(json_array_get(rows, 0), "token"));
	uint64_t token = id ? strtoull(id, NULL, 16) : 0;

	json_decref(rows);
	return token;
}

static uint64_t client_of(share_client *c, uid_t uid)
{
	json_t *rows = report(c, "clients");
	const json_t *row = row_where(rows, "uid", uid);
	uint64_t id = row ? (uint64_t)number_of(row, "client") : 0;

	json_decref(rows);
	return id;
}

static uint64_t alices_token, alices_client;

static void bob_ends_nothing_of_alices(struct child *self, void *data)
{
	share_client *c;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_eq(first_token(c), 0);
	check_error(share_revoke_id(c, alices_token), SHARE_ENOENT);
	check_detail("of yours");
	check_error(share_revoke(c, &token_of_alice), SHARE_EACCES);
	check_detail("uid 4711 made this token");
	check_eq(client_of(c, ALICE), 0);
	check_error(share_drop_client(c, alices_client), SHARE_ENOENT);
	check_detail("of yours");
	check_error(share_unpublish(c, "alice/name"), SHARE_EACCES);
	check_error(share_pool_destroy(c, "default"), SHARE_EACCES);
	share_disconnect(c);
}

Test(other_user, what_a_user_has_made_others_cannot_end)
{
	struct child *alice = start_alice("default");

	alices_token = first_token(client);
	alices_client = client_of(client, ALICE);
	check(alices_token != 0 && alices_client != 0);
	run_as(bob_ends_nothing_of_alices);
	settle(client, s.clients == 2 && s.names == 1 && s.tokens == 1);
	end_alice(alice);
}

/* Another process of the same user, or an administrator. */
static void ends_what_is_alices(struct child *self, void *data)
{
	share_client *c;

	(void)self;
	child_become(*(uid_t *)data, 0);
	c = child_connect("somebody");
	check_ok(share_unpublish(c, "alice/name"));
	check_ok(share_revoke_id(c, first_token(c)));
	check_ok(share_pool_destroy(c, "alices"));
	check_ok(share_drop_client(c, alices_client));
	share_disconnect(c);
}

static void expect_all_of_alices_ended_by(uid_t uid)
{
	struct child *alice = start_alice("alices");

	alices_client = client_of(client, ALICE);
	child_finish(child_start(ends_what_is_alices, &uid));
	settle(client, s.names == 0 && s.tokens == 0 && s.pools == 2 && s.quarantined == 1 &&
			   s.leases == 1);
	child_kill(alice);
	settle(client, s.clients == 1 && s.pools == 1);
}

Test(other_user, another_process_of_the_user_can_end_it_all)
{
	expect_all_of_alices_ended_by(ALICE);
}

Test(other_user, an_administrator_can_end_it_all)
{
	expect_all_of_alices_ended_by(CAROL);
}

static void bob_sees_his_own_account(struct child *self, void *data)
{
	share_client *c;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_eq(used_by(c, BOB, "connections"), 1);
	check_eq(used_by(c, ALICE, "connections"), -1);
	check_eq(used_by(c, 0, "connections"), -1);
	share_disconnect(c);
}

Test(other_user, accounts_are_for_their_owners_and_administrators_to_see)
{
	struct child *alice = start_alice("default");

	check_eq(used_by(client, 0, "connections"), 1);
	check_eq(used_by(client, ALICE, "connections"), 1);
	check_eq(used_by(client, ALICE, "names"), 1);
	check_eq(used_by(client, ALICE, "tokens"), 1);
	check_eq(used_by(client, ALICE, "bytes"), 4096);
	check_eq(used_by(client, ALICE, "watches"), 0);
	run_as(bob_sees_his_own_account);
	end_alice(alice);
}

#define CROWD 450

/* More than go into one packet. */
Test(other_user, accounts_of_many_users_are_each_listed_once_and_in_order)
{
	static struct raw crowd[CROWD];
	int64_t before = -1;
	json_t *rows, *row;
	int n = 0;
	size_t i;

	skip_unless_root();
	for (uid_t u = 0; u < CROWD; u++) {
		check(seteuid(5000 + u) == 0);
		raw_open(&crowd[u], "one of many");
		check(seteuid(0) == 0);
		raw_alloc(&crowd[u], raw_pool(&crowd[u], "default"), 512);
	}
	rows = report(client, "users");
	json_array_foreach (rows, i, row) {
		int64_t uid = number_of(row, "uid");

		if (uid < 5000)
			continue;
		check(uid == before || uid == before + 1 || before < 0);
		before = uid;
		n += number_of(row, "used") > 0;
	}
	check_eq(before, 5000 + CROWD - 1);
	check_eq(n, 5 * CROWD); /* a connection, its descriptors, a lease, bytes, what these cost */
	json_decref(rows);
	for (int u = 0; u < CROWD; u++) {
		raw_ask(&crowd[u], &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
		raw_close(&crowd[u]);
	}
}

static void carol_administers(struct child *self, void *data)
{
	share_client *c;
	json_t *rows;

	(void)self, (void)data;
	child_become(CAROL, 0);
	c = child_connect("carol");
	rows = report(c, "clients");
	check_eq(json_array_size(rows), 3);
	json_decref(rows);
	check_ok(share_release(allocate(open_named(c, "alices"), 1, NULL), NULL));
}

static void bob_sees_himself(struct child *self, void *data)
{
	share_client *c;
	json_t *rows;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	rows = report(c, "clients");
	check_eq(json_array_size(rows), 1);
	check_eq(number_of(json_array_get(rows, 0), "uid"), BOB);
	json_decref(rows);
	rows = report(c, "pools");
	check_eq(json_array_size(rows), 1);
	json_decref(rows);
	rows = report(c, "buffers");
	check_eq(json_array_size(rows), 0);
	json_decref(rows);
	rows = report(c, "segments");
	check_eq(json_array_size(rows), 0);
	json_decref(rows);
}

Test(other_user, reports_show_admins_everything_and_others_their_own)
{
	struct child *alice = start_alice("alices");

	run_as(carol_administers);
	settle(client, s.clients == 2);
	run_as(bob_sees_himself);
	end_alice(alice);
}

/* ------------------------------------------------------------------------------------------- */

/* Whatever /proc offers: the descriptor he got stays what it is. */
static void bob_tries_the_descriptor(struct child *self, void *data)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, page = {.type = WIRE_TIMELINE};
	char path[64];
	struct raw r;
	int fd;

	(void)self, (void)data;
	child_become(BOB, CAMERA);
	raw_open(&r, "bob");
	lookup.lookup.mode = SHARE_RDONLY;
	lookup.lookup.name = raw_text("alice/name");
	raw_ask(&r, &lookup, WIRE_GRANT);
	check_eq(r.fds.n, 1);
	fd = r.fds.fds[0];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check(open(path, O_RDWR | O_CLOEXEC) < 0);
	check(open(path, O_WRONLY | O_CLOEXEC) < 0);
	check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	check(ftruncate(fd, 0) < 0);
	check(fchmod(fd, 0666) < 0);
	check(write(fd, "x", 1) < 0);

	page.timeline.page = r.page_id - 1; /* alice's, who came just before */
	raw_request(&r, &page);
	if (r.m.type == WIRE_TIMELINE_PAGE) {
		fd = r.fds.fds[0];
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		check(open(path, O_RDWR | O_CLOEXEC) < 0);
		check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
		check(ftruncate(fd, 0) < 0);
		check(write(fd, "x", 1) < 0);
	}
}

Test(other_user, a_descriptor_for_reading_cannot_be_made_one_for_writing)
{
	struct child *alice = start_alice("alices");

	run_as(bob_tries_the_descriptor);
	end_alice(alice);
}

static void alice_makes_a_pool(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *own, *shared;
	share_client *c;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	options.kind = "host";
	options.limit = 1 << 20;
	check_ok(share_pool_create(c, "own", &options, &own));
	options.access = "[{\"user\": 4712, \"mode\": \"rw\"}]";
	check_ok(share_pool_create(c, "shared", &options, &shared));
	child_point(self, "made");
	share_pool_close(own);
	share_pool_close(shared);
	share_disconnect(c);
}

static void bob_uses_alices_pools(struct child *self, void *data)
{
	share_pool *p = NULL;
	share_client *c;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_error(share_pool_open(c, "own", &p), SHARE_ENOENT);
	check_error(share_pool_destroy(c, "own"), SHARE_ENOENT);
	p = open_named(c, "shared");
	check_ok(share_release(allocate(p, 1, NULL), NULL));
	check_error(share_pool_destroy(c, "shared"), SHARE_EACCES);
	share_pool_close(p);
	share_disconnect(c);
}

/* Her own file, which she may make smaller, or not. */
static void alice_adopts(struct child *self, void *data)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	int fd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	share_client *c, *own;
	share_buffer *b, *found;
	share_pool *p;
	char *at;

	child_become(ALICE, 0);
	check(ftruncate(fd, 4096) == 0 &&
	      (!*(bool *)data || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0));
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	strcpy(at, "alice's");
	c = child_connect("alice");
	own = child_connect("alice");
	o.kind = "adopted";
	o.access = "[{\"user\": \"*\", \"mode\": \"ro\"}]";
	check_ok(share_pool_create(c, "adopted", &o, &p));
	check_ok(share_adopt(p, at, 4096, NULL, &b));
	check_ok(share_publish(b, "alice/name", NULL));
	check_ok(share_lookup(own, "alice/name", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_release(found, NULL));
	child_point(self, "published");
	check_ok(share_unpublish(c, "alice/name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(own);
	share_disconnect(c);
	munmap(at, 4096);
	close(fd);
}

/* Who could have others die of SIGBUS shares with nobody but processes of the same user. */
Test(other_user, adopted_memory_is_for_others_if_it_cannot_become_smaller)
{
	skip_unless_root();
	for (int sealed = 0; sealed < 2; sealed++) {
		bool is_sealed = sealed;
		struct child *alice = child_start(alice_adopts, &is_sealed);
		share_buffer *b;

		child_wait(alice, "published");
		if (is_sealed) {
			check_ok(share_lookup(client, "alice/name", SHARE_RDONLY, 0, NULL, &b));
			check(strcmp(share_ptr(b), "alice's") == 0);
			check_ok(share_release(b, NULL));
		} else {
			check_error(share_lookup(client, "alice/name", SHARE_RDONLY, 0, NULL, &b),
				    SHARE_EACCES);
			check_detail("F_SEAL_SHRINK");
		}
		end_alice(alice);
	}
}

Test(other_user, a_pool_belongs_to_who_made_it)
{
	struct child *alice;

	skip_unless_root();
	alice = child_start(alice_makes_a_pool, NULL);
	child_wait(alice, "made");
	run_as(bob_uses_alices_pools);
	end_alice(alice);
}

static void fills_its_names(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	char name[32];

	child_become(*(uid_t *)data, 0);
	c = child_connect("user");
	b = allocate(open_named(c, "default"), 1, NULL);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%d of %d", i, *(int *)data);
		check_ok(share_publish(b, name, NULL));
	}
	check_error(share_publish(b, "one more", NULL), SHARE_EQUOTA);
	child_point(self, "full");
}

Test(other_user, each_user_has_limits_of_its_own)
{
	struct child *alice, *bob;

	skip_unless_root();
	alice = child_start(fills_its_names, &(uid_t){ALICE});
	child_wait(alice, "full");
	bob = child_start(fills_its_names, &(uid_t){BOB});
	child_wait(bob, "full");
	child_kill(alice);
	child_kill(bob);
	settle(client, s.clients == 1 && s.names == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Who keeps memory back                                                                       */

#define FRAME (1 << 20)

static struct gate *gate;

/* One that holds a frame, which bob may read. */
static share_buffer *publish_frame(share_pool **pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b;

	options.kind = "host";
	options.limit = options.segment_size = FRAME;
	options.access = "[{\"user\": 4712, \"mode\": \"ro\"}]";
	check_ok(share_pool_create(client, "one frame", &options, pool));
	b = allocate(*pool, FRAME, NULL);
	check_ok(share_publish(b, "frame", NULL));
	return b;
}

/* Keeps the frame, then lets it go behind work that has yet to be done. */
static void bob_keeps(struct child *self, void *data)
{
	share_host_stream *stream;
	share_client *c;
	share_buffer *b;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_host_stream_create(c, &stream));
	check_ok(share_lookup(c, "frame", SHARE_RDONLY, 0, stream, &b));
	child_point(self, "holds it");
	gate_hold(gate, stream);
	check_ok(share_release(b, stream));
	check_ok(share_ping(c));
	child_point(self, "let it go");
	share_host_stream_destroy(stream);
	share_disconnect(c);
}

Test(other_user, who_keeps_memory_back_pays_for_it_and_stops_nobody)
{
	share_buffer *b, *next = NULL;
	struct child *bob;
	share_pool *pool;

	skip_unless_root();
	gate = gate_new();
	b = publish_frame(&pool);
	bob = child_start(bob_keeps, NULL);
	child_wait(bob, "holds it");
	check_eq(used_by(client, 0, "bytes"), FRAME);
	check_eq(used_by(client, BOB, "bytes"), 0);
	/* a name is kept by who has published it */
	check_ok(share_release(b, NULL));
	check_eq(used_by(client, 0, "bytes"), FRAME);
	check_ok(share_unpublish(client, "frame"));
	check_eq(used_by(client, 0, "bytes"), 0);
	check_eq(used_by(client, BOB, "bytes"), FRAME);
	child_go(bob);
	child_wait(bob, "let it go");
	check_eq(used_by(client, BOB, "bytes"), FRAME);
	/* not handed out with a fence that this thread would wait for as long as bob likes */
	check_error(share_alloc(pool, FRAME, NULL, &next), SHARE_EAGAIN);
	check_detail("user 4712's work still runs on 1MiB");
	gate_open(gate);
	until(share_alloc(pool, FRAME, NULL, &next) == SHARE_OK);
	check_eq(used_by(client, 0, "bytes"), FRAME);
	check_eq(used_by(client, BOB, "bytes"), 0);
	check_ok(share_release(next, NULL));
	child_go(bob);
	child_finish(bob);
	share_pool_close(pool);
	gate_free(gate);
}
