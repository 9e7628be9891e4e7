/* SPDX-License-Identifier: MIT */

/* Many threads on channels: on one handle, and on one channel. */

#include <share/channel.h>

#include "tests/themes/threads/threads.h"

static share_channel *open_channel(share_client *c, int role, const share_channel_options *o)
{
	share_channel *ch;

	check_ok(share_channel_open(c, "channel", role, o, &ch));
	return ch;
}

/* ------------------------------------------------------------------------------------------- */

#define SENDERS   3
#define RECEIVERS 3

struct traffic {
	share_channel *p, *c;
	unsigned messages; /* of each sender */
	atomic_uint received;
	atomic_uint seen[SENDERS * 2000];
};

static struct traffic traffic;

static void send_marked(unsigned index, unsigned i)
{
	uint32_t number = index * traffic.messages + i;
	share_buffer *b = marked_buffer(pool, 1024, number);

	check_ok(share_send(traffic.p, b, &number, sizeof(number), NULL));
	check_ok(share_release(b, NULL));
}

static bool receive_marked(void)
{
	share_message m = SHARE_MESSAGE_INIT;
	uint32_t number;

	if (check_one_of(share_recv(traffic.c, 20, NULL, &m), SHARE_ETIMEDOUT) != 0)
		return false;
	memcpy(&number, m.data, sizeof(number));
	check(is_marked(share_ptr(m.buffer), 1024, number));
	check_eq(atomic_fetch_add(&traffic.seen[number], 1), 0);
	check_ok(share_ack(&m, NULL));
	atomic_fetch_add(&traffic.received, 1);
	return true;
}

static void send_or_receive(void *data, unsigned index)
{
	(void)data;
	if (index < SENDERS) {
		for (unsigned i = 0; i < traffic.messages; i++)
			send_marked(index, i);
		return;
	}
	while (atomic_load(&traffic.received) < SENDERS * traffic.messages)
		receive_marked();
}

static void one_handle_serves_many_threads(void)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	start();
	memset(&traffic, 0, sizeof(traffic));
	traffic.messages = steps(100);
	if (traffic.messages > 2000)
		traffic.messages = 2000;
	o.depth = 4;
	traffic.p = open_channel(client, SHARE_PRODUCER, &o);
	traffic.c = open_channel(second, SHARE_CONSUMER, NULL);
	together(SENDERS + RECEIVERS, send_or_receive, NULL);
	share_channel_close(traffic.c);
	share_channel_close(traffic.p);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void come_and_go(void *data, unsigned index)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	if (index == 0) {
		for (unsigned i = 0; i < steps(200); i++)
			check_one_of(share_send(traffic.p, NULL, &i, sizeof(i), NULL),
				     SHARE_EAGAIN);
		return;
	}
	o.from = index % 2 ? SHARE_FROM_OLDEST : SHARE_FROM_NEWEST;
	for (unsigned i = 0; i < steps(15); i++) {
		share_channel *c = open_channel(second, SHARE_CONSUMER, &o);

		while (share_recv(c, 0, NULL, &m) == 0)
			check_ok(share_ack(&m, NULL));
		share_channel_close(c);
	}
}

static void consumers_come_and_go(void)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	for (uint32_t mode = SHARE_BROADCAST; mode <= SHARE_QUEUE; mode++) {
		start();
		o.mode = mode;
		o.when_full = SHARE_FULL_DROP;
		o.depth = 4;
		traffic.p = open_channel(client, SHARE_PRODUCER, &o);
		together(4, come_and_go, NULL);
		share_channel_close(traffic.p);
		stop();
	}
}

/* ------------------------------------------------------------------------------------------- */

static void produce_in_turn(void *data, unsigned index)
{
	(void)data;
	if (index == 0) {
		unsigned n = 0, ends = 0;
		share_message m = SHARE_MESSAGE_INIT;

		while (n < 3 * steps(10) * 5) {
			int r = check_one_of(share_recv(traffic.c, -1, NULL, &m), SHARE_EPIPE);

			ends += r != 0;
			if (r != 0)
				continue;
			n++;
			check_ok(share_ack(&m, NULL));
		}
		return;
	}
	for (unsigned i = 0; i < steps(10); i++) {
		share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);

		for (unsigned k = 0; k < 5; k++)
			check_ok(share_send(p, NULL, &k, sizeof(k), NULL));
		share_channel_close(p);
	}
}

