/* SPDX-License-Identifier: MIT */

/*
 * Both halves of channels in one process, each half in a thread of its own, so that ThreadSanitizer
 * sees both sides of what they share. A producer writes the memory that a message stands for, and
 * consumers read it until they acknowledge: whoever is too early is a race, and finds the wrong
 * number. Everybody goes to sleep when there is nothing to do, so that a lost wake-up is a test
 * that does not end.
 */

#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/channel.h>

#include "ring/ring.h"
#include "tests/themes/threads/threads.h"

#define PRODUCERS 2
#define CONSUMERS 4
#define IN_FLIGHT 16
#define HELD      4  /* by a consumer, at once */
#define WORDS_MAX 40 /* more than lie in an entry */

struct producing {
	struct ring_producer *ring;
	int doorbell;
	uint64_t memory[IN_FLIGHT]; /* what messages stand for, by block */
	uint32_t free[IN_FLIGHT], n_free;
};

struct consuming {
	struct ring_consumer *ring;
	int doorbell;
	uint32_t most; /* that it holds at once */
	uint64_t got[PRODUCERS], lost[PRODUCERS], last[PRODUCERS];
};

static struct channel_shape shape;
static struct producing producing[PRODUCERS];
static struct consuming consuming[CONSUMERS];
static uint32_t n_producers, n_consumers;
static uint32_t n_latest;  /* of the consumers, the first */
static uint32_t words = 3; /* of data in a message */
static uint64_t n_messages;
static void *rings[PRODUCERS], *ledgers[CONSUMERS];
static struct ring_owner owners[PRODUCERS][CONSUMERS];
static atomic_uint done; /* producers that have sent all */

static void *page(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED);
	return at;
}

