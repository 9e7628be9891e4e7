/* SPDX-License-Identifier: MIT */

/*
 * Both halves of a channel, and somebody who writes into the page of one of them whatever the input
 * says, between any two operations: a ring whose producer lies, or ledgers of consumers that do.
 * Whatever they say, the other half stays inside of its memory, comes to an end, and keeps its own
 * books: each message that was sent comes back at most once, and what is received is within bounds.
 */

#include <errno.h>
#include <string.h>

#include <share/channel.h>

#include "ring/ring.h"
#include "tests/themes/fuzz/fuzz.h"

#define CONSUMERS  3
#define REFERENCES 4096
#define DATA_ROOM  1024 /* no channel of these has more, and nothing is sent that is larger */

static struct channel_shape shape;
static struct ring_producer *producer;
static struct ring_consumer *consumers[CONSUMERS];
static unsigned char *ring, *ledgers[CONSUMERS];
static bool is_there[CONSUMERS];
static uint64_t members;
/* Messages that were sent; what came back. */
static uint32_t n_sent;
static bool is_back[REFERENCES];
static uint32_t unretired[CHANNEL_IN_FLIGHT_MAX], n_unretired;
#define OWNERS 4096
static struct ring_owner owners[OWNERS];
static uint32_t n_owners;

/* In a block of its own size, so that a sanitizer sees who gets beyond it. */
static void *page(size_t size)
{
	void *at = aligned_alloc(4096, size);

	expect(at);
	memset(at, 0, size);
	return at;
}

/* @how: enum ring_admission. */
static void comes(uint32_t i, unsigned how)
{
	struct ring_owner *owner = &owners[n_owners];
	uint64_t member = ++members;

	if (is_there[i] || n_owners == OWNERS)
		return;
	n_owners++;
	*owner = (struct ring_owner){.member = member};
	ring_consumer_free(consumers[i]);
	memset(ledgers[i], 0, channel_ledger_size(&shape));
	expect(ring_consumer_new(&shape, CHANNEL_WITH_COPIES, ledgers[i], i, member,
				 &consumers[i]) == 0);
	if (how & RING_LATEST && shape.mode == CHANNEL_BROADCAST)
		ring_consumer_get_latest(consumers[i]);
	ring_consumer_attach(consumers[i], 0, 1, ring, true);
	ring_producer_admit(producer, i, owner, ledgers[i], 0, how);
	is_there[i] = true;
}

static void send(struct input *in)
{
	unsigned char data[DATA_ROOM] = {0};
	struct ring_message m = {
	    .buffer = input_u8(in), .size = 1, .data_size = input_u8(in), .data = data};
	struct ring_further further[CHANNEL_BUFFERS_MAX];
	uint32_t target = input_u8(in) % (CONSUMERS + 1);
	int r;

	m.further = further;
	if (n_sent == REFERENCES)
		return;
	if (channel_far_size(&shape) > 0)
		m.data_size *= 4;
	for (m.n_further = 0; m.n_further < target && m.n_further + 1 < shape.buffers;)
		further[m.n_further++] = (struct ring_further){.buffer = 1 + target, .size = 1};
	r = ring_producer_send_several(producer, &m, target, (void *)(uintptr_t)n_sent);
	expect(r == 0 || (r == -EINVAL && m.n_further > 0 && m.buffer == 0) || r == -EAGAIN ||
	       (r == -ENOENT && shape.mode == CHANNEL_DIRECT) ||
	       (r == -EINVAL && m.data_size > shape.data_max));
	if (r == 0)
		n_sent++;
}

