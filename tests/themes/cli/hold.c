/* SPDX-License-Identifier: MIT */

/*
 * cli-hold: a client for sharectl to look at. Makes pools, buffers and names that are the same each
 * time, says "ready", and holds them until its stdin ends. With a number as its argument, it holds
 * so many small buffers instead; with "holders", one that many clients have; with "channels", both
 * ends of two channels; with "ends", a little of all that can be taken from it; with "left", it has
 * closed a channel whose messages nobody has received; with "legacy", a buffer that is not the
 * first in its memory, whose recipe it says first.
 *
 * The broker is to be started with tests/themes/cli/broker.json.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>
#include <share/share.h>

static share_client *client;

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "cli-hold: %s: %s\n", what, share_error_detail());
	exit(1);
}

static share_buffer *allocate(share_pool *pool, uint64_t size)
{
	share_buffer *b;

	check(share_alloc(pool, size, NULL, &b), "alloc");
	return b;
}

static void publish(share_buffer *b, const char *name, uint32_t flags, uint32_t mode)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;

	options.flags = flags;
	options.mode = mode;
	check(share_publish_with(b, name, &options, NULL, NULL), name);
}

static void wait_for_end(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
}

static void hold_known_state(share_pool *pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *small, *large, *own, *frame, *looked_up;
	share_pool *frames;

	options.limit = 1 << 30;
	options.segment_size = 4 << 20;
	options.alignment = 4096;
	check(share_pool_create(client, "frames", &options, &frames), "create pool");

	small = allocate(pool, 1000);
	large = allocate(pool, 200 << 10);
	own = allocate(pool, 5 << 20); /* larger than a segment */
	frame = allocate(frames, 1920 * 1080);
	check(share_metadata_set(large, "{\"pixels\": \"r\303\266t\"}"), "metadata");

	publish(small, "small", 0, 0);
	publish(small, "small", 0, 0); /* so that a version is not a row's number */
	publish(large, "weights/gr\303\266\303\237er", 0, SHARE_RDONLY);
	publish(frame, "frames/left", SHARE_PUBLISH_PERSISTENT, SHARE_RDONLY);
	check(share_lookup(client, "small", SHARE_RDWR, 0, NULL, &looked_up), "look up");
	check(share_release(frame, NULL), "release"); /* only its name holds it */
	wait_for_end();

	share_release(looked_up, NULL);
	share_release(small, NULL);
	share_release(large, NULL);
	share_release(own, NULL);
	share_pool_close(frames);
}

static void hold_many(share_pool *pool, size_t n)
{
	share_buffer **buffers = calloc(n, sizeof(share_buffer *));

	if (!buffers)
		exit(1);
	for (size_t i = 0; i < n; i++)
		buffers[i] = allocate(pool, 512);
	wait_for_end();
	for (size_t i = 0; i < n; i++)
		share_release(buffers[i], NULL);
	free(buffers);
}

/* One buffer, which forty more clients have. */
static void hold_together(share_pool *pool)
{
	share_client *others[40];
	share_buffer *b = allocate(pool, 4096), *theirs[40];

	publish(b, "all", 0, 0);
	for (int i = 0; i < 40; i++) {
		check(share_connect(NULL, &others[i]), "connect");
		check(share_lookup(others[i], "all", SHARE_RDONLY, 0, NULL, &theirs[i]), "look up");
	}
	wait_for_end();
	for (int i = 0; i < 40; i++) {
		share_release(theirs[i], NULL);
		share_disconnect(others[i]);
	}
	share_release(b, NULL);
}

static share_channel *take_part(const char *name, int role, const share_channel_options *options)
{
	share_channel *ch;

	check(share_channel_open(client, name, role, options, &ch), name);
	return ch;
}

static void receive(share_channel *ch, share_message *out)
{
	*out = (share_message)SHARE_MESSAGE_INIT;
	check(share_recv(ch, 0, NULL, out), "receive");
}

static void receive_and_acknowledge(share_channel *ch)
{
	share_message m;

	receive(ch, &m);
	check(share_ack(&m, NULL), "acknowledge");
}

/* Six jobs for two consumers, one of which has begun with its first. A ring of frames that one
 * consumer keeps up with, and that another has filled, and holds as much again of. What is only
 * worth something while it is new, for one that came late to it. */
