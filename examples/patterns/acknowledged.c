/* SPDX-License-Identifier: MIT */

/*
 * acknowledged: ten jobs for two workers, and a producer that ends when all are done, or knows
 * which one nobody could do.
 *
 * A worker acknowledges a job when it is done. A job that it cannot do it gives back, and another
 * worker gets it. What was delivered as often as the channel allows comes back to the producer.
 * share_channel_drain() waits until each job is either acknowledged or set aside in this way.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#define JOBS    10
#define BAD     3
#define WORKERS 2

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "acknowledged: %s: %s\n", what, share_error_detail());
	exit(1);
}

static share_channel *open_channel(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "jobs";
	options.mode = SHARE_QUEUE;
	options.deliveries = 3;
	/* who comes when the last producer has gone waits for another one; so it goes when all were
	 * there */
	options.wait_for = WORKERS;
	check(share_channel_open(c, "jobs", role, &options, &ch), "share_channel_open");
	return ch;
}

static int job_of(const share_message *m)
{
	int job;

	memcpy(&job, m->data, sizeof(job));
	return job;
}

static void work(void)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_client *c;
	share_channel *ch;
	int r;

	check(share_connect(NULL, &c), "share_connect");
	ch = open_channel(c, SHARE_CONSUMER);
	while ((r = share_recv(ch, -1, NULL, &m)) == 0) {
		if (job_of(&m) == BAD)
			check(share_reject(&m, NULL), "share_reject");
		else
			check(share_ack(&m, NULL), "share_ack");
	}
	if (r != SHARE_EPIPE) /* the producer has closed the channel: there is no more to do */
		check(r, "share_recv");
	share_channel_close(ch);
	share_disconnect(c);
}

static void produce(share_client *c)
{
	share_channel *ch = open_channel(c, SHARE_PRODUCER);
	share_message m = SHARE_MESSAGE_INIT;
	int given_up = 0;

	for (int job = 0; job < JOBS; job++)
		check(share_send(ch, NULL, &job, sizeof(job), NULL), "share_send");
	/* a program that may not wait for ever says so here, and is told who has yet to
	 * acknowledge what */
	check(share_channel_drain(ch, 30000), "share_channel_drain");
	while (share_channel_take_back(ch, &m) == 0) {
		printf("acknowledged: nobody could do job %d, of %u who tried\n", job_of(&m),
		       m.deliveries);
		check(share_ack(&m, NULL), "share_ack");
		given_up++;
	}
	printf("acknowledged: done=%d given_up=%d\n", JOBS - given_up, given_up);
	share_channel_close(ch); /* ends the workers */
}

int main(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c;
	share_pool *p;
	int status;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &c), "share_connect");
	setenv("SHARE_SOCKET", share_address(c), 1);
	options.kind = "host";
	check(share_pool_create(c, "jobs", &options, &p), "share_pool_create");
	for (int i = 0; i < WORKERS; i++) {
		if (fork() == 0) {
			work();
			exit(0);
		}
	}
	produce(c);
	for (int i = 0; i < WORKERS; i++)
		if (wait(&status) < 0 || status != 0)
			return 1;
	share_pool_close(p);
	share_disconnect(c);
	return 0;
}
