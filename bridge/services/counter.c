/* SPDX-License-Identifier: MIT */

/* The counter: it calls the service that is here for callers over there. */

#include "bridge/bridge.h"
#include "bridge/link.h"
#include "bridge/services/inside.h"

void counter_act(struct errand *e)
{
	const struct data_header *h = &e->header;
	int r;

	if (e->call || e->sending)
		return;
	if (h->status != 0) { /* what it is about could not be received */
		errand_send(e, DATA_ANSWER, h->status);
		return;
	}
	r = share_call_start(e->end->service, e->received.buffer, h->more, h->n_more, 0, NULL,
			     &e->call);
	if (r == SHARE_EAGAIN)
		return; /* there is room later */
	reach_end(&e->received);
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
