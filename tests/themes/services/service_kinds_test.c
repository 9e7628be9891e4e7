/* SPDX-License-Identifier: MIT */

/* Services over memory of every kind: the worker in a process of its own, as GPU memory is used. */

#include <share/service.h>

#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

#define SIZE    10000
#define ROUNDS  20
#define FOREVER 30000 /* only so that a test which hangs ends */

static share_service *open_service(share_client *c, int role)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	options.pool = "test";
	check_ok(share_service_open(c, "service", role, &options, &s));
	return s;
}

/* Answers with what it got, and one more in each byte. */
static void work(struct child *self, void *data)
{
	share_client *c = child_connect("worker");
	share_service *s = open_service(c, SHARE_WORKER);
	unsigned char bytes[SIZE];
	share_message request = SHARE_MESSAGE_INIT;
	share_buffer *reply;
	share_pool *p;
	int r;

	(void)data;
	check_ok(share_pool_open(c, "test", &p));
	child_point(self, "ready");
	while ((r = share_next_request(s, FOREVER, NULL, &request)) == 0) {
		check_ok(share_copy_to_host(request.buffer, 0, bytes, SIZE, NULL));
		for (size_t i = 0; i < SIZE; i++)
			bytes[i]++;
		check_ok(share_alloc(p, SIZE, NULL, &reply));
		check_ok(share_copy_from_host(reply, 0, bytes, SIZE, NULL));
		check_ok(share_reply(&request, reply, NULL, 0, NULL));
		check_ok(share_release(reply, NULL));
	}
	check_eq(r, SHARE_EPIPE);
	share_service_close(s);
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_service_answers_with_memory)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_service *s = open_service(c, SHARE_CALLER);
	struct child *worker = child_start(work, NULL);

	child_wait(worker, "ready");
	child_go(worker);
	for (int i = 0; i < ROUNDS; i++) {
		share_buffer *question = allocate(p, SIZE, NULL);
		share_message answer = SHARE_MESSAGE_INIT;

		buffer_fill(question, i);
		check_ok(share_call(s, question, NULL, 0, FOREVER, NULL, &answer));
		check_eq(share_size(answer.buffer), SIZE);
		buffer_expect(answer.buffer, i + 1);
		check_ok(share_ack(&answer, NULL));
		check_ok(share_release(question, NULL));
	}
	share_service_close(s);
	child_finish(worker);
	share_pool_close(p);
	share_disconnect(c);
}
