/* SPDX-License-Identifier: MIT */

/*
 * Segments: this file makes them and sends their descriptors to the broker. If the kind of memory
 * has an exporter that must keep something (a pool of the driver, say), the segment also gets a
 * handle here, until the broker says that nobody uses the segment any more. This process keeps no
 * descriptor of a segment, because a descriptor would keep the memory after all others are closed.
 */

#include <stdlib.h>
#include <string.h>

#include <share/error.h>

#include "agent/agent.h"
#include "base/system/descriptor.h"
#include "memory/export.h"

struct segment {
	const struct memory_exporter *exporter;
	struct memory_segment memory;
};

static void reply_segment(struct agent *a, const struct memory_segment *memory, uint64_t handle)
{
	struct wire_message m = {
	    .type = WIRE_AGENT_SEGMENT,
	    .agent_segment = {.handle = handle,
			      .recipe = {&memory->recipe, sizeof(memory->recipe)}},
	};

	agent_reply(a, &m, memory->fd);
}

int segment_create(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	const struct memory_exporter *exporter =
	    memory_device_exporter(m->agent_segment_create.kind);
	struct segment *s;
	uint64_t handle = 0;
	int r;

	if (!exporter)
		return failure_set(failure, SHARE_ENOTSUP,
				   "an agent makes no segments of this kind");
	s = malloc(sizeof(*s));
	if (!s)
		return failure_set(failure, SHARE_ENOMEM, "no memory for a segment");
	s->exporter = exporter;
	r = exporter->create(m->agent_segment_create.size, m->agent_segment_create.address,
			     &s->memory, failure);
	if (r < 0)
		goto free_s;
	if (s->memory.opaque && handles_add(&a->segments, s, &handle) < 0) {
		exporter->destroy(&s->memory, failure);
		r = failure_set(failure, SHARE_ENOMEM, "no memory for a segment");
		goto free_s;
	}
	reply_segment(a, &s->memory, handle);
	s->memory.fd = fd_close(s->memory.fd);
	if (handle)
		return 0;

free_s:
	free(s);
	return r;
}

/* Zeroes a part of a segment of which this agent keeps nothing: the descriptor and the recipe came
 * with the request. */
static int scrub_by_recipe(struct agent *a, const struct wire_agent_scrub *m,
			   struct failure *failure)
{
	struct memory_segment memory = {.fd = a->fd, .fd_readonly = -1};

	if (a->fd < 0 || m->recipe.size != sizeof(memory.recipe))
		return failure_set(failure, SHARE_EPROTO, "what is to be zeroed cannot be reached");
	memcpy(&memory.recipe, m->recipe.data, sizeof(memory.recipe));
	return memory_device_zero((enum memory_kind_id)m->kind, &memory, m->offset, m->size,
				  failure);
}

int segment_scrub(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	const struct wire_agent_scrub *scrub = &m->agent_scrub;
	struct segment *s = handles_find(&a->segments, scrub->handle);
	int r;

	if (scrub->handle && !s)
		return failure_set(failure, SHARE_ENOENT, "this agent has made no such segment");
	r = s ? memory_device_zero(s->exporter->kind, &s->memory, scrub->offset, scrub->size,
				   failure)
	      : scrub_by_recipe(a, scrub, failure);
	if (r == 0)
		agent_reply_done(a);
	return r;
}

int segment_end(void *segment, struct failure *failure)
{
	struct segment *s = segment;
	int r = s->exporter->destroy(&s->memory, failure);

	free(s);
	if (r < 0)
		failure->fatal = true; /* with this process the memory goes as well */
	return r;
}

int segment_destroy(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	struct segment *s = handles_take(&a->segments, m->agent_segment_destroy.handle);
	int r;

	if (!s)
		return failure_set(failure, SHARE_ENOENT, "this agent has made no such segment");
	r = segment_end(s, failure);
	if (r == 0)
		agent_reply_done(a);
	return r;
}
