/* SPDX-License-Identifier: MIT */

/* The generations of slots outlive the broker, those of free slots as well. */

#include <errno.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "base/slab.h"
#include "base/system/descriptor.h"
#include "broker/journal/generations.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"

struct object {
	uint32_t generation, unused;
	uint64_t more[4];
};

static struct journal *j;
static struct generations g;
static int fd;

static void open_journal(void)
{
	char why[256];

	cr_assert_eq(journal_new(fd, &j, why, sizeof(why)), 0, "%s", why);
}

static void start(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	fd = memfd_create("journal", MFD_CLOEXEC);
	open_journal();
	g = (struct generations){.which = GENERATIONS_OF_BUFFERS};
}

static void stop(void)
{
	generations_deinit(&g);
	journal_free(j);
	fd_close(fd);
}

TestSuite(generations, .init = start, .fini = stop, .timeout = 60);

static void reopen(void)
{
	uint32_t which = g.which;

	journal_commit(j);
	generations_deinit(&g);
	journal_free(j);
	open_journal();
	g.which = which;
}

static uint32_t generation_of(uint32_t index)
{
	return index % 3 == 0 ? 0 : index + 7;
}

Test(generations, are_what_they_were_in_the_next_broker)
{
	const uint32_t n = 2 * GENERATIONS_PART + 100;
	struct generations other = {.which = GENERATIONS_OF_TOKENS};
	struct slab slab;

	for (uint32_t i = 0; i < n; i++)
		if (generation_of(i))
			generation_note(&g, j, i, generation_of(i));
	generation_note(&other, j, 5, 1000000);
	generations_deinit(&other);
	reopen();
	slab_init_prefix(&slab, sizeof(struct object), sizeof(uint32_t));
	cr_assert_eq(generations_make_slots(&g, j, &slab), 0);
	cr_assert_eq(slab_live(&slab), n);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(((struct object *)slab_at(&slab, i))->generation, generation_of(i));
	/* noted at once, without a commit */
	generation_note(&g, j, 4, 77);
	generations_deinit(&g);
	journal_free(j);
	open_journal();
	slab_deinit(&slab);
	cr_assert_eq(generations_make_slots(&g, j, &slab), 0);
	cr_assert_eq(((struct object *)slab_at(&slab, 4))->generation, 77);
	slab_deinit(&slab);
}

Test(generations, of_nothing_are_no_slots)
{
	struct slab slab;

	slab_init_prefix(&slab, sizeof(struct object), sizeof(uint32_t));
	reopen();
	cr_assert_eq(generations_make_slots(&g, j, &slab), 0);
	cr_assert_eq(slab_live(&slab), 0);
	slab_deinit(&slab);
}

static int damage(void *data, uint32_t record, const void *bytes, size_t size)
{
	(void)bytes, (void)size;
	((uint32_t *)journal_in_place(j, record))[1] = *(const uint32_t *)data;
	return 0;
}

/* No checksum guards them, so they are looked at. */
Test(generations, that_make_no_sense_are_refused)
{
	static uint32_t numbers[] = {UINT32_MAX, UINT32_MAX / GENERATIONS_PART + 1, 1};
	struct slab slab;

	generation_note(&g, j, 1, 5);
	generation_note(&g, j, GENERATIONS_PART, 5);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		reopen();
		journal_read(j, RECORD_GENERATIONS, 0, damage, &numbers[i]);
		slab_init_prefix(&slab, sizeof(struct object), sizeof(uint32_t));
		cr_assert_eq(generations_make_slots(&g, j, &slab), -EBADMSG);
		slab_deinit(&slab);
	}
}
