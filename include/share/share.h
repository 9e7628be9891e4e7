/* SPDX-License-Identifier: MIT */
#ifndef SHARE_SHARE_H
#define SHARE_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include <share/error.h>
#include <share/event.h>
#include <share/fence.h>
#include <share/tensor.h>

/* NULL in the functions below, as compilers of C++ can be asked to warn of that. */
#ifdef __cplusplus
#define SHARE_NULL nullptr
extern "C" {
#else
#define SHARE_NULL NULL
#endif
#pragma GCC visibility push(default)

/*
 * libshare: memory shared between processes, owned by a broker.
 *
 * Threads: every function may be called from any thread at any time; a handle may be given up while
 * others are in calls with it. share_error_detail() is each thread's own. What all connections of
 * a process have in common (the tables of handles, what is known of streams and the CUDA driver) is
 * locked. The library starts threads for host streams, for asynchronous look-ups and watches that
 * have to wait for others' work, and for channels and services that need one; all signals are
 * blocked in them. So it stays in the process once it was loaded: a plug-in that brings it along
 * can be unloaded and loaded again, with connections open or not. A plug-in that has libshare.a in
 * it is linked with -Wl,-z,nodelete.
 *
 * Handles: a program that uses a handle which it has given up makes a mistake, and the library
 * recognises it, in every build. Functions that return an int answer SHARE_EINVAL, others NULL or
 * 0, and those that return nothing do nothing; no other handle and no memory comes to harm. When
 * several threads give the same handle up at once, exactly one of them succeeds. A handle of
 * another kind is recognised, too. A handle that was given up is recognised as such until some
 * sixteen thousand others of its kind were given out after it.
 *
 * Fork: a handle used in a forked child answers SHARE_EFORK, but what only tells where to connect
 * and what was found there (share_address(), share_pool_get_info(), share_id(), share_size(),
 * share_mode()) works, for the child's own connection. Shared memory and timelines are not
 * inherited by the child (MADV_DONTFORK), as a lease belongs to one process; the child opens its
 * own connection. Children that exec are not concerned: every descriptor is close-on-exec. A
 * process that calls exec itself, without share_disconnect() before, keeps all that it held, in
 * quarantine, until it ends.
 *
 * Core dumps: the dump of a process has no shared memory (MADV_DONTDUMP), as that is others' as
 * well. SHARE_DUMP=mine in the environment adds the blocks of host memory that it may write.
 *
 * A lost broker: every call that needs it answers SHARE_EDISCONNECTED at once, in threads that
 * were waiting too. Memory already mapped stays readable (and writable) until it is released. The
 * connection is lost as well when this process has no room for a descriptor that the broker sends
 * it (RLIMIT_NOFILE).
 *
 * Time limits are in milliseconds, of functions and in options: 0 does not wait, -1 waits without
 * limit. A call that does not wait says at once what there is to wait for, mostly by SHARE_EAGAIN;
 * one that has waited in vain answers SHARE_ETIMEDOUT. Limits are for what others do; what the
 * broker alone has to say is always asked, and takes no time unless it is stopped.
 *
 * Errors: a function answers those of its page. Besides, any function may answer SHARE_EINVAL,
 * SHARE_EFORK, SHARE_EDISCONNECTED, SHARE_ENOMEM, SHARE_ESYSTEM, and SHARE_EPROTO when the broker
 * has sent what the library cannot read. One that takes a `stream` may answer SHARE_EDEVICE (its
 * driver failed), SHARE_ENOTSUP (it is being captured), and SHARE_EAGAIN with
 * SHARE_CONNECT_NEVER_BLOCK, when it is one of a GPU.
 *
 * Waits for others end when what is waited for is there, when another thread gives the handle up
 * (SHARE_ECANCELED), and when the connection is interrupted (SHARE_EINTR): see share_interrupt(). A
 * signal by itself ends none.
 *
 * Structs whose memory is the program's begin with `size`: set it with their SHARE_..._INIT. In
 * options, 0 (or NULL) is the default of every other member but time limits, for which the
 * initialiser has -1. Such structs grow at their end, and program and library may be of different
 * versions. What an older program does not know is as the initialiser has it, and what an older
 * library does not know has to be 0, else the answer is SHARE_EINVAL; in a struct that the library
 * fills in it is 0 afterwards. In an array the first element's size is that of all. Structs without
 * a `size` do not grow if the program passes them about (share_fence, share_token). Those that a
 * callback is shown are the library's, and grow at their end.
 */

#define SHARE_VERSION_MAJOR 0
#define SHARE_VERSION_MINOR 2
#define SHARE_VERSION_PATCH 0
#define SHARE_VERSION       "0.2.0"

/**
 * The version of the library that runs, which may be another one than SHARE_VERSION.
 *
 * @return "0.2.0", in static storage.
 */
const char *share_version(void);

/** Where buffers are allocated: memory of one kind, up to a limit, for those who may use it. */
typedef struct share_pool share_pool;
/** A watch on names. Of share_watch_names(). */
typedef struct share_watch share_watch;
/** Something that was started and calls back: see share_lookup_async(), share_buffer_watch(). */
typedef struct share_operation share_operation;

/** A time limit that is none. */
#define SHARE_WAIT_FOREVER (-1)

/* Limits that the broker enforces. */
#define SHARE_NAME_MAX     255   /* bytes of a name, without the terminating NUL */
#define SHARE_LABEL_MAX    63    /* bytes of a client's label */
#define SHARE_METADATA_MAX 65536 /* bytes of a buffer's metadata */

/**
 * How a buffer may be used. Read-only memory is mapped read-only: a store to it faults. On a GPU
 * the kernel that stores faults, and its context is lost with it. Memory of kind "mempool" is an
 * exception, and that of kind "legacy": nothing enforces that it is only read. Of kind "pinned" a
 * process that wants to store there can make it writable by `mprotect()`.
 */
enum share_access {
	SHARE_RDONLY = 1, /**< for reading */
	SHARE_RDWR = 3,   /**< for reading and writing */
};

/* ------------------------------------------------------------------------------------------- */
/* Connection                                                                                  */

/** More about a connection. */
enum share_connect_flags {
	/** The host signals and waits for fences in place of CUDA streams, as it does where the
	 * device has no stream memory operations: calls then block until streams are done.
	 * SHARE_HOST_FENCES=1 in the environment of a process says the same for all of its
	 * connections. */
	SHARE_CONNECT_HOST_FENCES = 1 << 0,
	/** A call answers SHARE_EAGAIN where its thread would have to wait for the work of others
	 * before a CUDA stream can go on. */
	SHARE_CONNECT_NEVER_BLOCK = 1 << 1,
	/** For tools of operators. A user who is an administrator of the broker, and has as many
	 * connections as it may, gets one of four additional ones. So `sharectl` can still say
	 * which processes have all the others, and end them. A broker that is about to end lets in
	 * nobody else. The `timeout_ms` of these is a limit for the answer to each later request as
	 * well: who has got none by then gets SHARE_ETIMEDOUT, and the connection is lost. */
	SHARE_CONNECT_OPERATOR = 1 << 2,
};

/** How to connect. Set it to SHARE_CONNECT_OPTIONS_INIT. */
typedef struct share_connect_options {
	size_t size;
	/** The name of this process in `sharectl clients`, up to SHARE_LABEL_MAX bytes; NULL: the
	 * name of its program. */
	const char *label;
	const char *config; /**< embedded broker only: its configuration file; NULL: the default */
	uint32_t flags;     /**< enum share_connect_flags */
	/** How long the broker may take, all in all, until this process is connected; then the call
	 * fails with SHARE_ETIMEDOUT, and share_error_detail() says which process it is that does
	 * not answer, and in which state. 0 is over at once, as connecting takes an answer. -1: no
	 * limit, which SHARE_CONNECT_OPTIONS_INIT says. */
	int64_t timeout_ms;
} share_connect_options;
#define SHARE_CONNECT_OPTIONS_INIT                               \
	{                                                        \
		sizeof(share_connect_options), NULL, NULL, 0, -1 \
	}

/**
 * Connects to a broker. Blocks until it has answered, for as long as that takes:
 * share_connect_with() takes a time limit. A process may connect often; each connection holds its
 * own leases.
 *
 * Where the broker is:
 *
 * - NULL or "": what `$SHARE_SOCKET` says (one of the below), when set; else the first of
 *   `$XDG_RUNTIME_DIR/share/broker.sock` and `/run/share/broker.sock` that answers
 * - "embedded": a private broker is started, that ends with this connection; share_address() tells
 *   others where it is. Its program is `$SHARE_BROKER`, else `share-broker` beside this library or
 *   in `$PATH`
 * - otherwise: the path of its socket
 *
 * A program may have more rights than the user who has started it (setuid, setgid, capabilities of
 * its file). In such a program the environment is not read, and "embedded" is refused with
 * SHARE_EACCES.
 *
 * @param address  where the broker is
 * @param out      the connection, to be given up with share_disconnect()
 * @retval SHARE_ENOBROKER  nobody listens there
 * @retval SHARE_EPROTO     no version of the protocol in common
 * @retval SHARE_EACCES     the broker does not let this user connect
 * @retval SHARE_EQUOTA     this user has as many connections as it may
 * @retval SHARE_ETIMEDOUT  the broker is there and has not answered in `timeout_ms`; it may be
 * stopped, or hang
 *
 * @par Example
 * @code
 * share_client *c;
 *
 * if (share_connect(NULL, &c) < 0)
 *         errx(1, "%s", share_error_detail());
 * @endcode
 */
static inline int share_connect(const char *address, share_client **out);

/**
 * share_connect() with options.
 *
 * @copydetails share_connect()
 * @param options  NULL: the defaults
 */
int share_connect_with(const char *address, const share_connect_options *options,
		       share_client **out);

static inline int share_connect(const char *address, share_client **out)
{
	return share_connect_with(address, SHARE_NULL, out);
}

/**
 * Gives the client handle up. The connection ends when the last handle that was made from it (pool,
 * buffer, watch, operation) has been given up as well, so memory in use is never pulled away. When
 * the connection ends, the library waits for the client's streams, removes the mappings, and says
 * goodbye to the broker.
 *
 * A stream that is not done within ten seconds, or of which nothing can tell whether it is done,
 * may use the memory for as long as the process lives. Then everything stays mapped until the
 * process ends, and the private broker of "embedded" stays as well.
 *
 * @param c  the connection; NULL is fine
 */
void share_disconnect(share_client *c);

/**
 * Where the broker is that a client is connected to. Works in a forked child, too, which connects
 * there itself.
 *
 * @param c  the connection
 * @return The path of the socket. It belongs to the client.
 */
const char *share_address(const share_client *c);

/**
 * Interrupts all calls that wait for others with this connection, or with what was had by it: they
 * return SHARE_EINTR, and so does from now on every call at the point where it would begin to wait,
 * until share_interrupt_clear(). What is there without waiting is received, sent and found as
 * before. Nothing is lost by it: a message that was taken is returned, and what was waited for can
 * be waited for again. (share_call() gives its call up, share_call_finish() does not.)
 *
 * The handler of a signal may call this. It takes no lock, and share_error_detail() stays as it is.
 *
 * What does not wait for others is not interrupted: calls inside a driver (copies, synchronising a
 * stream of a GPU), requests that the broker answers by itself, share_connect(), and giving handles
 * up (share_unwatch() and share_cancel() wait for a callback that runs in another thread).
 *
 * @param c  the connection
 * @retval SHARE_EINVAL  it was given up
 */
static inline int share_interrupt(share_client *c);

/**
 * Ends what share_interrupt() began: calls wait again. A thread that has not noticed by now that it
 * was interrupted goes on waiting.
 *
 * @param c  the connection
 */
static inline int share_interrupt_clear(share_client *c);

/**
 * share_interrupt(), or share_interrupt_clear().
 *
 * @param c            the connection
 * @param interrupted  1: it is, from now on; 0: it is not
 * @retval SHARE_EINVAL  it was given up
 */
int share_set_interrupted(share_client *c, int interrupted);

static inline int share_interrupt(share_client *c)
{
	return share_set_interrupted(c, 1);
}

static inline int share_interrupt_clear(share_client *c)
{
	return share_set_interrupted(c, 0);
}

/**
 * Sends one request and waits for its reply. When it returns 0, the broker is there and has seen
 * all earlier messages.
 *
 * @param c  the connection
 * @retval SHARE_ETIMEDOUT  an operator's connection (SHARE_CONNECT_OPERATOR), whose time limit is
 *                          over
 */
int share_ping(share_client *c);

/**
 * A descriptor for event loops: it polls readable when share_dispatch() has something to do. Do not
 * read, write or close it.
 *
 * @param c  the connection
 * @return The descriptor, which belongs to the client; or a negative error.
 */
int share_get_fd(share_client *c);

/**
 * Handles what the broker sent unasked and runs callbacks that are due, in this thread; never
 * blocks. Callbacks may call every function of the library, including those that give up the handle
 * they are called for. It is meant for one thread at a time. Concurrent calls are safe, and each
 * runs some of the callbacks. In that case a callback must not cancel an operation whose callback
 * another thread is running: if both did, each would wait for the other.
 *
 * @param c  the connection
 * @return The number of callbacks that were run, or a negative error.
 * @retval SHARE_EDISCONNECTED  the broker is lost and no callback is due: take the descriptor out
 *                              of the event loop then, as it stays readable
 */
int share_dispatch(share_client *c);

/**
 * Whether the broker is about to end, as somebody stops or restarts it. It tells those who are
 * connected, and gives them some time (`drain_ms` in share-broker.conf(5)). A program that hears of
 * it finishes what it has in hand, releases what it holds, and disconnects; then it may try to
 * connect to the next broker. Until then everything goes on as before, but calls that would open or
 * create a pool, a channel, a service or an event answer SHARE_EDISCONNECTED. When nobody holds
 * anything any more, the broker ends; so it does when the time is over, and then the connection is
 * lost.
 *
 * The call looks at the socket, and never blocks. share_get_fd() polls readable when the broker has
 * said that it ends: programs with an event loop ask after share_dispatch(). A private broker
 * ("embedded", share-run) ends together with who has started it, and says nothing before.
 *
 * @param c  the connection
 * @return Milliseconds that are left, at least 1, if the broker is about to end; 0: it is not.
 * @retval SHARE_EDISCONNECTED  the broker is lost
 */
int share_ending(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

/**
 * Opens a pool that exists.
 *
 * @param c     the connection
 * @param name  1 to SHARE_NAME_MAX bytes of UTF-8
 * @param out   the pool, to be given up with share_pool_close()
 * @retval SHARE_ENOENT  there is none of that name, or this user may not use it
 * @retval SHARE_EQUOTA  this user has as much of the broker's memory as it may (`broker_memory`)
 * @see share_pool_create()
 */
int share_pool_open(share_client *c, const char *name, share_pool **out);

/** More about a pool that is created. */
enum share_pool_flags {
	SHARE_POOL_PERSISTENT = 1 << 0, /**< stays when nobody has it open and no buffer lives */
	/** Its memory lies at the same address in every process, so pointers into it can be shared.
	 * Where a process has something else at that address, acquiring a buffer answers
	 * SHARE_EBUSY. A process has one mapping of such memory: while it holds a handle for
	 * writing, its read-only handles can be written through, too. It is not possible for
	 * mempool and legacy, whose addresses the driver chooses. */
	SHARE_POOL_SAME_ADDRESS = 1 << 1,
	SHARE_POOL_OPEN_OR_CREATE = 1 << 2, /**< open the pool that is there, else create it */
};

/** What becomes of memory between its last user and the next. */
enum share_reuse {
	/** Memory is handed out at once if all work that still runs on it is of the user (uid) who
	 * asks: together with the fences of that work, which the next stream waits for. A part of a
	 * block is, as long as the work is on 8 streams at most. Memory that more work or other
	 * users' work still runs on is handed out when that is done, as with SHARE_REUSE_CLEAN, and
	 * until then it is charged to those users. */
	SHARE_REUSE_GATE = 0,
	/** Memory is handed out when the work on it is done, so nobody ever waits for another's
	 * work. While work still runs on all free memory of the pool, share_alloc() waits up to a
	 * second. */
	SHARE_REUSE_CLEAN = 1,
	/** As SHARE_REUSE_CLEAN, and memory that one user (uid) may have written is zeroed before
	 * another user gets it. The broker or its agent does that, and not the user who had the
	 * memory. Memory that several users held for writing is zeroed for whoever gets it next.
	 * Host memory is zeroed by taking its pages away: a program that has registered a released
	 * buffer with CUDA goes on with the old pages. This is no protection against users who mean
	 * harm, as all users of a pool can reach all of its segments. */
	SHARE_REUSE_SCRUB = 2,
};

/** How large the pages of host memory are. What came of it is in the `reason` of the pool. */
enum share_huge_pages {
	/** As the kernel does it for all shared memory of the machine. */
	SHARE_HUGE_PAGES_SYSTEM = 0,
	/** Huge pages are asked for by MADV_HUGEPAGE, which the kernel follows where
	 * /sys/kernel/mm/transparent_hugepage/shmem_enabled lets it and it has any; else small
	 * ones.
	 */
	SHARE_HUGE_PAGES_ADVISE = 1,
	/** Huge pages of 2 MiB out of those that the administrator has set aside
	 * (vm.nr_hugepages), reserved when a segment is made. Without enough of them, allocating
	 * fails (SHARE_ENOMEM); without any, making the pool (SHARE_ENOTSUP). */
	SHARE_HUGE_PAGES_REQUIRE = 2,
};

/** A `numa`: wherever it comes from, which is mostly near to who touches it first. */
#define SHARE_NUMA_ANY 0u
/** A `numa`: pages of all NUMA nodes in turns. */
#define SHARE_NUMA_INTERLEAVE UINT32_MAX
/** A `numa`: of this node, as long as it has memory. */
#define SHARE_NUMA_NODE(n) ((uint32_t)(n) + 1)

/** A release_threshold: empty segments go back to the system at once. */
#define SHARE_KEEP_NONE UINT64_MAX

/**
 * What a pool is like that is created. Set it to SHARE_POOL_OPTIONS_INIT.
 *
 * Kinds of memory are:
 *
 * - "host": memfds
 * - "vmm": GPU memory of `cuMemCreate()`; read-only handles cannot be written through
 * - "mempool": GPU memory of IPC-capable memory pools, one a segment; no buffer above 4 GiB
 * (beyond, the driver crashes importers); read-only is a promise that nothing enforces
 * - "legacy": GPU memory of `cuMemAlloc()`, for consumers that know nothing but
 * `cudaIpcMemHandle_t`: share_get_recipe() has the handle. It is weaker than the others. It is gone
 * with the agent that made it, as when the driver takes that down: whoever asks about such a buffer
 * is told SHARE_EOWNERDEAD from then on, but a kernel that is at work on it is not stopped. It
 * costs a CUDA context in the agent. A process can use it in one context, on its own device. A
 * process that has the same number in its PID namespace as the agent in that one's cannot open it.
 * Any other process that has the handle can, of whatever user (measured): the driver asks nobody,
 * and nothing takes the handle back. Read-only is a promise that nothing enforces
 * - "pinned": host memory of the NUMA node nearest to the device, made by `cuMemCreate()`. The CPU
 * and the GPUs of each process that sees the device reach it at share_ptr(), unregistered. As for
 * order it is memory of that device: a NULL stream is the device's default one, for which a CPU
 * that reads waits first (cuStreamSynchronize(), share_fence_synchronize(), or
 * share_copy_to_host()). It is never swapped, and takes nothing of the device's own memory. A store
 * through a read-only handle faults, and a GPU's is refused, but that keeps out mistakes alone: a
 * process that wants to write makes the mapping writable by `mprotect()` (measured)
 * - "adopted": nothing of its own: memory that programs have already, of the host or of GPUs, comes
 * into it by share_adopt()
 * - "auto": the first that works here of vmm, mempool, host
 */
typedef struct share_pool_options {
	size_t size;
	const char *kind;           /**< NULL: "auto" */
	const char *device;         /**< UUID, "GPU-..." or "MIG-..."; NULL: the first that does */
	uint64_t limit;             /**< bytes of all its segments; 0: the broker's default */
	uint64_t segment_size;      /**< bytes; 0: the kind's. Larger buffers get their own */
	uint64_t alignment;         /**< of every buffer: a power of two, 512 (or 0) to 2 MiB */
	uint64_t release_threshold; /**< bytes of empty segments to keep; 0: segment_size */
	const char *access;         /**< JSON as in share-broker.conf(5); NULL: own user only */
	uint32_t flags;             /**< enum share_pool_flags */
	uint32_t reuse;             /**< enum share_reuse */
	uint64_t prefault;   /**< host: bytes that the broker makes ahead and keeps; 0: none */
	uint32_t huge_pages; /**< host: enum share_huge_pages */
	uint32_t numa;       /**< host: SHARE_NUMA_... */
} share_pool_options;
#define SHARE_POOL_OPTIONS_INIT                                                         \
	{                                                                               \
		sizeof(share_pool_options), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0 \
	}

/**
 * Creates a pool and opens it. Unless SHARE_POOL_PERSISTENT, it ends when nobody has it open, no
 * channel is of it, and its last buffer is gone.
 *
 * Where any of several programs may come first, or start again, each says
 * SHARE_POOL_OPEN_OR_CREATE: in one step, the pool of that name is opened if it is there, by who
 * may use it, and created if it is not, by who may create. Options that are not at their default
 * have to be what the pool has, else SHARE_EEXIST says which one, what was asked for and what is
 * there.
 *
 * @param c        the connection
 * @param name     1 to SHARE_NAME_MAX bytes of UTF-8
 * @param options  NULL: the defaults
 * @param out      the pool, to be given up with share_pool_close()
 * @retval SHARE_EEXIST   there is a pool of that name; with SHARE_POOL_OPEN_OR_CREATE: it is unlike
 *                        what was asked for, or this user may not use it
 * @retval SHARE_EACCES   the configuration does not let this user create pools, or pools of that
 *                        name
 * @retval SHARE_EQUOTA   this user has as many pools as it may, or as much of the broker's memory;
 *                        or what its pools have made ahead would be more than it may allocate
 * @retval SHARE_EINVAL   an option is at fault
 * @retval SHARE_ENODEV   no such device, or no driver
 * @retval SHARE_ENOTSUP  the device cannot do that kind
 * @retval SHARE_EDEVICE  its driver failed
 *
 * @par Example
 * @code
 * share_pool_options options = SHARE_POOL_OPTIONS_INIT;
 * share_pool *p;
 *
 * options.kind = "host";
 * options.flags = SHARE_POOL_OPEN_OR_CREATE;
 * if (share_pool_create(c, "frames", &options, &p) < 0)
 *         errx(1, "%s", share_error_detail());
 * @endcode
 */
int share_pool_create(share_client *c, const char *name, const share_pool_options *options,
		      share_pool **out);

/**
 * Removes a pool's name. From then on the pool takes no new buffers, and it ends with its last one.
 *
 * @param c     the connection
 * @param name  of the pool
 * @retval SHARE_ENOENT  there is none of that name, or this user may not use it
 * @retval SHARE_EACCES  this user may not: it takes the right "manage"
 */
int share_pool_destroy(share_client *c, const char *name);

/**
 * Gives the handle of a pool up. Buffers of the pool stay.
 *
 * @param p  the pool; NULL is fine
 */
void share_pool_close(share_pool *p);

/** What a pool is like. Set it to SHARE_POOL_INFO_INIT. */
typedef struct share_pool_info {
	size_t size;
	const char *name;      /**< belongs to the handle */
	const char *kind;      /**< static storage */
	uint64_t limit;        /**< bytes of all its segments */
	uint64_t segment_size; /**< bytes */
	uint64_t alignment;    /**< of every buffer */
	uint32_t mode;         /**< enum share_access: what this user may do at most */
	uint32_t manage;       /**< 1 when this user may destroy it */
	uint32_t flags;        /**< enum share_pool_flags */
	const char *device;    /**< UUID, NULL for host memory; belongs to the handle */
	const char *reason;    /**< why it is of this kind: a sentence; belongs to the handle */
	uint32_t reuse;        /**< enum share_reuse */
	uint64_t used;         /**< bytes of what this process has allocated, and that are in use */
	uint64_t kept;         /**< bytes that it keeps for allocations to come, unused */
	uint64_t cache;        /**< what `kept` may be at most: see share_pool_set_cache() */
	uint32_t used_buffers; /**< how many blocks `used` are */
	uint32_t kept_buffers; /**< how many `kept` are */
} share_pool_info;
#define SHARE_POOL_INFO_INIT                                                                      \
	{                                                                                         \
		sizeof(share_pool_info), NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, \
		    0                                                                             \
	}

/**
 * What a pool is like, as it was when it was opened, and what this process has of it now; no
 * request. Works in a forked child, too, which has nothing of it.
 *
 * To the broker, and so against the limit and in `sharectl pools`, all that this process has is in
 * use. `used` and `kept` tell it apart, in the sizes that blocks take of the pool, for all handles
 * that this connection has of the pool together. A block is used as long as a handle of it is
 * there, a message with it is not acknowledged or stays as a channel's `history`, or work on it is
 * not over. Buffers that this process has from others, by names, tokens or messages, are those of
 * who has allocated them, and are not in these figures. While other threads allocate and release,
 * each figure is one that was so during the call.
 *
 * @param p    the pool
 * @param out  what it is like, which was set to SHARE_POOL_INFO_INIT
 */
int share_pool_get_info(const share_pool *p, share_pool_info *out);

/**
 * Bounds what this process keeps of a pool without using it: released buffers, for allocations to
 * come, so that most of them need nobody else. The bound is that of the connection: it holds for
 * all handles of the pool, for as long as the connection has one. What is kept now goes back to the
 * broker.
 *
 * Without this call: a 16th of the pool's limit, at most 1 GiB. What is kept is given back when
 * memory is short, on the next call that allocates or releases, in share_dispatch(), or while a
 * call waits for memory or for a name; and when the pool is destroyed. `sharectl` shows what is
 * kept as in use. With `SHARE_MAGAZINES=0` in the environment no connection keeps anything.
 *
 * @param p      the pool
 * @param bytes  to keep at most; 0: none
 */
int share_pool_set_cache(share_pool *p, uint64_t bytes);

/**
 * Maps the memory that a pool has by now, so that it is not the first look-up, import, allocation
 * or message which pays for that. With memory of a GPU this loads the driver and imports each
 * segment, which takes 0.1 ms or, with kind "mempool", up to 1 ms for each GiB; the calling
 * thread's context is the one that gets access, as for share_alloc(). Without this call, each
 * segment is mapped when the first buffer in it comes.
 *
 * Right after the pool was opened it moves that cost there; or call it in a thread of its own, as
 * it holds up no other thread. What the pool grows by later is mapped by the next call, which costs
 * one request where there is nothing new; and consumers of channels, to whom new segments are sent
 * as they are made, map them then and there from now on, in this connection.
 *
 * It gives no more than the user may have: all of the pool's memory that a look-up could bring, for
 * reading, or for writing. Segments beyond what the user may have mapped are left out, and so is
 * adopted memory that is not for this user; where the user's other processes have not read what was
 * sent to them, or nobody's descriptors may be under way any more, the rest is mapped when needed.
 *
 * @param p     the pool
 * @param mode  enum share_access: what buffers will be looked up for
 * @retval SHARE_EINVAL      no such mode
 * @retval SHARE_EACCES      the pool is read-only for this user, or no longer for this user
 * @retval SHARE_EBUSY       SHARE_POOL_SAME_ADDRESS: something else lies at the address
 * @retval SHARE_ENODEV      this process cannot see the device
 * @retval SHARE_ENOTSUP     the current context's device cannot reach it; or the broker is too old
 * @retval SHARE_EDEVICE     the driver failed, and how. As with the other errors, what could be
 *                           mapped is, and the rest is when it is needed
 * @retval SHARE_EOWNERDEAD  some of it is of kind "legacy", and gone with its maker
 */
int share_pool_map_ahead(share_pool *p, int mode);

/* ------------------------------------------------------------------------------------------- */
/* Buffers                                                                                     */

/**
 * Allocates a buffer, for reading and writing. Its content is undefined (what a user of the pool
 * left there; with SHARE_REUSE_SCRUB, what this user left there, or zeros). Work that is enqueued
 * on `stream` afterwards may use the memory: if its last users are not done with it, `stream` waits
 * for their fences.
 *
 * The first buffer in a segment maps it. For GPU memory that loads the CUDA driver, and works in
 * the caller's current context if there is one, else in the device's primary context. When the
 * current context is of another device, that device gets access to the memory. So make that context
 * current which is going to use the memory.
 *
 * A stream that is being captured into a graph gets only memory on which no work runs any more, as
 * nothing can be enqueued there; not even what it has worked on itself, of which the library may
 * learn late that it is done. Where there is no other memory, at hand or in the pool, the answer
 * is SHARE_ENOTSUP: so acquire buffers before the capture.
 *
 * SHARE_ENODEV and SHARE_EDEVICE occur with GPU memory only, here and in every function that
 * acquires a buffer.
 *
 * @param p       where from
 * @param size    bytes, at least 1
 * @param stream  where the buffer will be used first; NULL: the calling thread, or for GPU memory
 *                the legacy default stream
 * @param out     the buffer, to be given up with share_release(). It holds the client, not the pool
 *                handle
 * @retval SHARE_ENOMEM   the pool is full; the detail names its limit, what is in use, the largest
 *                        free block, who holds most, and what names, tokens, messages and work
 *                        keep. Or the machine can never hold so much host memory
 * @retval SHARE_EAGAIN   too much unfinished work is still using the memory
 * @retval SHARE_EINVAL   size 0 or an impossible alignment
 * @retval SHARE_EACCES   the pool is read-only for this user
 * @retval SHARE_EQUOTA   this user has as much memory as it may; or the pool is nearly full, and
 * the room that is left is for users who have less of the pool than this one. The detail says which
 * of the two it is
 * @retval SHARE_EBUSY    SHARE_POOL_SAME_ADDRESS: something else lies at the address
 * @retval SHARE_ENODEV   this process cannot see the device: no driver, or CUDA_VISIBLE_DEVICES
 *                        hides it
 * @retval SHARE_ENOTSUP  the current context's device cannot reach it, or the stream is being
 *                        captured; or the pool is of kind "adopted", which has no memory of its own
 * @retval SHARE_EDEVICE  the driver failed, and how
 * @retval SHARE_EOWNERDEAD  kind "legacy": the agent ended just now, and the memory with it
 * @retval SHARE_ENOENT   the pool was destroyed (share_pool_destroy())
 * @retval SHARE_EINTR    interrupted (share_interrupt())
 *
 * @par Example
 * @code
 * share_buffer *b;
 *
 * if (share_alloc(p, 1 << 20, NULL, &b) < 0)
 *         errx(1, "%s", share_error_detail());
 * memset(share_ptr(b), 0, share_size(b));
 * share_release(b, NULL);
 * @endcode
 */
static inline int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out);

/**
 * The type of share_alloc_options.done, which is told that nobody has the memory any more.
 *
 * @param data  share_alloc_options.data
 */
typedef void (*share_memory_callback)(void *data);

/** How to allocate. Set it to SHARE_ALLOC_OPTIONS_INIT. */
typedef struct share_alloc_options {
	size_t size;
	uint64_t alignment; /**< of this buffer, at least the pool's; 0: the pool's */
	/** How long to wait at most where there is no memory that nobody uses: for the work of
	 * others on what they have given back, and, if `stream` is NULL, for the work on what was
	 * found. What others still hold is not waited for (SHARE_ENOMEM). 0 does not wait:
	 * SHARE_EAGAIN, or the reason why there is no memory; a limit that is over is
	 * SHARE_ETIMEDOUT or SHARE_EAGAIN. -1, which SHARE_ALLOC_OPTIONS_INIT says, is up to a
	 * second for memory to be found, and no limit for the work on what was found. That a driver
	 * makes memory is always waited for. */
	int32_t timeout_ms;
	uint32_t reserved; /**< 0, else SHARE_EINVAL */
	void *memory;      /**< what becomes a buffer: see share_adopt(); NULL: new memory */
	/** Only with `memory`, else SHARE_EINVAL: called with `data` once the buffer was made and
	 * nobody has it any more, in whatever process, or this connection has ended; from then on
	 * the program may unmap, free or use the memory again as it likes. It is called in a thread
	 * that is in a function of this library, which it must not call. A process that calls none
	 * for a while is told later; one that forked is told in the parent only. NULL: nobody is
	 * told. */
	share_memory_callback done;
	void *data; /**< for `done` */
} share_alloc_options;
#define SHARE_ALLOC_OPTIONS_INIT                                        \
	{                                                               \
		sizeof(share_alloc_options), 0, -1, 0, NULL, NULL, NULL \
	}

/**
 * share_alloc() with options. With `memory` it answers the errors of share_adopt(), and
 * SHARE_EINVAL also where `alignment` or `timeout_ms` say something: that memory lies where it
 * lies, and nothing is waited for.
 *
 * @copydetails share_alloc()
 * @param options  NULL: the defaults
 */
int share_alloc_with(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out);

static inline int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out)
{
	return share_alloc_with(p, size, SHARE_NULL, stream, out);
}

