/* SPDX-License-Identifier: MIT */

/*
 * Names and tokens from many threads of two clients: whoever looks a name up sees one publication,
 * whole, and never an older one than it saw before.
 */

#include <stdio.h>

#include "tests/themes/threads/threads.h"

#define NAMES 4

static const char *const names[NAMES] = {"one", "two", "three", "four"};
static struct crew crew;

static share_client *client_of(unsigned index)
{
	return index % 2 ? client : second;
}

/* ------------------------------------------------------------------------------------------- */

/* The mark is the name's index and a number that only grows. */
static void publish_one_name(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 1; i <= steps(150); i++) {
		share_buffer *b =
		    marked_buffer(pool, 8 + dice(&state, 8192), (uint64_t)index << 32 | i);

		check_ok(share_publish(b, names[index], NULL));
		check_ok(share_release(b, NULL));
		if (dice(&state, 10) == 0)
			check_ok(share_unpublish(client, names[index]));
	}
	check_one_of(share_unpublish(client, names[index]), SHARE_ENOENT);
	crew_done(&crew);
}

static void read_all_names(void *data, unsigned index)
{
	uint64_t version[NAMES] = {0}, number[NAMES] = {0};
	uint32_t state = index + 1;

	(void)data;
	while (crew_is_busy(&crew)) {
		unsigned at = dice(&state, NAMES);
		share_buffer *b;
		uint64_t value;

		if (check_one_of(
			share_lookup(client_of(index), names[at], SHARE_RDONLY, 0, NULL, &b),
			SHARE_ENOENT) != 0)
			continue;
		value = mark_of(b);
		check_eq(value >> 32, at);
		check((uint32_t)value >= number[at]);
		check(share_name_version(b) >= version[at]);
		check((share_name_version(b) == version[at]) == ((uint32_t)value == number[at]));
		number[at] = (uint32_t)value;
		version[at] = share_name_version(b);
		check_ok(share_release(b, NULL));
	}
}

static void what_is_looked_up_is_whole(void)
{
	start();
	crew = (struct crew){.busy = NAMES};
	crew_add(&crew, NAMES, publish_one_name, NULL);
	crew_add(&crew, 4, read_all_names, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void count_one_up(void *data, unsigned index)
{
	share_client *c = client_of(index);
	share_pool *p;

	(void)data;
	check_ok(share_pool_open(c, "default", &p));
	for (unsigned i = 0; i < steps(30);) {
		share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
		share_buffer *now, *next;

		check_ok(share_lookup(c, "counter", SHARE_RDONLY, -1, NULL, &now));
		next = marked_buffer(p, 64, mark_of(now) + 1);
		options.expected_version = share_name_version(now);
		if (check_one_of(share_publish_with(next, "counter", &options, NULL, NULL),
				 SHARE_EBUSY) == 0)
			i++;
		check_ok(share_release(now, NULL));
		check_ok(share_release(next, NULL));
	}
	share_pool_close(p);
}

static void no_replacement_of_an_expected_version_is_lost(void)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b;

	start();
	b = marked_buffer(pool, 64, 0);
	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "counter", &options, NULL, NULL));
	check_ok(share_release(b, NULL));
	together(4, count_one_up, NULL);
	check_ok(share_lookup(client, "counter", SHARE_RDONLY, 0, NULL, &b));
	check_eq(mark_of(b), 4 * steps(30));
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(client, "counter"));
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void publish_now_and_then(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(100); i++) {
		const char *name = names[dice(&state, NAMES)];
		share_buffer *b = marked_buffer(pool, 64, i);

		check_ok(share_publish(b, name, NULL));
		check_ok(share_release(b, NULL));
		check_one_of(share_unpublish(client, name), SHARE_ENOENT);
	}
	/* at last there for all who have no time limit */
	for (unsigned at = 0; at < NAMES; at++) {
		share_buffer *b = marked_buffer(pool, 64, at);

		check_ok(share_publish(b, names[at], NULL));
		check_ok(share_release(b, NULL));
	}
}

static void wait_for_names(void *data, unsigned index)
{
	static const int limits[] = {0, 1, 3, 20, -1};
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(60); i++) {
		int limit = limits[dice(&state, 5)];
		share_buffer *b;
		int r;

		r = share_lookup(client_of(index), names[dice(&state, NAMES)], SHARE_RDWR, limit,
				 NULL, &b);
		if (limit == 0)
			check_one_of(r, SHARE_ENOENT);
		else if (limit > 0)
			check_one_of(r, SHARE_ETIMEDOUT);
		else
			check_ok(r);
		if (r != 0)
			continue;
		mark_of(b);
		check_ok(share_release(b, NULL));
	}
}

