/* SPDX-License-Identifier: MIT */

/*
 * Who says that it brings memory of a device may bring anything. The broker does not know the
 * driver: it takes what can be such memory and does it no harm. Whoever maps it asks the driver,
 * and is told that it is none; nothing else of theirs, or of anybody's, is hurt.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory/adopt.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/harness/raw.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/kinds.h"

#define UNIT     (UINT64_C(2) << 20)
#define SOMEBODY 4711

static const char config[] =
    "{\"create_pools\": [\"*\"], \"pools\": ["
    "{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\"},"
    "{\"name\": \"adopted\", \"kind\": \"adopted\", \"limit\": \"64MiB\", \"access\": "
    "[{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static share_client *witness;

static void start(void)
{
	kinds_start_on("", config);
	skip_unless_possible("vmm");
	witness = connect_as("witness");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_adopt, .init = start, .fini = stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */

/* What ADOPT says. */
struct claim {
	struct memory_recipe recipe;
	uint64_t size, offset;
	uint32_t kind;
	int fds[2];
	size_t n;
};

/* All of an allocation of this process's, and true. */
static struct claim true_claim(void)
{
	struct memory_found found;
	struct failure failure;
	struct claim c = {.size = UNIT, .kind = MEMORY_VMM, .n = 1};

	check_ok(memory_adopted_find(gpu_memory_make(0, UNIT, UNIT, true), UNIT, &found, &failure));
	c.recipe = found.segment.recipe;
	c.fds[0] = found.segment.fd;
	return c;
}

static void bring(struct raw *r, uint64_t pool, const struct claim *c)
{
	struct wire_message m = {.type = WIRE_ADOPT, .serial = ++r->serial};
	unsigned char packet[512];
	size_t length;

	m.adopt = (struct wire_adopt){.pool = pool,
				      .size = c->size,
				      .offset = c->offset,
				      .kind = c->kind,
				      .recipe = {&c->recipe, sizeof(c->recipe)}};
	length = wire_encode(&m, packet, sizeof(packet));
	fd_list_close(&r->fds);
	check_eq(raw_send_bytes(r, packet, length, c->fds, c->n), 0);
}

static int answer(struct raw *r)
{
	check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	return r->m.type == WIRE_GRANT ? 0 : r->m.error.error;
}

static uint64_t begin(struct raw *r)
{
	const struct claim nothing = {.size = 1};
	uint64_t pool;

	raw_open(r, "liar");
	pool = raw_pool(r, "adopted");
	bring(r, pool, &nothing);
	check_error(answer(r), SHARE_EAGAIN);
	return pool;
}

static void expect_refused(struct raw *r, uint64_t pool, struct claim c, int error)
{
	bring(r, pool, &c);
	check_error(answer(r), error);
}

static void says_what_it_likes(struct child *self, void *data)
{
	const struct claim good = true_claim();
	static struct raw r;
	uint64_t pool = begin(&r);
	struct claim c;

#define REFUSED(error, ...)                         \
	do {                                        \
		c = good;                           \
		__VA_ARGS__;                        \
		expect_refused(&r, pool, c, error); \
	} while (0)
	(void)data;
	REFUSED(SHARE_EINVAL, c.size = 0);
	REFUSED(SHARE_EINVAL, c.size = UNIT + 1);
	REFUSED(SHARE_EINVAL, c.size = UINT64_MAX);
	REFUSED(SHARE_EINVAL, c.offset = 512);
	REFUSED(SHARE_EINVAL, c.offset = UINT64_MAX - 511);
	REFUSED(SHARE_EINVAL, (c.offset = 100, c.size = 100));
	REFUSED(SHARE_EINVAL, c.kind = MEMORY_HOST);
	REFUSED(SHARE_EINVAL, c.kind = MEMORY_MEMPOOL);
	REFUSED(SHARE_EINVAL, c.kind = MEMORY_ADOPTED);
	REFUSED(SHARE_EINVAL, c.kind = UINT32_MAX);
	REFUSED(SHARE_EINVAL, c.recipe.size = 0);
	REFUSED(SHARE_EINVAL, c.recipe.address = UNIT);
	REFUSED(SHARE_EINVAL, (c.n = 2, c.fds[1] = c.fds[0]));
	REFUSED(SHARE_EPROTO, c.recipe.size = UNIT + 4096);
	REFUSED(SHARE_EPROTO, c.recipe.size = UINT64_MAX);
	REFUSED(SHARE_EPROTO, c.recipe.flags = MEMORY_MAY_SHRINK);
	REFUSED(SHARE_EPROTO, memset(c.recipe.device, 0, sizeof(c.recipe.device)));
	REFUSED(SHARE_ENOMEM, c.recipe.size = UINT64_C(1) << 60);
	REFUSED(SHARE_EINVAL, (c.kind = 0));             /* as a file it is one descriptor short */
	REFUSED(SHARE_EINVAL, (c.kind = MEMORY_LEGACY)); /* which has a handle */
	child_point(self, "refused");
	raw_hang_up(&r);
}

