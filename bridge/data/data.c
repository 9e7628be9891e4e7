/* SPDX-License-Identifier: MIT */

/*
 * The descriptor of a worker of UCX is in the event loop. The worker has to be armed before the
 * loop sleeps, and not when something is still to be done: so there is an event that runs, after
 * those that wait for their turn already, whenever anything was sent or received.
 */

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "bridge/bridge.h"
#include "bridge/data/inside.h"
#include "bridge/link.h"

#define AM_ID  1
#define BARE   offsetof(struct data_header, more)
#define ROUNDS 8 /* of progress, each of up to a segment, before others have their turn */

/* What comes next after a small message, or of content that is under way, is waited for awake: for
 * about as long as it takes over a fast network, and not where that was in vain a few times, but
 * now and then. */
#define AWAKE_NS UINT64_C(100000)
#define SMALL    UINT64_C(65536)
#define VAIN     4
#define AGAIN    64

/* The transports of CUDA of UCX do not always wake up who sleeps. */
#define LOOK_US 1000

struct transfer {
	TAILQ_ENTRY(transfer) in_end;
	struct data_end *end;
	struct data_header header;
	data_done done;
	void *arg;
};

const void *data_address(const struct link *l, size_t *size)
{
	*size = l->data->address_size;
	return l->data->address;
}

static void work(struct data_end *d)
{
	event_active(d->idle, 0, 0);
}

/* What somebody may answer, or have more of. */
static bool is_talk(const struct data_header *h)
{
	return h->size <= SMALL &&
	       (h->kind == DATA_MESSAGE || h->kind == DATA_REQUEST || h->kind == DATA_ANSWER);
}

/* Something comes or goes. To be woken for what comes next would cost more than all else that
 * happens to a message, and much of what a segment costs. */
static void stay_awake(struct data_end *d)
{
	if (d->awake_until != 0 && d->has_waited)
		d->in_vain = 0;
	else if (d->in_vain >= VAIN && d->in_vain++ % AGAIN != 0)
		return;
	d->awake_until = clock_ns() + AWAKE_NS;
	d->has_waited = false;
}

static bool is_awake(struct data_end *d)
{
	if (d->awake_until == 0)
		return false;
	d->has_waited = true;
	if (clock_ns() < d->awake_until) {
		if (d->data->few)
			sched_yield(); /* to whom the message is for, say */
		return true;
	}
	d->awake_until = 0;
	d->in_vain++;
	return false;
}

/* Who sends all the time does not keep the loop from the others. Nor does who stays awake: they are
 * looked at each time. */
static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval later = {.tv_usec = LOOK_US};
	struct data_end *d = arg;

	(void)fd, (void)what;
	for (int i = 0; i < ROUNDS; i++) {
		if (ucp_worker_progress(d->worker) > 0) {
			if (!TAILQ_EMPTY(&d->transfers))
				stay_awake(d);
			continue;
		}
		if (is_awake(d))
			break;
		if (ucp_worker_arm(d->worker) != UCS_ERR_BUSY) {
			if (d->cuda && !TAILQ_EMPTY(&d->transfers))
				evtimer_add(d->later, &later);
			return;
		}
	}
	work(d);
	let_others(link_bridge(d->link));
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	work(arg);
}

/* ------------------------------------------------------------------------------------------- */
/* Sending and receiving                                                                       */

static void finish_transfer(struct transfer *t, ucs_status_t status)
{
	TAILQ_REMOVE(&t->end->transfers, t, in_end);
	tell(t->done, status == UCS_OK ? 0 : -1, t->arg);
	free(t);
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
	ucp_request_free(request);
	finish_transfer(arg, status);
}

static void on_received(void *request, ucs_status_t status, size_t length, void *arg)
{
	(void)length;
	ucp_request_free(request);
	finish_transfer(arg, status);
}

static struct transfer *begin_transfer(struct data_end *d, data_done done, void *arg)
{
	struct transfer *t = d->ending || !d->endpoint ? NULL : calloc(1, sizeof(*t));

	if (!t) {
		tell(done, -1, arg);
		return NULL;
	}
	t->end = d;
	t->done = done;
	t->arg = arg;
	TAILQ_INSERT_TAIL(&d->transfers, t, in_end);
	work(d);
	return t;
}

