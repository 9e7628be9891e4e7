/* SPDX-License-Identifier: MIT */

/*
 * What scenarios.txt has, over memory of every kind, as far as no other of the conformance tests
 * has it. Two connections of one process are enough: that it works between processes is what the
 * others are about.
 */

#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/support/gpu_memory.h"

#define CONFORMANCE_KINDS kinds_with_adopted
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

#define SIZE    10000
#define FOREVER 30000 /* only so that a test which hangs ends */

static share_client *one, *other;
static share_pool *pool;
static const char *kind_of_all;
static bool is_adopted, is_on_device;

static void begin(const char *kind)
{
	kind_of_all = kind;
	is_adopted = strncmp(kind, "adopted", 7) == 0;
	is_on_device = !is_host(kind);
	one = connect_as("one");
	other = connect_as("other");
	pool = conformance_pool(one, is_adopted ? "adopted" : kind, OPTIONS);
}

static void end(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(one);
}

static void unmap(void *memory)
{
	munmap(memory, SIZE);
}

static void *mapped(int fd)
{
	void *memory;

	check(fd >= 0 && ftruncate(fd, SIZE) == 0);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(memory != MAP_FAILED);
	return memory;
}

static void unmap_on_device(void *memory)
{
	gpu_memory_free_as(kind_of_all, memory, UNIT);
}

static share_buffer *adopt(void)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	int fd = memfd_create("data", MFD_CLOEXEC);
	share_buffer *b;

	options.memory = is_on_device ? gpu_memory_make_as(kind_of_all, UNIT) : mapped(fd);
	options.done = is_on_device ? unmap_on_device : unmap;
	options.data = options.memory;
	check_ok(share_alloc_with(pool, SIZE, &options, NULL, &b));
	close(fd);
	return b;
}

static share_buffer *filled(int value)
{
	share_buffer *b = is_adopted ? adopt() : allocate(pool, SIZE, NULL);

	buffer_fill(b, value);
	return b;
}

static share_channel *open_queue(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "test";
	options.mode = SHARE_QUEUE;
	check_ok(share_channel_open(c, "queue", role, &options, &ch));
	return ch;
}

static share_channel *open_for_two(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "test";
	options.mode = SHARE_QUEUE;
	options.buffers = 2;
	check_ok(share_channel_open(c, "queue", role, &options, &ch));
	return ch;
}

static share_outgoing two(share_buffer *const *buffers)
{
	share_outgoing m = SHARE_OUTGOING_INIT;

	m.buffers = buffers;
	m.n_buffers = 2;
	m.flags = SHARE_OUTGOING_GIVE;
	return m;
}

static void send_filled(share_channel *tx, int value)
{
	check_ok(share_give(tx, filled(value), NULL, 0, NULL));
}

static share_message receive(share_channel *rx)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(rx, FOREVER, NULL, &m));
	check_ok(m.error);
	return m;
}

ConformanceTest(a_buffer_is_found_by_its_name)
{
	share_buffer *b, *found;

	begin(kind);
	b = filled(1);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, FOREVER, NULL, &found));
	buffer_expect(found, 1);
	check_ok(share_release(found, NULL));
	check_ok(share_unpublish(one, "name"));
	check_error(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &found), SHARE_ENOENT);
	end();
}

ConformanceTest(a_pool_is_mapped_before_anything_is_looked_up)
{
	share_buffer *b, *found;
	share_pool *p;

	begin(kind);
	b = filled(17);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_pool_open(other, "test", &p));
	check_ok(share_pool_map_ahead(p, SHARE_RDONLY));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, FOREVER, NULL, &found));
	buffer_expect(found, 17);
	check_ok(share_release(found, NULL));
	check_ok(share_pool_map_ahead(p, SHARE_RDWR));
	check_ok(share_lookup(other, "name", SHARE_RDWR, FOREVER, NULL, &found));
	buffer_fill(found, 18);
	buffer_expect(b, 18);
	check_ok(share_release(found, NULL));
	share_pool_close(p);
	check_ok(share_unpublish(one, "name"));
	check_ok(share_release(b, NULL));
	end();
}

ConformanceTest(a_buffer_is_imported_by_its_token)
{
	share_buffer *b, *found;
	share_token token;

	begin(kind);
	b = filled(2);
	check_ok(share_export(b, NULL, &token));
	check_ok(share_release(b, NULL));
	check_ok(share_import(other, &token, 0, NULL, &found));
	buffer_expect(found, 2);
	check_ok(share_release(found, NULL));
	check_error(share_import(other, &token, 0, NULL, &found), SHARE_ENOENT);
	end();
}

ConformanceTest(who_may_only_read_cannot_write)
{
	share_buffer *b, *found;
	char byte = 0;

	begin(kind);
	b = filled(3);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, FOREVER, NULL, &found));
	check_error(share_copy_from_host(found, 0, &byte, 1, NULL), SHARE_EACCES);
	check_ok(share_release(found, NULL));
	buffer_expect(b, 3);
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(one, "name"));
	end();
}

