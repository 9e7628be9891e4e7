/* SPDX-License-Identifier: MIT */

/*
 * Names, and look-ups that wait for one. A name holds a reference on its buffer; replacing it is
 * one assignment in one thread, so nobody can see half of it. Look-ups that wait are answered in
 * the order in which they came, after the client that publishes.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/records.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/monitor/monitor.h"
#include "broker/names/name.h"
#include "broker/names/names.h"
#include "broker/names/watch.h"
#include "broker/order/records.h"
#include "broker/reply/request.h"

static int compare_text(const void *a, size_t a_size, const void *b, size_t b_size)
{
	int r = memcmp(a, b, a_size < b_size ? a_size : b_size);

	return r ? r : (a_size > b_size) - (a_size < b_size);
}

static int compare(const struct name *a, const struct name *b)
{
	return compare_text(a->text, a->size, b->text, b->size);
}

RB_GENERATE_INTERNAL(name_tree, name, tree, compare, static __attribute__((unused)))

/* Finds the first name that is not before @text. */
static struct name *lower_bound(struct broker *b, const void *text, size_t size)
{
	struct name *n = RB_ROOT(&b->names->tree), *best = NULL;

	while (n) {
		if (compare_text(n->text, n->size, text, size) >= 0) {
			best = n;
			n = RB_LEFT(n, tree);
		} else {
			n = RB_RIGHT(n, tree);
		}
	}
	return best;
}

static struct name *find(struct broker *b, const void *text, size_t size)
{
	struct name *n = lower_bound(b, text, size);

	return n && n->size == size && memcmp(n->text, text, size) == 0 ? n : NULL;
}

struct name *name_next(struct broker *b, const void *after, size_t size, bool inclusive)
{
	struct name *n = lower_bound(b, after, size);

	if (n && !inclusive && n->size == size && memcmp(n->text, after, size) == 0)
		n = RB_NEXT(name_tree, &b->names->tree, n);
	while (n && !n->buffer)
		n = RB_NEXT(name_tree, &b->names->tree, n);
	return n;
}

static struct name *find_or_add(struct broker *b, const void *text, size_t size)
{
	struct name *n = find(b, text, size);

	if (n)
		return n;
	n = calloc(1, sizeof(*n) + size + 1);
	if (!n)
		return NULL;
	memcpy(n->text, text, size);
	n->size = size;
	TAILQ_INIT(&n->waits);
	RB_INSERT(name_tree, &b->names->tree, n);
	return n;
}

static void free_if_unused(struct broker *b, struct name *n)
{
	if (n->buffer || !TAILQ_EMPTY(&n->waits))
		return;
	RB_REMOVE(name_tree, &b->names->tree, n);
	free(n);
}

/* Returns what decides on the rights to the name. @pool is that of the buffer that is published
 * under it, or is to be; NULL: there is none. */
static struct access_object name_object(const struct name *n, const struct access_object *pool)
{
	return (struct access_object){.kind = OBJECT_NAME,
				      .name = n->text,
				      .size = n->size,
				      .is_owned = true,
				      .owner = n->uid,
				      .pool = pool};
}

/* Whether the client has this right to the name, as far as it leads to @buffer, or is to. */
static bool may(const struct name *n, const struct buffer *buffer, const struct client *client,
		enum access_right right)
{
	const struct access_object pool = pool_object(buffer_pool(buffer));
	const struct access_object what = name_object(n, &pool);

	return client_may(client, right, &what);
}

bool name_may(const struct name *n, const struct client *client, enum access_right right)
{
	return may(n, n->buffer, client, right);
}

/* Tells who watches what has become of the name. @change is an enum share_change, 0: there is none.
 * @client: who did it; NULL: that may be nobody who holds the buffer, so only whose name it was is
 * told. */
static void tell(struct broker *b, const struct name *n, uint32_t change, const char *action,
		 const struct client *client)
{
	const struct access_object pool = pool_object(buffer_pool(n->buffer));
	const struct access_object what = name_object(n, &pool);

	if (change)
		watches_notify(b, n, &what, change);
	if (monitors_any(b))
		monitors_tell(b, &(struct notice){.action = action,
						  .what = &what,
						  .client = client,
						  .uid = n->uid,
						  .buffer = buffer_id(n->buffer),
						  .size = n->buffer->size});
}

/* ------------------------------------------------------------------------------------------- */

static bool answer(struct request *r, const struct name *n)
{
	struct client *client = r->client;
	uint32_t mode = r->m->lookup.mode;
	struct grant g = {
	    .buffer = n->buffer,
	    .mode = mode,
	    .version = n->version,
	    .hand_over = &n->fence,
	    .tensor = n->tensor,
	};
	struct failure failure;

	if (!name_may(n, client, access_right_of(mode)))
		return request_fail_pool(r, buffer_pool(n->buffer), access_right_of(mode));
	if ((mode & n->mode) != mode)
		return request_fail(r, SHARE_EACCES, "'%s' is published read-only", n->text);
	if (grant_send(r->broker, client, r->m->serial, &g, &failure) != 0)
		return request_fail_with(r, &failure);
	tell(r->broker, n, 0, "lookup", client);
	return true;
}

