/* SPDX-License-Identifier: MIT */
#ifndef SHARE_CHANNEL_H
#define SHARE_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include <share/share.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/**
 * Channels: buffers, and up to 256 bytes with each, from producers to consumers through shared
 * memory. Once connected, neither the broker nor a system call is part of it while the other side
 * is awake, and nothing that was connected needs the broker to go on. In a broadcast every consumer
 * gets every message; in a queue every message goes to one consumer, the one with the fewest on
 * hand.
 *
 * What one producer sends arrives in the order it was sent (in a queue: at each consumer); between
 * producers there is no order.
 *
 * A message is a loan. The consumer has it from share_recv() to share_ack(), in any order; the
 * memory goes back to the producer's pool when all who got it have acknowledged it and their
 * streams have got past that, without anybody waiting. To keep a buffer longer, share_retain() it
 * before the acknowledgement and share_release() it as any other.
 *
 * Consumers come and go at any time. One that dies, or falls too far behind (`stall_ms`), stops
 * counting; in a queue, what it had not acknowledged goes to others, marked by `deliveries`. What a
 * dead or closed producer has sent can still be received; then share_recv() says so, once, and
 * waits for the next producer.
 *
 * It is the producer that gives to others what a dead consumer had. Once it has closed or died,
 * what a consumer that dies has not acknowledged is lost, and nobody is told. Where every message
 * counts, keep the producer open until `in_flight` of share_channel_get_stats() is 0.
 *
 * Who may use the pool of a channel may take part in it: to produce takes the right to write. All
 * take part on trust as far as the pool goes: a consumer that does not play by the rules gets
 * nobody into trouble but itself, and those whose messages it was given.
 *
 * When the last producer closes, its consumers are told by the broker, and by the end of its
 * process: without a broker, a consumer waits until then, and is told that the producer has died.
 *
 * Threads: as everywhere, every function may be called from any thread at any time, but
 * share_channel_close() only when no other call uses the handle. A thread that waits in
 * share_recv() or share_send() does not notice it: give those a time limit, and let them look
 * whether they are to go on.
 */
typedef struct share_channel share_channel;

/** What a process is in a channel. */
enum share_role {
	SHARE_PRODUCER = 1, /**< sends */
	SHARE_CONSUMER = 2, /**< receives */
};

/** Who gets a message. */
enum share_channel_mode {
	SHARE_BROADCAST = 1, /**< every consumer */
	SHARE_QUEUE = 2,     /**< one consumer: the one with the fewest on hand */
};

/** What becomes of a message that finds no room, because some consumer has not received `depth`
 * earlier ones, or `in_flight` messages are not acknowledged. */
enum share_when_full {
	SHARE_FULL_BLOCK = 1, /**< wait, up to `send_timeout_ms`: SHARE_ETIMEDOUT */
	SHARE_FULL_FAIL = 2,  /**< SHARE_EAGAIN */
	/** The oldest that was not received is dropped; only when consumers hold on to all of
	 * `in_flight`: SHARE_EAGAIN. */
	SHARE_FULL_DROP = 3,
};

/** What a consumer that comes gets of what was sent before. */
enum share_from {
	SHARE_FROM_NEWEST = 0, /**< what is sent after share_channel_open() has returned */
	SHARE_FROM_OLDEST = 1, /**< and what is still there */
};

/** More about a channel, or about who opens it. */
enum share_channel_flags {
	SHARE_CHANNEL_WRITABLE = 1 << 0, /**< consumers may write, too. Not in pools that scrub */
	SHARE_CHANNEL_EXISTING = 1 << 1, /**< SHARE_ENOENT rather than make the channel */
};

/** Bytes that go with a message, besides its buffer. */
#define SHARE_MESSAGE_DATA_MAX 256

/**
 * What a channel is like. Set it to SHARE_CHANNEL_OPTIONS_INIT. 0 (or NULL) is what the channel is
 * like when it is there, and else the default. Whoever opens a channel first says what it is like;
 * who asks for something else gets SHARE_EEXIST. As any of them may be the first, let all ask for
 * the same. The last four are each member's own.
 */
