/* SPDX-License-Identifier: MIT */

/*
 * A broker that goes on for one that died: it sends again what may not have come, and has forgotten
 * who was about to connect. Here it is a thread that says what a test has it say.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <poll.h>
#include <share/share.h>

#include "pages/timeline.h"
#include "wire/packet.h"
#include "wire/wire.h"

#define FIRST 7 /* the number of WELCOME */

/* The thread, and its connection. */
static struct {
	char directory[32], path[64];
	pthread_t thread;
	int listener, socket;
	void (*serve)(void);
	uint32_t serial;  /* of what it was asked last */
	atomic_int came;  /* connections */
	atomic_int probe; /* at the end once nobody has the descriptor that was sent */
} broker;

static void *run(void *unused)
{
	while ((broker.socket = accept4(broker.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		broker.came++;
		broker.serve();
		close(broker.socket);
	}
	return unused;
}

static void start(void (*serve)(void))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	broker.probe = -1;
	strcpy(broker.directory, "/tmp/share-repeats-XXXXXX");
	cr_assert(mkdtemp(broker.directory));
	snprintf(broker.path, sizeof(broker.path), "%s/socket", broker.directory);
	strcpy(address.sun_path, broker.path);
	broker.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert(bind(broker.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(listen(broker.listener, 16) == 0);
	broker.serve = serve;
	cr_assert(pthread_create(&broker.thread, NULL, run, NULL) == 0);
}

static void stop(void)
{
	shutdown(broker.listener, SHUT_RDWR);
	pthread_join(broker.thread, NULL);
	close(broker.listener);
	fd_close(broker.probe);
	unlink(broker.path);
	rmdir(broker.directory);
}

TestSuite(repeating_broker, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

/* False at the end, which a goodbye is, too. */
static bool hear(enum wire_type type)
{
	static unsigned char packet[WIRE_PACKET_MAX];
	size_t size = sizeof(packet);
	struct fd_list fds = {.n = 0};
	struct wire_message m;

	if (packet_receive(broker.socket, packet, &size, &fds, true) < 0)
		return false;
	cr_assert_eq(wire_decode(&m, WIRE_TO_BROKER, packet, size, fds.n), 0);
	if (m.type == WIRE_BYE)
		return false;
	cr_assert_eq(m.type, type);
	broker.serial = m.serial;
	return true;
}

static void send_bytes(const void *data, size_t size, int fd)
{
	cr_assert_eq(packet_send(broker.socket, data, size, &fd, fd >= 0, true), 0);
}

/* @number: 0 for none. With @fd, which is the caller's, if it is not -1. */
static void say(struct wire_message m, uint64_t number, int fd)
{
	unsigned char packet[1024];
	size_t size = wire_encode(&m, packet, sizeof(packet));

	send_bytes(packet, number ? wire_put_number(packet, size, number) : size, fd);
}

static void say_done(uint64_t number)
{
	say((struct wire_message){.type = WIRE_DONE, .serial = broker.serial}, number, -1);
}

static void say_farewell(int error, const char *why)
{
	struct wire_message m = {.type = WIRE_ERROR};

	m.error.error = error;
	m.error.detail = (struct wire_bytes){why, (uint32_t)strlen(why)};
	say(m, 0, -1);
}

static void welcome(void)
{
	struct wire_message m = {.type = WIRE_WELCOME};
	int fd = timeline_create();

	cr_assert(fd >= 0);
	cr_assert(hear(WIRE_HELLO));
	m.serial = broker.serial;
	m.welcome.version = WIRE_VERSION;
	m.welcome.slots = TIMELINE_SLOTS;
	m.welcome.page = m.welcome.client = 1;
	say(m, FIRST, fd);
	close(fd);
}

static void greet(void)
{
	welcome();
	cr_assert(hear(WIRE_READY));
	say_done(FIRST + 1);
}

/* Until the client goes. */
static void answer_all(uint64_t number)
{
	while (hear(WIRE_PING))
		say_done(number++);
}

static share_client *connect_to_it(void)
{
	share_client *c;
	int r = share_connect(broker.path, &c);

	cr_assert_eq(r, 0, "%s", share_error_detail());
	return c;
}

/* ------------------------------------------------------------------------------------------- */

/* With a descriptor, though DONE has none: nobody looks at that any more. */
static void answer_twice(void)
{
	int ends[2];

	greet();
	cr_assert(hear(WIRE_PING));
	say_done(FIRST + 3);
	cr_assert(pipe(ends) == 0);
	say((struct wire_message){.type = WIRE_DONE, .serial = broker.serial}, FIRST + 3, ends[1]);
	say_done(FIRST + 1);
	close(ends[1]);
	broker.probe = ends[0];
	answer_all(FIRST + 10);
}

Test(repeating_broker, what_comes_twice_is_heard_once_and_its_descriptors_are_closed)
{
	share_client *c;
	struct pollfd p = {.events = POLLIN};

	start(answer_twice);
	c = connect_to_it();
	cr_assert_eq(share_ping(c), 0);
	cr_assert_eq(share_ping(c), 0, "%s", share_error_detail());
	p.fd = broker.probe;
	cr_assert_eq(poll(&p, 1, 0), 1);
	cr_assert(p.revents & POLLHUP);
	cr_assert_eq(share_ping(c), 0);
	share_disconnect(c);
}

static void repeat_what_is_no_message(void)
{
	unsigned char packet[64];
	size_t size;

	greet();
	cr_assert(hear(WIRE_PING));
	memset(packet, 0xff, sizeof(packet));
	size = wire_put_number(packet, WIRE_HEADER_SIZE, FIRST);
	send_bytes(packet, size, -1);
	size = wire_put_number(packet, 40, 0);
	send_bytes(packet, size, -1);
	say_done(FIRST + 2);
	answer_all(FIRST + 3);
}

Test(repeating_broker, nothing_is_looked_at_before_the_number)
{
	share_client *c;

	start(repeat_what_is_no_message);
	c = connect_to_it();
	cr_assert_eq(share_ping(c), 0, "%s", share_error_detail());
	cr_assert_eq(share_ping(c), 0, "%s", share_error_detail());
	share_disconnect(c);
}

static void repeat_from_the_first(void)
{
	welcome();
	cr_assert(hear(WIRE_READY));
	say((struct wire_message){.type = WIRE_ERROR, .serial = broker.serial}, FIRST, -1);
	say_done(FIRST + 1);
	answer_all(UINT64_C(2) << 48 | 1); /* of the next broker */
}

Test(repeating_broker, the_number_of_welcome_is_the_first)
{
	share_client *c;

	start(repeat_from_the_first);
	c = connect_to_it();
	cr_assert_eq(share_ping(c), 0, "%s", share_error_detail());
	cr_assert_eq(share_ping(c), 0, "%s", share_error_detail());
	share_disconnect(c);
}

static void leave_the_number_out(void)
{
	greet();
	cr_assert(hear(WIRE_PING));
	send_bytes("\4\0\0\0\1\0\0\0", WIRE_HEADER_SIZE, -1);
	hear(WIRE_PING);
}

Test(repeating_broker, a_packet_without_room_for_a_number_ends_the_connection)
{
	share_client *c;

	start(leave_the_number_out);
	c = connect_to_it();
	cr_assert_eq(share_ping(c), SHARE_EDISCONNECTED);
	cr_assert(strstr(share_error_detail(), "without its number"), "%s", share_error_detail());
	share_disconnect(c);
}

static void say_farewell_later(void)
{
	greet();
	cr_assert(hear(WIRE_PING));
	say_farewell(SHARE_EQUOTA, "enough");
}

Test(repeating_broker, a_farewell_has_no_number_and_is_heard)
{
	share_client *c;

	start(say_farewell_later);
	c = connect_to_it();
	cr_assert_eq(share_ping(c), SHARE_EDISCONNECTED);
	cr_assert(strstr(share_error_detail(), "enough"), "%s", share_error_detail());
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

/* Each time later. */
static void hang_up_in_the_handshake(void)
{
	switch (broker.came) {
	case 1:
		return;
	case 2:
		hear(WIRE_HELLO);
		return;
	case 3:
		welcome();
		return;
	case 4:
		welcome();
		hear(WIRE_READY);
		return;
	default:
		greet();
		answer_all(FIRST + 2);
	}
}

Test(repeating_broker, a_handshake_that_is_hung_up_is_begun_again)
{
	share_client *c;

	start(hang_up_in_the_handshake);
	c = connect_to_it();
	cr_assert_eq(broker.came, 5);
	cr_assert_eq(share_ping(c), 0);
	share_disconnect(c);
}

static void hang_up(void)
{
	hear(WIRE_HELLO);
}

Test(repeating_broker, but_not_for_ever)
{
	share_client *c;

	start(hang_up);
	cr_assert_eq(share_connect(broker.path, &c), SHARE_EDISCONNECTED);
	cr_assert(broker.came >= 5 && broker.came <= 16, "%d times", broker.came);
}

static void refuse(void)
{
	hear(WIRE_HELLO);
	say_farewell(SHARE_EDISCONNECTED, "go away");
}

Test(repeating_broker, who_is_refused_does_not_come_again)
{
	struct pollfd p = {.events = POLLIN};
	share_client *c;

	start(refuse);
	cr_assert_eq(share_connect(broker.path, &c), SHARE_EDISCONNECTED);
	cr_assert(strstr(share_error_detail(), "go away"), "%s", share_error_detail());
	p.fd = broker.listener;
	cr_assert_eq(poll(&p, 1, 0), 0);
	cr_assert_eq(broker.came, 1);
}

static void refuse_a_request(void)
{
	struct wire_message m = {.type = WIRE_ERROR};

	hear(WIRE_HELLO);
	m.serial = broker.serial;
	m.error.error = SHARE_EPROTO;
	say(m, 0, -1);
}

Test(repeating_broker, nor_who_gets_an_error_for_hello)
{
	share_client *c;

	start(refuse_a_request);
	cr_assert_eq(share_connect(broker.path, &c), SHARE_EPROTO);
	cr_assert_eq(broker.came, 1);
}
