/* SPDX-License-Identifier: MIT */

/*
 * What counts_test.sh counts the instructions of: each function here calls one function of the
 * library, once, so that what is counted in it is that and a few of its own.
 *
 * usage: counts VALGRIND OUT, which starts a broker, and itself under callgrind; or counts ADDRESS.
 * $COUNT_MODE: "queue", or the channel is a broadcast; "request": what asks the broker, which takes
 * that nothing is kept here ($SHARE_MAGAZINES).
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/service.h>
#include <share/share.h>

#define BATCH 64
#define TURNS 400

#define COUNTED __attribute__((noinline, noipa))

static share_client *client;
static share_pool *pool;
static share_channel *tx, *rx;
static share_service *caller, *worker;
static share_outgoing out[BATCH];
static share_message in[BATCH], request, answer;
static share_pending *pending;
static share_buffer *buffer;
static const unsigned char data[64];

static void must(int r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "counts: %s\n", share_error_detail());
	exit(1);
}

COUNTED void counted_send_64(void);
COUNTED void counted_recv_64(void);
COUNTED void counted_ack_64(void);
COUNTED void counted_send(void);
COUNTED void counted_recv(void);
COUNTED void counted_ack(void);
COUNTED void counted_look(void);
COUNTED void counted_alloc(void);
COUNTED void counted_give(void);
COUNTED void counted_recv_memory(void);
COUNTED void counted_ack_memory(void);
COUNTED void counted_call(void);
COUNTED void counted_answer(void);
COUNTED void counted_ping(void);
COUNTED void counted_ask_alloc(void);
COUNTED void counted_ask_lookup(void);
COUNTED void counted_ask_release(void);

void counted_send_64(void)
{
	must(share_send_many(tx, out, BATCH, NULL));
}

void counted_recv_64(void)
{
	must(share_recv_many(rx, 0, NULL, in, BATCH) == BATCH ? 0 : -1);
}

void counted_ack_64(void)
{
	must(share_ack_many(in, BATCH, NULL));
}

void counted_send(void)
{
	must(share_send(tx, NULL, data, sizeof(data), NULL));
}

void counted_recv(void)
{
	must(share_recv(rx, 0, NULL, in));
}

void counted_ack(void)
{
	must(share_ack(in, NULL));
}

void counted_look(void)
{
	must(share_recv(rx, 0, NULL, in) == SHARE_EAGAIN ? 0 : -1);
}

void counted_alloc(void)
{
	must(share_alloc(pool, 4096, NULL, &buffer));
}

void counted_give(void)
{
	must(share_give(tx, buffer, data, sizeof(data), NULL));
}

void counted_recv_memory(void)
{
	must(share_recv(rx, 0, NULL, in));
}

void counted_ack_memory(void)
{
	must(share_ack(in, NULL));
}

void counted_call(void)
{
	must(share_call_start(caller, NULL, data, sizeof(data), 1000, NULL, &pending));
}

void counted_answer(void)
{
	must(share_call_finish(pending, 0, NULL, &answer));
}

void counted_ping(void)
{
	must(share_ping(client));
}

void counted_ask_alloc(void)
{
	must(share_alloc(pool, 4096, NULL, &buffer));
}

void counted_ask_lookup(void)
{
	must(share_lookup(client, "counts", SHARE_RDONLY, 0, NULL, &buffer));
}

void counted_ask_release(void)
{
	must(share_release(buffer, NULL));
}

/* ------------------------------------------------------------------------------------------- */

static void requests(const char *address)
{
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;
	share_buffer *named;

	must(share_connect(address, &client));
	memory.kind = "host";
	must(share_pool_create(client, "counts", &memory, &pool));
	must(share_alloc(pool, 4096, NULL, &named));
	must(share_publish(named, "counts", NULL));
	for (int i = 0; i < TURNS; i++) {
		counted_ping();
		counted_ask_alloc();
		must(share_release(buffer, NULL));
		counted_ask_lookup();
		counted_ask_release();
	}
}

