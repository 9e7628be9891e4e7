/* SPDX-License-Identifier: MIT */

/*
 * What becomes of a released block while work still runs on it: the reuse policies *gate* and
 * *clean*, over every kind of memory. Who leaves work behind is a client without libshare, whose
 * fence is reached when the test says so; who asks for memory is one, too, so that it can be seen
 * whether it was answered at once. What *scrub* does on top of *clean* is scrub_test.c's.
 */

#include <string.h>

#include "tests/harness/gate.h"
#include "tests/harness/raw.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 60);

/* Allocates that much of the pool and releases it behind a fence, reached when it goes on. */
static void leaves_work(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_RELEASE};
	struct raw r;

	raw_open(&r, "worker");
	m.release.buffer = raw_alloc(&r, raw_pool(&r, "test"), *(const uint64_t *)data);
	m.release.timeline = WIRE_TIMELINE(r.page_id, 1);
	m.release.value = 1;
	m.release.count = 1;
	raw_ask(&r, &m, WIRE_DONE);
	child_point(self, "released");
	timeline_signal(r.page, 1, 1);
	child_point(self, "finished");
}

static struct child *start_worker(uint64_t size)
{
	struct child *worker = child_start(leaves_work, &size);

	child_wait(worker, "released");
	return worker;
}

static void finish_work(struct child *worker)
{
	child_go(worker);
	child_wait(worker, "finished");
}

static void end_worker(struct child *worker)
{
	child_go(worker);
	child_finish(worker);
}

struct answer {
	uint32_t type; /* enum wire_type; 0: none yet */
	int32_t error;
	uint32_t fences; /* that the memory came with */
	char detail[512];
};

static struct answer read_answer(const struct raw *r)
{
	struct answer a = {.type = r->m.type};

	if (a.type == WIRE_GRANT) {
		a.fences = r->m.grant.fences.size / (uint32_t)sizeof(struct wire_fence);
	} else if (a.type == WIRE_ERROR) {
		a.error = r->m.error.error;
		snprintf(a.detail, sizeof(a.detail), "%.*s", (int)r->m.error.detail.size,
			 (const char *)r->m.error.detail.data);
	}
	return a;
}

/* Asks for that much of the pool, and tells first what it was answered at once: by the time the
 * next question was. */
static void asks(struct child *self, void *data)
{
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct answer answer = {.type = 0};
	struct raw r;

	raw_open(&r, "asker");
	m.alloc.pool = raw_pool(&r, "test");
	m.alloc.size = *(const uint64_t *)data;
	check(raw_send(&r, &m) == 0 && raw_send(&r, &ping) == 0);
	for (;;) {
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		if (r.m.serial == ping.serial)
			break;
		answer = read_answer(&r);
	}
	child_point_with(self, "at once", &answer, sizeof(answer));
	if (!answer.type) {
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		answer = read_answer(&r);
	}
	child_point_with(self, "answered", &answer, sizeof(answer));
}

static struct child *start_asker(uint64_t size, struct answer *at_once)
{
	struct child *asker = child_start(asks, &size);

	child_wait_with(asker, "at once", at_once, sizeof(*at_once));
	child_go(asker);
	return asker;
}

static struct answer finish_asker(struct child *asker)
{
	struct answer answer;

	child_wait_with(asker, "answered", &answer, sizeof(answer));
	child_go(asker);
	child_finish(asker);
	return answer;
}

static share_pool *pool_of(share_client *c, const char *kind, enum share_reuse reuse,
			   uint64_t limit)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.reuse = reuse;
	options.limit = limit;
	options.segment_size = UNIT;
	return conformance_pool(c, kind, options);
}

static int64_t gated_bytes(share_client *c)
{
	json_t *rows = report(c, "pools");
	int64_t bytes = number_of(row_named(rows, "pool", "test"), "gated");

	json_decref(rows);
	return bytes;
}

static void end(share_client *c, share_pool *p)
{
	share_pool_close(p);
	settle(c, s.clients == 1 && s.buffers == 0 && s.pools == 1 && s.segments == 0);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

ConformanceTest(gate_hands_memory_out_at_once_with_the_fences_of_the_work_on_it)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_GATE, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once;

	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	check_eq(at_once.fences, 1);
	finish_asker(asker);
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(gate_hands_out_what_lies_beside_memory_with_work_on_it_without_its_fences)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_GATE, UNIT);
	struct child *worker = start_worker(UNIT / 4), *first, *second;
	struct answer at_once;

	check_eq(gated_bytes(c), UNIT / 4);
	first = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	check_eq(at_once.fences, 0);
	/* what is left is in two parts */
	second = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, WIRE_ERROR);
	check_eq(at_once.error, SHARE_ENOMEM);
	finish_asker(second);
	finish_asker(first);
	second = start_asker(UNIT, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	check_eq(at_once.fences, 1);
	finish_asker(second);
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_keeps_memory_back_until_the_work_on_it_is_done)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once, later;

	check_eq(gated_bytes(c), UNIT);
	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, 0);
	finish_work(worker);
	later = finish_asker(asker);
	check_eq(later.type, WIRE_GRANT);
	check_eq(later.fences, 0);
	check_eq(gated_bytes(c), 0);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_hands_out_what_lies_beside_memory_with_work_on_it)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT / 4), *asker;
	struct answer at_once;

	asker = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	check_eq(at_once.fences, 0);
	finish_asker(asker);
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_takes_more_memory_while_there_is_work_on_what_it_has)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, 2 * UNIT);
	struct child *worker = start_worker(UNIT);
	share_buffer *b;

	settle(c, s.segments == 1);
	b = allocate(p, UNIT, NULL);
	settle(c, s.segments == 2);
	buffer_fill(b, 1);
	buffer_expect(b, 1);
	check_ok(share_release(b, NULL));
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_waits_a_second_for_others_and_then_says_what_it_waited_for)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once, later;

	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, 0);
	later = finish_asker(asker);
	check_eq(later.type, WIRE_ERROR);
	check_eq(later.error, SHARE_EAGAIN);
	check(strstr(later.detail, "its last users' work still runs on 2MiB"));
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

