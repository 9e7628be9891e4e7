/* SPDX-License-Identifier: MIT */
#ifndef SHARE_ADMIN_H
#define SHARE_ADMIN_H

#include <stdint.h>

#include <share/share.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * For tools of operators: what a broker knows and does, and how an administrator ends what others
 * have. Programs that only share memory need nothing of this.
 */

/**
 * Reports what the broker knows, as JSON objects. Administrators see everything. Other users see
 * what is in the pools that they may use, their own clients, and what they have themselves.
 * Identifiers are hexadecimal strings, but for those of clients, which are numbers.
 *
 * @param c     the connection
 * @param what  "status" (one object), "pools", "segments", "clients", "buffers", "leases",
 *              "names", "tokens", "devices", "events", "channels", "users", "requests" or
 *              "agents" (one object each)
 * @param each  called with each object, which is valid during the call; what it returns stops the
 *              call unless it is 0
 * @param data  what it is called with
 * @return 0, what `each` has returned, or a negative error.
 * @retval SHARE_ENODEV  "devices": there is no driver
 * @retval SHARE_EDEVICE "devices": no agent could be started to ask the driver, or it has ended
 * @retval SHARE_ETIMEDOUT  an operator's connection, whose time limit for the broker is over
 */
int share_inspect(share_client *c, const char *what, int (*each)(const char *json, void *data),
		  void *data);

/** What share_monitor() tells of. */
enum share_monitor_flags {
	SHARE_MONITOR_USER = 1, /**< only what the user `uid` does */
};

/** What share_monitor() tells of, and for how long. Set it to SHARE_MONITOR_OPTIONS_INIT. */
typedef struct share_monitor_options {
	size_t size;        /**< sizeof(share_monitor_options) */
	const char *pool;   /**< only what happens in the pool of that name; NULL: everything */
	const char *prefix; /**< only what happens to names and channels that start so; NULL: all */
	uint32_t flags;     /**< enum share_monitor_flags */
	uint32_t uid;       /**< with SHARE_MONITOR_USER */
} share_monitor_options;
#define SHARE_MONITOR_OPTIONS_INIT                              \
	{                                                       \
		sizeof(share_monitor_options), NULL, NULL, 0, 0 \
	}

/**
 * Waits for what happens at the broker, and tells of it: allocations, hand-overs, publications,
 * deaths and so on, as sharectl(1) lists them under "watch". Who sees what is as for
 * share_inspect(). What a process allocates from the memory that it keeps for its next allocations
 * never comes to the broker, and is not told of.
 *
 * The first call of a connection begins to watch and returns at once, after an object whose
 * "action" is "start"; from then on, each call tells of all that has happened since the one before,
 * and waits if that is nothing. What happens while no call waits is kept up to a limit; then an
 * object with the "action" "lost" has the "count" of what is missing. Watching ends with the
 * connection.
 *
 * @param c           the connection, whose calls are made by one thread at a time
 * @param options     NULL: everything. Others than those of the last call hold from now on
 * @param timeout_ms  how long to wait for something to happen
 * @param each        called with a JSON object for each thing, valid during the call: "action" is
 *                    what happened, "time_ms" when, in milliseconds since 1970. What it returns
 *                    stops the call unless it is 0, and what was still to be told is lost
 * @param data        what it is called with
 * @return 0, after the time limit as well, what `each` has returned, or a negative error.
 * @retval SHARE_EQUOTA  as many watches, or bytes of messages that wait, as this user may have
 * @retval SHARE_EBUSY   another thread waits with this connection already
 * @retval SHARE_ECANCELED  another thread has given the connection up
 * @retval SHARE_EINTR   interrupted (share_interrupt())
 * @retval SHARE_ETIMEDOUT  an operator's connection, whose time limit for the broker is over
 */
int share_monitor(share_client *c, const share_monitor_options *options, int timeout_ms,
		  int (*each)(const char *json, void *data), void *data);

