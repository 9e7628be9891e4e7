/* SPDX-License-Identifier: MIT */

/*
 * Sends a tensor of GPU memory to another process and waits for an answer, and measures the time on
 * the host: how long a program waits that hands work to another one. The floor is how PyTorch does
 * it (torch_queue.py), in the same run and by turns. The same is timed in both:
 *
 *   - the tensor is made and filled on a stream; "whole" is timed from before this, "hand-over"
 *     from after it
 *   - it is sent; the other process receives it, and could enqueue work on it; it answers with a
 *     number
 *   - the number has arrived
 *
 * Neither process waits for the GPU in this time. Between two tensors, both wait until the GPU has
 * finished everything, so that the GPU's work and its switches between the processes are not
 * measured.
 *
 * The benchmark also reports the calls into the driver that a message costs, as the library counts
 * them: the signal behind what the producer has enqueued, the wait before what the consumer
 * enqueues, and the signal behind that. The library saves a wait if it has already seen the signal,
 * so there may be fewer.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "bench/channel/channel.h"
#include "bench/channel/torch.h"
#include "bench/driver/driver.h"

#define NAME         "channel-gpu"
#define ANSWERS      NAME "/answers"
#define TIMES_FASTER 50

static const struct tensor {
	const char *name;
	uint64_t size;
} tensors[] = {{"4KiB", 4096}, {"1MiB", 1 << 20}, {"64MiB", 1 << 26}};

#define N_TENSORS (sizeof(tensors) / sizeof(tensors[0]))

struct setup {
	char address[256];
	char device[64];
};

struct order {
	uint32_t n; /* how many tensors */
	uint32_t spin;
	uint32_t check; /* whether to check what is in them */
	uint32_t word;  /* what is in the first one; one more in each later one */
};

/* How many signals and waits the library has enqueued so far. */
struct calls {
	uint64_t signals, waits;
};

/* One of the two processes. */
struct side {
	struct other other;
	_Atomic uint32_t *ready; /* how many tensors the second process has finished with */
	share_client *client;
	share_pool *pool;
	share_channel *there, *back;
	void *stream;
};

static share_channel *open_channel(const struct side *s, const char *name, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = name;
	options.depth = 4;
	must(share_channel_open(s->client, name, role, &options, &ch), "share_channel_open");
	return ch;
}

static void receive(share_channel *ch, bool spin, void *stream, share_message *m)
{
	int r;

	do
		r = share_recv(ch, spin ? 0 : HANGS_MS, stream, m);
	while (spin && r == SHARE_EAGAIN);
	must(r, "share_recv");
}

static struct calls count_calls(const struct side *s)
{
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;

	must(share_fence_get_stats(s->client, &stats), "share_fence_get_stats");
	return (struct calls){stats.signals, stats.waits};
}

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

static void check(const struct side *s, share_buffer *b, uint32_t word)
{
	uint32_t first, last;

	must(share_copy_to_host(b, 0, &first, sizeof(first), s->stream), "share_copy_to_host");
	must(share_copy_to_host(b, share_size(b) - sizeof(last), &last, sizeof(last), s->stream),
	     "share_copy_to_host");
	if (first == word && last == word)
		return;
	fprintf(stderr, "share-bench: tensor %u brought something else\n", word);
	exit(1);
}

static void answer(const struct side *s, const struct order *o)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (uint32_t i = 0; i < o->n; i++) {
		uint64_t size;

		receive(s->there, o->spin, s->stream, &m);
		size = share_size(m.buffer);
		must(share_send(s->back, NULL, &size, sizeof(size), NULL), "share_send");
		if (o->check)
			check(s, m.buffer, o->word + i);
		must(share_ack(&m, s->stream), "share_ack");
		driver_stream_synchronize(s->stream);
		atomic_store_explicit(s->ready, i + 1, memory_order_release);
	}
}

