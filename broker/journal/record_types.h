/* SPDX-License-Identifier: MIT */
#pragma once

/* The number says in the memory itself which type a record has. It never changes, and the number of
 * a type that is no more stays unused, as 2, 10, 11 and 20 are. The room whose objects have these
 * records decides what is in them. */
enum record_type {
	RECORD_NONE = 0,
	RECORD_IDS = 1, /* only one: the numbers that are never given out twice */
	RECORD_CLIENT = 3,
	RECORD_TIMELINES = 4,
	RECORD_POOL = 5,
	RECORD_OPEN_POOL = 6,
	RECORD_SEGMENT = 7,
	RECORD_POSSESSION = 8, /* that a client has a segment */
	RECORD_BUFFER = 9,
	RECORD_METADATA = 12,
	RECORD_LEASE = 13,
	RECORD_NAME = 14,
	RECORD_TOKEN = 15,
	RECORD_WATCH = 16,
	RECORD_CHANNEL = 17,
	RECORD_MEMBER = 18,
	RECORD_CLAIM = 19,
	RECORD_ENTRY = 21,
	RECORD_WAITING = 22,  /* a request that is not answered yet */
	RECORD_OUTGOING = 23, /* a packet that has not gone out yet */
	RECORD_DIED_PAGES = 24,
	RECORD_GENERATIONS = 25,
	RECORD_DEVICE = 26,
	RECORD_AGENT = 27,
	RECORD_CHILD = 28, /* an agent that was told to end and has not */
	RECORD_EVENT = 29,
	RECORD_EVENT_LEASE = 30,
	RECORD_SCRUB = 31,
	RECORD_ORPHAN = 32,
	/* what consumers that are gone have acknowledged of a producer's messages */
	RECORD_ACKNOWLEDGED = 33,
	RECORD_TYPES
};
