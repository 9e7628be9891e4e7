/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>

#include "broker/journal/journal.h"

/*
 * The journal is a file in memory (a memfd), mapped as a whole. It begins with a head; then come
 * two groups and then chunks of entries.
 *
 * A chunk has entries of one type and one size. An entry is a checksum and the bytes of a record; a
 * free one has the checksum 0. A record is known by the place of its entry. See entries.c.
 *
 * What is put and dropped is first written to a group, as a list of entries and what they are to
 * be. A commit is one store of the group's number: after it, whoever opens the journal writes the
 * group's entries again, with the same result however often it is done. Two groups take turns, so
 * that the one that counts is never written to. See group.c.
 *
 * Only one process at a time uses the journal, and it runs one thread. A process that is killed has
 * done all stores before some instruction and none after it, and the memory outlives it; the next
 * process starts after it has ended. So nothing has to be flushed, no barrier for other processors
 * is needed, and signal fences suffice: only the compiler must not reorder. The checksums are for
 * what programs with bugs may have done to the memory.
 */

#define JOURNAL_MAGIC   UINT64_C(0x6c616e72756f6a73) /* "sjournal" */
#define JOURNAL_VERSION 1u /* of layout 0 (record.h); each layout after it has one more */
#define JOURNAL_MAX     (UINT64_C(16) << 30) /* bytes of address space */

/* A group has address space for the most that may happen at once (4096 leases that end, of buffers
 * with as many fences as a record can have). It has memory only as far as it needs it. */
#define CHUNK_SIZE  (UINT64_C(64) << 10)
#define GROUP_SIZE  (UINT64_C(1) << 30)
#define GROUP_LEAST (UINT64_C(256) << 10) /* the memory that a group has at least */
#define HEAD_SIZE   (UINT64_C(128) << 10)
#define FIRST_CHUNK (HEAD_SIZE + 2 * GROUP_SIZE)
#define GROW_BY     (UINT64_C(1) << 20)
#define PLACE_UNIT  8u
#define EMPTY_SPARE 16u

struct head {
	uint64_t magic; /* written last: without it the journal was never finished */
	uint32_t version;
	uint32_t ended;             /* see journal_end() */
	_Atomic uint64_t committed; /* number of the group that counts */
	_Atomic uint64_t chunks;    /* how much of the file is chunks: see chunks_word() */
	struct inbox inbox;
};
_Static_assert(sizeof(struct head) <= HEAD_SIZE, "the head has its place");

struct group {
	uint64_t number;
	uint64_t handled; /* the number of the packet in the inbox that was handled last */
	uint64_t size;    /* bytes of operations */
	uint32_t n;       /* the number of operations */
	uint32_t operations_sum;
	uint32_t sum; /* the checksum of what is above */
	uint32_t unused;
	unsigned char operations[];
};

/* An entry's new checksum and @size bytes, which follow. With 0 bytes the entry's bytes stay. */
struct operation {
	uint32_t place;
	uint32_t sum;
	uint32_t size;
};

struct chunk {
	uint16_t type;
	uint16_t span; /* how many times CHUNK_SIZE it takes */
	uint32_t entry_size;
	uint32_t n;
	uint32_t sum; /* the checksum of what is above, and of where it lies */
	unsigned char entries[];
};

/* What this process knows of a chunk. */
struct chunk_state {
	/* in the list of its type and size: with free entries, or holes */
	LIST_ENTRY(chunk_state) link;
	TAILQ_ENTRY(chunk_state) of_empty;
	/* how many of its entries are not free, or become free with the next commit */
	uint32_t live;
	uint32_t free; /* place of its first free entry; each has the next one's */
};

LIST_HEAD(chunk_list, chunk_state);
TAILQ_HEAD(chunk_queue, chunk_state);

#define CLASSES 64u /* classes of sizes of entries */