static void serve(void *data)
{
	struct side *s = data;
	char why[DRIVER_WHY];
	struct setup setup;
	struct order o;

	if (!other_is_asked(&s->other, &setup, sizeof(setup)))
		return; /* the first process has nothing to measure */
	must(share_connect(setup.address, &s->client), "share_connect");
	if (!driver_start(setup.device, why)) {
		fprintf(stderr, "share-bench: %s\n", why);
		exit(1);
	}
	s->stream = driver_stream_create();
	s->back = open_channel(s, ANSWERS, SHARE_PRODUCER);
	s->there = open_channel(s, NAME, SHARE_CONSUMER);
	other_done(&s->other);
	while (other_is_asked(&s->other, &o, sizeof(o))) {
		struct calls before = count_calls(s), after;

		answer(s, &o);
		after = count_calls(s);
		after.signals -= before.signals;
		after.waits -= before.waits;
		other_tell(&s->other, &after, sizeof(after));
	}
	share_channel_close(s->there);
	share_channel_close(s->back);
	share_disconnect(s->client);
	driver_stream_destroy(s->stream);
}

/* ------------------------------------------------------------------------------------------- */

struct figures {
	struct series hand_over, whole;
	struct calls sent, received; /* of all @n tensors */
	uint32_t n;
};

static void hand_over(const struct side *s, const struct order *o, uint64_t size, uint32_t i,
		      struct figures *out)
{
	double start = now_us(), made, end;
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;
	uint64_t got = 0;

	must(share_alloc(s->pool, size, s->stream, &b), "share_alloc");
	driver_fill(share_ptr(b), o->word + i, size, s->stream);
	made = now_us();
	must(share_give(s->there, b, NULL, 0, s->stream), "share_give");
	receive(s->back, o->spin, NULL, &m);
	end = now_us();
	memcpy(&got, m.data, m.data_size == sizeof(got) ? sizeof(got) : 0);
	must(share_ack(&m, NULL), "share_ack");
	if (got != size) {
		fprintf(stderr, "share-bench: the other process got something else\n");
		exit(1);
	}
	driver_stream_synchronize(s->stream);
	word_spin(s->ready, i + 1);
	if (!out)
		return;
	samples_add(&out->hand_over.round, end - made);
	samples_add(&out->whole.round, end - start);
}

/* Plays @n tensors. With @out NULL, it checks what arrives, warms up and measures nothing. */
static void play(const struct side *s, bool spin, uint64_t size, uint32_t n, struct figures *out)
{
	static uint32_t word;
	struct order o = {n, spin, out == NULL, word};
	struct calls before = count_calls(s), after, theirs;

	atomic_store(s->ready, 0);
	other_tell(&s->other, &o, sizeof(o));
	for (uint32_t i = 0; i < n; i++)
		hand_over(s, &o, size, i, out);
	word += n;
	other_hear(&s->other, &theirs, sizeof(theirs));
	after = count_calls(s);
	if (!out)
		return;
	out->sent.signals += after.signals - before.signals;
	out->sent.waits += after.waits - before.waits;
	out->received.signals += theirs.signals;
	out->received.waits += theirs.waits;
	out->n += n;
	series_end_round(&out->hand_over);
	series_end_round(&out->whole);
}

static void report_calls(const struct tensor *t, const struct figures *f)
{
	const struct {
		const char *name, *what;
		uint64_t n;
		double target;
	} calls[] = {
	    {"signals", "signals that its producer enqueues", f->sent.signals, 1},
	    {"waits", "waits that its consumer enqueues", f->received.waits, 1},
	    {"acks", "signals that its consumer enqueues", f->received.signals, 1},
	    {"gates", "waits that its producer enqueues: for memory that is in use", f->sent.waits,
	     0},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct figure g = {.unit = "", .floor = NONE, .target = calls[i].target};
		char name[64], what[128];

		snprintf(name, sizeof(name), NAME ".%s.%s", t->name, calls[i].name);
		snprintf(what, sizeof(what), "a message costs: %s", calls[i].what);
		g.name = name;
		g.what = what;
		g.value = (double)calls[i].n / f->n;
		figure_report(&g);
	}
}

