/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"

/*
 * Two sides: "far", whose broker is the fixture's and whose bridge listens, and "near", with a
 * private broker and a bridge that connects. Far exports everything that is asked for.
 */

struct cable;

struct bridge_process {
	pid_t pid;
	char log[64];
};

struct sides {
	share_client *far, *near;
	struct bridge_process far_bridge, near_bridge;
	char key[64];
	char place[64]; /* HOST:PORT of the far bridge */
	char way[64];   /* HOST:PORT by which the near bridge reaches it, if that is another */
	int reserved;   /* has that port for as long as no bridge does, e.g. between two of them */
	const struct cable *cable; /* NULL: both are in the network of the test */
};

/* Two connections, and a key. */
void sides_begin(struct sides *s);
void sides_end(struct sides *s);

/* @options: up to a NULL; the broker, the site and the key are said for them. On a cable, each is
 * at its end of it. */
void far_start(struct sides *s, const char *const *options);
void near_start(struct sides *s, const char *const *options);
/* SIGTERM, and expects a good end; SIGKILL. */
void bridge_stop(struct bridge_process *p);
void bridge_kill(struct bridge_process *p);
/* Waits for one that ends by itself, with this exit code, and has said this. */
void bridge_expect_end(struct bridge_process *p, int code, const char *said);

/* --gpu of both bridges: what SHARE_TEST_GPU_WAY says, or "staged". */
const char *bridge_gpu_way(void);

/* How many lines of its log have @text in them. */
int bridge_said(const struct bridge_process *p, const char *text);
/* All that it has said, to stderr, for whoever reads why a test has failed. */
void bridge_show(const struct bridge_process *p);

/* The mirror of the channel "q", for a consumer, as soon as the bridge has made it. */
share_channel *mirror_open(share_client *c);

/* All bytes, which say what they are: the same seed is the same content. */
void content_fill(share_buffer *b, unsigned seed);
bool content_is(share_buffer *b, unsigned seed);

/* Publishes a new buffer of this content. */
void content_publish(share_client *c, const char *name, uint64_t size, unsigned seed);
/* Whether the name is there, with this content. */
bool content_at(share_client *c, const char *name, uint64_t size, unsigned seed);

/* The value of a key of "bridge" in the metadata of a name: the text of its JSON, for free(); NULL
 * when there is none. */
char *metadata_at(share_client *c, const char *name, const char *key);

/* Whether `sharectl bridges`, with these options before it, says this in a line. */
bool sharectl_bridges_say(share_client *c, const char *options, const char *text);
