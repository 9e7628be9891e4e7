/* SPDX-License-Identifier: MIT */

/* Names of one side appear on the other, whole or not at all, and never silently out of date. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_names, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool is_stale(share_client *c, const char *name, const char *wanted)
{
	char *value = metadata_at(c, name, "stale");
	bool is = value && strcmp(value, wanted) == 0;

	free(value);
	return is;
}

static bool is_there(share_client *c, const char *name)
{
	share_buffer *b;

	if (share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b) != 0)
		return false;
	check_ok(share_release(b, NULL));
	return true;
}

Test(bridge_names, what_was_published_before_and_after_the_link_arrives)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w/before", 100000, 1);
	content_publish(s.far, "other", 10, 2);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "w/*"));
	until(content_at(s.near, "w/before", 100000, 1));
	content_publish(s.far, "w/after", 1, 3);
	until(content_at(s.near, "w/after", 1, 3));
	check(!is_there(s.near, "other"));
	sides_end(&s);
}

Test(bridge_names, a_new_version_takes_the_place_of_the_old_one_whose_readers_keep_it)
{
	struct sides s;
	share_buffer *old;

	sides_begin(&s);
	content_publish(s.far, "w", 70000, 1);
	far_start(&s, OPTIONS("--export", "w"));
	near_start(&s, OPTIONS("--import", "*"));
	until(content_at(s.near, "w", 70000, 1));
	check_ok(share_lookup(s.near, "w", SHARE_RDONLY, 0, NULL, &old));
	content_publish(s.far, "w", 5, 2);
	until(content_at(s.near, "w", 5, 2));
	check(content_is(old, 1));
	check_ok(share_release(old, NULL));
	sides_end(&s);
}

Test(bridge_names, what_is_gone_over_there_is_gone_here)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w", 8, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	until(is_there(s.near, "w"));
	check_ok(share_unpublish(s.far, "w"));
	until(!is_there(s.near, "w"));
	sides_end(&s);
}

Test(bridge_names, metadata_and_tensor_come_with_it_and_where_it_came_from)
{
	static const int64_t shape[] = {3, 4};
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_tensor tensor = SHARE_TENSOR_INIT, got = SHARE_TENSOR_INIT;
	struct sides s;
	share_pool *pool;
	share_buffer *b;
	char *text;

	sides_begin(&s);
	pool = open_pool(s.far);
	b = allocate(pool, 48, NULL);
	check_ok(share_metadata_set(b, "{\"layer\": 7}"));
	check_ok(share_tensor_init(&tensor, SHARE_FLOAT32, 2, shape));
	options.tensor = &tensor;
	check_ok(share_publish_with(b, "w", &options, NULL, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*", "--prefix", "from/far/"));
	until(is_there(s.near, "from/far/w"));
	check_ok(share_lookup(s.near, "from/far/w", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_tensor_get(b, &got));
	check_eq(got.dtype, SHARE_FLOAT32);
	check(got.ndim == 2 && got.shape[0] == 3 && got.shape[1] == 4);
	check_ok(share_metadata_get(b, &text));
	check(strstr(text, "\"layer\":7") && strstr(text, "\"path\":[\"far\"]"));
	free(text);
	check_ok(share_release(b, NULL));
	sides_end(&s);
}

static void publish_with(share_client *c, const char *name, const char *metadata)
{
	share_pool *pool = open_pool(c);
	share_buffer *b = allocate(pool, 1, NULL);

	check_ok(share_metadata_set(b, metadata));
	check_ok(share_publish(b, name, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
}

/* @text: @first, then as often as there is room @again, then @last. */
static void fill(char text[SHARE_METADATA_MAX + 1], const char *first, const char *again,
		 const char *last)
{
	size_t n = strlen(first), end = SHARE_METADATA_MAX - strlen(last);

	memcpy(text, first, n);
	for (; n + strlen(again) <= end; n += strlen(again))
		memcpy(text + n, again, strlen(again));
	strcpy(text + n, last);
}

