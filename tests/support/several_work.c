/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/several_work.h"

share_pool *several_pool;

/* Filled with @value, @value + 1 and so on; given away. */
int try_give(share_channel *p, int value, uint32_t n)
{
	share_buffer *buffers[MOST];
	share_outgoing m = SHARE_OUTGOING_INIT;
	int r;

	for (uint32_t i = 0; i < n; i++)
		buffers[i] = filled_buffer(several_pool, value + (int)i);
	m.buffers = buffers;
	m.n_buffers = n;
	m.flags = SHARE_OUTGOING_GIVE;
	m.data = &value;
	m.data_size = sizeof(value);
	r = share_send_many(p, &m, 1, NULL);
	for (uint32_t i = 0; r < 0 && i < n; i++)
		check_ok(share_release(buffers[i], NULL));
	return r;
}

void give(share_channel *p, int value, uint32_t n)
{
	check_eq(try_give(p, value, n), 1);
}

void check_several(const share_message *m, int value, uint32_t n)
{
	check_eq(m->error, 0);
	check_eq(m->n_buffers, n);
	check(m->buffer == m->buffers[0]);
	check(m->data_size == sizeof(value) && memcmp(m->data, &value, sizeof(value)) == 0);
	for (uint32_t i = 0; i < n; i++) {
		check_eq(share_size(m->buffers[i]), 4096);
		expect_filled(share_ptr(m->buffers[i]), value + (int)i, 4096);
	}
}

void receive_several(share_channel *c, int value, uint32_t n, share_message *m)
{
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, m));
	check_several(m, value, n);
}

void expect_several(share_channel *c, int value, uint32_t n)
{
	share_message m = SHARE_MESSAGE_INIT;

	receive_several(c, value, n, &m);
	check_ok(share_ack(&m, NULL));
	check(!m.buffers && m.n_buffers == 0);
}
