/* SPDX-License-Identifier: MIT */

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/data.h"
#include "bridge/hex.h"
#include "bridge/link.h"
#include "bridge/memory.h"
#include "bridge/names.h"

#define NAMES_MAX  65536 /* of one peer */
#define AT_ONCE    8     /* transfers of one peer: each has memory here */
#define RETRY_MS   1000  /* after one that failed */
#define PATH_MAX_  64    /* sites that something came by */
#define TENSOR_MAX SHARE_TENSOR_ENCODED_MAX

/* What is received outlives the name that it is for, as UCX writes into its memory. */
struct arrival {
	struct name_in *name; /* NULL: nobody wants it any more */
	struct reach reach;
};

enum state {
	IDLE,
	QUEUED,    /* to be asked for */
	ASKED,     /* the peer looks it up */
	RECEIVING, /* there is memory for it */
};

struct name_in {
	const char *key; /* the name */
	char *name;      /* over there */
	char *local;
	TAILQ_ENTRY(name_in) in_all, in_queue;
	struct names_in *of;
	const struct pattern *pattern;
	uint64_t announced, have, refused; /* versions over there; 0: none */
	uint64_t published;                /* the version here; 0: it is not */
	uint64_t id;                       /* of the transfer */
	uint64_t coming;                   /* the version that it brings */
	uint64_t round;                    /* in which it was heard of */
	share_buffer *held;                /* what is published */
	struct arrival *arrival;           /* what is received */
	bool arriving;
	json_t *about; /* its metadata */
	char *tensor;
	enum state state;
	bool wanted; /* or it waits for somebody to want it */
	bool stale;
	bool told; /* that others have the name here */
};

struct names_in {
	struct link *link;
	TAILQ_HEAD(, name_in) all, queue;
	void *by_name; /* of tsearch() */
	size_t n;
	uint64_t round;
	unsigned active;
	char run[33]; /* of the peer, which gave the versions */
	struct event *grace, *retry;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct name_in *)a)->key, ((const struct name_in *)b)->key);
}

static struct name_in *find(struct names_in *in, const char *name)
{
	struct name_in key = {.key = name}, **found = tfind(&key, &in->by_name, compare);

	return found ? *found : NULL;
}

static struct name_in *find_transfer(struct names_in *in, uint64_t id, enum state state)
{
	struct name_in *n;

	TAILQ_FOREACH (n, &in->all, in_all)
		if (n->id == id && n->state == state)
			return n;
	return NULL;
}

static struct bridge *bridge_of(const struct name_in *n)
{
	return link_bridge(n->of->link);
}

/* The state is IDLE afterwards, with nothing left of a transfer. */
static void end_transfer(struct name_in *n)
{
	if (n->state == QUEUED)
		TAILQ_REMOVE(&n->of->queue, n, in_queue);
	if (n->state == ASKED || n->state == RECEIVING)
		n->of->active--;
	n->state = IDLE;
	n->id = 0;
	if (n->arrival && n->arriving) {
		n->arrival->name = NULL;
	} else if (n->arrival) {
		reach_end(&n->arrival->reach);
		free(n->arrival);
	}
	n->arrival = NULL;
	n->arriving = false;
	json_decref(n->about);
	n->about = NULL;
	free(n->tensor);
	n->tensor = NULL;
}

/* Only what this side has published: somebody else may have the name by now. */
static void withdraw(struct name_in *n)
{
	struct bridge *b = bridge_of(n);
	share_buffer *now;

	if (n->published && share_lookup(b->client, n->local, SHARE_RDONLY, 0, NULL, &now) == 0) {
		if (share_name_version(now) == n->published)
			share_unpublish(b->client, n->local);
		share_release(now, NULL);
	}
	n->published = 0;
	if (n->held)
		share_release(n->held, NULL);
	n->held = NULL;
}

static void remove_name(struct name_in *n)
{
	struct names_in *in = n->of;

	end_transfer(n);
	withdraw(n);
	tdelete(n, &in->by_name, compare);
	TAILQ_REMOVE(&in->all, n, in_all);
	in->n--;
	free(n->name);
	free(n->local);
	free(n);
}

