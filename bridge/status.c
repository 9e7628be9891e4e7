/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>

#include "bridge/bridge.h"
#include "bridge/channels/channels.h"
#include "bridge/link.h"
#include "bridge/names/names.h"
#include "bridge/services/services.h"
#include "bridge/status.h"

#define EVERY_MS    500
#define LOOK_MS     50   /* for those who wait for a name */
#define AWAITED_MAX 4096 /* names that are remembered, once somebody has waited for them */

struct status {
	share_buffer *buffer;
	struct event *again, *look;
	char *last;
};

static json_t *describe_link(const struct link *l)
{
	unsigned here, stale, coming;

	names_in_count(l, &here, &stale, &coming);
	return json_pack(
	    "{s:s, s:s, s:b, s:s?, s:s?, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:o}", "peer",
	    *l->site ? l->site : l->address, "address", l->address, "up", l->up, "why", link_why(l),
	    "gpu", l->traffic.gpu, "names", (int)here, "stale", (int)stale, "coming", (int)coming,
	    "bytes_in", (json_int_t)l->traffic.in, "bytes_out", (json_int_t)l->traffic.out,
	    "rtt_us", (json_int_t)l->traffic.rtt_us, "channels",
	    channels_describe(link_bridge(l), l), "services", services_describe(link_bridge(l), l));
}

static char *describe(const struct bridge *b)
{
	json_t *links = json_array(), *all;
	const struct link *l;
	char *text;

	TAILQ_FOREACH (l, &b->links, in_bridge)
		json_array_append_new(links, describe_link(l));
	all = json_pack("{s:s, s:i, s:o}", "site", b->settings->site, "pid", (int)getpid(), "links",
			links);
	text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct bridge *b = arg;
	struct status *s = b->status;
	char *text = describe(b);

	(void)fd, (void)what;
	if (text && (!s->last || strcmp(text, s->last) != 0) &&
	    share_metadata_set(s->buffer, text) == 0) {
		free(s->last);
		s->last = text;
		text = NULL;
	}
	free(text);
	timer_in(s->again, EVERY_MS);
}

static int on_event(const char *json, void *arg)
{
	struct bridge *b = arg;
	json_t *o = json_loads(json, 0, NULL);
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *action = json_string_value(json_object_get(o, "action"));
	struct link *l;

	if (name && action && strcmp(action, "wait") == 0 &&
	    json_object_size(b->awaited) < AWAITED_MAX) {
		json_object_set_new(b->awaited, name, json_true());
		TAILQ_FOREACH (l, &b->links, in_bridge)
			names_in_demand(l, name);
	}
	json_decref(o);
	return 0;
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct bridge *b = arg;

	(void)fd, (void)what;
	share_monitor(b->client, NULL, 0, on_event, b);
	timer_in(b->status->look, LOOK_MS);
}

static bool has_demand(const struct patterns *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->all[i].policy == POLICY_DEMAND)
			return true;
	return false;
}

/* Somebody else may have the first name, as numbers of processes can be guessed. */
static void publish(const struct bridge *b)
{
	char name[SHARE_NAME_MAX + 1];
	int n = snprintf(name, sizeof(name), "bridge/%s/%d", b->settings->site, (int)getpid());
	int r = share_publish(b->status->buffer, name, NULL);

	if (r == SHARE_EACCES) {
		snprintf(name + n, sizeof(name) - (size_t)n, "-%.8s", b->run);
		r = share_publish(b->status->buffer, name, NULL);
	}
	if (r != 0)
		say("sharectl bridges does not show this bridge, as '%s' cannot be published: %s",
		    name, share_error_detail());
}

int status_open(struct bridge *b)
{
	struct status *s = b->status = calloc(1, sizeof(*s));

	if (!s)
		return -1;
	if (share_alloc(b->pool, 1, NULL, &s->buffer) != 0) {
		say("there is no memory for the bridge's state: %s", share_error_detail());
		return -1;
	}
	publish(b);
	s->again = evtimer_new(b->base, on_again, b);
	s->look = evtimer_new(b->base, on_look, b);
	if (!s->again || !s->look)
		return -1;
	timer_in(s->again, 0);
	if (has_demand(&b->settings->in))
		timer_in(s->look, 0);
	return 0;
}

void status_close(struct bridge *b)
{
	struct status *s = b->status;

	if (!s)
		return;
	if (s->again)
		event_free(s->again);
	if (s->look)
		event_free(s->look);
	if (s->buffer)
		share_release(s->buffer, NULL);
	free(s->last);
	free(s);
	b->status = NULL;
}
