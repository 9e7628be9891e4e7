/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include <jansson.h>
#include <share/channel.h>

/* Clients that have something of everything that the journal has records of, over the stand-in
 * driver. Root only. Who adds a type of record, or a part of one, adds it here. */

#define SCENARIO_CONFIG                                                                       \
	"{\"agent_timeout_ms\": 600000, \"create_pools\": [\"*\"], \"pools\": [{\"name\": "   \
	"\"default\", \"kind\": \"host\", \"limit\": \"64MiB\", \"segment_size\": \"1MiB\", " \
	"\"release_threshold\": 0, \"reuse\": \"gate\", \"access\": [{\"user\": \"*\", "      \
	"\"mode\": \"rw\"}]}]}"

#define SCENARIO_SEVERAL 3 /* buffers of a message, where there are several */

/* Before the broker is started. */
void scenario_prepare(void);
/* All of it, as long as this process lives. {"filled": [[name, bytes, value], ...], "tokens":
 * [hexadecimal, ...], "left": [channel, value, n], "several": [channel, value]}: which content
 * leads from there to where; n messages, with this value and the next ones, that wait for a
 * consumer; and one of SCENARIO_SEVERAL buffers with such values, that does so, too. */
json_t *scenario_play(share_client *looks_on);
/* One of the channels that there are then. */
share_channel *scenario_open(share_client *c, const char *name, int role);
/* The last of it: an agent ends, and the broker dies of that. */
void scenario_end(share_client *looks_on);
void scenario_done(void);
