/* SPDX-License-Identifier: MIT */

/*
 * reconnect: receives readings for ever. It outlives the broker, as a service does that runs on
 * many machines, and SIGTERM ends it after the reading that it has in hand.
 *
 *   reconnect            receives; share_interrupt() ends its wait
 *   reconnect send N     sends N readings, and waits until they are acknowledged
 *
 * A connection that is lost does not come back: whoever had it gives up what was made from it,
 * and connects again. What was received and not acknowledged is the broker's again, and a queue
 * gives it to the next consumer.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <share/channel.h>

static share_client *volatile client; /* for the handler */
static volatile sig_atomic_t ending;

static void on_signal(int number)
{
	share_client *c = client;

	(void)number;
	ending = 1;
	if (c)
		share_interrupt(c);
}

static int report(int error, const char *what)
{
	if (error < 0)
		fprintf(stderr, "reconnect: %s: %s\n", what, share_error_detail());
	return error;
}

/* All that a member needs, in one step: 0 or the first error. */
static int open_channel(int role, share_channel **out)
{
	share_connect_options how = SHARE_CONNECT_OPTIONS_INIT;
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c;
	share_pool *p;
	int r;

	how.timeout_ms = 5000; /* a broker that hangs is one that is not there */
	r = report(share_connect_with(NULL, &how, &c), "share_connect");
	if (r != 0)
		return r;
	memory.kind = "host";
	memory.flags = SHARE_POOL_OPEN_OR_CREATE; /* each may be the first, also after a restart */
	options.pool = "readings";
	options.mode = SHARE_QUEUE;
	r = report(share_pool_create(c, "readings", &memory, &p), "share_pool_create");
	if (r == 0) {
		r = report(share_channel_open(c, "readings", role, &options, out),
			   "share_channel_open");
		share_pool_close(p);
	}
	if (r == 0)
		client = c;
	else
		share_disconnect(c);
	return r;
}

static void close_channel(share_channel *ch)
{
	share_client *c = client;

	client = NULL; /* before it is given up */
	share_channel_close(ch);
	share_disconnect(c);
}

/* Until something ends it: SHARE_EINTR, or the reason to connect again. */
static int receive(share_channel *ch, int *received)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	for (;;) {
		r = share_recv(ch, 1000, NULL, &m);
		if (r == 0) {
			*received += m.error == 0;
			share_ack(&m, NULL);
		} else if (r == SHARE_ETIMEDOUT && share_ending(client) != 0) {
			/* somebody stops the broker, which waits for those who hold something */
			return SHARE_EDISCONNECTED;
		} else if (r != SHARE_ETIMEDOUT && r != SHARE_EPIPE && r != SHARE_EOWNERDEAD) {
			return r; /* those that are left out wait for the next producer */
		}
		if (ending)
			return SHARE_EINTR;
	}
}

static void pause_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL); /* a signal ends it */
}

static int receive_for_ever(void)
{
	int received = 0, connections = 0, r;
	share_channel *ch;
	long wait_ms = 50;

	while (!ending) {
		r = open_channel(SHARE_CONSUMER, &ch);
		if (r == 0) {
			printf("reconnect: connected\n");
			connections++;
			wait_ms = 50;
			/* a signal that came before there was a client has set this */
			r = ending ? SHARE_EINTR : receive(ch, &received);
			close_channel(ch);
		}
		switch (r) {
		case SHARE_EINTR:
			break;
		case SHARE_ENOBROKER:     /* it is being started */
		case SHARE_ETIMEDOUT:     /* it hangs */
		case SHARE_EDISCONNECTED: /* it has ended, or is about to */
		case SHARE_ESTALE:        /* we were left behind by the producers */
			pause_ms(wait_ms);
			wait_ms = wait_ms < 5000 ? 2 * wait_ms : 5000;
			break;
		default:
			fprintf(stderr, "reconnect: %s\n", share_strerror(r));
			return 1;
		}
	}
	printf("reconnect: ended received=%d connections=%d\n", received, connections);
	return 0;
}

static int send_readings(int n)
{
	share_channel *ch;
	int r = open_channel(SHARE_PRODUCER, &ch);

	if (r != 0)
		return 1;
	for (int i = 0; i < n && r == 0; i++)
		r = report(share_send(ch, NULL, &i, sizeof(i), NULL), "share_send");
	if (r == 0)
		r = report(share_channel_drain(ch, 30000), "share_channel_drain");
	close_channel(ch);
	if (r == 0)
		printf("reconnect: sent %d\n", n);
	return r != 0;
}

int main(int argc, char **argv)
{
	struct sigaction action;

	if (argc != 1 && (argc != 3 || strcmp(argv[1], "send") != 0)) {
		fprintf(stderr, "usage: reconnect [send N]\n");
		return 2;
	}
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	return argc == 3 ? send_readings(atoi(argv[2])) : receive_for_ever();
}
