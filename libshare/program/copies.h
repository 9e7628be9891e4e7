/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * A process may have several copies of the library: a plug-in brings one along that is called
 * otherwise, or has libshare.a in it. Two things are the process's and not a copy's: what it has
 * imported of memory of kind mempool, as the driver takes that away from all with the first free,
 * and how many of its streams may stand still. The first copy that needs one of these has them; the
 * others do without, and say so.
 */

/* Whether this copy is the one, which it becomes if none is. */
bool copies_is_first(void);
/* What the others say: a sentence. */
#define COPIES_REASON                                                                             \
	"another copy of libshare in this process has that already: have all its parts load the " \
	"same libshare.so.0"