ConformanceTest(a_buffer_is_copied_to_another_pool_and_back)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b, *copy;
	share_pool *copies;

	begin(kind);
	options.kind = "host";
	check_ok(share_pool_create(other, "copies", &options, &copies));
	b = filled(16);
	copy = allocate(copies, SIZE, NULL);
	check_ok(share_copy(copy, 0, b, 0, SIZE, NULL));
	buffer_fill(b, 0);
	buffer_expect(copy, 16);
	check_ok(share_copy(b, 0, copy, 0, SIZE, NULL));
	buffer_expect(b, 16);
	check_ok(share_release(copy, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(copies);
	end();
}

ConformanceTest(a_tensor_goes_with_a_name)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT, got = SHARE_TENSOR_INIT;
	int64_t shape[] = {10, 25};
	share_buffer *b, *found;

	begin(kind);
	b = filled(4);
	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 2, shape));
	options.tensor = &t;
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, FOREVER, NULL, &found));
	check_ok(share_tensor_get(found, &got));
	check(got.dtype == SHARE_FLOAT32 && got.ndim == 2 && got.shape[1] == 25);
	check_ok(share_release(found, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(one, "name"));
	end();
}

ConformanceTest(a_message_may_have_several_buffers)
{
	share_buffer *buffers[3], *kept;
	share_outgoing outgoing;
	share_channel *tx, *rx;
	share_message m;

	begin(kind);
	tx = open_for_two(one, SHARE_PRODUCER);
	rx = open_for_two(other, SHARE_CONSUMER);
	for (int i = 0; i < 3; i++)
		buffers[i] = filled(14 + i);
	outgoing = two(buffers);
	outgoing.n_buffers = 3;
	check_error(share_send_many(tx, &outgoing, 1, NULL), SHARE_EINVAL);
	check_ok(share_release(buffers[2], NULL));
	outgoing = two(buffers);
	check_eq(share_send_many(tx, &outgoing, 1, NULL), 1);
	m = receive(rx);
	check_eq(m.n_buffers, 2u);
	kept = m.buffers[1];
	share_retain(kept);
	buffer_expect(m.buffers[0], 14);
	check_ok(share_ack(&m, NULL));
	buffer_expect(kept, 15);
	check_ok(share_release(kept, NULL));
	share_channel_close(tx);
	share_channel_close(rx);
	end();
}

ConformanceTest(a_queue_gives_each_message_to_one)
{
	share_channel *tx, *rx[2];
	share_message m[2];

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx[0] = open_queue(other, SHARE_CONSUMER);
	rx[1] = open_queue(other, SHARE_CONSUMER);
	send_filled(tx, 5);
	send_filled(tx, 6);
	m[0] = receive(rx[0]);
	m[1] = receive(rx[1]);
	buffer_expect(m[0].buffer, 5 + (int)m[0].number);
	buffer_expect(m[1].buffer, 5 + (int)m[1].number);
	check(m[0].number != m[1].number);
	for (int i = 0; i < 2; i++) {
		check_ok(share_ack(&m[i], NULL));
		check_error(share_recv(rx[i], 0, NULL, &m[i]), SHARE_EAGAIN);
	}
	share_channel_close(tx);
	share_channel_close(rx[0]);
	share_channel_close(rx[1]);
	end();
}

ConformanceTest(a_message_is_kept_beyond_its_acknowledgement)
{
	share_channel *tx, *rx;
	share_buffer *kept;
	share_message m;

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx = open_queue(other, SHARE_CONSUMER);
	send_filled(tx, 7);
	m = receive(rx);
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	share_channel_close(tx);
	share_channel_close(rx);
	buffer_expect(kept, 7);
	check_ok(share_release(kept, NULL));
	end();
}

ConformanceTest(a_rejected_message_comes_again)
{
	share_channel *tx, *rx;
	share_message m;

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx = open_queue(other, SHARE_CONSUMER);
	send_filled(tx, 8);
	m = receive(rx);
	check_eq(m.deliveries, 1);
	check_ok(share_reject(&m, NULL));
	m = receive(rx);
	check_eq(m.deliveries, 2);
	buffer_expect(m.buffer, 8);
	check_ok(share_ack(&m, NULL));
	share_channel_close(tx);
	share_channel_close(rx);
	end();
}

ConformanceTest(a_producer_waits_until_all_is_acknowledged)
{
	share_channel *tx, *rx;
	share_message m;

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx = open_queue(other, SHARE_CONSUMER);
	send_filled(tx, 9);
	m = receive(rx);
	check_error(share_channel_drain(tx, 0), SHARE_EAGAIN);
	check_ok(share_ack(&m, NULL));
	check_ok(share_channel_drain(tx, FOREVER));
	share_channel_close(tx);
	share_channel_close(rx);
	end();
}