/**
 * Ends a token by its identifier in the report "tokens", which is no secret. The user who made the
 * token and administrators may do so.
 *
 * @param c      the connection
 * @param token  its identifier
 * @retval SHARE_ENOENT  there is none (any more), or it is another user's
 * @retval SHARE_ETIMEDOUT  as share_inspect()
 */
int share_revoke_id(share_client *c, uint64_t token);

/**
 * Ends the connection of another client. The user of that client and administrators may do so. The
 * client's names and tokens, and what it waits for, are gone at once, and its calls fail with
 * SHARE_EDISCONNECTED from then on. The memory that it holds stays its own, in quarantine, until
 * its process ends, as the process could still be using it.
 *
 * @param c       the connection
 * @param client  its identifier in the report "clients"
 * @retval SHARE_ENOENT  there is none (any more), or it is another user's
 * @retval SHARE_ESTALE  it has lost its connection already
 * @retval SHARE_EINVAL  it is this client
 * @retval SHARE_ETIMEDOUT  as share_inspect()
 */
int share_drop_client(share_client *c, uint64_t client);

/**
 * Has the broker read its configuration file again, and waits until it has. Whoever has more than a
 * limit allows now keeps it and gets no more.
 *
 * @param c     the connection, of an administrator of the broker
 * @param each  called with a JSON object for each change, valid during the call: "key" is where in
 *              the file ("limits.bytes", "pools[\"frames\"].limit"), "change" a text ("8GiB ->
 *              16GiB"), and "now" false for what is told but stays as it is, since it cannot change
 *              while the broker runs. What it returns stops the call unless it is 0; the
 *              configuration is in force all the same. May be NULL
 * @param data  what it is called with
 * @return 0, what `each` has returned, or a negative error, after which nothing has changed but
 *         where that says so.
 * @retval SHARE_EACCES   this user is no administrator of the broker
 * @retval SHARE_EINVAL   the file is wrong, in the line that share_error_detail() names
 * @retval SHARE_ENOTSUP  the broker was started without a file
 * @retval SHARE_ESYSTEM  the file cannot be read; or it was, and the broker had no memory to tell
 *                        what is new, which share_error_detail() says then
 * @retval SHARE_ETIMEDOUT  as share_inspect()
 */
int share_reload(share_client *c, int (*each)(const char *json, void *data), void *data);

/**
 * Has the broker hand over to one of the program that is on the disk now (after an upgrade of its
 * package, say), and waits until that serves. All processes keep their connections and all that
 * they hold; their requests wait meanwhile, for about as long as a broker needs to start with what
 * there is. The new program first finds out whether it can go on from where the old one is: if it
 * cannot, the old one goes on, and nothing was changed.
 *
 * @param c     the connection, of an administrator of the broker
 * @param each  called once, with a JSON object, valid during the call: "from" and "to" are the
 *              versions of the two brokers, "pid" is the new one's process. May be NULL
 * @param data  what it is called with
 * @return 0, what `each` has returned, or a negative error.
 * @retval SHARE_EACCES   this user is no administrator of the broker
 * @retval SHARE_ENOTSUP  the new program cannot go on, for the reason in share_error_detail()
 * @retval SHARE_EDISCONNECTED  the broker is about to end
 * @retval SHARE_ETIMEDOUT  as share_inspect()
 */
int share_upgrade(share_client *c, int (*each)(const char *json, void *data), void *data);

/**
 * Ends the messages that wait in a queue for a consumer though their producers are gone. The users
 * of those producers and administrators may do so. What a consumer has received stays its own, and
 * so do the channel's members; without any, the channel is gone. The next consumer is told how many
 * were lost, as a message's `lost`.
 *
 * @param c     the connection
 * @param name  the channel's
 * @retval SHARE_ENOENT  there is no such channel, or no message in it that this user may end
 * @retval SHARE_EINVAL  the name is too long, or the broker is an older one
 * @retval SHARE_ETIMEDOUT  as share_inspect()
 */
int share_end_channel(share_client *c, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
