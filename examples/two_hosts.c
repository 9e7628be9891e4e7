/* SPDX-License-Identifier: MIT */

/*
 * two_hosts: one process publishes one version of its weights after the other, and another takes
 * each of them, on the same host or on another one to which a bridge leads (share-bridge(1)).
 * Nothing in here knows which.
 *
 * Who takes a version looks at every byte of it, and then publishes under a second name which one
 * it was. Who publishes waits for that before it makes the next one. So both names travel, in
 * opposite directions, and no version is skipped.
 *
 *   two_hosts publish POOL VERSIONS BYTES
 *   two_hosts take POOL VERSIONS
 */

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#define WEIGHTS "demo/weights"
#define TAKEN   "demo/taken"
#define WAIT_MS 60000

static void fail(const char *why)
{
	fprintf(stderr, "two_hosts: FAILED %s\n", why);
	exit(1);
}

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "two_hosts: FAILED %s: %s (%s)\n", what, share_strerror(result),
		share_error_detail());
	exit(1);
}

/* Every word of a version tells which version it is, and its place. */
static uint64_t word(uint64_t version, uint64_t i)
{
	return version * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static void put(share_pool *pool, const char *name, uint64_t version, uint64_t bytes)
{
	share_buffer *b;
	uint64_t *words;

	check(share_alloc(pool, bytes, NULL, &b), "share_alloc");
	words = share_ptr(b);
	words[0] = version;
	for (uint64_t i = 1; i < bytes / sizeof(*words); i++)
		words[i] = word(version, i);
	check(share_publish(b, name, NULL), "share_publish");
	check(share_release(b, NULL), "share_release");
}

/* Returns which version there is now, all of whose bytes are that version's; 0: there is none. */
static uint64_t get(share_client *client, const char *name, uint64_t *bytes)
{
	const uint64_t *words;
	uint64_t version;
	share_buffer *b;
	int r = share_lookup(client, name, SHARE_RDONLY, 0, NULL, &b);

	if (r == SHARE_ENOENT)
		return 0;
	check(r, "share_lookup");
	words = share_ptr(b);
	version = words[0];
	*bytes = share_size(b);
	for (uint64_t i = 1; i < *bytes / sizeof(*words); i++)
		if (words[i] != word(version, i))
			fail("a version is not whole");
	check(share_release(b, NULL), "share_release");
	return version;
}

static void on_change(const share_name_event *event, void *data)
{
	/* what it is is looked at after each change */
	(void)event, (void)data;
}

/* Waits until a name has that version, or a later one. Returns which, and how large it is. */
static uint64_t await(share_client *client, const char *name, uint64_t version, uint64_t *bytes)
{
	struct pollfd fd = {.fd = share_get_fd(client), .events = POLLIN};
	uint64_t there;
	int r;

	while ((there = get(client, name, bytes)) < version) {
		r = poll(&fd, 1, WAIT_MS);
		if (r == 0 || (r < 0 && errno != EINTR))
			fail("nothing comes");
		check(share_dispatch(client), "share_dispatch");
	}
	return there;
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*end || value == 0)
		fail("what should be a number is none");
	return value;
}

int main(int argc, char **argv)
{
	int publishes = argc == 5 && strcmp(argv[1], "publish") == 0;
	int takes = argc == 4 && strcmp(argv[1], "take") == 0;
	uint64_t versions, version = 0, bytes, taken = 0;
	share_client *client;
	share_watch *watch;
	share_pool *pool;

	if (!publishes && !takes) {
		int help = argc == 2 && strcmp(argv[1], "--help") == 0;

		fprintf(help ? stdout : stderr,
			"usage: two_hosts publish POOL VERSIONS BYTES\n"
			"       two_hosts take POOL VERSIONS\n");
		return help ? 0 : 2;
	}
	versions = number(argv[3]);
	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, argv[2], &pool), "share_pool_open");
	/* first the watch, so that no change is missed */
	check(share_watch_names(client, "demo/", on_change, NULL, &watch), "share_watch_names");
	while (version < versions) {
		if (publishes) {
			put(pool, WEIGHTS, ++version, number(argv[4]));
			await(client, TAKEN, version, &bytes);
		} else {
			version = await(client, WEIGHTS, version + 1, &bytes);
			put(pool, TAKEN, version, sizeof(version));
			taken += bytes;
		}
	}
	if (takes) {
		printf("two_hosts: ok versions=%llu bytes=%llu\n", (unsigned long long)version,
		       (unsigned long long)taken);
		fflush(stdout);
		/* the name of the last answer lives as long as this process: until it was seen */
		if (getchar() != EOF)
			fail("what is there to say?");
	}
	share_unwatch(watch);
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
