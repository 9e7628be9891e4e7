/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The protocols between libshare and the broker, and between the broker and its agents. All of it
 * is declared here and in wire/fields.h, once: the structs, the tables of the codec, the broker's
 * dispatch and docs/protocol.md are made from these lists.
 *
 * WIRE_MESSAGES: M(NAME, name, number, direction, fds_min, fds_max, since, reply, flags, text)
 *   direction  TO_BROKER or TO_CLIENT; TO_AGENT or FROM_AGENT between the broker and its agents,
 *              with numbers from 64 on
 *   reply      the message that answers it, or NOTHING
 *   flags      enum wire_message_flags: how its handling differs from that of others
 *
 * What is in each of them is in wire/fields.h. A number never changes.
 */

#define WIRE_VERSION        8
#define WIRE_VERSION_OLDEST 6

/* The version from which on CHANNEL_METADATA exists. */
#define WIRE_VERSION_CHANNEL_METADATA 7
/* The version from which on CHANNEL_STALLED exists. */
#define WIRE_VERSION_CHANNEL_STALLED 8
/* The version from which on the messages of a queue outlive their producer. */
#define WIRE_VERSION_ORPHANS 8
/* The version from which on ADOPT exists. */
#define WIRE_VERSION_ADOPT 8
/* The version from which on there is memory of kind legacy. */
#define WIRE_VERSION_LEGACY 8
/* The version from which on there is memory of kind pinned. */
#define WIRE_VERSION_PINNED 8
/* The version from which on a consumer may get the latest message alone. */
#define WIRE_VERSION_LATEST 8
/* The version from which on a pool says how the pages of host memory are made. */
#define WIRE_VERSION_HOST_PAGES 8
/* The version from which on POOL_SEGMENTS exists. */
#define WIRE_VERSION_POOL_SEGMENTS 8
/* The version from which on a message may carry more than 256 bytes, and several buffers. */
#define WIRE_VERSION_FAR 8

/*
 * From WELCOME on each packet to a client ends with its number: a u64 behind the bytes of the
 * message. Only the farewell (ERROR with serial 0) has none, as nothing comes after it. Numbers of
 * a connection grow, with gaps. A broker that goes on for one that died sends again what may not
 * have been received, with the numbers of the first time: a client throws away, with its
 * descriptors, what has no greater number than the last packet, before it reads anything else of
 * it.
 */

#define WIRE_TENSOR_MAX 272 /* bytes */

