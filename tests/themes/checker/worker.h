/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/themes/checker/board.h"

/*
 * One of the processes that share the pool, and the work it enqueues. Work is done where the kind
 * of memory has it done: by a `struct engine`.
 */

#define JOBS     48 /* enqueued and not judged */
#define HELD_MAX 3  /* buffers that this process has to itself */

/* What each word of a buffer says: whose it is, and which part of which filling of which buffer.
 * A buffer has eight parts of the same size, and its words are of 32 bits. */
#define PARTS 8
struct mark {
	uint64_t
	    serial; /* of the allocation; not the identifier: asking for that has consequences */
	uint32_t owner, generation;
};
#define SERIAL_ADOPTED (UINT64_C(1) << 31) /* in the serial of memory that somebody had before */
static inline uint32_t mark_word(const struct mark *m, uint64_t part)
{
	uint64_t x = mix(mix(m->serial + 1) + ((uint64_t)m->generation << 32) + part);

	return (m->owner + 1) << 24 | (uint32_t)(x & 0xffffff);
}

struct worker;

/* A filling or a reading, on its way through a stream. What the engine finds out it says before
 * `done`. */
struct job {
	struct worker *worker;
	bool used, reads;
	unsigned stream;
	unsigned pauses_us[2]; /* before its first, and its second half */
	void *memory;
	uint64_t size;
	struct mark mark;
	uint32_t *copy; /* the engine's: room for what was read */

	_Atomic bool done;
	bool bad;
	uint64_t bad_word;
	uint32_t found;

	/* to judge a reading by */
	const char *how;    /* the buffer came to be read */
	share_buffer *held; /* until then; NULL: it was let go at once */
	share_fence giver;  /* timeline 0: nobody else's word is needed */
};

/* Memory of a worker's own. */
struct own {
	void *address;
	uint64_t size;
	int fd; /* of its file; -1: it has none */
};

struct engine {
	/* Streams and all; `streams` and `n_streams` are set. 0, or 77 with the reason printed. */
	int (*start)(struct worker *w);
	void (*stop)(struct worker *w);
	void (*end)(struct worker *w); /* when the client is gone */
	/* Return at once, but on a stream that is the calling thread. */
	void (*fill)(struct worker *w, struct job *j);
	void (*read)(struct worker *w, struct job *j);
	void (*synchronize)(struct worker *w, unsigned stream);
	/* Memory that others can have, of so many bytes at least; and its end. */
	void (*make)(uint64_t size, struct own *out);
	void (*unmake)(const struct own *own);
};
extern const struct engine host_engine, gpu_engine;

/* A buffer that nobody else reads or writes. */
struct held {
	share_buffer *buffer;
	struct mark mark;
	unsigned stream; /* that last used it */
};

struct worker {
	struct board *board;
	struct worker_state *state;
	const struct engine *engine;
	unsigned index;
	int tokens[2]; /* the pipe: reading, writing */
	struct dice dice;
	share_client *client;
	share_pool *pool, *adopted;
	void *streams[STREAMS_MAX + 1]; /* as libshare's `stream` */
	unsigned n_streams;
	struct job jobs[JOBS];
	unsigned next_job;
	struct held held[HELD_MAX];
	unsigned n_held;
	uint64_t serial;         /* of the last allocation */
	struct traffic *traffic; /* its channels */
	bool lost;               /* it has hung up */
};

/* The whole life of a worker; its exit code. */
#define EXIT_STUCK   2
#define EXIT_HUNG_UP 3
int worker_run(int board_fd, int read_fd, int write_fd, unsigned index, unsigned incarnation);

/* Says what it is at. */
void doing(struct worker *w, enum action action, unsigned stream);
void progress(struct worker *w);

/* A call of the library's did what it may not: says so and ends the process. */
void __attribute__((noreturn)) unexpected(struct worker *w, const char *call, int error);

/* Something is not as it should be: says what, and stops the run. */
void __attribute__((format(printf, 2, 3))) wrong(struct worker *w, const char *format, ...);

unsigned any_stream(struct worker *w);
uint64_t any_size(struct worker *w);
uint64_t new_serial(struct worker *w);

/* jobs.c */
/* A free one, for the stream; may have to wait for others. */
struct job *job_new(struct worker *w, unsigned stream, share_buffer *b, const struct mark *mark);
void job_fill(struct worker *w, struct job *j);
void job_read(struct worker *w, struct job *j);
/* Judges those that are done. */
void jobs_reap(struct worker *w);
void jobs_finish(struct worker *w); /* all of them */
/* What the engine does around each half, and with what it has read. */
void job_pause(const struct job *j, unsigned half);
void job_compare(struct job *j, const void *words, uint64_t part, uint64_t end_part);

/* adopted.c: as share_alloc(), a buffer of this worker's own memory. */
int adopt_some(struct worker *w, unsigned stream, share_buffer **out);

/* hand_over.c: each is a step. @b is a new buffer or one that nobody else has; consumed. */
void give(struct worker *w, const struct held *h);
void look_up(struct worker *w);
void import(struct worker *w);
void keep(struct worker *w, const struct held *h);
void let_go(struct worker *w, share_buffer *b, unsigned stream);
void unpublish(struct worker *w, unsigned name);
/* A fence behind what the stream has to do. */
share_fence record(struct worker *w, unsigned stream);
/* Makes @stream wait for what this process did with it. */
void follow(struct worker *w, struct held *h, unsigned stream);
