/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "broker/journal/record_types.h"

/*
 * What the next broker has to know when this one has died: a record for each object, in memory that
 * outlives the process. What happens to records counts from journal_commit() on, all of it at once:
 * whenever the broker dies, the next one finds the records as they were at some commit.
 *
 * A record is the journal's copy of an object's state, without pointers. A function that changes
 * the object puts the record again (object.h).
 */
struct journal;
struct iovec;

#define RECORD_SIZE_MAX (96 * 1024) /* bytes */

/* A packet is received straight into this, so that it is not lost when the broker dies. */
struct inbox {
	uint64_t number;       /* the packet's number, which is counted up before it is received */
	uint64_t client;       /* the client that has sent it */
	uint64_t attempts;     /* how many brokers have crashed while they handled it */
	uint64_t check;        /* the journal's own checksum of number and client */
	struct mmsghdr header; /* msg_len is the packet's size, 0: none has come */
	unsigned char packet[72 * 1024];
};

/* Makes a new journal in the memory of @fd if there is nothing in it, or opens the one that is
 * there. @fd stays the caller's. 0 or negative errno with @why; -EBADMSG: it cannot be trusted. */
int journal_new(int fd, struct journal **out, char *why, size_t why_size);
/* Opens a copy of a journal that is in use, which stays as it is whatever the caller does with the
 * copy. While it is opened, nobody may write to the journal. */
int journal_copy(int fd, struct journal **out, char *why, size_t why_size);
void journal_free(struct journal *j);         /* the memory stays */
bool journal_is_old(const struct journal *j); /* it had a commit before it was opened */

/* Has a record, a new one if *record is 0, say this from the next commit on. *record may change, as
 * a record of another size lies elsewhere. */
void journal_put(struct journal *j, enum record_type type, uint32_t *record, const void *bytes,
		 size_t size);
/* The same for bytes that lie in several places. */
void journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
		       const struct iovec *parts, size_t n);
/* Drops a record from the next commit on, and sets *record to 0. If that is 0 already nothing
 * happens. */
void journal_drop(struct journal *j, uint32_t *record);
/* Makes a record whose bytes (zeros at first) the caller writes in place: what is written counts at
 * once, but that the record is there only from the next commit on. No checksum guards the bytes, so
 * who reads them checks what it uses. NULL: there is no memory. The record is dropped like others,
 * and never put. */
void *journal_place(struct journal *j, enum record_type type, uint32_t *record, size_t size);
/* Returns the bytes of a record that is written in place, after it was read. */
void *journal_in_place(struct journal *j, uint32_t record);

/* Has all count that was put and dropped since the last commit, and that the packet in the inbox
 * was handled. */
void journal_commit(struct journal *j);
bool journal_is_committed(const struct journal *j); /* nothing has happened since the last commit */
/* Ends the journal: no broker is to go on from it, as it cannot say all any more. @error (an errno)
 * is the reason, which is logged once. From then on nothing is written to it, and this broker
 * serves on. The journal ends itself when there is no memory for more records. */
void journal_end(struct journal *j, int error);

struct inbox *journal_inbox(struct journal *j);
/* Called before a packet of this client is received into it. */
void journal_expect(struct journal *j, uint64_t client);
/* The size of the packet in an old journal that was received and not handled, or 0. It stays
 * unhandled until this is called, and is handled with the next commit after that. */
size_t journal_take_unhandled(struct journal *j);

/* Reads all records of a type as last committed, in no order; what is put or dropped meanwhile does
 * not matter. @size is at least as much as was put; zeros follow. The first negative number that
 * @reader returns ends it, and is the result; -EBADMSG: a record is smaller than @least. */
typedef int journal_reader(void *data, uint32_t record, const void *bytes, size_t size);
int journal_read(struct journal *j, enum record_type type, size_t least, journal_reader *reader,
		 void *data);
/* Returns the bytes of a record that was put, as they were last committed. */
const void *journal_bytes(const struct journal *j, uint32_t record, size_t *size);

/* The layout of its records (record.h), which one of them, RECORD_IDS, says. 0, or -EBADMSG for one
 * that this program does not know. */
int journal_set_layout(struct journal *j, uint64_t layout);
uint32_t journal_layout(const struct journal *j);
/* From now on all records that are put have this program's layout. True if the journal's was older:
 * then no program opens it any more that does not know this one. */
bool journal_raise_layout(struct journal *j);

uint64_t journal_size(const struct journal *j); /* bytes of memory that it has for records */
uint64_t journal_taken_by(size_t size);         /* how many of them a record of this size has */
/* How many records of a type there are, with those that are not committed yet. */
uint32_t journal_count(const struct journal *j, enum record_type type);
