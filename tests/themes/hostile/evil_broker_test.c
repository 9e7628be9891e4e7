/* SPDX-License-Identifier: MIT */

/*
 * A broker that means harm: the real one, with somebody in between who changes its grants, and what
 * it says of channels. The library notices: no program gets a buffer that is less than what it has
 * asked for, and nothing is looked for beyond the pages of a channel.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <share/channel.h>

#include "pages/channel_page.h"
#include "tests/harness/fixture.h"
#include "wire/packet.h"
#include "wire/wire.h"

TestSuite(evil_broker, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

/* What is done to each grant of a buffer, and to each channel. */
struct evil {
	char path[108];
	void (*spoil)(struct wire_grant *m);
	bool moves_members;
};

/* To the first slot that there is not. */
static void move_member(struct wire_channel *m)
{
	struct channel_shape shape;

	memcpy(&shape, m->shape.data, CHANNEL_SHAPE_SENT);
	m->slot = shape.consumers;
}

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	check(fd >= 0);
	return fd;
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

/* False at the end. */
static bool pass_on(int from, int to, const struct evil *evil)
{
	static unsigned char packet[WIRE_PACKET_MAX], changed[WIRE_PACKET_MAX];
	struct fd_list fds = {.n = 0};
	size_t size = sizeof(packet);
	struct wire_message m;
	const void *data = packet;
	uint64_t number;
	bool sent;

	if (packet_receive(from, packet, &size, &fds, true) < 0)
		return false;
	if (evil && wire_decode(&m, WIRE_TO_CLIENT, packet, size, fds.n) == 0 &&
	    ((m.type == WIRE_GRANT && m.grant.buffer != 0) || m.type == WIRE_CHANNEL)) {
		if (m.type == WIRE_GRANT)
			evil->spoil(&m.grant);
		else if (evil->moves_members)
			move_member(&m.channel);
		check(wire_take_number(packet, &size, &number) == 0);
		size = wire_put_number(changed, wire_encode(&m, changed, sizeof(changed)), number);
		data = changed;
	}
	sent = packet_send(to, data, size, fds.fds, fds.n, true) == 0;
	fd_list_close(&fds);
	return sent;
}

static void stand_in_between(struct child *self, void *data)
{
	struct evil *evil = data;
	struct sockaddr_un own = address_of(evil->path), real = address_of(broker_socket());
	int listener = open_socket(), broker = open_socket(), client;
	struct pollfd p[2];

	check(bind(listener, (struct sockaddr *)&own, sizeof(own)) == 0);
	check(listen(listener, 1) == 0);
	child_point(self, "listens");
	client = accept(listener, NULL, NULL);
	check(client >= 0 && connect(broker, (struct sockaddr *)&real, sizeof(real)) == 0);
	p[0] = (struct pollfd){.fd = client, .events = POLLIN};
	p[1] = (struct pollfd){.fd = broker, .events = POLLIN};
	while (poll(p, 2, -1) > 0) {
		if (p[0].revents && !pass_on(client, broker, NULL))
			break;
		if (p[1].revents && !pass_on(broker, client, evil))
			break;
	}
	close(client);
	close(broker);
	close(listener);
}

static struct child *start_evil(struct evil *evil, void (*spoil)(struct wire_grant *m),
				share_client **c)
{
	struct child *child;

	evil->spoil = spoil;
	strcpy(evil->path, "/tmp/share-evil-XXXXXX");
	close(mkstemp(evil->path));
	unlink(evil->path);
	child = child_start(stand_in_between, evil);
	child_wait(child, "listens");
	child_go(child);
	check_ok(share_connect(evil->path, c));
	return child;
}

static void end_evil(struct child *child, struct evil *evil, share_client *c)
{
	share_disconnect(c);
	child_finish(child);
	unlink(evil->path);
}

static void change_nothing(struct wire_grant *m)
{
	(void)m;
}

static void allow_reading_only(struct wire_grant *m)
{
	m->mode = SHARE_RDONLY;
}

static void allow_nothing(struct wire_grant *m)
{
	m->mode = 0;
}

static void allow_what_there_is_not(struct wire_grant *m)
{
	m->mode = UINT32_MAX;
}

static void be_smaller(struct wire_grant *m)
{
	m->size--;
}

static void be_empty(struct wire_grant *m)
{
	m->size = 0;
}

static void reach_beyond(struct wire_grant *m)
{
	m->offset = m->segment_size - m->size + 1;
}

static void wrap_round(struct wire_grant *m)
{
	m->offset = UINT64_MAX - m->size + 2;
}

static void (*const spoils[])(struct wire_grant *m) = {
    allow_reading_only, allow_nothing, allow_what_there_is_not, be_smaller, be_empty,
    reach_beyond,       wrap_round,
};

static void expect_no_buffer(int r)
{
	if (r != SHARE_EPROTO)
		check_error(r, SHARE_EDISCONNECTED);
}

Test(evil_broker, one_that_changes_nothing_serves)
{
	struct evil evil = {.moves_members = false};
	share_client *c;
	struct child *child = start_evil(&evil, change_nothing, &c);
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);

	memset(share_ptr(b), 1, 4096);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	end_evil(child, &evil, c);
}

Test(evil_broker, an_allocation_is_writable_and_as_large_as_it_was_asked_for_or_fails)
{
	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
		struct evil evil = {.moves_members = false};
		share_client *c;
		struct child *child = start_evil(&evil, spoils[i], &c);
		share_pool *p = open_pool(c);
		share_buffer *b = NULL;

		expect_no_buffer(share_alloc(p, 4096, NULL, &b));
		share_pool_close(p);
		end_evil(child, &evil, c);
	}
}

Test(evil_broker, so_is_what_is_looked_up_for_writing_or_imported)
{
	static void (*const modes[])(struct wire_grant *) = {allow_reading_only, allow_nothing,
							     allow_what_there_is_not};
	share_client *honest = connect_as("honest");
	share_pool *p = open_pool(honest);
	share_buffer *b = allocate(p, 4096, NULL), *got;
	share_export_options writable = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;

	writable.mode = SHARE_RDWR;
	check_ok(share_publish(b, "name", NULL));
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		for (int import = 0; import < 2; import++) {
			struct evil evil = {.moves_members = false};
			share_client *c;
			struct child *child = start_evil(&evil, modes[i], &c);

			check_ok(share_export_with(b, &writable, NULL, &token));
			expect_no_buffer(import
					     ? share_import(c, &token, SHARE_RDWR, NULL, &got)
					     : share_lookup(c, "name", SHARE_RDWR, 0, NULL, &got));
			end_evil(child, &evil, c);
		}
	}
	check_ok(share_unpublish(honest, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(honest);
}

/* What a member writes and reads is where its slot is. */
Test(evil_broker, a_member_beyond_the_pages_of_a_channel_is_none)
{
	for (int role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
		struct evil evil = {.moves_members = true};
		share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
		share_channel *ch;
		share_client *c;
		struct child *child = start_evil(&evil, change_nothing, &c);

		options.producers = options.consumers = 2;
		check_error(share_channel_open(c, "c", role, &options, &ch), SHARE_EPROTO);
		end_evil(child, &evil, c);
	}
}
