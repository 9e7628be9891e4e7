/* SPDX-License-Identifier: MIT */

/*
 * The thread that asks the broker. It is an ordinary client that holds nothing: it connects when it
 * is first asked for something, and again whenever the connection was lost. While the broker hangs,
 * this thread waits for it a little shorter than those who ask here, so that they are told who
 * hangs.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <share/share.h>

#include "tools/exporter/view.h"
#include "tools/metrics.h"
#include "tools/snapshot.h"
#include "tools/value.h"

struct viewer {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool wanted[VIEWS], ready[VIEWS];
	struct body bodies[VIEWS];
	bool busy, ends;
	/* of the thread alone */
	const char *address;
	share_client *client;
	bool lost; /* the broker did not answer the last time, which was said */
	void (*on_ready)(void *data);
	void *data;
};

/* Less than WAIT_SECONDS of site.c. */
#define TIMEOUT_MS 4000

#define WHY_MAX 1024 /* as much as libshare says */

/* For the page. A million buffers are more than anybody can look at. */
static const struct snapshot_report state_reports[] = {
    {"status", 0},     {"pools", 256}, {"segments", 2048}, {"buffers", 4096},
    {"clients", 1024}, {"agents", 0},  {"channels", 256},  {"requests", 0},
};

/* ------------------------------------------------------------------------------------------- */
/* Bodies                                                                                      */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* @snapshot NULL: there is none. */
static struct body print_metrics(const json_t *snapshot)
{
	struct body body = {.up = snapshot != NULL};
	FILE *out = open_memstream(&body.bytes, &body.size);

	if (!out)
		return body;
	metrics_print_flag(out, "share_up", "1 when the broker has answered.", body.up);
	if (snapshot)
		metrics_print(out, snapshot, now());
	metrics_print_end(out);
	if (fclose(out) != 0) {
		free(body.bytes);
		body.bytes = NULL;
	}
	return body;
}

/* Rows with a uid get the user's name, as people know it. */
static void name_users(json_t *rows)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		char *name = show_user(row, "uid", true);

		if (name && json_object_get(row, "uid"))
			json_object_set_new(row, "user", json_string(name));
		free(name);
		name_users(json_object_get(row, "users"));
	}
}

static struct body print_state(json_t *state, bool up)
{
	struct body body = {.up = up};

	name_users(json_object_get(state, "clients"));
	name_users(json_object_get(state, "pools"));
	json_object_set_new(state, "now", json_real(now()));
	body.bytes = json_dumps(state, JSON_COMPACT);
	body.size = body.bytes ? strlen(body.bytes) : 0;
	return body;
}

struct body view_without_broker(enum view view, const char *why)
{
	struct body body;
	json_t *state;

	if (view == VIEW_METRICS)
		return print_metrics(NULL);
	state = json_pack("{s:s}", "error", why);
	body = print_state(state, false);
	json_decref(state);
	return body;
}

/* ------------------------------------------------------------------------------------------- */
/* The thread                                                                                  */

static int connect_to_broker(struct viewer *v)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;

	if (v->client)
		return 0;
	options.label = "share-exporter";
	options.flags = SHARE_CONNECT_OPERATOR;
	options.timeout_ms = TIMEOUT_MS;
	return share_connect_with(v->address, &options, &v->client);
}

/* @why: in words, if that fails. */
static int take_snapshot(struct viewer *v, enum view view, json_t **out, char why[static WHY_MAX])
{
	int r = connect_to_broker(v);

	if (r == 0 && view == VIEW_METRICS)
		r = snapshot_take(v->client, metrics_reports, metrics_n_reports, out);
	else if (r == 0)
		r = snapshot_take(v->client, state_reports,
				  sizeof(state_reports) / sizeof(state_reports[0]), out);
	if (r != 0) {
		snprintf(why, WHY_MAX, "%s", r < 0 ? share_error_detail() : strerror(r));
		share_disconnect(v->client);
		v->client = NULL;
	}
	return r;
}

static struct body make_body(struct viewer *v, enum view view)
{
	bool was_connected = v->client != NULL;
	json_t *snapshot = NULL;
	struct body body;
	char why[WHY_MAX];
	int r = take_snapshot(v, view, &snapshot, why);

	/* the broker may have been started again since the last time */
	if (r != 0 && r != SHARE_ETIMEDOUT && was_connected)
		r = take_snapshot(v, view, &snapshot, why);
	if (r != 0) {
		if (!v->lost)
			fprintf(stderr, "share-exporter: %s\n", why);
		v->lost = true;
		return view_without_broker(view, why);
	}
	if (v->lost)
		fputs("share-exporter: the broker answers again\n", stderr);
	v->lost = false;
	body = view == VIEW_METRICS ? print_metrics(snapshot) : print_state(snapshot, true);
	json_decref(snapshot);
	return body;
}

/* Needs the lock. */
static bool find_wanted(const struct viewer *v, enum view *out)
{
	for (int view = 0; view < VIEWS; view++) {
		if (v->wanted[view]) {
			*out = (enum view)view;
			return true;
		}
	}
	return false;
}

static void *run(void *data)
{
	struct viewer *v = data;
	struct body body;
	enum view view;

	pthread_mutex_lock(&v->lock);
	while (!v->ends) {
		if (!find_wanted(v, &view)) {
			pthread_cond_wait(&v->changed, &v->lock);
			continue;
		}
		v->busy = true;
		pthread_mutex_unlock(&v->lock);
		body = make_body(v, view);
		pthread_mutex_lock(&v->lock);
		v->busy = false;
		v->wanted[view] = false;
		if (v->ready[view])
			free(v->bodies[view].bytes);
		v->ready[view] = true;
		v->bodies[view] = body;
		v->on_ready(v->data);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */

struct viewer *viewer_new(const char *address, void (*ready)(void *data), void *data)
{
	struct viewer *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->address = address;
	v->on_ready = ready;
	v->data = data;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
	if (pthread_create(&v->thread, NULL, run, v) == 0)
		return v;
	free(v);
	return NULL;
}

void view_want(struct viewer *v, enum view view)
{
	pthread_mutex_lock(&v->lock);
	v->wanted[view] = true;
	pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

bool view_take(struct viewer *v, enum view view, struct body *out)
{
	bool ready;

	pthread_mutex_lock(&v->lock);
	ready = v->ready[view];
	if (ready)
		*out = v->bodies[view];
	v->ready[view] = false;
	pthread_mutex_unlock(&v->lock);
	return ready;
}

bool viewer_free(struct viewer *v)
{
	bool busy;

	pthread_mutex_lock(&v->lock);
	v->ends = true;
	busy = v->busy;
	pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->lock);
	if (busy)
		return false;
	pthread_join(v->thread, NULL);
	share_disconnect(v->client);
	for (int view = 0; view < VIEWS; view++)
		if (v->ready[view])
			free(v->bodies[view].bytes);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
	free(v);
	return true;
}