/* Asks in a client of libshare's, with a time limit. */
static int alloc_in_time(share_pool *p, int timeout_ms)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b;
	int r;

	options.timeout_ms = timeout_ms;
	r = share_alloc_with(p, UNIT, &options, NULL, &b);
	return r != 0 ? r : share_release(b, NULL);
}

ConformanceTest(clean_waits_for_others_for_as_long_as_it_was_said)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once;

	/* whoever waits for a second keeps nobody longer than that one has time */
	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, 0);
	check_error(alloc_in_time(p, 0), SHARE_EAGAIN);
	check_error(alloc_in_time(p, 10), SHARE_EAGAIN);
	check_detail("its last users' work still runs on 2MiB");
	check_error(alloc_in_time(p, -2), SHARE_EINVAL);
	check_eq(gated_bytes(c), UNIT);
	finish_work(worker);
	check_eq(finish_asker(asker).type, WIRE_GRANT);
	check_ok(alloc_in_time(p, HARNESS_LIMIT_MS));
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_waits_for_nothing_that_could_not_help)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT / 4), *asker, *other;
	struct answer at_once;

	asker = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	other = start_asker(UNIT, &at_once);
	check_eq(at_once.type, WIRE_ERROR);
	check_eq(at_once.error, SHARE_ENOMEM);
	finish_asker(other);
	finish_asker(asker);
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(clean_hands_out_what_a_dead_process_had_work_on)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once, later;

	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, 0);
	child_kill(worker);
	later = finish_asker(asker);
	check_eq(later.type, WIRE_GRANT);
	check_eq(later.fences, 0);
	end(c, p);
}

ConformanceTest(clean_hands_out_what_somebody_releases_while_others_wait)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT / 2), *holder, *asker;
	struct answer at_once, later;

	holder = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, WIRE_GRANT);
	asker = start_asker(UNIT / 2, &at_once);
	check_eq(at_once.type, 0);
	finish_asker(holder); /* it ends, and what it held with it */
	later = finish_asker(asker);
	check_eq(later.type, WIRE_GRANT);
	check_eq(gated_bytes(c), UNIT / 2);
	finish_work(worker);
	end_worker(worker);
	end(c, p);
}

ConformanceTest(who_dies_while_it_waits_for_memory_gets_none)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT), *asker;
	struct answer at_once;

	asker = start_asker(UNIT, &at_once);
	check_eq(at_once.type, 0);
	child_kill(asker);
	finish_work(worker);
	end_worker(worker);
	settle(c, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	end(c, p);
}

ConformanceTest(a_closed_pool_ends_when_the_work_on_its_memory_is_done)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, kind, SHARE_REUSE_CLEAN, UNIT);
	struct child *worker = start_worker(UNIT);
	struct status now;

	share_pool_close(p);
	status_read(c, &now);
	check_eq(now.segments, 1);
	finish_work(worker);
	end_worker(worker);
	end(c, NULL);
}

/* ------------------------------------------------------------------------------------------- */

ConformanceTest(a_pool_says_how_it_uses_memory_again)
{
	static const enum share_reuse policies[] = {SHARE_REUSE_GATE, SHARE_REUSE_CLEAN,
						    SHARE_REUSE_SCRUB};
	share_client *c = connect_as("test");

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		share_pool_info info = SHARE_POOL_INFO_INIT;
		share_pool *p = pool_of(c, kind, policies[i], UNIT);

		check_ok(share_pool_get_info(p, &info));
		check_eq(info.reuse, policies[i]);
		share_pool_close(p);
	}
	share_disconnect(c);
}

ConformanceTest(an_unknown_way_to_use_memory_again_is_refused)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool *p = NULL;

	options.kind = kind;
	options.reuse = 3;
	check_error(share_pool_create(c, "test", &options, &p), SHARE_EINVAL);
	check_detail("reuse: 3 is not an enum share_reuse");
	check(!p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

Test(conformance, clean_keeps_back_what_a_stream_of_this_process_works_on, .init = kinds_start,
     .fini = fixture_stop)
{
	share_client *c = connect_as("test");
	share_pool *p = pool_of(c, "host", SHARE_REUSE_CLEAN, UNIT);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_buffer *b, *other;
	void *before;

	check_ok(share_host_stream_create(c, &stream));
	b = allocate(p, UNIT / 2, stream);
	before = share_ptr(b);
	gate_hold(gate, stream);
	gate_fill(gate, stream, before, 1, UNIT / 2);
	check_ok(share_release(b, stream));
	/* not even the stream that would come after it anyway gets it */
	other = allocate(p, UNIT / 2, stream);
	check(share_ptr(other) != before);
	check_eq(gate->done, 0);
	check_error(share_alloc(p, UNIT / 2, stream, &b), SHARE_EAGAIN);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	b = allocate(p, UNIT / 2, NULL);
	check(share_ptr(b) == before);
	expect_filled(before, 1, UNIT / 2);
	check_ok(share_release(b, NULL));
	check_ok(share_release(other, NULL));
	share_host_stream_destroy(stream);
	gate_free(gate);
	end(c, p);
}
