/* SPDX-License-Identifier: MIT */

/*
 * GPU memory that an agent made, reached from this process. Nothing here asks for the impossible,
 * so the same program can be run on a real device.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "tests/agent/imports.h"

TestSuite(memory_import, .init = imports_start, .fini = imports_end, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

static void expect_shared(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping w, r;

	agent_make_segment(&agent, kind, 4 * MIB, &s);
	w = import(&s, kind, true);
	r = import(&s, kind, false);
	cr_assert(w.writable && !r.writable && w.address != r.address);
	cr_assert(w.ordinal == 0 && r.ordinal == 0);
	write_text(&w, 4 * MIB - 6, "hello");
	assert_text(&r, 4 * MIB - 6, "hello");
	memory_unmap(&w);
	assert_text(&r, 4 * MIB - 6, "hello");
	memory_unmap(&r);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, vmm_what_one_mapping_writes_another_reads)
{
	expect_shared(MEMORY_VMM);
}

static void expect_lifted(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;
	void *before;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	m = import(&s, kind, false);
	before = m.address;
	cr_assert_eq(memory_copy_from_host(&m, 0, "x", 1, NULL, &failure), SHARE_EACCES);
	cr_assert(strstr(failure.text, "reading only"), "%s", failure.text);
	cr_assert_eq(memory_make_writable(&m, s.fd, &failure), 0, "%s", failure.text);
	cr_assert(m.writable && m.address == before);
	write_text(&m, 0, "now");
	assert_text(&m, 0, "now");
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, vmm_read_only_is_kept_and_can_be_lifted_in_place)
{
	expect_lifted(MEMORY_VMM);
}

static void expect_placed(enum memory_kind_id kind)
{
	struct agent_segment s, other;
	struct memory_mapping m, second = {.ordinal = 77};
	uint64_t address = UINT64_C(33) << 40; /* where nobody puts anything by itself */

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	agent_make_segment(&agent, kind, 2 * MIB, &other);
	s.recipe.address = other.recipe.address = address;
	m = import(&s, kind, true);
	cr_assert_eq((uint64_t)(uintptr_t)m.address, address);
	cr_assert_eq(memory_import(memory_kind_by_id(kind), &other.recipe, other.fd, true, &second,
				   &failure),
		     SHARE_EBUSY, "%s", failure.text);
	cr_assert(strstr(failure.text, "something else lies there"), "%s", failure.text);
	cr_assert_eq(second.ordinal, 77);
	write_text(&m, 0, "unharmed");
	assert_text(&m, 0, "unharmed");
	memory_unmap(&m);
	m = import(&other, kind, true);
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
	agent_drop_segment(&agent, &other);
}

Test(memory_import, vmm_lies_where_it_is_asked_for_or_says_that_it_cannot)
{
	expect_placed(MEMORY_VMM);
}

/* However often a segment is asked for, there is one mapping of it, until all have given it back.
 */
static void expect_one_mapping(enum memory_kind_id kind)
{
	struct agent_segment s, other;
	struct memory_mapping a, b, c;

	agent_make_segment(&agent, kind, 4 * MIB, &s);
	agent_make_segment(&agent, kind, 4 * MIB, &other);
	a = import(&s, kind, true);
	b = import(&s, kind, false);
	c = import(&other, kind, true);
	cr_assert(a.address == b.address && a.address != c.address);
	cr_assert(b.writable, "the driver cannot do otherwise");
	write_text(&a, 4 * MIB - 6, "hello");
	write_text(&c, 4 * MIB - 6, "other");
	memory_unmap(&a);
	assert_text(&b, 4 * MIB - 6, "hello");
	memory_unmap(&b);
	assert_text(&c, 4 * MIB - 6, "other");
	/* and again, from nothing */
	a = import(&s, kind, true);
	assert_text(&a, 4 * MIB - 6, "hello");
	memory_unmap(&a);
	memory_unmap(&c);
	agent_drop_segment(&agent, &s);
	agent_drop_segment(&agent, &other);
}

Test(memory_import, mempool_is_imported_once_however_often_it_is_asked_for)
{
	expect_one_mapping(MEMORY_MEMPOOL);
}

