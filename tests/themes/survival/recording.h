/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a broker leaves to the next one, as a file: the journal, and descriptors and mappings that
 * the keeper has. A recorded-broker (recorded_broker.c) finds the file's path in the environment.
 * It is a JSON object:
 *
 *   version   of the program that left it
 *   config    the text of the configuration in force
 *   journal   {"size": bytes, "bytes": content}
 *   records   how many of each type: {"3": 7, ...}
 *   kept      what has numbers from KEPT_FIXED + 1 on: [{"id": number, "sort": ..., ...}]
 *             "socket"   somebody has its other end
 *             "eventfd"
 *             "pidfd"    of a "process": who has the same one has it in common
 *             "memfd"    with its "size" and content ("bytes"), without seals; or the same
 *                        memory "as" that number has, "readonly" or not. "mapped": so many bytes
 *   there, filled, tokens   the test's own (recorded_test.c): what clients are to find
 *
 * A content is what is not zero: ["PLACE BYTES", "PLACE NUMBER*BYTE", ...], all hexadecimal.
 */
#define RECORD_TO_VARIABLE  "SHARE_TEST_RECORD_TO"
#define GO_ON_FROM_VARIABLE "SHARE_TEST_GO_ON_FROM"
/* The reading end of a pipe: processes that stand for those that there were live until its writing
 * end is closed. */
#define STAND_INS_VARIABLE "SHARE_TEST_STAND_INS"

struct keeper;

/* In a broker that was forked and has done nothing yet. */
void recording_write(const char *path, const struct keeper *k);
/* In the first broker of a keeper: hands all of it to that. Returns the version. */
const char *recording_read(const char *path, const struct keeper *k);
