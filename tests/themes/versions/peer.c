/* SPDX-License-Identifier: MIT */

/*
 * version-peer: a client that does what it is told, a line each, and answers "ok ..." or "error
 * ...". It is compiled with the headers of this version and of an older one, and run with the
 * library of either: so it calls nothing that the older one lacks.
 *
 * usage: version-peer ADDRESS
 *
 * What it allocates is filled with the byte that it is told (0 to 255), and so is the metadata.
 * What it gets has to be filled with the byte that it is told.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/fence.h>
#include <share/service.h>
#include <share/share.h>

#define SIZE     70000
#define LIMIT_MS 60000
#define ENDS     16

/* The oldest version has none, and needs none. */
#ifndef SHARE_MESSAGE_INIT
#define SHARE_MESSAGE_INIT \
	{                  \
		0          \
	}
#endif

static share_client *client;
static share_pool *pool;
static char said[1024];        /* behind "ok" */
static const char *own_reason; /* why not, if the library has not said it */

static struct end {
	char name[64];
	share_channel *channel;
	share_message message; /* that was received last, and is not acknowledged */
} ends[ENDS];

static int refuse(const char *why)
{
	own_reason = why;
	return -1;
}

static void text_of(unsigned byte, char text[static 32])
{
	snprintf(text, 32, "{\"byte\":%u}", byte);
}

static share_buffer *filled(const char *byte)
{
	unsigned value = (unsigned)atoi(byte);
	char text[32];
	share_buffer *b;

	if (share_alloc(pool, SIZE, NULL, &b) != 0)
		return NULL;
	memset(share_ptr(b), (int)value, SIZE);
	text_of(value, text);
	if (share_metadata_set(b, text) == 0)
		return b;
	share_release(b, NULL);
	return NULL;
}

static int expect_content(share_buffer *b, const char *byte)
{
	const unsigned char *p = share_ptr(b);

	if (share_size(b) != SIZE)
		return refuse("it has another size");
	for (size_t i = 0; i < SIZE; i++)
		if (p[i] != (unsigned)atoi(byte))
			return refuse("it has other bytes");
	return 0;
}

static int say_metadata(share_buffer *b)
{
	char *text;
	int r = share_metadata_get(b, &text);

	if (r != 0)
		return r;
	snprintf(said, sizeof(said), "%s", text);
	free(text);
	return 0;
}

/* Of a lease of its own. */
static int expect_all(share_buffer *b, const char *byte)
{
	char text[32];
	int r = expect_content(b, byte);

	text_of((unsigned)atoi(byte), text);
	if (r == 0)
		r = say_metadata(b);
	if (r == 0 && strcmp(said, text) != 0)
		r = refuse("it has other metadata");
	share_release(b, NULL);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Names and tokens                                                                            */

static int do_publish(const char *name, const char *byte)
{
	share_buffer *b = filled(byte);
	int r = b ? share_publish(b, name, NULL) : -1;

	if (b)
		share_release(b, NULL);
	return r;
}

static int do_lookup(const char *name, const char *byte)
{
	share_buffer *b;
	int r = share_lookup(client, name, SHARE_RDONLY, LIMIT_MS, NULL, &b);

	return r == 0 ? expect_all(b, byte) : r;
}

/* The content alone: bridges add to metadata. */
static int do_has(const char *name, const char *byte)
{
	share_buffer *b;
	int r = share_lookup(client, name, SHARE_RDONLY, LIMIT_MS, NULL, &b);

	if (r != 0)
		return r;
	r = expect_content(b, byte);
	share_release(b, NULL);
	return r;
}

static int gate[2];

static void wait_at_gate(void *data)
{
	char byte;

	if (read(gate[0], &byte, 1) == 1)
		memset(data, byte, SIZE);
}

/* The work that fills it has yet to run: "finish" lets it. */
static int do_begin(const char *name, const char *byte)
{
	static share_host_stream *stream;
	share_buffer *b = filled("0");
	char text[32];
	int r;

	if (!b || pipe(gate) != 0)
		return -1;
	text_of((unsigned)atoi(byte), text);
	r = share_metadata_set(b, text);
	if (r == 0)
		r = share_host_stream_create(client, &stream);
	if (r == 0)
		r = share_host_stream_launch(stream, wait_at_gate, share_ptr(b));
	if (r == 0)
		r = share_publish(b, name, stream);
	share_release(b, stream);
	return r;
}

static int do_finish(const char *byte, const char *unused)
{
	char value = (char)atoi(byte);

	(void)unused;
	return write(gate[1], &value, 1) == 1 ? 0 : -1;
}

static int do_export(const char *byte, const char *uses)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = filled(byte);
	share_token token;
	int r;

	if (!b)
		return -1;
	options.uses = (unsigned)atoi(uses);
	r = share_export_with(b, &options, NULL, &token);
	share_release(b, NULL);
	for (size_t i = 0; r == 0 && i < sizeof(token.bytes); i++)
		snprintf(said + 2 * i, 3, "%02x", token.bytes[i]);
	return r;
}

