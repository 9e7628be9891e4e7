/* SPDX-License-Identifier: MIT */
#ifndef BROKER_JOURNAL_JOURNAL_H
#define BROKER_JOURNAL_JOURNAL_H

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
 * A record is the journal's copy of an object's state, without pointers. Who changes the object
 * puts the record again (object.h).
 */
struct journal;
struct iovec;

#define RECORD_SIZE_MAX (96 * 1024) /* bytes */

/* A packet is received straight into this, so that it is not lost with who has received it. */
struct inbox {
	uint64_t number;       /* the packet's number, which is counted up before it is received */
	uint64_t client;       /* whose it is */
	uint64_t attempts;     /* to handle it, by brokers that died of it or beside it */
	uint64_t check;        /* the journal's own: that number and client are what they were */
	struct mmsghdr header; /* msg_len is the packet's size, 0: none has come */
	unsigned char packet[72 * 1024];
};

/* In the memory of @fd, which stays the caller's: a new journal if there is nothing in it, or the
 * one that is there. 0 or negative errno; -EBADMSG when it cannot be trusted. @why says it. */
int journal_new(int fd, struct journal **out, char *why, size_t why_size);
/* The same of one that is in use: what the caller does with it happens to a copy. While it is
 * opened, nobody may write to it. */
int journal_copy(int fd, struct journal **out, char *why, size_t why_size);
void journal_free(struct journal *j);         /* the memory stays */
bool journal_is_old(const struct journal *j); /* it had a commit before it was opened */

/* A record, new if *record is 0, says this from the next commit on. *record may change, as a record
 * of another size lies elsewhere. */
void journal_put(struct journal *j, enum record_type type, uint32_t *record, const void *bytes,
		 size_t size);
/* The same of bytes that lie apart. */
void journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
		       const struct iovec *parts, size_t n);
/* The record is gone from the next commit on, and *record is 0. If it is 0 already nothing
 * happens. */
void journal_drop(struct journal *j, uint32_t *record);
/* A new record, whose bytes (zeros at first) the caller writes in place from now on: that the
 * record is there counts from the next commit on, and what is written there at once. No checksum
 * guards it: who reads it checks what it uses. NULL: there is no memory for that. It is dropped
 * like others, and never put. */
void *journal_place(struct journal *j, enum record_type type, uint32_t *record, size_t size);
/* The bytes of a record that is written in place, after it was read. */
void *journal_in_place(struct journal *j, uint32_t record);

/* From now on all counts that was put and dropped since the last time, and that the packet in
 * the inbox was handled. */
void journal_commit(struct journal *j);
bool journal_is_committed(const struct journal *j); /* nothing has happened since */
/* No broker shall go on from this journal, as it cannot say all any more: @error (an errno) is why.
 * It says so in the log, once; from then on nothing is written to it, and this broker serves on.
 * The journal itself does so when there is no memory for more records. */
void journal_end(struct journal *j, int error);

struct inbox *journal_inbox(struct journal *j);
/* A packet of this client is about to be received into it. */
void journal_expect(struct journal *j, uint64_t client);
/* Of an old journal: the packet in it was received and not handled. Its size, or 0. It stays so,
 * whatever is committed, until this was called, and is handled with the next commit after that. */
size_t journal_take_unhandled(struct journal *j);

/* All records of a type, as they were last committed, in no order; what is put or dropped meanwhile
 * does not matter. @size: at least as much as was put; zeros follow. The first negative number that
 * @reader returns ends it, and is the result; -EBADMSG if a record is smaller than @least. */
typedef int journal_reader(void *data, uint32_t record, const void *bytes, size_t size);
int journal_read(struct journal *j, enum record_type type, size_t least, journal_reader *reader,
		 void *data);
/* The bytes of a record that was put, as they were last committed. */
const void *journal_bytes(const struct journal *j, uint32_t record, size_t *size);

/* The layout of its records (record.h), as one of them, RECORD_IDS, says. 0, or -EBADMSG for one
 * that this program does not know. */
int journal_set_layout(struct journal *j, uint64_t layout);
uint32_t journal_layout(const struct journal *j);
/* All records that are put have this program's layout. True if that of the journal was older:
 * from now on no program opens it that does not know this one. */
bool journal_raise_layout(struct journal *j);

uint64_t journal_size(const struct journal *j); /* bytes of memory that it has for records */
uint64_t journal_taken_by(size_t size);         /* those that a record of this size has */
/* Records of a type, with those that are not committed yet. */
uint32_t journal_count(const struct journal *j, enum record_type type);

#endif
