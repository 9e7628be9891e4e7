/* SPDX-License-Identifier: MIT */

/*
 * The broker is stopped while somebody connects, for longer than a client may take to say who it
 * is, and goes on. What the client said meanwhile lies in its socket, so it is greeted as ever.
 */

#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

/* It may stand still for as long as it likes. */
static void start(void)
{
	fixture_start_with("{\"hang_ms\": 0}");
}

TestSuite(greeting_stopped, .init = start, .fini = fixture_stop, .timeout = 60);

/* A client has 10, and the broker is never late by more than one of itself. */
#define STOPPED_SECONDS 12

Test(greeting_stopped, who_connects_before_the_broker_is_stopped_is_greeted_when_it_goes_on)
{
	struct wire_message hello = {.type = WIRE_HELLO, .serial = 1};
	share_client *witness = connect_as("witness");
	struct raw newcomer;

	raw_connect(&newcomer);
	settle(witness, s.clients == 2);
	broker_freeze();
	hello.hello.version = hello.hello.oldest = WIRE_VERSION;
	check_eq(raw_send(&newcomer, &hello), 0);
	sleep(STOPPED_SECONDS);
	broker_thaw();
	check(raw_receive(&newcomer, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check(newcomer.m.type == WIRE_WELCOME);
	raw_close(&newcomer);
	settle(witness, s.clients == 1);
	share_disconnect(witness);
}
