/* SPDX-License-Identifier: MIT */

/*
 * Structs grow: program and library may each be the older one. Which structs there are, and which
 * functions take them, is read from the headers (structs.sh); a new one does not compile here
 * before there is a way to call it. Each call is made with a struct that lies right before memory
 * which nobody may touch, so it is neither read nor written beyond the size that it says it has.
 */

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/service.h>

#include "libshare/program/struct.h"
#include "tests/harness/fixture.h"
#include "tests/themes/clients/old_program.h"
#include "tests/themes/clients/pinned.h"
#include "tests/themes/clients/structs.h"

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;
static share_channel *channel, *consumer;
static share_service *asks_nobody, *asks, *works;
static share_pending *pending;
static unsigned count;

static void start(void)
{
	int64_t shape[] = {4};
	share_tensor t = SHARE_TENSOR_INIT;

	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, shape));
	check_ok(share_tensor_set(buffer, &t));
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, NULL, &channel));
	check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, NULL, &consumer));
	check_ok(share_service_open(client, "nobody", SHARE_CALLER, NULL, &asks_nobody));
	check_ok(share_call_start(asks_nobody, NULL, NULL, 0, -1, NULL, &pending));
	check_ok(share_service_open(client, "service", SHARE_WORKER, NULL, &works));
	check_ok(share_service_open(client, "service", SHARE_CALLER, NULL, &asks));
}

static void stop(void)
{
	share_call_cancel(pending);
	share_service_close(asks_nobody);
	share_service_close(asks);
	share_service_close(works);
	share_channel_close(consumer);
	share_channel_close(channel);
	check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(structs, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */
/* A call of each function, which succeeds when the struct at @p is as it was made, and leaves
 * nothing behind                                                                              */

static const char *new_name(void)
{
	static char name[32];

	snprintf(name, sizeof(name), "name-%u", count++);
	return name;
}

static int call_share_fence_get_stats(void *p)
{
	return share_fence_get_stats(client, p);
}

/* Where there is no device, that is said after the options were read. */
static int call_share_event_create(void *p)
{
	share_event *event;
	int r = share_event_create(client, p, &event);

	if (r == 0)
		share_event_release(event);
	return r == SHARE_ENODEV ? 0 : r;
}

/* Where there is no device there is no event either: then it is as for those structs that are. */
static int call_share_event_get_info(void *p)
{
	share_event_info none = SHARE_EVENT_INFO_INIT;
	share_event *event;
	int r = share_event_create(client, NULL, &event);

	if (r == 0) {
		r = share_event_get_info(event, p);
		share_event_release(event);
		return r;
	}
	check_error(r, SHARE_ENODEV);
	r = struct_check(share_event_info, p);
	if (r == 0)
		struct_out(share_event_info, p, &none);
	return r;
}

static int call_share_tensor_init(void *p)
{
	int64_t shape[] = {4};

	return share_tensor_init(p, SHARE_FLOAT32, 1, shape);
}

static int call_share_tensor_extent(void *p)
{
	uint64_t extent;

	return share_tensor_extent(p, &extent);
}

static int call_share_tensor_encode(void *p)
{
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX];
	int r = share_tensor_encode(p, bytes, sizeof(bytes));

	return r > 0 ? 0 : r;
}

static int call_share_tensor_decode(void *p)
{
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX];
	share_tensor t = SHARE_TENSOR_INIT;
	int64_t shape[] = {4};
	int r;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, shape));
	r = share_tensor_decode(bytes, (size_t)share_tensor_encode(&t, bytes, sizeof(bytes)), p);
	return r > 0 ? 0 : r;
}

static int call_share_tensor_set(void *p)
{
	return share_tensor_set(buffer, p);
}

static int call_share_tensor_get(void *p)
{
	return share_tensor_get(buffer, p);
}

static int call_share_connect_with(void *p)
{
	share_client *c;
	int r = share_connect_with(broker_socket(), p, &c);

	if (r == 0)
		share_disconnect(c);
	return r;
}

static int call_share_pool_create(void *p)
{
	share_pool *made;
	int r = share_pool_create(client, new_name(), p, &made);

	if (r == 0)
		share_pool_close(made);
	return r;
}

static int call_share_pool_get_info(void *p)
{
	return share_pool_get_info(pool, p);
}

static int call_share_alloc_with(void *p)
{
	share_buffer *b;
	int r = share_alloc_with(pool, 4096, p, NULL, &b);

	return r == 0 ? share_release(b, NULL) : r;
}

