/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/reply/deferred.h"
#include "wire/wire.h"

struct agent;
struct record;

/* A GPU, as agents describe it. Once seen it stays until the broker ends: pools refer to it. */
struct device {
	LIST_ENTRY(device) link;
	struct broker *broker;
	char uuid[64]; /* text */
	char name[256];
	char pci[32];
	uint64_t total, free;
	uint64_t granularity;
	uint32_t ordinal, driver, compute;
	uint32_t flags;       /* enum wire_device_flags */
	bool found;           /* the look that is under way has found it */
	bool gone;            /* the last look did not find it */
	bool was_gone;        /* whether it was, when that was logged last */
	struct agent *agent;  /* it has no process before one is needed */
	uint32_t n_of_agents; /* segments that are gone with the agent that made them */

	/* the bank of interprocess events */
	TAILQ_HEAD(ipc_events, ipc_event)
	events;            /* all there are: idle ones, and leased ones by identifier */
	bool making_event; /* the agent was asked for one */
	uint32_t n_leased;
	struct deferred_list event_waits;
	uint32_t record;
};

/* What is known of the devices of this machine. */
struct devices {
	LIST_HEAD(, device) list; /* in the driver's order */
	struct agent *scout;
	bool looking;
	bool known;         /* a look has ended well */
	uint64_t looked_ms; /* when the last one ended; 0: never */
	int error;          /* 0, or why that one found none */
	char text[1024];
	struct deferred_list waits;
	LIST_HEAD(, child) children; /* processes that were told to end */
	uint64_t last_event;
	unsigned char packet[WIRE_PACKET_MAX]; /* a packet of an agent's that is being read */
};

int devices_init(struct broker *b); /* 0 or -ENOMEM */
/* Restores devices, with their agents, as the broker before knew them. 0 or negative errno. */
int devices_restore(struct broker *b);
/* Tells the device's agent which events there are: see agent_tell_known(). 0 or -ENOMEM. */
int events_tell_known(struct device *d);
/* The first ends all agents, while all that waits for them is still there; the second frees the
 * rest. */
void devices_stop(struct broker *b);
void devices_free(struct broker *b);

/*
 * Whether it is known which devices there are. If not, the broker looks, and wakes
 * b->devices->waits then. An answer is good for ever when there are devices, else for a second;
 * with @fresh, for a second. Nobody else waits for a look that somebody wanted afresh, or has less
 * when it fails.
 */
bool devices_known(struct broker *b, bool fresh);
/* Returns why there are no devices, or 0, for those who want no fresh answer. The sentence is in
 * b->devices->text. */
int devices_error(const struct broker *b);

void devices_look_at_agents(struct broker *b);
/* Notes in the journal what it is now. */
void device_note(struct device *d);

/* How many agents are running, or were told to end and have not. */
unsigned devices_processes(const struct broker *b);
/* Whether nothing of an agent that was told to end runs any more, neither here nor for it on a
 * device. */
bool child_has_ended(const struct broker *b, pid_t pid);

/* Finds a device by its UUID as text, though it may be gone; NULL when it was never found. */
struct device *device_find(struct broker *b, const char *uuid);
/* A member of a record (broker/journal/record.h): a device, or NULL. */
void record_device(struct record *r, struct device **d);
