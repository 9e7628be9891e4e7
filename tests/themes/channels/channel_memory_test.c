/* SPDX-License-Identifier: MIT */

/*
 * What others of a channel are known by cannot be had just now: the call that needed it fails, and
 * the next one has it. The linker leads these calls here (see the CMakeLists).
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"

#define LARGE 256 /* what replies have room for without malloc() */

/* How many of them succeed first, on this thread; negative: they all do. */
static _Thread_local int mappings = -1, epolls = -1, blocks = -1;

static bool fails(int *left)
{
	if (*left < 0)
		return false;
	return (*left)-- == 0;
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	if (fails(&mappings)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap(at, size, protection, flags, fd, offset);
}

int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	if (what == EPOLL_CTL_ADD && fails(&epolls)) {
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll, what, fd, event);
}

void *__wrap_malloc(size_t size)
{
	if (size > LARGE && fails(&blocks)) {
		errno = ENOMEM;
		return NULL;
	}
	return __real_malloc(size);
}

/* ------------------------------------------------------------------------------------------- */

static share_client *client, *other;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
}

static void stop(void)
{
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_memory, .init = start, .fini = stop, .timeout = 60);

/* The @nth of these from now on fails. */
static void consumer_meets_producer(int *what, int nth, int error)
{
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	send_number(p, 1);
	*what = nth;
	if (error)
		check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), error);
	expect_number(c, 1);
	check_eq(*what, -1);
	share_channel_close(p);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(c);
}

Test(channel_memory, a_producer_that_could_not_be_mapped_is_met_the_next_time)
{
	consumer_meets_producer(&mappings, 1, SHARE_ENOMEM);
}

Test(channel_memory, a_producer_whose_fences_could_not_be_mapped_is_met_at_once)
{
	consumer_meets_producer(&mappings, 0, 0);
}

Test(channel_memory, a_producer_that_could_not_be_watched_is_met_the_next_time)
{
	consumer_meets_producer(&epolls, 0, SHARE_ESYSTEM);
}

Test(channel_memory, one_of_several_that_could_not_be_mapped_is_met_with_all_after_it)
{
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *p[4];
	share_message m = SHARE_MESSAGE_INIT;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < 4; i++) {
		p[i] = open_channel(client, SHARE_PRODUCER, NULL);
		send_number(p[i], 1u << i);
	}
	mappings = 1;
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_ENOMEM);
	for (int i = 0; i < 4; i++)
		sum += receive_number(c);
	check_eq(sum, 15);
	for (int i = 0; i < 4; i++)
		share_channel_close(p[i]);
	share_channel_close(c);
}

#define MANY 12 /* so that the answer that lists them is large */

Test(channel_memory, an_answer_that_could_not_be_kept_is_asked_for_again)
{
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *p[MANY];
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < MANY; i++)
		p[i] = open_channel(client, SHARE_PRODUCER, NULL);
	blocks = 0;
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_ENOMEM);
	for (uint32_t i = 0; i < MANY; i++) {
		send_number(p[i], i);
		expect_number(c, i);
	}
	for (int i = 0; i < MANY; i++)
		share_channel_close(p[i]);
	share_channel_close(c);
}
