/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

share_channel_options options(uint32_t mode, uint32_t when_full)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	o.mode = mode;
	o.when_full = when_full;
	return o;
}

share_channel *open_channel(share_client *c, int role, const share_channel_options *o)
{
	share_channel *ch;

	check_ok(share_channel_open(c, "channel", role, o, &ch));
	return ch;
}

void send_number(share_channel *p, uint32_t number)
{
	check_ok(share_send(p, NULL, &number, sizeof(number), NULL));
}

uint32_t receive_number(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;
	uint32_t number;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.data_size, sizeof(number));
	memcpy(&number, m.data, sizeof(number));
	check_ok(share_ack(&m, NULL));
	return number;
}

void expect_number(share_channel *c, uint32_t number)
{
	check_eq(receive_number(c), number);
}

void expect_nothing(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_recv(c, 0, NULL, &m), SHARE_EAGAIN);
	check(!m.channel);
}

share_buffer *filled_buffer(share_pool *p, int value)
{
	share_buffer *b = allocate(p, 4096, NULL);

	memset(share_ptr(b), value, 4096);
	return b;
}

void send_filled(share_channel *ch, share_pool *p, int value)
{
	share_buffer *b = filled_buffer(p, value);

	check_ok(share_send(ch, b, NULL, 0, NULL));
	check_ok(share_release(b, NULL));
}

void expect_message(share_channel *c, int value)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	expect_filled(share_ptr(m.buffer), value, 4096);
	check_ok(share_ack(&m, NULL));
}

share_channel_stats channel_stats(share_channel *ch)
{
	share_channel_stats s = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &s));
	return s;
}

uint32_t in_flight(share_channel *p)
{
	return channel_stats(p).in_flight;
}
