/* SPDX-License-Identifier: MIT */
#ifndef WIRE_MESSAGES_H
#define WIRE_MESSAGES_H

/*
 * The protocols between libshare and the broker, and between the broker and its agents. All of it
 * is declared here, once: the structs, the tables of the codec, the broker's dispatch and
 * docs/protocol.md are made from these lists.
 *
 * WIRE_MESSAGES: M(NAME, name, number, direction, fds_min, fds_max, since, reply, flags, text)
 *   direction  TO_BROKER or TO_CLIENT; TO_AGENT or FROM_AGENT between the broker and its agents,
 *              with numbers from 64 on
 *   reply      the message that answers it, or NOTHING
 *   flags      enum wire_message_flags: how its handling differs from that of others
 *
 * WIRE_FIELDS_name: F(M, type, name, since, text) a fixed little-endian field, in wire order
 *                   V(M, name, max, since, text) bytes of variable size: the fixed part carries
 *                                              their u32 size, the bytes follow it in order
 *
 * A number and the order of fields never change; a new field is added last and raises `since`. A
 * receiver takes a field that an older sender left out as zero, and ignores one that a newer sender
 * added.
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

#define WIRE_FIELDS_hello(F, V, M)                                         \
	F(M, u32, version, 6, "newest protocol version the client speaks") \
	F(M, u32, oldest, 6, "oldest one it speaks")                       \
	V(M, label, 63, 6, "what the client is called in reports; UTF-8")  \
	V(M, unused, 1024, 6, "empty")                                     \
	F(M, u32, flags, 6, "enum wire_hello_flags")
#define WIRE_FIELDS_welcome(F, V, M)                                                    \
	F(M, u32, version, 6, "the version spoken from now on")                         \
	F(M, u32, slots, 6, "timelines in the page")                                    \
	F(M, u64, page, 6, "identifier of the page; a timeline's is page << 16 | slot") \
	F(M, u64, client, 6, "what reports call this client")                           \
	V(M, unused, 1024, 6, "empty")
#define WIRE_FIELDS_ready(F, V, M)
#define WIRE_FIELDS_done(F, V, M)
#define WIRE_FIELDS_error(F, V, M)                                       \
	F(M, error, error, 6, "why, as a number of the table of errors") \
	V(M, detail, 1024, 6, "a sentence for a person; UTF-8")
#define WIRE_FIELDS_ping(F, V, M)
#define WIRE_FIELDS_bye(F, V, M)
#define WIRE_FIELDS_pool_open(F, V, M) V(M, name, 255, 6, "the pool's name")
#define WIRE_FIELDS_pool_create(F, V, M)                                                    \
	F(M, u64, limit, 6, "bytes of all segments; 0: default")                            \
	F(M, u64, segment_size, 6, "bytes; 0: default")                                     \
	F(M, u64, alignment, 6, "bytes; 0: default")                                        \
	F(M, u64, release_threshold, 6, "bytes; 0: default, all ones: none")                \
	F(M, u32, flags, 6, "enum share_pool_flags")                                        \
	F(M, u32, reuse, 6, "enum share_reuse")                                             \
	V(M, name, 255, 6, "the pool's name")                                               \
	V(M, kind, 31, 6, "kind of memory; empty: auto")                                    \
	V(M, access, 16384, 6, "who may use it, JSON; empty: the creating user")            \
	V(M, device, 63, 6, "UUID as text, \"GPU-...\"; empty: the first that can make it") \
	F(M, u64, prefault, 8, "bytes that are made ahead; 0: none")                        \
	F(M, u32, huge_pages, 8, "enum share_huge_pages")                                   \
	F(M, u32, numa, 8, "0: any; all ones: all in turns; else the number of a node and one")
#define WIRE_FIELDS_pool(F, V, M)                                                \
	F(M, u64, pool, 6, "identifier")                                         \
	F(M, u64, limit, 6, "bytes of all segments")                             \
	F(M, u64, segment_size, 6, "bytes")                                      \
	F(M, u64, alignment, 6, "bytes")                                         \
	F(M, u32, mode, 6, "enum share_access: the most that the client may do") \
	F(M, u32, manage, 6, "1 when the client may destroy it")                 \
	F(M, u32, flags, 6, "enum share_pool_flags")                             \
	F(M, u32, reuse, 6, "enum share_reuse")                                  \
	V(M, kind, 31, 6, "kind of memory")                                      \
	V(M, device, 63, 6, "UUID as text, \"GPU-...\"; empty: the host")        \
	V(M, reason, 511, 6, "why it is of this kind")
#define WIRE_FIELDS_pool_close(F, V, M)   F(M, u64, pool, 6, "identifier")
#define WIRE_FIELDS_pool_destroy(F, V, M) V(M, name, 255, 6, "the pool's name")
#define WIRE_FIELDS_alloc(F, V, M)                                           \
	F(M, u64, pool, 6, "identifier")                                     \
	F(M, u64, size, 6, "bytes")                                          \
	F(M, u64, alignment, 6, "bytes; 0: the pool's")                      \
	F(M, u32, count, 6, "how many are wanted, if there is room; 0: one") \
	F(M, u32, flags, 6, "enum wire_alloc_flags")                         \
	F(M, u32, patience, 8,                                               \
	  "for so many ms less one it may wait for others' memory and work; 0: for 1000 ms")
#define WIRE_FIELDS_grant(F, V, M)                                                                 \
	F(M, u64, buffer, 6, "identifier")                                                         \
	F(M, u64, size, 6, "bytes asked for when it was allocated")                                \
	F(M, u64, segment, 6, "identifier of the segment it lies in")                              \
	F(M, u64, segment_size, 6, "bytes")                                                        \
	F(M, u64, offset, 6, "of the buffer in the segment, bytes")                                \
	F(M, u64, version, 6, "of the name it was looked up by, or 0")                             \
	F(M, u32, mode, 6, "enum share_access of this reference")                                  \
	F(M, u32, kind, 6, "enum memory_kind_id of the segment")                                   \
	F(M, u32, flags, 6, "enum wire_grant_flags")                                               \
	F(M, u32, reserved, 6, "0")                                                                \
	V(M, fences, 16384, 6, "struct wire_fence each: reached before the memory may be touched") \
	V(M, pages, 256, 6, "u64 each: the timeline pages whose descriptors come along")           \
	V(M, recipe, 128, 6, "struct memory_recipe of the segment, with GRANT_SEGMENT")            \
	V(M, more, 4096, 6,                                                                        \
	  "struct wire_more each: further buffers of the same size in the same "                   \
	  "segment, with nothing to wait for; one reference on each")                              \
	V(M, tensor, WIRE_TENSOR_MAX, 6, "the tensor that came with the name or the token")        \
	F(M, u64, pool, 6, "identifier of the pool that the segment is of")
#define WIRE_FIELDS_release(F, V, M)                                                        \
	F(M, u64, buffer, 6, "identifier")                                                  \
	F(M, u64, timeline, 6, "the fence behind the client's last use; 0: none is needed") \
	F(M, u64, value, 6, "of that fence")                                                \
	F(M, u32, count, 6, "references given back; 0 only adds the fence")                 \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_publish(F, V, M)                                                    \
	F(M, u64, buffer, 6, "identifier")                                              \
	F(M, u64, timeline, 6, "the fence that readers wait for; 0: none is needed")    \
	F(M, u64, value, 6, "of that fence")                                            \
	F(M, u64, expected, 6, "replace only this version; 0: any")                     \
	F(M, u32, flags, 6, "enum share_publish_flags")                                 \
	F(M, u32, mode, 6, "enum share_access for those who look it up; 0: SHARE_RDWR") \
	F(M, u64, size, 6,                                                              \
	  "bytes in use, if the client may write or is the only holder; 0: no change")  \
	V(M, name, 255, 6, "the name")                                                  \
	V(M, tensor, WIRE_TENSOR_MAX, 6,                                                \
	  "for those who look it up, by share_tensor_encode(); empty: none")
#define WIRE_FIELDS_published(F, V, M) F(M, u64, version, 6, "of the name")
#define WIRE_FIELDS_unpublish(F, V, M) V(M, name, 255, 6, "the name")
#define WIRE_FIELDS_lookup(F, V, M)                                                              \
	F(M, u32, mode, 6, "enum share_access")                                                  \
	F(M, i32, timeout, 6, "milliseconds to wait for the name; 0: do not, -1: without limit") \
	V(M, name, 255, 6, "the name")
#define WIRE_FIELDS_cancel(F, V, M)   F(M, u32, lookup, 6, "the serial of what waits")
#define WIRE_FIELDS_watch(F, V, M)    V(M, prefix, 255, 6, "of the names; empty: all")
#define WIRE_FIELDS_watching(F, V, M) F(M, u64, watch, 6, "identifier")
#define WIRE_FIELDS_unwatch(F, V, M)  F(M, u64, watch, 6, "identifier")
#define WIRE_FIELDS_name_event(F, V, M)                        \
	F(M, u64, watch, 6, "identifier")                      \
	F(M, u64, version, 6, "of the name")                   \
	F(M, u64, buffer, 6, "identifier, 0 when unpublished") \
	F(M, u32, change, 6, "enum share_change")              \
	F(M, u32, reserved, 6, "0")                            \
	V(M, name, 255, 6, "the name; empty with SHARE_OVERFLOW")
#define WIRE_FIELDS_export(F, V, M)                                                    \
	F(M, u64, buffer, 6, "identifier")                                             \
	F(M, u64, timeline, 6, "the fence that importers wait for; 0: none is needed") \
	F(M, u64, value, 6, "of that fence")                                           \
	F(M, u32, mode, 6, "enum share_access for importers")                          \
	F(M, u32, uses, 6, "imports until it ends; 0: one, all ones: no limit")        \
	F(M, u32, timeout, 6, "milliseconds until it ends; 0: no limit")               \
	F(M, u32, reserved, 6, "0")                                                    \
	F(M, u64, size, 6,                                                             \
	  "bytes in use, if the client may write or is the only holder; 0: no change") \
	V(M, tensor, WIRE_TENSOR_MAX, 6, "for importers, as that of PUBLISH")
#define WIRE_FIELDS_token(F, V, M) V(M, token, 32, 6, "32 bytes")
#define WIRE_FIELDS_import(F, V, M)                                       \
	F(M, u32, mode, 6, "enum share_access; 0: what the token allows") \
	F(M, u32, reserved, 6, "0")                                       \
	V(M, token, 32, 6, "32 bytes")
#define WIRE_FIELDS_revoke(F, V, M) V(M, token, 32, 6, "32 bytes")
#define WIRE_FIELDS_metadata_set(F, V, M)  \
	F(M, u64, buffer, 6, "identifier") \
	V(M, json, 65536, 6, "a JSON object or array; empty: none")
#define WIRE_FIELDS_metadata_get(F, V, M) F(M, u64, buffer, 6, "identifier")
#define WIRE_FIELDS_metadata(F, V, M)     V(M, json, 65536, 6, "as it was set; empty: none")
#define WIRE_FIELDS_query(F, V, M)                                                  \
	V(M, what, 31, 6, "name of the report, as for share_inspect()")             \
	V(M, prefix, 255, 6, "of the report on names: only names with this prefix") \
	V(M, cursor, 511, 6, "empty: the first page; else the cursor of the last REPORT")
#define WIRE_FIELDS_report(F, V, M)                                              \
	V(M, cursor, 511, 6, "where the next page starts; empty: there is none") \
	V(M, rows, 65536, 6, "JSON objects, each followed by a line feed")
#define WIRE_FIELDS_timeline(F, V, M)        F(M, u64, page, 6, "identifier of the page")
#define WIRE_FIELDS_timeline_page(F, V, M)   F(M, u64, page, 6, "identifier of the page")
#define WIRE_FIELDS_segment_retire(F, V, M)  F(M, u64, segment, 6, "identifier")
#define WIRE_FIELDS_segment_retired(F, V, M) F(M, u64, segment, 6, "identifier")
#define WIRE_FIELDS_recipe_get(F, V, M)      F(M, u64, buffer, 6, "identifier")
#define WIRE_FIELDS_recipe(F, V, M)                                           \
	F(M, u64, offset, 6, "of the buffer in the segment, bytes")           \
	F(M, u32, kind, 6, "enum memory_kind_id")                             \
	F(M, u32, mode, 6, "enum share_access: what the client holds it for") \
	V(M, recipe, 128, 6, "struct memory_recipe of the segment")
#define WIRE_FIELDS_event_create(F, V, M)                                           \
	F(M, u32, reserved, 6, "0")                                                 \
	F(M, u32, reserved2, 6, "0")                                                \
	V(M, device, 63, 6, "UUID as text, \"GPU-...\"; empty: the first there is") \
	V(M, name, 255, 6, "by which others of this user may open it; empty: none")
#define WIRE_FIELDS_event_open(F, V, M)                         \
	V(M, name, 255, 6, "the event's name; empty: by token") \
	V(M, token, 32, 6, "32 bytes, or empty")
#define WIRE_FIELDS_event(F, V, M)                        \
	F(M, u64, event, 6, "identifier")                 \
	V(M, device, 63, 6, "UUID as text, \"GPU-...\"")  \
	V(M, handle, 64, 6, "CUipcEventHandle, 64 bytes") \
	V(M, token, 32, 6, "32 bytes: the right to open the event")
#define WIRE_FIELDS_event_release(F, V, M) F(M, u64, event, 6, "identifier")
#define WIRE_FIELDS_trim(F, V, M)                         \
	F(M, u64, pool, 6, "identifier; 0: of all pools") \
	F(M, u32, flags, 6, "enum wire_trim_flags")       \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_trimmed(F, V, M) \
	F(M, u64, asked, 6, "how often it was asked: slots[0].last of its timeline page")
#define WIRE_FIELDS_channel_open(F, V, M)                                                   \
	F(M, u32, role, 6, "enum share_role")                                               \
	F(M, u32, flags, 6, "enum share_channel_flags")                                     \
	F(M, u32, mode, 6,                                                                  \
	  "enum channel_mode; 0: the default, as with all that follow, or "                 \
	  "what the channel has")                                                           \
	F(M, u32, when_full, 6, "enum share_when_full")                                     \
	F(M, u32, depth, 6, "entries of a lane")                                            \
	F(M, u32, in_flight, 6, "tickets of a producer")                                    \
	F(M, u32, data_max, 6, "bytes with a message; above 256, a consumer says it too")   \
	F(M, u32, producers, 6, "at a time")                                                \
	F(M, u32, consumers, 6, "at a time")                                                \
	F(M, u32, deliveries, 6, "of a message, until it is set aside")                     \
	V(M, name, 255, 6, "of the channel")                                                \
	V(M, pool, 255, 6, "name of the pool; empty: what the channel has, or \"default\"") \
	F(M, u32, history, 6, "messages of a producer for consumers to come")               \
	F(M, u32, reserved, 6, "0")                                                         \
	F(M, u32, buffers, 8, "of a message, at most")
#define WIRE_FIELDS_channel(F, V, M)                                        \
	F(M, u64, member, 6, "identifier of the membership")                \
	F(M, u64, pool, 6, "identifier of the channel's pool")              \
	F(M, u32, slot, 6, "of a consumer; 0")                              \
	F(M, u32, layout, 6, "enum channel_layout")                         \
	V(M, shape, 36, 6, "struct channel_shape, but for its last member") \
	F(M, u32, buffers, 8, "that last member")
#define WIRE_FIELDS_channel_ready(F, V, M) F(M, u64, member, 6, "identifier of the membership")
#define WIRE_FIELDS_channel_sync(F, V, M)                    \
	F(M, u64, member, 6, "identifier of the membership") \
	F(M, u32, flags, 6, "enum wire_channel_sync_flags")  \
	F(M, u32, had, 6, "of a consumer: orphans that it was given and knows of")
#define WIRE_FIELDS_channel_members(F, V, M)                                                  \
	F(M, u32, epoch, 6, "of the control page: what this answers")                         \
	F(M, u32, more, 6, "1: further members or segments did not fit: ask again")           \
	V(M, members, 4096, 6,                                                                \
	  "struct wire_member each: all of the other role, but for those "                    \
	  "that did not fit")                                                                 \
	F(M, u64, member, 6, "unasked: of the client's, to which it is said; else 0")         \
	F(M, u32, expelled, 6, "1: the client's, a consumer, gets no more messages")          \
	F(M, u32, waiting, 6, "messages of producers that are gone that wait for a consumer") \
	F(M, u32, others, 8,                                                                  \
	  "those that others have, and may give back; and producers that are there")          \
	F(M, u32, given, 8, "1: the client's is given one of them, as follows")               \
	F(M, u64, producer, 8, "identifier of its producer")                                  \
	F(M, u32, ticket, 8, "by which its copy is found in the producer's ring")             \
	F(M, u32, version, 8, "of the ticket")                                                \
	F(M, u32, deliveries, 8, "of it, with this one")                                      \
	F(M, u32, reached, 8, "1: the fence in the copy is reached")                          \
	F(M, u64, lost, 8, "messages of producers that are gone that are lost, in all")
#define WIRE_FIELDS_channel_close(F, V, M) F(M, u64, member, 6, "identifier of the membership")
#define WIRE_FIELDS_channel_drained(F, V, M)                          \
	F(M, u64, member, 6, "identifier of the client's membership") \
	F(M, u64, producer, 6, "identifier of the producer's")
#define WIRE_FIELDS_channel_abandon(F, V, M)                            \
	F(M, u64, member, 6, "identifier of the producer's membership") \
	F(M, u64, consumer, 6, "identifier of the consumer's")          \
	V(M, tickets, 1024, 6, "bit by ticket: those of messages that the consumer may still use")
#define WIRE_FIELDS_channel_segment(F, V, M)                          \
	F(M, u64, member, 6, "identifier of the client's membership") \
	F(M, u64, segment, 6, "identifier")
#define WIRE_FIELDS_channel_retain(F, V, M)                           \
	F(M, u64, member, 6, "identifier of the client's membership") \
	F(M, u64, producer, 6, "identifier of the producer's")        \
	F(M, u64, buffer, 6, "identifier")                            \
	F(M, u64, size, 6, "bytes, as the message says")
#define WIRE_FIELDS_channel_metadata(F, V, M)                         \
	F(M, u64, member, 7, "identifier of the client's membership") \
	F(M, u64, producer, 7, "identifier of the producer's")        \
	F(M, u64, buffer, 7, "identifier")
#define WIRE_FIELDS_channel_stalled(F, V, M) F(M, u64, member, 8, "identifier of the membership")
#define WIRE_FIELDS_adopt(F, V, M)                                                             \
	F(M, u64, pool, 8, "identifier")                                                       \
	F(M, u64, size, 8, "bytes")                                                            \
	F(M, u64, offset, 8,                                                                   \
	  "where they begin in the file, any byte; or in the allocation, a multiple of 512")   \
	F(M, u32, kind, 8, "enum memory_kind_id of a device's memory: vmm, legacy; 0: a file") \
	F(M, u32, reserved, 8, "0")                                                            \
	V(M, recipe, 128, 8, "struct memory_recipe of the allocation, without identity; else empty")
#define WIRE_FIELDS_pool_segments(F, V, M)                                           \
	F(M, u64, pool, 8, "identifier")                                             \
	F(M, u32, mode, 8, "enum share_access: what the segments are to be had for") \
	F(M, u32, reserved, 8, "0")
#define WIRE_FIELDS_reload(F, V, M)
#define WIRE_FIELDS_upgrade(F, V, M)
#define WIRE_FIELDS_drop(F, V, M)                                          \
	F(M, u32, what, 6, "enum wire_dropped")                            \
	F(M, u32, reserved, 6, "0")                                        \
	F(M, u64, id, 6, "identifier, as reports have it; 0 for messages") \
	V(M, channel, 255, 8, "for messages: the channel's name; else empty")
#define WIRE_FIELDS_reclaim(F, V, M)                                                              \
	F(M, u64, buffer, 6, "identifier")                                                        \
	F(M, i32, timeout, 6, "milliseconds to wait; 0: do not (SHARE_EBUSY), -1: without limit") \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_monitor(F, V, M)                                                \
	F(M, i32, timeout, 6, "milliseconds to wait; 0: do not, -1: without limit") \
	F(M, u32, flags, 6, "enum share_monitor_flags")                             \
	F(M, u32, uid, 6, "of whose doing is told, with SHARE_MONITOR_USER")        \
	F(M, u32, reserved, 6, "0")                                                 \
	V(M, pool, 255, 6, "the pool in which that happens; empty: any, or none")   \
	V(M, prefix, 255, 6, "of the names and channels that it happens to; empty: all of it")
#define WIRE_FIELDS_ending(F, V, M)                                                                \
	F(M, u32, within, 6, "milliseconds, after which the broker ends whoever still holds what") \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_agent_device_get(F, V, M)
#define WIRE_FIELDS_agent_device(F, V, M)                                                        \
	F(M, u64, total, 6, "bytes of memory")                                                   \
	F(M, u64, free, 6, "bytes of memory now; all ones: unknown")                             \
	F(M, u64, granularity, 6, "bytes: sizes of vmm segments are multiples of it; 0: no vmm") \
	F(M, u32, ordinal, 6, "among the devices this broker sees")                              \
	F(M, u32, driver, 6, "CUDA version of the driver: 1000 * major + 10 * minor")            \
	F(M, u32, compute, 6, "compute capability: 10 * major + minor")                          \
	F(M, u32, flags, 6, "enum wire_device_flags")                                            \
	V(M, uuid, 16, 6, "16 bytes")                                                            \
	V(M, uuid_text, 63, 6, "\"GPU-...\" or \"MIG-...\"")                                     \
	V(M, name, 255, 6, "marketing name")                                                     \
	V(M, pci, 31, 6, "bus address, \"0000:04:00.0\"")
#define WIRE_FIELDS_agent_done(F, V, M)
#define WIRE_FIELDS_agent_failed(F, V, M)                                \
	F(M, error, error, 6, "why, as a number of the table of errors") \
	F(M, u32, fatal, 6, "1: the agent cannot go on, and ends")       \
	V(M, text, 1023, 6, "what failed, with the driver's name for it, and what to do")
#define WIRE_FIELDS_agent_segment_create(F, V, M)                               \
	F(M, u64, size, 6, "bytes, a multiple of the granularity")              \
	F(M, u64, address, 6, "where every process has to map it; 0: anywhere") \
	F(M, u32, kind, 6, "enum memory_kind_id")                               \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_agent_segment(F, V, M)                                          \
	F(M, u64, handle, 6, "what this agent calls it; 0: it keeps nothing of it") \
	V(M, recipe, 128, 6, "struct memory_recipe")
#define WIRE_FIELDS_agent_segment_destroy(F, V, M) F(M, u64, handle, 6, "of AGENT_SEGMENT")
#define WIRE_FIELDS_agent_event_create(F, V, M)
#define WIRE_FIELDS_agent_event(F, V, M)                 \
	F(M, u64, handle, 6, "what this agent calls it") \
	V(M, ipc, 64, 6, "CUipcEventHandle, 64 bytes")
#define WIRE_FIELDS_agent_event_destroy(F, V, M)                                                  \
	F(M, u64, handle, 6, "of AGENT_EVENT")                                                    \
	F(M, u32, wedged, 6, "1: a process died with it; the driver is not to be asked about it") \
	F(M, u32, reserved, 6, "0")
#define WIRE_FIELDS_agent_scrub(F, V, M)                                                     \
	F(M, u64, handle, 6, "of AGENT_SEGMENT, if this agent made it; 0: it keeps nothing") \
	F(M, u64, offset, 6, "in the segment, bytes")                                        \
	F(M, u64, size, 6, "bytes; all of them are zero when it is done")                    \
	F(M, u32, kind, 6, "enum memory_kind_id")                                            \
	F(M, u32, reserved, 6, "0")                                                          \
	V(M, recipe, 128, 6, "struct memory_recipe of the segment")
#define WIRE_FIELDS_agent_known(F, V, M)                                                 \
	F(M, u32, what, 6, "enum wire_known")                                            \
	F(M, u32, more, 6, "1: this is not all of them, and the rest follows in others") \
	V(M, handles, 32768, 6, "u64 each, of AGENT_SEGMENT or AGENT_EVENT")

#endif