static void begin(uint32_t mode, uint32_t when_full, uint32_t producers, uint32_t consumers)
{
	shape = (struct channel_shape){
	    .mode = mode,
	    .when_full = when_full,
	    .depth = 8,
	    .in_flight = IN_FLIGHT,
	    .data_max = words * 8,
	    .rows = PRODUCERS,
	    .consumers = CONSUMERS,
	    .deliveries = 3,
	};
	n_producers = producers;
	n_consumers = consumers;
	n_messages = steps(20000);
	atomic_store(&done, 0);
	for (uint32_t i = 0; i < producers; i++) {
		struct producing *p = &producing[i];

		*p = (struct producing){.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
		rings[i] = page(channel_ring_size(&shape, CHANNEL_WITH_COPIES));
		check(ring_producer_new(&shape, CHANNEL_WITH_COPIES, rings[i], &p->ring) == 0);
		ring_producer_identify(p->ring, 1 + i);
		for (p->n_free = 0; p->n_free < IN_FLIGHT; p->n_free++)
			p->free[p->n_free] = p->n_free;
	}
	for (uint32_t i = 0; i < consumers; i++) {
		struct consuming *c = &consuming[i];

		ledgers[i] = page(channel_ledger_size(&shape));
		*c = (struct consuming){.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
					.most = i < n_latest ? CHANNEL_LATEST_HELD : HELD};
		check(ring_consumer_new(&shape, CHANNEL_WITH_COPIES, ledgers[i], i, 100 + i,
					&c->ring) == 0);
		if (i < n_latest)
			ring_consumer_get_latest(c->ring);
		for (uint32_t k = 0; k < producers; k++) {
			ring_consumer_attach(c->ring, k, 1 + k, rings[k], true);
			owners[k][i] = (struct ring_owner){.member = 100 + i};
			ring_producer_admit(producing[k].ring, i, &owners[k][i], ledgers[i], k,
					    i < n_latest ? RING_LATEST : 0);
		}
	}
}

static void ring_for(uint64_t who, bool consumers)
{
	for (; who; who &= who - 1) {
		int i = __builtin_ctzll(who);
		uint64_t one = 1;

		(void)!write(consumers ? consuming[i].doorbell : producing[i].doorbell, &one,
			     sizeof(one));
	}
}

static void wait_for(const struct ring_sleep *sleep, int doorbell)
{
	uint64_t count;

	if (sleep->word) {
		syscall(SYS_futex, sleep->word, FUTEX_WAIT, sleep->value, NULL, NULL, 0);
		return;
	}
	poll(&(struct pollfd){.fd = doorbell, .events = POLLIN}, 1, -1);
	(void)!read(doorbell, &count, sizeof(count));
}

/* ------------------------------------------------------------------------------------------- */

static void give_back(struct producing *p, const void *reference)
{
	uint32_t block = (uint32_t)(uintptr_t)reference;

	p->memory[block] = 0; /* nobody reads it any more */
	p->free[p->n_free++] = block;
}

static void reclaim(struct producing *p, bool all)
{
	struct ring_return back;
	void *plain[4];
	uint32_t n = ring_producer_retire_plain(p->ring, 4, plain);

	while (n > 0)
		give_back(p, plain[--n]);
	while (ring_producer_reclaim(p->ring, all, &back)) {
		check(!back.set_aside && !back.retained && back.n == 0);
		give_back(p, back.reference);
		ring_producer_retire(p->ring, back.ticket);
	}
}

/* Four do, four are data alone, and so on. */
static bool has_buffer(uint64_t value)
{
	return value % 8 < 4;
}

static bool send(struct producing *p, uint64_t value)
{
	uint64_t data[WORDS_MAX];
	struct ring_message m = {.data_size = words * 8, .data = (unsigned char *)data};
	uint32_t block;

	if (p->n_free == 0)
		return false;
	for (uint32_t i = 0; i < words; i++)
		data[i] = value;
	block = p->free[p->n_free - 1];
	p->memory[block] = value;
	m.buffer = has_buffer(value) ? block + 1 : 0;
	if (ring_producer_send(p->ring, &m, 0, (void *)(uintptr_t)block) < 0)
		return false;
	p->n_free--;
	return true;
}

static void *produce(void *data)
{
	struct producing *p = data;

	for (uint64_t i = 1; i <= n_messages; i++) {
		struct ring_sleep sleep;

		reclaim(p, false);
		while (!send(p, i)) {
			reclaim(p, true);
			if (send(p, i))
				break;
			ring_for(ring_producer_wake(p->ring), true);
			ring_producer_sleep(p->ring, i % 3 == 0, &sleep);
			reclaim(p, true);
			if (send(p, i)) {
				ring_producer_awake(p->ring);
				break;
			}
			wait_for(&sleep, p->doorbell);
			ring_producer_awake(p->ring);
		}
		if (i % 5 == 0)
			ring_for(ring_producer_wake(p->ring), true);
	}
	ring_for(ring_producer_wake(p->ring), true);
	atomic_fetch_add(&done, 1);
	return NULL;
}

static void look_at(struct consuming *c, uint32_t producer, const struct ring_message *m,
		    uint64_t lost)
{
	uint64_t value, block = m->buffer - 1;

	memcpy(&value, m->data, 8);
	check(m->data_size == words * 8 &&
	      (has_buffer(value) ? block < IN_FLIGHT : m->buffer == 0));
	for (size_t i = 8; i < words * 8; i += 8)
		check(memcmp(m->data + i, &value, 8) == 0); /* nothing is torn */
	check(value == m->number + 1);
	if (has_buffer(value))
		check_eq(producing[producer].memory[block], value);
	check(value > c->last[producer]);
	if (shape.mode == CHANNEL_BROADCAST)
		check_eq(value, c->last[producer] + lost + 1);
	c->last[producer] = value;
	c->got[producer]++;
	c->lost[producer] += lost;
}

static bool all_is_received(struct consuming *c)
{
	for (uint32_t i = 0; i < n_producers; i++)
		if (!ring_consumer_is_empty(c->ring, i))
			return false;
	return true;
}

struct held {
	uint32_t producer;
	struct ring_message message;
	unsigned char data[WORDS_MAX * 8];
};

static void acknowledge(struct consuming *c, const struct held *h)
{
	ring_consumer_ack(c->ring, h->producer, 1 + h->producer, h->message.ticket,
			  h->message.version, (struct ring_fence){0, 0}, false);
	ring_for(ring_consumer_wake(c->ring), false);
}

/* What is there, behind the first @n. How many. */
static uint32_t take(struct consuming *c, struct held *held, uint32_t n)
{
	struct ring_message run[HELD];
	uint32_t producer = 0;
	uint64_t lost = 0;
	int r;

	for (uint32_t i = n; i < c->most; i++)
		run[i - n].data = held[i].data;
	r = ring_consumer_receive_run(c->ring, &producer, run, c->most - n, &lost);
	check(r >= 0);
	for (int i = 0; i < r; i++, lost = 0) {
		held[n + (uint32_t)i].producer = producer;
		held[n + (uint32_t)i].message = run[i];
		look_at(c, producer, &run[i], lost);
	}
	return (uint32_t)r;
}

/* Keeps up to four, and gives the newer ones back first. */
static void *consume(void *data)
{
	struct consuming *c = data;
	struct held held[HELD];
	uint32_t n = 0;

	for (uint64_t turn = 0;; turn++) {
		struct ring_sleep sleep;
		uint32_t got = take(c, held, n);

		if (got == 0) {
			while (n > 0)
				acknowledge(c, &held[--n]);
			ring_for(ring_consumer_wake(c->ring), false);
			ring_consumer_sleep(c->ring, turn % 3 == 0, &sleep);
			bool last = atomic_load(&done) == n_producers;

			got = take(c, held, 0);
			if (got == 0 && last && all_is_received(c)) {
				ring_consumer_awake(c->ring);
				return NULL;
			}
			if (got == 0 && !last)
				wait_for(&sleep, c->doorbell);
			ring_consumer_awake(c->ring);
		}
		n += got;
		if (n == c->most)
			while (n > 0)
				acknowledge(c, &held[--n]);
	}
}

/* Whoever is asleep when the last producer is done is told so, the way the broker does it. */
static void tell_the_end(void)
{
	for (uint32_t i = 0; i < n_producers; i++)
		for (uint32_t lane = 0; lane < channel_lanes(&shape); lane++) {
			_Atomic uint32_t *bell = &channel_lane_at(rings[i], &shape, lane)->bell;

			atomic_fetch_add(bell, 1);
			syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		}
	ring_for((UINT64_C(1) << n_consumers) - 1, true);
}

static void run(void)
{
	pthread_t threads[PRODUCERS + CONSUMERS];

	for (uint32_t i = 0; i < n_consumers; i++)
		check(pthread_create(&threads[PRODUCERS + i], NULL, consume, &consuming[i]) == 0);
	for (uint32_t i = 0; i < n_producers; i++)
		check(pthread_create(&threads[i], NULL, produce, &producing[i]) == 0);
	for (uint32_t i = 0; i < n_producers; i++)
		pthread_join(threads[i], NULL);
	tell_the_end();
	for (uint32_t i = 0; i < n_consumers; i++)
		pthread_join(threads[PRODUCERS + i], NULL);
	for (uint32_t i = 0; i < n_producers; i++) {
		struct ring_producer_stats stats;
		uint64_t got = 0;

		reclaim(&producing[i], true);
		ring_producer_get_stats(producing[i].ring, &stats);
		check_eq(stats.in_flight, 0);
		check_eq(producing[i].n_free, IN_FLIGHT);
		for (uint32_t k = 0; k < n_consumers; k++) {
			if (shape.mode == CHANNEL_BROADCAST)
				check_eq(consuming[k].got[i] + consuming[k].lost[i], n_messages);
			got += consuming[k].got[i];
		}
		if (shape.mode == CHANNEL_QUEUE)
			check_eq(got + stats.dropped, n_messages);
		if (shape.when_full == SHARE_FULL_BLOCK)
			check_eq(stats.dropped, 0);
		ring_producer_free(producing[i].ring);
		close(producing[i].doorbell);
		munmap(rings[i], channel_ring_size(&shape, CHANNEL_WITH_COPIES));
	}
	for (uint32_t k = 0; k < n_consumers; k++) {
		ring_consumer_free(consuming[k].ring);
		close(consuming[k].doorbell);
		munmap(ledgers[k], channel_ledger_size(&shape));
	}
}

static void everybody_gets_every_message_once_and_in_order(void)
{
	for (uint32_t producers = 1; producers <= PRODUCERS; producers++)
		for (uint32_t consumers = 1; consumers <= CONSUMERS; consumers *= 2) {
			begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, producers, consumers);
			run();
		}
}