static void give_up(uint32_t i, const struct ring_message *m, uint8_t how)
{
	expect(m->ticket < shape.in_flight && m->version != 0 && m->data_size <= shape.data_max &&
	       m->fence.slot < 256 && m->offset >> 48 == 0 && m->size >> 48 == 0);
	expect(m->n_further < channel_buffers(&shape));
	for (uint32_t k = 0; k < m->n_further; k++)
		expect(m->further[k].ticket < shape.in_flight && m->further[k].version != 0 &&
		       m->further[k].buffer != 0 &&
		       (m->further[k].offset | m->further[k].size) >> 48 == 0);
	if (m->n_further > 0 && how % 4 != 0)
		ring_consumer_give_up(consumers[i], 0, 1, m->ticket, m->version,
				      &(struct ring_fence){how, how}, how % 8 == 1, m->further,
				      m->n_further, how);
	else if (m->n_further > 0 && how % 16 == 4)
		ring_consumer_give_up(consumers[i], 0, 1, m->ticket, m->version, NULL,
				      how % 32 == 4, m->further, m->n_further, how);
	else if (how % 16 == 2)
		ring_consumer_reject(consumers[i], 0, 1, m->ticket, m->version, how % 32 == 2);
	else if (how % 4 != 0)
		ring_consumer_ack(consumers[i], 0, 1, m->ticket, m->version,
				  (struct ring_fence){how, how}, how % 8 == 1);
}

/* Up to four at once where @how is high. */
static void receive(uint32_t i, uint8_t how)
{
	unsigned char data[4][DATA_ROOM];
	struct ring_further further[4][CHANNEL_BUFFERS_MAX - 1];
	struct ring_message m[4];
	uint32_t from = UINT32_MAX, n = 1 + how / 64, there;
	uint64_t lost;
	int r;

	for (uint32_t k = 0; k < 4; k++) {
		m[k].data = data[k];
		m[k].further = further[k];
	}
	there = ring_consumer_look(consumers[i], n);
	expect(there <= n);
	r = ring_consumer_receive_run(consumers[i], &from, m, n, &lost);
	expect(r == -ESTALE || r == -EPROTO || (r >= 0 && r <= (int)n));
	expect(there > 0 || r == 0);
	if (r != 0)
		expect(from == 0);
	if (r < 0)
		expect(ring_consumer_receive_run(consumers[i], &from, m, 1, &lost) == 0);
	for (int k = 0; k < r; k++) {
		expect(k == 0 || (m[k].buffer == 0 && m[k].fence.slot == 0));
		give_up(i, &m[k], how);
	}
}

static void retire_plain(void)
{
	void *references[3];
	uint32_t n = ring_producer_retire_plain(producer, 3, references);

	expect(n <= 3);
	for (uint32_t i = 0; i < n; i++) {
		uintptr_t reference = (uintptr_t)references[i];

		expect(reference < n_sent && !is_back[reference]);
		is_back[reference] = true;
	}
}

static void reclaim(bool all, bool retire)
{
	struct ring_return back;

	if (!retire)
		retire_plain();
	if (ring_producer_reclaim(producer, all, &back)) {
		uintptr_t reference = (uintptr_t)back.reference;

		expect(reference < n_sent && !is_back[reference]);
		expect(back.ticket < shape.in_flight && back.n <= shape.consumers &&
		       back.n_further < channel_buffers(&shape));
		expect(!back.set_aside || back.message);
		for (uint32_t i = 0; i < back.n; i++)
			expect(back.fences[i].owner->fences-- > 0 &&
			       back.fences[i].fence.slot > 0 && back.fences[i].fence.slot < 256);
		is_back[reference] = true;
		unretired[n_unretired++] = back.ticket;
	}
	if (retire && n_unretired > 0)
		ring_producer_retire(producer, unretired[--n_unretired]);
}

static void scribble(struct input *in, unsigned char *at, size_t size)
{
	const uint8_t *bytes;
	size_t where = (size_t)input_u16(in) * 4 % size;
	size_t n = input_bytes(in, input_u8(in) % 17, &bytes);

	if (n > size - where)
		n = size - where;
	memcpy(at + where, bytes, n);
}