#define WIRE_MESSAGES(M)                                                                           \
	M(HELLO, hello, 1, TO_BROKER, 0, 0, 6, WELCOME, WIRE_FIRST,                                \
	  "The first message of a client: the versions it speaks, and its name in reports.")       \
	M(WELCOME, welcome, 2, TO_CLIENT, 1, 1, 6, NOTHING, 0,                                     \
	  "The broker's answer. It brings the client's own timeline page (a memfd), which the "    \
	  "client maps for writing.")                                                              \
	M(READY, ready, 3, TO_BROKER, 0, 0, 6, DONE, WIRE_SECOND,                                  \
	  "The client has mapped its page, and the broker seals the page against any further "     \
	  "writer. Before READY the broker accepts only HELLO.")                                   \
	M(DONE, done, 4, TO_CLIENT, 0, 0, 6, NOTHING, 0, "Success without a result.")              \
	M(ERROR, error, 5, TO_CLIENT, 0, 0, 6, NOTHING, WIRE_UNASKED,                              \
	  "A request failed and changed nothing. With serial 0: the connection ends now, for "     \
	  "this reason.")                                                                          \
	M(PING, ping, 6, TO_BROKER, 0, 0, 6, DONE, 0, "Does nothing, and is answered in order.")   \
	M(BYE, bye, 7, TO_BROKER, 0, 0, 6, DONE, 0,                                                \
	  "The client has unmapped everything and finished its streams; the broker releases "      \
	  "all that the client holds.")                                                            \
	M(POOL_OPEN, pool_open, 8, TO_BROKER, 0, 0, 6, POOL, WIRE_BEGINS, "Opens a pool by name.") \
	M(POOL_CREATE, pool_create, 9, TO_BROKER, 0, 0, 6, POOL, WIRE_BEGINS,                      \
	  "Creates a pool and opens it.")                                                          \
	M(POOL, pool, 10, TO_CLIENT, 0, 0, 6, NOTHING, 0, "An open pool.")                         \
	M(POOL_CLOSE, pool_close, 11, TO_BROKER, 0, 0, 6, DONE, 0, "Gives one POOL back.")         \
	M(POOL_DESTROY, pool_destroy, 12, TO_BROKER, 0, 0, 6, DONE, 0,                             \
	  "Removes a pool's name; the pool ends with its last buffer.")                            \
	M(ALLOC, alloc, 13, TO_BROKER, 0, 0, 6, GRANT, WIRE_WAITS_FOR_OTHERS,                      \
	  "Allocates a buffer.")                                                                   \
	M(GRANT, grant, 14, TO_CLIENT, 0, 65, 6, NOTHING, WIRE_UNASKED,                            \
	  "One more reference on a buffer for this client. Descriptors: the segment's, if "        \
	  "GRANT_SEGMENT is set; then two for each of `pages`: the page (a memfd) and its "        \
	  "owner's pidfd. It also comes with serial 0, unasked and without a "                     \
	  "buffer (0): it then brings a segment that the client has asked for (POOL_SEGMENTS), "   \
	  "or one of the pool of a channel that the client is a consumer of, before a message "    \
	  "can lie in that segment.")                                                              \
	M(RELEASE, release, 15, TO_BROKER, 0, 0, 6, DONE, WIRE_SERIAL_OPTIONAL,                    \
	  "Gives references back, behind a fence of the client. With serial 0 there is no "        \
	  "reply.")                                                                                \
	M(PUBLISH, publish, 16, TO_BROKER, 0, 0, 6, PUBLISHED, 0,                                  \
	  "Makes a name lead to a buffer.")                                                        \
	M(PUBLISHED, published, 17, TO_CLIENT, 0, 0, 6, NOTHING, 0, "The name's new version.")     \
	M(UNPUBLISH, unpublish, 18, TO_BROKER, 0, 0, 6, DONE, 0, "Removes a name.")                \
	M(LOOKUP, lookup, 19, TO_BROKER, 0, 0, 6, GRANT, WIRE_WAITS_FOR_OTHERS,                    \
	  "Gets the buffer behind a name, perhaps later: other replies may come before this "      \
	  "one.")                                                                                  \
	M(CANCEL, cancel, 20, TO_BROKER, 0, 0, 6, NOTHING, 0,                                      \
	  "Ends a waiting LOOKUP, RECLAIM, MONITOR or ALLOC with SHARE_ECANCELED, if it was not "  \
	  "answered yet.")                                                                         \
	M(WATCH, watch, 21, TO_BROKER, 0, 0, 6, WATCHING, 0,                                       \
	  "Asks for a NAME_EVENT whenever a name changes.")                                        \
	M(WATCHING, watching, 22, TO_CLIENT, 0, 0, 6, NOTHING, 0, "The watch is in place.")        \
	M(UNWATCH, unwatch, 23, TO_BROKER, 0, 0, 6, DONE, 0, "Ends a watch.")                      \
	M(NAME_EVENT, name_event, 24, TO_CLIENT, 0, 0, 6, NOTHING, WIRE_UNASKED,                   \
	  "A watched name changed.")                                                               \
	M(EXPORT, export, 25, TO_BROKER, 0, 0, 6, TOKEN, 0, "Makes a token for a buffer.")         \
	M(TOKEN, token, 26, TO_CLIENT, 0, 0, 6, NOTHING, 0, "The token.")                          \
	M(IMPORT, import, 27, TO_BROKER, 0, 0, 6, GRANT, 0, "Gets the buffer behind a token.")     \
	M(REVOKE, revoke, 28, TO_BROKER, 0, 0, 6, DONE, 0,                                         \
	  "Ends a token. Allowed to the user who made it, and to administrators.")                 \
	M(METADATA_SET, metadata_set, 29, TO_BROKER, 0, 0, 6, DONE, 0,                             \
	  "Replaces a buffer's metadata; empty metadata removes it. The broker does not look at "  \
	  "it, so clients set nothing but JSON.")                                                  \
	M(METADATA_GET, metadata_get, 30, TO_BROKER, 0, 0, 6, METADATA, 0,                         \
	  "Reads a buffer's metadata. Whoever may write in the buffer may have set anything, so "  \
	  "clients look whether it is JSON before they use it.")                                   \
	M(METADATA, metadata, 31, TO_CLIENT, 0, 0, 6, NOTHING, 0, "A buffer's metadata.")          \
	M(QUERY, query, 32, TO_BROKER, 0, 0, 6, REPORT, 0, "Asks for one page of a report.")       \
	M(REPORT, report, 33, TO_CLIENT, 0, 0, 6, NOTHING, 0, "One page of the report.")           \
	M(TIMELINE, timeline, 34, TO_BROKER, 0, 0, 6, TIMELINE_PAGE, 0,                            \
	  "Asks for another client's timeline page, read-only. SHARE_ENOENT: its owner said "      \
	  "BYE, so all its fences are reached. SHARE_EOWNERDEAD: its owner died.")                 \
	M(TIMELINE_PAGE, timeline_page, 35, TO_CLIENT, 2, 2, 6, NOTHING, WIRE_UNASKED,             \
	  "The page (a memfd) and its owner's pidfd, by which a waiter sees without the broker "   \
	  "that the owner is dead. It also comes with serial 0, unasked: it is "                   \
	  "then the page of a member of a channel.")                                               \
	M(SEGMENT_RETIRE, segment_retire, 36, TO_CLIENT, 0, 0, 6, NOTHING, WIRE_UNASKED,           \
	  "The segment is empty: the client is to unmap it and to send SEGMENT_RETIRED.")          \
	M(SEGMENT_RETIRED, segment_retired, 37, TO_BROKER, 0, 0, 6, NOTHING, 0,                    \
	  "The client has no mapping of the segment any more. A later GRANT brings its "           \
	  "descriptor again.")                                                                     \
	M(RECIPE_GET, recipe_get, 38, TO_BROKER, 0, 0, 6, RECIPE, 0,                               \
	  "Asks how a program can map a buffer of this client without libshare.")                  \
	M(RECIPE, recipe, 39, TO_CLIENT, 1, 1, 6, NOTHING, 0,                                      \
	  "The descriptor of the buffer's segment (for a mempool, of a pool handle), and how "     \
	  "to import it.")                                                                         \
	M(EVENT_CREATE, event_create, 40, TO_BROKER, 0, 0, 6, EVENT, WIRE_BEGINS,                  \
	  "Leases an interprocess event from the agent of a device.")                              \
	M(EVENT_OPEN, event_open, 41, TO_BROKER, 0, 0, 6, EVENT, 0,                                \
	  "One more lease of an event, by its name or by its token.")                              \
	M(EVENT, event, 42, TO_CLIENT, 0, 0, 6, NOTHING, 0, "One lease of an event.")              \
	M(EVENT_RELEASE, event_release, 43, TO_BROKER, 0, 0, 6, DONE, WIRE_SERIAL_OPTIONAL,        \
	  "Gives one lease of an event back. With serial 0 there is no reply.")                    \
	M(TRIM, trim, 44, TO_CLIENT, 0, 0, 6, NOTHING, WIRE_UNASKED,                               \
	  "Memory is short: the client is to give back the free blocks that it keeps.")            \
	M(CHANNEL_OPEN, channel_open, 45, TO_BROKER, 0, 0, 6, CHANNEL, WIRE_BEGINS,                \
	  "Takes part in a channel, and makes it if there is none of that name.")                  \
	M(CHANNEL, channel, 46, TO_CLIENT, 3, 3, 6, NOTHING, 0,                                    \
	  "A membership that is being prepared. Descriptors: the client's own page (a ring or a "  \
	  "ledger), to be mapped for writing; the control page, for reading; its doorbell.")       \
	M(CHANNEL_READY, channel_ready, 47, TO_BROKER, 0, 0, 6, DONE, 0,                           \
	  "The client has mapped its page. The broker seals it; from now on it takes part.")       \
	M(CHANNEL_SYNC, channel_sync, 48, TO_BROKER, 0, 0, 6, CHANNEL_MEMBERS, 0,                  \
	  "Asks who takes part now. A consumer is sent the segments of the channel's pool that "   \
	  "it does not have, ahead of the answer. One of a queue that has nothing else to "        \
	  "receive "                                                                               \
	  "may ask for a message whose producer is gone (WIRE_CHANNEL_SYNC_FETCH): it gets one "   \
	  "at "                                                                                    \
	  "a time, as its own, reads it in that producer's ring, among the copies, and "           \
	  "acknowledges it as any other. `had` counts those that it got: until it does, it is "    \
	  "given the same one again.")                                                             \
	M(CHANNEL_MEMBERS, channel_members, 49, TO_CLIENT, 0, 63, 6, NOTHING, WIRE_UNASKED,        \
	  "The members of the other role. Descriptors: three for each member that has "            \
	  "CHANNEL_MEMBER_NEW set, in order: its page, its pidfd, and its doorbell. With serial "  \
	  "0, unasked: one that has just come, so that it is known when the broker is gone; a "    \
	  "CHANNEL_SYNC says the same.")                                                           \
	M(CHANNEL_CLOSE, channel_close, 50, TO_BROKER, 0, 0, 6, DONE, 0,                           \
	  "Leaves a channel. What a producer has sent can still be received; a consumer has "      \
	  "acknowledged all it had.")                                                              \
	M(CHANNEL_DRAINED, channel_drained, 51, TO_BROKER, 0, 0, 6, NOTHING, 0,                    \
	  "A consumer has received and acknowledged all it will of a producer that is gone, or "   \
	  "does not wait for it any more.")                                                        \
	M(CHANNEL_SEGMENT, channel_segment, 52, TO_BROKER, 0, 0, 6, GRANT, 0,                      \
	  "Asks for a segment of a channel's pool, that a message lies in or will lie in. The "    \
	  "GRANT has no buffer (0).")                                                              \
	M(CHANNEL_RETAIN, channel_retain, 53, TO_BROKER, 0, 0, 6, GRANT, 0,                        \
	  "A consumer asks for a reference of its own on the buffer of a message it has.")         \
	M(TRIMMED, trimmed, 54, TO_BROKER, 0, 0, 6, NOTHING, 0,                                    \
	  "The client has given back what it kept, as TRIM asked.")                                \
	M(CHANNEL_ABANDON, channel_abandon, 55, TO_BROKER, 0, 0, 6, DONE, 0,                       \
	  "A producer does not wait for a consumer any more. What that may still use of the "      \
	  "producer's messages the broker looks after from now on, until the consumer has "        \
	  "acknowledged it and left, or is dead. Only the first for a consumer counts; one that "  \
	  "is no more has nothing.")                                                               \
	M(RELOAD, reload, 58, TO_BROKER, 0, 0, 6, REPORT, 0,                                       \
	  "The broker is to read its configuration file again. The REPORT is one page, with an "   \
	  "object for each change; an ERROR says why the file was refused.")                       \
	M(DROP, drop, 59, TO_BROKER, 0, 0, 6, DONE, 0,                                             \
	  "Ends a token, or the connection of another client, by its identifier in a report, or "  \
	  "the messages that wait in a channel though their producers are gone, by its name. "     \
	  "Allowed to its user and to administrators; others get SHARE_ENOENT.")                   \
	M(RECLAIM, reclaim, 60, TO_BROKER, 0, 0, 6, GRANT, WIRE_WAITS_FOR_OTHERS,                  \
	  "Gets one more reference on a buffer once only the client's own reference is left: "     \
	  "no other client's lease, no name, no token and no message of a channel. The answer "    \
	  "may come later, as that of LOOKUP.")                                                    \
	M(MONITOR, monitor, 61, TO_BROKER, 0, 0, 6, REPORT, WIRE_WAITS_FOR_OTHERS,                 \
	  "Asks for what has happened since the last MONITOR of this connection: an object for "   \
	  "each allocation, publication, death and so on that it may see. The first one says "     \
	  "from when on nothing is missed. The answer may come later, as that of LOOKUP; what "    \
	  "happens meanwhile is kept up to a limit, and then counted.")                            \
	M(ENDING, ending, 62, TO_CLIENT, 0, 0, 6, NOTHING, WIRE_UNASKED,                           \
	  "The broker is about to end: the client is to finish what it has in hand, to give up "   \
	  "what it holds, and to say BYE. Until then it is served as before, but begins nothing "  \
	  "new.")                                                                                  \
	M(UPGRADE, upgrade, 63, TO_BROKER, 0, 0, 6, REPORT, 0,                                     \
	  "The broker is to hand over to one of the program that is on the disk now. The REPORT, " \
	  "which comes from that one, is one page with one object; an ERROR says why the broker "  \
	  "goes on that was asked.")                                                               \
	M(AGENT_DEVICE_GET, agent_device_get, 64, TO_AGENT, 0, 0, 6, AGENT_DEVICE,                 \
	  WIRE_REPEATABLE,                                                                         \
	  "Asks an agent what its device is and how much of its memory is free. An agent "         \
	  "without a device answers with one AGENT_DEVICE for each device, and then AGENT_DONE.")  \
	M(AGENT_DEVICE, agent_device, 65, FROM_AGENT, 0, 0, 6, NOTHING, 0, "A device.")            \
	M(AGENT_DONE, agent_done, 66, FROM_AGENT, 0, 0, 6, NOTHING, 0,                             \
	  "Success without a result.")                                                             \
	M(AGENT_FAILED, agent_failed, 67, FROM_AGENT, 0, 0, 6, NOTHING, 0,                         \
	  "The request could not be done.")                                                        \
	M(AGENT_SEGMENT_CREATE, agent_segment_create, 68, TO_AGENT, 0, 0, 6, AGENT_SEGMENT,        \
	  WIRE_REPEATABLE, "Makes a segment.")                                                     \
	M(AGENT_SEGMENT, agent_segment, 69, FROM_AGENT, 1, 1, 6, NOTHING, 0,                       \
	  "A segment: its descriptor and its recipe.")                                             \
	M(AGENT_SEGMENT_DESTROY, agent_segment_destroy, 70, TO_AGENT, 0, 0, 6, AGENT_DONE,         \
	  WIRE_OF_ONE_PROCESS,                                                                     \
	  "Ends a segment: the broker has closed its descriptor, and no client maps the "          \
	  "segment any more.")                                                                     \
	M(AGENT_EVENT_CREATE, agent_event_create, 71, TO_AGENT, 0, 0, 6, AGENT_EVENT,              \
	  WIRE_REPEATABLE, "Makes an interprocess event.")                                         \
	M(AGENT_EVENT, agent_event, 72, FROM_AGENT, 0, 0, 6, NOTHING, 0, "An interprocess event.") \
	M(AGENT_EVENT_DESTROY, agent_event_destroy, 73, TO_AGENT, 0, 0, 6, AGENT_DONE,             \
	  WIRE_OF_ONE_PROCESS, "Ends an event that nobody uses any more.")                         \
	M(AGENT_SCRUB, agent_scrub, 74, TO_AGENT, 0, 1, 6, AGENT_DONE, 0,                          \
	  "Zeroes a part of a segment that nobody uses. The segment's descriptor comes along, "    \
	  "for an agent that keeps nothing of the segment.")                                       \
	M(AGENT_KNOWN, agent_known, 75, TO_AGENT, 0, 0, 6, AGENT_DONE, WIRE_OF_ONE_PROCESS,        \
	  "Said by a broker that goes on for one that died: which objects of an agent it knows. "  \
	  "The agent destroys all others of that kind, which nobody will ask for.")                \
	M(CHANNEL_METADATA, channel_metadata, 76, TO_BROKER, 0, 0, 7, METADATA, 0,                 \
	  "A consumer reads the metadata of the buffer of a message that it has not "              \
	  "acknowledged, or on which it has a lease by now. As METADATA_GET: it may be anything.") \
	M(CHANNEL_STALLED, channel_stalled, 77, TO_BROKER, 0, 0, 8, NOTHING, 0,                    \
	  "A producer waits for room in its channel, and there has been none for more than a "     \
	  "second. Said once until there is some.")                                                \
	M(ADOPT, adopt, 78, TO_BROKER, 0, 2, 8, GRANT, 0,                                          \
	  "Makes a buffer of memory that the client has already, in a pool of kind adopted. "      \
	  "Descriptors: the file in memory, open for reading and writing; and the same file, "     \
	  "open for reading only. Of a device's memory: that of the allocation in which it lies; " \
	  "of kind legacy none, as its recipe has a handle, and the first ADOPT is answered. "     \
	  "A socket lets in descriptors only after the first ADOPT, which "                        \
	  "comes without: its answer is SHARE_EAGAIN, and so is that to one whose descriptors "    \
	  "are lost, as the broker has died. The client then says it again, with descriptors.")    \
	M(POOL_SEGMENTS, pool_segments, 79, TO_BROKER, 0, 0, 8, DONE, 0,                           \
	  "Asks for the segments of an open pool that the client does not have, so that no "       \
	  "look-up has to bring them. They come ahead of the answer, as many as the socket takes " \
	  "of what is not read; who was sent some asks for the rest.")

