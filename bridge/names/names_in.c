/* SPDX-License-Identifier: MIT */

/* Which names a peer has: what it announces, and what stays of it when its link is lost. */

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/link.h"
#include "bridge/names/inside.h"

#define NAMES_MAX 65536 /* of one peer */

struct bridge *name_in_bridge(const struct name_in *n)
{
	return link_bridge(n->of->link);
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct name_in *)a)->name, ((const struct name_in *)b)->name);
}

static struct name_in *find(struct names_in *in, const char *name)
{
	struct name_in key = {.name = (char *)(uintptr_t)name},
		       **found = tfind(&key, &in->by_name, compare);

	return found ? *found : NULL;
}

static void remove_name(struct name_in *n)
{
	struct names_in *in = n->of;

	arrival_end(n);
	name_in_withdraw(n);
	tdelete(n, &in->by_name, compare);
	TAILQ_REMOVE(&in->all, n, in_all);
	in->n--;
	free(n->name);
	free(n->local);
	free(n);
}

static struct name_in *add_name(struct names_in *in, const char *name,
				const struct pattern *pattern)
{
	const char *prefix = link_bridge(in->link)->settings->prefix;
	struct name_in *n = in->n < NAMES_MAX ? calloc(1, sizeof(*n)) : NULL;

	if (!n)
		return NULL;
	*n = (struct name_in){
	    .of = in, .pattern = pattern, .wanted = pattern->policy == POLICY_EAGER};
	n->name = strdup(name);
	if (!n->name || asprintf(&n->local, "%s%s", prefix, name) < 0 ||
	    !tsearch(n, &in->by_name, compare)) {
		free(n->name);
		free(n->local);
		free(n);
		return NULL;
	}
	if (json_object_get(link_bridge(in->link)->awaited, n->local))
		n->wanted = true; /* somebody has waited for it before it was announced */
	TAILQ_INSERT_TAIL(&in->all, n, in_all);
	in->n++;
	return n;
}

/* ------------------------------------------------------------------------------------------- */
/* Announcements                                                                               */

const char *names_in_hear_name(struct link *l, json_t *o)
{
	struct names_in *in = l->names_in;
	const struct pattern *pattern;
	const char *name;
	json_int_t version;
	struct name_in *n;

	if (json_unpack(o, "{s:s, s:I}", "name", &name, "version", &version) != 0 || version <= 0)
		return "it announces a name that is none";
	pattern = patterns_match(&link_bridge(l)->settings->in, name);
	if (!pattern)
		return NULL;
	n = find(in, name);
	if (!n)
		n = add_name(in, name, pattern);
	if (!n)
		return "it has too many names";
	n->round = in->round;
	n->announced = (uint64_t)version;
	if (n->announced == n->have)
		name_in_mark(n, false);
	arrival_want(n);
	return NULL;
}

const char *names_in_hear_gone(struct link *l, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	struct name_in *n = name ? find(l->names_in, name) : NULL;

	if (n)
		remove_name(n);
	return name ? NULL : "a name is gone that is none";
}

/* All that there are have been announced since the last time. */
const char *names_in_hear_listed(struct link *l, json_t *o)
{
	struct names_in *in = l->names_in;
	struct name_in *n, *next;

	(void)o;
	for (n = TAILQ_FIRST(&in->all); n; n = next) {
		next = TAILQ_NEXT(n, in_all);
		if (n->round != in->round)
			remove_name(n);
	}
	in->round++;
	evtimer_del(in->grace);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* Links that are lost, and come back                                                          */

static void remove_all(struct names_in *in)
{
	struct name_in *n;

	while ((n = TAILQ_FIRST(&in->all)) != NULL)
		remove_name(n);
}

static void on_grace(evutil_socket_t fd, short what, void *arg)
{
	struct names_in *in = arg;

	(void)fd, (void)what;
	if (in->n > 0)
		say("the names of %s are withdrawn", in->link->site);
	remove_all(in);
}

int names_in_make(struct link *l)
{
	struct names_in *in = calloc(1, sizeof(*in));
	struct event_base *base = link_bridge(l)->base;

	if (!in)
		return -1;
	in->link = l;
	in->round = 1;
	TAILQ_INIT(&in->all);
	TAILQ_INIT(&in->queue);
	in->grace = evtimer_new(base, on_grace, in);
	in->retry = evtimer_new(base, arrivals_on_retry, in);
	l->names_in = in;
	return in->grace && in->retry ? 0 : -1;
}

void names_in_free(struct link *l)
{
	struct names_in *in = l->names_in;

	remove_all(in);
	event_free(in->grace);
	event_free(in->retry);
	free(in);
	l->names_in = NULL;
}

bool names_in_is_empty(const struct link *l)
{
	return l->names_in->n == 0;
}

/* From a link that is lost to the one that the same site has made since. */
void names_in_move(struct link *from, struct link *to)
{
	struct names_in *in = from->names_in;

	from->names_in = to->names_in;
	from->names_in->link = from;
	to->names_in = in;
	in->link = to;
}

void names_in_up(struct link *l)
{
	struct name_in *n;

	/* Versions are numbers of one run of the broker over there, of which only one run of the
	 * bridge can be sure. */
	if (strcmp(l->names_in->run, l->run) != 0)
		TAILQ_FOREACH (n, &l->names_in->all, in_all)
			n->have = n->refused = 0;
	snprintf(l->names_in->run, sizeof(l->names_in->run), "%s", l->run);
	l->names_in->round++;
}

void names_in_down(struct link *l)
{
	struct names_in *in = l->names_in;
	struct name_in *n, *next;

	for (n = TAILQ_FIRST(&in->all); n; n = next) {
		next = TAILQ_NEXT(n, in_all);
		arrival_end(n);
		if (n->published)
			name_in_mark(n, true);
		else
			remove_name(n);
	}
	evtimer_del(in->retry);
	if (in->n > 0)
		timer_in(in->grace, link_bridge(l)->settings->grace_ms);
}

void names_in_demand(struct link *l, const char *local_name)
{
	const char *prefix = link_bridge(l)->settings->prefix;
	size_t skip = strlen(prefix);
	struct name_in *n;

	if (strncmp(local_name, prefix, skip) != 0)
		return;
	n = find(l->names_in, local_name + skip);
	if (!n || n->wanted)
		return;
	n->wanted = true;
	arrival_want(n);
}

void names_in_count(const struct link *l, unsigned *here, unsigned *stale, unsigned *on_the_way)
{
	const struct name_in *n;

	*here = *stale = *on_the_way = 0;
	TAILQ_FOREACH (n, &l->names_in->all, in_all) {
		*here += n->published != 0;
		*stale += n->published != 0 && n->stale;
		*on_the_way += n->state != IDLE;
	}
}
