/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Probes: places that bpftrace, perf and SystemTap can look at while a program runs (USDT, provider
 * "share"; docs/operating.md has the list and an example). One that nobody looks at is an
 * instruction that does nothing; its arguments should be at hand. Where <sys/sdt.h> is missing
 * (Debian: systemtap-sdt-dev) there are none.
 */

#if __has_include(<sys/sdt.h>)

#define SDT_USE_VARIADIC 1 /* STAP_PROBEV() */
#include <sys/sdt.h>

#define PROBE(name, ...) STAP_PROBEV(share, name, __VA_ARGS__)

#else

static inline int probe_nothing(int unused, ...)
{
	return unused;
}

/* Nothing is evaluated, but what is only there for a probe counts as used. */
#define PROBE(name, ...) ((void)sizeof(probe_nothing(0, ##__VA_ARGS__)))

#endif