void names_access_changed(struct broker *b)
{
	struct name *n;

	RB_FOREACH(n, name_tree, &b->names->tree)
	if (n->buffer)
		deferred_wake_later(b, &n->waits);
}

/* Lists the name as published. All its members are filled in, and charged. */
static void link_name(struct broker *b, struct name *n)
{
	referrer_attach(n->buffer, &n->referrer, REFERRER_NAME, n->charge.account);
	b->names->n++;
	if (!n->publisher)
		return;
	LIST_INSERT_HEAD(&n->publisher->names->published, n, of_publisher);
	n->publisher->holds.names++;
}

/* Drops the buffer and everything that was published with it. The name itself stays. */
static void clear(struct broker *b, struct name *n)
{
	struct buffer *buffer = n->buffer;

	if (!buffer)
		return;
	n->buffer = NULL;
	if (n->publisher) {
		LIST_REMOVE(n, of_publisher);
		n->publisher->holds.names--;
	}
	n->publisher = NULL;
	fence_deinit(&n->fence);
	metadata_free(n->tensor);
	n->tensor = NULL;
	b->names->n--;
	journal_drop(b->journal, &n->record);
	referrer_detach(b, buffer, &n->referrer);
	charge_return(&n->charge);
}

static int may_replace(const struct name *n, const struct publication *p, struct failure *failure)
{
	bool seen = n->buffer && name_may(n, p->client, RIGHT_READ);
	uint64_t version = seen ? n->version : 0;

	if (p->expected && version != p->expected)
		return failure_set(failure, SHARE_EBUSY,
				   "'%s' is at version %" PRIu64 ", not %" PRIu64, n->text, version,
				   p->expected);
	if (!n->buffer)
		return 0;
	/* who may publish the name may know that it is taken */
	if (!may(n, p->buffer, p->client, RIGHT_PUBLISH)) {
		if (seen)
			return failure_set(failure, SHARE_EACCES, "'%s' belongs to uid %u", n->text,
					   (unsigned)n->uid);
		return failure_set(failure, SHARE_EACCES, "'%s' is taken, by another user",
				   n->text);
	}
	if (p->flags & SHARE_PUBLISH_EXCLUSIVE)
		return failure_set(failure, SHARE_EEXIST, "'%s' is published already", n->text);
	return 0;
}

/* Takes the charge and copies the tensor that the name is to have. To replace what is published
 * must work at the limit, too, so the same user's charge is used again. */
static int pay_for(struct name *n, const struct publication *p, struct charge *charge,
		   struct metadata **tensor, struct failure *failure)
{
	struct account *account = p->client->account;
	bool same = n->buffer && n->charge.account == account;
	int r;

	if (!same && !charge_take_with(charge, account, LIMIT_NAMES, 1, p->size))
		return account_refuse(account, LIMIT_NAMES, "", failure);
	r = metadata_new(account, p->tensor.data, p->tensor.size, n->tensor, tensor, failure);
	if (r != 0) {
		charge_return(charge);
	} else if (same) {
		*charge = n->charge;
		n->charge = (struct charge){0};
	}
	return r;
}

int name_publish(struct broker *b, const struct publication *p, uint64_t *version,
		 struct failure *failure)
{
	struct name *n = find_or_add(b, p->name, p->size);
	struct metadata *tensor = NULL;
	struct charge charge = {0};
	uint32_t change;
	int r;

	if (!n)
		return failure_no_memory(failure, "the broker");
	r = may_replace(n, p, failure);
	if (r == 0)
		r = pay_for(n, p, &charge, &tensor, failure);
	if (r != 0) {
		free_if_unused(b, n);
		return r;
	}
	change = n->buffer ? SHARE_REPLACED : SHARE_PUBLISHED;
	/* the new reference comes before the old one goes, as both may be of the same buffer */
	buffer_ref(p->buffer);
	clear(b, n);
	n->buffer = p->buffer;
	n->version = *version = ++b->names->last_version;
	n->mode = p->mode;
	n->persistent = p->flags & SHARE_PUBLISH_PERSISTENT;
	n->uid = p->client->peer.uid;
	n->publisher = n->persistent ? NULL : p->client;
	n->charge = charge;
	n->tensor = tensor;
	n->fence = *p->fence;
	*p->fence = (struct fence){0};
	link_name(b, n);
	buffer_unref(b, p->buffer);
	if (!MUTATION(name_not_noted))
		name_note(b, n);
	tell(b, n, change, change == SHARE_REPLACED ? "replace" : "publish", p->client);
	deferred_wake_later(b, &n->waits);
	return 0;
}

