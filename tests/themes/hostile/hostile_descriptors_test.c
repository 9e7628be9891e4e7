/* SPDX-License-Identifier: MIT */

/*
 * Descriptors that nobody asked for. To close the last one of a socket may take as long as its
 * former owner likes: a TCP socket that lingers has bytes which its peer does not read. Whoever
 * sends the broker such a thing holds nobody up, whether the broker reads the packet, hangs up on
 * it unread, or never wanted the connection; and what it has sent is closed all the same.
 *
 * Kernels since Linux 6.16 do not let such a packet in. Every test is done with a broker that knows
 * of no such kernel as well.
 */

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

static const char config[] =
    "{\"limits\": {\"connections\": 8},"
    "\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": "
    "[{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"adopted\", \"kind\": \"adopted\", \"limit\": \"1MiB\", \"access\": "
    "[{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static share_client *witness;

static void start(void)
{
	fixture_start_with(config);
	witness = connect_as("witness");
}

static void start_old(void)
{
	broker_use_program(OLD_KERNEL_BROKER);
	start();
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_descriptors, .init = start, .fini = stop, .timeout = 120);
TestSuite(hostile_descriptors_old, .init = start_old, .fini = stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */

/* Its last descriptor waits in close() until @peer has read everything, or for some weeks. */
struct lingering {
	int socket, peer;
};

static struct lingering make_lingering(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
	struct linger linger = {1, 3000000};
	static const char bytes[65536];
	socklen_t size = sizeof(here);
	struct lingering l;

	check(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
	check(bind(listener, (struct sockaddr *)&here, size) == 0 && listen(listener, 1) == 0 &&
	      getsockname(listener, (struct sockaddr *)&here, &size) == 0);
	l.socket = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(l.socket, (struct sockaddr *)&here, size) == 0);
	l.peer = accept(listener, NULL, NULL);
	check(l.peer >= 0);
	close(listener);
	while (send(l.socket, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	check(setsockopt(l.socket, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	return l;
}

/* @copies of it go into the packet. False when the kernel or the broker does not take it. */
static bool send_along(struct raw *r, const void *data, size_t size, int fd, size_t copies)
{
	char control[CMSG_SPACE(253 * sizeof(int))] = "";
	struct iovec iov = {(void *)(uintptr_t)data, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = CMSG_SPACE(copies * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(copies * sizeof(int));
	for (size_t i = 0; i < copies; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(int));
	return sendmsg(r->socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* The broker is stopped meanwhile, so that the last descriptor is the one under way: this process
 * waits for nothing. Nobody ever reads at the other end, which stays open. */
static bool give_away(struct raw *r, const void *data, size_t size, size_t copies)
{
	const struct linger none = {0, 0};
	struct lingering l = make_lingering();
	bool sent = send_along(r, data, size, l.socket, copies);

	if (!sent)
		setsockopt(l.socket, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(l.socket);
	return sent;
}

static const unsigned char hello[] = {WIRE_HELLO,
				      0,
				      20,
				      0,
				      1,
				      0,
				      0,
				      0, /* version, oldest */
				      WIRE_VERSION,
				      0,
				      0,
				      0,
				      1,
				      0,
				      0,
				      0, /* label, unused, flags */
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0,
				      0};
static const unsigned char ping[] = {WIRE_PING, 0, 0, 0, 7, 0, 0, 0};

struct attack {
	int connections;
	bool ahead;    /* hello and ready, before the broker refuses descriptors */
	bool greeted;  /* before that */
	bool nonsense; /* ahead of it */
	bool hangs_up; /* without waiting for an answer */
};

static void greet_unheard(struct raw *r)
{
	struct wire_message ready = {.type = WIRE_READY, .serial = 2};

	check_eq(raw_send_bytes(r, hello, sizeof(hello), NULL, 0), 0);
	check_eq(raw_send(r, &ready), 0);
}

static void attacks(struct child *self, void *data)
{
	const struct attack *a = data;
	static struct raw r[16];
	bool sent[16];

	for (int i = 0; i < a->connections && a->greeted; i++)
		raw_open(&r[i], "client");
	child_point(self, "ready");
	for (int i = 0; i < a->connections; i++) {
		if (!a->greeted)
			raw_connect(&r[i]);
		if (a->ahead)
			greet_unheard(&r[i]);
		if (a->nonsense)
			check_eq(raw_send_bytes(&r[i], "nonsense", 8, NULL, 0), 0);
		/* 200 are more than any message has */
		for (int k = 0; k < 3; k++)
			sent[i] = a->greeted || a->ahead
				      ? give_away(&r[i], ping, sizeof(ping), k ? 1 : 200)
				      : give_away(&r[i], hello, sizeof(hello), k ? 1 : 200);
		if (a->hangs_up)
			raw_hang_up(&r[i]);
	}
	child_point(self, "sent");
	for (int i = 0; i < a->connections && !a->hangs_up; i++) {
		if (sent[i])
			check_eq(raw_farewell(&r[i]), SHARE_EPROTO);
		raw_hang_up(&r[i]);
	}
	child_point(self, "done");
}

/* So it is with connections that are there before the broker is: its listening socket does not
 * refuse descriptors yet. */
static void let_descriptors_in(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, broker_pid(), 0), fd, listens = 0;
	socklen_t size = sizeof(listens);
	const int on = 1;

	check(pidfd >= 0);
	for (int n = 3; n < 1024 && !listens; n++) {
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, n, 0);
		if (fd < 0)
			continue;
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
			setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on));
		close(fd);
	}
	close(pidfd);
	check(listens);
}

/* It stays until nothing of what it has sent is left in the broker: its death would end all. */
static void attack(struct attack a)
{
	struct child *child = child_start(attacks, &a);

	child_wait(child, "ready");
	if (a.ahead)
		let_descriptors_in();
	broker_freeze();
	child_go(child);
	child_wait(child, "sent");
	broker_thaw();
	check_ok(share_ping(witness));
	child_go(child);
	child_wait(child, "done");
	check_ok(share_ping(witness));
	until(descriptors_count(broker_pid()) == broker_descriptors());
	child_kill(child);
	settle(witness, s.clients == 1);
}

#define TEST_BOTH(name, ...)                          \
	Test(hostile_descriptors, name)               \
	{                                             \
		attack((struct attack){__VA_ARGS__}); \
	}                                             \
	Test(hostile_descriptors_old, name)           \
	{                                             \
		attack((struct attack){__VA_ARGS__}); \
	}

TEST_BOTH(those_in_a_first_packet_hold_nobody_up, .connections = 4)
TEST_BOTH(those_of_clients_hold_nobody_up, .connections = 4, .greeted = true)
TEST_BOTH(those_that_nobody_reads_hold_nobody_up, .connections = 4, .nonsense = true)
TEST_BOTH(those_of_who_has_gone_hold_nobody_up, .connections = 4, .hangs_up = true)
TEST_BOTH(those_that_were_sent_ahead_hold_nobody_up, .connections = 4, .ahead = true)
/* seven are let in, as the witness is of the same user */
TEST_BOTH(those_of_connections_beyond_the_limit_hold_nobody_up, .connections = 16, .hangs_up = true)

/* ------------------------------------------------------------------------------------------- */
/* Those that are sent to who does not receive them                                            */

/* It has its page's descriptors, and the end of the connection, in its socket. */
static void comes_and_goes_unheard(struct raw *r)
{
	struct wire_message bye = {.type = WIRE_BYE, .serial = 3};

	raw_connect(r);
	greet_unheard(r);
	check_eq(raw_send(r, &bye), 0);
}

Test(hostile_descriptors, connections_that_have_ended_unheard_count_until_they_are_heard)
{
	static struct raw r[7], late;
	struct status before;

	status_read(witness, &before);
	for (int i = 0; i < 7; i++)
		comes_and_goes_unheard(&r[i]);
	settle(witness, s.clients == 1 && s.connections == before.connections + 7);
	check_eq(used_of(witness, "connections"), 8);
	check_eq(used_of(witness, "descriptors"), 4 + 7);
	raw_connect(&late);
	check_eq(raw_send_bytes(&late, hello, sizeof(hello), NULL, 0), 0);
	check_error(raw_farewell(&late), SHARE_EQUOTA);
	raw_hang_up(&late);
	settle(witness, s.clients == 1);
	/* who has heard all of it comes again at once */
	for (int i = 0; i < 7; i++) {
		while (raw_receive(&r[i], HARNESS_LIMIT_MS) != RAW_END)
			;
		raw_open(&late, "late one");
		raw_ask(&late, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
		raw_close(&late);
	}
	for (int i = 0; i < 7; i++)
		raw_hang_up(&r[i]);
	until(used_of(witness, "connections") == 1);
	until(descriptors_count(broker_pid()) == broker_descriptors());
}

#define STRANGER    4711
#define DESCRIPTORS 512
#define CONNECTIONS 17

static void start_poor(void)
{
	broker_limit_descriptors(DESCRIPTORS);
	broker_without_privileges();
	fixture_start();
	witness = connect_as("witness");
}

TestSuite(hostile_hoard, .init = start_poor, .fini = stop, .timeout = 120);

/* Descriptors in the queue of a socket of this process. */
static int count_unread(int socket)
{
	char path[64], line[128];
	int n = -1;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", socket);
	info = fopen(path, "re");
	check(info);
	while (fgets(line, sizeof(line), info))
		sscanf(line, "scm_fds: %d", &n);
	fclose(info);
	check(n >= 0);
	return n;
}

struct hoard {
	bool broken; /* each says nonsense in the end, and keeps its socket */
};

static int count_all_unread(const struct raw *r)
{
	int n = 0;

	for (int i = 0; i < CONNECTIONS; i++)
		n += count_unread(r[i].socket);
	return n;
}

/* Its own page, again and again: each answer has two descriptors. */
static void hoards(struct child *self, void *data)
{
	const struct hoard *h = data;
	struct wire_message m = {.type = WIRE_TIMELINE, .serial = 7};
	static struct raw r[CONNECTIONS];
	int unread;

	child_become(STRANGER, 0);
	for (int i = 0; i < CONNECTIONS; i++)
		raw_open(&r[i], "hoarder");
	for (int i = 0; i < CONNECTIONS; i++) {
		m.timeline.page = r[i].page_id;
		for (int k = 0; k < 50; k++)
			check_eq(raw_send(&r[i], &m), 0);
		if (h->broken)
			check_eq(raw_send_bytes(&r[i], "nonsense", 8, NULL, 0), 0);
	}
	until(count_all_unread(r) >= DESCRIPTORS / 16);
	child_point(self, "hoarding");
	unread = count_all_unread(r);
	child_point_with(self, "hoarded", &unread, sizeof(unread));
}

static void expect_served(struct hoard h)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct child *child;
	share_channel *ch;
	share_client *c;
	int unread;

	skip_unless_root();
	child = child_start(hoards, &h);
	child_wait(child, "hoarding");
	for (int i = 0; i < 10; i++) {
		c = connect_as("somebody else");
		check_ok(share_channel_open(c, "c", SHARE_CONSUMER, &options, &ch));
		share_channel_close(ch);
		share_disconnect(c);
	}
	child_go(child);
	child_wait_with(child, "hoarded", &unread, sizeof(unread));
	check(unread <= DESCRIPTORS / 8 + WIRE_FDS_MAX);
	child_kill(child);
	settle(witness, s.clients == 1);
}

Test(hostile_hoard, descriptors_that_one_user_does_not_read_are_not_missing_for_others)
{
	expect_served((struct hoard){.broken = false});
}

Test(hostile_hoard, nor_are_those_of_connections_that_have_ended)
{
	expect_served((struct hoard){.broken = true});
}

/* ------------------------------------------------------------------------------------------- */

/* Refused; then both have a pool open. */
static void asks_for_a_page(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_TIMELINE};
	static struct raw r;

	(void)data;
	child_become(STRANGER, 0);
	raw_open(&r, "stranger");
	child_exchange(self, "here", NULL, 0, &m.timeline.page, sizeof(m.timeline.page));
	raw_ask_error(&r, &m, SHARE_ESTALE);
	raw_pool(&r, "default");
	raw_ask(&r, &m, WIRE_TIMELINE_PAGE);
	raw_hang_up(&r);
}

Test(hostile_hoard, a_page_is_for_those_who_can_have_been_told_of_a_fence_on_it)
{
	static struct raw owner;
	struct child *child;

	skip_unless_root();
	raw_open(&owner, "owner");
	child = child_start(asks_for_a_page, NULL);
	child_wait(child, "here");
	raw_pool(&owner, "default");
	child_go_with(child, &owner.page_id, sizeof(owner.page_id));
	child_finish(child);
	raw_close(&owner);
	settle(witness, s.clients == 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Those of who is to bring some                                                               */

/* What a client may bring is a file in memory. */
static void brings(struct child *self, void *data)
{
	const size_t copies = *(const size_t *)data;
	struct wire_message m = {.type = WIRE_ADOPT};
	static struct raw r[4];
	unsigned char packet[64];
	size_t size;

	for (int i = 0; i < 4; i++) {
		raw_open(&r[i], "client");
		m.adopt.pool = raw_pool(&r[i], "adopted");
		m.adopt.size = 4096;
		/* from now on it may */
		raw_ask_error(&r[i], &m, SHARE_EAGAIN);
	}
	child_point(self, "ready");
	for (int i = 0; i < 4; i++) {
		m.serial = ++r[i].serial;
		size = wire_encode(&m, packet, sizeof(packet));
		check(give_away(&r[i], packet, size, copies));
	}
	child_point(self, "sent");
	for (int i = 0; i < 4; i++) {
		check_eq(raw_farewell(&r[i]), SHARE_EPROTO);
		raw_hang_up(&r[i]);
	}
	child_point(self, "done");
}

static void attack_by_bringing(size_t copies)
{
	struct child *child = child_start(brings, &copies);

	child_wait(child, "ready");
	broker_freeze();
	child_go(child);
	child_wait(child, "sent");
	broker_thaw();
	check_ok(share_ping(witness));
	child_go(child);
	child_wait(child, "done");
	check_ok(share_ping(witness));
	until(descriptors_count(broker_pid()) == broker_descriptors());
	child_kill(child);
	settle(witness, s.clients == 1);
}

Test(hostile_descriptors, what_is_brought_and_no_memory_holds_nobody_up)
{
	attack_by_bringing(2);
}

Test(hostile_descriptors_old, what_is_brought_and_no_memory_holds_nobody_up)
{
	attack_by_bringing(2);
}

Test(hostile_descriptors, more_than_a_request_has_hold_nobody_up)
{
	attack_by_bringing(200);
}

Test(hostile_descriptors_old, more_than_a_request_has_hold_nobody_up)
{
	attack_by_bringing(200);
}

static int memory_file(size_t size, int seals)
{
	int fd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static int opened(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, flags | O_CLOEXEC);
	check(fd >= 0);
	return fd;
}

/* The answer to one ADOPT with these: 0 is a GRANT. */
static int bring(struct raw *r, uint64_t size, uint64_t offset, const int *fds, size_t n)
{
	struct wire_message m = {.type = WIRE_ADOPT};
	unsigned char packet[64];
	size_t length;

	m.adopt.pool = raw_pool(r, "adopted");
	m.adopt.size = size;
	m.adopt.offset = offset;
	m.serial = ++r->serial;
	length = wire_encode(&m, packet, sizeof(packet));
	check_eq(raw_send_bytes(r, packet, length, fds, n), 0);
	check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	return r->m.type == WIRE_GRANT ? 0 : r->m.error.error;
}

static void expect_not_brought(struct raw *r, uint64_t size, uint64_t offset, int first, int second)
{
	const int fds[] = {first, second};

	check_error(bring(r, size, offset, fds, 2), SHARE_EINVAL);
}

/* Whatever libshare would not send. */
static void says_what_it_likes(struct child *self, void *data)
{
	int fd = memory_file(8192, F_SEAL_SHRINK), other = memory_file(8192, F_SEAL_SHRINK);
	int reader = opened(fd, O_RDONLY), stranger = opened(other, O_RDONLY);
	int sealed = memory_file(8192, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
	int sealed_reader = opened(sealed, O_RDONLY), folder = open("/dev/shm", O_RDONLY);
	const int good[] = {fd, reader}, one[] = {fd};
	struct wire_message m = {.type = WIRE_PUBLISH};
	static struct raw r;

	(void)data;
	raw_open(&r, "client");
	check_error(bring(&r, 4096, 0, NULL, 0), SHARE_EAGAIN);
	check_error(bring(&r, 4096, 0, one, 1), SHARE_EINVAL);
	expect_not_brought(&r, 4096, 0, fd, fd);
	expect_not_brought(&r, 4096, 0, reader, reader);
	expect_not_brought(&r, 4096, 0, reader, fd);
	expect_not_brought(&r, 4096, 0, fd, stranger);
	expect_not_brought(&r, 4096, 0, sealed, sealed_reader);
	expect_not_brought(&r, 0, 0, fd, reader);
	expect_not_brought(&r, 8193, 0, fd, reader);
	expect_not_brought(&r, 1, 8192, fd, reader);
	expect_not_brought(&r, 2, UINT64_MAX, fd, reader);
	expect_not_brought(&r, UINT64_MAX, 2, fd, reader);
	child_point(self, "refused");
	check_eq(bring(&r, 100, 8092, good, 2), 0);
	/* no larger than it is, though the broker counts in units */
	m.publish.buffer = r.m.grant.buffer;
	m.publish.name = raw_text("name");
	m.publish.size = 101;
	fd_list_close(&r.fds);
	raw_ask_error(&r, &m, SHARE_EINVAL);
	/* what is on a tmpfs and no file is not even looked at */
	if (folder >= 0) {
		const int folders[] = {folder, folder};

		check_error(bring(&r, 1, 0, folders, 2), SHARE_EPROTO);
		close(folder);
	}
	raw_hang_up(&r);
	close(fd);
	close(other);
	close(reader);
	close(stranger);
	close(sealed);
	close(sealed_reader);
}

Test(hostile_descriptors, what_a_client_says_of_its_memory_is_not_believed)
{
	struct child *child = child_start(says_what_it_likes, NULL);

	child_wait(child, "refused");
	settle(witness, s.buffers == 0 && s.segments == 0);
	child_go(child);
	child_finish(child);
	settle(witness, s.clients == 1 && s.buffers == 0 && s.segments == 0);
}
