/* SPDX-License-Identifier: MIT */

/*
 * Much memory of a GPU goes in pieces, by way of the host: each byte comes to its place, whatever
 * the size, also to and from memory of the host; a link that is lost and a receiver that is slow
 * leave nothing half done and nothing behind. Where there are two GPUs, it goes from one to the
 * other. And the same where UCX takes memory of GPUs itself, as a library says that does the copies
 * in its place (with a stand-in driver alone: a real one has a real UCX).
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <share/channel.h>

#include "tests/themes/pools/conformance.h"

#include "tests/harness/status.h"
#include "tests/support/drivers.h"
#include "tests/themes/bridge/bridge_peer.h"
#include "tests/themes/bridge/bridge_relay.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(conformance, .timeout = 240);

#define PIECE (UINT64_C(1) << 20)
#define LARGE (24 * PIECE + 12345) /* three times what is under way at a time */

struct between {
	struct sides sides;
	share_pool *far, *near;
};

static void fill(share_buffer *b, uint64_t seed)
{
	uint64_t *words = malloc(share_size(b) + sizeof(*words));

	check(words != NULL);
	for (uint64_t i = 0; i <= share_size(b) / sizeof(*words); i++)
		words[i] = (seed << 32) + i;
	check_ok(share_copy_from_host(b, 0, words, share_size(b), NULL));
	free(words);
}

/* The first wrong byte, or the size if there is none. */
static uint64_t wrong_byte(share_buffer *b, uint64_t seed)
{
	uint64_t n = share_size(b) / sizeof(uint64_t) + 1, at = 0;
	unsigned char *bytes = calloc(n, sizeof(uint64_t));

	check(bytes != NULL);
	check_ok(share_copy_to_host(b, 0, bytes, share_size(b), NULL));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t word = (seed << 32) + i, rest = share_size(b) - at;

		if (memcmp(bytes + at, &word, rest < sizeof(word) ? rest : sizeof(word)) != 0)
			break;
		at += rest < sizeof(word) ? rest : sizeof(word);
	}
	while (at < share_size(b) &&
	       bytes[at] == ((const unsigned char *)&(uint64_t){(seed << 32) + at / 8})[at % 8])
		at++;
	free(bytes);
	return at;
}

static void publish(share_pool *pool, const char *name, uint64_t size, uint64_t seed)
{
	share_buffer *b = allocate(pool, size, NULL);

	fill(b, seed);
	check_ok(share_publish(b, name, NULL));
	check_ok(share_release(b, NULL));
}

static void expect(share_client *c, const char *name, uint64_t size, uint64_t seed)
{
	share_buffer *b;

	check_ok(share_lookup(c, name, SHARE_RDONLY, HARNESS_LIMIT_MS, NULL, &b));
	check_eq(share_size(b), size);
	check_eq(wrong_byte(b, seed), size);
	check_ok(share_release(b, NULL));
}

/* On the last device that there is. */
static share_pool *near_pool(share_client *c, const char *kind)
{
	share_pool_options options = OPTIONS;
	json_t *devices = report(c, "devices");
	size_t n = json_array_size(devices);
	share_pool *p;

	if (!is_host(kind) && n > 1)
		options.device =
		    json_string_value(json_object_get(json_array_get(devices, n - 1), "device"));
	p = conformance_pool(c, kind, options);
	json_decref(devices);
	return p;
}

static void start_near(struct between *b)
{
	near_start(&b->sides,
		   (const char *const[]){"--pool", "test", "--import", "*", "--import-channel", "q",
					 "--import-service", "s", NULL});
}

static void start_far(struct between *b)
{
	far_start(&b->sides,
		  (const char *const[]){"--pool", "test", "--export", "*", "--export-channel", "q",
					"--export-service", "s", NULL});
}

static void begin(struct between *b, const char *far, const char *near)
{
	*b = (struct between){.far = NULL};
	sides_begin(&b->sides);
	b->far = conformance_pool(b->sides.far, far, OPTIONS);
	b->near = near_pool(b->sides.near, near);
	start_far(b);
}

