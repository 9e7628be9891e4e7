/* SPDX-License-Identifier: MIT */

/* Names: published, looked up now or later, replaced without a gap, listed. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(name, .init = start, .fini = stop, .timeout = 60);

static share_buffer *publish(const char *name, int value)
{
	share_buffer *b = allocate(pool, 4096, NULL);

	memset(share_ptr(b), value, 4096);
	check_ok(share_publish(b, name, NULL));
	return b;
}

static share_buffer *look_up(const char *name)
{
	share_buffer *b;

	check_ok(share_lookup(client, name, SHARE_RDONLY, 0, NULL, &b));
	return b;
}

/* ------------------------------------------------------------------------------------------- */
/* Looking up                                                                                  */

Test(name, that_nobody_published_is_not_there)
{
	share_buffer *b = NULL;

	check_error(share_lookup(client, "nothing", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
	check_detail("nothing");
	check_error(share_lookup(client, "nothing", SHARE_RDONLY, 10, NULL, &b), SHARE_ETIMEDOUT);
	check_error(share_unpublish(client, "nothing"), SHARE_ENOENT);
	check(b == NULL);
}

static void looks_up_before_it_is_there(struct child *self, void *data)
{
	share_client *c = child_connect("patient one");
	share_buffer *b;

	child_point(self, "asking");
	check_ok(share_lookup(c, "later", SHARE_RDONLY, *(int *)data, NULL, &b));
	expect_filled(share_ptr(b), 9, 4096);
	check(share_name_version(b) > 0);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(name, that_comes_later_ends_the_wait_of_all)
{
	static int limits[] = {SHARE_WAIT_FOREVER, HARNESS_LIMIT_MS};
	struct child *children[4];
	share_buffer *b;

	for (int i = 0; i < 4; i++) {
		children[i] = child_start(looks_up_before_it_is_there, &limits[i % 2]);
		child_wait(children[i], "asking");
		child_go(children[i]);
	}
	settle(client, s.clients == 5);
	b = publish("later", 9);
	for (int i = 0; i < 4; i++)
		child_finish(children[i]);
	check_ok(share_release(b, NULL));
}

Test(name, holds_a_reference_of_its_own)
{
	share_buffer *b = publish("name", 3), *v;
	uint64_t id = share_id(b);

	check_ok(share_release(b, NULL));
	settle(client, s.leases == 0 && s.buffers == 1 && s.names == 1);
	v = look_up("name");
	check_eq(share_id(v), id);
	expect_filled(share_ptr(v), 3, 4096);
	check_ok(share_release(v, NULL));
	check_ok(share_unpublish(client, "name"));
	settle(client, s.buffers == 0 && s.names == 0);
}

Test(name, of_any_characters_but_control_characters)
{
	char longest[SHARE_NAME_MAX + 2];
	share_buffer *b = allocate(pool, 1, NULL), *v;

	memset(longest, 'x', sizeof(longest));
	longest[SHARE_NAME_MAX] = '\0';
	check_ok(share_publish(b, longest, NULL));
	check_ok(share_publish(b, "K\xc3\xb6ln/\xe2\x82\xac \"\\%s", NULL));
	v = look_up("K\xc3\xb6ln/\xe2\x82\xac \"\\%s");
	check_ok(share_release(v, NULL));
	v = look_up(longest);
	check_ok(share_release(v, NULL));
	longest[SHARE_NAME_MAX] = 'x';
	longest[SHARE_NAME_MAX + 1] = '\0';
	check_error(share_publish(b, longest, NULL), SHARE_EINVAL);
	check_error(share_publish(b, "", NULL), SHARE_EINVAL);
	check_error(share_publish(b, NULL, NULL), SHARE_EINVAL);
	check_error(share_publish(b, "a\nb", NULL), SHARE_EINVAL);
	check_error(share_publish(b, "\xff", NULL), SHARE_EINVAL);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Modes                                                                                       */

Test(name, published_for_reading_cannot_be_had_for_writing)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 1, NULL), *v = NULL, *r;

	options.mode = SHARE_RDONLY;
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	check_error(share_lookup(client, "name", SHARE_RDWR, 0, NULL, &v), SHARE_EACCES);
	check(v == NULL);
	r = look_up("name");
	/* and whoever reads cannot give more than that */
	check_ok(share_publish(r, "second", NULL));
	check_error(share_lookup(client, "second", SHARE_RDWR, 0, NULL, &v), SHARE_EACCES);
	check_error(share_lookup(client, "name", 2, 0, NULL, &v), SHARE_EINVAL);
	check_error(share_lookup(client, "name", 0, 0, NULL, &v), SHARE_EINVAL);
	options.mode = 2;
	check_error(share_publish_with(b, "name", &options, NULL, NULL), SHARE_EINVAL);
	check_ok(share_release(r, NULL));
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Replacing                                                                                   */

Test(name, versions_grow_over_all_names)
{
	share_buffer *b = allocate(pool, 1, NULL), *v;
	uint64_t last = 0, version = 0;

	for (int i = 0; i < 20; i++) {
		check_ok(share_publish_with(b, i % 2 ? "odd" : "even", NULL, NULL, &version));
		check(version > last);
		last = version;
	}
	v = look_up("odd");
	check_eq(share_name_version(v), last);
	check_ok(share_release(v, NULL));
	check_ok(share_unpublish(client, "odd"));
	check_ok(share_publish_with(b, "odd", NULL, NULL, &version));
	check(version > last);
	check_ok(share_release(b, NULL));
}

Test(name, holders_of_the_old_buffer_keep_it_when_a_name_is_replaced)
{
	share_buffer *first = publish("name", 1), *old = look_up("name"), *second, *now;

	check_ok(share_release(first, NULL));
	second = publish("name", 2);
	now = look_up("name");
	check(share_id(old) != share_id(now));
	expect_filled(share_ptr(old), 1, 4096);
	expect_filled(share_ptr(now), 2, 4096);
	check(share_name_version(now) > share_name_version(old));
	check_ok(share_release(old, NULL));
	settle(client, s.buffers == 1);
	check_ok(share_release(now, NULL));
	check_ok(share_release(second, NULL));
}

struct reading {
	volatile int stop;
	volatile unsigned seen;
};

static void reads_all_the_time(struct child *self, void *data)
{
	struct reading *reading = data;
	share_client *c = child_connect("reader");
	uint64_t last = 0;

	child_point(self, "reading");
	while (!reading->stop) {
		share_buffer *b;

		/* never ENOENT: there is no moment without the name */
		check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
		check(share_name_version(b) >= last);
		last = share_name_version(b);
		expect_filled(share_ptr(b), *(unsigned char *)share_ptr(b), 4096);
		check_ok(share_release(b, NULL));
		reading->seen++;
	}
	share_disconnect(c);
}

Test(name, replacing_has_no_gap_for_a_reader)
{
	struct gate *page = gate_new(); /* a page of memory shared with the child */
	struct reading *reading = (struct reading *)(void *)page;
	share_buffer *b = publish("name", 0);
	struct child *child;

	check_ok(share_release(b, NULL));
	child = child_start(reads_all_the_time, reading);
	child_wait(child, "reading");
	child_go(child);
	for (int i = 0; i < 2000 || reading->seen < 500; i++)
		check_ok(share_release(publish("name", i), NULL));
	reading->stop = 1;
	child_finish(child);
	check_ok(share_unpublish(client, "name"));
	settle(client, s.buffers == 0);
	gate_free(page);
}

Test(name, exclusive_publishing_replaces_nothing)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *a = allocate(pool, 1, NULL), *b = allocate(pool, 1, NULL), *v;
	uint64_t version = 77;

	options.flags = SHARE_PUBLISH_EXCLUSIVE;
	check_ok(share_publish_with(a, "name", &options, NULL, NULL));
	check_error(share_publish_with(b, "name", &options, NULL, &version), SHARE_EEXIST);
	check_eq(version, 77);
	v = look_up("name");
	check_eq(share_id(v), share_id(a));
	check_ok(share_release(v, NULL));
	check_ok(share_unpublish(client, "name"));
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	options.flags = 1 << 7;
	check_error(share_publish_with(b, "name", &options, NULL, NULL), SHARE_EINVAL);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
}

Test(name, is_replaced_at_the_expected_version_only)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 1, NULL);
	uint64_t first, second;

	options.expected_version = 1;
	check_error(share_publish_with(b, "name", &options, NULL, NULL), SHARE_EBUSY);
	check_ok(share_publish_with(b, "name", NULL, NULL, &first));
	options.expected_version = first;
	check_ok(share_publish_with(b, "name", &options, NULL, &second));
	check_error(share_publish_with(b, "name", &options, NULL, NULL), SHARE_EBUSY);
	options.expected_version = second;
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* How long a name lasts                                                                       */

Test(name, goes_with_the_connection_that_published_it)
{
	share_client *other = connect_as("leaving one");
	share_pool *p = open_pool(other);
	share_buffer *b = allocate(p, 1, NULL), *none = NULL;

	check_ok(share_publish(b, "name", NULL));
	share_pool_close(p);
	check_ok(share_release(b, NULL));
	share_disconnect(other);
	check_error(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &none), SHARE_ENOENT);
	settle(client, s.buffers == 0);
}