ConformanceTest(the_end_of_the_producers_is_told_once)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *tx, *rx;

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx = open_queue(other, SHARE_CONSUMER);
	send_filled(tx, 10);
	share_channel_close(tx);
	m = receive(rx);
	buffer_expect(m.buffer, 10);
	check_ok(share_ack(&m, NULL));
	check_error(share_recv(rx, FOREVER, NULL, &m), SHARE_EPIPE);
	check_error(share_recv(rx, 0, NULL, &m), SHARE_EAGAIN);
	share_channel_close(rx);
	end();
}

ConformanceTest(a_time_limit_that_is_over_is_no_message)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *tx, *rx;

	begin(kind);
	tx = open_queue(one, SHARE_PRODUCER);
	rx = open_queue(other, SHARE_CONSUMER);
	check_error(share_recv(rx, 0, NULL, &m), SHARE_EAGAIN);
	check_error(share_recv(rx, 1, NULL, &m), SHARE_ETIMEDOUT);
	check(!m.channel);
	share_channel_close(tx);
	share_channel_close(rx);
	end();
}

ConformanceTest(a_service_answers_with_several_buffers)
{
	share_message request = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *asks, *answers;
	share_outgoing outgoing;
	share_buffer *buffers[2];
	share_pending *call;

	begin(kind);
	options.pool = "test";
	options.buffers = 2;
	check_ok(share_service_open(other, "service", SHARE_WORKER, &options, &answers));
	check_ok(share_service_open(one, "service", SHARE_CALLER, &options, &asks));
	for (int i = 0; i < 2; i++)
		buffers[i] = filled(16 + i);
	outgoing = two(buffers);
	check_ok(share_call_start_with(asks, &outgoing, FOREVER, NULL, &call));
	check_ok(share_next_request(answers, FOREVER, NULL, &request));
	check_eq(request.n_buffers, 2u);
	buffer_expect(request.buffers[1], 17);
	/* The request's own buffers are the answer, the other way round. */
	buffers[0] = request.buffers[1];
	buffers[1] = request.buffers[0];
	outgoing = two(buffers);
	outgoing.flags = 0;
	check_ok(share_reply_with(&request, &outgoing, NULL));
	check_ok(share_call_finish(call, FOREVER, NULL, &answer));
	check_eq(answer.n_buffers, 2u);
	buffer_expect(answer.buffers[0], 17);
	buffer_expect(answer.buffers[1], 16);
	check_ok(share_ack(&answer, NULL));
	share_service_close(asks);
	share_service_close(answers);
	end();
}

ConformanceTest(a_request_that_is_only_acknowledged_is_canceled)
{
	share_message request = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *asks, *answers;
	share_pending *call;
	share_buffer *b;

	begin(kind);
	options.pool = "test";
	check_ok(share_service_open(other, "service", SHARE_WORKER, &options, &answers));
	check_ok(share_service_open(one, "service", SHARE_CALLER, &options, &asks));
	b = filled(11);
	check_ok(share_call_start(asks, b, NULL, 0, FOREVER, NULL, &call));
	check_ok(share_release(b, NULL));
	check_ok(share_next_request(answers, FOREVER, NULL, &request));
	buffer_expect(request.buffer, 11);
	check_ok(share_ack(&request, NULL));
	check_error(share_call_finish(call, FOREVER, NULL, &answer), SHARE_ECANCELED);
	share_service_close(asks);
	share_service_close(answers);
	end();
}

struct later {
	sem_t found;
	share_buffer *b;
};

static void fill_later(void *data)
{
	struct later *later = data;

	while (sem_wait(&later->found) != 0)
		;
	buffer_fill(later->b, 13);
}

ConformanceTest(a_host_stream_orders_a_hand_over)
{
	share_host_stream *writes, *reads;
	struct later later;
	share_buffer *found;

	begin(kind);
	check_ok(share_host_stream_create(one, &writes));
	check_ok(share_host_stream_create(other, &reads));
	check(sem_init(&later.found, 0, 0) == 0);
	later.b = filled(12);
	check_ok(share_host_stream_launch(writes, fill_later, &later));
	check_ok(share_publish(later.b, "name", writes));
	/* Not on NULL: of a GPU, that stream would wait for fill_later(), which uses it as well. */
	check_ok(share_lookup(other, "name", SHARE_RDONLY, FOREVER, reads, &found));
	check(sem_post(&later.found) == 0);
	check_ok(share_host_stream_synchronize(reads));
	buffer_expect(found, 13);
	check_ok(share_release(found, NULL));
	check_ok(share_release(later.b, writes));
	check_ok(share_unpublish(one, "name"));
	share_host_stream_destroy(reads);
	share_host_stream_destroy(writes);
	check(sem_destroy(&later.found) == 0);
	end();
}
