/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"
#include "wire/packet.h"
#include "wire/wire.h"

/*
 * Requests, and what else is sent. A function whose name ends in _unlocking is called with the
 * client's lock held and lets go of it in between, as it may have to read or to wait.
 */

/* A reply's variable fields point into `packet`, so it lives as long as that. */
struct reply {
	struct wire_message m;
	struct fd_list fds;
	void *packet;
	unsigned char small[256];
};
void reply_done(struct reply *r);
#define _cleanup_reply_ __attribute__((cleanup(reply_done)))

/* Sends @request and waits for its answer. Returns 0 and the reply that the table of messages has
 * for it, or an error: the broker's own, with its detail. @reply may be NULL when only success
 * matters. */
int rpc(share_client *c, struct wire_message *request, struct reply *reply);

/* The same, and the descriptors go along; they stay the caller's. SHARE_EAGAIN also when the socket
 * lets in none so far. */
int rpc_with_fds(share_client *c, struct wire_message *request, const struct fd_list *fds,
		 struct reply *reply);

/* Sends without waiting. */
int rpc_send(share_client *c, struct wire_message *m);
int rpc_send_unlocking(share_client *c, struct wire_message *m);

/* A request. If it has `answered`, that handles the answer, called by whoever reads it, under the
 * lock: @error is 0 and @m of the expected type, or @m is NULL. */
struct call {
	LIST_ENTRY(call) link;
	uint32_t serial;
	void (*answered)(share_client *c, struct call *call, const struct wire_message *m,
			 int error);
	bool done;
	int error;
	enum wire_type expected;
	/* of a GRANT: what it has to allow at least, and be as large as */
	uint32_t wanted_mode;
	uint64_t wanted_size;
	struct reply *reply;
	const struct fd_list *fds; /* that go along, or NULL */
	char detail[1024];
};
int rpc_start_unlocking(share_client *c, struct wire_message *request, struct call *call);
/* Until call->done. Returns its error, with its detail set; or 1 when there is no answer by
 * @deadline, and the call goes on. */
int rpc_wait_until_unlocking(share_client *c, struct call *call, int64_t deadline);

/* For those who are called while a message is delivered, and so must not send: sends @m, which has
 * no variable fields, soon. With the lock held. 0 or -ENOMEM. */
int rpc_send_later(share_client *c, const struct wire_message *m);
/* The same for what a room has to do when nobody is delivering, see struct client_room: it is
 * called soon. With or without the lock. */
void rpc_leave_chore(share_client *c);
/* For those who are not: perhaps nobody is going to read soon. Without the lock. */
void rpc_do_chores(share_client *c);

/* Has @epoll say, once, when the broker is lost: whoever sleeps on it may wait for what only a
 * broker could bring. 0 or negative errno. */
int rpc_tell_loss(share_client *c, int epoll);
/* Reads what is there without blocking, if nobody else is reading. Without the lock. */
void rpc_poll(share_client *c);
/* The broker is lost: what it had sent before is read to the end, of which segments count.
 * Without the lock. */
void rpc_read_rest(share_client *c);
