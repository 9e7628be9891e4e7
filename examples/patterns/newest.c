/* SPDX-License-Identifier: MIT */

/*
 * newest: a camera that is faster than who looks at its frames. Each look gets the newest frame,
 * and nobody ever waits for the other.
 *
 * That is a flag of who looks (SHARE_CHANNEL_LATEST). Another consumer of the same channel, which
 * records all frames, would get each of them. What a consumer has received is its own until it
 * acknowledges it, so the camera needs memory for three frames: the one that is looked at, the
 * newest, and the one that it makes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#define FRAME (64 * 1024)

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "newest: %s: %s\n", what, share_error_detail());
	exit(1);
}

static share_channel *open_channel(share_client *c, int role, uint32_t flags)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "newest";
	options.mode = SHARE_BROADCAST;
	options.depth = 4;
	options.in_flight = 4;
	options.flags = flags;
	check(share_channel_open(c, "camera", role, &options, &ch), "share_channel_open");
	return ch;
}

static void look(share_channel *ch, share_message *m)
{
	unsigned number;

	check(share_recv(ch, 10000, NULL, m), "share_recv");
	check(m->error, "the frame");
	memcpy(&number, share_ptr(m->buffer), sizeof(number));
	printf("newest: frame %u; %llu were skipped\n", number, (unsigned long long)m->lost);
	fflush(stdout);
}

/* Looks at a frame for as long as a hundred others take. */
static void consume(int looking, int go_on)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_client *c;
	share_channel *ch;
	char byte = 0;

	check(share_connect(NULL, &c), "share_connect");
	ch = open_channel(c, SHARE_CONSUMER, SHARE_CHANNEL_LATEST);
	if (write(looking, &byte, 1) != 1) /* from now on, frames are for it */
		exit(1);
	look(ch, &m);
	if (write(looking, &byte, 1) != 1 || read(go_on, &byte, 1) != 1)
		exit(1);
	check(share_ack(&m, NULL), "share_ack");
	look(ch, &m);
	check(share_ack(&m, NULL), "share_ack");
	share_channel_close(ch);
	share_disconnect(c);
}

static void take_picture(share_pool *p, share_channel *ch, unsigned number)
{
	share_buffer *frame;

	check(share_alloc(p, FRAME, NULL, &frame), "share_alloc");
	memset(share_ptr(frame), 0, FRAME);
	memcpy(share_ptr(frame), &number, sizeof(number));
	/* the frame that it takes the place of goes back to the pool */
	check(share_give(ch, frame, NULL, 0, NULL), "share_give");
}

int main(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	int looking[2], go_on[2], status;
	share_client *c;
	share_pool *p;
	share_channel *ch;
	char byte;
	pid_t child;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &c), "share_connect");
	setenv("SHARE_SOCKET", share_address(c), 1);
	options.kind = "host";
	check(share_pool_create(c, "newest", &options, &p), "share_pool_create");
	if (pipe(looking) != 0 || pipe(go_on) != 0)
		return 1;
	child = fork();
	if (child == 0) {
		consume(looking[1], go_on[0]);
		exit(0);
	}
	ch = open_channel(c, SHARE_PRODUCER, 0);
	if (child < 0 || read(looking[0], &byte, 1) != 1)
		return 1;
	take_picture(p, ch, 0);
	if (read(looking[0], &byte, 1) != 1) /* it looks at frame 0 */
		return 1;
	for (unsigned number = 1; number <= 100; number++)
		take_picture(p, ch, number);
	if (write(go_on[1], &byte, 1) != 1 || waitpid(child, &status, 0) != child || status != 0)
		return 1;
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(c);
	return 0;
}
