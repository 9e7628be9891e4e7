/* SPDX-License-Identifier: MIT */

/*
 * The part of docs/protocol.md about what is no message: structures in arrays of bytes, and the
 * pages that members of a channel share. Offsets and sizes are the compiler's. Where alignment does
 * not explain what lies between two fields, one is missing here, and the program ends.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "docs/protocol_doc.h"
#include "memory/kind.h"
#include "pages/channel_page.h"
#include "wire/wire.h"

struct field {
	const char *name;
	size_t offset, size;
	const char *text;
};
#define FIELD(type, member, text)                                                              \
	{                                                                                      \
#member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member), \
		    text                                                                       \
	}

static const struct field fence[] = {
    FIELD(wire_fence, timeline, "the page times 65536, and the slot; 0: none, reached"),
    FIELD(wire_fence, value, "the counter is to reach it"),
};
static const struct field more[] = {
    FIELD(wire_more, buffer, "identifier"),
    FIELD(wire_more, offset, "in the GRANT's segment, bytes"),
};
static const struct field member[] = {
    FIELD(wire_member, member, "identifier: never used again"),
    FIELD(wire_member, page, "identifier of its client's timeline page"),
    FIELD(wire_member, slot, "of the consumer: its admission and lane in the producer's ring"),
    FIELD(wire_member, row, "of the consumer's ledger: the one about this producer"),
    FIELD(wire_member, state, "enum wire_member_state"),
    FIELD(wire_member, flags, "enum wire_member_flags"),
    FIELD(wire_member, uid, "of its user, in the broker's user namespace"),
    FIELD(wire_member, claim, "counts up: of two in one place the later is higher"),
};

static const struct field recipe[] = {
    FIELD(memory_recipe, size, "bytes of the segment"),
    FIELD(memory_recipe, address, "where every process has to map it; 0: anywhere"),
    FIELD(memory_recipe, identity, "random: the same memory, by whatever way it came"),
    FIELD(memory_recipe, device, "UUID; zeros: host memory"),
    FIELD(memory_recipe, pointer,
	  "mempool: CUmemPoolPtrExportData of the segment's start; legacy: a CUipcMemHandle; "
	  "adopted: a u64, where it begins "
	  "in "
	  "its file, and zeros"),
    FIELD(memory_recipe, flags, "enum memory_recipe_flags"),
    FIELD(memory_recipe, reserved, "0"),
};
static const struct field shape[] = {
    FIELD(channel_shape, mode, "enum channel_mode"),
    FIELD(channel_shape, when_full, "enum share_when_full"),
    FIELD(channel_shape, depth, "entries of a lane, a power of two"),
    FIELD(channel_shape, in_flight, "tickets of a producer"),
    FIELD(channel_shape, data_max, "bytes of data that a message has room for"),
    FIELD(channel_shape, rows, "of a ledger"),
    FIELD(channel_shape, consumers, "slots"),
    FIELD(channel_shape, deliveries, "how often a message is delivered at most (queue)"),
    FIELD(channel_shape, history, "messages kept for consumers to come (broadcast)"),
    FIELD(channel_shape, buffers, "of a message, at most; in a field of its own"),
};
static const struct field control[] = {
    FIELD(channel_control, epoch, "grows whenever somebody comes or goes; a futex"),
};
static const struct field ring[] = {
    FIELD(
	channel_ring, waiting,
	"enum channel_sleep, of the producer; 4 is added while it may sleep, and 8 times a number "
	"of this sleep"),
    FIELD(channel_ring, dropped, "messages; a count for people, as the next four"),
    FIELD(channel_ring, redelivered, "messages"),
    FIELD(channel_ring, set_aside, "messages"),
    FIELD(channel_ring, left_behind, "consumers"),
    FIELD(channel_ring, rejected, "messages, each time"),
    FIELD(channel_ring, heeds,
	  "bits: 1: its producer knows what a rejection is; 2: and who gets the latest alone; 4: "
	  "and counts what it takes back. Older ones leave it 0"),
    FIELD(channel_ring, taken_back, "messages of `set_aside` that the program has"),
};
static const struct field admission[] = {
    FIELD(channel_admission, consumer, "member; another one in its slot is not admitted (yet)"),
    FIELD(channel_admission, start,
	  "the first sequence number that it gets; valid once `consumer` says so"),
    FIELD(channel_admission, left_behind, "member who is not waited for any more"),
    FIELD(channel_admission, lost, "messages that were dropped while no consumer was there"),
    FIELD(channel_admission, head,
	  "of who gets the latest alone: what is below this is not for it"),
};
static const struct field lane[] = {
    FIELD(channel_lane, bell, "futex of consumers that sleep; counts"),
    FIELD(channel_lane, in_flight, "messages of all lanes, for people; only in the first"),
    FIELD(channel_lane, head, "sequence number; what is below was dropped or is done"),
    FIELD(channel_lane, tail, "the next sequence number"),
};
static const struct field ticket[] = {
    FIELD(channel_ticket, buffer, "identifier; 0: none, and while the ticket is free"),
    FIELD(channel_ticket, version, "written last when it is put to use, with release order"),
    FIELD(channel_ticket, call, "services: which call this index stands for; 0: none"),
};
static const struct field entry[] = {
    FIELD(
	channel_entry, sequence,
	"sequence number + 1 once it is complete (release); below that it is being written, or an "
	"older one"),
    FIELD(channel_entry, number, "of the producer's messages"),
    FIELD(channel_entry, buffer, "identifier; 0: none"),
    FIELD(channel_entry, segment, "identifier"),
    FIELD(channel_entry, offset_data_size,
	  "offset of the buffer in the segment (low 48 bits), bytes of data (high 16)"),
    FIELD(channel_entry, size_deliveries,
	  "bytes of the buffer (low 48 bits), which delivery this is (high 16)"),
    FIELD(channel_entry, value, "of the fence"),
    FIELD(channel_entry, version, "of the ticket"),
    FIELD(channel_entry, ticket, "its index"),
    FIELD(channel_entry, timeline,
	  "slot of the fence in its producer's timeline page; 0: none. Plus 256 times how many "
	  "buffers the message has behind the first"),
};
static const struct field further[] = {
    FIELD(channel_further, ticket,
	  "its ticket; plus 1 << 16 times the lower half of the version of its message's ticket; "
	  "plus 1 << 32 times its own version"),
    FIELD(channel_further, buffer, "as in an entry"),
    FIELD(channel_further, segment, "as in an entry"),
    FIELD(channel_further, offset, "of the buffer in the segment"),
    FIELD(channel_further, size, "of the buffer, bytes"),
};
static const struct field ledger[] = {
    FIELD(channel_ledger, sleeping, "enum channel_sleep, of the consumer, as `waiting`"),
    FIELD(channel_ledger, receives_no_more, "not 0: `taken` is final"),
    FIELD(channel_ledger, rejected,
	  "messages; counted after that is said in the row, so that a producer that sends looks "
	  "there"),
    FIELD(channel_ledger, bell, "futex of producers that wait; counts"),
    FIELD(channel_ledger, received, "messages; a count for people, as the next two"),
    FIELD(channel_ledger, acknowledged, "messages, those that were rejected among them"),
    FIELD(channel_ledger, lost, "messages"),
};
static const struct field row[] = {
    FIELD(channel_row, producer, "member it is about; the rest is zero then"),
    FIELD(channel_row, taken, "sequence number in the lane: all below are received"),
};
static const struct field ack[] = {
    FIELD(
	channel_ack, word,
	"version of the ticket times 2^32, flags, and slot of the fence in the consumer's timeline "
	"page (0: none); flag 2^31: it has a lease of its own now; flag 2^30, in a queue: it gives "
	"the message back, and in place of the slot is which delivery that was. Written last "
	"(release)"),
    FIELD(channel_ack, value, "of the fence"),
};

static const struct number channel_modes[] = {
    NUMBER(CHANNEL_BROADCAST, "every consumer gets a message; one lane"),
    NUMBER(CHANNEL_QUEUE, "one consumer does; a lane for each"),
    NUMBER(CHANNEL_DIRECT, "the producer says which: replies of a service; a lane for each"),
};
static const struct number channel_layouts[] = {
    NUMBER(CHANNEL_WITHOUT_COPIES, "a ring has no copies"),
    NUMBER(CHANNEL_WITH_COPIES,
	   "in a queue, a ring ends with a copy of each message in flight, by ticket"),
};
static const struct number sleeps[] = {
    NUMBER(CHANNEL_AWAKE, "needs no waking"),
    NUMBER(CHANNEL_ON_FUTEX, "sleeps on the bell"),
    NUMBER(CHANNEL_ON_DOORBELL, "waits for its doorbell"),
};
static const struct number states[] = {
    NUMBER(WIRE_MEMBER_HERE, "takes part"),
    NUMBER(WIRE_MEMBER_LEFT, "its connection has ended, but the process lives"),
    NUMBER(WIRE_MEMBER_DEAD, "a producer, of whose messages some may not be acknowledged"),
    NUMBER(WIRE_MEMBER_CLOSED, "the same, that has closed the channel"),
};
static const struct number member_flags[] = {
    NUMBER(WIRE_MEMBER_NEW, "its descriptors come along"),
    NUMBER(WIRE_MEMBER_WRITABLE, "a consumer that may write"),
    NUMBER(WIRE_MEMBER_OLDEST, "a consumer that wants what is still there, too"),
    NUMBER(WIRE_MEMBER_LATEST, "a consumer that gets the latest message alone"),
};
static const struct number recipe_flags[] = {
    NUMBER(MEMORY_ON_MIG, "the device is an instance of one: a UUID does not tell"),
    NUMBER(MEMORY_MAY_SHRINK, "adopted: who can open the file may make it smaller"),
    NUMBER(MEMORY_HUGE_PAGES, "host: who maps it asks for huge pages"),
    NUMBER(MEMORY_HUGETLB, "host: it consists of huge pages that are reserved for it"),
    NUMBER(MEMORY_IS_THERE, "host: all of its pages were made ahead"),
};

/* Fields lie one behind the other; what is between them is zero. */
static void print_layout(FILE *out, const char *heading, size_t size, const struct field *fields,
			 size_t n)
{
	size_t end = 0;

	fprintf(out,
		"### struct %s\n\n%zu bytes.\n\n| offset | type | name | meaning |\n"
		"| ---: | --- | --- | --- |\n",
		heading, size);
	for (size_t i = 0; i < n; i++) {
		const struct field *f = &fields[i];

		if (f->offset < end || (f->offset - end >= f->size && f->offset % 64 != 0)) {
			fprintf(stderr, "%s: something before %s is missing\n", heading, f->name);
			exit(1);
		}
		if (f->size <= sizeof(uint64_t))
			fprintf(out, "| %zu | u%zu | `%s` | %s |\n", f->offset, f->size * 8,
				f->name, f->text);
		else
			fprintf(out, "| %zu | %zu bytes | `%s` | %s |\n", f->offset, f->size,
				f->name, f->text);
		end = f->offset + f->size;
	}
	fputs("\n", out);
}
#define PRINT(type, fields) print_layout(out, #type, sizeof(struct type), fields, LENGTH(fields))

