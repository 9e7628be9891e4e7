/* SPDX-License-Identifier: MIT */

/*
 * The life of a buffer in two processes: its memory is made, or was there and is adopted; it is
 * published and exported, looked up and imported, and given up by both, either of them first. At
 * each step of it one dies, in the middle of the request that the step is: its owner, its consumer,
 * the agent, or the broker. The others go on, with the bytes that were written, and are told what
 * there is no more; and nothing is left, of no kind of memory.
 *
 * The broker is stopped at the point until the victim is dead, so that there is nothing to wait for
 * that may come sooner or later.
 */

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/gate.h"
#include "tests/harness/plan.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"
#include "tests/themes/survival/fatal.h"
#include "wire/wire.h"

#define SIZE  10000
#define VALUE 0x5a

TestSuite(hand_over_step, .timeout = 600);

static struct fatal_plan *plan;
static share_client *client; /* looks on */
static share_pool *pool;
static const char *kind;
static bool is_adopted, goes_with_owner;

/* ------------------------------------------------------------------------------------------- */
/* What the two do. Each returns what the library says.                                          */

struct life {
	share_client *client;
	share_pool *pool;
	share_token token;             /* the owner has made it, or the consumer was given it */
	share_buffer *own;             /* the owner's */
	share_buffer *found, *brought; /* the consumer's: by its name, and by the token */
	char *memory;                  /* that was there before */
	int told;                      /* how often: nobody has it any more */
	bool has_lost;                 /* that the memory is gone */
};

static char *make_memory(void)
{
	int fd = memfd_create("data", MFD_CLOEXEC);
	char *memory;

	if (!is_host(kind))
		return gpu_memory_make_as(kind, UNIT);
	check(fd >= 0 && ftruncate(fd, UNIT) == 0);
	memory = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(memory != MAP_FAILED);
	return memory; /* by the descriptor it is found */
}

static void free_memory(char *memory)
{
	if (is_host(kind))
		munmap(memory, UNIT);
	else
		gpu_memory_free_as(kind, memory, UNIT);
}

static void count(void *data)
{
	++*(int *)data;
}

static int make(struct life *l)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	int r;

	if (is_adopted) {
		l->memory = make_memory();
		options.memory = l->memory + 512;
		options.done = count;
		options.data = &l->told;
	}
	r = share_alloc_with(l->pool, SIZE, &options, NULL, &l->own);
	if (r == 0)
		buffer_fill(l->own, VALUE);
	return r;
}

static int publish(struct life *l)
{
	return share_publish(l->own, "name", NULL);
}

static int export(struct life *l)
{
	return share_export(l->own, NULL, &l->token);
}

/* It has what was written; or this says that it is gone, where it goes with its owner, who may die
 * at any time: so it is read once. */
static void expect_value(struct life *l, share_buffer *b)
{
	char bytes[SIZE] = "";
	int r = share_copy_to_host(b, 0, bytes, sizeof(bytes), NULL);

	if (goes_with_owner && r == SHARE_EOWNERDEAD) {
		l->has_lost = true;
		return;
	}
	check_ok(r);
	expect_filled(bytes, VALUE, sizeof(bytes));
}

/* Whether the giver's work was done may be unknown if it is dead, but it was. */
static void expect_good(struct life *l, share_buffer *b)
{
	int r;

	expect_value(l, b);
	until((r = share_buffer_status(b)) != SHARE_EAGAIN);
	check(r == 0 || (r == SHARE_EOWNERDEAD && !is_host(kind)));
}

static int look_up(struct life *l)
{
	int r = share_lookup(l->client, "name", SHARE_RDONLY, 0, NULL, &l->found);

	if (r == 0)
		expect_good(l, l->found);
	return r;
}

static int import(struct life *l)
{
	int r = share_import(l->client, &l->token, SHARE_RDONLY, NULL, &l->brought);

	if (r == 0)
		expect_good(l, l->brought);
	return r;
}

static int unpublish(struct life *l)
{
	return share_unpublish(l->client, "name");
}

/* It has ended with its use, if the consumer lived so long. */
static int end_token(struct life *l)
{
	int r = share_revoke(l->client, &l->token);

	return r == SHARE_ENOENT ? 0 : r;
}

static int reclaim(struct life *l)
{
	int r = share_reclaim(l->own, HARNESS_LIMIT_MS, NULL);

	if (r == 0)
		buffer_expect(l->own, VALUE);
	return r;
}

/* Nobody is told: what has come of it is so when the broker answers the next question. */
static int let_go(struct life *l, share_buffer **b)
{
	int r;

	if (!*b)
		return 0;
	expect_value(l, *b);
	r = share_release(*b, NULL);
	*b = NULL;
	return r == 0 ? share_ping(l->client) : r;
}

static int let_own_go(struct life *l)
{
	return let_go(l, &l->own);
}

static int let_found_go(struct life *l)
{
	return let_go(l, &l->found);
}

static int let_brought_go(struct life *l)
{
	return let_go(l, &l->brought);
}

/* ------------------------------------------------------------------------------------------- */

enum who { OWNER, CONSUMER, AGENT, BROKER };

