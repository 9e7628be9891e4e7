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
 * Channels carry buffers, and some bytes with each, from producers to consumers through shared
 * memory. Once a channel is open, sending and receiving involve neither the broker nor a system
 * call as long as the other side is awake, and members of a channel go on when the broker is gone.
 * In a broadcast every consumer gets every message. In a queue every message goes to one consumer:
 * the one that has the fewest messages at the time.
 *
 * The messages of one producer arrive in the order in which they were sent. In a queue that is so
 * at each consumer, but for messages that others had before, or left without receiving them. There
 * is no order between messages of different producers.
 *
 * The buffer of a message is a loan. The consumer has it from share_recv() to share_ack(), and may
 * acknowledge messages in any order. The memory goes back to the producer's pool when all consumers
 * that got the message have acknowledged it and their streams are done with the work before that;
 * nobody waits for this. A consumer that wants to keep a buffer longer calls share_retain() before
 * the acknowledgement, and share_release() as for any other buffer. With a loan it can read the
 * metadata and the tensor as well, and send the buffer on. Changing the metadata, publishing,
 * exporting and a recipe take more than a loan: they are SHARE_ESTALE for who has nothing else,
 * until the buffer was retained and the message acknowledged.
 *
 * Consumers come and go at any time. No producer waits any more for a consumer that dies or falls
 * too far behind (`stall_ms`); in a queue, the messages that it had not acknowledged go to others,
 * marked by `deliveries`. So does a message that a consumer gives back (share_reject()). The
 * messages of a producer that has died or closed the channel can still be received. After the last
 * of them share_recv() says so, once, and then waits for the next producer.
 *
 * A broadcast without consumers keeps nobody waiting, as in other systems of publishers and
 * subscribers: the last `depth` messages wait for the first consumer that comes, and older ones are
 * dropped, which `lost` of its first message says. So a program may publish before anybody listens,
 * and goes on while its only consumer restarts. Where each message counts, use a queue, or say by
 * `wait_for` for how many consumers the producer is to wait. A queue without consumers has room for
 * `depth` messages; what there is no room for waits or fails, as `when_full` says.
 *
 * The messages of a queue outlive their producer. When it has closed the channel or died, what no
 * consumer has received stays for who comes next, and what a consumer has that dies or leaves goes
 * to others, marked by `deliveries`. A consumer that holds nothing hears of the end only when no
 * other one holds such a message, as it may get that; so does one that comes while another holds
 * one. If the broker is lost while some wait, who would get them is told so (SHARE_EDISCONNECTED),
 * and not of an end. Who comes when there is none any more waits for the next producer, as who
 * comes before the first one does: a worker that is not to outlast its jobs has a time limit, and
 * opens the channel with SHARE_CHANNEL_EXISTING, which is SHARE_ENOENT once everybody has gone.
 *
 * Without a consumer such messages wait for an hour. They count as their producer's user's, are the
 * first to go when that user has no room for more memberships, and of those that no consumer has a
 * channel keeps 64 producers'. share_end_channel() ends them. What was delivered as often as
 * `deliveries` allows is lost, as nobody is there to take it back. However they are lost, `lost` of
 * the next message that a consumer receives counts them.
 *
 * Users who may use the pool of a channel may take part in the channel; to be a producer takes the
 * right to write. Members trust each other as users of one pool do. A consumer that breaks the
 * rules of the channel harms only itself and the producers whose messages it was given.
 *
 * When the last producer closes the channel, the consumers are told at once, whether there is a
 * broker or not. (A producer with an earlier version of this library leaves that to the broker:
 * without one, consumers are told when its process ends.) Where the broker is gone for good, nobody
 * can come any more. Whoever waits for somebody else then gets SHARE_EDISCONNECTED, within half a
 * second, as soon as nobody is left who could do what it waits for.
 *
 * Threads: as everywhere, every function may be called from any thread at any time. When one closes
 * the channel, those that wait in share_recv() or share_send() get SHARE_ECANCELED, and other calls
 * that have begun fail or do what they do; one that begins later is a mistake (SHARE_EINVAL).
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
	SHARE_QUEUE = 2,     /**< one consumer: the one with the fewest messages at the time */
};

