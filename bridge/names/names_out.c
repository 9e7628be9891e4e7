/* SPDX-License-Identifier: MIT */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/data/data.h"
#include "bridge/data/memory.h"
#include "bridge/helper.h"
#include "bridge/hex.h"
#include "bridge/link.h"
#include "bridge/names/about.h"
#include "bridge/names/names.h"

#define TRANSFERS_MAX 64        /* that a peer may ask for at a time */
#define LOOKUP_MS     10000     /* until the work of who published it has to be done */
#define OWN           "bridge/" /* names of bridges themselves, which stay here */

/* What a peer has asked for, from then until it is sent. */
struct transfer {
	TAILQ_ENTRY(transfer) in_link;
	struct link *link;
	uint64_t id;
	share_operation *operation;
	share_buffer *buffer; /* until it is in reach */
	struct task task;     /* the second thread reads its metadata */
	json_t *metadata;
	struct reach reach;
	bool sending;
};

struct names_out_link {
	TAILQ_HEAD(, transfer) transfers;
	unsigned n;
};

static bool goes_out(const struct bridge *b, const char *name)
{
	return strncmp(name, OWN, strlen(OWN)) != 0 && patterns_match(&b->settings->out, name);
}

static int announce(const share_name_info *info, void *arg)
{
	struct link *l = arg;

	if (goes_out(link_bridge(l), info->name))
		link_say(l, json_pack("{s:s, s:s, s:I}", "say", "name", "name", info->name,
				      "version", (json_int_t)info->version));
	return 0;
}

static void announce_all(struct link *l)
{
	struct bridge *b = link_bridge(l);

	if (b->settings->out.n > 0)
		share_list(b->client, "", announce, l);
	link_say(l, json_pack("{s:s}", "say", "listed"));
}

static void on_change(const share_name_event *event, void *arg)
{
	struct bridge *b = arg;
	struct link *l;

	TAILQ_FOREACH (l, &b->links, in_bridge) {
		if (!l->up)
			continue;
		if (event->change == SHARE_OVERFLOW)
			announce_all(l);
		else if (!goes_out(b, event->name))
			continue;
		else if (event->change == SHARE_UNPUBLISHED)
			link_say(l, json_pack("{s:s, s:s}", "say", "gone", "name", event->name));
		else
			link_say(l, json_pack("{s:s, s:s, s:I}", "say", "name", "name", event->name,
					      "version", (json_int_t)event->version));
	}
}

int names_out_open(struct bridge *b)
{
	int r = 0;

	if (b->settings->out.n > 0)
		r = share_watch_names(b->client, "", on_change, b, &b->names_watch);
	if (r != 0)
		say("names cannot be watched: %s", share_error_detail());
	return r;
}

void names_out_close(struct bridge *b)
{
	share_unwatch(b->names_watch);
}

void names_out_up(struct link *l)
{
	l->names_out = calloc(1, sizeof(*l->names_out));
	if (!l->names_out) {
		link_fail(l, "no memory");
		return;
	}
	TAILQ_INIT(&l->names_out->transfers);
	announce_all(l);
}

static void end(struct transfer *t)
{
	TAILQ_REMOVE(&t->link->names_out->transfers, t, in_link);
	t->link->names_out->n--;
	share_cancel(t->operation);
	helper_wait(link_bridge(t->link), &t->task);
	json_decref(t->metadata);
	t->metadata = NULL;
	if (t->buffer)
		share_release(t->buffer, NULL);
	if (t->sending) { /* UCX reads its memory */
		t->link = NULL;
		return;
	}
	reach_end(&t->reach);
	free(t);
}

void names_out_down(struct link *l)
{
	struct transfer *t;

	if (!l->names_out)
		return;
	while ((t = TAILQ_FIRST(&l->names_out->transfers)) != NULL)
		end(t);
	free(l->names_out);
	l->names_out = NULL;
}

static void fail(struct transfer *t, bool later)
{
	link_say(t->link, json_pack("{s:s, s:I, s:b}", "say", "failed", "id", (json_int_t)t->id,
				    "later", later));
	end(t);
}

