/* SPDX-License-Identifier: MIT */
#ifndef TESTS_INTEGRATION_CONFORMANCE_H
#define TESTS_INTEGRATION_CONFORMANCE_H

#include <criterion/parameterized.h>

#include "tests/harness/fixture.h"

/*
 * One suite over every kind of pool: each of these tests runs once a kind. A kind that cannot run
 * here is skipped and says so.
 *
 *   ConformanceTest(sentence)
 *   {
 *           share_pool *p = conformance_pool(kind, &options);
 *           ...
 */
struct kind {
	char name[16];
};

static struct kind conformance_kinds[] = {{"host"}};

#define ConformanceTest(sentence)                                                               \
	static void conform_##sentence(const char *kind);                                       \
	ParameterizedTestParameters(conformance, sentence)                                      \
	{                                                                                       \
		return cr_make_param_array(struct kind, conformance_kinds,                      \
					   sizeof(conformance_kinds) / sizeof(struct kind));    \
	}                                                                                       \
	ParameterizedTest(struct kind *parameter, conformance, sentence, .init = fixture_start, \
			  .fini = fixture_stop)                                                 \
	{                                                                                       \
		skip_unless_possible(parameter->name);                                          \
		conform_##sentence(parameter->name);                                            \
	}                                                                                       \
	static void conform_##sentence(const char *kind)

static inline void skip_unless_possible(const char *kind)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = connect_as("probe");
	share_pool *p = NULL;
	int r;

	options.kind = kind;
	r = share_pool_create(c, "probe", &options, &p);
	share_pool_close(p);
	share_disconnect(c);
	if (r == SHARE_ENOTSUP)
		cr_skip_test("kind %s cannot run here: %s", kind, share_error_detail());
	check_ok(r);
}

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
#define OPTIONS (share_pool_options) SHARE_POOL_OPTIONS_INIT

#endif