static void report(const struct tensor *t, bool spin, struct figures *ours, struct figures *floor)
{
	struct figure f = {.unit = "us", .target = NONE};
	const char *suffix = spin ? "" : ".sleep";
	struct series *hand_over = floor ? &floor->hand_over : NULL;
	char name[64], what[128];

	snprintf(name, sizeof(name), NAME ".%s%s", t->name, suffix);
	snprintf(what, sizeof(what), "a tensor there and an answer back, %s; floor: torch's queue",
		 spin ? "spinning" : "asleep meanwhile");
	f.name = name;
	f.what = what;
	if (spin && floor)
		f.target = 1.0 / TIMES_FASTER;
	series_report(&ours->hand_over, hand_over, &f, NONE);
	snprintf(name, sizeof(name), NAME ".%s%s.whole", t->name, suffix);
	f.what = "the same, and making and filling it";
	f.target = NONE;
	series_report_median(&ours->whole, floor ? &floor->whole : NULL, &f);
}

static void measure(const struct run *run, const struct side *s, const struct tensor *t,
		    struct torch *torch)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 10 : 50;
	struct figures ours[2] = {0}, floor = {0};

	for (int i = 0; i < rounds; i++) {
		for (int spin = 0; spin < 2; spin++) {
			play(s, spin, t->size, 5, NULL);
			play(s, spin, t->size, (uint32_t)n, &ours[spin]);
		}
		if (torch) {
			torch_play(torch, t->size, (unsigned)n, &floor.hand_over.round,
				   &floor.whole.round);
			series_end_round(&floor.hand_over);
			series_end_round(&floor.whole);
		}
	}
	for (int spin = 1; spin >= 0; spin--)
		report(t, spin, &ours[spin], torch ? &floor : NULL);
	report_calls(t, &ours[1]);
	for (int spin = 0; spin < 2; spin++) {
		series_deinit(&ours[spin].hand_over);
		series_deinit(&ours[spin].whole);
	}
	series_deinit(&floor.hand_over);
	series_deinit(&floor.whole);
}

static share_pool *set_up(struct side *s)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct setup setup = {.address = ""};
	share_pool *answers;

	must(share_connect("embedded", &s->client), "share_connect");
	s->stream = driver_stream_create();
	options.device = driver_device();
	options.segment_size = UINT64_C(512) << 20; /* room for the largest tensor, which is kept */
	options.release_threshold = options.segment_size;
	must(share_pool_create(s->client, NAME, &options, &s->pool), "share_pool_create");
	options = (share_pool_options)SHARE_POOL_OPTIONS_INIT;
	options.kind = "host";
	must(share_pool_create(s->client, ANSWERS, &options, &answers), "share_pool_create");
	s->there = open_channel(s, NAME, SHARE_PRODUCER);
	snprintf(setup.address, sizeof(setup.address), "%s", share_address(s->client));
	snprintf(setup.device, sizeof(setup.device), "%s", driver_device());
	other_tell(&s->other, &setup, sizeof(setup));
	other_wait(&s->other);
	s->back = open_channel(s, ANSWERS, SHARE_CONSUMER);
	return answers;
}

static void measure_all(const struct run *run, struct side *s, struct torch *torch)
{
	const char *why = torch_wait(torch);
	share_pool *answers = set_up(s);

	if (why)
		fprintf(stderr, "share-bench: " NAME ".torch: SKIPPED: %s\n", why);
	for (size_t i = 0; i < N_TENSORS; i++)
		measure(run, s, &tensors[i], why ? NULL : torch);
	share_channel_close(s->there);
	share_channel_close(s->back);
	share_pool_close(answers);
	share_pool_close(s->pool);
}

void bench_channel_gpu(const struct run *run)
{
	struct side s = {.client = NULL};
	char why[DRIVER_WHY];
	struct torch *torch;

	s.ready = shared_memory(sizeof(*s.ready));
	other_start(&s.other, serve, &s); /* before torch: this child must not inherit its pipes */
	torch = torch_start();
	if (driver_start(NULL, why)) {
		measure_all(run, &s, torch);
	} else {
		fprintf(stderr, "share-bench: " NAME ": SKIPPED: %s\n", why);
	}
	torch_stop(torch);
	other_end(&s.other);
	if (s.client) {
		share_disconnect(s.client);
		driver_stream_destroy(s.stream);
	}
}
