/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/fields.h"
#include "wire/messages.h"

/* What is made from the tables of messages.h and fields.h: types, structs, and the interface of the
 * codec. */

enum wire_direction { WIRE_TO_BROKER, WIRE_TO_CLIENT, WIRE_TO_AGENT, WIRE_FROM_AGENT };

/* How the handling of a message differs from that of others; a column of the table. */
enum wire_message_flags {
	WIRE_FIRST = 1 << 0,  /* the first message of a connection, and no other one */
	WIRE_SECOND = 1 << 1, /* the second message: the one after the answer to the first */
	WIRE_SERIAL_OPTIONAL = 1 << 2,  /* a request that wants no reply has the serial 0 */
	WIRE_WAITS_FOR_OTHERS = 1 << 3, /* its reply may have to wait for other clients */
	WIRE_UNASKED = 1 << 4,          /* may come with the serial 0, without a request */
	WIRE_REPEATABLE = 1 << 5, /* may be asked of a second agent when the first one died of it */
	WIRE_OF_ONE_PROCESS = 1 << 6, /* concerns what ends with the agent's process */
	WIRE_BEGINS = 1 << 7,         /* refused by a broker that is about to end */
};

enum wire_type {
	WIRE_NOTHING = 0,
#define WIRE_ENUM(NAME, name, number, ...) WIRE_##NAME = number,
	WIRE_MESSAGES(WIRE_ENUM)
#undef WIRE_ENUM
	    WIRE_TYPE_COUNT
};

/* Bytes that belong to the packet they were decoded from, or to the sender of the message. Not
 * NUL-terminated. */
struct wire_bytes {
	const void *data;
	uint32_t size;
};

/* A text as bytes; there are none of NULL. */
static inline struct wire_bytes wire_text(const char *text)
{
	return (struct wire_bytes){text, text ? (uint32_t)strlen(text) : 0};
}

#define WIRE_C_u32   uint32_t
#define WIRE_C_i32   int32_t
#define WIRE_C_u64   uint64_t
#define WIRE_C_error int32_t /* 0 or SHARE_E...; on the wire it has the number of WIRE_ERRORS */

#define WIRE_MEMBER_F(M, type, name, since, text) WIRE_C_##type name;
#define WIRE_MEMBER_V(M, name, max, since, text)  struct wire_bytes name;
#define WIRE_STRUCT(NAME, name, ...)                                                      \
	struct wire_##name {                                                              \
		WIRE_FIELDS_##name(WIRE_MEMBER_F, WIRE_MEMBER_V, name) char wire_unused_; \
	};
WIRE_MESSAGES(WIRE_STRUCT)
#undef WIRE_STRUCT
#undef WIRE_MEMBER_F
#undef WIRE_MEMBER_V

struct wire_message {
	enum wire_type type;
	uint32_t serial; /* of the request, and of the reply to it; 0: none */
	union {
#define WIRE_UNION(NAME, name, ...) struct wire_##name name;
		WIRE_MESSAGES(WIRE_UNION)
#undef WIRE_UNION
	};
};

struct wire_fence {
	uint64_t timeline;
	uint64_t value;
};

enum wire_grant_flags {
	WIRE_GRANT_SEGMENT = 1 << 0,   /* the segment's descriptor comes along */
	WIRE_GRANT_HAND_OVER = 1 << 1, /* the first of `fences` is the giver's */
};

enum wire_alloc_flags {
	/* The client keeps blocks of this pool in a magazine, and gives them back on TRIM. */
	WIRE_ALLOC_KEEPS = 1 << 0,
};

enum wire_trim_flags {
	WIRE_TRIM_ENDED = 1 << 0, /* the pool was destroyed: keep nothing of it any more */
};

/* The flags of HELLO. */
enum wire_hello_flags {
	/* The connection of an administrator, to look at the broker's objects or to end some of
	 * them. */
	WIRE_HELLO_OPERATOR = 1 << 0,
};

/* What a DROP can end. */
enum wire_dropped {
	WIRE_DROP_CLIENT = 1,
	WIRE_DROP_TOKEN = 2,
	WIRE_DROP_MESSAGES = 3, /* that wait in a channel, of producers that are gone */
};

/* One further buffer of a GRANT. */
struct wire_more {
	uint64_t buffer;
	uint64_t offset; /* in the segment */
};

/* Flags of CHANNEL_OPEN, beside enum share_channel_flags. */
enum wire_channel_flags {
	WIRE_CHANNEL_OLDEST = 1 << 16,  /* a consumer that becomes a WIRE_MEMBER_OLDEST */
	WIRE_CHANNEL_SERVICE = 1 << 17, /* one of a service; SHARE_EEXIST if it is no such */
};

enum wire_member_state {
	WIRE_MEMBER_HERE = 1,   /* takes part */
	WIRE_MEMBER_LEFT = 2,   /* its connection has ended, but the process lives */
	WIRE_MEMBER_DEAD = 3,   /* a producer that died; consumers may still have its messages */
	WIRE_MEMBER_CLOSED = 4, /* a producer that closed the channel; as above */
};
enum wire_member_flags {
	WIRE_MEMBER_NEW = 1 << 0,      /* its descriptors come along */
	WIRE_MEMBER_WRITABLE = 1 << 1, /* a consumer that may write */
	WIRE_MEMBER_OLDEST = 1 << 2,   /* a consumer that also wants older messages */
	WIRE_MEMBER_FETCHED =
	    1 << 3,                  /* a producer that is gone: only what is fetched comes of it */
	WIRE_MEMBER_LATEST = 1 << 4, /* a consumer that gets the latest message alone */
};
struct wire_member {
	uint64_t member; /* identifier, never used again */
	uint64_t page;   /* identifier of its client's timeline page */
	uint16_t
	    slot; /* of the consumer: which admission and lane of the producer's ring are its own */
	uint16_t row;   /* of the consumer's ledger: which one is about this producer */
	uint16_t state; /* enum wire_member_state */
	uint16_t flags; /* enum wire_member_flags */
	uint32_t uid;   /* of its user, as the broker has it */
	uint32_t
	    claim; /* the number of what this is about: of two in one place the later is higher */
};
_Static_assert(sizeof(struct wire_member) == 32, "part of the protocol");

