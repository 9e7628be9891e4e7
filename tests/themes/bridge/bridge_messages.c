/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "tests/themes/bridge/bridge_messages.h"
#include "tests/themes/bridge/bridge_rig.h"

static const uint32_t data_sizes[] = {4, 255, 256, 257, 5000, MESSAGE_DATA - 1, MESSAGE_DATA};

uint32_t message_buffers(unsigned n)
{
	return n * 5 % (MESSAGE_BUFFERS + 1);
}

uint32_t message_data_size(unsigned n)
{
	return data_sizes[n % (sizeof(data_sizes) / sizeof(data_sizes[0]))];
}

static void fill_data(unsigned char *data, unsigned n)
{
	for (uint32_t i = 0; i < message_data_size(n); i++)
		data[i] = (unsigned char)(i * 31 + i / 256 + n);
	memcpy(data, &n, sizeof(n));
}

unsigned message_seed(unsigned n, uint32_t i)
{
	return n * 100 + i;
}

share_outgoing message_make(share_pool *pool, unsigned n, share_buffer **buffers,
			    unsigned char *data)
{
	share_outgoing out = SHARE_OUTGOING_INIT;

	for (uint32_t i = 0; i < message_buffers(n); i++) {
		buffers[i] = allocate(pool, 1 + (n + i) % 5 * 3000, NULL);
		content_fill(buffers[i], message_seed(n, i));
	}
	fill_data(data, n);
	out.buffers = buffers;
	out.n_buffers = message_buffers(n);
	out.data = data;
	out.data_size = message_data_size(n);
	out.flags = SHARE_OUTGOING_GIVE;
	return out;
}

unsigned message_number(const share_message *m)
{
	unsigned n;

	check(m->data_size >= sizeof(n));
	memcpy(&n, m->data, sizeof(n));
	return n;
}

void message_expect(const share_message *m)
{
	static unsigned char data[MESSAGE_DATA];
	unsigned n = message_number(m);

	check_ok(m->error);
	check_eq(m->n_buffers, message_buffers(n));
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		check_eq(share_size(m->buffers[i]), 1 + (n + i) % 5 * 3000);
		check(content_is(m->buffers[i], message_seed(n, i)));
	}
	fill_data(data, n);
	check_eq(m->data_size, message_data_size(n));
	check(memcmp(m->data, data, m->data_size) == 0);
}