Test(memory_import, legacy_is_one_mapping_however_often_it_is_asked_for)
{
	expect_one_mapping(MEMORY_LEGACY);
}

/* By whatever descriptor: who cannot tell whether the maker lives, is not told that it does. */
Test(memory_import, legacy_memory_needs_a_process_that_lives)
{
	struct agent_segment s;
	struct memory_mapping m = {.ordinal = 77};
	FILE *file = tmpfile();

	cr_assert(file);
	agent_make_segment(&agent, MEMORY_LEGACY, 2 * MIB, &s);
	cr_assert_eq(memory_import(memory_kind_by_id(MEMORY_LEGACY), &s.recipe, fileno(file), true,
				   &m, &failure),
		     SHARE_EOWNERDEAD, "%s", failure.text);
	cr_assert_eq(m.ordinal, 77);
	fclose(file);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, legacy_memory_that_its_recipe_calls_larger_than_it_is_is_not_mapped)
{
	struct agent_segment s;
	struct memory_mapping m = {.ordinal = 77};

	agent_make_segment(&agent, MEMORY_LEGACY, 2 * MIB, &s);
	s.recipe.size = 64 * MIB;
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_LEGACY), &s.recipe, s.fd, true, &m, &failure),
	    SHARE_EPROTO, "%s", failure.text);
	cr_assert_eq(m.ordinal, 77);
	s.recipe.size = 2 * MIB;
	m = import(&s, MEMORY_LEGACY, true);
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

static void *import_often(void *data)
{
	const struct agent_segment *s = data;
	struct failure ours;
	struct memory_mapping m;
	long wrong = 0;

	for (int i = 0; i < 100; i++) {
		char found[6] = "";

		if (memory_import(memory_kind_by_id(MEMORY_MEMPOOL), &s->recipe, s->fd, true, &m,
				  &ours) < 0) {
			wrong++;
			continue;
		}
		wrong += memory_copy_to_host(&m, 0, found, 6, NULL, &ours) < 0 ||
			 strcmp(found, "hello") != 0;
		memory_unmap(&m);
	}
	return (void *)wrong;
}

Test(memory_import, mempool_imports_and_frees_of_many_threads_do_not_meet)
{
	struct agent_segment s;
	struct memory_mapping m;
	pthread_t threads[4];
	void *wrong;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	m = import(&s, MEMORY_MEMPOOL, true);
	write_text(&m, 0, "hello");
	memory_unmap(&m);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, import_often, &s), 0);
	for (size_t i = 0; i < 4; i++) {
		cr_assert_eq(pthread_join(threads[i], &wrong), 0);
		cr_assert_null(wrong);
	}
	agent_drop_segment(&agent, &s);
}

static void come_and_go(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;

	agent_make_segment(&agent, kind, 32 * MIB, &s);
	m = import(&s, kind, true);
	write_text(&m, 0, "used");
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, memory_goes_back_to_the_driver)
{
	uint64_t before;

	/* contexts cost memory that stays for a while: this process's, and the agent's */
	use_device(0);
	come_and_go(MEMORY_VMM);
	come_and_go(MEMORY_MEMPOOL);
	before = free_memory();
	for (int i = 0; i < 5; i++) {
		come_and_go(MEMORY_VMM);
		come_and_go(MEMORY_MEMPOOL);
	}
	cr_assert_eq(free_memory(), before);
	leave_device(0);
}

static void use_memory_of_the_dead(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	kill(agent.pid, SIGKILL);
	cr_assert_eq(agent_wait(&agent), 1000 + SIGKILL);
	m = import(&s, kind, true);
	write_text(&m, 0, "outlived");
	assert_text(&m, 0, "outlived");
	memory_unmap(&m);
	close(s.fd);
	imports_start();
}

Test(memory_import, vmm_outlives_its_agent)
{
	use_memory_of_the_dead(MEMORY_VMM);
}

Test(memory_import, mempool_outlives_its_agent)
{
	use_memory_of_the_dead(MEMORY_MEMPOOL);
}

static void need_pinned_memory(void)
{
	if (!agent_can_make(&agent, MEMORY_PINNED))
		cr_skip_test("the device does not reach memory of a NUMA node of the host");
}