static int call_share_buffer_get_info(void *p)
{
	return share_buffer_get_info(buffer, p);
}

static int call_share_get_recipe(void *p)
{
	share_recipe recipe = SHARE_RECIPE_INIT;
	int r = share_get_recipe(buffer, p);

	if (r == 0) {
		memcpy(&recipe, p, sizeof(recipe));
		close(recipe.fd);
	}
	return r;
}

static int call_share_publish_with(void *p)
{
	const char *name = new_name();
	int r = share_publish_with(buffer, name, p, NULL, NULL);

	return r == 0 ? share_unpublish(client, name) : r;
}

static int call_share_export_with(void *p)
{
	share_token token;
	int r = share_export_with(buffer, p, NULL, &token);

	return r == 0 ? share_revoke(client, &token) : r;
}

static int on_object(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static int call_share_monitor(void *p)
{
	return share_monitor(client, p, 0, on_object, NULL);
}

static int call_share_channel_open(void *p)
{
	share_channel *opened;
	int r = share_channel_open(client, new_name(), SHARE_CONSUMER, p, &opened);

	if (r == 0)
		share_channel_close(opened);
	return r;
}

static int call_share_channel_get_stats(void *p)
{
	return share_channel_get_stats(channel, p);
}

static int call_share_service_open(void *p)
{
	share_service *service;
	int r = share_service_open(client, new_name(), SHARE_CALLER, p, &service);

	if (r == 0)
		share_service_close(service);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Messages. A call that fails leaves the message to who has a struct of the right size        */

static share_message copied(const void *p)
{
	share_message m;

	memcpy(&m, p, sizeof(m));
	m.size = sizeof(m);
	return m;
}

static void copy_to(void *p, const share_message *m)
{
	memcpy((char *)p + sizeof(m->size), &m->buffer, sizeof(*m) - sizeof(m->size));
}

static share_message receive(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(consumer, -1, NULL, &m));
	return m;
}

static share_message receive_one(void)
{
	check_ok(share_send(channel, NULL, "1", 1, NULL));
	return receive();
}

static int received(int r, const void *p)
{
	share_message m = r < 0 ? receive() : copied(p);

	check(m.data_size == 1 && m.data[0] == '1' && m.n_buffers == 0);
	check_ok(share_ack(&m, NULL));
	return r < 0 ? r : 0;
}

static int call_share_recv(void *p)
{
	check_ok(share_send(channel, NULL, "1", 1, NULL));
	return received(share_recv(consumer, -1, NULL, p), p);
}

static int call_share_recv_many(void *p)
{
	check_ok(share_send(channel, NULL, "1", 1, NULL));
	return received(share_recv_many(consumer, -1, NULL, p, 1), p);
}

static int acknowledged(int r, share_message *m)
{
	if (r < 0)
		check_ok(share_ack(m, NULL));
	return r;
}

static int call_share_ack(void *p)
{
	share_message m = receive_one();

	copy_to(p, &m);
	return acknowledged(share_ack(p, NULL), &m);
}

static int call_share_ack_many(void *p)
{
	share_message m = receive_one();

	copy_to(p, &m);
	return acknowledged(share_ack_many(p, 1, NULL), &m);
}

/* The channel is a broadcast, so the message stays the program's. */
static int call_share_reject(void *p)
{
	share_message m = receive_one();
	int r;

	copy_to(p, &m);
	r = share_reject(p, NULL);
	check_ok(share_ack(&m, NULL));
	return r == SHARE_ENOTSUP ? 0 : r;
}

static int call_share_send_many(void *p)
{
	share_message m;
	int r = share_send_many(channel, p, 1, NULL);

	if (r < 0)
		return r;
	m = receive();
	return share_ack(&m, NULL);
}

/* There is none; a struct that cannot be is refused before. */
static int none(int r)
{
	return r == SHARE_EAGAIN || r == SHARE_ETIMEDOUT ? 0 : r;
}

static int call_share_channel_take_back(void *p)
{
	return none(share_channel_take_back(channel, p));
}

static int call_share_call(void *p)
{
	return none(share_call(asks_nobody, NULL, NULL, 0, 0, NULL, p));
}

/* Some take a message that is sent, and one that was or is to be received: which of them @p is. */
static bool is_outgoing;

static int call_share_call_with(void *p)
{
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_message m = SHARE_MESSAGE_INIT;

	return none(
	    share_call_with(asks_nobody, is_outgoing ? p : &out, 0, NULL, is_outgoing ? &m : p));
}

static int call_share_call_start_with(void *p)
{
	share_pending *call;
	int r = share_call_start_with(asks_nobody, p, 0, NULL, &call);

	if (r == 0)
		share_call_cancel(call);
	return none(r);
}

static int call_share_call_finish(void *p)
{
	return none(share_call_finish(pending, 0, NULL, p));
}

static share_pending *ask(void)
{
	share_pending *call;

	check_ok(share_call_start(asks, NULL, "1", 1, -1, NULL, &call));
	return call;
}

static share_message take_request(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_next_request(works, -1, NULL, &m));
	check(m.data_size == 1 && m.data[0] == '1');
	return m;
}