static void a_look_up_waits_as_long_as_it_was_told(void)
{
	start();
	crew = (struct crew){.n = 0};
	crew_add(&crew, 1, publish_now_and_then, NULL);
	crew_add(&crew, 5, wait_for_names, NULL);
	crew_start(&crew);
	crew_join(&crew);
	for (unsigned at = 0; at < NAMES; at++)
		check_ok(share_unpublish(client, names[at]));
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static int in_order(const share_name_info *info, void *data)
{
	char *last = data;

	check(strcmp(info->name, last) > 0);
	strcpy(last, info->name);
	check(info->size == 64);
	return 0;
}

static void list_all(void *data, unsigned index)
{
	(void)data;
	while (crew_is_busy(&crew)) {
		char last[SHARE_NAME_MAX + 1] = "";

		check_ok(share_list(client_of(index), NULL, in_order, last));
	}
}

static void come_and_go(void *data, unsigned index)
{
	uint32_t state = index + 1;
	char name[32];

	(void)data;
	for (unsigned i = 0; i < steps(100); i++) {
		share_buffer *b = marked_buffer(pool, 64, i);

		snprintf(name, sizeof(name), "%u/%u", index, dice(&state, 40));
		check_ok(share_publish(b, name, NULL));
		check_ok(share_release(b, NULL));
		snprintf(name, sizeof(name), "%u/%u", index, dice(&state, 40));
		check_one_of(share_unpublish(client, name), SHARE_ENOENT);
	}
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "%u/%u", index, i);
		check_one_of(share_unpublish(client, name), SHARE_ENOENT);
	}
	crew_done(&crew);
}

static void a_list_is_in_order_whatever_changes_meanwhile(void)
{
	start();
	crew = (struct crew){.busy = 3};
	crew_add(&crew, 3, come_and_go, NULL);
	crew_add(&crew, 2, list_all, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

#define IMPORTERS 5
#define USES      3

static struct {
	share_token token;
	uint64_t value;
	atomic_uint imported;
	bool over;
	pthread_barrier_t made, tried;
} offer;

static void import_what_is_offered(void *data, unsigned index)
{
	share_buffer *b;

	(void)data;
	for (;;) {
		pthread_barrier_wait(&offer.made);
		if (offer.over)
			return;
		if (check_one_of(share_import(client_of(index), &offer.token, 0, NULL, &b),
				 SHARE_ENOENT) == 0) {
			check_eq(mark_of(b), offer.value);
			check_eq(share_mode(b), SHARE_RDONLY);
			check_ok(share_release(b, NULL));
			atomic_fetch_add(&offer.imported, 1);
		}
		pthread_barrier_wait(&offer.tried);
	}
}

static void make_offers(void *data, unsigned index)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	unsigned n;

	(void)data, (void)index;
	options.uses = USES;
	for (unsigned i = 0; i < steps(80); i++) {
		share_buffer *b = marked_buffer(pool, 4096, i);

		check_ok(share_export_with(b, &options, NULL, &offer.token));
		check_ok(share_release(b, NULL));
		offer.value = i;
		offer.imported = 0;
		pthread_barrier_wait(&offer.made);
		/* every other one is taken back while they are at it */
		if (i % 2)
			check_one_of(share_revoke(client, &offer.token), SHARE_ENOENT);
		pthread_barrier_wait(&offer.tried);
		n = atomic_load(&offer.imported);
		check(i % 2 ? n <= USES : n == USES);
	}
	offer.over = true;
	pthread_barrier_wait(&offer.made);
}

static void a_token_serves_as_often_as_it_says(void)
{
	start();
	pthread_barrier_init(&offer.made, NULL, IMPORTERS + 1);
	pthread_barrier_init(&offer.tried, NULL, IMPORTERS + 1);
	crew = (struct crew){.n = 0};
	crew_add(&crew, 1, make_offers, NULL);
	crew_add(&crew, IMPORTERS, import_what_is_offered, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(what_is_looked_up_is_whole),
	    TEST(no_replacement_of_an_expected_version_is_lost),
	    TEST(a_look_up_waits_as_long_as_it_was_told),
	    TEST(a_list_is_in_order_whatever_changes_meanwhile),
	    TEST(a_token_serves_as_often_as_it_says),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
