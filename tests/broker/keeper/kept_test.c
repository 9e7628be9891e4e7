/* SPDX-License-Identifier: MIT */

/* In which order what the keeper has too is closed, and what a broker does whose keeper does not
 * answer. The keeper is a thread of the test. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "broker/keeper/common.h"
#include "wire/packet.h"

#define ROOM (KEPT_FIXED + 2)
#define OURS (KEPT_FIXED + 1) /* a number of no fixed meaning */

static struct kept_table *table;
static int ends[2];
static pthread_t keeper;
static int watched; /* a descriptor of the broker's */
static bool was_open;

/* Answers once, and sees what the broker still has when it is told to let go. */
static void *keep(void *data)
{
	struct kept_message m;
	size_t size = sizeof(m);
	struct fd_list none;

	(void)data;
	if (packet_receive(ends[0], &m, &size, &none, true) < 0)
		return NULL;
	was_open =
	    m.word == KEPT_DROP && m.n == 1 && m.ids[0] == OURS && fcntl(watched, F_GETFD) >= 0;
	m.word = 0;
	packet_send(ends[0], &m, sizeof(m), NULL, 0, true);
	return NULL;
}

static void make_table(void)
{
	table = calloc(1, sizeof(*table) + ROOM * sizeof(struct kept_slot));
	cr_assert_not_null(table);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	table->room = ROOM;
	table->n = OURS;
	for (int i = 0; i < ROOM; i++)
		table->slots[i].fd = -1;
	watched = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(watched, 0);
	table->slots[OURS - 1].fd = watched;
}

static void start_with(void *(*run_keeper)(void *data))
{
	make_table();
	kept_init(&(struct keeper){.table = table, .broker = ends[1]});
	cr_assert_eq(pthread_create(&keeper, NULL, run_keeper, NULL), 0);
}

static void start(void)
{
	start_with(keep);
}

static void stop(void)
{
	fd_close(ends[0]);
	fd_close(ends[1]);
	free(table);
}

TestSuite(kept, .init = start, .fini = stop, .timeout = 30);

/* To close something last may take long, and the keeper is there for all. */
Test(kept, what_nobody_has_taken_is_closed_by_the_keeper_first)
{
	kept_sweep();
	pthread_join(keeper, NULL);
	cr_assert(was_open);
	cr_assert_lt(fcntl(watched, F_GETFD), 0);
}

Test(kept, what_was_taken_is_closed_by_the_keeper_first)
{
	cr_assert_eq(kept_take(OURS), watched);
	kept_close(watched);
	kept_flush(kept_waiting());
	pthread_join(keeper, NULL);
	cr_assert(was_open);
	cr_assert_lt(fcntl(watched, F_GETFD), 0);
}

static void start_rehearsal(void)
{
	make_table();
	kept_init(&(struct keeper){.table = table, .broker = ends[1], .rehearses = true});
}

TestSuite(kept_rehearsal, .init = start_rehearsal, .fini = stop, .timeout = 30);

/* It asks nobody. (Before the numbers of what the keeper has, there is nothing to write to.) */
Test(kept_rehearsal, what_it_keeps_has_no_number)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	cr_assert_eq(kept_keep(&fd, NULL, 1), 0);
	cr_assert_eq(kept_id(fd), 0);
	cr_assert_eq(kept_take(OURS), watched);
	fd_close(fd);
}

/* ------------------------------------------------------------------------------------------- */

#define KEPT_AS (KEPT_FIXED + 2)

static atomic_bool answers;
static atomic_uint dropped, served;

static void wait_until_it_answers(void)
{
	while (!answers)
		usleep(1000);
}

/* It answers everything, what is asked twice as before, and what is to be kept gets a number. */
static void *answer_all(void)
{
	struct kept_message m, last = {.serial = 0};
	size_t size = sizeof(m);
	struct fd_list fds = {.n = 0};

	while (packet_receive(ends[0], &m, &size, &fds, true) == 0) {
		fd_list_close(&fds);
		if (m.serial != last.serial) {
			for (uint32_t i = 0; m.word == KEPT_KEEP && i < m.n; i++)
				m.ids[i] = KEPT_AS;
			if (m.word == KEPT_DROP && m.ids[0] == KEPT_AS)
				dropped += m.n;
			served += m.word == KEPT_SERVES;
			m.word = 0;
			last = m;
		}
		packet_send(ends[0], &last, sizeof(last), NULL, 0, true);
	}
	return NULL;
}

static void *keep_late(void *data)
{
	(void)data;
	wait_until_it_answers();
	return answer_all();
}

/* What a deputy says that goes on. */
static void say_that_it_is_there(void)
{
	static const struct kept_message it_is_there = {.serial = 0};

	packet_send(ends[0], &it_is_there, sizeof(it_is_there), NULL, 0, true);
}

