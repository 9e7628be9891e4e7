/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What kept.c alone knows of what is kept, for closing.c. */

/* Has the keeper let these go. False: it may have them still, and then the next broker will close
 * them. */
bool kept_drop(const uint32_t *ids, size_t n);
/* Under which number this descriptor is kept; 0: it is not. 0, or -ENOMEM. */
int kept_set_id(int fd, uint32_t id);