/**
 * Makes a buffer of memory that is there already: nothing is copied, and it is published, exported,
 * sent and released as any other buffer. The pool is of kind "adopted", and its rights and limits
 * apply. The memory is a part of a memfd, or of a file on a tmpfs (as in /dev/shm), of any size and
 * from any byte on, which this process has mapped with MAP_SHARED for reading and writing. The
 * library finds the file's descriptor among those that the process has open, or opens the file by
 * its name; nothing of it is needed afterwards.
 *
 * share_ptr() of the buffer is `memory`. The program stays the owner: it goes on using its mapping
 * as before, and orders its own work on it. It may unmap the memory once no reference of this
 * process is left and nobody here looks the buffer up again, as this process has it there whatever
 * it gets it by; share_alloc_options.done says when nobody has it any more, and share_reclaim()
 * tells when nobody else has. What the broker has of the file keeps the memory: so it outlives the
 * mapping, the owner and the file's name for as long as anybody has the buffer, and a name that was
 * published to stay leads to it after that.
 *
 * Who gets the buffer gets a descriptor of the file, and can read all of it, whatever part was
 * adopted: nothing that others must not see belongs into that file. The descriptors are opened and
 * closed again in this process, which loses the record locks (fcntl(2), `F_SETLK`) that it has on
 * the file.
 *
 * A file that its owner may make smaller could have readers die of SIGBUS. So one that has not the
 * seal F_SEAL_SHRINK (fcntl(2); files on a tmpfs never have it) is for processes of the same user:
 * others get SHARE_EACCES when they look the buffer up. That others hold it read-only keeps them
 * from writing by mistake. Who may open the file by its permissions can write to it (fchmod(2)).
 *
 * Or it is memory of a GPU: of any device, and of one allocation of cuMemCreate() that was made to
 * be exported as a POSIX descriptor, which this process has mapped. It begins at a multiple of 512
 * bytes of that allocation. share_buffer_get_info() says how others reach it, "vmm". What was said
 * of the file holds for the allocation: others map all of it, the pool's limit counts all of it,
 * and it stays as long as anybody has the buffer, when its owner unmaps it or dies as well.
 *
 * Memory of cuMemAlloc() (cudaMalloc()) others reach as "legacy", with all that is said of that
 * kind in share_pool_options; its maker is this process. So it is weaker: the handle keeps nothing,
 * and the program must not free the memory before share_alloc_options.done is called or its buffer
 * is reclaimed, as the driver takes it away from nobody, and says to nobody that it is gone. When
 * the program ends, or has no connection any more that has the buffer, nobody gets it from then on
 * (SHARE_EOWNERDEAD); who has it is told when the program ends. Memory of memory pools
 * (cudaMallocAsync()) and managed memory is SHARE_ENOTSUP.
 *
 * @param p       a pool of kind "adopted"
 * @param memory  where it is mapped in this process; a CUdeviceptr of memory of a GPU
 * @param size    bytes, at least 1
 * @param stream  where it was used last, NULL: the calling thread; share_publish() and the like say
 *                what others come after
 * @param out     the buffer, to be given up with share_release()
 * @retval SHARE_EINVAL   it is no such memory: not mapped, or not all of it; this process's own
 *                        (malloc(), MAP_PRIVATE, MAP_ANONYMOUS); mapped read-only; of another file
 *                        system; sealed against writing; without a descriptor; or, on a GPU, not
 *                        of one allocation, or between two multiples of 512 bytes
 * @retval SHARE_EEXIST   this process has made a buffer of it, or of a part of it, already: there,
 * or where it has mapped the same file once more; work that was enqueued before such a buffer was
 * released may be under way still. Or it is of a buffer of a pool
 * @retval SHARE_ENOTSUP  the pool is of another kind; the memory consists of huge pages; it is
 *                        memory of a GPU that no other process can have; or the broker is too old
 * @retval SHARE_EDEVICE  the driver failed
 * @retval SHARE_ENOMEM   the pool has no room for so much
 * @retval SHARE_EQUOTA   this user has as much memory, or as many segments or descriptors, as it
 * may
 * @retval SHARE_EACCES   the pool is read-only for this user
 * @retval SHARE_ENOENT   the pool was destroyed
 *
 * @par Example
 * @code
 * share_buffer *b;
 *
 * if (share_adopt(p, frame, frame_size, NULL, &b) < 0)
 *         errx(1, "%s", share_error_detail());
 * share_publish(b, "frame", NULL);
 * @endcode
 */
