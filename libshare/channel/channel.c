/* SPDX-License-Identifier: MIT */

/*
 * A membership in a channel, from open to its end. The broker makes the pages; once we have mapped
 * ours for writing, it takes care that nobody else ever does, and tells the others.
 */

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "libshare/channel/inside.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "pages/page.h"

/* ------------------------------------------------------------------------------------------- */
/* The end: the program closes it, and it ends when nobody has a message of it any more. What  */
/* a role does with its half by then is in sender/sender.c and receiver/receiver.c             */

void channel_leave(share_channel *ch)
{
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE,
				 .channel_close = {.member = ch->member}};

	if (ch->member)
		rpc(ch->client, &m, NULL);
}

/* The last message of a closed channel was given up, and nobody is in a call about it. */
static void channel_end(void *channel)
{
	DETAIL_STAYS;
	share_channel *ch = channel;
	struct members *members = channel_unshared(ch);
	share_client *c = ch->client;

	if (ch->role == SHARE_CONSUMER)
		channel_leave(ch);
	members_sync_deinit(members);
	channel_delist(ch);
	members_deinit(members);
	members->role->end(members);
	if (ch->own)
		page_unmap(ch->own, channel_page_size(ch, ch->role));
	page_unmap(ch->control, CHANNEL_CONTROL_SIZE);
	fd_close(ch->epoll);
	fd_close(ch->doorbell);
	fd_close(ch->wakeup);
	fd_close(ch->timer);
	fd_close(ch->less);
	channel_free(ch);
	client_unref(c);
}

void channel_close(share_channel *ch)
{
	DETAIL_STAYS;
	channel_end_waits(ch);
	channel_unshared(ch)->role->close(ch);
	channel_lock(ch)->closed = true;
	channel_unlock_and_end(ch);
}

void share_channel_close(share_channel *ch)
{
	RANGE("share_channel_close", 0);
	HAZARDS;

	ch = channel_take(ch);
	if (ch)
		channel_close(ch);
}

/* ------------------------------------------------------------------------------------------- */
/* Opening                                                                                     */

static int check_options(const share_channel_options *o, int role)
{
	if (role != SHARE_PRODUCER && role != SHARE_CONSUMER)
		return fail(SHARE_EINVAL, "role %d is neither SHARE_PRODUCER nor SHARE_CONSUMER",
			    role);
	if (o->mode > SHARE_QUEUE)
		return fail(SHARE_EINVAL, "mode %u is neither SHARE_BROADCAST nor SHARE_QUEUE",
			    o->mode);
	if (o->when_full > SHARE_FULL_DROP)
		return fail(SHARE_EINVAL, "when_full %u is not an enum share_when_full",
			    o->when_full);
	if (o->from > SHARE_FROM_OLDEST)
		return fail(SHARE_EINVAL,
			    "from %u is neither SHARE_FROM_NEWEST nor SHARE_FROM_OLDEST", o->from);
	if (o->flags & ~(uint32_t)(SHARE_CHANNEL_WRITABLE | SHARE_CHANNEL_EXISTING |
				   SHARE_CHANNEL_TRANSIENT | SHARE_CHANNEL_LATEST))
		return fail(SHARE_EINVAL, "unknown flags 0x%x", o->flags);
	if (o->flags & SHARE_CHANNEL_LATEST && role != SHARE_CONSUMER)
		return fail(SHARE_EINVAL, "SHARE_CHANNEL_LATEST is for consumers");
	if (o->wait_for > CHANNEL_MEMBERS_MAX)
		return fail(SHARE_EINVAL, "a channel has at most %d consumers",
			    CHANNEL_MEMBERS_MAX);
	if (o->reserved)
		return fail(SHARE_EINVAL, "the member reserved is not 0");
	if (o->send_timeout_ms < -1)
		return fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (o->pool && strlen(o->pool) > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL, "no pool is called that");
	return 0;
}