/* It may be over. */
static void follow_transfer(struct transfer *t, ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_ERR(request))
		finish_transfer(t, UCS_PTR_STATUS(request));
	else if (!request)
		finish_transfer(t, UCS_OK);
}

/* Pieces and memory of devices are received where they belong, or in a slot: what UCX hands over
 * with the header would have to be copied there. */
void data_put(struct data_end *d, const struct data_header *h, const void *memory, size_t size,
	      bool on_device, data_done done, void *arg)
{
	ucp_request_param_t param = {
	    .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
			    UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
	    .cb.send = on_sent,
	    .memory_type = on_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST,
	    .flags = on_device || h->kind == DATA_PIECE ? UCP_AM_SEND_FLAG_RNDV : 0,
	};
	struct transfer *t = begin_transfer(d, done, arg);

	if (!t)
		return;
	t->header = *h;
	memcpy(t->header.secret, link_secret_of_peer(d->link), DATA_SECRET);
	d->link->traffic.out += size;
	param.user_data = t;
	follow_transfer(t, ucp_am_send_nbx(d->endpoint, AM_ID, &t->header, BARE + h->n_more, memory,
					   size, &param));
}

void data_fetch(struct data_end *d, void *what, void *to, size_t size, bool on_device,
		data_done done, void *arg)
{
	ucp_request_param_t param = {
	    .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
			    UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	    .cb.recv_am = on_received,
	    .memory_type = on_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST,
	};
	struct transfer *t = begin_transfer(d, done, arg);

	if (!t) {
		data_let_go(d, what);
		return;
	}
	param.user_data = t;
	follow_transfer(t, ucp_am_recv_data_nbx(d->worker, what, to, size, &param));
}

void data_let_go(struct data_end *d, void *what)
{
	if (d->worker)
		ucp_am_data_release(d->worker, what);
}

static bool read_header(const void *bytes, size_t n, size_t size, struct data_header *out)
{
	bool later;

	if (n < BARE || n > sizeof(*out))
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(out, bytes, n);
	later = out->flags & DATA_IN_PIECES;
	return out->n_more == n - BARE && (later ? size == 0 && out->size > 0 : out->size == size);
}

static const char *dispatch(struct data_end *d, const struct data_header *h, struct parcel *p)
{
	if (h->kind == DATA_PIECE)
		return p->in_pieces ? "a piece of it comes in pieces" : pieces_hear(d, h, p);
	if (h->kind == DATA_GO)
		return pieces_hear_go(d, h);
	link_content(d->link, h, p);
	if (p->in_pieces && !p->taken)
		pieces_refuse(d, p->number);
	return NULL;
}

/* Whoever finds the port can send; only the peer knows the secret. */
static ucs_status_t on_message(void *arg, const void *header, size_t n, void *what, size_t size,
			       const ucp_am_recv_param_t *param)
{
	struct data_end *d = arg;
	const char *wrong;
	struct data_header h;
	struct parcel p = {
	    .from = d,
	    .what = what,
	    .size = size,
	    .here = !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV),
	};

	work(d);
	if (!d->endpoint || !read_header(header, n, size, &h) ||
	    CRYPTO_memcmp(link_own_secret(d->link), h.secret, DATA_SECRET) != 0)
		return UCS_OK;
	d->link->traffic.in += size;
	if (is_talk(&h))
		stay_awake(d);
	if (h.flags & DATA_IN_PIECES) {
		p.in_pieces = true;
		p.size = h.size;
		p.number = h.number;
	}
	wrong = dispatch(d, &h, &p);
	if (wrong)
		link_fail(d->link, wrong);
	return p.taken && size > 0 ? UCS_INPROGRESS : UCS_OK;
}

/* ------------------------------------------------------------------------------------------- */
/* Links                                                                                       */

static int set_handler(struct data_end *d)
{
	ucp_am_handler_param_t param = {
	    .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			  UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
	    .id = AM_ID,
	    .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
	    .cb = on_message,
	    .arg = d,
	};

	return ucp_worker_set_am_recv_handler(d->worker, &param) == UCS_OK ? 0 : -1;
}

