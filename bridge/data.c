/* SPDX-License-Identifier: MIT */

/*
 * The descriptor of a worker of UCX is in the event loop. The worker has to be armed before the
 * loop sleeps, and not when something is still to be done: so there is an event of the lowest
 * priority that runs after all others whenever anything was sent or received.
 */

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>
#include <ucp/api/ucp.h>

#include "bridge/bridge.h"
#include "bridge/data.h"
#include "bridge/link.h"

#define AM_ID  1
#define BARE   offsetof(struct data_header, more)
#define ROUNDS 64 /* of progress before others have their turn */

/* After a message that is small, the next one is waited for awake: for about as long as an answer
 * takes over a fast network, and not where that was in vain a few times, but now and then. */
#define AWAKE_NS UINT64_C(50000)
#define SMALL    UINT64_C(65536)
#define VAIN     4
#define AGAIN    64

struct data {
	ucp_context_h context;
};

struct transfer {
	TAILQ_ENTRY(transfer) in_end;
	struct data_end *end;
	struct data_header header;
	data_done done;
	void *arg;
};

/* This end of a link. */
struct data_end {
	struct link *link;
	ucp_worker_h worker;
	ucp_ep_h endpoint;
	ucp_address_t *address;
	size_t address_size;
	struct event *readable, *idle;
	TAILQ_HEAD(, transfer) transfers; /* under way */
	uint64_t awake_until;             /* on the clock of now_ns(); 0: it may sleep */
	bool has_waited;                  /* since then */
	unsigned in_vain;
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

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* What somebody may answer, or have more of. Large content is worth its sleep. */
static bool is_talk(const struct data_header *h)
{
	return h->size <= SMALL &&
	       (h->kind == DATA_MESSAGE || h->kind == DATA_REQUEST || h->kind == DATA_ANSWER);
}

/* A message comes or goes. To be woken for the next one would cost more than all else that happens
 * to it. */
static void stay_awake(struct data_end *d, const struct data_header *h)
{
	if (!is_talk(h))
		return;
	if (d->awake_until != 0 && d->has_waited)
		d->in_vain = 0;
	else if (d->in_vain >= VAIN && d->in_vain++ % AGAIN != 0)
		return;
	d->awake_until = now_ns() + AWAKE_NS;
	d->has_waited = false;
}

static bool is_awake(struct data_end *d)
{
	if (d->awake_until == 0)
		return false;
	d->has_waited = true;
	if (now_ns() < d->awake_until) {
		sched_yield(); /* to whom the message is for, say, where there are few processors */
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
	struct data_end *d = arg;

	(void)fd, (void)what;
	for (int i = 0; i < ROUNDS; i++) {
		if (ucp_worker_progress(d->worker) > 0)
			continue;
		if (is_awake(d))
			break;
		if (ucp_worker_arm(d->worker) != UCS_ERR_BUSY)
			return;
	}
	work(d);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	work(arg);
}

/* ------------------------------------------------------------------------------------------- */
/* Sending and receiving                                                                       */

static void tell(data_done done, int error, void *arg)
{
	if (done)
		done(error, arg);
}

static void finish(struct transfer *t, ucs_status_t status)
{
	TAILQ_REMOVE(&t->end->transfers, t, in_end);
	tell(t->done, status == UCS_OK ? 0 : -1, t->arg);
	free(t);
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
	ucp_request_free(request);
	finish(arg, status);
}

static void on_received(void *request, ucs_status_t status, size_t length, void *arg)
{
	(void)length;
	ucp_request_free(request);
	finish(arg, status);
}

static struct transfer *begin(struct data_end *d, data_done done, void *arg)
{
	struct transfer *t = calloc(1, sizeof(*t));

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
static void follow(struct transfer *t, ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_ERR(request))
		finish(t, UCS_PTR_STATUS(request));
	else if (!request)
		finish(t, UCS_OK);
}

void data_send(struct link *l, const struct data_header *h, const void *memory, data_done done,
	       void *arg)
{
	struct data_end *d = l->data;
	struct transfer *t;
	ucp_request_param_t param = {
	    .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
	    .cb.send = on_sent,
	};

	if (!d || !d->endpoint) {
		tell(done, -1, arg);
		return;
	}
	t = begin(d, done, arg);
	if (!t)
		return;
	stay_awake(d, h);
	t->header = *h;
	memcpy(t->header.secret, link_secret_of_peer(l), DATA_SECRET);
	l->traffic.out += h->size;
	param.user_data = t;
	follow(t, ucp_am_send_nbx(d->endpoint, AM_ID, &t->header, BARE + h->n_more, memory, h->size,
				  &param));
}

void data_receive(struct parcel *p, void *to, data_done done, void *arg)
{
	ucp_request_param_t param = {
	    .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
	    .cb.recv_am = on_received,
	};
	struct transfer *t = begin(p->from, done, arg);

	if (!t)
		return;
	param.user_data = t;
	p->taken = p->kept || !p->here;
	if (!p->here && p->size > 0) {
		p->kept = false;
		follow(t, ucp_am_recv_data_nbx(p->from->worker, p->what, to, p->size, &param));
	} else {
		if (p->size > 0)
			memcpy(to, p->what, p->size);
		data_drop(p);
		finish(t, UCS_OK);
	}
}

void data_keep(struct parcel *p, struct parcel *kept)
{
	p->taken = true;
	*kept = *p;
	kept->kept = true;
}

void data_drop(struct parcel *kept)
{
	if (kept->kept && kept->size > 0)
		ucp_am_data_release(kept->from->worker, kept->what);
	kept->kept = false;
}

static bool read_header(const void *bytes, size_t n, size_t size, struct data_header *out)
{
	if (n < BARE || n > sizeof(*out))
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(out, bytes, n);
	return out->n_more == n - BARE && out->size == size;
}

/* Whoever finds the port can send; only the peer knows the secret. */
static ucs_status_t on_message(void *arg, const void *header, size_t n, void *what, size_t size,
			       const ucp_am_recv_param_t *param)
{
	struct data_end *d = arg;
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
	stay_awake(d, &h);
	link_content(d->link, &h, &p);
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

	if (ucp_worker_create(b->data->context, &params, &d->worker) != UCS_OK)
		return "no worker";
	if (ucp_worker_get_address(d->worker, &d->address, &d->address_size) != UCS_OK ||
	    ucp_worker_get_efd(d->worker, &fd) != UCS_OK || set_handler(d) != 0)
		return "the transports have no way to wake up who sleeps";
	d->readable = event_new(b->base, fd, EV_READ | EV_PERSIST, on_readable, d);
	d->idle = event_new(b->base, -1, EV_PERSIST, on_idle, d);
	if (!d->readable || !d->idle || event_priority_set(d->idle, 1) != 0 ||
	    event_add(d->readable, NULL) != 0)
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
	TAILQ_INIT(&d->transfers);
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
	(void)ep;
	link_fail(arg, ucs_status_string(status));
}

int data_connect(struct link *l, const void *address)
{
	ucp_ep_params_t params = {
	    .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			  UCP_EP_PARAM_FIELD_ERR_HANDLER,
	    .address = address,
	    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
	    .err_handler = {on_error, l},
	};

	if (ucp_ep_create(l->data->worker, &params, &l->data->endpoint) != UCS_OK)
		return -1;
	work(l->data);
	return 0;
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

	if (!d)
		return;
	if (d->endpoint)
		close_endpoint(d);
	if (d->address)
		ucp_worker_release_address(d->worker, d->address);
	if (d->readable)
		event_free(d->readable);
	if (d->worker)
		ucp_worker_destroy(d->worker);
	/* What the worker has not finished it does not touch any more. */
	l->data = NULL;
	while ((t = TAILQ_FIRST(&d->transfers)) != NULL)
		finish(t, UCS_ERR_CANCELED);
	if (d->idle)
		event_free(d->idle);
	free(d);
}

/* ------------------------------------------------------------------------------------------- */

int data_open(struct bridge *b)
{
	ucp_params_t params = {
	    .field_mask = UCP_PARAM_FIELD_FEATURES,
	    .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
	};
	ucp_config_t *config;
	ucs_status_t s;

	b->data = calloc(1, sizeof(*b->data));
	if (!b->data)
		return -1;
	s = ucp_config_read(NULL, NULL, &config);
	if (s == UCS_OK) {
		s = ucp_init(&params, config, &b->data->context);
		ucp_config_release(config);
	}
	if (s != UCS_OK) {
		say("UCX does not start: %s", ucs_status_string(s));
		return -1;
	}
	return 0;
}

void data_close(struct bridge *b)
{
	if (b->data && b->data->context)
		ucp_cleanup(b->data->context);
	free(b->data);
	b->data = NULL;
}