static int ask(share_client *c, const char *name, int role, uint32_t mode,
	       const share_channel_options *o, struct reply *reply)
{
	struct wire_message m = {.type = WIRE_CHANNEL_OPEN};
	struct wire_channel_open *open = &m.channel_open;
	int r;

	if (o->flags & SHARE_CHANNEL_LATEST && c->version < WIRE_VERSION_LATEST)
		return fail(SHARE_ENOTSUP,
			    "the broker is of an older version, which knows no consumers that get "
			    "the latest message alone");
	if ((o->data_max > CHANNEL_DATA_NEAR || o->buffers > 1) && c->version < WIRE_VERSION_FAR)
		return fail(SHARE_ENOTSUP,
			    "the broker is of an older version, in which a message carries one "
			    "buffer and up to %d bytes",
			    CHANNEL_DATA_NEAR);
	open->role = (uint32_t)role;
	open->flags = o->flags;
	/* an older one lets no messages outlive their producer anyhow */
	if (c->version < WIRE_VERSION_ORPHANS)
		open->flags &= ~(uint32_t)SHARE_CHANNEL_TRANSIENT;
	if (role == SHARE_CONSUMER && o->from == SHARE_FROM_OLDEST)
		open->flags |= WIRE_CHANNEL_OLDEST;
	/* programs say it by the options; so it is a service that does */
	if (mode)
		open->flags |= WIRE_CHANNEL_SERVICE;
	open->mode = mode ? mode : o->mode;
	open->when_full = o->when_full;
	open->depth = o->depth;
	open->in_flight = o->in_flight;
	open->data_max = o->data_max;
	open->producers = o->producers;
	open->consumers = o->consumers;
	open->deliveries = o->deliveries;
	open->history = o->history;
	open->buffers = o->buffers;
	open->name = wire_text(name);
	open->pool = wire_text(o->pool);
	r = rpc(c, &m, reply);
	if (r != 0)
		return r;
	if (reply->m.channel.shape.size != CHANNEL_SHAPE_SENT)
		return fail(SHARE_EPROTO, "the broker has another layout of channels");
	return 0;
}

/* On success and failure alike, for channel_close() of whatever there is. */
static share_channel *channel_new(share_client *c, int role, const share_channel_options *o)
{
	share_channel *ch = channel_alloc(role);
	struct members *members;

	if (!ch)
		return NULL;
	ch->client = client_ref(c);
	ch->end = channel_end;
	ch->send_timeout_ms = o->send_timeout_ms;
	ch->timer = ch->less = ch->doorbell = ch->epoll = ch->wakeup = -1;
	STAILQ_INIT(&ch->in_client.told);
	members = channel_unshared(ch);
	for (size_t i = 0; i < CHANNEL_MEMBERS_MAX; i++)
		members->peers[i].pidfd = members->peers[i].doorbell = -1;
	return ch;
}

static int map_pages(share_channel *ch, struct reply *reply)
{
	_cleanup_fd_ int own = fd_list_take(&reply->fds, 0), control = fd_list_take(&reply->fds, 1);
	_cleanup_fd_ int bell = fd_list_take(&reply->fds, 2);
	void *mapped;
	int r;

	/* it stays there as long as somebody has it who could ring */
	r = channel_open_doorbell(ch, bell);
	if (r < 0)
		return fail_system(r, "opening a channel");
	r = page_map(control, CHANNEL_CONTROL_SIZE, false, &mapped);
	if (r < 0)
		return fail_system(r, "mapping the pages of a channel");
	ch->control = mapped;
	r = page_map(own, channel_page_size(ch, ch->role), true, &ch->own);
	return r < 0 ? fail_system(r, "mapping the pages of a channel") : 0;
}

static int make_descriptors(share_channel *ch)
{
	struct epoll_event in = {.events = EPOLLIN, .data.u32 = UINT32_MAX};

	ch->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (ch->role == SHARE_PRODUCER)
		ch->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->epoll < 0 || (ch->role == SHARE_PRODUCER && ch->wakeup < 0) ||
	    epoll_ctl(ch->epoll, EPOLL_CTL_ADD, ch->doorbell, &in) < 0)
		return fail_system(-errno, "opening a channel");
	return 0;
}

static int take_part(share_channel *ch)
{
	struct wire_message m = {.type = WIRE_CHANNEL_READY,
				 .channel_ready = {.member = ch->member}};
	struct members *members;
	int r = rpc(ch->client, &m, NULL);

	if (r != 0)
		return r;
	members = channel_lock(ch);
	/* anything but what it is */
	members->epoch = atomic_load_explicit(&ch->control->epoch, memory_order_acquire) - 1;
	r = members_sync_until_unlocking(members, -1);
	channel_unlock(ch);
	return r == 0 && members->role->start ? members->role->start(ch) : r;
}

static bool makes_sense(const share_channel *ch)
{
	return channel_shape_is_valid(&ch->shape) && ch->slot < ch->shape.consumers &&
	       ch->layout < CHANNEL_LAYOUTS;
}

static int set_up(share_channel *ch, const share_channel_options *o, struct reply *reply)
{
	const struct wire_channel *m = &reply->m.channel;
	int r;

	ch->member = m->member;
	ch->pool = m->pool;
	ch->slot = m->slot;
	ch->layout = m->layout;
	memcpy(&ch->shape, m->shape.data, CHANNEL_SHAPE_SENT);
	ch->shape.buffers = m->buffers;
	if (!makes_sense(ch))
		return fail(SHARE_EPROTO, "the broker sent a channel that makes no sense");
	channel_enlist(ch);
	r = map_pages(ch, reply);
	if (r == 0)
		r = channel_unshared(ch)->role->open(channel_unshared(ch), o);
	if (r == 0)
		r = make_descriptors(ch);
	return r == 0 ? take_part(ch) : r;
}