/* Whether somebody waited for it before it was announced. */
static bool is_awaited(const struct bridge *b, const char *local)
{
	return json_object_get(b->awaited, local) != NULL;
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
	n->key = n->name = strdup(name);
	if (!n->name || asprintf(&n->local, "%s%s", prefix, name) < 0 ||
	    !tsearch(n, &in->by_name, compare)) {
		free(n->name);
		free(n->local);
		free(n);
		return NULL;
	}
	n->wanted = n->wanted || is_awaited(link_bridge(in->link), n->local);
	TAILQ_INSERT_TAIL(&in->all, n, in_all);
	in->n++;
	return n;
}

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

static void ask_for_more(struct names_in *in)
{
	struct name_in *n;

	while (in->link->up && in->active < AT_ONCE && (n = TAILQ_FIRST(&in->queue)) != NULL) {
		TAILQ_REMOVE(&in->queue, n, in_queue);
		in->active++;
		n->state = ASKED;
		n->id = ++bridge_of(n)->last_id;
		link_say(in->link, json_pack("{s:s, s:I, s:s}", "say", "want", "id",
					     (json_int_t)n->id, "name", n->name));
	}
}

static void want(struct name_in *n)
{
	if (n->state != IDLE || !n->wanted || n->announced == n->have || n->announced == n->refused)
		return;
	n->state = QUEUED;
	TAILQ_INSERT_TAIL(&n->of->queue, n, in_queue);
	ask_for_more(n->of);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct names_in *in = arg;
	struct name_in *n;

	(void)fd, (void)what;
	TAILQ_FOREACH (n, &in->all, in_all)
		want(n);
}

/* One that was not to be had: @later, or as soon as there is another version. */
static void give_up(struct name_in *n, bool later)
{
	struct names_in *in = n->of;

	if (!later)
		n->refused = n->announced;
	end_transfer(n);
	if (later)
		timer_in(in->retry, RETRY_MS);
	ask_for_more(in);
}

/* ------------------------------------------------------------------------------------------- */
/* What it is                                                                                  */

/* The metadata of what came in: what it was, and where it came from. */
static int set_metadata(struct name_in *n, share_buffer *b, bool stale)
{
	json_t *bridge = json_object_get(n->about, "bridge");
	char *text;
	int r;

	json_object_set_new(bridge, "stale", json_boolean(stale));
	text = json_dumps(n->about, JSON_COMPACT);
	r = text ? share_metadata_set(b, text) : SHARE_ENOMEM;
	free(text);
	return r;
}

/* The metadata is the buffer's, so those who have looked it up see it, too. */
static void mark(struct name_in *n, bool stale)
{
	char *text;
	json_t *about;

	if (!n->held || n->stale == stale)
		return;
	if (share_metadata_get(n->held, &text) != 0)
		return;
	about = json_loads(text, 0, NULL);
	free(text);
	if (about) {
		json_t *kept = n->about;

		n->about = about;
		if (set_metadata(n, n->held, stale) == 0)
			n->stale = stale;
		n->about = kept;
	}
	json_decref(about);
}

static int publish(struct name_in *n, share_buffer *b)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_tensor tensor = SHARE_TENSOR_INIT;
	unsigned char bytes[TENSOR_MAX];
	size_t size = n->tensor ? hex_read(n->tensor, bytes, sizeof(bytes)) : 0;
	uint64_t version;
	int r;

	if (size > 0 && share_tensor_decode(bytes, size, &tensor) > 0)
		options.tensor = &tensor;
	options.mode = SHARE_RDONLY;
	options.expected_version = n->published;
	options.flags = n->published ? 0 : SHARE_PUBLISH_EXCLUSIVE;
	r = share_publish_with(b, n->local, &options, NULL, &version);
	if (r == SHARE_EBUSY || r == SHARE_ENOENT) { /* somebody took it away meanwhile */
		options.expected_version = 0;
		options.flags = SHARE_PUBLISH_EXCLUSIVE;
		r = share_publish_with(b, n->local, &options, NULL, &version);
	}
	if (r == 0)
		n->published = version;
	else if (!n->told)
		say("'%s' of %s is not published here: %s", n->local, n->of->link->site,
		    share_error_detail());
	n->told = r != 0;
	return r;
}

static void arrived(struct name_in *n, struct reach *reach)
{
	share_buffer *b = reach->buffer;

	if (reach_written(reach) != 0 || set_metadata(n, b, false) != 0) {
		give_up(n, true);
	} else if (publish(n, b) != 0) {
		give_up(n, false);
	} else {
		if (n->held)
			share_release(n->held, NULL);
		n->held = reach_take(reach);
		n->have = n->coming;
		n->stale = false;
		end_transfer(n);
		want(n); /* if there was another version meanwhile */
		ask_for_more(n->of);
	}
}