/** What happens to a message for which there is no room. Some consumer (in a queue: each) has yet
 * to receive `depth` earlier messages; or in a queue so many wait for a consumer to come; or the
 * memory of `in_flight` messages is not back; or fewer consumers are there than `wait_for`. */
enum share_when_full {
	SHARE_FULL_BLOCK = 1, /**< wait, up to `send_timeout_ms`: SHARE_ETIMEDOUT; SHARE_EAGAIN if
			       * that is 0 */
	SHARE_FULL_FAIL = 2,  /**< SHARE_EAGAIN */
	/** The oldest message that was not received is dropped. When consumers have received all of
	 * `in_flight` and acknowledged none, or fewer are there than `wait_for`, there is nothing
	 * to drop: SHARE_EAGAIN. So it is when all that could be dropped leaves too few of
	 * `in_flight` for the buffers of the message. */
	SHARE_FULL_DROP = 3,
};

/** Which earlier messages a consumer gets when it opens the channel. Of those that are sent while
 * share_channel_open() runs, it may get the later ones; of those sent after that, it gets each. */
enum share_from {
	/** those that wait for a consumer, as there was none when they were sent: see share_send()
	 */
	SHARE_FROM_NEWEST = 0,
	/** these, and in a broadcast what is still there: of each producer the last `history`
	 * messages, and more of its last `depth` if somebody has yet to acknowledge them */
	SHARE_FROM_OLDEST = 1,
};

/** More about a channel, or about who opens it. */
enum share_channel_flags {
	SHARE_CHANNEL_WRITABLE = 1 << 0, /**< consumers may write, too. Not in pools that scrub */
	SHARE_CHANNEL_EXISTING = 1 << 1, /**< SHARE_ENOENT rather than make the channel */
	/** A producer of a queue whose messages do not outlive it, as they are somewhere else as
	 * well, and come again from there (a bridge's) */
	SHARE_CHANNEL_TRANSIENT = 1 << 2,
	/** A consumer of a broadcast that gets the latest message there is, of each producer: what
	 * was sent before that it misses, and `lost` says how much. No producer ever waits for it,
	 * whatever `when_full` says, and it is never left behind for being slow. It may hold two
	 * messages; receiving a third is SHARE_EBUSY until it has acknowledged one. In return
	 * `in_flight` has to be more than `history` and two for each such consumer:
	 * share_channel_open() fails with SHARE_EINVAL, or SHARE_EBUSY if it is too small for one
	 * more of them. Work of its streams on a message is waited for as that of any consumer is,
	 * and a producer whose library does not know this flag waits for it as for any other. */
	SHARE_CHANNEL_LATEST = 1 << 3,
};

/** Bytes that go with a message at most, besides its buffer, where nobody has said more. */
#define SHARE_MESSAGE_DATA_MAX 256
/** What a channel's `data_max` may be at most. */
#define SHARE_CHANNEL_DATA_MAX 65535

/**
 * What a channel is like. Set it to SHARE_CHANNEL_OPTIONS_INIT. A member that is 0 (or NULL) stands
 * for what the channel has if it exists, and else for the default, which is the last thing in each
 * comment. The first process to open a channel says what it is like; a process that asks for
 * something else later gets SHARE_EEXIST. As any of them may be the first, let all ask for the
 * same. The five members from `stall_ms` to `wait_for` are each process's own.
 */