static bool is_there(struct between *b, const char *name)
{
	share_buffer *buffer;

	if (share_lookup(b->sides.near, name, SHARE_RDONLY, 0, NULL, &buffer) != 0)
		return false;
	check_ok(share_release(buffer, NULL));
	return true;
}

/* A bridge can end with a link that is lost while much is sent, as UCX 1.13 completes it twice
 * then, which it takes for a mistake of its own. Whoever started the bridge starts it again. */
static bool comes(struct between *b, const char *name)
{
	if (waitpid(b->sides.far_bridge.pid, NULL, WNOHANG) == b->sides.far_bridge.pid) {
		int said = bridge_said(&b->sides.far_bridge, "comp->count > 0");

		if (said != 1)
			bridge_show(&b->sides.far_bridge);
		check_eq(said, 1);
		start_far(b);
	}
	return is_there(b, name);
}

/* Everything goes with the bridges. */
static void finish(struct between *b)
{
	bridge_stop(&b->sides.near_bridge);
	settle(b->sides.near, s.buffers == 0);
	share_pool_close(b->far);
	share_pool_close(b->near);
	sides_end(&b->sides);
}

static const uint64_t sizes[] = {
    1,     4096,  65536, /* by itself */
    65537, PIECE, PIECE + 1, 2 * PIECE - 1, 8 * PIECE, 9 * PIECE + 4711,
};
#define N (sizeof(sizes) / sizeof(sizes[0]))

static void pass_all(const char *far, const char *near)
{
	struct between b;
	char name[16];

	begin(&b, far, near);
	start_near(&b);
	for (uint64_t version = 1; version <= 2; version++) {
		for (size_t i = 0; i < N; i++) {
			snprintf(name, sizeof(name), "n%zu.%u", i, (unsigned)version);
			publish(b.far, name, sizes[i], 10 * version + i);
		}
		for (size_t i = 0; i < N; i++) {
			snprintf(name, sizeof(name), "n%zu.%u", i, (unsigned)version);
			expect(b.sides.near, name, sizes[i], 10 * version + i);
		}
	}
	finish(&b);
}

ConformanceTest(each_byte_comes_to_its_place)
{
	pass_all(kind, kind);
}

ConformanceTest(memory_of_a_gpu_becomes_memory_of_the_host)
{
	pass_all(kind, "host");
}

ConformanceTest(memory_of_the_host_becomes_memory_of_a_gpu)
{
	pass_all("host", kind);
}

static void two_devices(void)
{
	kinds_start_on("devices=2", NULL);
}

/* A machine that has two does this in every test. */
Test(two_gpus, from_the_one_to_the_other, .init = two_devices, .fini = fixture_stop, .timeout = 240)
{
	skip_unless_standin();
	skip_unless_possible("vmm");
	pass_all("vmm", "vmm");
	pass_all("mempool", "vmm");
}