/* Its keeper has died before it has read what it was asked. */
static void *go_on_before_it_was_read(void *data)
{
	(void)data;
	wait_until_it_answers();
	say_that_it_is_there();
	return answer_all();
}

/* Its keeper had read that, and done nothing yet. */
static void *go_on_after_it_was_read(void *data)
{
	struct kept_message m;
	size_t size = sizeof(m);
	struct fd_list fds = {.n = 0};

	(void)data;
	wait_until_it_answers();
	packet_receive(ends[0], &m, &size, &fds, true);
	fd_list_close(&fds);
	say_that_it_is_there();
	return answer_all();
}

static void begin_late(void *(*run_keeper)(void *data))
{
	answers = false;
	start_with(run_keeper);
	kept_hang_after(30);
}

static void start_late(void)
{
	begin_late(keep_late);
}

TestSuite(kept_late, .init = start_late, .fini = stop, .timeout = 30);

Test(kept_late, a_broker_goes_on_without_a_keeper_that_does_not_answer)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	cr_assert_eq(kept_keep(&fd, NULL, 1), -ETIMEDOUT);
	cr_assert_eq(kept_id(fd), 0);
	/* this one is not even asked for */
	cr_assert_eq(kept_keep(&fd, NULL, 1), -ETIMEDOUT);
	kept_hang_after(10000); /* from here on it answers, however long that takes */
	answers = true;
	/* what came of the first one is let go, as nobody has got it */
	while (dropped == 0) {
		kept_hear();
		usleep(1000);
	}
	cr_assert_eq(kept_keep(&fd, NULL, 1), 0);
	cr_assert_eq(kept_id(fd), KEPT_AS);
	cr_assert_eq(dropped, 1);
	fd_close(fd);
	shutdown(ends[0], SHUT_RDWR);
	pthread_join(keeper, NULL);
}

/* The keeper has them still. */
Test(kept_late, whose_connections_end_is_told_and_a_socket_listens_for_others)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(address);
	int others = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), pair[2];
	char ignored;

	/* the system chooses an abstract name */
	cr_assert_eq(bind(others, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	cr_assert_eq(listen(others, 1), 0);
	cr_assert_eq(getsockname(others, (struct sockaddr *)&address, &size), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(kept_take(OURS), watched);
	kept_close(watched);
	kept_close(fd_dup(others));
	kept_close(fd_dup(pair[0]));
	kept_flush(kept_waiting());
	cr_expect_eq(recv(pair[1], &ignored, 1, MSG_DONTWAIT), 0);
	cr_expect_eq(connect(peer, (struct sockaddr *)&address, size), 0);
	answers = true;
	fd_close(others);
	fd_close(peer);
	fd_close(pair[0]);
	fd_close(pair[1]);
	shutdown(ends[0], SHUT_RDWR);
	pthread_join(keeper, NULL);
}

/* What is to be kept is asked for in vain, until the deputy of that keeper goes on. */
static int ask_in_vain(void *(*run_keeper)(void *data))
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	begin_late(run_keeper);
	cr_assert_eq(kept_keep(&fd, NULL, 1), -ETIMEDOUT);
	kept_hang_after(10000);
	answers = true;
	return fd;
}

static void expect_kept(int fd)
{
	int r;

	while ((r = kept_keep(&fd, NULL, 1)) == -ETIMEDOUT)
		usleep(1000);
	cr_assert_eq(r, 0);
	cr_assert_eq(kept_id(fd), KEPT_AS);
	fd_close(fd);
	shutdown(ends[0], SHUT_RDWR);
	pthread_join(keeper, NULL);
}

Test(kept_by_deputy, what_it_keeps_late_for_nobody_is_let_go, .fini = stop, .timeout = 30)
{
	int fd = ask_in_vain(go_on_before_it_was_read);

	while (dropped == 0) {
		kept_hear();
		usleep(1000);
	}
	expect_kept(fd);
	cr_assert_eq(dropped, 1);
}

Test(kept_by_deputy, what_its_keeper_was_asked_for_is_not_waited_for, .fini = stop, .timeout = 30)
{
	expect_kept(ask_in_vain(go_on_after_it_was_read));
	cr_assert_eq(dropped, 0);
}

/* Or it would take this broker, whenever it dies, for one that has handed over. */
Test(kept_late, a_keeper_is_told_that_a_broker_stays_which_it_lets_hand_over_too_late)
{
	cr_assert_eq(kept_hand_over("0.1.0"), -ETIMEDOUT);
	kept_hang_after(10000);
	answers = true;
	while (served == 0) {
		kept_hear();
		usleep(1000);
	}
	shutdown(ends[0], SHUT_RDWR);
	pthread_join(keeper, NULL);
}
