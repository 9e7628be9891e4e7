/* SPDX-License-Identifier: MIT */

/*
 * The scenario. It uses no memory of its own beyond the stack, so that what fails fails in the
 * library (or in the broker).
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/share.h>

#include "tests/harness/check.h"
#include "tests/themes/failure/scenario.h"
#include "tests/themes/failure/scenario_try.h"

static int failures, disconnects;
static int elsewhere; /* the error there */

void scenario_fails_elsewhere(int error)
{
	elsewhere = error;
}

/* What failed elsewhere is told as what it was. */
static bool says_why(const char *detail)
{
	return strstr(detail, strerror(elsewhere)) ||
	       (elsewhere == ENOMEM && strstr(detail, "out of memory")) ||
	       (elsewhere == EMFILE && strstr(detail, "has no descriptor left"));
}

void scenario_begin(void)
{
	failures = disconnects = 0;
}

int scenario_failures(void)
{
	return failures;
}

int scenario_disconnects(void)
{
	return disconnects;
}

void check_clean(const char *what, int r, int also)
{
	if (r != SHARE_ENOMEM && r != SHARE_ESYSTEM && r != SHARE_EDISCONNECTED && r != also)
		check_failed(__FILE__, __LINE__, "%s fails with %s: %s", what, share_error_name(r),
			     share_error_detail());
	if (share_error_detail()[0] == '\0')
		check_failed(__FILE__, __LINE__, "%s fails without a word", what);
	if (elsewhere && r == SHARE_ESYSTEM && !says_why(share_error_detail()))
		check_failed(__FILE__, __LINE__, "%s fails with '%s', which is not what failed",
			     what, share_error_detail());
	/* what did not come in time may only be late */
	failures += r != SHARE_ETIMEDOUT;
	disconnects += r == SHARE_EDISCONNECTED;
}

bool tried(const char *what, int r, int also)
{
	if (r < 0)
		check_clean(what, r, also);
	return r >= 0;
}

/*
 * jansson without memory says that the text is wrong, most of the time ("invalid token"), and
 * nobody can tell. So what the library reads with it may say so too.
 */
#define try_json(call)   try_or(elsewhere ? 0 : SHARE_EINVAL, call)
#define try_report(call) try_or(elsewhere ? 0 : SHARE_EPROTO, call)

/* ------------------------------------------------------------------------------------------- */

struct watched {
	int changes, overflows;
};

static void on_change(const share_name_event *event, void *data)
{
	struct watched *w = data;

	if (event->change == SHARE_OVERFLOW)
		w->overflows++;
	else
		w->changes++;
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	*(int *)data = 1;
	check((b != NULL) == (error == 0));
	if (b)
		try(share_release(b, NULL));
	else
		check(error == SHARE_ENOMEM || error == SHARE_ESYSTEM ||
		      error == SHARE_EDISCONNECTED);
}

static int on_name(const share_name_info *info, void *data)
{
	check(info->name[0] != '\0');
	++*(int *)data;
	return 0;
}

static int on_row(const char *json, void *data)
{
	check(json[0] == '{');
	++*(int *)data;
	return 0;
}

static void add_one(void *data)
{
	++*(int *)data;
}

/* ------------------------------------------------------------------------------------------- */

static void use_metadata(share_buffer *b)
{
	static const int64_t shape[] = {4, 4};
	share_tensor t = SHARE_TENSOR_INIT, got = SHARE_TENSOR_INIT;
	char *text = NULL;

	if (try_json(share_metadata_set(b, "{\"key\": [1, 2, 3]}"))) {
		if (try(share_metadata_get(b, &text)))
			free(text);
		else
			check(text == NULL);
	}
	check_ok(share_tensor_init(&t, SHARE_UINT8, 2, shape));
	if (try_json(share_tensor_set(b, &t)) && try(share_tensor_get(b, &got)))
		check_eq(got.shape[1], 4);
}

/* As if it were not host memory. */
static void use_copies(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_recipe recipe = SHARE_RECIPE_INIT;
	char text[8] = "";

	if (try(share_copy_from_host(b, 100, "copied", 7, NULL)) &&
	    try(share_copy_to_host(b, 100, text, 7, NULL)))
		check(strcmp(text, "copied") == 0);
	check_ok(share_buffer_get_info(b, &info));
	if (try(share_get_recipe(b, &recipe))) {
		check_eq(recipe.offset, info.offset);
		close(recipe.fd);
	} else {
		check(recipe.fd == -1);
	}
}

/* The tensor that came along is here, or the handle is not. */
static void release_described(share_buffer *v, void *stream)
{
	share_tensor t = SHARE_TENSOR_INIT;

	check_ok(share_tensor_get(v, &t));
	check_eq(t.shape[1], 4);
	try(share_release(v, stream));
}

/* True when "scenario/name" leads to it. */
static bool hand_over(share_client *c, share_buffer *b, void *stream)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_export_options export = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *v = NULL;
	share_token token;
	bool published;
	int n = 0;

	check_ok(share_tensor_init(&t, SHARE_UINT8, 2, (int64_t[]){4, 4}));
	publish.tensor = export.tensor = &t;
	published = try(share_publish_with(b, "scenario/name", &publish, stream, NULL));
	if (published) {
		if (try(share_lookup(c, "scenario/name", SHARE_RDONLY, -1, stream, &v)))
			release_described(v, stream);
		else
			check(v == NULL);
		if (try_report(share_list(c, "scenario/name", on_name, &n)))
			check_eq(n, 1);
	}
	v = NULL;
	if (try(share_export_with(b, &export, stream, &token))) {
		if (try(share_import(c, &token, 0, stream, &v)))
			release_described(v, stream);
		else
			check(v == NULL);
	}
	return published;
}