typedef struct share_channel_options {
	size_t size;
	const char *pool;   /**< of all buffers in it; "default" */
	uint32_t mode;      /**< enum share_channel_mode; broadcast */
	uint32_t when_full; /**< enum share_when_full; block */
	uint32_t depth;     /**< messages not yet received; a power of two up to 4096; 64 */
	uint32_t in_flight; /**< messages whose memory is not back, up to 8192; 2 * depth */
	uint32_t data_max;  /**< bytes with each message, up to 256; 256 */
	/** At a time, up to 64; 16. Twice as many are remembered that are gone: what a consumer
	 * still holds of an older one is free when it acknowledges it, all the same. */
	uint32_t producers;
	uint32_t consumers;  /**< at a time, up to 64; 64 */
	uint32_t deliveries; /**< queue: after so many a message is set aside; 3 */
	/** A consumer that keeps a producer waiting for longer, or whose streams do, is left
	 * behind: it gets SHARE_ESTALE and has to open the channel again; what it has received
	 * stays its own until it acknowledges it. What it has cost is missing to consumers of the
	 * same user (uid) that open the channel after it, which have half of what is left of twice
	 * that time; it is forgotten in eight times as long. 10000; UINT32_MAX: never. */
	uint32_t stall_ms;
	int32_t send_timeout_ms; /**< 0 or -1: no limit. Not to wait at all is SHARE_FULL_FAIL */
	uint32_t from;           /**< enum share_from */
	uint32_t flags;          /**< enum share_channel_flags */
} share_channel_options;
#define SHARE_CHANNEL_OPTIONS_INIT                                                      \
	{                                                                               \
		sizeof(share_channel_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/**
 * Takes part in a channel, and makes it if there is none of that name; it ends when nobody takes
 * part in it any more and all that was in it is back. Names are as those of buffers, but apart from
 * them. A consumer gets every message that is sent after the call has returned.
 *
 * @param c        the connection
 * @param name     1 to SHARE_NAME_MAX bytes of UTF-8
 * @param role     enum share_role
 * @param options  NULL: as it is, or the defaults
 * @param out      the handle, to be given up with share_channel_close()
 * @retval SHARE_EBUSY   there are as many of that role as there may be
 * @retval SHARE_EACCES  the pool is not for this user to write in
 * @retval SHARE_ENOENT  there is no such pool for this user (whoever may come first has to make it,
 *                       with SHARE_POOL_OPEN_OR_CREATE), or no channel with SHARE_CHANNEL_EXISTING
 * @retval SHARE_EEXIST  it is there, and not what was asked for, or not for this user; or it is one
 *                       of a service's
 * @retval SHARE_EQUOTA  as many channels as this user may have
 * @see share_service_open()
 *
 * @par Example
 * @code
 * share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
 *
 * options.pool = "frames";
 * options.mode = SHARE_QUEUE;
 * share_channel_open(c, "left", SHARE_CONSUMER, &options, &ch);
 * while (share_recv(ch, -1, stream, &m) == 0) {
 *         work_on(share_ptr(m.buffer), m.data, stream);
 *         share_ack(&m, stream);
 * }
 * @endcode
 */
int share_channel_open(share_client *c, const char *name, int role,
		       const share_channel_options *options, share_channel **out);

/**
 * Waits until nothing of what a producer has sent waits for a consumer to come, or in a queue for
 * one to have room (after one died with all it had, say). Consumers that are there can receive it
 * then, though the channel be closed, or this process end. That they have done so it does not say:
 * `in_flight` of share_channel_get_stats() does, when it is 0.
 *
 * @param ch          the channel, as a producer
 * @param timeout_ms  how long at most; -1: without limit
 * @retval SHARE_ETIMEDOUT  something does wait still; share_channel_get_stats() tells how much
 * @retval SHARE_EAGAIN     the same, and the time limit was 0
 * @retval SHARE_EACCES     not a producer
 */
int share_channel_flush(share_channel *ch, int timeout_ms);

/**
 * Leaves a channel, and gives the handle up. What a producer has sent can still be received by
 * consumers that were there; what waits for one to come, or in a queue for one to have room, goes
 * with the producer: share_channel_flush() first where that matters. A consumer receives no more:
 * in a queue, what it has not received goes to others. It goes when all messages it has received
 * are acknowledged; their handles stay good until then.
 *
 * @param ch  the handle; NULL is fine
 */
void share_channel_close(share_channel *ch);

/**
 * Sends a buffer and some bytes with it. The channel takes a reference of its own: the caller may
 * release the buffer at once, or go on reading it. Work that consumers enqueue on their streams
 * comes after what was enqueued on `stream` before.
 *
 * Never waits for consumers to be done; for room, see share_when_full. With nobody there to receive
 * it, a message waits for the first who comes.
 *
 * @param ch         the channel, as a producer
 * @param b          a buffer of the channel's pool; NULL: the data alone
 * @param data       what goes with it; may be NULL when there is none
 * @param data_size  its bytes, up to `data_max` of the channel
 * @param stream     where the buffer was worked on
 * @retval SHARE_EINVAL     the buffer is of another pool or client, or there is too much data; or
 *                          there is no buffer and `stream` is a CUDA stream, but the client has no
 *                          memory of a GPU mapped at this time
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says
 */
int share_send(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
	       void *stream);

/**
 * share_send() and share_release() in one, with one signal on the stream for both: the caller's
 * reference goes to the channel. When the call fails the caller has it still.
 *
 * @param ch         the channel, as a producer
 * @param b          a buffer of the channel's pool; NULL: the data alone
 * @param data       what goes with it; may be NULL when there is none
 * @param data_size  its bytes, up to `data_max` of the channel
 * @param stream     where the buffer was worked on
 * @retval SHARE_EINVAL     as share_send(); or it is the handle of a message that was received, and
 *                          nothing but the message holds it: share_retain() it first
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says
 */
int share_give(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
	       void *stream);

/** More about a message that is sent. */
enum share_outgoing_flags {
	SHARE_OUTGOING_GIVE = 1 << 0, /**< as share_give(): if it is sent */
};

/** A message, for share_send_many(). */
typedef struct share_outgoing {
	share_buffer *buffer; /**< of the channel's pool; NULL: the data alone */
	const void *data;     /**< what goes with it; may be NULL when there is none */
	size_t data_size;     /**< its bytes, up to `data_max` of the channel */
	uint32_t flags;       /**< enum share_outgoing_flags */
} share_outgoing;

/**
 * Sends as many messages as there is room for, with one signal on the stream and one wake-up.
 *
 * @param ch        the channel, as a producer
 * @param messages  the messages, in their order
 * @param n         how many
 * @param stream    where their buffers were worked on
 * @return How many were sent, at least 1; or a negative error.
 * @retval SHARE_EINVAL     as share_send() or share_give()
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says
 */
int share_send_many(share_channel *ch, const share_outgoing *messages, size_t n, void *stream);

/** A message, received. It lives where the caller wants, and is to be given up with share_ack(). */
typedef struct share_message {
	share_buffer *buffer; /**< NULL: none. The message's own: share_retain() to keep it */
	uint64_t number;      /**< of its producer's messages, from 0 */
	uint64_t lost;        /**< so many of that producer's were dropped right before it */
	uint64_t producer;    /**< tells producers apart; never used again */
	uint32_t deliveries;  /**< 1; more when others had it before, and died or left */
	uint32_t data_size;   /**< bytes in `data` */
	/** What came with it. */
	unsigned char data[SHARE_MESSAGE_DATA_MAX];
	share_channel *channel; /**< the library's; NULL: there is no message */
	uint64_t receipt;       /**< the library's */
	uint64_t after;         /**< the library's */
} share_message;

/**
 * Receives the next message. Work enqueued on `stream` afterwards comes after what the producer
 * enqueued before sending; with NULL and host memory the call waits for that, within the same time
 * limit.
 *
 * When others have come or gone, the broker is asked first who; one that does not answer is waited
 * for half a second, once, and from then on only who is known is received from.
 *
 * An error may come with a message: then the `channel` of the message is not NULL, and it is to be
 * acknowledged. Errors of share_lookup() that have to do with reaching the memory do. With every
 * other error it is NULL.
 *
 * @param ch          the channel, as a consumer
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where it will be worked on
 * @param out         the message, to be given back with share_ack()
 * @retval SHARE_EAGAIN      there is none, and the time limit was 0; share_error_detail() says so
 *                           when the broker has not answered who else has come
 * @retval SHARE_ETIMEDOUT   there was none in time
 * @retval SHARE_EPIPE       the last producer has closed the channel; it is said once, the next
 * call waits for a new one
 * @retval SHARE_EOWNERDEAD  the last producer has died, and all it sent was received; it is said
 *                           once. Or, with a message: its producer died before its work was done
 * @retval SHARE_ESTALE      this consumer was left behind: it has to open the channel again
 * @retval SHARE_EACCES      not a consumer. Or, with a message: its memory is out of reach, as this
 *                           user may not use the pool any more
 */
int share_recv(share_channel *ch, int timeout_ms, void *stream, share_message *out);

/**
 * share_recv() of a message in host memory that is there, and good, for the calling thread: where
 * that waits for nothing and asks nobody. For programs that hold a lock which others need, such as
 * that of an interpreter.
 *
 * @param ch   the channel, as a consumer
 * @param out  the message, to be given back with share_ack() or share_try_ack()
 * @retval SHARE_EAGAIN  it is not so, or there is none: share_recv(), which gets what comes next
 * all the same
 * @see share_recv() for the others
 */
int share_try_recv(share_channel *ch, share_message *out);

/**
 * Receives the messages that are there already, or the first that comes. An error that comes with a
 * message comes alone, with `out[0]`, whose `channel` is NULL with every other one.
 *
 * @param ch          the channel, as a consumer
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where they will be worked on
 * @param out         the messages, to be given back with share_ack() or share_ack_many()
 * @param n           how many at most
 * @return How many were received, at least 1; or a negative error, as of share_recv().
 * @see share_recv()
 */
int share_recv_many(share_channel *ch, int timeout_ms, void *stream, share_message *out, size_t n);

/**
 * Acknowledges a message: work enqueued on `stream` before may go on using its memory, nobody
 * else's touches it before that is done. Messages may be acknowledged in any order. The message is
 * given up (its `channel` is NULL then) but for SHARE_EFORK, SHARE_EINVAL and SHARE_ENOTSUP, as by
 * share_release().
 *
 * @param m       the message
 * @param stream  where it was worked on
 * @retval SHARE_EINVAL   it was acknowledged, or a copy of it was; or not a stream of this client
 * @retval SHARE_ENOTSUP  the stream is being captured
 */
int share_ack(share_message *m, void *stream);

/**
 * share_ack() of a message in host memory, used last by the calling thread, where that waits for
 * nothing and asks nobody: nobody keeps the memory beyond the message, and the channel is open.
 *
 * @param m  the message
 * @retval SHARE_EAGAIN  it is not so: share_ack(). The message is kept
 * @retval SHARE_EINVAL  it was acknowledged, or a copy of it was
 */
int share_try_ack(share_message *m);

/**
 * Acknowledges several messages of one channel, with one signal.
 *
 * @param messages  the messages
 * @param n         how many
 * @param stream    where they were worked on
 * @retval SHARE_EINVAL   as share_ack(), of any of them
 * @retval SHARE_ENOTSUP  the stream is being captured
 */
int share_ack_many(share_message *messages, size_t n, void *stream);

/**
 * Takes the next message of a queue that was delivered too often, each time to a consumer that died
 * or left with it. It is to be acknowledged like one that was received.
 *
 * @param ch   the channel, as a producer
 * @param out  the message; its `channel` is NULL when there is none
 * @retval SHARE_EAGAIN  there is none
 * @retval SHARE_EACCES  not a producer
 */
int share_channel_take_back(share_channel *ch, share_message *out);

/**
 * A descriptor for event loops: it polls readable when share_recv() has something for this consumer
 * to do, or share_send() of this producer may find room. To be armed: once it was asked for, call
 * share_recv() with time limit 0 until it says SHARE_EAGAIN, before each time it is polled (a
 * producer: a share_send() that says so; when_full is not SHARE_FULL_BLOCK). Do not read, write or
 * close it.
 *
 * @param ch  the channel
 * @return The descriptor, which belongs to the channel; or a negative error.
 */
int share_channel_get_fd(share_channel *ch);

/** What a member of a channel has done, and what is in it. Set it to SHARE_CHANNEL_STATS_INIT. */
typedef struct share_channel_stats {
	size_t size;
	uint64_t sent;         /**< by this producer */
	uint64_t received;     /**< by this consumer */
	uint64_t acknowledged; /**< by this consumer */
	/** By this producer for want of room, or before this consumer got them. */
	uint64_t dropped;
	uint64_t redelivered; /**< by this producer, as a consumer died or left */
	uint64_t set_aside;   /**< by this producer, delivered too often */
	uint64_t left_behind; /**< consumers that this producer gave up waiting for */
	uint64_t sleeps;      /**< times this member went to sleep */
	uint32_t in_flight;   /**< messages of this producer whose memory is not back */
	uint32_t producers;   /**< that take part now, as far as this member knows; 1 for its own */
	uint32_t consumers;   /**< the same */
	/** Messages of this producer that wait for a consumer to come or, in a queue, to have room:
	 * see share_channel_flush(). */
	uint32_t waiting;
} share_channel_stats;
#define SHARE_CHANNEL_STATS_INIT                                                \
	{                                                                       \
		sizeof(share_channel_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/**
 * What a member of a channel has done, and what is in it.
 *
 * @param ch   the channel
 * @param out  the figures
 */
int share_channel_get_stats(share_channel *ch, share_channel_stats *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
