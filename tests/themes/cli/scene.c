/* SPDX-License-Identifier: MIT */

/*
 * cli-scene: processes that share memory all the time, for whoever shows that live. A camera sends
 * frames to a detector that keeps up and to a recorder that does not; a loader gives jobs to two
 * workers; a server holds weights of several sizes, of which one is kept by its name alone; and one
 * process is called what would be a picture and a script, if anybody took its name for HTML. Says
 * "ready" when all of them are at work, and ends with its stdin.
 *
 * The broker is to be started with tests/themes/cli/scene.json.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/share.h>

#define FRAME_BYTES (1920 * 1080)

static int ready[2]; /* a pipe to which each process says that it is at work */

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "cli-scene: %s: %s\n", what, share_error_detail());
	_exit(1);
}

static void pause_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

static share_client *connect_as(const char *label)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *client;

	options.label = label;
	check(share_connect_with(NULL, &options, &client), label);
	return client;
}

static share_pool *open_pool(share_client *client, const char *name)
{
	share_pool *pool;

	check(share_pool_open(client, name, &pool), name);
	return pool;
}

static share_buffer *allocate(share_pool *pool, uint64_t size)
{
	share_buffer *b;

	check(share_alloc(pool, size, NULL, &b), "alloc");
	return b;
}

static void at_work(void)
{
	check(write(ready[1], "", 1) == 1 ? 0 : -1, "saying so");
}

/* ------------------------------------------------------------------------------------------- */

static void send_for_ever(const char *label, const char *name, int mode, int when_full, int ms,
			  uint64_t size)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *client = connect_as(label);
	share_pool *pool = open_pool(client, "frames");
	share_channel *ch;

	options.mode = (uint32_t)mode;
	options.when_full = (uint32_t)when_full;
	options.depth = 16;
	options.pool = "frames";
	check(share_channel_open(client, name, SHARE_PRODUCER, &options, &ch), name);
	for (int n = 0;; n++) {
		share_buffer *b = allocate(pool, size);

		check(share_send(ch, b, NULL, 0, NULL), "send");
		check(share_release(b, NULL), "release");
		if (n == 8)
			at_work();
		pause_ms(ms);
	}
}

/* Keeps each message for so long. */
static void receive_for_ever(const char *label, const char *name, int mode, int when_full, int ms)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *client = connect_as(label);
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	options.mode = (uint32_t)mode;
	options.when_full = (uint32_t)when_full;
	options.depth = 16;
	options.pool = "frames";
	check(share_channel_open(client, name, SHARE_CONSUMER, &options, &ch), name);
	for (int n = 0;; n++) {
		check(share_recv(ch, -1, NULL, &m), "receive");
		pause_ms(ms);
		check(share_ack(&m, NULL), "acknowledge");
		if (n == 2)
			at_work();
	}
}

static void hold_for_ever(void)
{
	at_work();
	for (;;)
		pause();
}

static void camera(void)
{
	send_for_ever("camera", "frames/left", SHARE_BROADCAST, SHARE_FULL_DROP, 16, FRAME_BYTES);
}

static void detector(void)
{
	receive_for_ever("detector", "frames/left", SHARE_BROADCAST, SHARE_FULL_DROP, 4);
}

static void recorder(void)
{
	receive_for_ever("recorder", "frames/left", SHARE_BROADCAST, SHARE_FULL_DROP, 45);
}

static void loader(void)
{
	send_for_ever("loader", "jobs", SHARE_QUEUE, SHARE_FULL_BLOCK, 5, 64 << 10);
}

static void worker_1(void)
{
	receive_for_ever("worker 1", "jobs", SHARE_QUEUE, SHARE_FULL_BLOCK, 7);
}

static void worker_2(void)
{
	receive_for_ever("worker 2", "jobs", SHARE_QUEUE, SHARE_FULL_BLOCK, 11);
}

static void server(void)
{
	static const uint64_t sizes[] = {40 << 20, 18 << 20, 26 << 20, 33 << 20, 9 << 20, 2 << 20};
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_pool *pool = open_pool(connect_as("weight server"), "weights");
	share_buffer *b[6], *old;

	for (int i = 0; i < 6; i++)
		b[i] = allocate(pool, sizes[i]);
	check(share_publish(b[0], "weights/new", NULL), "publish");
	old = allocate(pool, 20 << 20);
	options.flags = SHARE_PUBLISH_PERSISTENT;
	check(share_publish_with(old, "weights/old", &options, NULL, NULL), "publish");
	check(share_release(old, NULL), "release");
	check(share_release(b[3], NULL), "release");
	hold_for_ever();
}

static void visitor(void)
{
	share_pool *pool =
	    open_pool(connect_as("<img src=x onerror=\"document.title='broken'\">"), "scratch");
	share_buffer *b;

	allocate(pool, 300 << 10);
	allocate(pool, 1 << 20);
	for (int i = 0; i < 3; i++)
		if (share_alloc(pool, 9 << 20, NULL, &b) != SHARE_ENOMEM)
			_exit(1);
	hold_for_ever();
}

int main(void)
{
	/* A member of a channel makes it if there is none. */
	static void (*const processes[])(void) = {camera,   detector, recorder, loader,
						  worker_1, worker_2, server,   visitor};
	char said;

	check(pipe(ready), "pipe");
	for (size_t i = 0; i < sizeof(processes) / sizeof(processes[0]); i++) {
		pid_t pid = fork();

		check(pid, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			processes[i]();
		}
	}
	close(ready[1]);
	for (size_t i = 0; i < sizeof(processes) / sizeof(processes[0]); i++)
		if (read(ready[0], &said, 1) != 1)
			return 1;
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