static inline int share_adopt(share_pool *p, void *memory, uint64_t size, void *stream,
			      share_buffer **out);

static inline int share_adopt(share_pool *p, void *memory, uint64_t size, void *stream,
			      share_buffer **out)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;

	options.memory = memory;
	return share_alloc_with(p, memory ? size : 0, &options, stream, out);
}

/**
 * Gives one reference to a buffer up. It returns at once (but see share_fence for GPU streams).
 * Work that was enqueued on `stream` before the call may go on using the memory, and nobody else's
 * work touches the memory before that work is done. The buffer's memory is freed when the last
 * reference of all processes is gone.
 *
 * Each reference is released once: share_release() beyond the last is SHARE_EINVAL. The handle is
 * given up (as by close(2)) when the call returns 0, SHARE_EDISCONNECTED or SHARE_EDEVICE. With
 * other errors the program keeps it, and also where the driver refused both to signal and to wait
 * for the stream.
 *
 * @param b       the buffer
 * @param stream  where it was used last; NULL: the calling thread, or for GPU memory the legacy
 *                default stream
 * @retval SHARE_EDISCONNECTED  the broker was lost before it could be told; if it lives, it has
 *                              taken this process's references back
 * @retval SHARE_EDEVICE        the device is broken, and so all work on `stream` is over
 * @retval SHARE_EINVAL         it was released already, or is NULL; or `stream` is not a stream of
 * this client
 * @retval SHARE_ENOTSUP        the stream is being captured
 */