/* In their order, some in pieces and some not. */
ConformanceTest(messages_of_a_channel_come_in_their_order)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *out, *in = NULL;
	struct between b;
	share_message m = SHARE_MESSAGE_INIT;

	begin(&b, kind, kind);
	options.pool = "test";
	options.mode = SHARE_QUEUE;
	options.depth = 4;
	check_ok(share_channel_open(b.sides.far, "q", SHARE_PRODUCER, &options, &out));
	start_near(&b);
	options.flags = SHARE_CHANNEL_EXISTING;
	until(share_channel_open(b.sides.near, "q", SHARE_CONSUMER, &options, &in) == 0);
	for (size_t sent = 0, received = 0; received < N; received++) {
		for (; sent < N && sent < received + options.depth; sent++) {
			share_buffer *buffer = allocate(b.far, sizes[sent], NULL);

			fill(buffer, sent);
			check_ok(share_give(out, buffer, NULL, 0, NULL));
		}
		check_ok(share_recv(in, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(share_size(m.buffer), sizes[received]);
		check_eq(wrong_byte(m.buffer, received), sizes[received]);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(out);
	share_channel_close(in);
	finish(&b);
}

/* Wherever in the content it is lost: it is begun when there is memory for it. */
ConformanceTest(a_link_that_is_lost_in_between_begins_anew)
{
	struct between b;
	struct relay relay;

	begin(&b, kind, kind);
	relay_start(&relay, b.sides.place);
	snprintf(b.sides.way, sizeof(b.sides.way), "%s", relay.place);
	start_near(&b);
	publish(b.far, "w", 4096, 1);
	expect(b.sides.near, "w", 4096, 1);
	for (uint64_t version = 2; version < 6; version++) {
		struct status before;
		char name[16];

		status_read(b.sides.near, &before);
		snprintf(name, sizeof(name), "w%u", (unsigned)version);
		publish(b.far, name, LARGE, version);
		settle(b.sides.near, s.buffers > before.buffers);
		if (version % 2 == 0) {
			relay_cut(&relay);
		} else {
			bridge_kill(&b.sides.near_bridge);
			start_near(&b);
		}
		until(comes(&b, name));
		expect(b.sides.near, name, LARGE, version);
	}
	relay_stop(&relay);
	finish(&b);
}

static void with_faults(void)
{
	drivers_prepare();
	kinds_start();
}

static void without_faults(void)
{
	fixture_stop();
	drivers_done();
}

static void skip_unless_staged(void)
{
	skip_unless_standin();
	skip_unless_possible("vmm");
	if (strcmp(bridge_gpu_way(), "staged") != 0)
		cr_skip_test("UCX does what would have to fail");
}

/* From when its content is sent, drivers do this. */
static void publish_with(share_pool *pool, const char *name, uint64_t size, uint64_t seed,
			 const char *fault)
{
	share_buffer *buffer = allocate(pool, size, NULL);

	fill(buffer, seed);
	drivers_do(fault);
	check_ok(share_publish(buffer, name, NULL));
	check_ok(share_release(buffer, NULL));
}

/* By itself, and in pieces. */
Test(faults, what_a_device_does_not_take_comes_again, .init = with_faults, .fini = without_faults,
     .timeout = 240)
{
	static const struct {
		uint64_t size;
		const char *fault, *said;
	} steps[] = {
	    {4096, "cuMemcpyHtoDAsync fail CUDA_ERROR_OUT_OF_MEMORY", "a copy cannot be made"},
	    {2 * PIECE, "cuEventQuery fail CUDA_ERROR_OUT_OF_MEMORY", "a copy has failed"},
	};
	struct between b;

	skip_unless_staged();
	begin(&b, "vmm", "vmm");
	start_near(&b);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%zu", i);
		publish_with(b.far, name, steps[i].size, i, steps[i].fault);
		until(bridge_said(&b.sides.near_bridge, steps[i].said) > 0);
		drivers_do("");
		expect(b.sides.near, name, steps[i].size, i);
	}
	finish(&b);
}

/* Whoever starts it again has a bridge that works, which one that went on would not be. */
Test(faults, an_error_of_a_device_that_stays_ends_the_bridge, .init = with_faults,
     .fini = without_faults, .timeout = 240)
{
	static const struct {
		const char *fault, *said;
	} faults[] = {
	    {"cuMemcpyHtoDAsync fail CUDA_ERROR_LAUNCH_FAILED", "a copy cannot be made"},
	    {"cuEventQuery fail CUDA_ERROR_ILLEGAL_ADDRESS", "a copy has failed"},
	};
	struct between b;

	skip_unless_staged();
	begin(&b, "vmm", "vmm");
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%u", i);
		start_near(&b);
		publish_with(b.far, name, 2 * PIECE, i, faults[i].fault);
		bridge_expect_end(&b.sides.near_bridge, EXIT_FAILURE, faults[i].said);
		drivers_do("");
	}
	start_near(&b);
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%u", i);
		expect(b.sides.near, name, 2 * PIECE, i);
	}
	finish(&b);
}