static void on_received(int error, void *arg)
{
	struct arrival *a = arg;
	struct name_in *n = a->name;

	if (n) {
		n->arrival = NULL;
		n->arriving = false;
	}
	if (n && error)
		end_transfer(n); /* the link is lost, or will be */
	else if (n)
		arrived(n, &a->reach);
	reach_end(&a->reach);
	free(a);
}

const char *names_in_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	struct name_in *n = find_transfer(l->names_in, h->id, RECEIVING);

	if (!n || n->arriving)
		return NULL; /* it was given up */
	if (h->size != share_size(n->arrival->reach.buffer))
		return "content is of another size than was said";
	n->arriving = true;
	data_receive(p, n->arrival->reach.memory, on_received, n->arrival);
	return NULL;
}

/* The metadata as it will be here; NULL: @o makes no sense, or *@loop. */
static json_t *describe(struct name_in *n, json_t *o, bool *loop)
{
	json_t *metadata = json_object_get(o, "metadata"), *path = json_object_get(o, "path"),
	       *site;
	const char *own = bridge_of(n)->settings->site;
	json_t *about;
	size_t i;

	*loop = false;
	if (!json_is_array(path) || json_array_size(path) == 0 || json_array_size(path) > PATH_MAX_)
		return NULL;
	json_array_foreach (path, i, site) {
		if (!json_is_string(site))
			return NULL;
		if (strcmp(json_string_value(site), own) == 0)
			*loop = true;
	}
	if (*loop)
		return NULL;
	about = json_is_object(metadata) ? json_copy(metadata) : json_object();
	if (json_is_array(metadata))
		json_object_set(about, "value", metadata);
	json_object_set_new(
	    about, "bridge",
	    json_pack("{s:O, s:I}", "path", path, "version", (json_int_t)n->coming));
	return about;
}

/* Memory for what is to come. 0 or a negative error. */
static int make_room(struct name_in *n, uint64_t size)
{
	share_buffer *buffer;
	int r;

	n->arrival = calloc(1, sizeof(*n->arrival));
	if (!n->arrival)
		return SHARE_ENOMEM;
	n->arrival->name = n;
	r = share_alloc(bridge_of(n)->pool, size, NULL, &buffer);
	if (r == 0)
		r = reach_to_write(buffer, &n->arrival->reach);
	if (r != 0)
		say("'%s' of %s has to wait: %s", n->local, n->of->link->site,
		    share_error_detail());
	return r;
}

const char *names_in_hear_content(struct link *l, json_t *o)
{
	json_int_t id, version, size;
	const char *tensor = json_string_value(json_object_get(o, "tensor"));
	bool loop = false, take = false;
	struct name_in *n;

	if (json_unpack(o, "{s:I, s:I, s:I}", "id", &id, "version", &version, "size", &size) != 0 ||
	    size <= 0 || version <= 0 || (tensor && strlen(tensor) > (size_t)2 * TENSOR_MAX))
		return "what it says of content makes no sense";
	n = find_transfer(l->names_in, (uint64_t)id, ASKED); /* NULL: it has gone meanwhile */
	if (n) {
		n->coming = (uint64_t)version;
		n->about = describe(n, o, &loop);
		if (!n->about && !loop)
			return "what it says of content makes no sense";
		take = !loop && make_room(n, (uint64_t)size) == 0;
	}
	link_say(l, json_pack("{s:s, s:I, s:b}", "say", "ready", "id", id, "take", take));
	if (n && !take)
		give_up(n, !loop);
	if (!take)
		return NULL;
	n->tensor = tensor ? strdup(tensor) : NULL;
	n->state = RECEIVING;
	return NULL;
}

const char *names_in_hear_failed(struct link *l, json_t *o)
{
	json_int_t id = json_integer_value(json_object_get(o, "id"));
	struct name_in *n = find_transfer(l->names_in, (uint64_t)id, ASKED);

	if (n)
		give_up(n, json_is_true(json_object_get(o, "later")));
	return NULL;
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
		mark(n, false);
	want(n);
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
	in->retry = evtimer_new(base, on_retry, in);
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
		end_transfer(n);
		if (n->published)
			mark(n, true);
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
	want(n);
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