static void hold_channels(share_pool *pool)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_message begun, newest, quick[3], slow[64];
	share_buffer *b = allocate(pool, 1000);
	share_channel *ends[8];

	options.mode = SHARE_QUEUE;
	options.when_full = SHARE_FULL_DROP;
	options.depth = 8;
	options.producers = 2;
	ends[0] = take_part("jobs/resize", SHARE_PRODUCER, &options);
	ends[1] = take_part("jobs/resize", SHARE_CONSUMER, NULL);
	ends[2] = take_part("jobs/resize", SHARE_CONSUMER, NULL);
	for (int i = 0; i < 6; i++)
		check(share_send(ends[0], b, NULL, 0, NULL), "send");
	receive(ends[1], &begun);

	ends[3] = take_part("frames", SHARE_PRODUCER, NULL);
	ends[4] = take_part("frames", SHARE_CONSUMER, NULL);
	ends[5] = take_part("frames", SHARE_CONSUMER, NULL);
	for (int i = 0; i < 128; i++) {
		check(share_send(ends[3], b, NULL, 0, NULL), "send");
		if (i < 64)
			receive(ends[5], &slow[i]);
		if (i < 125)
			receive_and_acknowledge(ends[4]);
		else
			receive(ends[4], &quick[i - 125]);
	}

	options = (share_channel_options)SHARE_CHANNEL_OPTIONS_INIT;
	options.when_full = SHARE_FULL_DROP;
	options.depth = 2;
	ends[6] = take_part("latest", SHARE_PRODUCER, &options);
	ends[7] = take_part("latest", SHARE_CONSUMER, NULL);
	for (int i = 0; i < 5; i++)
		check(share_send(ends[6], NULL, "", 1, NULL), "send");
	receive(ends[7], &newest);

	wait_for_end();
	check(share_ack(&begun, NULL), "acknowledge");
	check(share_ack(&newest, NULL), "acknowledge");
	for (int i = 0; i < 3; i++)
		check(share_ack(&quick[i], NULL), "acknowledge");
	for (int i = 0; i < 64; i++)
		check(share_ack(&slow[i], NULL), "acknowledge");
	check(share_release(b, NULL), "release");
	for (int i = 0; i < 8; i++)
		share_channel_close(ends[i]);
}

/* What an operator can end, of a client that takes part in a channel. */
static void hold_what_ends(share_pool *pool)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 100000);
	share_token tokens[2];
	share_channel *end;

	publish(b, "first", 0, 0);
	publish(b, "second", SHARE_PUBLISH_PERSISTENT, 0);
	check(share_export(b, NULL, &tokens[0]), "export");
	options.mode = SHARE_RDWR;
	options.uses = SHARE_USES_UNLIMITED;
	options.timeout_ms = 3600000;
	check(share_export_with(b, &options, NULL, &tokens[1]), "export");
	end = take_part("frames", SHARE_CONSUMER, NULL);
	wait_for_end();
	/* its connection may have ended */
	share_channel_close(end);
	share_release(b, NULL);
}

/* Three jobs for who comes, whose producer is gone. */
static void leave_messages(void)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *end;

	options.mode = SHARE_QUEUE;
	end = take_part("jobs/left", SHARE_PRODUCER, &options);
	for (int i = 0; i < 3; i++)
		check(share_send(end, NULL, "", 1, NULL), "send");
	share_channel_close(end);
	wait_for_end();
}

/* Two of a kind that has handles; the handle, offset and sizes of the published one in a line. */
static void hold_legacy(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *first, *second;
	share_pool *pool;

	options.kind = "legacy";
	check(share_pool_create(client, "plain", &options, &pool), "create pool");
	first = allocate(pool, 1000);
	second = allocate(pool, 5000);
	publish(second, "second", 0, SHARE_RDONLY);
	check(share_get_recipe(second, &recipe), "recipe");
	for (size_t i = 0; i < sizeof(recipe.pointer); i++)
		printf("%02x", recipe.pointer[i]);
	printf(" %llu 5000 %llu %s\n", (unsigned long long)recipe.offset,
	       (unsigned long long)recipe.segment_size, recipe.device);
	wait_for_end();
	/* which may be gone with its agent */
	share_release(first, NULL);
	share_release(second, NULL);
	share_pool_close(pool);
}

int main(int argc, char **argv)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_pool *pool;

	options.label = "holds \342\200\234it\342\200\235";
	check(share_connect_with(NULL, &options, &client), "connect");
	check(share_pool_open(client, "default", &pool), "open pool");
	if (argc == 1)
		hold_known_state(pool);
	else if (strcmp(argv[1], "channels") == 0)
		hold_channels(pool);
	else if (strcmp(argv[1], "holders") == 0)
		hold_together(pool);
	else if (strcmp(argv[1], "left") == 0)
		leave_messages();
	else if (strcmp(argv[1], "legacy") == 0)
		hold_legacy();
	else if (strcmp(argv[1], "ends") == 0)
		hold_what_ends(pool);
	else
		hold_many(pool, strtoul(argv[1], NULL, 10));
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