int share_release(share_buffer *b, void *stream);

/**
 * Takes one more reference to this handle, for another thread for example. Each reference is given
 * up by a share_release() of its own.
 *
 * @param b  the buffer
 * @return The same handle; NULL when it was given up.
 */
share_buffer *share_retain(share_buffer *b);

/**
 * Where a buffer lies in this process, the same as long as the handle lives. Processes map it at
 * different addresses. GPU memory: a CUdeviceptr, which host code must not touch.
 *
 * @param b  the buffer
 * @return The address of the first byte; NULL in a forked child.
 */
void *share_ptr(const share_buffer *b);

/**
 * How large a buffer is.
 *
 * @param b  the buffer
 * @return The bytes that were asked for when it was allocated.
 */
uint64_t share_size(const share_buffer *b);

/**
 * What all processes call a buffer.
 *
 * @param b  the buffer
 * @return Its identifier, which is never used again for another one.
 */
uint64_t share_id(const share_buffer *b);

/**
 * How a handle may be used.
 *
 * @param b  the buffer
 * @return SHARE_RDONLY or SHARE_RDWR; 0 when it was given up.
 */
int share_mode(const share_buffer *b);

/**
 * Tells whether the data of a buffer is good: whether the work of the process that handed it over
 * is done. It takes one load; when the giver's GPU is first seen to be done, the library also looks
 * whether the giver still runs. It never blocks.
 *
 * @param b  the buffer
 * @retval 0                 it is
 * @retval SHARE_EAGAIN      the giver's work is still running
 * @retval SHARE_EOWNERDEAD  the giver died before its work was done: the content means nothing. Or
 *                           the memory is of kind "legacy" and gone with its maker
 */