struct journal {
	unsigned char *memory;
	struct head *head;
	struct group *open; /* the group that is being written */
	unsigned char *end; /* end of what is in the open group */
	struct operation *last;
	uint64_t reserved[2]; /* memory that each group has */
	uint64_t size;        /* bytes of the file */
	uint64_t used;        /* bytes of the file up to the end of the last chunk */
	uint64_t handled;     /* the inbox's number that the last commit has */
	uint32_t layout;      /* the layout of its records */
	int fd;
	bool is_old, has_ended;
	bool is_copy; /* what is written to it stays in this process */
	/* a packet of before is in the inbox: see journal_take_unhandled() */
	bool has_unhandled;
	struct chunk_state *chunks; /* one for each CHUNK_SIZE bytes, where a chunk begins */
	struct chunk_list with_free[RECORD_TYPES][CLASSES], holes[RECORD_TYPES][CLASSES];
	/* chunks that have memory and no live entries; the one emptied last is at the end */
	struct chunk_queue empty;
	uint32_t n_empty;
	uint32_t spare_empty; /* so many of these keep their memory: EMPTY_SPARE, but in tests */
	uint64_t given_back;  /* bytes of memory that holes do without */
	uint32_t count[RECORD_TYPES];
};

/* sum.c: a checksum, which is never 0. */
uint32_t sum_of(uint64_t seed, const void *bytes, size_t size);

/* entry.c */
unsigned char *entry_at(const struct journal *j, uint32_t place);
uint32_t entry_place(const struct journal *j, const unsigned char *entry);
uint32_t entry_sum_now(const unsigned char *entry);
/* The checksum of a record that was put, and of one that is written in place. They are never equal,
 * nor 0. */
uint32_t entry_sum(enum record_type type, uint32_t place, const void *bytes, size_t size);
uint32_t entry_sum_in_place(enum record_type type, uint32_t place);
uint32_t class_of(size_t entry_size);
uint32_t size_of_class(uint32_t class);
/* chunks.c */
struct chunk *chunk_of(const struct journal *j, uint32_t place);
struct chunk *chunk_next(const struct journal *j, struct chunk *chunk); /* the first after NULL */
uint32_t chunk_sum(const struct journal *j, const struct chunk *chunk);
uint32_t chunk_entries(uint32_t entry_size); /* how many there are in a chunk */
uint16_t chunk_span(uint32_t entry_size);
/* The number of chunks together with its checksum, so that one store changes both. */
uint64_t chunks_word(uint32_t n);
struct chunk_state *chunk_state(const struct journal *j, const struct chunk *chunk);
/* The chunk's entries are all free from now on; or are not any more. */
void chunk_is_empty(struct journal *j, struct chunk_state *s);
void chunk_is_used(struct journal *j, struct chunk_state *s);
/* Chunks that have been empty since before the group that counts now become holes, but for some:
 * as memory that comes and goes would have to be given again each time, those go first that have
 * been empty for longest. */
void chunks_empty(struct journal *j);
/* Whether a chunk of a journal that is opened is a hole. @data: where the file had data when this
 * was asked for the chunk before; 0 before the first one. */
bool chunk_is_hole(const struct journal *j, const struct chunk *chunk, uint64_t *data);
void chunk_becomes_hole(struct journal *j, struct chunk_state *s);
/* Lets an entry that is free be given out again. */
void entry_file(struct journal *j, const struct chunk *chunk, unsigned char *entry);
/* Gives memory to a hole or a new chunk, so that there are free entries. 0 or negative errno. */
int chunk_get(struct journal *j, enum record_type type, uint32_t class);
/* Gives memory to so many bytes of the file from @offset on. 0 or negative errno. */
int journal_allocate(const struct journal *j, uint64_t offset, uint64_t size);
/* Makes the file so large, with memory for all. 0 or negative errno. */
int journal_grow(struct journal *j, uint64_t size);

/* entries.c */
/* Takes a free entry with room for @size bytes, and returns its place. 0: the journal has ended. */
uint32_t entry_take(struct journal *j, enum record_type type, size_t size);
/* Has an entry that was not free until now be given out again. */
void entry_free(struct journal *j, const struct chunk *chunk, unsigned char *entry);

/* group.c */
struct group *group_of(const struct journal *j, uint64_t number);
void group_open(struct journal *j);   /* begins the one after that which counts */
void group_seal(struct group *g);     /* writes its checksums */
size_t operation_room(uint32_t size); /* how much room one takes, with its bytes */
/* Writes to the entries what the group says. @filing: those that become free are given out
 * again. */
void group_apply(struct journal *j, const struct group *g, bool filing);

/* record.c: the layout of what this program writes: STATE_LAYOUT, but in a test that has the one
 * after it. */
uint32_t state_layout(void);

/* check.c: 0, or -EBADMSG and @why. */
int journal_check(struct journal *j, char *why, size_t why_size);
uint64_t inbox_check(const struct inbox *inbox);