static int do_import(const char *text, const char *byte)
{
	share_token token;
	share_buffer *b;
	int r;

	for (size_t i = 0; i < sizeof(token.bytes); i++)
		if (sscanf(text + 2 * i, "%2hhx", &token.bytes[i]) != 1)
			return refuse("that is no token");
	r = share_import(client, &token, SHARE_RDONLY, NULL, &b);
	return r == 0 ? expect_all(b, byte) : r;
}

static share_buffer *came;
static int came_with = 1;

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)data;
	came = b;
	came_with = error;
}

static void dispatch(void)
{
	struct pollfd fd = {share_get_fd(client), POLLIN, 0};

	poll(&fd, 1, LIMIT_MS);
	share_dispatch(client);
}

static share_operation *operation;

static int do_await(const char *name, const char *unused)
{
	(void)unused;
	return share_lookup_async(client, name, SHARE_RDONLY, -1, NULL, on_lookup, NULL,
				  &operation);
}

static int do_awaited(const char *byte, const char *unused)
{
	(void)unused;
	while (came_with > 0)
		dispatch();
	share_cancel(operation);
	return came_with == 0 ? expect_all(came, byte) : came_with;
}

static char seen[64];

static void on_name(const share_name_event *e, void *data)
{
	(void)data;
	snprintf(seen, sizeof(seen), "%s", e->name);
}

static int do_watch(const char *prefix, const char *unused)
{
	static share_watch *watch;

	(void)unused;
	return share_watch_names(client, prefix, on_name, NULL, &watch);
}

