/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/dispatch.h"
#include "libshare/client/rpc.h"

/* What the files of this room know of each other. */

/*
 * The socket, and who waits for what comes. At most one thread reads from it at a time, without the
 * client's lock, and delivers what it reads to whom it is for; the others wait for c->arrived. All
 * but the socket and the packet under the client's lock.
 */
struct connection {
	int socket;
	char *address;
	struct embedded *embedded; /* NULL: the broker is not a private one */
	unsigned char *packet;     /* of the reading thread, WIRE_PACKET_MAX bytes */
	bool reading;
	int64_t answer_by; /* while connecting, a deadline; -1: none */
	int patience_ms; /* for the answer to a request, after which the broker is lost; -1: none */
	int64_t ends_by; /* when the broker ends at the latest, as clock_ms(); 0: it has not said */
	int lost_error;  /* what the broker said why it ended the connection, or 0 */
	bool hung_up;    /* that was all it said */
	char lost_detail[256];
	uint32_t last_serial;
	bool numbered;        /* each packet from the broker ends with its number */
	uint64_t last_number; /* of those that came */
	LIST_HEAD(, call) calls;
	struct wire_message *later; /* to be sent when nobody is delivering */
	size_t n_later;
	atomic_bool chores; /* that, or what a room has left */
	bool doing_chores;
};

/* What there is to dispatch. Under the client's lock. */
struct dispatch {
	int epoll; /* -1 until somebody asks for share_get_fd() */
	int wakeup;
	TAILQ_HEAD(, task) tasks;
	uint64_t n_tasks;    /* ever queued */
	struct task *urgent; /* one of them, or NULL */
	LIST_HEAD(, share_operation) operations;
};
struct dispatch *dispatch_new(void);
/* Discards what is queued. NULL is fine. */
void dispatch_free(share_client *c);

/* One that is not connected yet, or NULL. */
share_client *client_new(void);
/* At once, whatever state it is in. */
void client_free(share_client *c);

/* deliver.c. With the lock held. What nobody has taken of @fds is still there. */
void connection_deliver(share_client *c, const void *packet, size_t size, struct fd_list *fds);
/* Who waits for the answer with this serial, or NULL. */
struct call *call_find(share_client *c, uint32_t serial);

/* queue.c. Has the program's event loop look, though there may be nothing to run. With the lock
 * held. */
void dispatch_wake(share_client *c);

/* silent.c. SHARE_ETIMEDOUT, with who it is that does not answer at the other end of @socket. */
int fail_silent(const char *address, int socket, int64_t waited_ms);

/* operation.c. Those that nobody can cancel, as the application is done with the client. */
void operations_abandon(share_client *c);
