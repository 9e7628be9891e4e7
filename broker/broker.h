/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "base/table.h"
#include "broker/client/account.h"
#include "broker/client/turns.h"
#include "broker/config/config.h"
#include "broker/device/device.h"
#include "broker/log/log.h"
#include "wire/wire.h"

/* What the daemon consists of. Every object hangs off this struct; there is no other state. */

struct buffer;
struct channel;
struct child;
struct client;
struct closer;
struct connection;
struct estate;
struct event;
struct event_base;
struct listener;
struct member;
struct name;
struct pool;
struct reload;
struct scrub;
struct segment;
struct watch;

struct name_tree {
	struct name *rbh_root; /* as <bsd/sys/tree.h> wants it */
};

struct broker_counters {
	uint64_t requests;
	uint64_t clients; /* ever connected */
	uint64_t dropped; /* for breaking the protocol */
};

struct broker {
	struct event_base *base;
	bool has_ended; /* what clients still use is theirs */
	bool ends_with_terminal;
	struct config *config; /* replaced in its place when it is read again */
	uid_t uid;
	uint64_t started_ms;
	struct broker_counters counters;

	struct accounts *accounts;
	struct turns turns;
	struct listener *listener;
	struct closer *closer;
	/* that this process may have, and those of them that are for itself */
	size_t n_descriptors, n_own_descriptors;
	size_t max_closing; /* sockets that wait for it: they cost descriptors */
	struct reload *reload;
	struct event *catch_up; /* a timer that is always set, so that setting it takes no memory */
	struct event *look_again;
	unsigned look_delay_ms;  /* longer while nothing gets free */
	struct event *gpu_watch; /* while GPUs are to signal fences that we know of */

	/* clients by slot; slots are small and used again, identifiers are not */
	struct client **clients;
	uint32_t n_client_slots;
	uint32_t n_clients;
	uint64_t last_client;
	TAILQ_HEAD(, client) ending;
	TAILQ_HEAD(, connection) in_flight; /* that descriptors are under way to */
	struct event *reaper;
	uint64_t last_page;
	/* the last timeline pages whose owners died, a ring: for those who ask too late to be sent
	 * the page */
	uint64_t died_pages[4096];
	uint64_t n_died_pages;
	uint64_t forgotten_page; /* the newest that fell out of the ring */

	LIST_HEAD(pool_list, pool) pools;
	uint64_t last_pool;
	struct devices devices;
	struct park_list woken; /* more requests than fit into a turn of the loop */
	struct event *waker;
	LIST_HEAD(, child) children; /* told to end */
	LIST_HEAD(, scrub) scrubs;   /* of devices' memory */
	struct slab segments;        /* struct segment */
	uint64_t next_address;       /* of segments that lie the same everywhere */
	size_t n_nobodys_segments, max_nobodys_segments; /* of the configuration's pools */
	struct slab blocks;                              /* struct block */
	struct slab buffers;                             /* struct buffer */
	struct slab leases;                              /* struct lease */
	struct table lease_table;

	struct name_tree names;
	uint64_t n_names;
	uint64_t last_version;
	struct log_rate unpublished; /* by others than who had published */
	TAILQ_HEAD(watch_list, watch) watches;
	uint64_t last_watch;
	struct table tokens;
	struct slab token_slab; /* struct token */
	uint64_t last_event;

	TAILQ_HEAD(, channel) channels; /* by identifier */
	struct table channel_names;
	uint64_t last_channel, last_member;
	size_t n_members;
	size_t max_fds_ahead; /* that a client may leave unread, of what it has not asked for */
	TAILQ_HEAD(, estate) estates; /* in which something is to be done */
	TAILQ_HEAD(member_list, member) departing;
	struct event *channel_work;

	unsigned char packet[WIRE_PACKET_MAX];  /* being read */
	unsigned char scratch[WIRE_PACKET_MAX]; /* being written */
};

/* Makes the pools of the configuration, which stays the caller's to free at the end, whatever
 * becomes of what is in it. 0, or negative errno with a logged reason. */
int broker_new(struct config *config, struct broker **out);

/* Serves until a signal or the end of the lifeline. 0 or negative errno. */
int broker_run(struct broker *b, int listen_fd, int lifeline_fd);

/* Drops all clients and frees everything. NULL is fine. */
void broker_free(struct broker *b);

/* Memory that could be returned waits for a fence: look at all pools again in a moment. */
void broker_look_again(struct broker *b);
/* The same, and somebody waits for it. */
void broker_look_soon(struct broker *b);

/* A client's GPU will signal a fence: take note of how far it gets, as long as its process lives.
 */
void broker_watch_gpus(struct broker *b);

/* Sets a timer on which something waits that nobody would ask for again. Where that takes memory
 * which is not there, everything is looked at a little later. */
void broker_set_timer(struct broker *b, struct event *timer, const struct timeval *delay);

#endif