Test(name, that_is_persistent_stays_until_it_is_unpublished)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_client *other = connect_as("leaving one");
	share_pool *p = open_pool(other);
	share_buffer *b = allocate(p, 1, NULL);

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	share_pool_close(p);
	check_ok(share_release(b, NULL));
	share_disconnect(other);
	check_ok(share_release(look_up("name"), NULL));
	/* replaced by one that is not, it is like any other */
	b = allocate(pool, 1, NULL);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
}

Test(name, belongs_to_the_connection_that_published_last)
{
	share_client *other = connect_as("leaving one");
	share_pool *p = open_pool(other);
	share_buffer *b = publish("name", 1), *c = allocate(p, 1, NULL), *v;

	check_ok(share_publish(c, "name", NULL));
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(c, NULL));
	share_pool_close(p);
	share_disconnect(other);
	v = look_up("name");
	check_eq(share_id(v), share_id(b));
	check_ok(share_release(v, NULL));
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Listing                                                                                     */

#define THOUSANDS 5000

struct seen {
	int n;
	int stop_after;
	char last[SHARE_NAME_MAX + 1];
	const char *prefix;
};

static int count(const share_name_info *info, void *data)
{
	struct seen *seen = data;

	check(strcmp(info->name, seen->last) > 0); /* in order, and none twice */
	strcpy(seen->last, info->name);
	check(strncmp(info->name, seen->prefix, strlen(seen->prefix)) == 0);
	check(strcmp(info->pool, "default") == 0);
	check(info->version > 0 && info->buffer != 0 && info->size == 10);
	return ++seen->n == seen->stop_after ? 1234 : 0;
}