void name_unpublish(struct broker *b, struct name *n)
{
	tell(b, n, SHARE_UNPUBLISHED, "unpublish", NULL);
	clear(b, n);
	free_if_unused(b, n);
}

static bool fail_absent(struct request *r, const struct wire_bytes *name)
{
	return request_fail(r, SHARE_ENOENT,
			    "nothing is published as '%.*s', or this user may not use it",
			    (int)name->size, (const char *)name->data);
}

/* Logs the reason why the client is answered as if the name were not there. */
static void hide(const struct name *n, const struct request *r)
{
	request_hide(r, "user %u may not use '%s', which is published in pool '%s'",
		     (unsigned)r->client->peer.uid, n->text, buffer_pool(n->buffer)->name);
}

bool name_unpublish_by(struct request *r)
{
	const struct wire_bytes *name = &r->m->unpublish.name;
	struct broker *b = r->broker;
	struct name *n = find(b, name->data, name->size);

	if (!n || !n->buffer)
		return fail_absent(r, name);
	if (!name_may(n, r->client, RIGHT_MANAGE)) {
		if (!name_may(n, r->client, RIGHT_READ)) {
			hide(n, r);
			return fail_absent(r, name);
		}
		return request_fail(r, SHARE_EACCES, "'%s' belongs to uid %u", n->text,
				    (unsigned)n->uid);
	}
	if (n->publisher != r->client)
		log_unpublished(&b->names->unpublished, n->text, r->client->peer.uid);
	name_unpublish(b, n);
	return request_done(r);
}

/* ------------------------------------------------------------------------------------------- */

static void left(struct broker *b, struct deferred_list *list)
{
	free_if_unused(b, (void *)((char *)list - offsetof(struct name, waits)));
}

static int fail_late(const struct wire_message *request, struct failure *failure)
{
	return failure_set(failure, SHARE_ETIMEDOUT,
			   "'%.*s' was not published within the time limit",
			   (int)request->lookup.name.size, (const char *)request->lookup.name.data);
}

/* Tells those who answer for the client's user that it waits. What it waits for is nobody else's
 * business. */
static void tell_wait(struct broker *b, const struct name *n, const struct client *client)
{
	const struct access_object what = name_object(n, NULL);

	if (monitors_any(b))
		monitors_tell(
		    b, &(struct notice){
			   .action = "wait", .what = &what, .is_private = true, .client = client});
}

static const struct wait_kind for_name = {fail_late, left};

/* A client that may not find the name goes on waiting when it is published: for this client it
 * is not there. */
bool name_look_up(struct request *r)
{
	const struct wire_lookup *m = &r->m->lookup;
	struct broker *b = r->broker;
	struct name *n = find(b, m->name.data, m->name.size);

	if (n && n->buffer && name_may(n, r->client, RIGHT_READ))
		return answer(r, n);
	if (n && n->buffer && !r->deferred_ms)
		hide(n, r);
	if (m->timeout == 0)
		return fail_absent(r, &m->name);
	n = find_or_add(b, m->name.data, m->name.size);
	if (!n)
		return request_fail_memory(r);
	if (!request_wait(r, &n->waits, &for_name, m->timeout)) {
		free_if_unused(b, n);
		return false;
	}
	if (!r->deferred_ms)
		tell_wait(b, n, r->client);
	return true;
}

/* ------------------------------------------------------------------------------------------- */

static void name_fields(struct record *r, void *object)
{
	struct name *n = object;

	record_buffer(r, &n->buffer);
	record_u64(r, &n->version);
	record_client(r, &n->publisher);
	record_fence(r, &n->fence);
	record_u32(r, &n->mode);
	record_u32(r, &n->uid);
	record_metadata(r, &n->tensor);
	record_rest_of(r, n->text, &n->size);
}

static bool is_name(struct broker *b, const struct name *n)
{
	return n->size > 0 && n->size <= SHARE_NAME_MAX && n->version > 0 &&
	       n->version <= b->names->last_version &&
	       (n->mode == SHARE_RDONLY || n->mode == SHARE_RDWR) && !find(b, n->text, n->size);
}

static int name_attach(struct broker *b, void *object)
{
	struct name *n = object;
	struct account *account;
	bool is_charged;

	if (!is_name(b, n))
		return -EBADMSG;
	account = account_get(b->accounts, n->uid);
	is_charged = account && charge_take_with(&n->charge, account, LIMIT_NAMES, 1, n->size) &&
		     metadata_charge(n->tensor, account);
	account_unref(account);
	if (!is_charged)
		return -ENOMEM;
	n->persistent = !n->publisher;
	TAILQ_INIT(&n->waits);
	RB_INSERT(name_tree, &b->names->tree, n);
	link_name(b, n);
	return 0;
}

const struct object_kind name_kind =
    OBJECT_KIND(RECORD_NAME, "name", struct name, name_fields, name_attach);

void name_note(struct broker *b, struct name *n)
{
	object_put(b->journal, &name_kind, n);
}
