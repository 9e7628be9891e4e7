/* SPDX-License-Identifier: MIT */
#pragma once

struct journal;

/* Just after a commit: whether the journal says what the broker is. */
void audit(struct journal *j);
