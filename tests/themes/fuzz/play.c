/* SPDX-License-Identifier: MIT */

/*
 * What three clients of one process do to a broker in the same process: packets, also without a
 * handshake and with descriptors, values on their timelines, bytes in their pages of channels,
 * another configuration to be read, hanging up, dying, not reading, and time that passes.
 *
 * An input is a byte of flags (bit n: client n comes without a handshake; bit n + 4: it does not
 * come before it is told to; bit 3: each is of a user of its own) and records: a byte that says
 * what (low half) and who (high half), two bytes of size, and so many bytes.
 */

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/channel.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/names/name.h"
#include "broker/names/names.h"
#include "broker/names/token.h"
#include "broker/socket/peer.h"
#include "pages/channel_page.h"
#include "pages/page.h"
#include "pages/timeline.h"
#include "tests/themes/fuzz/fuzz.h"
#include "tests/themes/fuzz/play.h"
#include "wire/packet.h"

#define ENDS        3
#define OF_USERS    (1 << 3)
#define RECORDS_MAX 300
#define HOUR_MS     (60 * 60 * 1000)
#define PLACEHOLDER 0xee /* 32 of these stand for the last token */

enum what {
	PACKET, /* and all numbers that are not below */
	RECONFIGURE = 6,
	POKE_CHANNEL,
	PACKET_WITH_DESCRIPTOR,
	POKE,
	HANG_UP,
	DIE,
	CONNECT,
	STOP_OR_GO_ON_READING,
	TIME,
	LONG_PACKET, /* its last byte again and again */
};

static struct config *config;
static bool of_users;
struct broker *broker;
static unsigned char token[32];

static struct end {
	int socket;
	uint64_t client;
	bool deaf, numbered;
	uint64_t last_number;
	struct timeline_page *page;
	unsigned char *channel; /* its page in the last one it joined */
	size_t channel_size;
} ends[ENDS];

static unsigned char packet[WIRE_PACKET_MAX];

/* The first is the broker's own user, the second may make pools, the third only read. */
static const uid_t users[ENDS] = {0, 1001, 1002};
static const struct end *coming; /* as its own user, or NULL */

/* The thread that reads the configuration again: done before anything else happens. */
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
			  void *(*function)(void *), void *data);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
			  void *(*function)(void *), void *data)
{
	(void)attributes;
	*out = pthread_self();
	function(data);
	return 0;
}

int __real_peer_identify(int socket, struct peer *out);
int __wrap_peer_identify(int socket, struct peer *out);
int __wrap_peer_identify(int socket, struct peer *out)
{
	int r = __real_peer_identify(socket, out);

	if (r == 0 && coming && coming != ends) {
		out->uid = users[coming - ends];
		out->n_groups = 0;
	}
	return r;
}

void play_run(void)
{
	for (int i = 0; i < 2; i++) {
		event_base_loop(broker->base, EVLOOP_NONBLOCK);
		broker_commit(broker);
	}
}

static struct client *find_client(uint64_t id)
{
	for (uint32_t i = 0; i < broker->clients->n_slots; i++)
		if (broker->clients->by_slot[i] && broker->clients->by_slot[i]->id == id)
			return broker->clients->by_slot[i];
	return NULL;
}

static void forget_channel(struct end *e)
{
	page_unmap(e->channel, e->channel_size);
	e->channel = NULL;
}

/* As a member does before it is ready. */
static void map_channel(struct end *e, const struct wire_channel *m, int fd)
{
	struct channel_shape shape;
	struct stat st;
	void *page;

	expect(m->shape.size == CHANNEL_SHAPE_SENT);
	memcpy(&shape, m->shape.data, CHANNEL_SHAPE_SENT);
	shape.buffers = m->buffers;
	expect(channel_shape_is_valid(&shape));
	expect(fstat(fd, &st) == 0 && ((size_t)st.st_size == channel_ring_size(&shape, m->layout) ||
				       (size_t)st.st_size == channel_ledger_size(&shape)));
	/* who said that it was ready before it read this has nothing to write into */
	if (page_map(fd, (size_t)st.st_size, true, &page) != 0)
		return;
	forget_channel(e);
	e->channel = page;
	e->channel_size = (size_t)st.st_size;
}

/* One descriptor of each kind for each member that is new. */
static void check_members(const struct wire_channel_members *m, size_t n_fds)
{
	struct wire_member member;
	size_t n_new = 0;

	expect(m->members.size % sizeof(member) == 0);
	for (size_t at = 0; at < m->members.size; at += sizeof(member)) {
		memcpy(&member, (const unsigned char *)m->members.data + at, sizeof(member));
		expect(member.slot < CHANNEL_MEMBERS_MAX && member.state >= WIRE_MEMBER_HERE &&
		       member.state <= WIRE_MEMBER_CLOSED);
		n_new += member.flags & WIRE_MEMBER_NEW;
	}
	expect(n_fds == 3 * n_new);
}