static void print_places(FILE *out)
{
	fprintf(
	    out,
	    "## Pages of a channel\n\n"
	    "Each page is a memfd with one writer, which the kernel holds by its seals: the "
	    "control "
	    "page is the broker's, a ring its producer's, a ledger its consumer's. They begin as "
	    "zeros. Nobody may trust another's page: read each value once, check it, and take what "
	    "is out of range for a message that is not there. What follows is in this order, each "
	    "part behind the one before; a *shape* is what CHANNEL says, within: depth up to %d, "
	    "in_flight up to %d, data_max up to %d, %d of each role, and the part of a ring by "
	    "`data_max` up to %d bytes.\n\n"
	    "| page | parts |\n"
	    "| --- | --- |\n"
	    "| control, %d bytes | struct channel_control |\n"
	    "| ring | struct channel_ring; `consumers` times struct channel_admission, by slot; as "
	    "many lanes (one with CHANNEL_BROADCAST, else `consumers`) times struct channel_lane; "
	    "`in_flight` times struct channel_ticket, rounded up to 64 bytes; for each lane "
	    "`depth` "
	    "entries, each struct channel_entry and `data_max` bytes of data, but at most %d, "
	    "rounded up to 64; in a queue of CHANNEL_WITH_COPIES, `in_flight` of the same, by "
	    "ticket; where `buffers` is above 1 or `data_max` above %d, `in_flight` times what "
	    "lies "
	    "far, by ticket: one less than `buffers` times struct channel_further, rounded up to "
	    "64, and, where `data_max` is above that, `data_max` bytes, rounded up to 64: all data "
	    "of a message with more than that |\n"
	    "| ledger | struct channel_ledger; `rows` rows, each struct channel_row "
	    "and `in_flight` times struct channel_ack, rounded up to 64 bytes |\n\n"
	    "A page's size is rounded up to 4096 bytes. The entry of a sequence number is that at "
	    "its remainder by `depth`. A message is sent by writing its ticket and its entry, then "
	    "`sequence`, then the lane's `tail`; received by reading `sequence`, the entry, and "
	    "`sequence` once more, then adding one to `taken` of the producer's row; acknowledged "
	    "by writing the `value` and then the `word` of its ticket's struct channel_ack. Its "
	    "position can be used again once all consumers of the lane that are admitted have "
	    "taken "
	    "it; its ticket when all who got it have acknowledged it, and the fences are "
	    "reached.\n\n"
	    "Who sleeps says so in its own page, looks once more whether there is something for "
	    "it, and sleeps: consumers on the lane's `bell`, producers on the `bell` of a ledger, "
	    "or either on its doorbell. Whoever has something for others adds one to the bell and "
	    "wakes its futex, or rings the doorbell, where that says so. Futexes are shared "
	    "ones.\n\n",
	    CHANNEL_DEPTH_MAX, CHANNEL_IN_FLIGHT_MAX, CHANNEL_DATA_MAX, CHANNEL_MEMBERS_MAX,
	    CHANNEL_FAR_MAX, CHANNEL_CONTROL_SIZE, CHANNEL_DATA_NEAR, CHANNEL_DATA_NEAR);
	PRINT(channel_control, control);
	PRINT(channel_ring, ring);
	PRINT(channel_admission, admission);
	PRINT(channel_lane, lane);
	PRINT(channel_ticket, ticket);
	PRINT(channel_entry, entry);
	PRINT(channel_further, further);
	PRINT(channel_ledger, ledger);
	PRINT(channel_row, row);
	PRINT(channel_ack, ack);
	print_numbers(out, "enum channel_mode", channel_modes, LENGTH(channel_modes));
	print_numbers(out, "enum channel_layout", channel_layouts, LENGTH(channel_layouts));
	print_numbers(out, "enum channel_sleep", sleeps, LENGTH(sleeps));
}

void print_layouts(FILE *out)
{
	fputs(
	    "## Structures\n\n"
	    "What is in fields of bytes, one behind the other where there are several. Numbers are "
	    "little-endian, and bytes between fields are zero.\n\n",
	    out);
	PRINT(wire_fence, fence);
	PRINT(wire_more, more);
	PRINT(wire_member, member);
	PRINT(channel_shape, shape);
	PRINT(memory_recipe, recipe);
	print_numbers(out, "enum wire_member_state", states, LENGTH(states));
	print_numbers(out, "enum wire_member_flags", member_flags, LENGTH(member_flags));
	print_numbers(out, "enum memory_recipe_flags", recipe_flags, LENGTH(recipe_flags));
	print_places(out);
}