static json_t *tensor_of(share_buffer *b)
{
	share_tensor tensor = SHARE_TENSOR_INIT;
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX];
	json_t *text;
	char *hex;
	int n;

	if (share_tensor_get(b, &tensor) != 0)
		return json_null();
	n = share_tensor_encode(&tensor, bytes, sizeof(bytes));
	if (n <= 0)
		return json_null();
	hex = hex_make(bytes, (size_t)n);
	text = hex ? json_string(hex) : json_null();
	free(hex);
	return text;
}

static struct transfer *transfer_of(struct task *e)
{
	return (void *)((char *)e - offsetof(struct transfer, task));
}

static void read_metadata(struct task *e)
{
	struct transfer *t = transfer_of(e);

	t->metadata = about_read(t->buffer);
}

/* The peer allocates memory, and says when it is there. */
static void offer(struct task *e)
{
	struct transfer *t = transfer_of(e);
	json_t *bare = about_bare(t->metadata);
	json_t *path = about_path(t->metadata, link_bridge(t->link)->settings->site, t->link->site);
	uint64_t version = share_name_version(t->buffer), size = share_size(t->buffer);
	json_t *tensor = tensor_of(t->buffer);
	share_buffer *b = t->buffer;

	if (!path || !bare) {
		json_decref(path);
		json_decref(bare);
		json_decref(tensor);
		fail(t, false);
		return;
	}
	t->buffer = NULL;
	reach_of(b, &t->reach);
	link_say(t->link,
		 json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "say", "content", "id",
			   (json_int_t)t->id, "version", (json_int_t)version, "size",
			   (json_int_t)size, "metadata", bare, "tensor", tensor, "path", path));
}

static void on_good(int status, void *arg)
{
	struct transfer *t = arg;

	share_cancel(t->operation);
	t->operation = NULL;
	if (status != 0) {
		fail(t, true);
		return;
	}
	t->task = (struct task){.run = read_metadata, .done = offer};
	helper_do(link_bridge(t->link), &t->task);
}

/* On a GPU the work of who published it may still be under way. */
static void on_lookup(share_buffer *b, int error, void *arg)
{
	struct transfer *t = arg;

	share_cancel(t->operation);
	t->operation = NULL;
	if (error) {
		fail(t, error != SHARE_EACCES);
		return;
	}
	t->buffer = b;
	if (share_buffer_status(b) != SHARE_EAGAIN)
		on_good(share_buffer_status(b), t);
	else if (share_buffer_watch(b, on_good, t, &t->operation) != 0)
		fail(t, true);
}

const char *names_out_hear_want(struct link *l, json_t *o)
{
	struct bridge *b = link_bridge(l);
	const char *name;
	json_int_t id;
	struct transfer *t;

	if (json_unpack(o, "{s:I, s:s}", "id", &id, "name", &name) != 0)
		return "it wants a name that is none";
	if (!l->names_out || l->names_out->n >= TRANSFERS_MAX)
		return "it wants too much at a time";
	t = calloc(1, sizeof(*t));
	if (!t)
		return "no memory";
	t->link = l;
	t->id = (uint64_t)id;
	TAILQ_INSERT_TAIL(&l->names_out->transfers, t, in_link);
	l->names_out->n++;
	if (!goes_out(b, name))
		fail(t, false);
	else if (share_lookup_async(b->client, name, SHARE_RDONLY, LOOKUP_MS, NULL, on_lookup, t,
				    &t->operation) != 0)
		fail(t, true);
	return NULL;
}

static void on_sent(int error, void *arg)
{
	struct transfer *t = arg;

	(void)error; /* the link notices by itself */
	t->sending = false;
	if (t->link) {
		end(t);
		return;
	}
	reach_end(&t->reach);
	free(t);
}

const char *names_out_hear_ready(struct link *l, json_t *o)
{
	json_int_t id = json_integer_value(json_object_get(o, "id"));
	struct transfer *t;
	struct data_header h = {.kind = DATA_NAME, .id = (uint64_t)id};

	if (!l->names_out)
		return NULL;
	TAILQ_FOREACH (t, &l->names_out->transfers, in_link)
		if (t->id == (uint64_t)id && t->reach.buffer && !t->sending)
			break;
	if (!t)
		return "it is ready for what was not offered";
	if (!json_is_true(json_object_get(o, "take"))) {
		end(t);
		return NULL;
	}
	h.size = share_size(t->reach.buffer);
	t->sending = true;
	data_send(l, &h, &t->reach, on_sent, t);
	return NULL;
}
