/* SPDX-License-Identifier: MIT */

/* Users, each a process of its own, who take memory of one pool after the other. */

#include <unistd.h>

#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"

/* One segment, and no more. */
share_pool *scrubbed_pool(share_client *c, const char *kind)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.reuse = SHARE_REUSE_SCRUB;
	options.limit = options.segment_size = UNIT;
	options.access = "[{\"user\": \"*\", \"mode\": \"rw\"}]";
	return conformance_pool(c, kind, options);
}

share_pool *open_test(share_client *c)
{
	share_pool *p;

	check_ok(share_pool_open(c, "test", &p));
	return p;
}

struct visit {
	uid_t user;
	uint64_t size;
	int finds, leaves;
};

static void visits(struct child *self, void *data)
{
	const struct visit *v = data;
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)self;
	child_become(v->user, 0);
	c = child_connect("visitor");
	p = open_test(c);
	b = allocate(p, v->size, NULL);
	if (v->finds != ANYTHING)
		buffer_expect(b, v->finds);
	buffer_fill(b, v->leaves);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

void visit(uid_t user, uint64_t size, int finds, int leaves)
{
	struct visit v = {user, size, finds, leaves};

	child_finish(child_start(visits, &v));
}

void all_end(share_client *c, share_pool *p)
{
	share_pool_close(p);
	settle(c, s.clients == 1 && s.buffers == 0 && s.segments == 0);
	share_disconnect(c);
}

/* Of the first device that has one, 0: none. */
pid_t agent(share_client *c)
{
	json_t *rows = report(c, "devices");
	pid_t pid = 0;

	for (size_t i = 0; !pid && i < json_array_size(rows); i++)
		pid = (pid_t)number_of(json_array_get(rows, i), "agent");
	json_decref(rows);
	return pid;
}

pid_t agent_there(share_client *c)
{
	pid_t pid;

	until((pid = agent(c)) > 0);
	return pid;
}