static const char *const whos[] = {"the owner", "the consumer", "the agent", "the broker"};

struct step {
	const char *name;
	enum who who;
	enum wire_type request;
	int (*take)(struct life *l);
	bool needs_owner; /* who is dead has neither names nor tokens any more */
};

static const struct step given_back[] = {
    {"made", OWNER, WIRE_ALLOC, make, false},
    {"published", OWNER, WIRE_PUBLISH, publish, false},
    {"exported", OWNER, WIRE_EXPORT, export, false},
    {"looked up", CONSUMER, WIRE_LOOKUP, look_up, true},
    {"imported", CONSUMER, WIRE_IMPORT, import, true},
    {"unpublished", OWNER, WIRE_UNPUBLISH, unpublish, false},
    {"revoked", OWNER, WIRE_REVOKE, end_token, false},
    {"let go by one of two references", CONSUMER, WIRE_RELEASE, let_found_go, false},
    {"let go by the consumer", CONSUMER, WIRE_RELEASE, let_brought_go, false},
    {"reclaimed", OWNER, WIRE_RECLAIM, reclaim, false},
    {"let go by the owner", OWNER, WIRE_RELEASE, let_own_go, false},
};

/* As the other one until its owner does not want it any more. */
static const struct step left_behind[] = {
    {"made", OWNER, 0, make, false},
    {"published", OWNER, 0, publish, false},
    {"looked up", CONSUMER, 0, look_up, true},
    {"unpublished", OWNER, WIRE_UNPUBLISH, unpublish, false},
    {"let go by the owner first", OWNER, WIRE_RELEASE, let_own_go, false},
    {"let go by the consumer last", CONSUMER, WIRE_RELEASE, let_found_go, false},
};

static const struct story {
	const struct step *steps;
	unsigned n;
} stories[] = {
    {given_back, sizeof(given_back) / sizeof(given_back[0])},
    {left_behind, sizeof(left_behind) / sizeof(left_behind[0])},
};

/* ------------------------------------------------------------------------------------------- */
/* In the children                                                                              */

struct order {
	const struct step *step; /* NULL: the end */
	share_token token;
};

struct answer {
	int result;
	char why[256];
	share_token token;
	bool has_lost;
};

static void end_life(struct life *l)
{
	until(share_ping(l->client) == 0 && l->told == (l->memory != NULL));
	if (l->memory)
		free_memory(l->memory);
	share_pool_close(l->pool);
	share_disconnect(l->client);
}

static void lives(struct child *self, void *data)
{
	struct life l = {.client = child_connect(data)};
	struct answer a = {.result = 0};
	struct order o;

	check_ok(share_pool_open(l.client, "test", &l.pool));
	for (;;) {
		child_exchange(self, "idle", &a, sizeof(a), &o, sizeof(o));
		if (!o.step)
			break;
		l.token = o.token;
		a.result = o.step->take(&l);
		a.token = l.token;
		a.has_lost = l.has_lost;
		snprintf(a.why, sizeof(a.why), "%s", share_error_detail());
	}
	end_life(&l);
}

/* ------------------------------------------------------------------------------------------- */

/* One life. */
static struct {
	const struct step *at; /* where somebody dies, and */
	enum fatal_point point;
	unsigned spared; /* the first one of two requests is let through */
	enum who victim;
	unsigned story;
	struct child *children[2]; /* OWNER and CONSUMER; NULL: it is dead */
	share_token token;
} life;

static struct answer wait_idle(enum who who)
{
	struct answer a;

	child_wait_with(life.children[who], "idle", &a, sizeof(a));
	return a;
}

static enum wire_type request_of(const struct step *step)
{
	return is_adopted && step->request == WIRE_ALLOC ? WIRE_ADOPT : step->request;
}

static void arm(void)
{
	plan->victim = 0;
	if (life.victim == AGENT)
		plan->victim = agent_there(client);
	else if (life.victim != BROKER)
		plan->victim = life.children[life.victim]->pid;
	plan->spared = life.spared;
	plan->point = life.point;
	plan->request = request_of(life.at);
}

static void expect_dead(void)
{
	until(plan->point == FATAL_NOWHERE);
	plan->request = 0;
}

static void bury(enum who who)
{
	child_reap(life.children[who]);
	life.children[who] = NULL;
	settle(client, s.clients == 2);
}

static bool dies_now(const struct step *step)
{
	return step == life.at && life.victim == OWNER;
}

/* That the owner of memory of a device has died is noticed before or after it is handed over. */
static bool is_right(const struct step *step, int result)
{
	if (step->needs_owner && !life.children[OWNER])
		return result == SHARE_ENOENT;
	return result == 0 || (result == SHARE_EOWNERDEAD && step->needs_owner && dies_now(step) &&
			       !is_host(kind));
}

static void expect_answer(const struct step *step)
{
	struct answer a = wait_idle(step->who);

	if (!is_right(step, a.result) || (a.has_lost && life.children[OWNER] && !dies_now(step)))
		check_failed(__FILE__, __LINE__, "%s: %s", share_error_name(a.result), a.why);
	life.token = a.token;
}