static void producers_come_and_go(void)
{
	start();
	traffic.c = open_channel(second, SHARE_CONSUMER, NULL);
	together(4, produce_in_turn, NULL);
	share_channel_close(traffic.c);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

/* One thread acknowledges a message, the other lets go of the handle that it has kept of it. */
static struct {
	share_buffer *kept;
	share_message message;
	share_host_stream *stream;
	pthread_barrier_t ready;
} parting = {.message = SHARE_MESSAGE_INIT};

static void part(void *data, unsigned index)
{
	uint32_t state = 7;

	(void)data;
	for (unsigned i = 0; i < steps(1000); i++) {
		if (index == 0) {
			send_marked(0, i);
			check_ok(share_recv(traffic.c, -1, NULL, &parting.message));
			parting.kept = share_retain(parting.message.buffer);
		}
		pthread_barrier_wait(&parting.ready);
		if (index == 0) {
			check_ok(share_ack(&parting.message, NULL));
		} else {
			for (volatile uint32_t k = dice(&state, 40000); k > 0; k--)
				;
			check_ok(share_release(parting.kept, parting.stream));
		}
		pthread_barrier_wait(&parting.ready);
	}
}

static void a_kept_handle_is_let_go_of_while_its_message_is_acknowledged(void)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	start();
	traffic.messages = steps(1000);
	pthread_barrier_init(&parting.ready, NULL, 2);
	check_ok(share_host_stream_create(second, &parting.stream));
	traffic.p = open_channel(client, SHARE_PRODUCER, NULL);
	traffic.c = open_channel(second, SHARE_CONSUMER, NULL);
	together(2, part, NULL);
	check_ok(share_channel_get_stats(traffic.c, &stats));
	check_eq(stats.received, stats.acknowledged);
	share_channel_close(traffic.c);
	share_channel_close(traffic.p);
	share_host_stream_destroy(parting.stream);
	pthread_barrier_destroy(&parting.ready);
	stop();
}

/* The same when it is rejected, for which work that is noted of the handle is waited for. */
static void part_again(void *data, unsigned index)
{
	uint32_t state = 7;

	(void)data;
	for (unsigned i = 0; i < steps(300); i++) {
		if (index == 0) {
			send_marked(0, i);
			check_ok(share_recv(traffic.c, -1, NULL, &parting.message));
			parting.kept = share_retain(parting.message.buffer);
		}
		pthread_barrier_wait(&parting.ready);
		if (index == 0) {
			check_ok(share_reject(&parting.message, NULL));
			check_ok(share_recv(traffic.c, -1, NULL, &parting.message));
			check_ok(share_ack(&parting.message, NULL));
		} else {
			for (volatile uint32_t k = dice(&state, 40000); k > 0; k--)
				;
			check_ok(share_release(parting.kept, parting.stream));
		}
		pthread_barrier_wait(&parting.ready);
	}
}

static void a_kept_handle_is_let_go_of_while_its_message_is_rejected(void)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	start();
	traffic.messages = steps(300);
	o.mode = SHARE_QUEUE;
	pthread_barrier_init(&parting.ready, NULL, 2);
	check_ok(share_host_stream_create(second, &parting.stream));
	traffic.p = open_channel(client, SHARE_PRODUCER, &o);
	traffic.c = open_channel(second, SHARE_CONSUMER, &o);
	together(2, part_again, NULL);
	share_channel_close(traffic.c);
	share_channel_close(traffic.p);
	share_host_stream_destroy(parting.stream);
	pthread_barrier_destroy(&parting.ready);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(one_handle_serves_many_threads),
	    TEST(consumers_come_and_go),
	    TEST(producers_come_and_go),
	    TEST(a_kept_handle_is_let_go_of_while_its_message_is_acknowledged),
	    TEST(a_kept_handle_is_let_go_of_while_its_message_is_rejected),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
