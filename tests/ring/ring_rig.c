/* SPDX-License-Identifier: MIT */

#include <string.h>
#include <sys/mman.h>

#include "tests/ring/ring_rig.h"

struct channel_shape shape = {
    .mode = CHANNEL_BROADCAST,
    .when_full = SHARE_FULL_BLOCK,
    .depth = 4,
    .in_flight = 8,
    .data_max = 20,
    .rows = RIG_PRODUCERS,
    .consumers = RIG_CONSUMERS,
    .deliveries = 2,
};
struct ring_producer *producers[RIG_PRODUCERS];
struct ring_consumer *consumers[RIG_CONSUMERS];
void *rings[RIG_PRODUCERS], *ledgers[RIG_CONSUMERS];
uint64_t producer_members[RIG_PRODUCERS], consumer_members[RIG_CONSUMERS];
struct ring_message message;
unsigned char message_data[CHANNEL_DATA_MAX];
struct ring_further message_further[CHANNEL_BUFFERS_MAX - 1];
uint32_t message_producer;
uint64_t message_lost;
struct ring_return returned;

static uint64_t members = 100;

/* One for each that is admitted somewhere; they stay. */
static struct ring_owner owners[1000];
static size_t n_owners;

static struct ring_owner *owner(uint64_t member)
{
	cr_assert_lt(n_owners, sizeof(owners) / sizeof(owners[0]));
	owners[n_owners].member = member;
	return &owners[n_owners++];
}

