/* SPDX-License-Identifier: MIT */

/*
 * share-protocol-doc prints docs/protocol.md. Messages, fields and numbers come from the headers
 * that the programs are made of, so the document cannot say something else than the code; a test
 * compares the two. Only what no table knows, the rules around the messages, is prose here.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/share.h>

#include "docs/protocol_doc.h"
#include "memory/kind.h"
#include "pages/timeline.h"
#include "wire/wire.h"

/* On the wire; what they mean is said in <share/error.h>. */
#define ERROR_TEXT(name, n, text) static const char text_of_##name[] = text;
SHARE_ERRORS(ERROR_TEXT)
#define ERROR_NUMBER(name, n) {#name, n, text_of_##name},

static const struct number errors[] = {WIRE_ERRORS(ERROR_NUMBER)};
static const struct number modes[] = {
    NUMBER(SHARE_RDONLY, "read"),
    NUMBER(SHARE_RDWR, "read and write"),
};
static const struct number pool_flags[] = {
    NUMBER(SHARE_POOL_PERSISTENT, "the pool stays when nobody has it open and no buffer lives"),
    NUMBER(SHARE_POOL_SAME_ADDRESS, "its memory lies at the same address in every process"),
    NUMBER(SHARE_POOL_OPEN_OR_CREATE, "open the pool that is there, if it is what is asked for"),
};
static const struct number monitor_flags[] = {
    NUMBER(SHARE_MONITOR_USER, "only what the user `uid` does"),
};
static const struct number publish_flags[] = {
    NUMBER(SHARE_PUBLISH_PERSISTENT, "the name outlives its publisher, until unpublished"),
    NUMBER(SHARE_PUBLISH_EXCLUSIVE, "fail with SHARE_EEXIST rather than replace"),
};
static const struct number changes[] = {
    NUMBER(SHARE_PUBLISHED, "a name is new"),
    NUMBER(SHARE_REPLACED, "it leads to another buffer"),
    NUMBER(SHARE_UNPUBLISHED, "it is gone"),
    NUMBER(SHARE_OVERFLOW, "changes were lost because the client did not keep up"),
};
#define KIND_NUMBER(NAME, name, id, where, flags, granularity, segment_max, ability, text) \
	{"MEMORY_" #NAME, id, "`" #name "`: " text},
static const struct number kinds[] = {MEMORY_KINDS(KIND_NUMBER)};
static const struct number reuses[] = {
    NUMBER(SHARE_REUSE_GATE, "with the fences of the work that still runs on it"),
    NUMBER(SHARE_REUSE_CLEAN, "when that work is done"),
    NUMBER(SHARE_REUSE_SCRUB, "the same, and what another user left is zeroed"),
};
static const struct number huge_pages[] = {
    NUMBER(SHARE_HUGE_PAGES_SYSTEM, "as the kernel does it for all shared memory"),
    NUMBER(SHARE_HUGE_PAGES_ADVISE, "where the kernel lets shared memory ask for them"),
    NUMBER(SHARE_HUGE_PAGES_REQUIRE, "of those that are set aside, or none"),
};
static const struct number roles[] = {
    NUMBER(SHARE_PRODUCER, "sends"),
    NUMBER(SHARE_CONSUMER, "receives"),
};
static const struct number when_full[] = {
    NUMBER(SHARE_FULL_BLOCK, "the sender waits"),
    NUMBER(SHARE_FULL_FAIL, "it is told so"),
    NUMBER(SHARE_FULL_DROP, "the oldest message that was not received goes"),
};
static const struct number channel_flags[] = {
    NUMBER(SHARE_CHANNEL_WRITABLE, "a consumer that writes, too"),
    NUMBER(SHARE_CHANNEL_EXISTING, "fail with SHARE_ENOENT rather than make the channel"),
    NUMBER(SHARE_CHANNEL_TRANSIENT, "a producer whose messages do not outlive it"),
    NUMBER(SHARE_CHANNEL_LATEST, "a consumer, that becomes a WIRE_MEMBER_LATEST"),
    NUMBER(WIRE_CHANNEL_OLDEST, "a consumer, that becomes a WIRE_MEMBER_OLDEST"),
    NUMBER(WIRE_CHANNEL_SERVICE, "one of the two channels of a service, or SHARE_EEXIST"),
};
static const struct number sync_flags[] = {
    NUMBER(WIRE_CHANNEL_SYNC_AFRESH, "what it was told before is lost: all others are new"),
    NUMBER(WIRE_CHANNEL_SYNC_FETCH, "a consumer that has nothing else to receive"),
};
static const struct number hello_flags[] = {
    NUMBER(WIRE_HELLO_OPERATOR, "an administrator's look at what there is, or end of it"),
};
static const struct number alloc_flags[] = {
    NUMBER(WIRE_ALLOC_KEEPS, "the client keeps blocks of this pool, and gives them back on TRIM"),
};
static const struct number trim_flags[] = {
    NUMBER(WIRE_TRIM_ENDED, "the pool was destroyed: keep nothing of it any more"),
};
static const struct number dropped[] = {
    NUMBER(WIRE_DROP_CLIENT, "a connection"),
    NUMBER(WIRE_DROP_TOKEN, "a token"),
    NUMBER(WIRE_DROP_MESSAGES, "messages of a channel"),
};
#define ABILITY_NUMBER(NAME, name, id, where, flags, granularity, segment_max, ability, text) \
	MEMORY_ON_##where({"MEMORY_" #NAME, ability, "can make " #name " segments"}, )
static const struct number device_flags[] = {
    MEMORY_KINDS(ABILITY_NUMBER) NUMBER(WIRE_DEVICE_EVENTS, "can make interprocess events"),
    NUMBER(WIRE_DEVICE_STREAM_MEM_OPS, "64-bit stream memory operations"),
    NUMBER(WIRE_DEVICE_MIG, "is a MIG instance"),
    NUMBER(WIRE_DEVICE_MIG_ENABLED, "is split into MIG instances"),
    NUMBER(WIRE_DEVICE_MPS, "an MPS control daemon is running"),
};
static const struct number known[] = {
    NUMBER(WIRE_KNOWN_SEGMENTS, "segments"),
    NUMBER(WIRE_KNOWN_EVENTS, "events"),
};
static const struct number grant_flags[] = {
    NUMBER(WIRE_GRANT_SEGMENT, "the segment's descriptor comes along, as the first one"),
};

/* "A, B and C": the messages that have @flag. */
static void print_flagged(FILE *out, unsigned flag)
{
	const struct wire_description *d;
	unsigned left = 0;

	for (unsigned type = 0; type < WIRE_TYPE_COUNT; type++)
		left += (d = wire_describe(type)) && d->flags & flag;
	for (unsigned type = 0; type < WIRE_TYPE_COUNT; type++)
		if ((d = wire_describe(type)) && d->flags & flag)
			fprintf(out, "%s%s", d->name,
				--left == 0 ? ""
				: left == 1 ? " and "
					    : ", ");
}

static void print_packet_numbers(FILE *out)
{
	fputs(
	    "From WELCOME on each packet to a client ends with its number: a u64 behind the bytes "
	    "of the message. Only ERROR with serial 0 has none, as nothing comes after it. "
	    "The numbers of a connection grow, with gaps. A "
	    "broker that goes on for one that died sends again what a client may not have "
	    "received, with the numbers of the first time. So a client throws away a packet, and "
	    "closes its descriptors, if its number is not greater than that of the packet before, "
	    "and looks at nothing else of it.\n\n",
	    out);
}

static void print_introduction(FILE *out)
{
	fprintf(
	    out,
	    "<!-- Made by share-protocol-doc from wire/messages.h: build the target protocol-doc "
	    "instead of editing. -->\n\n"
	    "# Protocol\n\n"
	    "What libshare and the broker say to each other, version %d. Programs use libshare; "
	    "this is for whoever writes another client, or looks at what goes over the socket.\n\n"
	    "## Packets\n\n"
	    "The broker listens on a Unix socket of type `SOCK_SEQPACKET`. One packet is one "
	    "message together with its descriptors (ancillary data). A packet has at most %d bytes "
	    "and %d descriptors. Descriptors go to clients only: since Linux 6.16 who sends one to "
	    "the broker gets EPERM, and on older kernels loses its connection.\n\n"
	    "All numbers are little-endian. Nothing is aligned or padded. A packet is, in this "
	    "order:\n\n"
	    "| offset | type | |\n"
	    "| ---: | --- | --- |\n"
	    "| 0 | u16 | type: the number of the message |\n"
	    "| 2 | u16 | size of the fixed part, in bytes |\n"
	    "| 4 | u32 | serial |\n"
	    "| %d | | the fixed part: the message's fields, one after the other |\n"
	    "| %d + size | | the bytes of its variable fields, one after the other |\n\n"
	    "A variable field (type *bytes* in the tables) has its size in the fixed part, as a "
	    "u32, and its bytes behind the fixed part, in the order of the fields. Text is UTF-8 "
	    "and has no NUL at its end.\n\n",
	    WIRE_VERSION, WIRE_PACKET_MAX, WIRE_FDS_MAX, WIRE_HEADER_SIZE, WIRE_HEADER_SIZE);
	print_packet_numbers(out);
	fputs(
	    "## Requests and replies\n\n"
	    "Each message goes in one direction. Those to the broker are requests, and each names "
	    "what answers it. The client chooses the serial of a request, any number but 0, and "
	    "the reply carries it. Requests are handled in the order in which they were sent, and "
	    "answered in that order, except that other replies may overtake those of requests that "
	    "wait for what other clients do (",
	    out);
	print_flagged(out, WIRE_WAITS_FOR_OTHERS);
	fputs(
	    "), and of those that wait for an agent (opening and creating pools, ALLOC, "
	    "EVENT_CREATE, the report on devices). What the broker sends unasked (",
	    out);
	print_flagged(out, WIRE_UNASKED);
	fputs(
	    ") has serial 0.\n\n"
	    "Where the reply is *nothing*, there is none. ",
	    out);
	print_flagged(out, WIRE_SERIAL_OPTIONAL);
	fputs(
	    " may have the serial 0, and are then not answered either.\n\n"
	    "Instead of its reply a request may get ERROR, with its serial: it failed and changed "
	    "nothing. ERROR with serial 0 means that the connection ends now. That is what comes "
	    "of a message that is unknown, not expected now, cut off, larger than it may be, or "
	    "that has the wrong number of descriptors; of a missing serial; of a RELEASE without "
	    "serial that fails; and of not reading what the broker sends. Descriptors that a "
	    "client has not received count for its user; with some hundred of them (an eighth of "
	    "the broker's limit, 65 at least) answers that bring more wait until it has.\n\n"
	    "The broker and its agents speak the same way over a socket pair: the broker asks, one "
	    "request at a time, and an agent answers with the reply or with AGENT_FAILED.\n\n"
	    "When a connection ends, what its process holds stays until the process is dead, "
	    "unless it said BYE.\n\n"
	    "## Handshake\n\n"
	    "```\n"
	    "client                          broker\n"
	    "HELLO    versions            ->\n"
	    "                             <- WELCOME  version, descriptor of a page\n"
	    "maps the page for writing\n"
	    "READY                        ->\n"
	    "                                seals the page: nobody else can ever write it\n"
	    "                             <- DONE\n"
	    "```\n\n"
	    "Before WELCOME the broker understands HELLO only, before DONE READY only, and it does "
	    "not wait long for either. A connection that is hung up before DONE, without ERROR, is "
	    "tried "
	    "again: a broker that goes on for one that died knows none that had not come so "
	    "far.\n\n",
	    out);
	fprintf(
	    out,
	    "## Versions\n\n"
	    "This is version %d; the oldest one still spoken is %d. HELLO names the newest and "
	    "the oldest version the client speaks. WELCOME names the one that is spoken from then "
	    "on: the newest that both know. If there is none, the answer is ERROR with "
	    "SHARE_EPROTO, and the connection ends.\n\n"
	    "Numbers of messages and the order of fields never change. A later version adds "
	    "fields at the end of the fixed part, and messages. So whoever reads\n\n"
	    "- takes a field as 0 or empty if the fixed part ends before it, or within it;\n"
	    "- skips what a fixed part has beyond the fields it knows, by the size in the "
	    "header;\n"
	    "- ignores bytes behind the last variable field it knows;\n"
	    "- refuses a fixed part that lacks fields of the oldest version.\n\n"
	    "A message is sent only if it is of the version spoken, or older: an unknown one ends "
	    "the connection.\n\n",
	    WIRE_VERSION, WIRE_VERSION_OLDEST);
}

static void print_timelines(FILE *out)
{
	fprintf(
	    out,
	    "## Timelines\n\n"
	    "A timeline is a 64-bit counter that only one process writes. A fence is a timeline "
	    "and a value: it is reached once the counter is at the value or past it, which is "
	    "`(int64)(counter - value) >= 0`, and is how GPUs compare, too. Each client has a "
	    "page of them, a memfd of %d bytes, that it alone can write. Others get it with "
	    "TIMELINE_PAGE or GRANT and map it read-only.\n\n"
	    "The page is an array of %d slots of %zu bytes, without a header:\n\n"
	    "| offset | type | name | meaning |\n"
	    "| ---: | --- | --- | --- |\n"
	    "| %zu | u64 | `value` | the counter; written by the owner, and by the broker when "
	    "the owner is dead |\n"
	    "| %zu | u64 | `last` | the counter when the owner was found dead; written by the "
	    "broker, before `value` |\n"
	    "| %zu | u64 | `by_gpu` | 1: a GPU writes the counter, and wakes nobody up; written by "
	    "the owner |\n"
	    "| %zu | u64 | `parked_for` | for people, in the first %d slots: a timeline that a "
	    "stream of the owner waits for; 0: none |\n"
	    "| %zu | u64 | `parked_until` | and the value that it waits for |\n"
	    "| %zu | | | zero |\n\n"
	    "Slot 0 is no timeline; its `last` counts the TRIMs that the broker has sent the "
	    "owner. A timeline is called `page << 16 | slot`, so 0 is none: a fence "
	    "on it is reached.\n\n"
	    "Values in use are below 2^62. When the owner is dead, the broker keeps each counter "
	    "in `last` and poisons it: the low half grows by 2^31, the high half becomes that of "
	    "%#" PRIx64
	    ". From there on every value is poison, and past all in use: whoever "
	    "waits goes on. A fence on a poisoned timeline was reached if `last` is at its "
	    "value or past it. If not, it never will be, and the data behind it means nothing.\n\n"
	    "To signal is to store the value with release order, and to wake the futex at the low "
	    "half of `value` (of no private kind, for all waiters).\n\n"
	    "A list of fences is an array of `struct wire_fence` (see Structures).\n\n"
	    "One GRANT has at most %d fences and brings at most %d pages. The page of any other "
	    "fence in it the client asks for with TIMELINE, unless it has it already. It may ask "
	    "for pages of its own user, those it has been told of, and those of clients that have "
	    "a pool open which it has open itself; administrators for all (else SHARE_ESTALE, as "
	    "for a page that never was).\n\n",
	    TIMELINE_PAGE_SIZE, TIMELINE_SLOTS, sizeof(struct timeline_slot),
	    offsetof(struct timeline_slot, value), offsetof(struct timeline_slot, last),
	    offsetof(struct timeline_slot, by_gpu), offsetof(struct timeline_slot, parked_for),
	    TIMELINE_PARKED_MAX, offsetof(struct timeline_slot, parked_until),
	    offsetof(struct timeline_slot, reserved), TIMELINE_POISON, WIRE_FENCES_MAX,
	    WIRE_PAGES_MAX);
	_Static_assert(TIMELINE_POISON == UINT64_C(1) << 62, "the text says 2^62");
	fputs(
	    "## Doorbells\n\n"
	    "A member of a channel that waits for a descriptor rather than a futex has its "
	    "doorbell "
	    "rung. That is an eventfd (EFD_SEMAPHORE), which all who may ring it share, with "
	    "a count so large that it is never used up. Ring it by reading its 8 bytes: that does "
	    "not wait, whoever else has done what with it. Watch one's own by epoll, with EPOLLIN, "
	    "EPOLLOUT and EPOLLET: each ring is a change, however many at once are one event, and "
	    "nothing is to be read. How full it is says nothing.\n\n",
	    out);
}

/* Text in a cell of a table. */
static void print_cell(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			putc('\\', out);
		putc(*text, out);
	}
}

