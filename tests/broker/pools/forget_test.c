/* SPDX-License-Identifier: MIT */

/* A client that ends is forgotten a little in each turn, however many segments it has. */

#include <criterion/criterion.h>

#include "base/slab.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/order/order.h"
#include "broker/pools/inside.h"
#include "broker/pools/open_pools.h"

#define GROUPS   32
#define SEGMENTS (GROUPS * POSSESSION_GROUP)
#define TURN     128

static struct segment segments[SEGMENTS];
static struct possession places[GROUPS][POSSESSION_GROUP], *groups[GROUPS];
static unsigned forgotten, pages;

void *__wrap_slab_at(const struct slab *slab, uint32_t index);
void *__wrap_slab_at(const struct slab *slab, uint32_t index)
{
	(void)slab;
	return &segments[index];
}

void __wrap_segment_forget_client(struct broker *b, struct segment *s, struct client *client);
void __wrap_segment_forget_client(struct broker *b, struct segment *s, struct client *client)
{
	struct possession *has = client_possession(client, (uint32_t)(s - segments));

	(void)b;
	cr_expect_neq(has->what, 0);
	has->what = 0;
	forgotten++;
}

void __wrap_client_forget_page(struct client *c);
void __wrap_client_forget_page(struct client *c)
{
	(void)c;
	pages++;
}

Test(forget, is_done_a_little_in_each_turn, .timeout = 30)
{
	struct client_memory memory = {.groups = groups, .n_groups = GROUPS};
	struct memory all = {.pools = {NULL}};
	struct broker b = {.memory = &all};
	struct client c = {.broker = &b, .memory = &memory};
	unsigned before;
	int budget = 0;
	bool done;

	for (unsigned i = 0; i < SEGMENTS; i++) {
		groups[i / POSSESSION_GROUP] = places[i / POSSESSION_GROUP];
		places[i / POSSESSION_GROUP][i % POSSESSION_GROUP].what = SEGMENT_READABLE;
	}
	cr_expect(!client_forget(&c, &budget));
	cr_expect_eq(forgotten, 0);
	do {
		before = forgotten;
		budget = TURN;
		done = client_forget(&c, &budget);
		cr_assert_leq(forgotten - before, TURN);
	} while (!done);
	cr_expect_eq(forgotten, SEGMENTS);
	cr_expect_eq(pages, 1);
}