/* Of the host, in KiB. */
static long memory_of(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	check(f != NULL);
	while (fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %ld", &kib) != 1)
		;
	fclose(f);
	return kib;
}

/* Two large contents on their way to a receiver that does nothing, while another one is served. */
ConformanceTest(a_slow_receiver_costs_no_memory_and_gets_all)
{
	struct between b;
	long before;

	begin(&b, kind, kind);
	start_near(&b);
	publish(b.far, "w", 2 * PIECE, 1);
	expect(b.sides.near, "w", 2 * PIECE, 1);
	before = memory_of(b.sides.far_bridge.pid);
	for (unsigned i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%u", i);
		if (i == 1)
			check(kill(b.sides.near_bridge.pid, SIGSTOP) == 0);
		publish(b.far, name, LARGE, i);
	}
	check(kill(b.sides.near_bridge.pid, SIGCONT) == 0);
	for (unsigned i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%u", i);
		expect(b.sides.near, name, LARGE, i);
	}
	if (!is_host(kind))
		check(memory_of(b.sides.far_bridge.pid) < before + 2 * (long)(LARGE >> 10));
	finish(&b);
}

ConformanceTest(sharectl_says_how_it_goes)
{
	struct between b;
	char text[32];

	/* bridges with a pool of another kind stage, whatever they are told */
	snprintf(text, sizeof(text), "\"gpu\":\"%s\"",
		 strcmp(kind, "vmm") == 0 ? bridge_gpu_way() : "staged");
	begin(&b, kind, kind);
	start_near(&b);
	publish(b.far, "w", 3 * PIECE, 1);
	expect(b.sides.near, "w", 3 * PIECE, 1);
	until(sharectl_bridges_say(b.sides.near, "--json", is_host(kind) ? "\"gpu\":null" : text));
	until(sharectl_bridges_say(b.sides.far, "--json", is_host(kind) ? "\"gpu\":null" : text));
	finish(&b);
}

static void pass_from(struct between *b, share_pool *pool, uint64_t size, const char *way)
{
	char name[16], text[32];

	snprintf(name, sizeof(name), "%u", (unsigned)size);
	publish(pool, name, size, size);
	expect(b->sides.near, name, size, size);
	snprintf(text, sizeof(text), "\"gpu\":\"%s\"", way);
	until(sharectl_bridges_say(b->sides.far, "--json", text));
}

/* What UCX may not take for a device's comes beside what it takes, by itself and in pieces. */
Test(kinds, what_a_bridge_sends_is_staged_by_its_kind, .init = kinds_start, .fini = fixture_stop,
     .timeout = 240)
{
	static const char *const kinds[] = {"legacy", "pinned"};
	struct between b;

	skip_unless_possible("pinned");
	begin(&b, "vmm", "vmm");
	start_near(&b);
	for (size_t i = 0; i < 2; i++) {
		share_pool_options options = OPTIONS;
		share_pool *pool;

		options.kind = kinds[i];
		check_ok(share_pool_create(b.sides.far, kinds[i], &options, &pool));
		pass_from(&b, pool, 4096 + i, "staged");
		pass_from(&b, b.far, PIECE + i, bridge_gpu_way());
		pass_from(&b, pool, 3 * PIECE + i, "staged");
		share_pool_close(pool);
	}
	finish(&b);
}

/* The bridge would need as much memory of the host as the peer likes to send. */
Test(hostile, who_sends_much_as_a_whole_to_a_gpu_loses_the_link, .init = kinds_start,
     .fini = fixture_stop, .timeout = 240)
{
	static unsigned char memory[100000];
	struct data_header h = {.kind = DATA_NAME, .size = sizeof(memory)};
	share_pool *pool;
	struct sides s;
	struct peer p;

	skip_unless_possible("vmm");
	if (strcmp(bridge_gpu_way(), "staged") != 0)
		cr_skip_test("UCX takes it as a whole");
	sides_begin(&s);
	peer_read_key(&s);
	pool = conformance_pool(s.far, "vmm", OPTIONS);
	far_start(&s, (const char *const[]){"--pool", "test", "--import", "in/*", NULL});
	check(peer_connect(&p, &s));
	peer_greet(&p);
	h.id = peer_offer(&p, sizeof(memory));
	memcpy(h.secret, p.secret, DATA_SECRET);
	peer_send(&p, &h, BARE, memory, sizeof(memory));
	peer_expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "it sends too much as a whole") == 1);
	peer_close(&p);
	bridge_stop(&s.far_bridge);
	share_pool_close(pool);
	sides_end(&s);
}
