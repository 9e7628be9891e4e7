/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/order/order.h"

/*
 * How many of this process's CUDA streams stand still in waits that are not met. From
 * CUDA_DEVICE_MAX_CONNECTIONS of them on, every other stream of the process stands still as well
 * (measured), so the library parks half of that at most, over all clients.
 */

/* Whether one more stream may be parked until these fences are reached: it is counted then. Cheap
 * when it is parked already. Thread-safe; not with a client's lock held. */
bool parked_enter(share_client *c, int ordinal, uint64_t stream, const struct held_fence *fences,
		  size_t n);
/* After parked_enter(), and after the waits were enqueued; @done: or could not be. */
void parked_enqueued(int ordinal, uint64_t stream, const struct held_fence *fences, size_t n,
		     bool done);
/* Whether that stream waits for this fence already, or for a later one of the same timeline. */
bool parked_waits_for(int ordinal, uint64_t stream, const struct held_fence *f);
/* Whether parked_enter() would agree now. */
bool parked_has_room(int ordinal, uint64_t stream);

/* Streams of this device that are parked now; -1: of all. */
unsigned parked_count(int ordinal);

/* The client ends. True when a stream still waits on one of its pages: they have to stay mapped,
 * and it stays counted. */
bool parked_forget(share_client *c);
