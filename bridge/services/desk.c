/* SPDX-License-Identifier: MIT */

/* The desk: callers come here, and their requests are sent to the counter over there. */

#include "bridge/bridge.h"
#include "bridge/link.h"
#include "bridge/services/inside.h"

void desk_act(struct errand *e)
{
	share_outgoing answer = SHARE_OUTGOING_INIT;
	share_buffer *buffers[DATA_BUFFERS];

	message_pass(&e->received, &answer, buffers);
	if (e->received.header.status == 0)
		share_reply_with(&e->message, &answer, NULL);
	errand_finish(
	    e); /* acknowledged without an answer, the caller is told that there is none */
}

static void cancel(struct errand *e)
{
	struct data_header h = {.kind = DATA_CANCEL, .which = e->end->which, .id = e->id};
	struct link *l = e->end->link;

	errand_finish(e);
	data_send(l, &h, NULL, NULL, NULL);
}

void desk_take_requests(struct end *s)
{
	while (s->link->up && s->n < AT_ONCE) {
		share_message m = SHARE_MESSAGE_INIT;
		int r = share_next_request(s->service, 0, NULL, &m);
		struct errand *e;

		if (r == SHARE_EPIPE)
			continue;
		if (r != 0)
			return;
		e = m.error == 0 ? errand_add(s, ++s->bridge->last_id) : NULL;
		if (!e) {
			share_ack(&m, NULL);
			continue;
		}
		e->message = m;
		errand_send(e, DATA_REQUEST, 0);
	}
}

bool desk_gives_up(struct errand *e)
{
	if (e->receiving || share_request_status(&e->message) == 0)
		return false;
	cancel(e);
	return true;
}