/* The request is answered, if it was not yet. */
static int answered(int r, share_pending *call, share_message *m)
{
	if (m)
		check_ok(share_reply(m, NULL, NULL, 0, NULL));
	share_call_cancel(call);
	return r;
}

static int call_share_next_request(void *p)
{
	share_pending *call = ask();
	int r = share_next_request(works, -1, NULL, p);
	share_message m = r < 0 ? take_request() : copied(p);

	return answered(r, call, &m);
}

static int call_share_request_status(void *p)
{
	share_pending *call = ask();
	share_message m = take_request();

	copy_to(p, &m);
	return answered(share_request_status(p), call, &m);
}

static int call_share_reply(void *p)
{
	share_pending *call = ask();
	share_message m = take_request();
	int r;

	copy_to(p, &m);
	r = share_reply(p, NULL, NULL, 0, NULL);
	return answered(r, call, r < 0 ? &m : NULL);
}

static int call_share_reply_with(void *p)
{
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_pending *call = ask();
	share_message m = take_request();
	int r;

	if (!is_outgoing)
		copy_to(p, &m);
	r = share_reply_with(is_outgoing ? &m : p, is_outgoing ? p : &out, NULL);
	return answered(r, call, r < 0 ? &m : NULL);
}

/* ------------------------------------------------------------------------------------------- */

/* What a program has in one of its structs before the call. */
static void make_share_tensor(void *p)
{
	share_tensor t = SHARE_TENSOR_INIT;
	int64_t shape[] = {4};

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, shape));
	memcpy(p, &t, sizeof(t));
}

enum { IN, OUT };

struct use {
	const char *type, *function;
	size_t size, first; /* of this version, and of the first one, with its padding */
	int (*call)(void *p);
	int direction;
};