int share_buffer_status(const share_buffer *b);

/**
 * The type of callbacks of share_buffer_watch() and share_reclaim_async(), which are told the
 * outcome. They run in share_dispatch().
 *
 * @param status  of a watch: 0, the data is good; SHARE_EOWNERDEAD, the giver died first, or the
 *                memory is of kind "legacy" and gone. Of a reclaim: 0 or an error
 * @param data    what was given with it
 */
typedef void (*share_status_callback)(int status, void *data);

/**
 * Has a callback run, once, as soon as share_buffer_status() is not SHARE_EAGAIN any more. It is
 * for programs whose stream waits for the giver's work: the giver's death lets the stream go on,
 * too, and the program has to find out before it uses the result. The call returns at once. A
 * buffer that nobody handed over is good. The buffer may be released before the callback runs. A
 * thread of the library waits in the meantime.
 *
 * @param b         the buffer
 * @param callback  what is to run, in share_dispatch()
 * @param data      what it is called with
 * @param out       the operation, to be given up with share_cancel(); NULL: it will not be canceled
 * @retval SHARE_ENOMEM  the thread cannot be started
 */
int share_buffer_watch(share_buffer *b, share_status_callback callback, void *data,
		       share_operation **out);

/**
 * Waits until the handle is the only one on its buffer: nobody else has one, in this process or
 * another, no name or token leads to it, and no message with it is in flight. Work enqueued on the
 * stream afterwards then comes after what all of those still do with the memory (with NULL and host
 * memory the call waits for that, within the same time limit). It stays so until this process hands
 * the buffer out again, by any function that does; references of share_retain() are the same
 * handle. So the memory can be used again without share_release() and share_alloc(): for example by
 * an allocator with a cache of its own, after the buffer was published.
 *
 * The program orders by itself what it has enqueued through the handle. With a handle for reading
 * only, the stream is made to wait for nothing. Messages that others had acknowledged before the
 * call do not count as in flight, even with a time limit of 0. If the buffer came to this process
 * with a message, the sender of that message has the buffer until it notices the acknowledgement,
 * which may take a second while it sends nothing.
 *
 * @param b           a buffer
 * @param timeout_ms  how long to wait; 0 does not, SHARE_WAIT_FOREVER has no limit
 * @param stream      what the next work on the memory is enqueued on
 * @retval SHARE_EBUSY      others have it, and the time limit was 0
 * @retval SHARE_ETIMEDOUT  others still have it, or their work is not done
 * @retval SHARE_EINVAL     also: the buffer is on loan with a message. Call share_retain(), and
 *                          acknowledge the message
 * @retval SHARE_EAGAIN     as for share_alloc()
 * @retval SHARE_EQUOTA     this user waits for too much (limit "waits")
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 * @retval SHARE_EOWNERDEAD it is of kind "legacy", and gone with its maker
 */