static const char *start_worker(struct data_end *d)
{
	struct bridge *b = link_bridge(d->link);
	ucp_worker_params_t params = {
	    .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
	    .thread_mode = UCS_THREAD_MODE_SINGLE,
	    .events = UCP_WAKEUP_TX | UCP_WAKEUP_RX,
	};
	int fd;

	if (ucp_worker_create(d->data->context, &params, &d->worker) != UCS_OK)
		return "no worker";
	if (ucp_worker_get_address(d->worker, &d->address, &d->address_size) != UCS_OK ||
	    ucp_worker_get_efd(d->worker, &fd) != UCS_OK || set_handler(d) != 0)
		return "the transports have no way to wake up who sleeps";
	d->readable = event_new(b->base, fd, EV_READ | EV_PERSIST, on_readable, d);
	d->idle = event_new(b->base, -1, EV_PERSIST, on_idle, d);
	d->later = evtimer_new(b->base, on_readable, d);
	if (!d->readable || !d->idle || !d->later || event_add(d->readable, NULL) != 0)
		return "no memory";
	return NULL;
}

int data_begin(struct link *l)
{
	struct data_end *d = l->data = calloc(1, sizeof(*d));
	const char *wrong;

	if (!d)
		return -1;
	d->link = l;
	d->data = link_bridge(l)->data;
	d->cuda = d->data->cuda;
	TAILQ_INIT(&d->transfers);
	pieces_begin(d);
	wrong = start_worker(d);
	if (wrong) {
		say("UCX does not serve a link: %s", wrong);
		data_end(l);
		return -1;
	}
	work(d);
	return 0;
}

/* UCX has noticed before the link did. */
static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	char why[128];

	(void)ep;
	snprintf(why, sizeof(why), "content does not pass (UCX: %s)", ucs_status_string(status));
	link_fail(arg, why);
}

int data_connect(struct link *l, const void *address, bool wants_pieces)
{
	ucp_ep_params_t params = {
	    .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			  UCP_EP_PARAM_FIELD_ERR_HANDLER,
	    .address = address,
	    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
	    .err_handler = {on_error, l},
	};

	l->data->wants_pieces = wants_pieces;
	if (ucp_ep_create(l->data->worker, &params, &l->data->endpoint) != UCS_OK)
		return -1;
	work(l->data);
	return 0;
}

/* UCX 1.22 did not always get a new connection to work when one was lost in the middle of a
 * transfer by its transports of CUDA, so links that come later go without them. Returns true if
 * this link was lost so. Then its worker has to stay, as ucp_worker_destroy() was seen to free some
 * of it twice, and to read what it had freed (H100). */
static bool distrusts_cuda(struct data_end *d)
{
	if (!d->cuda || !d->link->traffic.gpu || TAILQ_EMPTY(&d->transfers))
		return false;
	if (d->data->cuda)
		say("a link was lost while UCX moved memory of GPUs: from now on it is staged");
	d->data->cuda = false;
	d->data->has_remains = true;
	return true;
}

static void close_endpoint(struct data_end *d)
{
	ucp_request_param_t param = {
	    .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
	    .flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	ucs_status_ptr_t request = ucp_ep_close_nbx(d->endpoint, &param);

	d->endpoint = NULL;
	if (!UCS_PTR_IS_PTR(request))
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(d->worker);
	ucp_request_free(request);
}

void data_end(struct link *l)
{
	struct data_end *d = l->data;
	struct transfer *t;
	bool stays;

	if (!d)
		return;
	d->ending = true;
	stays = distrusts_cuda(d);
	/* Copies that go on by themselves use memory that others may have afterwards. */
	staging_settle(d->data->staging, d);
	if (d->worker)
		pieces_drop(d);
	if (d->endpoint)
		close_endpoint(d);
	if (d->address)
		ucp_worker_release_address(d->worker, d->address);
	if (d->readable)
		event_free(d->readable);
	if (d->later)
		event_free(d->later);
	if (d->worker && !stays)
		ucp_worker_destroy(d->worker);
	d->worker = NULL;
	/* What the worker has not finished it does not touch any more. */
	l->data = NULL;
	while ((t = TAILQ_FIRST(&d->transfers)) != NULL)
		finish_transfer(t, UCS_ERR_CANCELED);
	pieces_end(d);
	if (d->idle)
		event_free(d->idle);
	free(d);
}