Test(hostile_adopt, what_a_client_says_of_a_devices_memory_is_not_believed)
{
	struct child *child = child_start(says_what_it_likes, NULL);
	int before = descriptors_count(broker_pid());

	child_wait(child, "refused");
	settle(witness, s.buffers == 0 && s.segments == 0);
	child_go(child);
	child_finish(child);
	settle(witness, s.clients == 1);
	until(descriptors_count(broker_pid()) <= before);
}

/* ------------------------------------------------------------------------------------------- */

static int some_descriptor(int which)
{
	int pair[2];

	switch (which) {
	case 0:
		check_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		return pair[0];
	case 1:
		check_eq(pipe(pair), 0);
		return pair[0];
	case 2:
		return open("/dev/null", O_RDWR);
	case 3:
		return open("/dev/null", O_PATH);
	case 4:
		return open("/", O_RDONLY | O_DIRECTORY);
	case 5:
		return open("/proc/self/maps", O_RDONLY);
	default:
		return -1;
	}
}

static void brings_what_is_no_memory(struct child *self, void *data)
{
	struct claim c = true_claim();
	static struct raw r;
	uint64_t pool;

	(void)self, (void)data;
	for (int i = 0; (c.fds[0] = some_descriptor(i)) >= 0; i++) {
		pool = begin(&r);
		bring(&r, pool, &c);
		check_error(raw_farewell(&r), SHARE_EPROTO);
		raw_hang_up(&r);
	}
}

Test(hostile_adopt, who_brings_what_can_be_no_memory_is_hung_up_on)
{
	child_finish(child_start(brings_what_is_no_memory, NULL));
	settle(witness, s.clients == 1 && s.buffers == 0 && s.segments == 0);
}

/* ------------------------------------------------------------------------------------------- */

static void publish_as(struct raw *r, const char *name, uint32_t flags)
{
	struct wire_message m = {.type = WIRE_PUBLISH};

	m.publish.buffer = r->m.grant.buffer;
	m.publish.flags = flags;
	m.publish.name = raw_text(name);
	raw_ask(r, &m, WIRE_PUBLISHED);
}

static void publish(struct raw *r, const char *name)
{
	publish_as(r, name, 0);
}

/* The broker cannot know better. */
static void lies(struct child *self, void *data)
{
	struct claim c = true_claim(), good = c;
	static struct raw r;
	uint64_t pool = begin(&r);

	(void)data;
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "true");

	c.recipe.size = 2 * UNIT;
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "larger");

	c = good;
	c.recipe.device[0] ^= 1;
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "elsewhere");

	c = good;
	c.fds[0] = memfd_create("data", MFD_CLOEXEC);
	check_eq(ftruncate(c.fds[0], (off_t)UNIT), 0);
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "file");
	child_point(self, "published");
}

static void expect_lie(const char *name, int error, int or_error)
{
	const int modes[] = {SHARE_RDWR, SHARE_RDONLY};
	share_buffer *b = NULL;
	int r;

	for (int i = 0; i < 2; i++) {
		r = share_lookup(witness, name, modes[i], 0, NULL, &b);
		check(r == error || r == or_error);
		check(b == NULL);
	}
}

static void expect_true(void)
{
	share_buffer *b;

	check_ok(share_lookup(witness, "true", SHARE_RDWR, 0, NULL, &b));
	buffer_fill(b, 0x5a);
	buffer_expect(b, 0x5a);
	check_ok(share_release(b, NULL));
}

Test(hostile_adopt, who_maps_what_it_is_not_is_told_and_nothing_else)
{
	struct child *liar = child_start(lies, NULL);

	child_wait(liar, "published");
	expect_true();
	expect_lie("elsewhere", SHARE_ENODEV, SHARE_ENODEV);
	/* it is the driver that says so, in whichever words */
	expect_lie("larger", SHARE_EDEVICE, SHARE_ENOTSUP);
	expect_lie("file", SHARE_EDEVICE, SHARE_ESYSTEM);
	expect_true();
	child_kill(liar);
	settle(witness, s.clients == 1 && s.buffers == 0);
	check_ok(share_ping(witness));
}

/* ------------------------------------------------------------------------------------------- */

/* As much as true_claim(), and what else it says is no better. */
static struct claim claim_of_a_handle(void)
{
	struct memory_found found;
	struct failure failure;
	struct claim c = {.size = UNIT, .kind = MEMORY_LEGACY};

	check_ok(memory_adopted_find(gpu_memory_make_plain(0, UNIT), UNIT, &found, &failure));
	check_eq(found.kind->id, MEMORY_LEGACY);
	check_eq(found.segment.fd, -1);
	c.recipe = found.segment.recipe;
	return c;
}