Test(memory_import, pinned_memory_is_mapped_and_outlives_its_agent_as_vmm_memory_does)
{
	need_pinned_memory();
	expect_shared(MEMORY_PINNED);
	expect_lifted(MEMORY_PINNED);
	expect_placed(MEMORY_PINNED);
	use_memory_of_the_dead(MEMORY_PINNED);
}

Test(memory_import, the_cpu_and_the_device_see_the_same_pinned_memory)
{
	struct agent_segment s;
	struct memory_mapping m, r;

	need_pinned_memory();
	agent_make_segment(&agent, MEMORY_PINNED, 2 * MIB, &s);
	m = import(&s, MEMORY_PINNED, true);
	r = import(&s, MEMORY_PINNED, false);
	memcpy(m.address, "stored", 7);
	assert_text(&m, 0, "stored");
	cr_assert_str_eq((char *)r.address, "stored");
	write_text(&m, MIB, "copied");
	cr_assert_str_eq((char *)r.address + MIB, "copied");
	memory_unmap(&m);
	memory_unmap(&r);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, what_is_imported_is_believed_no_further_than_it_goes)
{
	struct memory_mapping m = {.ordinal = 77};
	struct agent_segment s;
	int r;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	s.recipe.size = 4 * MIB;
	r = memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure);
	cr_assert(r < 0 && m.ordinal == 77);
	cr_assert(strstr(failure.text, "cuMemMap: CUDA_ERROR_"), "%s", failure.text);
	s.recipe.size = 4096 * MIB + 2 * MIB;
	r = memory_import(memory_kind_by_id(MEMORY_MEMPOOL), &s.recipe, s.fd, true, &m, &failure);
	cr_assert_eq(r, SHARE_EPROTO, "the driver would crash this process");
	s.recipe.size = 2 * MIB;
	s.recipe.address = 2 * MIB;
	r = memory_import(memory_kind_by_id(MEMORY_MEMPOOL), &s.recipe, s.fd, true, &m, &failure);
	cr_assert_eq(r, SHARE_EPROTO, "%s", failure.text);
	s.recipe.address = 0;
	memset(s.recipe.device, 0, 16);
	r = memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure);
	cr_assert_eq(r, SHARE_EPROTO, "%s", failure.text);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, two_recipes_for_one_identity_are_refused)
{
	struct agent_segment s, liar;
	struct memory_mapping m, n;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 4 * MIB, &liar);
	memcpy(liar.recipe.identity, s.recipe.identity, 16);
	m = import(&s, MEMORY_MEMPOOL, true);
	cr_assert_eq(memory_import(memory_kind_by_id(MEMORY_MEMPOOL), &liar.recipe, liar.fd, true,
				   &n, &failure),
		     SHARE_EPROTO);
	write_text(&m, 0, "unharmed");
	assert_text(&m, 0, "unharmed");
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
	agent_drop_segment(&agent, &liar);
}

Test(memory_import, copies_stay_inside)
{
	struct agent_segment s;
	struct memory_mapping m;
	char text[8] = "12345";

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	m = import(&s, MEMORY_VMM, true);
	cr_assert_eq(memory_copy_from_host(&m, 2 * MIB - 4, text, 5, NULL, &failure), SHARE_EINVAL);
	cr_assert_eq(memory_copy_to_host(&m, 2 * MIB + 1, text, 0, NULL, &failure), SHARE_EINVAL);
	cr_assert_eq(memory_copy_to_host(&m, 1, text, UINT64_MAX, NULL, &failure), SHARE_EINVAL);
	cr_assert_eq(memory_copy_to_host(&m, 2 * MIB, text, 0, NULL, &failure), 0);
	cr_assert_str_eq(text, "12345");
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

Test(memory_import, an_unknown_device_is_named_with_those_there_are)
{
	struct memory_mapping m;
	struct agent_segment s;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	memset(s.recipe.device, 0xee, 16);
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure),
	    SHARE_ENODEV);
	cr_assert(strstr(failure.text, "GPU-eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee"), "%s",
		  failure.text);
	cr_assert(strstr(failure.text, "CUDA_VISIBLE_DEVICES"), "%s", failure.text);
	agent_drop_segment(&agent, &s);
}