typedef struct share_channel_options {
	size_t size;
	const char *pool;   /**< of all buffers in it; "default" */
	uint32_t mode;      /**< enum share_channel_mode; broadcast */
	uint32_t when_full; /**< enum share_when_full; block */
	uint32_t depth;     /**< messages not yet received; a power of two up to 4096; 64 */
	uint32_t in_flight; /**< messages whose memory is not back, up to 8192; 2 * depth */
	/** Bytes with each message, up to SHARE_CHANNEL_DATA_MAX; SHARE_MESSAGE_DATA_MAX. Where it
	 * is more than 256, all that a producer has in flight is 64 MiB at most: `in_flight` times
	 * `data_max`; and a consumer has to say it as well, else it gets SHARE_EEXIST, as its
	 * program may have room for 256 bytes. Data are copied twice, so more than a few KiB are
	 * better off in a buffer. */
	uint32_t data_max;
	/** At a time, up to 64; 16. Those that are gone keep nobody out: what they have sent can be
	 * received, and stays until it is acknowledged. But a consumer that has yet to receive or
	 * to acknowledge something of too many that are gone is left behind when a new one comes.
	 * Too many are 64 of them, those that are there included; or, in a channel with an
	 * `in_flight` above 1000, what fits in 1 MiB at 16 bytes a message in flight, but always
	 * twice as many as there may be at a time. Use share_retain() to keep messages. */
	uint32_t producers;
	uint32_t consumers;  /**< at a time, up to 64; 64 */
	uint32_t deliveries; /**< queue: after so many a message is set aside; 3 */
	/** Broadcast: so many of its last messages a producer keeps, though all have acknowledged
	 * them, for consumers that come later with SHARE_FROM_OLDEST. They are among those
	 * `in_flight`, which has to be more, and at most `depth`. Their memory comes back as newer
	 * messages are sent, or are dropped for want of room, and when the producer closes the
	 * channel or dies. If the work of as many consumers as there may be at a time is not done
	 * on one of them, who comes next begins after it. 0. */
	uint32_t history;
	/** A consumer that keeps a producer waiting for longer than this, by itself or by its
	 * streams, is left behind: it gets SHARE_ESTALE and has to open the channel again. What it
	 * has received stays its own until it acknowledges it. The time for which consumers of one
	 * user (uid) have kept a producer waiting is counted: the next ones of that user are waited
	 * for at most half of what is left of twice `stall_ms`. The count is forgotten in eight
	 * times as long as it took. 10000; UINT32_MAX: never. */
	uint32_t stall_ms;
	/** With SHARE_FULL_BLOCK: how long a message waits for room at most; 0: it does not. -1: no
	 * limit, which SHARE_CHANNEL_OPTIONS_INIT says */
	int32_t send_timeout_ms;
	uint32_t from;  /**< enum share_from */
	uint32_t flags; /**< enum share_channel_flags */
	/** Of a producer: as long as fewer consumers than this are there, it has no room for any
	 * message, and `when_full` says what happens. So each of so many gets every message, and
	 * when one of them goes, the producer waits for the next one. A bridge is one consumer. 0:
	 * none is waited for. */
	uint32_t wait_for;
	/** How many buffers a message carries at most, up to 32; 1. Each takes one of `in_flight`,
	 * which has to be at least `buffers` times one more than `history` and two for each
	 * SHARE_CHANNEL_LATEST. A consumer has to say it as well, else it gets SHARE_EEXIST, as its
	 * program may look at `buffer` alone. */
	uint32_t buffers;
	uint32_t reserved; /**< 0, else SHARE_EINVAL */
} share_channel_options;
#define SHARE_CHANNEL_OPTIONS_INIT                                                                 \
	{                                                                                          \
		sizeof(share_channel_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, \
		    0                                                                              \
	}

/**
 * Takes part in a channel, and makes it if there is none of that name. A channel ends when nobody
 * takes part in it any more and the memory of all its messages is back. Names of channels follow
 * the rules for names of buffers; a channel and a buffer may have the same name. A consumer gets
 * every message that is sent after the call has returned.
 *
 * @param c        the connection
 * @param name     1 to SHARE_NAME_MAX bytes of UTF-8
 * @param role     enum share_role
 * @param options  NULL: as it is, or the defaults
 * @param out      the handle, to be given up with share_channel_close()
 * @retval SHARE_EBUSY   the channel has as many members of that role as it may have, or its
 *                       `in_flight` is too small for another SHARE_CHANNEL_LATEST
 * @retval SHARE_EACCES  this user may not write in the pool
 * @retval SHARE_ENOENT  there is no such pool, or this user may not use it (a process that may be
 *                       the first has to make the pool, with SHARE_POOL_OPEN_OR_CREATE); with
 *                       SHARE_CHANNEL_EXISTING: there is no such channel
 * @retval SHARE_EEXIST  there is a channel of that name, and it is not what was asked for, or this
 *                       user may not use it, or it belongs to a service
 * @retval SHARE_EQUOTA  this user has as many channels as it may
 * @retval SHARE_ENOTSUP SHARE_CHANNEL_WRITABLE in a pool that scrubs; SHARE_CHANNEL_LATEST, more
 *                       than one of `buffers`, or a `data_max` of more than 256, with a broker of
 *                       an older version
 * @see share_service_open()
 *
 * @par Example
 * @code
 * share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
 * share_message m = SHARE_MESSAGE_INIT;
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
 * Waits until no message of this producer waits for a consumer to come, or in a queue for a
 * consumer to have room (for example after one has died with all its messages). From then on the
 * consumers that are there can receive every message, even if there is no broker any more. A
 * broadcast needs this before its producer closes the channel, if messages may wait; those of a
 * queue stay. It does not mean that consumers have received them: that is what
 * share_channel_drain() waits for.
 *
 * @param ch          the channel, as a producer
 * @param timeout_ms  how long at most; -1: without limit
 * @retval SHARE_ETIMEDOUT  some messages still wait; share_channel_get_stats() tells how many
 * @retval SHARE_EAGAIN     the same, and the time limit was 0
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EDISCONNECTED  some still wait, there is no consumer, and the broker is gone, so
 *                              that none can come
 * @retval SHARE_ECANCELED  another thread has given the channel up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_channel_flush(share_channel *ch, int timeout_ms);

/**
 * Waits until every message that this producer has sent before the call is done with: acknowledged
 * by all who got it but those that get the latest alone (SHARE_CHANNEL_LATEST), which may still
 * hold two each, or dropped, or delivered too often. `dropped` and `set_aside` of
 * share_channel_get_stats() tell of the last two. A message that waits for a consumer is not done
 * with. It does not wait for the work that consumers had enqueued when they acknowledged: the
 * memory of the messages may come back later (share_reclaim() waits for that).
 *
 * The call ends as soon as the last of these messages is done with. Any number of threads may call
 * it, and others may send meanwhile; what they send is not waited for.
 *
 * @param ch          the channel, as a producer
 * @param timeout_ms  how long at most; -1: without limit. A consumer that neither acknowledges nor
 *                    dies is waited for as long as that
 * @retval SHARE_ETIMEDOUT  some are not done with; share_error_detail() says which process has yet
 *                          to acknowledge messages, or that they wait for a consumer
 * @retval SHARE_EAGAIN     the same, and the time limit was 0
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EDISCONNECTED  some wait for a consumer, and the broker is gone, so that none can
 *                              come
 * @retval SHARE_ECANCELED  another thread has given the channel up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_channel_drain(share_channel *ch, int timeout_ms);

/**
 * Leaves a channel, and gives the handle up. The messages that a producer has sent can still be
 * received by the consumers that were there; in a queue, by others as well, and by those that come
 * later. In a broadcast, messages that wait for a consumer to come are lost with the producer: call
 * share_channel_flush() first where that matters. A consumer receives nothing more, and in a queue
 * the messages that it has not received go to others. Messages that it has received stay good until
 * it has acknowledged them; it remains a member until then. Who waits in it in another thread gets
 * SHARE_ECANCELED.
 *
 * @param ch  the handle; NULL is fine
 */
void share_channel_close(share_channel *ch);

/**
 * Sends a buffer and some bytes with it. The channel takes a reference of its own, so the caller
 * may release the buffer at once, or go on reading it. Work that consumers enqueue on their streams
 * comes after the work that was enqueued on `stream` before.
 *
 * The call never waits for consumers to be done with earlier messages; whether it waits for room is
 * what share_when_full says.
 *
 * If there is no consumer, the message waits for the first one that comes, whatever that one has
 * said in `from`. In a broadcast the last `depth` messages wait so; for a newer one the oldest is
 * dropped, whatever `when_full` says, unless `wait_for` keeps anything from being sent. What was
 * sent in a broadcast while there were consumers does not wait: it goes to nobody if these leave or
 * die before they have received it.
 *
 * @param ch         the channel, as a producer
 * @param b          a buffer of the channel's pool; NULL: the data alone
 * @param data       what goes with it; may be NULL when there is none
 * @param data_size  its bytes, up to `data_max` of the channel
 * @param stream     where the buffer was worked on. Without a buffer, NULL is the calling thread,
 *                   and what is no share_host_stream of the client is a CUstream
 * @retval SHARE_EINVAL     the buffer is of another pool or client, or there is too much data
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says; share_error_detail() says whether
 * consumers are missing
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says; share_error_detail() says
 * whether consumers are missing, or which process is in the way
 * @retval SHARE_EDISCONNECTED  no room and no consumer who could make some, and the broker is
 *                              gone, so that none can come
 * @retval SHARE_EQUOTA     the buffer is a loan, and this user has as many references to buffers as
 *                          it may
 * @retval SHARE_ECANCELED  another thread has given the channel up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
static inline int share_send(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream);

/**
 * Does what share_send() and share_release() do, with one signal on the stream for both: the
 * caller's reference goes to the channel. When the call fails, the caller still has the reference.
 *
 * @param ch         the channel, as a producer
 * @param b          a buffer of the channel's pool; NULL: the data alone
 * @param data       what goes with it; may be NULL when there is none
 * @param data_size  its bytes, up to `data_max` of the channel
 * @param stream     where the buffer was worked on
 * @retval SHARE_EINVAL     as share_send(); or the handle is that of a message which was received,
 *                          and nothing but the message holds the buffer: call share_retain() first
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says
 * @retval SHARE_EDISCONNECTED  as share_send()
 * @retval SHARE_EQUOTA     as share_send()
 * @retval SHARE_ECANCELED  another thread has given the channel up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
static inline int share_give(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream);

/** Flags of a message that is sent. */
enum share_outgoing_flags {
	SHARE_OUTGOING_GIVE = 1 << 0, /**< as share_give(): if it is sent */
};

/** A message, for share_send_many(). Set it to SHARE_OUTGOING_INIT. */
typedef struct share_outgoing {
	size_t size;          /**< of an array: the first element's is that of all */
	share_buffer *buffer; /**< of the channel's pool; NULL: the data alone */
	/** In the place of `buffer`, which is NULL then, or the first of these. */
	share_buffer *const *buffers;
	uint32_t
	    n_buffers;    /**< in `buffers`, up to `buffers` of the channel; 0: there is `buffer` */
	uint32_t flags;   /**< enum share_outgoing_flags */
	const void *data; /**< what goes with it; may be NULL when there is none */
	size_t data_size; /**< its bytes, up to `data_max` of the channel */
	/** For programs that pass messages on: so often consumers of another queue had it before,
	 * and died with it or left, up to 65535. Its `deliveries` begin there, with at most what
	 * the channel allows. It means nothing in a broadcast. */
	uint32_t deliveries;
	uint32_t reserved; /**< 0, else SHARE_EINVAL */
} share_outgoing;
#define SHARE_OUTGOING_INIT                                             \
	{                                                               \
		sizeof(share_outgoing), NULL, NULL, 0, 0, NULL, 0, 0, 0 \
	}

/**
 * Sends as many messages as there is room for, with one signal on the stream and one wake-up.
 *
 * @param ch        the channel, as a producer
 * @param messages  the messages, in their order
 * @param n         how many
 * @param stream    where their buffers were worked on
 * @return How many were sent, at least 1; or a negative error.
 * @retval SHARE_EINVAL     as share_send() or share_give(); or a message has more buffers than the
 *                          channel lets it have
 * @retval SHARE_EACCES     not a producer
 * @retval SHARE_EAGAIN     no room, as share_when_full says
 * @retval SHARE_ETIMEDOUT  no room in time, as share_when_full says
 * @retval SHARE_EDISCONNECTED  as share_send()
 * @retval SHARE_EQUOTA     as share_send()
 * @retval SHARE_ECANCELED  another thread has given the channel up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_send_many(share_channel *ch, const share_outgoing *messages, size_t n, void *stream);

static inline int share_send(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream)
{
	share_outgoing m = SHARE_OUTGOING_INIT;
	int r;

	m.buffer = b;
	m.data = data;
	m.data_size = data_size;
	r = share_send_many(ch, &m, 1, stream);
	return r > 0 ? 0 : r;
}

static inline int share_give(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream)
{
	share_outgoing m = SHARE_OUTGOING_INIT;
	int r;

	m.buffer = b;
	m.flags = SHARE_OUTGOING_GIVE;
	m.data = data;
	m.data_size = data_size;
	r = share_send_many(ch, &m, 1, stream);
	return r > 0 ? 0 : r;
}

/** A message, received. It lives where the caller wants, and is to be given up with share_ack().
 * Set it to SHARE_MESSAGE_INIT, which says that there is none. */
typedef struct share_message {
	size_t size; /**< of an array: the first element's is that of all */
	/** The first of its buffers; NULL: it has none. The message's own: share_retain() to keep
	 * it
	 */
	share_buffer *buffer;
	share_buffer *const *buffers; /**< all of them; the library's, until share_ack() */
	uint32_t n_buffers;           /**< how many there are */
	uint32_t data_size;           /**< bytes in `data` */
	/** The bytes that came with it, which are the library's, until share_ack(). Never NULL when
	 * there is a message. */
	const unsigned char *data;
	uint64_t number; /**< of its producer's messages, from 0 */
	/** How many messages of that producer were dropped right before it, also while there was no
	 * consumer; in a queue, how many of producers that are gone were lost, and no consumer was
	 * told. */
	uint64_t lost;
	uint64_t producer;   /**< tells producers apart; never used again */
	uint32_t deliveries; /**< 1; more when consumers had the message before, and died, left or
			      * rejected it */
	/** 0; or why there is no buffer though the producer has sent one: SHARE_EOWNERDEAD, it died
	 * before its work on it was done, so that the content means nothing; or one of the errors
	 * of share_lookup() about reaching the memory. SHARE_EOWNERDEAD may also be of a message
	 * that was sent without a buffer, and behind work that was never done */
	int32_t error;
	uint32_t place;         /**< the library's */
	uint32_t reserved;      /**< 0 */
	share_channel *channel; /**< the library's; NULL: there is no message */
	uint64_t receipt;       /**< the library's */
	uint64_t after;         /**< the library's */
} share_message;
#define SHARE_MESSAGE_INIT                                                                     \
	{                                                                                      \
		sizeof(share_message), NULL, NULL, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0 \
	}

/**
 * Receives the next message. Work that is enqueued on `stream` afterwards comes after the work that
 * the producer enqueued before sending; with NULL and host memory the call itself waits for that
 * work, within the same time limit.
 *
 * When members have come or gone, the library first asks the broker who they are. If the broker
 * does not answer, the call waits for half a second, once; from then on messages are received only
 * from producers that are known already.
 *
 * An error never comes with a message. What is wrong with one message is in that message, as its
 * `error`: it has its number and its data, but no buffer, and is to be acknowledged like any other.
 * share_error_detail() has the sentence right after the call.
 *
 * @param ch          the channel, as a consumer
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where it will be worked on
 * @param out         the message, which was set to SHARE_MESSAGE_INIT, to be given back with
 *                    share_ack()
 * @retval SHARE_EAGAIN      there is no message, and the time limit was 0; if the broker has not
 *                           answered who else has come, share_error_detail() says so
 * @retval SHARE_ETIMEDOUT   no message came in time
 * @retval SHARE_EPIPE       the last producer has closed the channel. This is said once: the next
 *                           call waits for a new producer
 * @retval SHARE_EOWNERDEAD  the last producer has died, and all its messages were received; this is
 *                           said once
 * @retval SHARE_EDISCONNECTED  there is no message and no producer, and the broker is gone, so that
 *                              none can come
 * @retval SHARE_ESTALE      this consumer was left behind, and has received what it was sent
 * before: it has to open the channel again. It kept a producer waiting (`stall_ms`), or owes
 * something to too many that are gone (`producers`)
 * @retval SHARE_EACCES      this process is not a consumer
 * @retval SHARE_EQUOTA      the message lies in memory that this process has yet to map, and its
 *                           user has no room left for that (`broker_memory`). A later call gets it
 * @retval SHARE_EBUSY       it gets the latest alone (SHARE_CHANNEL_LATEST), and holds two messages
 * @retval SHARE_ECANCELED   another thread has given the channel up
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 */
static inline int share_recv(share_channel *ch, int timeout_ms, void *stream, share_message *out);

/**
 * Receives the messages that are there already, or waits for the first that comes. With an error
 * the `channel` of `out[0]` is NULL.
 *
 * @param ch          the channel, as a consumer
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where they will be worked on
 * @param out         the messages, the first of which was set to SHARE_MESSAGE_INIT, to be given
 *                    back with share_ack() or share_ack_many()
 * @param n           how many at most
 * @return How many were received, at least 1; or one of the errors of share_recv().
 */
int share_recv_many(share_channel *ch, int timeout_ms, void *stream, share_message *out, size_t n);

static inline int share_recv(share_channel *ch, int timeout_ms, void *stream, share_message *out)
{
	int r = share_recv_many(ch, timeout_ms, stream, out, 1);

	return r > 0 ? 0 : r;
}

/**
 * Acknowledges a message. Work that was enqueued on `stream` before may go on using the memory, and
 * nobody else's work touches the memory before that work is done. Messages may be acknowledged in
 * any order. As by share_release(), the message is given up (its `channel` is NULL then) unless the
 * error is SHARE_EFORK, SHARE_EINVAL or SHARE_ENOTSUP. One of several buffers is acknowledged as a
 * whole: if some are kept (share_retain()) and the broker gives no lease of them (without a broker:
 * SHARE_EDISCONNECTED), it is not given up either. Release them, or acknowledge it later.
 *
 * @param m       the message
 * @param stream  where it was worked on
 * @retval SHARE_EINVAL   it was acknowledged, or a copy of it was; or not a stream of this client
 * @retval SHARE_ENOTSUP  the stream is being captured
 */
static inline int share_ack(share_message *m, void *stream);

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

static inline int share_ack(share_message *m, void *stream)
{
	return share_ack_many(m, 1, stream);
}

/**
 * Gives a message of a queue back unacknowledged: another consumer gets it, or this one once more
 * if no other has room, with `deliveries` + 1. It comes before what is sent later. A message that
 * has been delivered as often as the channel allows (`deliveries`) is set aside instead, as if a
 * consumer had died with it: nobody gets it any more, and its producer finds it with
 * share_channel_take_back(). So a message that every consumer rejects is not passed on for ever.
 * Both are counted (share_channel_get_stats()).
 *
 * Nobody else gets the message before the work that was enqueued on `stream` is done: this call
 * waits for that, so it is for the exception and not for the rule. If consumers may write in this
 * channel, the next one finds in the memory what this one has written there.
 *
 * As by share_ack(), the message is given up (its `channel` is NULL then) unless the error is
 * SHARE_EFORK, SHARE_EINVAL, SHARE_ENOTSUP or SHARE_EACCES, and its buffer stays with a program
 * that has called share_retain() for it. A consumer that was left behind (SHARE_ESTALE) gives
 * nothing back: others have the message already.
 *
 * Once its producer has closed the channel or died, the message waits for whoever has nothing else
 * to receive, also if that is this consumer. Nobody can take it back then: one that was delivered
 * too often is lost, which is counted, and so are those that were set aside before and not taken
 * back.
 *
 * @param m       the message
 * @param stream  where it was worked on
 * @retval SHARE_EINVAL   it was given up, or a copy of it was; or not a stream of this client
 * @retval SHARE_ENOTSUP  it is not a message of a queue, but of a broadcast or a service; or its
 *                        producer's library, or the broker, is older than share_reject(); or the
 *                        stream is being captured
 * @retval SHARE_EACCES   it was taken back (share_channel_take_back()): it is its producer's own
 */
int share_reject(share_message *m, void *stream);

/**
 * Takes the next message of a queue that was delivered too often: each time to a consumer that died
 * or left before it had acknowledged it, or has rejected it. The message is to be acknowledged like
 * one that was received.
 *
 * @param ch   the channel, as a producer
 * @param out  the message, which was set to SHARE_MESSAGE_INIT; its `channel` is NULL when there is
 *             none
 * @retval SHARE_EAGAIN  there is none
 * @retval SHARE_EACCES  not a producer
 */
int share_channel_take_back(share_channel *ch, share_message *out);

/**
 * A descriptor for event loops. It polls readable as long as a call that had to wait may have
 * something to do:
 *
 * - of a consumer: share_recv(), until it answers SHARE_EAGAIN, as there is no message. While the
 *   next one's work still runs, for which `stream` does not wait, it is readable again after a
 *   millisecond. It stays readable while SHARE_EBUSY is all that is to be had
 *   (SHARE_CHANNEL_LATEST): acknowledge before polling then
 * - of a producer: share_send(), until it answers SHARE_EAGAIN or SHARE_ETIMEDOUT; and of those of
 *   share_channel_take_back(), share_channel_drain() and share_channel_flush() (time limit 0) that
 *   have answered SHARE_EAGAIN, each until it does so again, or draining or flushing is over (0).
 *   These two are told when more messages are done with or were handed out, which need not be all
 *
 * So make each call that you wait with until it answers so, and poll then. It is readable at first.
 * A producer that is not to wait itself says so by `when_full`, or by SHARE_FULL_BLOCK with a
 * `send_timeout_ms` of 0. A consumer that keeps the producer waiting is left behind after
 * `stall_ms` as if share_send() waited, and the producer is told. One thread at a time polls. Do
 * not read, write or close it.
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
	/** Messages that this producer dropped for want of room, or that were dropped before this
	 * consumer got them. */
	uint64_t dropped;
	uint64_t redelivered; /**< by this producer, as a consumer died, left or rejected it */
	uint64_t set_aside;   /**< messages of this producer that were delivered too often */
	uint64_t left_behind; /**< consumers that this producer gave up waiting for */
	uint64_t sleeps;      /**< times this member went to sleep */
	/** Messages of this producer whose memory is not back. Those that wait for a consumer
	 * count; those that all have acknowledged, and that are kept as `history`, do not. */
	uint32_t in_flight;
	uint32_t producers; /**< as far as this member knows; for a producer 1, itself */
	uint32_t consumers; /**< the same */
	/** Messages of this producer that wait for a consumer to come or, in a queue, for a
	 * consumer to have room: see share_channel_flush(). */
	uint32_t waiting;
	/** All messages of this producer with a smaller number are done with: acknowledged by all
	 * who got them (but SHARE_CHANNEL_LATEST), dropped, or delivered too often. */
	uint64_t done;
	uint64_t
	    rejected; /**< messages of this producer that were given back; or by this consumer */
} share_channel_stats;
#define SHARE_CHANNEL_STATS_INIT                                                      \
	{                                                                             \
		sizeof(share_channel_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/**
 * What a member of a channel has done, and what is in it.
 *
 * @param ch   the channel
 * @param out  the figures, which were set to SHARE_CHANNEL_STATS_INIT
 */
int share_channel_get_stats(const share_channel *ch, share_channel_stats *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