/* It needs no descriptor, and those that come with it are nobody's. */
static void lies_of_a_handle(struct child *self, void *data)
{
	const struct claim good = claim_of_a_handle();
	static struct raw r;
	struct claim c;
	uint64_t pool;

	(void)data;
	raw_open(&r, "liar");
	pool = raw_pool(&r, "adopted");
	bring(&r, pool, &good);
	check_ok(answer(&r));
	publish(&r, "true");

	REFUSED(SHARE_EINVAL, c.size = 0);
	REFUSED(SHARE_EINVAL, c.size = UNIT + 1);
	REFUSED(SHARE_EINVAL, c.offset = UINT64_MAX - 511);
	REFUSED(SHARE_EINVAL, (c.offset = 100, c.size = 100));
	REFUSED(SHARE_EINVAL, c.recipe.address = UNIT);
	REFUSED(SHARE_EINVAL, memset(c.recipe.pointer, 0, sizeof(c.recipe.pointer)));
	REFUSED(SHARE_EPROTO, memset(c.recipe.device, 0, sizeof(c.recipe.device)));
	REFUSED(SHARE_EPROTO, c.recipe.size = UINT64_MAX);
	REFUSED(SHARE_ENOMEM, c.recipe.size = UINT64_C(1) << 60);

	c = good;
	c.recipe.size = 2 * UNIT;
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "larger");

	c = good;
	memset(c.recipe.pointer, 0x5a, sizeof(c.recipe.pointer));
	bring(&r, pool, &c);
	check_ok(answer(&r));
	publish(&r, "elsewhere");
	child_point(self, "published");
}

Test(hostile_adopt, who_opens_what_is_no_handle_is_told_and_nothing_else)
{
	struct child *liar = child_start(lies_of_a_handle, NULL);

	child_wait(liar, "published");
	expect_true();
	expect_lie("larger", SHARE_EPROTO, SHARE_EPROTO);
	/* it is the driver that says so, in whichever words */
	expect_lie("elsewhere", SHARE_EDEVICE, SHARE_ENOTSUP);
	expect_true();
	child_kill(liar);
	settle(witness, s.clients == 1 && s.buffers == 0);
	check_ok(share_ping(witness));
}

/* By two connections, and never says goodbye: as one that executes another program. */
static void hangs_up_twice(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	struct claim c = claim_of_a_handle();
	static struct raw r, second;

	(void)data;
	raw_open(&r, "owner");
	bring(&r, raw_pool(&r, "adopted"), &c);
	check_ok(answer(&r));
	publish_as(&r, "true", SHARE_PUBLISH_PERSISTENT);
	raw_open(&second, "second");
	m.lookup.name = raw_text("true");
	m.lookup.mode = SHARE_RDWR;
	raw_ask(&second, &m, WIRE_GRANT);
	raw_hang_up(&r);
	child_point(self, "hung up");
	raw_hang_up(&second);
	child_point(self, "hung up again");
}

Test(hostile_adopt, nobody_finds_what_its_owner_has_hung_up_on)
{
	struct child *owner = child_start(hangs_up_twice, NULL);

	child_wait(owner, "hung up");
	settle(witness, s.clients == 3 && s.quarantined == 1);
	expect_true();
	child_go(owner);
	child_wait(owner, "hung up again");
	settle(witness, s.clients == 3 && s.quarantined == 2);
	expect_lie("true", SHARE_EOWNERDEAD, SHARE_EOWNERDEAD);
	broker_kill_serving();
	check_ok(share_ping(witness));
	expect_lie("true", SHARE_EOWNERDEAD, SHARE_EOWNERDEAD);
	check_ok(share_unpublish(witness, "true"));
	child_kill(owner);
	settle(witness, s.clients == 1 && s.buffers == 0 && s.segments == 0);
}

/* ------------------------------------------------------------------------------------------- */

static void has_a_little(struct child *self, void *data)
{
	struct claim c = true_claim();
	static struct raw r;
	uint64_t pool;

	(void)data;
	child_become(SOMEBODY, 0);
	pool = begin(&r);
	for (int i = 0; i < 2; i++) {
		bring(&r, pool, &c);
		check_ok(answer(&r));
		child_point(self, i == 0 ? "has some" : "has more");
	}
	raw_hang_up(&r);
}

static void keeps_much_for_little(struct child *self, void *data)
{
	struct claim c = true_claim();
	static struct raw r;
	uint64_t pool = begin(&r);

	(void)data;
	c.size = 512;
	c.recipe.size = 16 * UNIT;
	bring(&r, pool, &c);
	check_ok(answer(&r));
	c.recipe.size = 12 * UNIT;
	expect_refused(&r, pool, c, SHARE_EQUOTA);
	child_point(self, "has its share");
	raw_hang_up(&r);
}

/* What an allocation takes of the pool is what counts, and not what of it is a buffer. */
Test(hostile_adopt, who_has_little_of_large_allocations_leaves_an_eighth_to_others)
{
	struct child *little, *much;

	skip_unless_root();
	little = child_start(has_a_little, NULL);
	child_wait(little, "has some");
	much = child_start(keeps_much_for_little, NULL);
	child_wait(much, "has its share");
	child_go(little);
	child_wait(little, "has more");
	child_go(much);
	child_finish(much);
	child_go(little);
	child_finish(little);
	settle(witness, s.clients == 1 && s.buffers == 0 && s.segments == 0);
}
