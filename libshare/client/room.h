/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"
#include "wire/packet.h"
#include "wire/wire.h"

/*
 * A room of the library above this one, as a client sees it: when the room is asked about what it
 * keeps for that client. Any function may be NULL. They are called in the order of the table, from
 * the lowest room to the highest, but for free(), which goes back.
 */
struct client_room {
	/* Before the client connects. 0 or an error; free() is called in any case. */
	int (*begin)(share_client *c, const share_connect_options *options);
	/* A message that nobody has asked for, or a GRANT, which may be an answer as well. Called
	 * under the client's lock, so it sends nothing, and leaves what takes long for do_chores().
	 * 1; 0: this room knows no such message; -1: it makes no sense, or there is no memory. */
	int (*hear)(share_client *c, const struct wire_message *m, struct fd_list *fds);
	/* The broker is lost. Called under the client's lock. */
	void (*lose_broker)(share_client *c);
	/* Does what was left to do, see rpc_leave_chore(). One thread at a time calls it, which may
	 * hold a lock that is held while packets are read (buffers_lock_uses()), so that such a
	 * lock is only tried. False: some of it cannot be done yet, and is tried again when the
	 * next packet comes. */
	bool (*do_chores)(share_client *c);
	/* In share_dispatch(), without a lock. */
	void (*dispatch)(share_client *c);
	/* The program is done with the client, though not with all that it has of it. */
	void (*leave)(share_client *c);
	/* The last reference is gone: nothing may be in use or mapped any more when the broker
	 * hears of it. False: something still is, so it must not hear, and everything stays. */
	bool (*end)(share_client *c);
	/* Nobody has the client any more. */
	void (*free)(share_client *c);
};

/* In libshare/rooms.c; the last one is NULL. */
extern const struct client_room *const client_rooms[];
