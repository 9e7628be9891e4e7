/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Buffers that are handed over by a name or a token: what they are called, what is said of what is
 * in them, who finds them or hears of them, and how whoever gave one is the last again who has it.
 */

extern const struct client_room handover_room;
