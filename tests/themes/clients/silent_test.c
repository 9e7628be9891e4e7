/* SPDX-License-Identifier: MIT */

/*
 * A broker that is there and does not answer: who has a time limit gets SHARE_ETIMEDOUT when that
 * is over, and is told which process it is that does not answer, and what that does instead.
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"

TestSuite(silent, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

#define SHORT_MS 50   /* for who does not answer */
#define LONG_MS  3000 /* for who does, on a busy machine, before it is stopped */

static int connect_in_time(const char *address, int ms, share_client **out)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;

	options.timeout_ms = ms;
	options.flags = SHARE_CONNECT_OPERATOR;
	return share_connect_with(address, &options, out);
}

/* The detail names @pid and says @what of it. */
static void check_who(pid_t pid, const char *what)
{
	char text[64];

	snprintf(text, sizeof(text), "rocess %d ", (int)pid);
	check_detail(text);
	check_detail(what);
}

static int on_object(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

Test(silent, a_broker_that_is_stopped_is_named_to_who_connects)
{
	share_client *c = NULL;

	broker_freeze();
	check_error(connect_in_time(broker_socket(), SHORT_MS, &c), SHARE_ETIMEDOUT);
	check(c == NULL);
	check_who(broker_pid(), "it is stopped (state T)");
	/* what helps comes behind all that is said of how it is */
	check_detail("; kill -CONT lets it go on; its keeper ends it");
	broker_thaw();
	check_ok(connect_in_time(broker_socket(), LONG_MS, &c));
	share_disconnect(c);
}

Test(silent, so_is_the_broker_that_goes_on_for_one_that_died)
{
	share_client *c = connect_as("witness");
	pid_t before = broker_pid();

	broker_kill_serving();
	check_ok(share_ping(c));
	check(broker_pid() != before);
	broker_freeze();
	check_error(connect_in_time(broker_socket(), SHORT_MS, &c), SHARE_ETIMEDOUT);
	check_who(broker_pid(), "it is stopped (state T)");
	broker_thaw();
	share_disconnect(c);
}

/* Whose connection is to the one before. */
Test(silent, who_was_connected_before_is_told_of_the_broker_that_serves_now)
{
	share_client *c;

	check_ok(connect_in_time(broker_socket(), LONG_MS, &c));
	broker_kill_serving();
	check_ok(share_ping(c));
	broker_freeze();
	check_error(share_ping(c), SHARE_ETIMEDOUT);
	check_who(broker_pid(), "it is stopped (state T)");
	share_disconnect(c);
	broker_thaw();
}

Test(silent, a_broker_that_has_died_and_has_no_successor_yet_is_said_to_have_ended)
{
	pid_t before = broker_pid();
	share_client *c = NULL;

	broker_kill_serving_for_now();
	check_error(connect_in_time(broker_socket(), SHORT_MS, &c), SHARE_ETIMEDOUT);
	check_who(before, "has ended, and no broker has followed");
	broker_let_keeper_go_on();
	check_ok(connect_in_time(broker_socket(), LONG_MS, &c));
	share_disconnect(c);
}

Test(silent, each_request_of_an_operator_has_the_limit_and_the_first_one_that_is_late_is_the_last)
{
	share_client *c, *plain = connect_as("plain");

	check_ok(connect_in_time(broker_socket(), LONG_MS, &c));
	check_ok(share_inspect(c, "clients", on_object, NULL));
	broker_freeze();
	check_error(share_inspect(c, "clients", on_object, NULL), SHARE_ETIMEDOUT);
	check_who(broker_pid(), "it is stopped (state T)");
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	share_disconnect(c); /* without waiting for an answer */
	broker_thaw();
	check_ok(share_ping(plain));
	share_disconnect(plain);
}

Test(silent, a_monitor_of_an_operator_has_its_own_time_as_well)
{
	share_monitor_options all = SHARE_MONITOR_OPTIONS_INIT;
	share_client *c;

	check_ok(connect_in_time(broker_socket(), LONG_MS, &c));
	check_ok(share_monitor(c, &all, 0, on_object, NULL));
	check_ok(share_monitor(c, &all, LONG_MS + 100, on_object, NULL));
	broker_freeze();
	check_error(share_monitor(c, &all, 1, on_object, NULL), SHARE_ETIMEDOUT);
	broker_thaw();
	share_disconnect(c);
}

/* The limit of others is for the connection alone. */
Test(silent, who_is_connected_waits_as_ever)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c = NULL;

	options.timeout_ms = -2;
	check_error(share_connect_with(broker_socket(), &options, &c), SHARE_EINVAL);
	check_detail("-2 ms is no time limit");
	options.timeout_ms = -1;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	share_disconnect(c);
	options.timeout_ms = INT64_MAX;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	share_disconnect(c);
}

/* Who has called listen() and accepts nobody; and there is no room for a second one. */
Test(silent, who_accepts_nobody_is_named_until_there_is_no_room_for_more)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), waiting;
	share_client *c = NULL;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s.deaf", broker_socket());
	check(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
	check(listen(fd, 0) == 0);
	check_error(connect_in_time(address.sun_path, SHORT_MS, &c), SHARE_ETIMEDOUT);
	check_who(getpid(), "serves there");
	waiting = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	while (connect(waiting, (const struct sockaddr *)&address, sizeof(address)) == 0) {
		close(waiting);
		waiting = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	}
	check_error(connect_in_time(address.sun_path, SHORT_MS, &c), SHARE_ETIMEDOUT);
	check_detail("accepts nobody");
	close(waiting);
	close(fd);
	unlink(address.sun_path);
}