static void look_around(uint32_t i)
{
	struct ring_sleep sleep;

	(void)ring_producer_holdups(producer);
	(void)ring_producer_has_moved(producer, i);
	ring_producer_sleep(producer, i == 1, &sleep);
	ring_producer_awake(producer);
	ring_consumer_sleep(consumers[i], i == 1, &sleep);
	(void)ring_producer_wake(producer);
	ring_consumer_awake(consumers[i]);
	(void)ring_consumer_is_empty(consumers[i], 0);
	(void)ring_consumer_wake(consumers[i]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	return 0;
}

/* The highest are of channels whose data may lie far. */
static uint32_t data_max(uint8_t byte)
{
	return byte < 0xf0 ? byte : CHANNEL_DATA_NEAR + 50u * (byte & 0xf);
}

static void begin(struct input *in)
{
	uint8_t kind = input_u8(in);

	shape = (struct channel_shape){
	    .mode = 1 + kind % 3,
	    .when_full = 1 + kind / 3 % 3,
	    .depth = 1u << (kind >> 6),
	    .in_flight = 1 + input_u8(in) % 16,
	    .data_max = data_max(input_u8(in)),
	    .rows = 1,
	    .consumers = CONSUMERS,
	    .deliveries = 2,
	};
	if (shape.mode == CHANNEL_BROADCAST && shape.in_flight > shape.depth)
		shape.history = input_u8(in) % (shape.depth + 1);
	if (channel_far_size(&shape) > 0)
		shape.buffers = 1 + shape.in_flight / (shape.history + 1) % 5;
	if (!channel_shape_is_valid(&shape))
		shape.buffers = 0;
	expect(channel_shape_is_valid(&shape));
	ring = page(channel_ring_size(&shape, CHANNEL_WITH_COPIES));
	expect(ring_producer_new(&shape, CHANNEL_WITH_COPIES, ring, &producer) == 0);
	ring_producer_identify(producer, 1);
	members = 1;
	n_sent = n_unretired = 0;
	n_owners = 0;
	memset(is_back, 0, sizeof(is_back));
	for (uint32_t i = 0; i < CONSUMERS; i++) {
		ledgers[i] = page(channel_ledger_size(&shape));
		is_there[i] = false;
		comes(i, 0);
	}
}

static void end(void)
{
	struct ring_producer_stats stats;

	ring_producer_get_stats(producer, &stats);
	expect(stats.in_flight <= shape.in_flight && stats.sent == n_sent);
	/* with nobody there, everything is back: or waits for somebody to come */
	for (uint32_t i = 0; i < CONSUMERS; i++)
		ring_producer_dismiss(producer, i, true);
	for (uint32_t i = 0; i < shape.in_flight; i++)
		reclaim(true, true);
	while (n_unretired > 0)
		ring_producer_retire(producer, unretired[--n_unretired]);
	ring_producer_get_stats(producer, &stats);
	expect(stats.in_flight == 0 || shape.mode != CHANNEL_DIRECT);
	ring_producer_free(producer);
	free(ring);
	for (uint32_t i = 0; i < CONSUMERS; i++) {
		ring_consumer_free(consumers[i]);
		consumers[i] = NULL;
		free(ledgers[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	bool producer_lies;

	begin(&in);
	producer_lies = input_u8(&in) % 2;
	while (input_left(&in) > 0) {
		uint8_t what = input_u8(&in);
		uint32_t i = what / 16 % CONSUMERS;

		switch (what % 16) {
		case 0:
		case 1:
		case 2:
			send(&in);
			break;
		case 3:
		case 4:
		case 5:
			receive(i, input_u8(&in));
			break;
		case 6:
		case 7:
			reclaim(i == 0, true);
			break;
		case 8:
			reclaim(false, false);
			break;
		case 9:
			ring_producer_dismiss(producer, i, false);
			break;
		case 10:
			ring_producer_dismiss(producer, i, true);
			is_there[i] = false;
			break;
		case 11:
			comes(i, what / 64);
			break;
		case 12:
			look_around(i);
			break;
		default:
			if (producer_lies)
				scribble(&in, ring, channel_ring_size(&shape, CHANNEL_WITH_COPIES));
			else
				scribble(&in, ledgers[i], channel_ledger_size(&shape));
		}
	}
	end();
	return 0;
}
