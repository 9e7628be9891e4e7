/* SPDX-License-Identifier: MIT */

/* The configuration of the broker that is played with, in a file, as it is read again. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/config/config.h"
#include "broker/log/log.h"
#include "tests/themes/fuzz/play.h"

/* The first user manages, the second makes pools and owns names, the third reads in "default" and
 * writes in "gate", where memory is not zeroed between the two. What it may be later, and what it
 * may not be. */
#define POOLS(more)                                                                    \
	"\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"8MiB\"," \
	" \"segment_size\": \"1MiB\", \"release_threshold\": \"1MiB\", \"access\": ["  \
	"{\"user\": 0, \"mode\": \"manage\"}, {\"user\": 1001, \"mode\": \"rw\"},"     \
	"{\"user\": 1002, \"mode\": \"ro\"}]}" more "]"
#define GATE(access)                                                                           \
	", {\"name\": \"gate\", \"kind\": \"host\", \"reuse\": \"gate\", \"limit\": \"2MiB\"," \
	" \"segment_size\": \"1MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"" access "\"}]}"
static const char *const texts[] = {
    "{\"admins\": [0], \"create_pools\": [0, 1001], \"names\": {\"mine/\": [1001]},"
    " \"users\": {\"1002\": {\"limits\": {\"bytes\": \"3MiB\"}}}, " POOLS(GATE("rw")) "}",
    "{\"admins\": [0, 1001], \"names\": {\"mine/\": [1002], \"a\": [1001]},"
    " \"limits\": {\"bytes\": \"1MiB\", \"names\": 1}, " POOLS(GATE("ro")) "}",
    "{\"admins\": [0], " POOLS("") "}",
    "{\"admins\": [0], \"pools\": 1}",
};
#define N_TEXTS (sizeof(texts) / sizeof(texts[0]))

static int configuration; /* a file */
bool play_is_as_at_first;

void play_configure(unsigned which)
{
	size_t size;

	which %= N_TEXTS;
	size = strlen(texts[which]);

	play_is_as_at_first &= which == 0;
	expect(ftruncate(configuration, 0) == 0 &&
	       pwrite(configuration, texts[which], size, 0) == (ssize_t)size);
}

struct config *play_load(void)
{
	char path[64], error[1024] = "";
	struct config *c = NULL;

	play_configure(0);
	play_is_as_at_first = true;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", configuration);
	if (config_load(path, &c, error, sizeof(error)) != 0)
		fprintf(stderr, "%s\n", error);
	expect(c != NULL);
	/* small enough for an input to get there */
	c->limits.max[LIMIT_CONNECTIONS] = 6;
	c->limits.max[LIMIT_LEASES] = 24;
	c->limits.max[LIMIT_NAMES] = 6;
	c->limits.max[LIMIT_TOKENS] = 6;
	c->limits.max[LIMIT_WATCHES] = 6;
	c->limits.max[LIMIT_WAITS] = 6;
	c->limits.max[LIMIT_POOLS] = 4;
	c->limits.max[LIMIT_METADATA] = 70000;
	c->limits.max[LIMIT_UNSENT] = 100000;
	c->limits.max[LIMIT_CHANNELS] = 8;
	return c;
}

void play_init(void)
{
	setenv("SHARE_ABORT_ON_BUG", "1", 1);
	log_set_level(LOG_LEVEL_ERROR);
	configuration = memfd_create("configuration", MFD_CLOEXEC);
	expect(configuration >= 0);
}