static void take(const struct step *step)
{
	struct order o = {step, life.token};
	bool is_fatal = step == life.at;

	if (!life.children[step->who])
		return;
	if (is_fatal)
		arm();
	child_go_with(life.children[step->who], &o, sizeof(o));
	if (is_fatal)
		expect_dead();
	if (!is_fatal || life.victim != step->who)
		expect_answer(step);
	if (is_fatal && life.victim <= CONSUMER)
		bury(life.victim);
}

static void end_child(enum who who)
{
	const struct order end = {.step = NULL};

	if (!life.children[who])
		return;
	child_go_with(life.children[who], &end, sizeof(end));
	child_finish(life.children[who]);
	life.children[who] = NULL;
}

/* That the broker has had since somebody used it first. */
static int descriptors = INT_MAX;

static void expect_nothing_left(void)
{
	static const char *const resources[] = {"bytes", "leases", "segments", "unsent", "fences"};

	settle(client, s.clients == 1 && s.buffers == 0 && s.leases == 0 && s.names == 0 &&
			   s.tokens == 0 && s.segments == 0 && s.segment_bytes == 0);
	for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++)
		until(used_of(client, resources[i]) == 0);
	until(descriptors_count(broker_pid()) <= descriptors);
}

static void live(void)
{
	const struct story *story = &stories[life.story];

	life.children[OWNER] = child_start(lives, (void *)(uintptr_t) "owner");
	life.children[CONSUMER] = child_start(lives, (void *)(uintptr_t) "consumer");
	wait_idle(OWNER);
	wait_idle(CONSUMER);
	for (unsigned i = 0; i < story->n; i++)
		take(&story->steps[i]);
	end_child(CONSUMER);
	end_child(OWNER);
	expect_nothing_left();
}

static void die_at_each_point(void)
{
	/* the first one who adopts something asks twice, if that has descriptors */
	unsigned times = request_of(life.at) == WIRE_ADOPT && !goes_with_owner ? 2 : 1;
	/* who gives something back is not answered */
	enum fatal_point last = life.at->request == WIRE_RELEASE ? FATAL_COMMITTED : FATAL_SENT;

	for (life.spared = 0; life.spared < times; life.spared++)
		for (life.point = FATAL_RECEIVED; life.point <= last; life.point++)
			live();
}

/* ------------------------------------------------------------------------------------------- */

struct row {
	struct kind kind;
	enum who victim;
};

/* An agent has made it, and it lives on without. */
static bool outlives_agent(const char *name)
{
	return strcmp(name, "vmm") == 0 || strcmp(name, "mempool") == 0 ||
	       strcmp(name, "pinned") == 0;
}

/* With AddressSanitizer, where each process takes ten times as long to start, each kind has every
 * other victim, and each victim every other kind. */
static bool is_looked_at(size_t kind_index, enum who victim)
{
#if defined(__SANITIZE_ADDRESS__)
	return (kind_index + victim) % 2 == 0;
#else
	(void)kind_index;
	(void)victim;
	return true;
#endif
}

ParameterizedTestParameters(hand_over_step, the_others_go_on_and_nothing_is_left)
{
	static struct row rows[64];
	size_t n_kinds, n = 0;
	struct kind *kinds = kinds_with_adopted(&n_kinds);

	for (size_t i = 0; i < n_kinds; i++)
		for (enum who victim = OWNER; victim <= BROKER; victim++)
			if (is_looked_at(i, victim) &&
			    (victim != AGENT || outlives_agent(kinds[i].name)))
				rows[n++] = (struct row){kinds[i], victim};
	return cr_make_param_array(struct row, rows, n);
}

static void start(const struct row *row)
{
	share_pool_options options = OPTIONS;

	kind = row->kind.name;
	is_adopted = strncmp(kind, "adopted", 7) == 0;
	goes_with_owner = strcmp(kind, "adopted-legacy") == 0;
	plan = plan_new(FATAL_PLAN_VARIABLE, sizeof(*plan));
	broker_use_program(DYING_BROKER);
	kinds_start();
	skip_unless_possible(kind);
	client = connect_as("witness");
	options.release_threshold = SHARE_KEEP_NONE;
	pool = conformance_pool(client, is_adopted ? "adopted" : kind, options);
}

static void stop(void)
{
	if (check_has_failed() && life.at)
		fprintf(stderr, "%s memory is %s, and %s dies at point %d of request %u of that\n",
			kind, life.at->name, whos[life.victim], (int)life.point, life.spared + 1);
	if (!check_has_failed()) {
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

ParameterizedTest(struct row *row, hand_over_step, the_others_go_on_and_nothing_is_left,
		  .fini = stop)
{
	start(row);
	live();
	descriptors = descriptors_count(broker_pid());
	life.victim = row->victim;
	for (life.story = 0; life.story < sizeof(stories) / sizeof(stories[0]); life.story++) {
		const struct story *story = &stories[life.story];

		for (life.at = story->steps; life.at < story->steps + story->n; life.at++)
			if (life.at->request)
				die_at_each_point();
	}
	life.at = NULL;
}
