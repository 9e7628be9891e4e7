/* SPDX-License-Identifier: MIT */

/* Passes each probe of the library once, and ends without a goodbye: the broker sees it die. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <share/channel.h>

#define SIZE 5000

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, share_error_detail());
	exit(1);
}

int main(void)
{
	share_channel *producer, *consumer;
	share_client *client;
	share_message message = SHARE_MESSAGE_INIT;
	share_buffer *buffer;
	share_pool *pool;

	must(share_connect(NULL, &client), "share_connect");
	must(share_pool_open(client, "default", &pool), "share_pool_open");
	must(share_channel_open(client, "probed", SHARE_PRODUCER, NULL, &producer), "producer");
	must(share_channel_open(client, "probed", SHARE_CONSUMER, NULL, &consumer), "consumer");
	must(share_alloc(pool, SIZE, NULL, &buffer), "share_alloc");
	must(share_publish(buffer, "probed", NULL), "share_publish");
	must(share_send(producer, buffer, "text", 5, NULL), "share_send");
	must(share_recv(consumer, -1, NULL, &message), "share_recv");
	must(share_ack(&message, NULL), "share_ack");
	must(share_release(buffer, NULL), "share_release");
	_exit(0);
}
