/* SPDX-License-Identifier: MIT */

/*
 * A version on its way: it is asked for, the peer says what it is, memory is allocated, and then it
 * is received in place. The second thread tells the broker of it, while the next one comes.
 */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/data/data.h"
#include "bridge/link.h"
#include "bridge/names/about.h"
#include "bridge/names/inside.h"

#define AT_ONCE  8    /* transfers of one peer: each has memory here */
#define RETRY_MS 1000 /* after one that failed */

static struct name_in *find_transfer(struct names_in *in, uint64_t id, enum state state)
{
	struct name_in *n;

	TAILQ_FOREACH (n, &in->all, in_all)
		if (n->id == id && n->state == state)
			return n;
	return NULL;
}

void arrival_end(struct name_in *n)
{
	if (n->state == QUEUED)
		TAILQ_REMOVE(&n->of->queue, n, in_queue);
	if (n->state == ENTERING) { /* then this is what there is from now on */
		helper_wait(name_in_bridge(n), &n->task);
		name_in_entered(n);
	}
	if (n->state != IDLE && n->state != QUEUED)
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

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

static void ask_for_more(struct names_in *in)
{
	struct name_in *n;

	while (in->link->up && in->active < AT_ONCE && (n = TAILQ_FIRST(&in->queue)) != NULL) {
		TAILQ_REMOVE(&in->queue, n, in_queue);
		in->active++;
		n->state = ASKED;
		n->id = ++name_in_bridge(n)->last_id;
		link_say(in->link, json_pack("{s:s, s:I, s:s}", "say", "want", "id",
					     (json_int_t)n->id, "name", n->name));
	}
}

void arrival_want(struct name_in *n)
{
	if (n->state != IDLE || !n->wanted || n->announced == n->have || n->announced == n->refused)
		return;
	n->state = QUEUED;
	TAILQ_INSERT_TAIL(&n->of->queue, n, in_queue);
	ask_for_more(n->of);
}

void arrivals_on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct names_in *in = arg;
	struct name_in *n;

	(void)fd, (void)what;
	TAILQ_FOREACH (n, &in->all, in_all)
		arrival_want(n);
}

/* One that was not to be had: @later, or as soon as there is another version. */
static void give_up(struct name_in *n, bool later)
{
	struct names_in *in = n->of;

	if (!later)
		n->refused = n->announced;
	arrival_end(n);
	if (later)
		timer_in(in->retry, RETRY_MS);
	ask_for_more(in);
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

static struct name_in *name_of(struct task *t)
{
	return (void *)((char *)t - offsetof(struct name_in, task));
}

static void enter(struct task *t)
{
	struct name_in *n = name_of(t);

	name_in_enter(n, n->arrival->reach.buffer, &n->outcome);
}

static void on_entered(struct task *t)
{
	struct name_in *n = name_of(t);
	bool described = n->outcome.described;

	n->state = RECEIVING; /* it is over */
	if (name_in_entered(n) != 0) {
		give_up(n, !described);
		return;
	}
	arrival_end(n);
	arrival_want(n); /* if there was another version meanwhile */
	ask_for_more(n->of);
}

static void on_received(int error, void *arg)
{
	struct arrival *a = arg;
	struct name_in *n = a->name;

	if (!n) {
		reach_end(&a->reach);
		free(a);
		return;
	}
	n->arriving = false;
	if (error) {
		arrival_end(n); /* the link is lost, or will be */
		return;
	}
	n->state = ENTERING;
	n->task = (struct task){.run = enter, .done = on_entered};
	helper_do(name_in_bridge(n), &n->task);
}

const char *names_in_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	struct name_in *n = find_transfer(l->names_in, h->id, RECEIVING);

	if (!n || n->arriving)
		return NULL; /* it was given up */
	if (h->size != share_size(n->arrival->reach.buffer))
		return "content is of another size than was said";
	n->arriving = true;
	data_receive(p, &n->arrival->reach, on_received, n->arrival);
	return NULL;
}

/* Memory for what is to come. 0 or a negative error. */
static int make_room(struct name_in *n, uint64_t size)
{
	int r;

	n->arrival = calloc(1, sizeof(*n->arrival));
	if (!n->arrival)
		return SHARE_ENOMEM;
	n->arrival->name = n;
	r = reach_allocate(name_in_bridge(n), size, &n->arrival->reach);
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
	    size <= 0 || version <= 0 ||
	    (tensor && strlen(tensor) > (size_t)2 * SHARE_TENSOR_ENCODED_MAX))
		return "what it says of content makes no sense";
	n = find_transfer(l->names_in, (uint64_t)id, ASKED); /* NULL: it has gone meanwhile */
	if (n) {
		n->coming = (uint64_t)version;
		n->about = about_describe(o, name_in_bridge(n)->settings->site, version, &loop);
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