/* Followed by a page that is not there, so that nobody gets beyond the end unseen. */
static void *page(size_t size)
{
	size_t whole = (size + 4095) / 4096 * 4096;
	unsigned char *at =
	    mmap(NULL, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(at, MAP_FAILED);
	cr_assert_eq(mprotect(at + whole, 4096, PROT_NONE), 0);
	return at;
}

void rig(uint32_t mode, uint32_t when_full, uint32_t n)
{
	shape.mode = mode;
	shape.when_full = when_full;
	cr_assert(channel_shape_is_valid(&shape));
	for (uint32_t i = 0; i < RIG_CONSUMERS; i++) {
		ring_consumer_free(consumers[i]);
		consumers[i] = NULL;
	}
	producer_comes(0);
	for (uint32_t i = 0; i < n; i++)
		consumer_comes(i, false);
}

void producer_comes(uint32_t slot)
{
	rings[slot] = page(channel_ring_size(&shape, CHANNEL_WITH_COPIES));
	producer_members[slot] = members++;
	ring_producer_free(producers[slot]);
	cr_assert_eq(ring_producer_new(&shape, CHANNEL_WITH_COPIES, rings[slot], &producers[slot]),
		     0);
	ring_producer_identify(producers[slot], producer_members[slot]);
	for (uint32_t i = 0; i < RIG_CONSUMERS; i++)
		if (consumers[i]) {
			ring_consumer_attach(consumers[i], slot, producer_members[slot],
					     rings[slot], true);
			ring_producer_admit(producers[slot], i, owner(consumer_members[i]),
					    ledgers[i], slot, false);
		}
}

static void comes(uint32_t slot, unsigned how)
{
	ledgers[slot] = page(channel_ledger_size(&shape));
	consumer_members[slot] = members++;
	ring_consumer_free(consumers[slot]);
	cr_assert_eq(ring_consumer_new(&shape, CHANNEL_WITH_COPIES, ledgers[slot], slot,
				       consumer_members[slot], &consumers[slot]),
		     0);
	if (how & RING_LATEST)
		ring_consumer_get_latest(consumers[slot]);
	for (uint32_t i = 0; i < RIG_PRODUCERS; i++)
		if (producers[i]) {
			ring_consumer_attach(consumers[slot], i, producer_members[i], rings[i],
					     true);
			ring_producer_admit(producers[i], slot, owner(consumer_members[slot]),
					    ledgers[slot], i, how);
		}
}

void consumer_comes(uint32_t slot, bool oldest)
{
	comes(slot, oldest ? RING_OLDEST : 0);
}

void latest_comes(uint32_t slot, bool oldest)
{
	comes(slot, RING_LATEST | (oldest ? RING_OLDEST : 0));
}

int try_send(uint32_t producer, uint64_t number, uint32_t target)
{
	struct ring_message m = {
	    .buffer = 1000 + number,
	    .segment = 7,
	    .offset = number * 512,
	    .size = 512,
	    .fence = {.slot = 3, .value = number},
	    .data_size = sizeof(number),
	    .data = (unsigned char *)&number,
	};

	return ring_producer_send(producers[producer], &m, target, (void *)(uintptr_t)number);
}

void sends_data(uint64_t number)
{
	struct ring_message m = {.data_size = sizeof(number), .data = (unsigned char *)&number};

	cr_assert_eq(ring_producer_send(producers[0], &m, 0, (void *)(uintptr_t)number), 0,
		     "no room for %lu", (unsigned long)number);
}

void sends(uint64_t number)
{
	cr_assert_eq(try_send(0, number, 0), 0, "no room for %lu", (unsigned long)number);
}

void sends_to(uint64_t number, uint32_t target)
{
	cr_assert_eq(try_send(0, number, target), 0, "no room for %lu", (unsigned long)number);
}

int try_receive(uint32_t consumer)
{
	memset(&message, 0xee, sizeof(message));
	memset(message_data, 0xee, sizeof(message_data));
	message.data = message_data;
	message.further = message_further;
	return ring_consumer_receive_run(consumers[consumer], &message_producer, &message, 1,
					 &message_lost);
}

void receives(uint32_t consumer, uint64_t number)
{
	uint64_t data;

	cr_assert_eq(try_receive(consumer), 1, "consumer %u gets nothing, not %lu", consumer,
		     (unsigned long)number);
	memcpy(&data, message.data, sizeof(data));
	cr_assert_eq(data, number, "consumer %u gets %lu, not %lu", consumer, (unsigned long)data,
		     (unsigned long)number);
	cr_assert_eq(message.buffer, 1000 + number);
	cr_assert_eq(message.segment, 7);
	cr_assert_eq(message.offset, number * 512);
	cr_assert_eq(message.size, 512);
	cr_assert_eq(message.fence.slot, 3);
	cr_assert_eq(message.fence.value, number);
	cr_assert_eq(message.data_size, sizeof(number));
}

void receives_nothing(uint32_t consumer)
{
	cr_assert_eq(try_receive(consumer), 0, "consumer %u gets something", consumer);
}

void acks_this(uint32_t consumer, const struct ring_message *m, uint32_t fence, bool retained)
{
	ring_consumer_ack(consumers[consumer], message_producer, producer_members[message_producer],
			  m->ticket, m->version, (struct ring_fence){fence, fence * 10}, retained);
}

void acks(uint32_t consumer)
{
	acks_this(consumer, &message, 0, false);
}

void uses(uint32_t consumer, uint64_t number)
{
	receives(consumer, number);
	acks(consumer);
}

void comes_back(uint64_t number)
{
	cr_assert(ring_producer_reclaim(producers[0], true, &returned), "%lu is not back",
		  (unsigned long)number);
	cr_assert_eq((uintptr_t)returned.reference, number, "it is %lu that is back, not %lu",
		     (unsigned long)(uintptr_t)returned.reference, (unsigned long)number);
	cr_assert_eq(returned.buffer, 1000 + number);
	ring_producer_retire(producers[0], returned.ticket);
}

void nothing_comes_back(void)
{
	cr_assert_not(ring_producer_reclaim(producers[0], true, &returned), "%lu is back",
		      (unsigned long)(uintptr_t)returned.reference);
}

void so_many_come_back(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		cr_assert(ring_producer_reclaim(producers[0], true, &returned),
			  "%u are back, not %u", i, n);
		ring_producer_retire(producers[0], returned.ticket);
	}
	nothing_comes_back();
}

struct ring_producer_stats stats(void)
{
	struct ring_producer_stats s;

	ring_producer_get_stats(producers[0], &s);
	return s;
}
