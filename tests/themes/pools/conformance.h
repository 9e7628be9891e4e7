/* SPDX-License-Identifier: MIT */
#pragma once

#include <criterion/criterion.h> /* first: the other one redefines what is in it */
#include <criterion/parameterized.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/kinds.h"

/*
 * One suite over every kind of pool: each of these tests runs once a kind. A kind that cannot run
 * here is skipped and says so.
 *
 *   ConformanceTest(sentence)
 *   {
 *           share_pool *p = conformance_pool(kind, &options);
 *           ...
 *
 * CONFORMANCE_KINDS, defined before this is included, names another list of kinds than that of all
 * that share_alloc() is for.
 *
 * Children are started before this process acquires its first buffer: what a forked child inherits
 * of a CUDA driver that is already at work is of no use to it.
 */
#ifndef CONFORMANCE_KINDS
#define CONFORMANCE_KINDS kinds_to_test
#endif
#define ConformanceTest(sentence)                                                             \
	static void conform_##sentence(const char *kind);                                     \
	ParameterizedTestParameters(conformance, sentence)                                    \
	{                                                                                     \
		size_t n;                                                                     \
		struct kind *kinds = CONFORMANCE_KINDS(&n);                                   \
                                                                                              \
		return cr_make_param_array(struct kind, kinds, n);                            \
	}                                                                                     \
	ParameterizedTest(struct kind *parameter, conformance, sentence, .init = kinds_start, \
			  .fini = fixture_stop)                                               \
	{                                                                                     \
		skip_unless_possible(parameter->name);                                        \
		conform_##sentence(parameter->name);                                          \
	}                                                                                     \
	static void conform_##sentence(const char *kind)

/* The pool "test" of this kind. */
static inline share_pool *conformance_pool(share_client *c, const char *kind,
					   share_pool_options options)
{
	share_pool *p;

	options.kind = kind;
	check_ok(share_pool_create(c, "test", &options, &p));
	return p;
}

#define MIB     (UINT64_C(1) << 20)
#define UNIT    (2 * MIB) /* segments of every kind can have this size */
#define OPTIONS (share_pool_options) SHARE_POOL_OPTIONS_INIT
