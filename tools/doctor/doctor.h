/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>
#include <share/share.h>

/* What of this machine lets share work, or hinders it. */

/*
 * Looks at everything. @root is in front of all paths ("" for this machine, a folder in tests).
 * @client NULL: there is no broker, or it does not answer; @error is the error of libshare, and
 * @detail says why. Returns an array for json_decref(), an
 * object for each thing that was looked at: its "subject"; its "state", which is "ok", "note" (it
 * works, and costs something) or "bad" (something does not work); what was "found"; and unless that
 * is null, what it "costs", and what to "do".
 */
json_t *doctor_examine(const char *root, share_client *client, int error, const char *detail);

/* Returns whether nothing is bad. */
bool doctor_is_content(const json_t *findings);

/* Prints it for people. */
void doctor_print(FILE *out, const json_t *findings);