int share_reclaim(share_buffer *b, int timeout_ms, void *stream);

/**
 * Does what share_reclaim() does, without a time limit. share_dispatch() calls the callback with
 * the outcome.
 *
 * The operation has a reference on the buffer of its own, so the handle may be released before; the
 * buffer goes when the callback is due.
 *
 * @param b         a buffer
 * @param stream    the library uses the stream when the callback is due: it has to live until then
 * @param callback  runs once, with 0 when work enqueued on the stream comes after that of all
 *                  others
 * @param data      given to the callback
 * @param out       NULL, or where a handle for share_cancel() goes
 * @retval SHARE_EQUOTA  this user waits for too much (limit "waits")
 */
int share_reclaim_async(share_buffer *b, void *stream, share_status_callback callback, void *data,
			share_operation **out);

/** In which way the work on a buffer was ordered after the work of others when the handle was
 * acquired. */
enum share_ordered {
	SHARE_ORDERED_NOTHING = 0,   /**< there was nothing to wait for */
	SHARE_ORDERED_ON_STREAM = 1, /**< the stream waits; the host went on */
	SHARE_ORDERED_BY_HOST = 2,   /**< the calling thread had to wait */
};

/** Where a buffer lies. Set it to SHARE_BUFFER_INFO_INIT. */
typedef struct share_buffer_info {
	size_t size;
	const char *kind;   /**< static storage */
	const char *device; /**< UUID, NULL for host memory; belongs to the handle */
	int ordinal;      /**< of the device in this process (as CUDA counts), -1 for host memory */
	uint64_t segment; /**< which segment it lies in, as in `sharectl segments` */
	uint64_t segment_size; /**< bytes */
	uint64_t offset;       /**< in the segment, bytes */
	uint32_t ordered;      /**< enum share_ordered */
} share_buffer_info;
#define SHARE_BUFFER_INFO_INIT                                        \
	{                                                             \
		sizeof(share_buffer_info), NULL, NULL, -1, 0, 0, 0, 0 \
	}

/**
 * Where a buffer lies. No request.
 *
 * @param b    the buffer
 * @param out  where it lies, which was set to SHARE_BUFFER_INFO_INIT
 */
int share_buffer_get_info(const share_buffer *b, share_buffer_info *out);

/**
 * Copies from one buffer of this process to another one, or to another part of the same, of any
 * kinds, pools, devices and connections. The copy is work on both buffers: `stream` is where both
 * were acquired and will be released, or where the program orders their work itself.
 *
 * From device to device it is enqueued on a CUstream of either of the two devices, and the call
 * waits for nothing; with the default stream so if both are on one device. In all other cases the
 * copy is done when the call returns: if one of the buffers is host memory; with a host stream,
 * which is waited for first; and where the device of the stream has no peer access to the other
 * one, as the copy is then made through host memory, in pieces. A stream that is being captured
 * into a graph takes none: the library cannot tell when, and how often, it would be made.
 *
 * @param to           the buffer to copy to, of which the handle may write
 * @param to_offset    from its start, in bytes
 * @param from         the buffer to copy from
 * @param from_offset  from its start, in bytes
 * @param size         bytes
 * @param stream       of the memory on a device, if one of the two is on one: what the copy comes
 * after
 * @retval SHARE_EINVAL      outside of a buffer; the two parts overlap; or a function on that host
 *                           stream has called it, and would wait for itself
 * @retval SHARE_EACCES      the handle `to` is read-only
 * @retval SHARE_ENOTSUP     the stream is being captured
 * @retval SHARE_ENOMEM      there is no memory for a copy through host memory
 * @retval SHARE_EDEVICE     a device failed
 * @retval SHARE_EOWNERDEAD  one of them is of kind "legacy", and gone with its maker
 */
int share_copy(share_buffer *to, uint64_t to_offset, share_buffer *from, uint64_t from_offset,
	       uint64_t size, void *stream);

/**
 * Copies out of a buffer of any kind, ordered on `stream` like any work on it, and waits for it.
 * For small programs and tests: the host blocks.
 *
 * @param b       the buffer
 * @param offset  from its start, in bytes
 * @param to      host memory of this process, which is filled when the call returns
 * @param size    bytes
 * @param stream  what the copy comes after
 * @retval SHARE_EINVAL      outside of the buffer; or a function on that host stream has called it
 * @retval SHARE_EDEVICE     the device failed
 * @retval SHARE_EOWNERDEAD  it is of kind "legacy", and gone with its maker
 */
int share_copy_to_host(share_buffer *b, uint64_t offset, void *to, uint64_t size, void *stream);

/**
 * Copies into a buffer of any kind, ordered on `stream` like any work on it, and waits for it. For
 * small programs and tests: the host blocks.
 *
 * @param b       the buffer
 * @param offset  from its start, in bytes
 * @param from    host memory of this process, which can be used again when the call returns
 * @param size    bytes
 * @param stream  what the copy comes after
 * @retval SHARE_EINVAL      outside of the buffer; or a function on that host stream has called it
 * @retval SHARE_EACCES      the handle is read-only
 * @retval SHARE_EDEVICE     the device failed
 * @retval SHARE_EOWNERDEAD  it is of kind "legacy", and gone with its maker
 */
int share_copy_from_host(share_buffer *b, uint64_t offset, const void *from, uint64_t size,
			 void *stream);

/**
 * How to reach a buffer that this process holds without this library, with plain CUDA calls. Set it
 * to SHARE_RECIPE_INIT. Valid as long as the handle; the memory may be used no longer than that,
 * and what the program imports is its own to unmap before it gives the handle up. By kind:
 *
 * - "host", "adopted": `mmap()` `segment_size` bytes of `fd`
 * - "vmm": `cuMemImportFromShareableHandle()` of `fd`, `cuMemMap()` of `segment_size` bytes
 * - "mempool": `cuMemPoolImportFromShareableHandle()` of `fd`, `cuMemPoolImportPointer()` of
 *   `pointer`. A process must do this only once for a segment: a second import succeeds, but the
 *   first free takes the memory away from both. This library has imported the segment of every
 *   buffer that it gave a handle for, so hand the recipe on to a process that does not use the
 *   library.
 * - "legacy": `cuIpcOpenMemHandle()` (or `cudaIpcOpenMemHandle()`) of `pointer`. `fd` is a pidfd of
 *   the process that made the memory: when that becomes readable the memory is gone, whatever has
 *   been opened. The driver counts how often a process opens it.
 *
 * The buffer begins `offset` bytes from where that lies.
 */
typedef struct share_recipe {
	size_t size;
	const char *kind;          /**< static storage */
	int fd;                    /**< the caller's, to be closed; close-on-exec */
	uint32_t mode;             /**< enum share_access of this handle */
	uint64_t segment_size;     /**< bytes */
	uint64_t offset;           /**< of the buffer in the segment, bytes */
	char device[64];           /**< UUID, "" for host memory */
	unsigned char pointer[64]; /**< mempool: CUmemPoolPtrExportData; legacy: CUipcMemHandle */
} share_recipe;
#define SHARE_RECIPE_INIT                                     \
	{                                                     \
		sizeof(share_recipe), NULL, -1, 0, 0, 0, {0}, \
		{                                             \
			0                                     \
		}                                             \
	}