static void open_all(const char *address)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_service_options service = SHARE_SERVICE_OPTIONS_INIT;
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;
	const char *mode = getenv("COUNT_MODE");

	must(share_connect(address, &client));
	memory.kind = "host";
	must(share_pool_create(client, "counts", &memory, &pool));
	options.pool = service.pool = "counts";
	options.depth = 1024;
	options.when_full = SHARE_FULL_FAIL;
	if (mode && strcmp(mode, "queue") == 0)
		options.mode = SHARE_QUEUE;
	must(share_channel_open(client, "counts", SHARE_PRODUCER, &options, &tx));
	must(share_channel_open(client, "counts", SHARE_CONSUMER, &options, &rx));
	must(share_service_open(client, "counted", SHARE_CALLER, &service, &caller));
	must(share_service_open(client, "counted", SHARE_WORKER, &service, &worker));
	for (size_t i = 0; i < BATCH; i++) {
		out[i] = (share_outgoing)SHARE_OUTGOING_INIT;
		out[i].data = data;
		out[i].data_size = sizeof(data);
		in[i] = (share_message)SHARE_MESSAGE_INIT;
	}
	request = answer = (share_message)SHARE_MESSAGE_INIT;
}

/* So that what happens once is over. */
static void warm_up(void)
{
	for (int i = 0; i < 4 * TURNS; i++) {
		must(share_send_many(tx, out, BATCH, NULL));
		must(share_recv_many(rx, 0, NULL, in, BATCH));
		must(share_ack_many(in, BATCH, NULL));
	}
}

static void with_memory(bool counted)
{
	for (int i = 0; i < TURNS; i++) {
		if (!counted) {
			must(share_alloc(pool, 4096, NULL, &buffer));
			must(share_give(tx, buffer, data, sizeof(data), NULL));
			must(share_recv(rx, 0, NULL, in));
			must(share_ack(in, NULL));
			continue;
		}
		counted_alloc();
		counted_give();
		counted_recv_memory();
		counted_ack_memory();
	}
}

static void calls(bool counted)
{
	for (int i = 0; i < TURNS; i++) {
		if (counted)
			counted_call();
		else
			must(share_call_start(caller, NULL, data, sizeof(data), 1000, NULL,
					      &pending));
		must(share_next_request(worker, 0, NULL, &request));
		must(share_reply(&request, NULL, data, sizeof(data), NULL));
		if (counted)
			counted_answer();
		else
			must(share_call_finish(pending, 0, NULL, &answer));
		must(share_ack(&answer, NULL));
	}
}

static int run(const char *address)
{
	const char *mode = getenv("COUNT_MODE");

	if (mode && strcmp(mode, "request") == 0) {
		requests(address);
		_exit(0);
	}
	open_all(address);
	warm_up();
	for (int i = 0; i < TURNS; i++) {
		counted_send_64();
		counted_recv_64();
		counted_ack_64();
	}
	for (int i = 0; i < TURNS; i++) {
		counted_send();
		counted_recv();
		counted_ack();
		counted_look();
	}
	with_memory(false);
	with_memory(true);
	calls(false);
	calls(true);
	_exit(0); /* the broker, which is no child of ours, sees us go */
}

int main(int argc, char **argv)
{
	char file[1024];
	share_client *c;
	pid_t pid;
	int status;

	if (argc == 2)
		return run(argv[1]);
	if (argc != 3)
		return 64;
	must(share_connect("embedded", &c));
	snprintf(file, sizeof(file), "--callgrind-out-file=%s", argv[2]);
	pid = fork();
	if (pid == 0) {
		execl(argv[1], argv[1], "--tool=callgrind", "-q", file,
		      "--toggle-collect=counted_*", "--separate-threads=yes", argv[0],
		      share_address(c), (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	share_disconnect(c);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
