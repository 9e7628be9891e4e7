/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/themes/fuzz/fuzz.h"

struct journal;

#define DAMAGE_SIZE 8 /* bytes that say what is damaged */

/* What these bytes say is done to a journal that nobody uses: bits that flip, an end that is cut
 * off; and also what no accident does but a broker with a mistake: another number in a record, a
 * record twice or no more, with checksums that are right again. */
/* False: what is left is not to be looked at any more. */
bool damage(struct journal *j, int fd, const uint8_t bytes[DAMAGE_SIZE]);