static int do_saw(const char *name, const char *unused)
{
	(void)unused;
	while (strcmp(seen, name) != 0)
		dispatch();
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Channels                                                                                    */

/* A queue, if its name says so. */
static int do_open(const char *name, const char *role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct end *e = ends;

	while (e->channel)
		e++;
	snprintf(e->name, sizeof(e->name), "%s", name);
	options.depth = 8;
	options.mode = strncmp(name, "queue", 5) == 0 ? SHARE_QUEUE : SHARE_BROADCAST;
	return share_channel_open(client, name,
				  strcmp(role, "producer") == 0 ? SHARE_PRODUCER : SHARE_CONSUMER,
				  &options, &e->channel);
}

static struct end *end_of(const char *name)
{
	struct end *e = ends;

	while (strcmp(e->name, name) != 0)
		e++;
	return e;
}

static int do_send(const char *name, const char *byte)
{
	share_buffer *b = filled(byte);
	int r = b ? share_send(end_of(name)->channel, b, byte, strlen(byte), NULL) : -1;

	if (b)
		share_release(b, NULL);
	return r;
}

static int do_recv(const char *name, const char *byte)
{
	struct end *e = end_of(name);
	share_message *m = &e->message;
	size_t size = strlen(byte);
	int r;

	*m = (share_message)SHARE_MESSAGE_INIT;
	r = share_recv(e->channel, LIMIT_MS, NULL, m);

	/* Python has more before it */
	if (r == 0 && (m->data_size < size || memcmp(m->data + m->data_size - size, byte, size)))
		r = refuse("it is another message");
	return r == 0 ? expect_content(m->buffer, byte) : r;
}

static int do_lent(const char *name, const char *unused)
{
	(void)unused;
	return say_metadata(end_of(name)->message.buffer);
}

static int do_ack(const char *name, const char *byte)
{
	share_message *m = &end_of(name)->message;
	int r = expect_content(m->buffer, byte);

	return r == 0 ? share_ack(m, NULL) : r;
}

int share_reject(share_message *m, void *stream) __attribute__((weak));

static int do_reject(const char *name, const char *unused)
{
	(void)unused;
	return share_reject ? share_reject(&end_of(name)->message, NULL) : refuse("there is none");
}

/* ------------------------------------------------------------------------------------------- */
/* Services                                                                                    */

static share_service *service;
static share_pending *pending;

static int do_serve(const char *name, const char *role)
{
	return share_service_open(client, name,
				  strcmp(role, "worker") == 0 ? SHARE_WORKER : SHARE_CALLER, NULL,
				  &service);
}

static int do_ask(const char *byte, const char *unused)
{
	share_buffer *b = filled(byte);
	int r = b ? share_call_start(service, b, byte, strlen(byte), LIMIT_MS, NULL, &pending) : -1;

	(void)unused;
	if (b)
		share_release(b, NULL);
	return r;
}

static int do_work(const char *byte, const char *answer)
{
	share_message request = SHARE_MESSAGE_INIT;
	share_buffer *b = filled(answer);
	int r = b ? share_next_request(service, LIMIT_MS, NULL, &request) : -1;

	if (r == 0)
		r = expect_content(request.buffer, byte);
	if (r == 0)
		r = share_reply(&request, b, answer, strlen(answer), NULL);
	if (b)
		share_release(b, NULL);
	return r;
}

static int do_answered(const char *byte, const char *unused)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_call_finish(pending, LIMIT_MS, NULL, &m);

	(void)unused;
	if (r == 0)
		r = expect_content(m.buffer, byte);
	return r == 0 ? share_ack(&m, NULL) : r;
}

/* ------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*function)(const char *, const char *);
} orders[] = {
    {"publish", do_publish},   {"lookup", do_lookup}, {"begin", do_begin}, {"finish", do_finish},
    {"export", do_export},     {"import", do_import}, {"await", do_await}, {"awaited", do_awaited},
    {"watch", do_watch},       {"saw", do_saw},       {"open", do_open},   {"send", do_send},
    {"recv", do_recv},         {"lent", do_lent},     {"ack", do_ack},     {"serve", do_serve},
    {"has", do_has},           {"reject", do_reject}, {"ask", do_ask},     {"work", do_work},
    {"answered", do_answered},
};

static int obey(const char *line)
{
	char what[16] = "", first[128] = "", second[128] = "";

	sscanf(line, "%15s %127s %127s", what, first, second);
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (strcmp(orders[i].name, what) == 0)
			return orders[i].function(first, second);
	return refuse("there is no such order");
}

static void answer(int r)
{
	if (r == 0)
		printf("ok %s\n", said);
	else
		printf("error %s\n", own_reason ? own_reason : share_error_detail());
	fflush(stdout);
	said[0] = '\0';
	own_reason = NULL;
}

int main(int argc, char **argv)
{
	char line[512];
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: version-peer ADDRESS\n");
		return 2;
	}
	r = share_connect(argv[1], &client);
	if (r == 0)
		r = share_pool_open(client, "default", &pool);
	answer(r);
	if (r != 0)
		return 1;
	while (fgets(line, sizeof(line), stdin))
		answer(obey(line));
	for (struct end *e = ends; e < ends + ENDS; e++)
		if (e->channel)
			share_channel_close(e->channel);
	if (service)
		share_service_close(service);
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
