/* SPDX-License-Identifier: MIT */

/*
 * A broker that is killed at any instruction. What the next one finds is what was written before
 * that instruction, so it is enough to look after each store: the journal's memory is protected
 * from writing, each store traps, is let through alone (by the processor's trap flag), and then
 * what is in the memory is copied and opened as the next broker would. It has to be what was there
 * at the last commit, or what is there at the one that runs; and once it is this, never that again.
 *
 * A trap happens at a store of the journal's own, never within malloc() or anything with a lock, so
 * the handlers may call what they like.
 */

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "broker/journal/inside.h"
#include "broker/log/log.h"
#include "tests/broker/journal/journal_model.h"

#if defined(__x86_64__)
#define CAN_STEP 1
static void step(ucontext_t *context, bool on)
{
	if (on)
		context->uc_mcontext.gregs[REG_EFL] |= 0x100;
	else
		context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)0x100;
}
#else
#define CAN_STEP 0
static void step(ucontext_t *context, bool on)
{
	(void)context, (void)on;
}
#endif

static struct {
	struct model before, after; /* the last commit, and the next one */
	struct journal *journal;
	unsigned char *memory;
	int fd, copy;
	size_t request; /* bytes of it in the inbox, until the commit */
	bool commits;   /* the next commit runs */
	bool has_counted;
	unsigned stores, counted_at_end;
} the;

/* As a broker would go on. */
static void use(struct journal *j)
{
	uint32_t record = 0, n = journal_count(j, RECORD_TOKEN);

	journal_put(j, RECORD_TOKEN, &record, "token", 5);
	journal_commit(j);
	journal_free(j);
	j = model_open(the.copy);
	cr_assert_not_null(j);
	cr_assert_eq(journal_count(j, RECORD_TOKEN), n + 1);
	journal_free(j);
}

static void look(void)
{
	struct journal *j;
	bool counts;

	model_copy(the.fd, the.copy);
	j = model_open(the.copy);
	cr_assert_not_null(j, "after store %u", the.stores);
	counts = the.commits && model_is(&the.after, j);
	if (!counts)
		cr_assert(model_is(&the.before, j), "after store %u", the.stores);
	cr_assert(counts || !the.has_counted, "after store %u", the.stores);
	if (the.request && journal_is_old(j))
		cr_assert_eq(journal_take_unhandled(j), counts ? 0 : the.request, "after store %u",
			     the.stores);
	the.has_counted = counts;
	if (the.stores % 16 == 0)
		use(j);
	else
		journal_free(j);
}

static void protect(bool on)
{
	cr_assert_eq(mprotect(the.memory, FIRST_CHUNK + 16 * GROW_BY,
			      on ? PROT_READ : PROT_READ | PROT_WRITE),
		     0);
}

static void before_store(int signal_number, siginfo_t *info, void *context)
{
	const unsigned char *at = info->si_addr;

	if (at < the.memory || at >= the.memory + FIRST_CHUNK + 16 * GROW_BY) {
		signal(signal_number, SIG_DFL);
		return;
	}
	protect(false);
	step(context, true);
}

static void after_store(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number, (void)info;
	the.stores++;
	step(context, false);
	look();
	protect(true);
}

static void start(void)
{
	struct sigaction on_store = {.sa_sigaction = before_store, .sa_flags = SA_SIGINFO};
	struct sigaction on_step = {.sa_sigaction = after_store, .sa_flags = SA_SIGINFO};

	log_set_level(LOG_LEVEL_ERROR);
	the.fd = model_journal(&the.journal);
	the.journal->spare_empty = 0;
	the.memory = the.journal->memory;
	the.copy = memfd_create("copy", MFD_CLOEXEC);
	cr_assert(the.copy >= 0 && sigaction(SIGSEGV, &on_store, NULL) == 0 &&
		  sigaction(SIGTRAP, &on_step, NULL) == 0);
}

static void stop(void)
{
	journal_free(the.journal);
	fd_close(the.fd);
	fd_close(the.copy);
}

TestSuite(journal_crash, .init = start, .fini = stop, .timeout = 300);

static void receive(void)
{
	struct inbox *inbox = journal_inbox(the.journal);
	size_t size = 1 + model_random(&the.after) % 16;

	journal_expect(the.journal, 3);
	memset(inbox->packet, 'x', size);
	the.request = size;
	*(volatile unsigned *)&inbox->header.msg_len = (unsigned)size;
}

/* A request, what it does, and its commit. */
static void handle(unsigned steps)
{
	the.request = 0;
	receive();
	for (unsigned i = 0; i < steps; i++)
		model_step(&the.after, the.journal);
	the.commits = true;
	journal_commit(the.journal);
	the.commits = false;
	cr_assert(the.has_counted);
	the.has_counted = false;
	the.before = the.after;
}

static void run(uint64_t seed, unsigned requests, const size_t *sizes)
{
	if (!CAN_STEP)
		cr_skip_test("this processor's steps are not known here");
	the.before = (struct model){.random = seed};
	memcpy(the.before.sizes, sizes, sizeof(the.before.sizes));
	the.after = the.before;
	protect(true);
	for (unsigned i = 0; i < requests; i++)
		handle(1 + i % 5);
	protect(false);
	cr_assert(model_is(&the.after, the.journal));
	cr_assert_gt(the.stores, requests * 10);
}

Test(journal_crash, the_next_broker_finds_a_commit_after_each_store)
{
	run(1, 15, (const size_t[]){250, 250, 700, 900});
}
