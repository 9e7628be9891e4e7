/* SPDX-License-Identifier: MIT */

/*
 * What the descriptor of a channel tells: that a call is to be made again which had nothing to do.
 * It is readable until that call says again that there is nothing.
 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/private/core.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_ready, .init = start, .fini = stop, .timeout = 60);

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static void expect_told(int fd)
{
	check(is_readable(fd, HARNESS_LIMIT_MS));
}

static share_channel_options small(uint32_t mode, uint32_t when_full)
{
	share_channel_options o = options(mode, when_full);

	o.depth = 2;
	o.in_flight = 4;
	o.stall_ms = UINT32_MAX;
	return o;
}

/* Until there is no room, and nothing that the descriptor has told before is left. */
static void fill(share_channel *p, int fd)
{
	until(share_send(p, NULL, NULL, 0, NULL) == SHARE_EAGAIN && !is_readable(fd, 0));
}

static void drop_one(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Producers                                                                                   */

/* As a socket is for writing. */
Test(channel_ready, a_producer_is_told_of_room_until_there_is_none)
{
	share_channel_options o = small(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	int fd = share_channel_get_fd(p);

	expect_told(fd);
	fill(p, fd);
	drop_one(c);
	expect_told(fd);
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	expect_told(fd);
	fill(p, fd);
	share_channel_close(c);
	share_channel_close(p);
}

/* As asyncio does when it is woken, as all who wait ask again then. */
Test(channel_ready, a_producer_is_told_nothing_that_was_asked_before_it_was_to_be_told_no_more)
{
	share_channel_options o = small(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	int fd = share_channel_get_fd(p);

	for (int i = 0; i < 2; i++) {
		fill(p, fd);
		drop_one(c);
		expect_told(fd);
		check_ok(share_untell(p));
		check(!is_readable(fd, 0));
	}
	/* draining, of which one message is the first step */
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	drop_one(c);
	expect_told(fd);
	check_ok(share_untell(p));
	check(!is_readable(fd, 0));
	check_error(share_untell(c), SHARE_EACCES);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_ready, a_producer_whose_send_has_waited_in_vain_is_told)
{
	share_channel_options o = small(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *c;
	int fd;

	o.send_timeout_ms = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	fd = share_channel_get_fd(p);
	until(share_send(p, NULL, NULL, 0, NULL) == SHARE_ETIMEDOUT && !is_readable(fd, 0));
	drop_one(c);
	expect_told(fd);
	share_channel_close(c);
	share_channel_close(p);
}

/* Only who takes part in time is waited for, though nobody sends meanwhile. */
Test(channel_ready, a_producer_is_told_that_a_consumer_was_left_behind)
{
	share_channel_options o = small(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *p, *c;
	int fd;

	o.stall_ms = 50;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	until(channel_stats(p).consumers == 1);
	fd = share_channel_get_fd(p);
	fill(p, fd);
	expect_told(fd);
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	check_eq(channel_stats(p).left_behind, 1);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_ready, a_producer_is_told_of_what_was_delivered_too_often)
{
	share_channel_options o = small(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *p, *c;
	int fd;

	o.deliveries = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	fd = share_channel_get_fd(p);
	check_error(share_channel_take_back(p, &m), SHARE_EAGAIN);
	check(!is_readable(fd, 0));
	for (uint32_t i = 0; i < 3; i++) {
		send_number(p, i);
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_ok(share_reject(&m, NULL));
		expect_told(fd);
		check_ok(share_channel_take_back(p, &m));
		check_eq(m.number, i);
		check_ok(share_ack(&m, NULL));
		check_error(share_channel_take_back(p, &m), SHARE_EAGAIN);
		check(!is_readable(fd, 0));
	}
	share_channel_close(c);
	share_channel_close(p);
}

static void drains(int (*done)(share_channel *ch, int timeout_ms))
{
	share_channel_options o = small(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_message m[2] = {SHARE_MESSAGE_INIT};
	share_channel *p, *c;
	int fd;

	p = open_channel(client, SHARE_PRODUCER, &o);
	fd = share_channel_get_fd(p);
	send_number(p, 0);
	send_number(p, 1);
	until(done(p, 0) == SHARE_EAGAIN && !is_readable(fd, 0));
	c = open_channel(other, SHARE_CONSUMER, NULL);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m[0]));
	m[1] = (share_message)SHARE_MESSAGE_INIT;
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m[1]));
	if (done == share_channel_drain)
		check_ok(share_ack_many(m, 2, NULL));
	expect_told(fd);
	while (done(p, 0) == SHARE_EAGAIN)
		expect_told(fd);
	check_ok(done(p, 0));
	check(!is_readable(fd, 0));
	if (done != share_channel_drain)
		check_ok(share_ack_many(m, 2, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_ready, a_producer_is_told_of_what_was_acknowledged)
{
	drains(share_channel_drain);
}

Test(channel_ready, a_producer_is_told_that_consumers_have_room)
{
	drains(share_channel_flush);
}

Test(channel_ready, a_producer_that_has_flushed_is_told_of_what_is_acknowledged_after_that)
{
	share_channel_options o = small(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	int fd = share_channel_get_fd(p);

	send_number(p, 0);
	until(share_channel_drain(p, 0) == SHARE_EAGAIN &&
	      share_channel_flush(p, 0) == SHARE_EAGAIN && !is_readable(fd, 0));
	c = open_channel(other, SHARE_CONSUMER, NULL);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	expect_told(fd);
	check_ok(share_channel_flush(p, 0));
	check(!is_readable(fd, 0));
	check_ok(share_ack(&m, NULL));
	expect_told(fd);
	check_ok(share_channel_drain(p, 0));
	check(!is_readable(fd, 0));
	share_channel_close(c);
	share_channel_close(p);
}

/* The consumer looks whether somebody sleeps, and the producer sleeps, in every order. */
#define ROUNDS 20000

static void *receive_all(void *c)
{
	for (uint32_t i = 0; i < ROUNDS; i++)
		drop_one(c);
	return NULL;
}

Test(channel_ready, a_producer_that_sleeps_for_each_message_gets_on)
{
	share_channel_options o = small(SHARE_BROADCAST, SHARE_FULL_FAIL);
	pthread_t thread;
	share_channel *p, *c;
	int fd;

	o.depth = 1;
	o.in_flight = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	until(channel_stats(p).consumers == 1);
	fd = share_channel_get_fd(p);
	check_eq(pthread_create(&thread, NULL, receive_all, c), 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		int r;

		while ((r = share_send(p, NULL, NULL, 0, NULL)) == SHARE_EAGAIN)
			expect_told(fd);
		check_ok(r);
	}
	check_eq(pthread_join(thread, NULL), 0);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Consumers                                                                                   */

/* It is armed by whichever call found nothing. */
Test(channel_ready, a_consumer_that_has_waited_in_vain_is_told)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	int fd = share_channel_get_fd(c);

	send_number(p, 0);
	expect_number(c, 0);
	for (uint32_t i = 0; i < 10; i++) {
		expect_nothing(c);
		check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
		while (is_readable(fd, 0))
			expect_nothing(c);
		check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
		send_number(p, i);
		expect_told(fd);
		expect_number(c, i);
	}
	share_channel_close(c);
	share_channel_close(p);
}

static void *send_all(void *p)
{
	for (uint32_t i = 0; i < ROUNDS; i++)
		check_ok(share_send(p, NULL, NULL, 0, NULL));
	return NULL;
}

/* Also if the message came as it was about to say that there is none. */
Test(channel_ready, a_consumer_that_asks_once_each_time_it_is_told_gets_all)
{
	share_channel_options o = small(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	int fd = share_channel_get_fd(c);
	uint32_t got = 0;
	pthread_t thread;

	until(channel_stats(p).consumers == 1);
	check_eq(pthread_create(&thread, NULL, send_all, p), 0);
	while (got < ROUNDS) {
		share_message m = SHARE_MESSAGE_INIT;

		expect_told(fd);
		if (share_recv(c, 0, NULL, &m) == SHARE_EAGAIN)
			continue;
		check_ok(share_ack(&m, NULL));
		got++;
	}
	check_eq(pthread_join(thread, NULL), 0);
	share_channel_close(c);
	share_channel_close(p);
}

/* As long as the work runs it is to be asked for again: nobody else says when that is done. */
Test(channel_ready, a_consumer_is_told_of_a_message_whose_work_still_runs)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	int fd = share_channel_get_fd(c);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_buffer *b = allocate(pool, 4096, NULL);

	check_ok(share_host_stream_create(client, &stream));
	until(channel_stats(p).consumers == 1);
	until(share_recv(c, 0, NULL, &m) == SHARE_EAGAIN && !is_readable(fd, 0));
	gate_hold(gate, stream);
	check_ok(share_give(p, b, NULL, 0, stream));
	for (int i = 0; i < 3; i++) {
		expect_told(fd);
		expect_nothing(c);
	}
	gate_open(gate);
	do
		expect_told(fd);
	while (share_recv(c, 0, NULL, &m) == SHARE_EAGAIN);
	check(m.channel);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
	share_host_stream_destroy(stream);
	gate_free(gate);
}

#define TRIES 10
#define FEW   100

struct sleeper {
	share_channel *c;
	_Atomic pid_t thread;
};

static void *receive_one(void *data)
{
	struct sleeper *s = data;

	atomic_store(&s->thread, gettid());
	drop_one(s->c);
	return NULL;
}

/* The system call in which a thread of this process sleeps; -1: it runs. */
static long sleeps_in(const struct sleeper *s)
{
	char path[64], text[64] = "";
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)atomic_load(&s->thread));
	f = fopen(path, "re");
	check(f);
	check(fgets(text, sizeof(text), f) || !ferror(f));
	fclose(f);
	return sscanf(text, "%ld", &number) == 1 ? number : -1;
}

/* At a word that others write. */
static bool sleeps_at_a_word(const struct sleeper *s)
{
	long number = sleeps_in(s);

#ifdef SYS_futex_waitv
	if (number == SYS_futex_waitv)
		return true;
#endif
	return number == SYS_futex;
}

static bool sleeps_at_descriptors(const struct sleeper *s)
{
	long number = sleeps_in(s);

#ifdef SYS_poll
	if (number == SYS_poll)
		return true;
#endif
	return number == SYS_ppoll;
}

/* How often an event loop asks in vain until the other thread sleeps where the loop waits as well;
 * FEW is enough. */
static uint32_t count_looks_beside(const struct sleeper *s)
{
	uint32_t n = 0;
	int fd;

	until(sleeps_at_a_word(s));
	fd = share_channel_get_fd(s->c);
	while (n < FEW && !sleeps_at_descriptors(s))
		if (is_readable(fd, 0)) {
			expect_nothing(s->c);
			n++;
		}
	return n;
}

/* A thread that slept before somebody asked for the descriptor goes on in its place: else the
 * descriptor would be readable until that thread looks again by itself. How often this one looks
 * before the other one was given a processor is a matter of chance, so it is tried several times.
 */
Test(channel_ready, a_loop_that_comes_to_a_thread_that_sleeps_is_not_kept_busy)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	uint32_t looks = FEW;

	for (int i = 0; i < TRIES && looks == FEW; i++) {
		struct sleeper s = {.c = open_channel(other, SHARE_CONSUMER, NULL)};
		pthread_t thread;

		check_eq(pthread_create(&thread, NULL, receive_one, &s), 0);
		until(atomic_load(&s.thread) != 0);
		looks = count_looks_beside(&s);
		until(channel_stats(p).consumers == 1);
		check_ok(share_send(p, NULL, NULL, 0, NULL));
		check_eq(pthread_join(thread, NULL), 0);
		share_channel_close(s.c);
		until(channel_stats(p).consumers == 0);
	}
	check(looks < FEW);
	share_channel_close(p);
}

struct hurried {
	share_channel *c;
	struct gate *work;
};

/* Has no time for the message that it gets. */
static void *receive_in_a_hurry(void *data)
{
	const struct hurried *h = data;
	share_message m = SHARE_MESSAGE_INIT;

	check_eq(share_recv(h->c, 1500, NULL, &m), SHARE_ETIMEDOUT);
	gate_open(h->work);
	return NULL;
}

/* Another thread gets it, though nobody has rung for that since, and it sleeps until somebody does:
 * it has slept for so long already. */
Test(channel_ready, what_one_thread_has_no_time_for_another_one_gets)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	struct hurried h = {open_channel(other, SHARE_CONSUMER, NULL), gate_new()};
	share_message m = SHARE_MESSAGE_INIT;
	share_host_stream *stream;
	share_buffer *b = allocate(pool, 64, NULL);
	pthread_t thread;

	check_ok(share_host_stream_create(client, &stream));
	gate_hold(h.work, stream);
	until(channel_stats(p).consumers == 1);
	check_ok(share_send(p, b, NULL, 0, stream));
	check_eq(pthread_create(&thread, NULL, receive_in_a_hurry, &h), 0);
	until(channel_stats(h.c).received == 1);
	check_ok(share_recv(h.c, -1, NULL, &m));
	check_ok(share_ack(&m, NULL));
	check_eq(pthread_join(thread, NULL), 0);
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(stream);
	share_channel_close(h.c);
	share_channel_close(p);
	gate_free(h.work);
}

/* ------------------------------------------------------------------------------------------- */
/* Edge-triggered                                                                              */

#define EDGES 2000

static int watch_edges(int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int loop = epoll_create1(EPOLL_CLOEXEC);

	check(loop >= 0);
	check_eq(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e), 0);
	return loop;
}

static void next_edge(int loop)
{
	struct epoll_event e;
	int n;

	do
		n = epoll_wait(loop, &e, 1, HARNESS_LIMIT_MS);
	while (n < 0 && errno == EINTR);
	check_eq(n, 1);
}

static void *send_at_edges(void *channel)
{
	share_channel *p = channel;
	int loop = watch_edges(share_channel_get_fd(p)), r;

	for (int i = 0; i < EDGES;) {
		r = share_send(p, NULL, &i, sizeof(i), NULL);
		if (r == SHARE_EAGAIN)
			next_edge(loop);
		else
			check_ok(r);
		i += r == 0;
	}
	close(loop);
	return NULL;
}

/* Who asks until there is nothing misses nothing, on either side, though each is told but once. */
Test(channel_ready, loops_may_be_edge_triggered)
{
	share_channel_options o = small(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	int loop = watch_edges(share_channel_get_fd(c)), r;
	share_message m = SHARE_MESSAGE_INIT;
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, send_at_edges, p), 0);
	for (uint64_t got = 0; got < EDGES;) {
		r = share_recv(c, 0, NULL, &m);
		if (r == SHARE_EAGAIN) {
			next_edge(loop);
			continue;
		}
		check_ok(r);
		check_eq(m.number, got++);
		check_ok(share_ack(&m, NULL));
	}
	check_eq(pthread_join(thread, NULL), 0);
	close(loop);
	share_channel_close(c);
	share_channel_close(p);
}