static void on_reclaim(int status, void *data)
{
	*(int *)data = 1;
	check(status == 0 || status == SHARE_ENOMEM || status == SHARE_ESYSTEM ||
	      status == SHARE_EDISCONNECTED);
}

/* Published, and not any more. */
static void reclaim(share_client *c, share_buffer *b, void *stream)
{
	struct deadline d = deadline_in(HARNESS_LIMIT_MS);
	share_operation *o = NULL, *waiting = NULL;
	int called = 0, never = 0, r = 0;

	if (!try(share_publish(b, "scenario/reclaim", stream)))
		return;
	if (!try(share_reclaim_async(b, stream, on_reclaim, &never, &waiting)))
		check(waiting == NULL);
	share_cancel(waiting);
	check_eq(never, 0);
	if (!try(share_reclaim_async(b, stream, on_reclaim, &called, &o)))
		check(o == NULL);
	if (try(share_unpublish(c, "scenario/reclaim")))
		while (o && !called && (r = share_dispatch(c)) >= 0 && deadline_pause(&d))
			;
	check(!o || called || r < 0 || failures > 0);
	share_cancel(o);
	try_or(SHARE_EBUSY, share_reclaim(b, 0, stream));
}

static void look_up_asynchronously(share_client *c)
{
	struct deadline d = deadline_in(HARNESS_LIMIT_MS);
	share_operation *o = NULL, *waiting = NULL;
	int called = 0, never = 0, r = 0;

	if (!try(share_lookup_async(c, "scenario/async", SHARE_RDONLY, -1, NULL, on_lookup, &never,
				    &waiting)))
		check(waiting == NULL);
	if (try(share_lookup_async(c, "scenario/name", SHARE_RDONLY, 1000, NULL, on_lookup, &called,
				   &o))) {
		while (!called && (r = share_dispatch(c)) >= 0 && deadline_pause(&d))
			;
		check(called || r < 0);
		share_cancel(o);
	}
	share_cancel(waiting);
}

static void watch_names(share_client *c, share_buffer *b)
{
	struct watched seen = {0};
	share_watch *w = NULL;
	int changed = 0, r;

	if (!try(share_watch_names(c, "scenario/", on_change, &seen, &w))) {
		check(w == NULL);
		return;
	}
	for (int i = 0; i < 3; i++)
		changed += try(share_publish(b, "scenario/watched", NULL));
	r = share_dispatch(c);
	/* either all of them, or the word that some are missing */
	if (r >= 0 && seen.changes < changed && seen.overflows == 0)
		check_failed(__FILE__, __LINE__, "%d changes of %d, and no overflow", seen.changes,
			     changed);
	share_unwatch(w);
}

static void use_streams(share_client *c, share_pool *p)
{
	share_host_stream *s = NULL;
	share_buffer *b = NULL;
	share_fence f;
	int n = 0, launched = 0;

	if (!try(share_host_stream_create(c, &s))) {
		check(s == NULL);
		return;
	}
	launched += try(share_host_stream_launch(s, add_one, &n));
	if (try(share_alloc(p, 5000, s, &b))) {
		launched += try(share_host_stream_launch(s, add_one, &n));
		hand_over(c, b, s);
		try(share_release(b, s));
	}
	if (try(share_fence_record(c, -1, s, &f))) {
		try(share_fence_wait(c, &f, -1, s));
		try(share_fence_synchronize(c, &f, -1));
		try(share_fence_query(c, &f));
	}
	check_ok(share_host_stream_synchronize(s));
	check_eq(n, launched);
	share_host_stream_destroy(s);
}

static void use_pool(share_client *c, share_pool *p)
{
	share_buffer *b = NULL;
	int n = 0;

	if (!try(share_alloc(p, 100000, NULL, &b))) {
		check(b == NULL);
		return;
	}
	memset(share_ptr(b), 1, 100000);
	use_metadata(b);
	use_copies(b);
	reclaim(c, b, NULL);
	if (hand_over(c, b, NULL))
		look_up_asynchronously(c);
	watch_names(c, b);
	use_streams(c, p);
	scenario_channels(c, p);
	if (try(share_inspect(c, "buffers", on_row, &n)))
		check(n >= 1);
	try(share_release(b, NULL));
}

int scenario_run(const char *address)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_pool_options small = SHARE_POOL_OPTIONS_INIT;
	share_client *c = NULL;
	share_pool *p = NULL, *q = NULL;

	scenario_begin();
	options.label = "scenario";
	if (!try_or(SHARE_EQUOTA, share_connect_with(address, &options, &c))) {
		check(c == NULL);
		return failures;
	}
	try(share_get_fd(c));
	if (try(share_pool_open(c, "default", &p)))
		use_pool(c, p);
	else
		check(p == NULL);
	small.kind = "host";
	small.limit = 1 << 20;
	small.release_threshold = SHARE_KEEP_NONE;
	small.access = "[{\"user\": 1000, \"mode\": \"rw\"}]";
	if (try_json(share_pool_create(c, "scenario", &small, &q))) {
		share_buffer *b;

		if (try(share_alloc(q, 1000, NULL, &b)))
			try(share_release(b, NULL));
		try(share_ping(c));
	} else {
		check(q == NULL);
	}
	share_pool_close(q);
	share_pool_close(p);
	share_disconnect(c);
	return failures;
}