static const char *direction_name(const struct wire_description *d)
{
	static const char *const names[] = {
	    [WIRE_TO_BROKER] = "client to broker",
	    [WIRE_TO_CLIENT] = "broker to client",
	    [WIRE_TO_AGENT] = "broker to agent",
	    [WIRE_FROM_AGENT] = "agent to broker",
	};

	return names[d->direction];
}

static bool is_request(const struct wire_description *d)
{
	return d->direction == WIRE_TO_BROKER || d->direction == WIRE_TO_AGENT;
}

static const char *reply_name(const struct wire_description *d)
{
	return d->reply == WIRE_NOTHING ? "nothing" : wire_describe(d->reply)->name;
}

/* What the flags of a message say of it, as sentences behind its other properties. */
static void print_flags(FILE *out, const struct wire_description *d)
{
	static const struct {
		unsigned flag;
		const char *text;
	} texts[] = {
	    {WIRE_FIRST, "The first message of a connection, and only that."},
	    {WIRE_SECOND, "Understood only behind the answer to the first message."},
	    {WIRE_SERIAL_OPTIONAL, "With the serial 0 it is not answered."},
	    {WIRE_WAITS_FOR_OTHERS, "Its reply may wait for what other clients do."},
	    {WIRE_UNASKED, "Comes unasked as well, with the serial 0."},
	    {WIRE_REPEATABLE, "Asked of a second agent when the first one died of it."},
	    {WIRE_OF_ONE_PROCESS, "Not asked of an agent that was started since."},
	    {WIRE_BEGINS, "Refused (SHARE_EDISCONNECTED) once the broker has said ENDING."},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (d->flags & texts[i].flag)
			fprintf(out, " %s", texts[i].text);
}

static void print_overview(FILE *out)
{
	fputs(
	    "## Messages\n\n"
	    "| type | name | direction | reply |\n"
	    "| ---: | --- | --- | --- |\n",
	    out);
	for (unsigned type = 0; type < WIRE_TYPE_COUNT; type++) {
		const struct wire_description *d = wire_describe(type);

		if (d)
			fprintf(out, "| %u | %s | %s | %s |\n", type, d->name, direction_name(d),
				is_request(d) ? reply_name(d) : "");
	}
	putc('\n', out);
}

static void print_fields(FILE *out, const struct wire_description *d)
{
	size_t offset = WIRE_HEADER_SIZE;

	fputs(
	    "| offset | type | name | meaning | since |\n"
	    "| ---: | --- | --- | --- | ---: |\n",
	    out);
	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];

		fprintf(out, "| %zu | %s", offset, f->is_error ? "i32" : f->type);
		if (f->max)
			fprintf(out, ", at most %" PRIu32, f->max);
		fprintf(out, " | `%s` | ", f->name);
		print_cell(out, f->text);
		fprintf(out, " | %u |\n", f->since);
		offset += f->size;
	}
	putc('\n', out);
}

