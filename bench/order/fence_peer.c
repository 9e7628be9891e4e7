/* SPDX-License-Identifier: MIT */

/*
 * The other process of the benchmark "fence". It has a host stream, so a CPU signals its fences,
 * and they are pending for as long as a measurement needs. It also plays the floor of a wake-up:
 * two processes wake each other by futex, each through a word of shared memory.
 */

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/order/fence.h"

/* ------------------------------------------------------------------------------------------- */
/* Chains                                                                                      */

void chain_start(struct chain *c, share_client *client)
{
	c->client = client;
	c->n = 0;
	must_system(sem_init(&c->gate, 0, 0) == 0 && sem_init(&c->end, 0, 0) == 0, "sem_init");
	must(share_host_stream_create(client, &c->stream), "share_host_stream_create");
}

void chain_stop(struct chain *c)
{
	share_host_stream_destroy(c->stream);
	sem_destroy(&c->gate);
	sem_destroy(&c->end);
}

static void pass(sem_t *s)
{
	while (sem_wait(s) < 0)
		; /* a signal interrupted it */
}

static void stand_at_gate(void *data)
{
	struct chain *c = data;

	pass(&c->gate);
}

static void end(void *data)
{
	struct chain *c = data;

	must_system(sem_post(&c->end) == 0, "sem_post");
}

static share_fence record(struct chain *c)
{
	share_fence f;

	must(share_fence_record(c->client, -1, c->stream, &f), "share_fence_record");
	return f;
}

share_fence chain_close(struct chain *c)
{
	must(share_host_stream_launch(c->stream, stand_at_gate, c), "share_host_stream_launch");
	return record(c);
}

static void run_link(void *data)
{
	const struct link *l = data;

	must(share_fence_synchronize(l->chain->client, &l->fence, HANGS_MS),
	     "share_fence_synchronize");
}

share_fence chain_link(struct chain *c, share_fence fence)
{
	struct link *l = &c->links[c->n++ % LINKS_MAX];

	*l = (struct link){c, fence};
	must(share_host_stream_launch(c->stream, run_link, l), "share_host_stream_launch");
	return record(c);
}

/* Does not synchronise with the stream: that would look at each step, and be measured too. */
void chain_run(struct chain *c)
{
	must(share_host_stream_launch(c->stream, end, c), "share_host_stream_launch");
	must_system(sem_post(&c->gate) == 0, "sem_post");
	pass(&c->end);
}

/* ------------------------------------------------------------------------------------------- */
/* The floor                                                                                   */

static void wake(struct floor_word *w, uint32_t value)
{
	atomic_store_explicit(&w->value, value, memory_order_release);
	syscall(SYS_futex, &w->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void sleep_until(struct floor_word *w, uint32_t value)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(&w->value, memory_order_acquire)) != value)
		syscall(SYS_futex, &w->value, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void answer_futex(struct floor_memory *m, unsigned n)
{
	for (uint32_t i = 1; i <= n; i++) {
		sleep_until(&m->there, i);
		wake(&m->back, i);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Orders                                                                                      */

enum what { START_CHAIN, CLOSE_GATE, LINK, OPEN_GATE, PLAY_FUTEX };

struct order {
	uint32_t what;
	uint32_t n;
	share_fence fence;
};

static share_fence obey(const struct order *o, struct chain *c, share_client *client,
			struct floor_memory *m)
{
	share_fence none = {0, 0};

	switch ((enum what)o->what) {
	case START_CHAIN:
		if (c->stream)
			chain_stop(c);
		chain_start(c, client);
		return none;
	case CLOSE_GATE:
		return chain_close(c);
	case LINK:
		return chain_link(c, o->fence);
	case OPEN_GATE:
		chain_run(c);
		return none;
	case PLAY_FUTEX:
		break;
	}
	atomic_store(&m->there.value, 0);
	atomic_store(&m->back.value, 0);
	return none;
}

static void serve(void *data)
{
	static struct chain chain;
	const struct fence_peer *p = data;
	share_client *client = other_connect(&p->other);
	struct order o;

	while (other_is_asked(&p->other, &o, sizeof(o))) {
		share_fence f = obey(&o, &chain, client, p->memory);

		other_tell(&p->other, &f, sizeof(f));
		if (o.what == PLAY_FUTEX)
			answer_futex(p->memory, o.n);
	}
	if (chain.stream)
		chain_stop(&chain);
	share_disconnect(client);
}

static share_fence ask(const struct fence_peer *p, enum what what, uint32_t n, share_fence fence)
{
	struct order o = {what, n, fence};
	share_fence answer;

	other_tell(&p->other, &o, sizeof(o));
	other_hear(&p->other, &answer, sizeof(answer));
	return answer;
}

void fence_peer_fork(struct fence_peer *p)
{
	p->memory = mmap(NULL, sizeof(*p->memory), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must_system(p->memory != MAP_FAILED, "mmap");
	other_start(&p->other, serve, p);
}

void fence_peer_end(struct fence_peer *p)
{
	other_end(&p->other);
	munmap(p->memory, sizeof(*p->memory));
}

void fence_peer_start_chain(const struct fence_peer *p)
{
	ask(p, START_CHAIN, 0, (share_fence){0, 0});
}

share_fence fence_peer_close_gate(const struct fence_peer *p)
{
	return ask(p, CLOSE_GATE, 0, (share_fence){0, 0});
}

share_fence fence_peer_link(const struct fence_peer *p, share_fence fence)
{
	return ask(p, LINK, 0, fence);
}

void fence_peer_open_gate(const struct fence_peer *p)
{
	ask(p, OPEN_GATE, 0, (share_fence){0, 0});
}

void fence_peer_play_futex(const struct fence_peer *p, unsigned n)
{
	struct floor_memory *m = p->memory;

	ask(p, PLAY_FUTEX, n, (share_fence){0, 0});
	for (uint32_t i = 1; i <= n; i++) {
		wake(&m->there, i);
		sleep_until(&m->back, i);
	}
}