/* Everybody who may publish what is exported can say anything there. */
Test(bridge_names, metadata_that_looks_as_if_a_bridge_had_set_it_does_the_link_no_harm)
{
	static char text[SHARE_METADATA_MAX + 1];
	struct sides s;

	sides_begin(&s);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	publish_with(s.far, "a", "{\"bridge\": {\"path\": [1, \"\", \"x/y\", null]}}");
	publish_with(s.far, "b", "{\"bridge\": [7]}");
	until(is_there(s.near, "a") && is_there(s.near, "b"));
	/* it has come by many sites; and what is longer when it is written than it was */
	fill(text, "{\"bridge\": {\"path\": [\"a\"", ",\"a\"", "]}}");
	publish_with(s.far, "c", text);
	fill(text, "[1e99", ",1e99", "]");
	publish_with(s.far, "d", text);
	content_publish(s.far, "e", 10, 1);
	until(content_at(s.near, "e", 10, 1));
	check(!is_there(s.near, "c") && !is_there(s.near, "d"));
	check_eq(bridge_said(&s.near_bridge, "is lost"), 0);
	check_eq(bridge_said(&s.far_bridge, "is lost"), 0);
	sides_end(&s);
}

Test(bridge_names, nothing_goes_round_in_circles)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w", 8, 1);
	far_start(&s, OPTIONS("--export", "*", "--import", "*", "--prefix", "back/"));
	near_start(&s, OPTIONS("--export", "*", "--import", "*", "--prefix", "there/"));
	until(content_at(s.near, "there/w", 8, 1));
	content_publish(s.near, "mine", 8, 2);
	until(content_at(s.far, "back/mine", 8, 2));
	/* Had it gone back, it would have done so before this. */
	content_publish(s.near, "later", 8, 3);
	until(content_at(s.far, "back/later", 8, 3));
	check(!is_there(s.far, "back/there/w"));
	check(!is_there(s.near, "there/back/mine"));
	sides_end(&s);
}

Test(bridge_names, names_of_a_lost_link_are_stale_and_fresh_again_when_it_is_back)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w", 5000, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	until(content_at(s.near, "w", 5000, 1));
	check(is_stale(s.near, "w", "false"));
	bridge_kill(&s.far_bridge);
	until(is_stale(s.near, "w", "true"));
	check(content_at(s.near, "w", 5000, 1));
	far_start(&s, OPTIONS("--export", "*"));
	until(is_stale(s.near, "w", "false"));
	sides_end(&s);
}

Test(bridge_names, names_of_a_link_that_stays_lost_are_withdrawn)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w", 5000, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*", "--grace", "0.2"));
	until(content_at(s.near, "w", 5000, 1));
	bridge_kill(&s.far_bridge);
	until(!is_there(s.near, "w"));
	sides_end(&s);
}

Test(bridge_names, what_was_replaced_while_the_link_was_lost_is_replaced_when_it_is_back)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w", 5000, 1);
	content_publish(s.far, "x", 5000, 2);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*", "--timeout", "0.4"));
	until(content_at(s.near, "w", 5000, 1) && content_at(s.near, "x", 5000, 2));
	/* It hangs, and the sockets stay open. */
	check(kill(s.far_bridge.pid, SIGSTOP) == 0);
	until(is_stale(s.near, "w", "true"));
	content_publish(s.far, "w", 6000, 3);
	check_ok(share_unpublish(s.far, "x"));
	check(kill(s.far_bridge.pid, SIGCONT) == 0);
	until(content_at(s.near, "w", 6000, 3) && is_stale(s.near, "w", "false"));
	until(!is_there(s.near, "x"));
	sides_end(&s);
}

Test(bridge_names, a_name_that_somebody_has_here_is_left_alone)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.near, "w", 8, 9);
	content_publish(s.far, "w", 8, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	until(bridge_said(&s.near_bridge, "'w' of far is not published here") == 1);
	check(content_at(s.near, "w", 8, 9));
	sides_end(&s);
}