/* Whoever has it may have it, in that way. What was destroyed meanwhile nobody is asked about, nor
 * whether it was before the configuration changed that somebody was given it. */
static void check_access(const struct end *e, uint64_t buffer, uint32_t mode)
{
	const struct buffer *b = buffer_find(broker, buffer);
	const struct client *c = find_client(e->client);

	if (b && c && play_is_as_at_first)
		expect(pool_may(buffer_pool(b), c, access_right_of(mode)));
}

/* Nothing comes twice from a broker that has not died. */
static void look_at_number(struct end *e, size_t *size)
{
	uint64_t number;

	if (!e->numbered)
		return;
	expect(wire_take_number(packet, size, &number) == 0 && number > e->last_number);
	e->last_number = number;
}

/* The broker sends nothing that libshare would not take. */
static void look_at(struct end *e, size_t size, struct fd_list *fds)
{
	struct wire_message m;

	look_at_number(e, &size);
	expect(wire_decode(&m, WIRE_TO_CLIENT, packet, size, fds->n) == 0);
	switch (m.type) {
	case WIRE_WELCOME:
		e->numbered = true;
		look_at_number(e, &size);
		if (!e->page)
			expect(timeline_map(fds->fds[0], true, &e->page) == 0);
		break;
	case WIRE_TOKEN:
		expect(m.token.token.size == sizeof(token));
		memcpy(token, m.token.token.data, sizeof(token));
		break;
	case WIRE_GRANT:
		expect(fds->n == (m.grant.flags & WIRE_GRANT_SEGMENT) +
				     2 * m.grant.pages.size / sizeof(uint64_t));
		check_access(e, m.grant.buffer, m.grant.mode);
		expect(m.grant.size <= m.grant.segment_size &&
		       m.grant.offset <= m.grant.segment_size - m.grant.size);
		break;
	case WIRE_CHANNEL:
		map_channel(e, &m.channel, fds->fds[0]);
		break;
	case WIRE_CHANNEL_MEMBERS:
		check_members(&m.channel_members, fds->n);
		break;
	case WIRE_ERROR:
		expect(m.error.error < 0);
		break;
	default:
		break;
	}
}

static void listen_to_broker(struct end *e)
{
	struct fd_list fds;
	size_t size = sizeof(packet);

	while (e->socket >= 0 && !e->deaf &&
	       packet_receive(e->socket, packet, &size, &fds, false) == 0) {
		look_at(e, size, &fds);
		fd_list_close(&fds);
		size = sizeof(packet);
		event_base_loop(broker->base, EVLOOP_NONBLOCK);
		broker_commit(broker);
	}
}

static void say(struct end *e, const void *data, size_t size, size_t n_fds)
{
	if (e->socket < 0)
		return;
	packet_send(e->socket, data, size, (int[]){STDIN_FILENO}, n_fds, false);
	play_run();
	for (int i = 0; i < ENDS; i++)
		listen_to_broker(&ends[i]);
}

static void say_message(struct end *e, const struct wire_message *m)
{
	unsigned char buffer[256];

	say(e, buffer, wire_encode(m, buffer, sizeof(buffer)), 0);
}

static void shake_hands(struct end *e)
{
	struct wire_message hello = {.type = WIRE_HELLO, .serial = 1};
	struct wire_message ready = {.type = WIRE_READY, .serial = 2};

	hello.hello.version = WIRE_VERSION;
	hello.hello.oldest = WIRE_VERSION_OLDEST;
	say_message(e, &hello);
	say_message(e, &ready);
}

static void come(struct end *e, bool with_handshake)
{
	int pair[2];

	if (e->socket >= 0)
		return;
	timeline_unmap(e->page);
	e->page = NULL;
	e->deaf = e->numbered = false;
	e->last_number = 0;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	e->socket = pair[0];
	/* full soon */
	expect(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)) == 0);
	coming = of_users ? e : NULL;
	client_accept(broker, pair[1], NULL);
	coming = NULL;
	e->client = broker->clients->last_id;
	if (with_handshake)
		shake_hands(e);
}

/* As the pidfd would say. */
static void report_death(struct client *c)
{
	if (c->end.death.user)
		c->end.death.serve(&c->end.death, 0);
}

/* It is gone, and what it mapped with it; or not: it may have given that to others. */
static void die(struct end *e)
{
	struct client *c = find_client(e->client);

	if (c)
		report_death(c);
	play_run();
	e->socket = fd_close(e->socket);
}