/**
 * How to reach a buffer without this library. A program that maps host memory by it does what the
 * library does: madvise() with MADV_DONTDUMP and MADV_DONTFORK.
 *
 * @param b    the buffer
 * @param out  the recipe, which was set to SHARE_RECIPE_INIT
 * @retval SHARE_ESTALE  the buffer is on loan with a message. Call share_retain(), and acknowledge
 *                       the message first
 * @retval SHARE_EOWNERDEAD  it is of kind "legacy", and gone with its maker
 */
int share_get_recipe(const share_buffer *b, share_recipe *out);

/**
 * Replaces a buffer's metadata: a JSON text that all holders can read and those with SHARE_RDWR can
 * replace. It is gone with the buffer. What every reader understands alike is taken: UTF-8, no key
 * twice in an object, no NUL in a string, integers of 64 bits, no number beyond a double.
 *
 * @param b     the buffer
 * @param json  up to SHARE_METADATA_MAX bytes; NULL removes it
 * @retval SHARE_EINVAL  not one JSON object or array, too large, or nested deeper than 64:
 *                       share_error_detail() has line and column
 * @retval SHARE_EACCES  a read-only handle
 * @retval SHARE_ESTALE  the buffer is on loan with a message. Call share_retain(), and acknowledge
 *                       the message first
 * @retval SHARE_EQUOTA  as much metadata as this user may have
 */
int share_metadata_set(share_buffer *b, const char *json);

/**
 * Reads a buffer's metadata. The broker keeps what it is given, and a process that does not use
 * this library may give it anything: so it is checked as share_metadata_set() does. What it says is
 * for the caller to check, as everybody who may write in the buffer could set it.
 *
 * The consumer of a message reads the metadata of its buffer as well, until it acknowledges the
 * message. Each call takes a request to the broker, so what a consumer needs with every message
 * goes better with the message's data.
 *
 * @param b    the buffer
 * @param out  a string for `free()`
 * @retval SHARE_ENOENT   none was set
 * @retval SHARE_EPROTO   what was set is no such JSON: share_metadata_get_raw() reads it
 * @retval SHARE_ENOTSUP  the buffer is on loan with a message, and the broker is too old for that
 */
int share_metadata_get(const share_buffer *b, char **out);

/**
 * Reads a buffer's metadata as it is, whatever it is.
 *
 * @param b     the buffer
 * @param out   bytes for `free()`, and a NUL behind them
 * @param size  how many, without that NUL: 1 to SHARE_METADATA_MAX
 * @retval SHARE_ENOENT   none was set
 * @retval SHARE_ENOTSUP  as for share_metadata_get()
 */
int share_metadata_get_raw(const share_buffer *b, void **out, size_t *size);

/* ------------------------------------------------------------------------------------------- */
/* Names                                                                                       */

/*
 * A name leads to a buffer. It is 1 to SHARE_NAME_MAX bytes of UTF-8 without control characters and
 * others that nobody sees (U+202E, U+200B); "/" has no meaning beyond the prefixes people choose.
 * Everyone who may use the buffer's pool can see the name. It belongs to the user who published it:
 * other users get SHARE_EACCES when they publish or unpublish it. A user also gets SHARE_EACCES for
 * publishing a name whose beginning the configuration ("names") reserves for others. "uid/1000/..."
 * is user 1000's to publish, and so on for each user.
 */

/** More about a name. */
enum share_publish_flags {
	SHARE_PUBLISH_PERSISTENT = 1 << 0, /**< it outlives this process, until unpublished */
	SHARE_PUBLISH_EXCLUSIVE = 1 << 1,  /**< SHARE_EEXIST rather than replace */
};

/** How to publish. Set it to SHARE_PUBLISH_OPTIONS_INIT. */
typedef struct share_publish_options {
	size_t size;
	uint32_t flags;            /**< enum share_publish_flags */
	uint32_t mode;             /**< at most this for those who look it up; 0: SHARE_RDWR */
	uint64_t expected_version; /**< replace only this version, else SHARE_EBUSY; 0: any */
	/** What share_tensor_get() tells those who look it up; read during the call; NULL: what the
	 * metadata says. */
	const share_tensor *tensor;
} share_publish_options;
#define SHARE_PUBLISH_OPTIONS_INIT                           \
	{                                                    \
		sizeof(share_publish_options), 0, 0, 0, NULL \
	}

/**
 * Makes a name lead to a buffer. The name holds a reference of its own, so the buffer may be
 * released at once. The work of those who look the name up comes after the work that was enqueued
 * on `stream` before. If the name exists it is replaced atomically: each look-up gets the old
 * buffer or the new one, and holders of the old one keep it. The name goes when this process ends
 * or disconnects, unless SHARE_PUBLISH_PERSISTENT.
 *
 * Everyone who may use the buffer's pool can see the name, and only the user who has published it
 * can replace or remove it.
 *
 * @param b       the buffer
 * @param name    1 to SHARE_NAME_MAX bytes of UTF-8, without control characters and the like
 * @param stream  where the buffer was worked on
 * @retval SHARE_EACCES  another user has published the name, or names that begin in this way are
 *                       reserved for others
 * @retval SHARE_EQUOTA  this user has as many names as it may; or, with a tensor, as much metadata
 * @retval SHARE_ESTALE  the buffer is on loan with a message. Call share_retain(), and acknowledge
 *                       the message first
 * @retval SHARE_EOWNERDEAD  it is of kind "legacy", and gone with its maker
 * @see share_lookup(), share_unpublish()
 */
static inline int share_publish(share_buffer *b, const char *name, void *stream);

/**
 * share_publish() with options.
 *
 * A tensor goes with the name, not with the buffer: several names may lead to parts of one buffer,
 * or to other views of it.
 *
 * Each publication gets a version larger than all earlier ones of this broker, so that a version
 * never names two contents.
 *
 * @copydetails share_publish()
 * @param options  NULL: the defaults
 * @param version  of this publication; may be NULL
 * @retval SHARE_EEXIST  SHARE_PUBLISH_EXCLUSIVE: the name is there
 * @retval SHARE_EBUSY   it is not of the expected version
 * @retval SHARE_EINVAL  the tensor does not fit into the buffer
 */
int share_publish_with(share_buffer *b, const char *name, const share_publish_options *options,
		       void *stream, uint64_t *version);

static inline int share_publish(share_buffer *b, const char *name, void *stream)
{
	return share_publish_with(b, name, SHARE_NULL, stream, SHARE_NULL);
}

/**
 * Removes a name.
 *
 * @param c     the connection
 * @param name  what to remove
 * @retval SHARE_ENOENT  it is not there, or not for this user
 * @retval SHARE_EACCES  another user has published it
 */
int share_unpublish(share_client *c, const char *name);

/**
 * Gets the buffer that a name leads to, waiting for it to be published. Work enqueued on `stream`
 * afterwards is ordered after what the publisher enqueued before; with NULL and host memory, or a
 * GPU stream (see share_fence), the call waits for that, within the same time limit.
 *
 * @param c           the connection
 * @param name        the name
 * @param mode        SHARE_RDONLY or SHARE_RDWR
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the buffer will be used
 * @param out         the buffer, to be given up with share_release()
 * @retval SHARE_ENOENT      there is no such name, or this user may not see it, and the time limit
 *                           was 0
 * @retval SHARE_ETIMEDOUT   there still is no such name, or this user may not see it, or the
 *                           publisher's work is not done
 * @retval SHARE_EACCES      this user may not use the buffer in that mode, or the publisher lets
 *                           nobody do so
 * @retval SHARE_EOWNERDEAD  the publisher died before its work was done. Or the memory is of kind
 *                           "legacy" and gone with its maker
 * @retval SHARE_EINVAL      a function on a host stream has called it, and would wait for what is
 *                           behind it there
 * @retval SHARE_EAGAIN      for writing: as for share_alloc()
 * @retval SHARE_EQUOTA      as many references to buffers, or as many waits, as this user may have
 * @retval SHARE_EBUSY       as for share_alloc()
 * @retval SHARE_ENODEV      as for share_alloc()
 * @retval SHARE_EDEVICE     as for share_alloc()
 * @retval SHARE_ENOTSUP     as for share_alloc()
 * @retval SHARE_ECANCELED   another thread has given the connection up
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 * @see share_alloc() for what can go wrong in reaching GPU memory
 */
int share_lookup(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		 share_buffer **out);