Test(bridge_names, on_demand_a_name_comes_when_somebody_waits_for_it)
{
	struct sides s;
	share_buffer *b;

	sides_begin(&s);
	content_publish(s.far, "w/1", 8, 1);
	content_publish(s.far, "w/2", 8, 2);
	content_publish(s.far, "eager", 8, 3);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "w/*=demand", "--import", "*"));
	until(content_at(s.near, "eager", 8, 3));
	check(!is_there(s.near, "w/1"));
	check_ok(share_lookup(s.near, "w/1", SHARE_RDONLY, HARNESS_LIMIT_MS, NULL, &b));
	check(content_is(b, 1));
	check_ok(share_release(b, NULL));
	check(!is_there(s.near, "w/2"));
	content_publish(s.far, "w/1", 8, 4);
	until(content_at(s.near, "w/1", 8, 4));
	sides_end(&s);
}

Test(bridge_names, many_and_large_ones_arrive_whole_while_they_are_replaced)
{
	struct sides s;
	char name[16];

	sides_begin(&s);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	for (unsigned round = 0; round < 5; round++)
		for (unsigned i = 0; i < 40; i++) {
			snprintf(name, sizeof(name), "n%u", i);
			content_publish(s.far, name, 1 + i * 20011, round * 100 + i);
		}
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		until(content_at(s.near, name, 1 + i * 20011, 400 + i));
	}
	sides_end(&s);
}

Test(bridge_names, sharectl_shows_the_link_on_both_sides)
{
	struct sides s;

	sides_begin(&s);
	content_publish(s.far, "w/1", 100000, 1);
	content_publish(s.far, "w/2", 100000, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	until(sharectl_bridges_say(s.near, "--json", "\"peer\":\"far\""));
	until(sharectl_bridges_say(s.near, "--json", "\"names\":2,\"stale\":0,\"coming\":0"));
	until(sharectl_bridges_say(s.near, "--json", "\"bytes_in\":200000"));
	until(sharectl_bridges_say(s.far, "--json", "\"bytes_out\":200000"));
	check(sharectl_bridges_say(s.near, "", "STALE"));
	bridge_kill(&s.far_bridge);
	until(sharectl_bridges_say(s.near, "--json", "\"names\":2,\"stale\":2"));
	sides_end(&s);
}

Test(bridge_names, the_end_of_a_bridge_takes_its_names_and_memory_with_it)
{
	struct sides s;
	struct status now;

	sides_begin(&s);
	content_publish(s.far, "w", 100000, 1);
	far_start(&s, OPTIONS("--export", "*"));
	near_start(&s, OPTIONS("--import", "*"));
	until(content_at(s.near, "w", 100000, 1));
	bridge_kill(&s.near_bridge);
	until(!is_there(s.near, "w"));
	until((status_read(s.near, &now), now.buffers == 0 && now.leases == 0 && now.names == 0));
	sides_end(&s);
}

/* Both sides say what there is and what is not, in the log and in reports. */
Test(bridge_names, a_peer_that_is_not_there_is_told_of_and_tried_again)
{
	struct sides s;

	sides_begin(&s);
	near_start(&s, OPTIONS("--import", "*"));
	until(bridge_said(&s.near_bridge, "Connection refused; it is tried again") == 1);
	until(sharectl_bridges_say(s.near, "--no-headings", "Connection refused"));
	far_start(&s, OPTIONS("--export", "*"));
	until(sharectl_bridges_say(s.far, "--no-headings", "near"));
	check_eq(bridge_said(&s.near_bridge, "Connection refused"), 1);
	until(!sharectl_bridges_say(s.near, "--no-headings", "Connection refused"));

	bridge_kill(&s.near_bridge);
	until(sharectl_bridges_say(s.far, "--no-headings", " no "));
	check(sharectl_bridges_say(s.far, "--no-headings", "near"));
	sides_end(&s);
}

/* A bridge without a link is there, too. */
Test(bridge_names, a_bridge_that_nobody_has_connected_to_is_shown)
{
	struct sides s;

	sides_begin(&s);
	far_start(&s, OPTIONS("--export", "*"));
	until(sharectl_bridges_say(s.far, "--no-headings", "far "));
	sides_end(&s);
}
