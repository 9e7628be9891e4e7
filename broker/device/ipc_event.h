/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

#define IPC_EVENT_HANDLE 64
#define IPC_EVENT_TOKEN  32

struct broker;
struct client;
struct device;

/*
 * An interprocess event of CUDA, made by the agent of its device. Idle events are kept for whoever
 * asks next. A leased one is counted by client, and goes when the last lease does. An event that a
 * process died with is not used again.
 */
struct ipc_event {
	TAILQ_ENTRY(ipc_event) link; /* in its device's bank */
	struct device *device;
	uint64_t id; /* 0: idle, or wedged and of no use any more */
	uint64_t handle;
	uint32_t incarnation; /* which process of the agent made it */
	bool wedged;
	char *name; /* NULL: none */
	uid_t uid;  /* the user who leased it first */
	struct charge charge;
	unsigned char ipc[IPC_EVENT_HANDLE];
	unsigned char token[IPC_EVENT_TOKEN];
	LIST_HEAD(, event_lease) leases;
	uint32_t record;
};

struct event_lease {
	LIST_ENTRY(event_lease) of_event;
	LIST_ENTRY(event_lease) of_client;
	struct ipc_event *event;
	struct client *client;
	uint32_t count;
	uint32_t record;
};

/*
 * Leases an idle event of the device to @client. 0; IPC_EVENT_LATER: one is being made, and
 * device->event_waits is woken then; IPC_EVENT_QUOTA; or negative errno.
 */
enum ipc_event_error { IPC_EVENT_LATER = 1, IPC_EVENT_QUOTA };
int ipc_event_take(struct device *d, struct client *client, const void *name, size_t name_size,
		   struct event_lease **out);

/* Both return NULL when there is none. A name is for its own user. */
struct ipc_event *ipc_event_by_name(struct broker *b, uid_t uid, const void *name, size_t size);
struct ipc_event *ipc_event_by_token(struct broker *b, const unsigned char *token);

/* Gives the client a lease, or one more count on the lease that it has. NULL without memory. */
struct event_lease *ipc_event_lease(struct ipc_event *e, struct client *client);
/* Puts a lease that is filled in among those of its event and of its client. */
void event_lease_attach(struct event_lease *lease);
struct event_lease *ipc_event_find_lease(const struct client *client, uint64_t id);
/* Takes @count of the lease back. @died: the process may have left the event recorded and
 * unfinished. */
void ipc_event_return(struct event_lease *lease, uint32_t count, bool died);
/* Returns some of the leases of a client that is gone; true when there are none any more. */
bool client_return_events(struct client *c, int *budget);

/* Whether the agent that made it has ended: then nobody can open it any more. */
bool ipc_event_is_lost(const struct ipc_event *e);
/* How many events of the running agent nobody has any more that processes have died with. */
uint32_t ipc_events_wedged(const struct device *d);

/* Both note in the journal what it is now. */
void event_note(struct ipc_event *e);
void event_lease_note(struct event_lease *lease);
/* Restores events and leases as the broker before had them. 0 or negative errno. */
int events_restore(struct broker *b);

/* Frees the events at the end of the broker. */
void ipc_events_deinit(struct device *d);