static void a_queue_gives_every_message_to_one(void)
{
	for (uint32_t producers = 1; producers <= PRODUCERS; producers++)
		for (uint32_t consumers = 1; consumers <= CONSUMERS; consumers *= 2) {
			begin(CHANNEL_QUEUE, SHARE_FULL_BLOCK, producers, consumers);
			run();
		}
}

static void what_is_not_dropped_is_whole_and_the_rest_is_counted(void)
{
	begin(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1, 1);
	run();
	begin(CHANNEL_BROADCAST, SHARE_FULL_DROP, 2, 3);
	run();
	begin(CHANNEL_QUEUE, SHARE_FULL_DROP, 2, 2);
	run();
}

/* The others get every message, and wait for nobody but each other. */
static void some_get_the_latest_alone(void)
{
	n_latest = 1;
	begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1, 1);
	run();
	begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2, 2);
	run();
	n_latest = 2;
	begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2, 4);
	run();
	begin(CHANNEL_BROADCAST, SHARE_FULL_DROP, 2, 3);
	run();
	n_latest = 0;
}

/* Their places are used again as soon as their tickets are. */
static void data_that_lie_by_their_ticket_are_whole(void)
{
	words = WORDS_MAX;
	begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2, 3);
	run();
	begin(CHANNEL_BROADCAST, SHARE_FULL_DROP, 2, 3);
	run();
	begin(CHANNEL_QUEUE, SHARE_FULL_DROP, 2, 2);
	run();
	n_latest = 1;
	begin(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2, 2);
	run();
	n_latest = 0;
	words = 3;
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(everybody_gets_every_message_once_and_in_order),
	    TEST(a_queue_gives_every_message_to_one),
	    TEST(what_is_not_dropped_is_whole_and_the_rest_is_counted),
	    TEST(some_get_the_latest_alone),
	    TEST(data_that_lie_by_their_ticket_are_whole),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