static void print_message(FILE *out, unsigned type, const struct wire_description *d)
{
	fprintf(out, "### %s\n\n%s\n\n", d->name, d->text);
	fprintf(out, "Type %u, %s, since version %u. Descriptors: ", type, direction_name(d),
		d->since);
	if (d->fds_max == 0)
		fputs("none", out);
	else if (d->fds_min == d->fds_max)
		fprintf(out, "%u", d->fds_min);
	else
		fprintf(out, "%u to %u", d->fds_min, d->fds_max);
	if (is_request(d))
		fprintf(out, ". Reply: %s", reply_name(d));
	fputs(d->n_fields ? "." : ". No fields.", out);
	print_flags(out, d);
	fputs("\n\n", out);
	if (d->n_fields)
		print_fields(out, d);
}

void print_numbers(FILE *out, const char *heading, const struct number *numbers, size_t n)
{
	fprintf(out, "### %s\n\n| number | name | meaning |\n| ---: | --- | --- |\n", heading);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "| %" PRId64 " | `%s` | ", numbers[i].value, numbers[i].name);
		print_cell(out, numbers[i].text);
		fputs(" |\n", out);
	}
	putc('\n', out);
}

static void print_document(FILE *out)
{
	print_introduction(out);
	print_timelines(out);
	print_overview(out);
	for (unsigned type = 0; type < WIRE_TYPE_COUNT; type++)
		if (wire_describe(type))
			print_message(out, type, wire_describe(type));
	fputs(
	    "## Numbers\n\n"
	    "Flags are added up. New numbers may come with any version; none changes its "
	    "meaning.\n\n",
	    out);
	print_numbers(out, "Errors", errors, LENGTH(errors));
	print_numbers(out, "enum share_access", modes, LENGTH(modes));
	print_numbers(out, "enum share_pool_flags", pool_flags, LENGTH(pool_flags));
	print_numbers(out, "enum share_publish_flags", publish_flags, LENGTH(publish_flags));
	print_numbers(out, "enum share_monitor_flags", monitor_flags, LENGTH(monitor_flags));
	print_numbers(out, "enum share_change", changes, LENGTH(changes));
	print_numbers(out, "enum memory_kind_id", kinds, LENGTH(kinds));
	print_numbers(out, "enum wire_grant_flags", grant_flags, LENGTH(grant_flags));
	print_numbers(out, "enum wire_hello_flags", hello_flags, LENGTH(hello_flags));
	print_numbers(out, "enum wire_alloc_flags", alloc_flags, LENGTH(alloc_flags));
	print_numbers(out, "enum wire_trim_flags", trim_flags, LENGTH(trim_flags));
	print_numbers(out, "enum wire_dropped", dropped, LENGTH(dropped));
	print_numbers(out, "enum wire_device_flags", device_flags, LENGTH(device_flags));
	print_numbers(out, "enum wire_known", known, LENGTH(known));
	print_numbers(out, "enum share_reuse", reuses, LENGTH(reuses));
	print_numbers(out, "enum share_huge_pages", huge_pages, LENGTH(huge_pages));
	print_numbers(out, "enum share_role", roles, LENGTH(roles));
	print_numbers(out, "enum share_when_full", when_full, LENGTH(when_full));
	print_numbers(out, "enum share_channel_flags", channel_flags, LENGTH(channel_flags));
	print_numbers(out, "enum wire_channel_sync_flags", sync_flags, LENGTH(sync_flags));
	print_layouts(out);
}

int main(int argc, char **argv)
{
	FILE *out = argc == 2 ? fopen(argv[1], "we") : stdout;

	if (argc > 2) {
		fprintf(stderr, "usage: %s [FILE]\n", argv[0]);
		return 2;
	}
	if (out)
		print_document(out);
	if (!out || ferror(out) || fclose(out) != 0) {
		fprintf(stderr, "%s: %s: %s\n", argv[0], argc == 2 ? argv[1] : "stdout",
			strerror(errno));
		return 1;
	}
	return 0;
}
