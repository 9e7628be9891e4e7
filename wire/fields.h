/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What is in each of the messages of wire/messages.h.
 *
 * WIRE_FIELDS_name: F(M, type, name, since, text) a fixed little-endian field, in wire order
 *                   V(M, name, max, since, text) bytes of variable size: the fixed part carries
 *                                              their u32 size, the bytes follow it in order
 *
 * The order of fields never changes; a new field is added last and raises `since`. A receiver takes
 * a field that an older sender left out as zero, and ignores one that a newer sender added.
 */

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