/**
 * Tells which publication of a name a handle came from.
 *
 * @param b  the buffer
 * @return The version under which it was looked up; 0 when it came another way.
 * @see share_publish_with()
 */
uint64_t share_name_version(const share_buffer *b);

/**
 * The type of callbacks of share_lookup_async(), which are told the outcome. They run in
 * share_dispatch().
 *
 * @param b      the buffer, which the callee owns; NULL when there is an error
 * @param error  0, or one of those of share_lookup()
 * @param data   what was given with it
 */
typedef void (*share_lookup_callback)(share_buffer *b, int error, void *data);

/**
 * Starts a look-up and returns at once. The callback runs exactly once, unless the operation is
 * canceled first, or has no handle when the client is given up.
 *
 * @param c           the connection
 * @param name        the name
 * @param mode        SHARE_RDONLY or SHARE_RDWR
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the buffer will be used
 * @param callback    what is to run, in share_dispatch()
 * @param data        what it is called with
 * @param out         the operation, to be given up with share_cancel(), before or after the
 *                    callback; NULL: it will not be canceled
 * @see share_lookup()
 */
int share_lookup_async(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		       share_lookup_callback callback, void *data, share_operation **out);

/**
 * Gives an operation up. After it returns, the callback will not start any more; a buffer on its
 * way is released.
 *
 * @param o  the operation; NULL is fine
 */
void share_cancel(share_operation *o);

/** A name, as share_list() tells of it. */
typedef struct share_name_info {
	const char *name;    /**< valid during the callback */
	uint64_t version;    /**< of the publication */
	uint64_t buffer;     /**< share_id() */
	uint64_t size;       /**< of the buffer, in bytes */
	const char *pool;    /**< valid during the callback */
	uint32_t uid;        /**< of the publisher */
	uint32_t persistent; /**< 1 when it outlives its publisher */
} share_name_info;

/**
 * Tells of every name that starts with a prefix, in byte order. Names that come and go during the
 * call may be missed or seen; no name is reported twice.
 *
 * @param c       the connection
 * @param prefix  "" or NULL: all
 * @param each    called for each; what it returns stops the call unless it is 0
 * @param data    what it is called with
 * @return 0, what `each` has returned, or a negative error.
 */
int share_list(share_client *c, const char *prefix,
	       int (*each)(const share_name_info *info, void *data), void *data);

/** What has become of a name. */
enum share_change {
	SHARE_PUBLISHED = 1,   /**< it is new */
	SHARE_REPLACED = 2,    /**< it leads to another buffer */
	SHARE_UNPUBLISHED = 3, /**< it is gone */
	SHARE_OVERFLOW = 4,    /**< changes were lost, as too many were unread: list again */
};

/** A change, as share_watch_names() tells of it. */
typedef struct share_name_event {
	uint32_t change;  /**< enum share_change */
	const char *name; /**< valid during the callback; "" for SHARE_OVERFLOW */
	uint64_t version; /**< of the publication */
	uint64_t buffer;  /**< share_id(), as long as it lives; 0 when unpublished */
} share_name_event;

/**
 * The type of callbacks of share_watch_names(), which are told a change. They run in
 * share_dispatch().
 *
 * @param event  what has changed; valid during the call
 * @param data   what was given with it
 */
typedef void (*share_watch_callback)(const share_name_event *event, void *data);

/**
 * Reports every later change of the names that start with a prefix. To see the state and all
 * changes after it, watch first, then list.
 *
 * @param c         the connection
 * @param prefix    "" or NULL: all
 * @param callback  what is to run, in share_dispatch()
 * @param data      what it is called with
 * @param out       the watch, to be given up with share_unwatch()
 * @retval SHARE_EQUOTA  as many watches as this user may have
 * @see share_list()
 */
int share_watch_names(share_client *c, const char *prefix, share_watch_callback callback,
		      void *data, share_watch **out);

/**
 * Ends a watch. After it returns, the callback will not start any more.
 *
 * @param w  the watch; NULL is fine
 */
void share_unwatch(share_watch *w);

/* ------------------------------------------------------------------------------------------- */
/* Tokens                                                                                      */

/** The right to import one buffer, or one event. It is a secret: send it over a connection that
 * nobody else can read. */
struct share_token {
	unsigned char bytes[32]; /**< at random */
};

/** The number of uses of a token that can be used until it is revoked. */
#define SHARE_USES_UNLIMITED UINT32_MAX

/** What a token allows. Set it to SHARE_EXPORT_OPTIONS_INIT. */
typedef struct share_export_options {
	size_t size;
	uint32_t mode;              /**< at most this for importers; 0: SHARE_RDONLY */
	uint32_t uses;              /**< imports until it ends; 0: one; SHARE_USES_UNLIMITED */
	uint32_t timeout_ms;        /**< it ends after this time; 0: no limit, but with its maker */
	const share_tensor *tensor; /**< as in share_publish_options, for importers */
} share_export_options;
#define SHARE_EXPORT_OPTIONS_INIT                           \
	{                                                   \
		sizeof(share_export_options), 0, 0, 0, NULL \
	}

/**
 * Makes a token for a buffer: read-only, and for one use. The token holds a reference, so the
 * buffer may be released at once. The work of the importer comes after the work that was enqueued
 * on `stream` before. The token ends with its last use, with its time limit, by share_revoke(), or,
 * if it has no time limit, with the connection that made it.
 *
 * A token with a time limit (`timeout_ms`) outlives the connection and the process that made it,
 * for an hour at most: its maker may hand it over and end. It stays charged to the user who made
 * it, and ends when an administrator disconnects the maker or the maker breaks the protocol, and
 * when somebody wants to import it and that user may not use the pool any more. Of each pool at
 * most an eighth is kept by tokens whose makers are gone. Beyond that the oldest of them end, and
 * one for more than that ends with its maker.
 *
 * A token does not widen who may use the pool: importers need access to it themselves.
 *
 * @param b       the buffer
 * @param stream  where it was worked on
 * @param out     the token
 * @retval SHARE_EQUOTA  this user has as many tokens as it may; or, with a tensor, as much metadata
 * @retval SHARE_ESTALE  the buffer is on loan with a message. Call share_retain(), and acknowledge
 *                       the message first
 * @retval SHARE_EOWNERDEAD  it is of kind "legacy", and gone with its maker
 * @see share_import()
 */
static inline int share_export(share_buffer *b, void *stream, share_token *out);

/**
 * share_export() with options, which say what the token allows.
 *
 * @copydetails share_export()
 * @param options  NULL: the defaults
 * @retval SHARE_EACCES  more than this handle may
 * @retval SHARE_EINVAL  the tensor does not fit into the buffer
 */
int share_export_with(share_buffer *b, const share_export_options *options, void *stream,
		      share_token *out);

static inline int share_export(share_buffer *b, void *stream, share_token *out)
{
	return share_export_with(b, SHARE_NULL, stream, out);
}

/**
 * Gets the buffer that a token stands for. With `stream` NULL and host memory the call waits for
 * the exporter's work.
 *
 * @param c       the connection
 * @param token   the token
 * @param mode    SHARE_RDONLY or SHARE_RDWR; 0: whatever the token allows
 * @param stream  where the buffer will be used
 * @param out     the buffer, to be given up with share_release()
 * @retval SHARE_ENOENT      no such token (any more), or the pool is not for this user. If it ended
 *                           not long ago, share_error_detail() says how, to who may use the pool
 * @retval SHARE_EACCES      the token, or the pool, does not allow that much
 * @retval SHARE_EOWNERDEAD  the exporter died before its work was done. Or as for share_lookup()
 * @retval SHARE_EAGAIN      for writing: as for share_alloc()
 * @retval SHARE_EQUOTA      as many references to buffers as this user may have
 * @retval SHARE_EBUSY       as for share_alloc()
 * @retval SHARE_ENODEV      as for share_alloc()
 * @retval SHARE_EDEVICE     as for share_alloc()
 * @retval SHARE_ENOTSUP     as for share_alloc()
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 * @see share_export(); share_alloc() for what can go wrong in reaching GPU memory
 */
int share_import(share_client *c, const share_token *token, int mode, void *stream,
		 share_buffer **out);

/**
 * Ends a token. It belongs to the user who made it.
 *
 * @param c      the connection
 * @param token  the token
 * @retval SHARE_ENOENT  no such token (any more), or its pool is not for this user
 * @retval SHARE_EACCES  another user made it
 * @see share_revoke_id()
 */
int share_revoke(share_client *c, const share_token *token);

#undef SHARE_NULL
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