enum wire_channel_sync_flags {
	WIRE_CHANNEL_SYNC_AFRESH = 1 << 0, /* what was told before is lost: all others are new */
	WIRE_CHANNEL_SYNC_FETCH = 1 << 1,  /* a consumer that has nothing else to receive */
};

/* The bits that are missing here say of which kinds of memory a device can make segments: they are
 * the column `ability` of memory/kind.h. */
enum wire_device_flags {
	WIRE_DEVICE_EVENTS = 1 << 2,         /* can make interprocess events */
	WIRE_DEVICE_STREAM_MEM_OPS = 1 << 3, /* 64-bit stream memory operations */
	WIRE_DEVICE_MIG = 1 << 4,            /* is a MIG instance */
	WIRE_DEVICE_MIG_ENABLED = 1 << 5,    /* is split into MIG instances */
	WIRE_DEVICE_MPS = 1 << 6,            /* an MPS control daemon is running */
};

/* What AGENT_KNOWN speaks of. */
enum wire_known { WIRE_KNOWN_SEGMENTS = 1, WIRE_KNOWN_EVENTS };

#define WIRE_HEADER_SIZE 8
#define WIRE_PACKET_MAX  (72 * 1024) /* the largest message, and room for later fields */
#define WIRE_FDS_MAX     65
#define WIRE_FENCES_MAX  1024 /* in one GRANT */
#define WIRE_PAGES_MAX   32   /* in one GRANT */

/* The identifier of a timeline is that of its page and its slot in one number. */
#define WIRE_TIMELINE(page, slot)    ((uint64_t)(page) << 16 | (slot))
#define WIRE_TIMELINE_PAGE(timeline) ((timeline) >> 16)
#define WIRE_TIMELINE_SLOT(timeline) ((uint32_t)((timeline)&0xffff))

/* The reasons why a packet cannot be decoded. */
enum wire_fault {
	WIRE_E_TRUNCATED = 1, /* the packet is shorter than its own sizes say */
	WIRE_E_UNKNOWN,       /* there is no such type in this direction */
	WIRE_E_TOO_LARGE,     /* a variable field is larger than its maximum */
	WIRE_E_FDS,           /* the packet has too few or too many descriptors */
};

/* The table as data, for the codec, the fuzzer and the documentation. */
struct wire_field {
	const char *name;
	const char *type; /* "u32", "i32", "u64", "error", or "bytes" */
	const char *text;
	uint16_t size;   /* in the fixed part, bytes */
	uint16_t offset; /* in the struct, bytes */
	uint32_t max;    /* largest size of a variable field; 0: the field is fixed */
	uint16_t since;
	bool is_error; /* it is one of WIRE_ERRORS */
};

struct wire_description {
	const char *name; /* "HELLO" */
	const char *text;
	const struct wire_field *fields;
	uint16_t n_fields;
	uint16_t fixed_size;     /* of the newest version */
	uint16_t fixed_size_min; /* of the oldest version */
	uint8_t direction;
	uint8_t fds_min, fds_max;
	uint8_t since;
	uint8_t flags; /* enum wire_message_flags */
	enum wire_type reply;
};

/* Returns the description of a message, or NULL when the type is unknown. */
const struct wire_description *wire_describe(unsigned type);

/* Returns a sentence for an enum wire_fault. */
const char *wire_error_text(int error);

/*
 * Writes @m as one packet into @buffer. Returns the size of the packet. Returns 0 when it does not
 * fit or a variable field is larger than the table allows, which is a mistake of the caller.
 */
size_t wire_encode(const struct wire_message *m, void *buffer, size_t size);

/*
 * The number at the end of a packet to a client (see wire/messages.h):
 * no part of the message, so it is taken off before the message is read, which would pass over it.
 */
#define WIRE_NUMBER_SIZE 8

/* Appends @number to a packet of @size bytes, behind which there is room for it. Returns its size
 * then. */
size_t wire_put_number(void *packet, size_t size, uint64_t number);

/* Takes the number off the end of a packet: @size is then that of the message. A farewell has none,
 * and is beyond all others: UINT64_MAX. Returns 0, or WIRE_E_TRUNCATED if there is no room for one.
 */
int wire_take_number(const void *packet, size_t *size, uint64_t *number);

/* Type and serial of a packet, as they are; 0 of one that is too short to have them. */
void wire_peek(const void *data, size_t size, unsigned *type, uint32_t *serial);

/*
 * Reads a packet that came with @n_fds descriptors from a peer that sends in @direction. On success
 * the variable fields of @m point into @data. Returns 0 or an enum wire_fault. The serial is set
 * whenever the header is complete, and the type whenever it is also known in this direction.
 */
int wire_decode(struct wire_message *m, enum wire_direction direction, const void *data,
		size_t size, size_t n_fds);