static int list(const char *prefix, int stop_after, int *n)
{
	struct seen seen = {.prefix = prefix, .stop_after = stop_after};
	int r = share_list(client, prefix, count, &seen);

	*n = seen.n;
	return r;
}

Test(name, thousands_are_listed_in_order_over_several_pages)
{
	share_buffer *b = allocate(pool, 10, NULL);
	char name[200];
	int n;

	for (int i = 0; i < THOUSANDS; i++) {
		/* long ones, so that a page holds few */
		snprintf(name, sizeof(name), "%s/%0100d", i % 5 ? "many" : "few", i);
		check_ok(share_publish(b, name, NULL));
	}
	check_ok(list("", 0, &n));
	check_eq(n, THOUSANDS);
	check_ok(list("few/", 0, &n));
	check_eq(n, THOUSANDS / 5);
	check_ok(list("many/000", 0, &n));
	check_eq(n, THOUSANDS / 5 * 4);
	check_ok(list("zzz", 0, &n));
	check_eq(n, 0);
	snprintf(name, sizeof(name), "few/%0100d", 0);
	check_ok(list(name, 0, &n));
	check_eq(n, 1);
	check_eq(list("many", 700, &n), 1234);
	check_eq(n, 700);
	check_ok(share_release(b, NULL));
}

static int look_at(const share_name_info *info, void *data)
{
	*(share_name_info *)data = *info;
	return 0;
}

Test(name, a_list_says_what_a_name_leads_to)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 4711, NULL);
	share_name_info info = {0};
	uint64_t version;

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "name", &options, NULL, &version));
	check_ok(share_list(client, NULL, look_at, &info));
	check_eq(info.version, version);
	check_eq(info.buffer, share_id(b));
	check_eq(info.size, 4711);
	check_eq(info.persistent, 1);
	check_eq(info.uid, geteuid());
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
}

static int publish_more(const share_name_info *info, void *data)
{
	(void)info;
	check_ok(share_publish(data, "a name from the callback", NULL));
	check_ok(share_ping(client));
	return 0;
}

Test(name, callbacks_of_a_list_may_call_the_library)
{
	share_buffer *b = publish("name", 1);

	check_ok(share_list(client, "name", publish_more, b));
	check_ok(share_release(look_up("a name from the callback"), NULL));
	check_ok(share_release(b, NULL));
}