static void poke(struct end *e, const uint8_t *data, size_t size)
{
	uint64_t value = 0;

	if (!e->page || size == 0)
		return;
	memcpy(&value, data + 1, size - 1 < sizeof(value) ? size - 1 : sizeof(value));
	e->page->slots[data[0]].value = value;
	play_run();
}

/* A u32 that says where, and the bytes. */
static void poke_channel(struct end *e, const uint8_t *data, size_t size)
{
	uint32_t at;

	if (!e->channel || size < sizeof(at))
		return;
	memcpy(&at, data, sizeof(at));
	for (size_t i = sizeof(at); i < size; i++)
		e->channel[(at + i - sizeof(at)) % e->channel_size] = data[i];
	play_run();
}

static void say_packet(struct end *e, enum what what, const uint8_t *data, size_t size)
{
	unsigned char placeholder[sizeof(token)];
	unsigned char *place;

	if (size == 0)
		return;
	memset(placeholder, PLACEHOLDER, sizeof(placeholder));
	memcpy(packet, data, size);
	if (what == LONG_PACKET) {
		memset(packet + size, packet[size - 1], sizeof(packet) - size);
		size = sizeof(packet) - 1000;
	}
	place = memmem(packet, size, placeholder, sizeof(placeholder));
	if (place)
		memcpy(place, token, sizeof(token));
	say(e, packet, size, what == PACKET_WITH_DESCRIPTOR);
}

static void obey(struct end *e, enum what what, uint16_t size, struct input *in)
{
	const uint8_t *data;

	switch (what) {
	case POKE:
		size = (uint16_t)input_bytes(in, size, &data);
		poke(e, data, size);
		break;
	case POKE_CHANNEL:
		size = (uint16_t)input_bytes(in, size, &data);
		poke_channel(e, data, size);
		break;
	case RECONFIGURE:
		play_configure(size);
		break;
	case HANG_UP:
		e->socket = fd_close(e->socket);
		play_run();
		break;
	case DIE:
		die(e);
		break;
	case CONNECT:
		come(e, size % 4 != 3);
		break;
	case STOP_OR_GO_ON_READING:
		e->deaf = !e->deaf;
		listen_to_broker(e);
		break;
	case TIME:
		clock_advance(size);
		play_run();
		break;
	default:
		size = (uint16_t)input_bytes(in, size, &data);
		say_packet(e, what, data, size);
	}
}

/* All are dead: nothing is left but what was to outlive them. */
void play_end(void)
{
	for (uint32_t i = 0; i < broker->clients->n_slots; i++)
		if (broker->clients->by_slot[i])
			report_death(broker->clients->by_slot[i]);
	for (int i = 0; i < 100 && broker->clients->n > 0; i++)
		play_run();
	expect(broker->clients->n == 0);
	/* of who left a channel, what the dead were asked for is looked at a little later */
	for (int i = 0; i < 100 && !TAILQ_EMPTY(&broker->channels->list); i++) {
		clock_advance(i == 50 ? HOUR_MS : 100); /* messages without a consumer end then */
		play_run();
	}
	expect(TAILQ_EMPTY(&broker->channels->list) && broker->channels->n_members == 0);
	expect(slab_live(&broker->buffers->leases) == 0);
	for (uint32_t i = 0; i < slab_end(&broker->names->token_slab); i++) {
		const struct token *t = slab_at(&broker->names->token_slab, i);

		expect(!t || !t->live || (!t->maker && t->ends_ms > 0));
	}
	expect(TAILQ_EMPTY(&broker->names->watches));
	names_end(broker);
	expect(broker->names->n == 0 && broker->names->tokens.count == 0);
	expect(slab_live(&broker->buffers->slab) == 0);
	clock_advance(100);
	play_run();
	broker_free(broker);
	config_free(config);
}

int play_start(const struct keeper *keeper)
{
	memset(token, PLACEHOLDER, sizeof(token));
	config = play_load();
	return broker_new(config, keeper, &broker);
}

void play(struct input *in)
{
	uint8_t flags = input_u8(in);

	of_users = flags & OF_USERS;
	for (int i = 0; i < ENDS; i++) {
		ends[i] = (struct end){.socket = -1};
		if (!(flags & 1 << (i + 4)))
			come(&ends[i], !(flags & 1 << i));
	}
	for (int i = 0; i < RECORDS_MAX && input_left(in) > 0; i++) {
		uint8_t head = input_u8(in);

		obey(&ends[(head >> 4) % ENDS], head & 0xf, input_u16(in), in);
	}
}

void play_hang_up(void)
{
	for (int i = 0; i < ENDS; i++)
		fd_close(ends[i].socket);
}

void play_forget(void)
{
	for (int i = 0; i < ENDS; i++) {
		timeline_unmap(ends[i].page);
		forget_channel(&ends[i]);
	}
}