int channel_open(share_client *c, const char *name, int role, uint32_t mode,
		 const share_channel_options *options, share_channel **out)
{
	share_channel_options o;
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	share_channel *ch;
	int r;

	if (!out)
		return fail(SHARE_EINVAL, "out is NULL");
	r = struct_in(share_channel_options, &o, options);
	if (r == 0)
		r = check_options(&o, role);
	if (r == 0 && mode != CHANNEL_DIRECT && (!name || strlen(name) > SHARE_NAME_MAX))
		r = name_check(name);
	if (r != 0)
		return r;
	ch = channel_new(c, role, &o);
	if (!ch)
		return fail_system(-ENOMEM, "opening a channel");
	r = ask(c, name, role, mode, &o, &reply);
	if (r == 0)
		r = set_up(ch, &o, &reply);
	if (r != 0) {
		channel_close(ch);
		return r;
	}
	*out = ch;
	return 0;
}

int share_channel_open(share_client *c, const char *name, int role,
		       const share_channel_options *options, share_channel **out)
{
	RANGE("share_channel_open", 0);
	HAZARDS;
	int r = client_resolve(&c);

	share_channel *ch;

	if (r == 0)
		r = channel_open(c, name, role, 0, options, out ? &ch : NULL);
	if (r == 0)
		*out = handle_give(ch);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

int channel_get_fd(share_channel *ch)
{
	struct members *members = channel_lock(ch);
	int r = members->role->get_fd(members);

	channel_unlock(ch);
	return r;
}

int share_channel_get_fd(share_channel *ch)
{
	HAZARDS;
	int r = channel_resolve(&ch);

	return r != 0 ? r : channel_get_fd(ch);
}

int channel_get_stats(share_channel *ch, share_channel_stats *out)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;
	struct members *members;

	if (struct_check(share_channel_stats, out) != 0)
		return SHARE_EINVAL;
	members = channel_lock(ch);
	if (members->given_up) {
		channel_unlock(ch);
		return channel_given_up();
	}
	stats.sleeps = members->sleeps;
	members->role->get_stats(members, &stats);
	channel_unlock(ch);
	struct_out(share_channel_stats, out, &stats);
	return 0;
}

int share_channel_get_stats(const share_channel *handle, share_channel_stats *out)
{
	HAZARDS;
	share_channel *ch = NULL;
	int r = channel_find(handle, &ch);

	return r != 0 ? r : channel_get_stats(ch, out);
}

/* ------------------------------------------------------------------------------------------- */
/* What services need of the channels they are made of                                         */

const struct channel_shape *channel_shape(const share_channel *ch)
{
	return &ch->shape;
}

void channel_self(share_channel *ch, struct channel_target *out)
{
	*out = (struct channel_target){ch->member, ch->client->page_id, ch->slot};
}

void channel_set_call(share_channel *ch, uint32_t index, uint32_t value)
{
	atomic_store_explicit(&channel_ticket_at(ch->own, &ch->shape, index)->call, value,
			      memory_order_release);
}

int channel_tell_of_less(share_channel *ch, int timer, share_channel *before)
{
	bool too_much = before && channel_unshared(before)->too_much;
	uint32_t late = before ? channel_unshared(before)->late : 0;
	struct members *members = channel_lock(ch);
	int less = timer < 0 ? -1 : fd_dup(timer), r = timer < 0 || less >= 0 ? 0 : less;

	fd_close(ch->less);
	ch->less = less < 0 ? -1 : less;
	members->too_much = too_much;
	members->late = late;
	if (too_much || late > 0)
		channel_tell_less(ch, 0);
	channel_unlock(ch);
	return r;
}

void channel_set_came_back(share_channel *ch, void *owner, void (*came_back)(void *owner))
{
	channel_lock(ch);
	atomic_store_explicit(&ch->owner, owner, memory_order_relaxed);
	ch->came_back = came_back;
	channel_unlock(ch);
}

void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m))
{
	ch->before_ack = before_ack;
	atomic_store_explicit(&ch->owner, owner, memory_order_release);
}

void channel_drop_owner(share_channel *ch)
{
	atomic_store_explicit(&ch->owner, NULL, memory_order_relaxed);
}

void *channel_owner(const share_channel *ch)
{
	void *owner = atomic_load_explicit(&ch->owner, memory_order_acquire);

	/* who drops it looks for hazards after that */
	if (!owner || !hazard_set(owner))
		return NULL;
	return atomic_load_explicit(&ch->owner, memory_order_relaxed) == owner ? owner : NULL;
}
