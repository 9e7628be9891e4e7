/* SPDX-License-Identifier: MIT */

/* The counter: it calls the service that is here for callers over there. */

#include "bridge/services/inside.h"

void counter_act(struct errand *e)
{
	share_outgoing request = SHARE_OUTGOING_INIT;
	share_buffer *buffers[DATA_BUFFERS];
	int r;

	if (e->call || e->sending)
		return;
	if (e->received.header.status != 0) { /* what it is about could not be received */
		errand_send(e, DATA_ANSWER, e->received.header.status);
		return;
	}
	message_pass(&e->received, &request, buffers);
	r = share_call_start_with(e->end->service, &request, 0, NULL, &e->call);
	if (r == SHARE_EAGAIN)
		return; /* there is room later */
	message_end(&e->received);
	if (r != 0) {
		e->call = NULL;
		errand_send(e, DATA_ANSWER, r);
	}
}

static void look_for_answer(struct errand *e)
{
	int r;

	if (!e->call || e->sending)
		return;
	r = share_call_finish(e->call, 0, NULL, &e->message);
	if (r == SHARE_EAGAIN)
		return;
	e->call = NULL;
	errand_send(e, DATA_ANSWER, r);
}

void counter_look_at(struct errand *e)
{
	if (e->call)
		look_for_answer(e);
	else
		counter_act(e);
}