#define USE(type_, function_, direction_) \
	{#type_, #function_, sizeof(type_), (FIRST_##type_ + 7) & ~7, call_##function_, direction_},
static const struct use uses[] = {USES(USE)};
#define N_USES (sizeof(uses) / sizeof(uses[0]))

static int call(const struct use *u, void *p)
{
	is_outgoing = strcmp(u->type, "share_outgoing") == 0;
	return u->call(p);
}

/* Memory that ends where nobody may read or write. */
static unsigned char *before_the_end(size_t size)
{
	static unsigned char *pages;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 2 * page;

	if (!pages) {
		pages = mmap(NULL, n + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
		check(pages != MAP_FAILED && mprotect(pages + n, page, PROT_NONE) == 0);
	}
	return pages + n - size;
}

/* A struct that says it has @said bytes, and has @size; what is behind those we know is @tail. */
static unsigned char *make(const struct use *u, size_t size, size_t said, int tail)
{
	static const share_connect_options connecting = SHARE_CONNECT_OPTIONS_INIT;
	unsigned char *p = before_the_end(size), all[4096] = {0};

	/* one of zeros has no time to connect in */
	if (strcmp(u->type, "share_connect_options") == 0)
		memcpy(all, &connecting, sizeof(connecting));
	if (strcmp(u->type, "share_tensor") == 0)
		make_share_tensor(all);
	memcpy(all, &said, sizeof(said));
	memcpy(p, all, size);
	if (size > u->size)
		memset(p + u->size, tail, size - u->size);
	return p;
}

static void refused(const struct use *u, unsigned char *p, const char *why)
{
	check_result(__FILE__, __LINE__, u->function, call(u, p), SHARE_EINVAL);
	check_detail(why);
	check_detail(u->type);
}

/* What the struct says of itself stays what it was. */
static void taken(const struct use *u, unsigned char *p, size_t size)
{
	size_t said;

	check_result(__FILE__, __LINE__, u->function, call(u, p), 0);
	memcpy(&said, p, sizeof(said));
	check_eq(said, size);
}

Test(structs, that_say_nothing_or_nonsense_are_refused_with_what_initialises_them)
{
	char init[128];

	for (const struct use *u = uses; u < uses + N_USES; u++) {
		check(u->first <= u->size);
		snprintf(init, sizeof(init), "initialise it with %s_INIT, or", u->type);
		for (char *c = strstr(init, "share_"); *c && *c != ','; c++)
			*c = (char)toupper((unsigned char)*c);
		refused(u, make(u, u->size, 0, 0), init);
		for (size_t said = 1; said < u->first; said++)
			refused(u, make(u, u->size, said, 0), "says that its size is");
		refused(u, make(u, u->size, u->size + 1, 0), "says that its size is");
		refused(u, make(u, u->size, u->size + 9, 0), "says that its size is");
		refused(u, make(u, u->size, STRUCT_MAX + 8, 0), "says that its size is");
		refused(u, make(u, u->size, SIZE_MAX, 0), "says that its size is");
	}
}

Test(structs, of_programs_that_know_less_are_taken_and_not_touched_beyond_their_size)
{
	for (const struct use *u = uses; u < uses + N_USES; u++)
		for (size_t size = u->first; size <= u->size; size += 8)
			taken(u, make(u, size, size, 0), size);
}

Test(structs, of_programs_that_know_more_are_taken_if_they_ask_for_nothing_unknown)
{
	for (const struct use *u = uses; u < uses + N_USES; u++)
		for (size_t more = 8; more <= 128; more += more)
			taken(u, make(u, u->size + more, u->size + more, 0), u->size + more);
}

Test(structs, that_ask_for_what_the_library_does_not_know_are_refused_and_say_where)
{
	char where[64];

	for (const struct use *u = uses; u < uses + N_USES; u++) {
		if (u->direction != IN)
			continue;
		for (size_t more = 8; more <= 128; more += more) {
			size_t size = u->size + more;
			unsigned char *p = make(u, size, size, 0);

			p[size - 1] = 1;
			snprintf(where, sizeof(where), "the one at byte %zu is not 0", size - 1);
			refused(u, p, where);
		}
	}
}

Test(structs, that_are_filled_in_have_zeros_in_what_the_library_does_not_know)
{
	unsigned char zeros[128] = {0};

	for (const struct use *u = uses; u < uses + N_USES; u++) {
		size_t size = u->size + sizeof(zeros);
		unsigned char *p = make(u, size, size, 0xff);

		if (u->direction != OUT)
			continue;
		taken(u, p, size);
		check(memcmp(p + u->size, zeros, sizeof(zeros)) == 0);
	}
}

/* A struct ends with a member, so that the next one does not lie where an older program has
 * anything. In those of the first version what follows the last member is known to be padding. */
Test(structs, that_programs_fill_in_have_no_padding_behind_what_was_added)
{
#define ENDS_WITH(type, member)                                                                \
	_Static_assert(offsetof(type, member) + sizeof(((type *)0)->member) == sizeof(type) || \
			   sizeof(type) == ((FIRST_##type + 7) & ~7),                          \
		       #type " ends with a member")
	ENDS_WITH(share_connect_options, timeout_ms);
	ENDS_WITH(share_pool_options, numa);
	ENDS_WITH(share_alloc_options, data);
	ENDS_WITH(share_publish_options, tensor);
	ENDS_WITH(share_export_options, tensor);
	ENDS_WITH(share_monitor_options, uid);
	ENDS_WITH(share_event_options, name);
	ENDS_WITH(share_channel_options, reserved);
	ENDS_WITH(share_outgoing, reserved);
	ENDS_WITH(share_service_options, data_max);
}

#define STAYS(type, member, offset) \
	_Static_assert(offsetof(type, member) == (offset), #type "." #member);
PINNED(STAYS)

/* ------------------------------------------------------------------------------------------- */

Test(structs, within_others_grow_as_well)
{
	share_publish_options o = SHARE_PUBLISH_OPTIONS_INIT;
	struct {
		share_tensor t;
		uint64_t more;
	} newer;

	memset(&newer, 0, sizeof(newer));
	make_share_tensor(&newer);
	newer.t.size = sizeof(newer);
	o.tensor = &newer.t;
	check_ok(share_publish_with(buffer, "name", &o, NULL, NULL));
	newer.more = 1;
	check_error(share_publish_with(buffer, "name", &o, NULL, NULL), SHARE_EINVAL);
	check_detail("the share_tensor has members that this library");
	check_ok(share_unpublish(client, "name"));
}

/* The first element's size is that of all. */
Test(structs, in_an_array_have_the_size_of_the_first)
{
	struct {
		share_outgoing m;
		uint64_t more;
	} out[3];
	struct {
		share_message m;
		uint64_t more;
	} in[4];

	memset(out, 0, sizeof(out));
	memset(in, 0xff, sizeof(in));
	out[0].m.size = sizeof(out[0]);
	in[0].m.size = sizeof(in[0]);
	for (int i = 0; i < 3; i++) {
		out[i].m.data = &"abc"[i];
		out[i].m.data_size = 1;
	}
	out[2].more = 1;
	check_error(share_send_many(channel, &out[0].m, 3, NULL), SHARE_EINVAL);
	check_detail("the share_outgoing has members that this library");
	out[2].more = 0;
	check_eq(share_send_many(channel, &out[0].m, 3, NULL), 3);
	check_eq(share_recv_many(consumer, -1, NULL, &in[0].m, 4), 3);
	for (int i = 0; i < 3; i++)
		check(in[i].m.size == sizeof(in[0]) && in[i].more == 0 && in[i].m.data_size == 1 &&
		      in[i].m.data[0] == "abc"[i]);
	check_ok(share_ack_many(&in[0].m, 3, NULL));
	for (int i = 0; i < 3; i++)
		check(in[i].m.size == sizeof(in[0]) && !in[i].m.channel && !in[i].m.data);
	check_error(share_ack(&in[0].m, NULL), SHARE_EINVAL);
	check_detail("there is no message");
}

Test(structs, of_messages_name_their_buffer_in_either_way)
{
	share_buffer *const one[] = {buffer}, *const two[] = {buffer, buffer};
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_message m = SHARE_MESSAGE_INIT;

	out.buffers = one;
	out.n_buffers = 1;
	check_eq(share_send_many(channel, &out, 1, NULL), 1);
	check_ok(share_recv(consumer, -1, NULL, &m));
	check(m.n_buffers == 1 && m.buffers[0] == m.buffer);
	check_eq(share_id(m.buffer), share_id(buffer));
	check_ok(share_ack(&m, NULL));
	check(m.n_buffers == 0 && !m.buffers && !m.buffer);
	out.buffers = two;
	out.n_buffers = 2;
	check_error(share_send_many(channel, &out, 1, NULL), SHARE_EINVAL);
	check_detail("carries up to 1 buffer, not 2; up to 32 if all who open it say so (buffers)");
	out.n_buffers = 1;
	out.buffer = (share_buffer *)(void *)client;
	check_error(share_send_many(channel, &out, 1, NULL), SHARE_EINVAL);
	check_detail("buffer is not the first of them");
}

/* `wait_for` lies where older programs have anything. */
Test(structs, of_the_first_version_have_nothing_in_their_padding)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.size = 72;
	o.when_full = SHARE_FULL_FAIL;
	o.wait_for = 0x5a5a5a5a;
	check_ok(share_channel_open(client, "old", SHARE_PRODUCER, &o, &ch));
	check_ok(share_send(ch, NULL, "1", 1, NULL)); /* it waits for nobody */
	share_channel_close(ch);
	o.size = sizeof(o);
	o.wait_for = 1;
	check_ok(share_channel_open(client, "new", SHARE_PRODUCER, &o, &ch));
	check_error(share_send(ch, NULL, "1", 1, NULL), SHARE_EAGAIN);
	share_channel_close(ch);
}

Test(structs, have_members_for_what_is_to_come_that_are_refused)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.reserved = 1;
	check_error(share_channel_open(client, "several", SHARE_PRODUCER, &o, &ch), SHARE_EINVAL);
	check_detail("reserved");
	o.reserved = 0;
	check_ok(share_channel_open(client, "several", SHARE_PRODUCER, &o, &ch));
	share_channel_close(ch);
}

Test(structs, of_the_oldest_version_that_counts_work)
{
	const char *failed = old_program(broker_socket());

	if (failed)
		check_failed(__FILE__, __LINE__, "%s: %s", failed, share_error_detail());
}
