/* SPDX-License-Identifier: MIT */
#ifndef TESTS_THEMES_SURVIVAL_AUDIT_H
#define TESTS_THEMES_SURVIVAL_AUDIT_H

struct journal;

/* Just after a commit: whether the journal says what the broker is. */
void audit(struct journal *j);

#endif