/* Errors have other numbers on the wire, and in the journal, than in the API: E(name, number).
 * These never change; new ones are added at the end. */
#define WIRE_ERRORS(E)              \
	E(SHARE_EINVAL, -1)         \
	E(SHARE_ENOMEM, -2)         \
	E(SHARE_ENOENT, -3)         \
	E(SHARE_EEXIST, -4)         \
	E(SHARE_EACCES, -5)         \
	E(SHARE_EQUOTA, -6)         \
	E(SHARE_EAGAIN, -7)         \
	E(SHARE_ETIMEDOUT, -8)      \
	E(SHARE_ECANCELED, -9)      \
	E(SHARE_EBUSY, -10)         \
	E(SHARE_ESTALE, -11)        \
	E(SHARE_ENOTSUP, -12)       \
	E(SHARE_EDISCONNECTED, -13) \
	E(SHARE_EFORK, -14)         \
	E(SHARE_EOWNERDEAD, -15)    \
	E(SHARE_EPROTO, -16)        \
	E(SHARE_ESYSTEM, -17)       \
	E(SHARE_ENOBROKER, -18)     \
	E(SHARE_ENODEV, -19)        \
	E(SHARE_EDEVICE, -20)       \
	E(SHARE_EPIPE, -21)         \
	E(SHARE_EINTR, -22)
