/* SPDX-License-Identifier: MIT */

/*
 * What an agent answers when all is well, and how it ends. This is as true of a real device as of
 * the stand-in's.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "base/system/process.h"
#include "tests/agent/agent_process.h"
#include "tests/standin/calls.h"
#include "wire/packet.h"

#define MIB (UINT64_C(1) << 20)

static struct agent_process agent;
static char *device;

static void start(void)
{
	standin_configure("");
	device = agent_device_uuid(0);
	cr_assert(device);
	agent_start(&agent, device);
}

static void end(void)
{
	agent_end_well(&agent);
	free(device);
}

TestSuite(agent, .init = start, .fini = end, .timeout = 60);

static uint64_t free_memory(void)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;

	agent_ask(&agent, &m, WIRE_AGENT_DEVICE, &answer, NULL);
	return answer.agent_device.free;
}

static bool is_text(struct wire_bytes bytes, const char *text)
{
	return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* How many descriptors the agent has open on what looks like @fd. */
static unsigned agent_holds(int fd)
{
	struct stat wanted, st;
	char path[64];
	unsigned n = 0;

	cr_assert_eq(fstat(fd, &wanted), 0);
	for (int i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)agent.pid, i);
		if (stat(path, &st) == 0 && st.st_dev == wanted.st_dev &&
		    st.st_ino == wanted.st_ino)
			n++;
	}
	return n;
}

/* ------------------------------------------------------------------------------------------- */

Test(agent, it_describes_its_device)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;
	const struct wire_agent_device *d = &answer.agent_device;

	for (int i = 0; i < 2; i++) {
		agent_ask(&agent, &m, WIRE_AGENT_DEVICE, &answer, NULL);
		cr_assert(is_text(d->uuid_text, device));
		cr_assert_eq(d->uuid.size, 16);
		cr_assert(d->total > 0 && d->granularity > 0 && d->driver >= 12000);
		cr_assert(d->compute > 0 && d->name.size > 0 && d->pci.size > 0);
		cr_assert(d->flags & memory_kind_by_id(MEMORY_VMM)->ability);
		cr_assert(d->flags & memory_kind_by_id(MEMORY_MEMPOOL)->ability);
		cr_assert(d->flags & WIRE_DEVICE_EVENTS);
	}
}

Test(agent, vmm_segments_need_nothing_of_the_agent_any_more)
{
	struct agent_segment a, b;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &a);
	agent_make_segment(&agent, MEMORY_VMM, 6 * MIB, &b);
	cr_assert(a.handle == 0 && b.handle == 0);
	cr_assert(a.recipe.size == 2 * MIB && b.recipe.size == 6 * MIB);
	cr_assert(memcmp(a.recipe.identity, b.recipe.identity, 16) != 0);
	cr_assert(memcmp(a.recipe.device, b.recipe.device, 16) == 0);
	agent_drop_segment(&agent, &a);
	agent_drop_segment(&agent, &b);
}

Test(agent, vmm_segments_remember_the_address_they_are_for)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_CREATE,
				 .agent_segment_create = {.size = 2 * MIB,
							  .kind = MEMORY_VMM,
							  .address = UINT64_C(0x200000000000)}};
	struct wire_message answer;
	struct memory_recipe recipe;
	int fd;

	agent_ask(&agent, &m, WIRE_AGENT_SEGMENT, &answer, &fd);
	memcpy(&recipe, answer.agent_segment.recipe.data, sizeof(recipe));
	cr_assert_eq(recipe.address, UINT64_C(0x200000000000));
	close(fd);
}

Test(agent, mempool_segments_are_kept_until_they_are_destroyed)
{
	static const char zeros[64];
	struct agent_segment s;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 8 * MIB, &s);
	cr_assert_neq(s.handle, 0);
	cr_assert_eq(s.recipe.size, 8 * MIB);
	cr_assert(memcmp(s.recipe.pointer, zeros, sizeof(zeros)) != 0);
	agent_drop_segment(&agent, &s);
}

Test(agent, legacy_segments_are_kept_until_they_are_destroyed_and_say_who_keeps_them)
{
	static const char zeros[64];
	struct agent_segment s;

	agent_make_segment(&agent, MEMORY_LEGACY, 8 * MIB, &s);
	cr_assert_neq(s.handle, 0);
	cr_assert_eq(s.recipe.size, 8 * MIB);
	cr_assert(memcmp(s.recipe.pointer, zeros, sizeof(zeros)) != 0);
	cr_assert_eq(process_pid(s.fd), agent.pid);
	cr_assert(!process_has_ended(s.fd));
	agent_drop_segment(&agent, &s);
}

Test(agent, a_legacy_segment_has_no_address_of_ours)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_CREATE,
				 .agent_segment_create = {.size = 2 * MIB,
							  .kind = MEMORY_LEGACY,
							  .address = UINT64_C(0x200000000000)}};

	agent_ask_failing(&agent, &m, SHARE_ENOTSUP, false, "driver places", "kind vmm");
}

Test(agent, pinned_segments_are_kept_by_their_descriptor_and_are_none_of_the_devices_memory)
{
	struct agent_segment a, b;
	uint64_t before;

	if (!agent_can_make(&agent, MEMORY_PINNED))
		cr_skip_test("the device does not reach memory of a NUMA node of the host");
	before = free_memory();
	agent_make_segment(&agent, MEMORY_PINNED, 64 * MIB, &a);
	agent_make_segment(&agent, MEMORY_PINNED, 2 * MIB, &b);
	cr_assert(a.handle == 0 && b.handle == 0 && a.recipe.size == 64 * MIB);
	cr_assert(memcmp(a.recipe.identity, b.recipe.identity, 16) != 0);
	cr_assert(free_memory() > before - 64 * MIB);
	agent_drop_segment(&agent, &a);
	agent_drop_segment(&agent, &b);
}

Test(agent, memory_goes_back_to_the_driver_with_the_segment)
{
	struct agent_segment s[3];
	uint64_t before;

	/* so that the context is there, which costs memory of its own */
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s[0]);
	agent_drop_segment(&agent, &s[0]);
	before = free_memory();
	cr_assert_neq(before, UINT64_MAX);
	agent_make_segment(&agent, MEMORY_VMM, 64 * MIB, &s[0]);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 64 * MIB, &s[1]);
	agent_make_segment(&agent, MEMORY_LEGACY, 64 * MIB, &s[2]);
	cr_assert(free_memory() <= before - 192 * MIB);
	for (size_t i = 0; i < 3; i++)
		agent_drop_segment(&agent, &s[i]);
	cr_assert_eq(free_memory(), before);
}

Test(agent, the_agent_keeps_no_descriptor_of_what_it_made)
{
	struct agent_segment vmm, mempool;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &vmm);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &mempool);
	free_memory(); /* it has done with the others */
	cr_assert(fcntl(vmm.fd, F_GETFD) & FD_CLOEXEC);
	/* only the stand-in's descriptors tell one memory from another */
	if (strstr(device, "GPU-7374616e-6469-6e2d") == device)
		cr_assert_eq(agent_holds(vmm.fd), 0);
	agent_drop_segment(&agent, &vmm);
	agent_drop_segment(&agent, &mempool);
}

Test(agent, a_mempool_segment_above_4_gib_is_refused_with_the_kind_that_can)
{
	struct wire_message m = {
	    .type = WIRE_AGENT_SEGMENT_CREATE,
	    .agent_segment_create = {.size = 4096 * MIB + 2 * MIB, .kind = MEMORY_MEMPOOL}};

	agent_ask_failing(&agent, &m, SHARE_ENOTSUP, false, "4 GiB", "kind vmm");
}

Test(agent, a_mempool_segment_has_no_address_of_ours)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_CREATE,
				 .agent_segment_create = {.size = 2 * MIB,
							  .kind = MEMORY_MEMPOOL,
							  .address = UINT64_C(0x200000000000)}};

	agent_ask_failing(&agent, &m, SHARE_ENOTSUP, false, "the driver places", "kind vmm");
}

Test(agent, sizes_and_kinds_that_make_no_sense_are_refused)
{
	static const struct {
		uint64_t size;
		uint32_t kind;
		int error;
	} bad[] = {
	    {0, MEMORY_VMM, SHARE_EINVAL},
	    {0, MEMORY_MEMPOOL, SHARE_EINVAL},
	    {MIB, MEMORY_VMM, SHARE_EINVAL},
	    {2 * MIB + 1, MEMORY_MEMPOOL, SHARE_EINVAL},
	    {UINT64_MAX, MEMORY_VMM, SHARE_EINVAL},
	    {2 * MIB, MEMORY_HOST, SHARE_ENOTSUP},
	    {2 * MIB, 0, SHARE_ENOTSUP},
	    {2 * MIB, 77, SHARE_ENOTSUP},
	};
	struct agent_segment s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct wire_message m = {
		    .type = WIRE_AGENT_SEGMENT_CREATE,
		    .agent_segment_create = {.size = bad[i].size, .kind = bad[i].kind}};

		agent_ask_failing(&agent, &m, bad[i].error, false, "segments", "");
	}
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	agent_drop_segment(&agent, &s);
}

Test(agent, handles_are_never_used_twice)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_DESTROY};
	struct agent_segment first, second;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &first);
	agent_drop_segment(&agent, &first);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &second);
	cr_assert_neq(first.handle, second.handle);
	m.agent_segment_destroy.handle = first.handle;
	agent_ask_failing(&agent, &m, SHARE_ENOENT, false, "no such segment", "");
	m.agent_segment_destroy.handle = 0;
	agent_ask_failing(&agent, &m, SHARE_ENOENT, false, "no such segment", "");
	m.agent_segment_destroy.handle = UINT64_MAX;
	agent_ask_failing(&agent, &m, SHARE_ENOENT, false, "no such segment", "");
	agent_drop_segment(&agent, &second);
}

Test(agent, many_segments_live_at_once)
{
	struct agent_segment s[40];

	for (size_t i = 0; i < 40; i++)
		agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s[i]);
	/* the table has grown twice; they go in another order than they came */
	for (size_t i = 0; i < 40; i++)
		agent_drop_segment(&agent, &s[i * 7 % 40]);
}

Test(agent, events_come_and_go)
{
	struct wire_message create = {.type = WIRE_AGENT_EVENT_CREATE};
	struct wire_message destroy = {.type = WIRE_AGENT_EVENT_DESTROY};
	struct wire_message answer;
	unsigned char first[64];
	uint64_t handle;

	agent_ask(&agent, &create, WIRE_AGENT_EVENT, &answer, NULL);
	cr_assert_eq(answer.agent_event.ipc.size, 64);
	memcpy(first, answer.agent_event.ipc.data, 64);
	handle = answer.agent_event.handle;
	agent_ask(&agent, &create, WIRE_AGENT_EVENT, &answer, NULL);
	cr_assert(memcmp(first, answer.agent_event.ipc.data, 64) != 0);
	cr_assert_neq(handle, answer.agent_event.handle);

	destroy.agent_event_destroy.handle = answer.agent_event.handle;
	agent_ask(&agent, &destroy, WIRE_AGENT_DONE, &answer, NULL);
	agent_ask_failing(&agent, &destroy, SHARE_ENOENT, false, "no such event", "");
	destroy.agent_event_destroy.handle = handle;
	destroy.agent_event_destroy.wedged = 1;
	agent_ask(&agent, &destroy, WIRE_AGENT_DONE, &answer, NULL);
}

Test(agent, a_handle_of_a_segment_is_none_of_an_event)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_DESTROY};
	struct agent_segment s;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	m.agent_event_destroy.handle = s.handle;
	agent_ask_failing(&agent, &m, SHARE_ENOENT, false, "no such event", "");
	agent_drop_segment(&agent, &s);
}

/* ------------------------------------------------------------------------------------------- */
/* Its end                                                                                     */

Test(agent, it_ends_with_the_broker)
{
	struct agent_segment s;

	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	cr_assert_eq(agent_end(&agent), 0);
	close(s.fd);
}

Test(agent, it_ends_when_the_broker_does_not_wait_for_its_answer)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET};

	agent_send(&agent, &m);
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent, the_terminals_signals_are_not_for_it)
{
	cr_assert(free_memory() > 0);
	kill(agent.pid, SIGINT);
	kill(agent.pid, SIGHUP);
	cr_assert(free_memory() > 0);
}

TestSuite(agent_broken, .init = start, .timeout = 60);

Test(agent_broken, packets_that_make_no_sense_end_it)
{
	static const struct {
		const void *data;
		size_t size;
		const char *log;
	} bad[] = {
	    {"x", 1, "shorter"},
	    /* HELLO is a client's */
	    {"\1\0\0\0\0\0\0\0", 8, "unknown"},
	    {"\377\377\0\0\0\0\0\0", 8, "unknown"},
	    {"\104\0\0\0\0\0\0\0", 8, "shorter"},
	};

	cr_assert_eq(agent_end(&agent), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct wire_message answer;

		agent_start(&agent, device);
		cr_assert_eq(packet_send(agent.socket, bad[i].data, bad[i].size, NULL, 0, true), 0);
		cr_assert_not(agent_receive(&agent, &answer, NULL));
		cr_assert_eq(agent_end(&agent), 1);
		cr_assert(strstr(agent_log_text(&agent), bad[i].log), "%s", agent_log_text(&agent));
		cr_assert_eq(strncmp(agent_log_text(&agent), "share-agent: ", 13), 0);
	}
}

Test(agent_broken, a_descriptor_nobody_asked_for_ends_it)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET};
	char packet[64];
	size_t size = wire_encode(&m, packet, sizeof(packet));
	int fd = 0;

	cr_assert_eq(packet_send(agent.socket, packet, size, &fd, 1, true), 0);
	cr_assert_eq(agent_wait(&agent), 1);
	cr_assert(strstr(agent_log_text(&agent), "descriptors"), "%s", agent_log_text(&agent));
}

Test(agent_broken, killed_it_leaves_its_memory_to_who_has_the_descriptor)
{
	struct agent_segment s;
	struct stat st;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	kill(agent.pid, SIGKILL);
	cr_assert_eq(agent_wait(&agent), 1000 + SIGKILL);
	cr_assert_eq(fstat(s.fd, &st), 0);
	close(s.fd);
}

Test(agent, what_is_to_be_zeroed_has_to_be_named_and_reachable)
{
	struct wire_message m = {.type = WIRE_AGENT_SCRUB}, answer;
	struct wire_agent_scrub *scrub = &m.agent_scrub;
	struct agent_segment s;

	scrub->kind = MEMORY_VMM;
	scrub->size = 512;
	agent_ask_failing(&agent, &m, SHARE_EPROTO, false, "cannot be reached", "");
	scrub->handle = 77;
	agent_ask_failing(&agent, &m, SHARE_ENOENT, false, "no such segment", "");
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	scrub->handle = s.handle;
	scrub->offset = 2 * MIB - 256;
	agent_ask_failing(&agent, &m, SHARE_EINVAL, false, "the segment ends before that", "");
	scrub->offset = 2 * MIB - 512;
	agent_ask(&agent, &m, WIRE_AGENT_DONE, &answer, NULL);
	agent_drop_segment(&agent, &s);
}

static void tell_known(enum wire_known what, bool more, uint64_t handle)
{
	struct wire_message m = {
	    .type = WIRE_AGENT_KNOWN,
	    .agent_known = {
		.what = what, .more = more, .handles = {&handle, handle ? sizeof(handle) : 0}}};
	struct wire_message answer;

	agent_ask(&agent, &m, WIRE_AGENT_DONE, &answer, NULL);
}

static uint64_t make_event(void)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_CREATE}, answer;

	agent_ask(&agent, &m, WIRE_AGENT_EVENT, &answer, NULL);
	return answer.agent_event.handle;
}

Test(agent, what_a_broker_does_not_know_is_destroyed_and_the_rest_is_not)
{
	struct wire_message end_event = {.type = WIRE_AGENT_EVENT_DESTROY}, answer;
	uint64_t events[2] = {make_event(), make_event()};
	struct agent_segment s[3];

	for (int i = 0; i < 3; i++)
		agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s[i]);
	/* twice, as by two brokers; one that it does not have is not missed */
	for (int i = 0; i < 2; i++) {
		tell_known(WIRE_KNOWN_SEGMENTS, true, s[2].handle);
		tell_known(WIRE_KNOWN_SEGMENTS, true, 77);
		tell_known(WIRE_KNOWN_SEGMENTS, false, s[0].handle);
	}
	answer.agent_segment_destroy.handle = s[1].handle;
	answer.type = WIRE_AGENT_SEGMENT_DESTROY;
	agent_ask_failing(&agent, &answer, SHARE_ENOENT, false, "no such segment", "");
	s[1].handle = 0;
	for (int i = 0; i < 3; i++)
		agent_drop_segment(&agent, &s[i]);
	tell_known(WIRE_KNOWN_EVENTS, false, events[1]);
	end_event.agent_event_destroy.handle = events[0];
	agent_ask_failing(&agent, &end_event, SHARE_ENOENT, false, "no such event", "");
	tell_known(WIRE_KNOWN_EVENTS, false, 0);
	end_event.agent_event_destroy.handle = events[1];
	agent_ask_failing(&agent, &end_event, SHARE_ENOENT, false, "no such event", "");
}

/* ------------------------------------------------------------------------------------------- */

TestSuite(scout, .timeout = 60);

Test(scout, it_makes_nothing)
{
	struct wire_message segment = {
	    .type = WIRE_AGENT_SEGMENT_CREATE,
	    .agent_segment_create = {.size = 2 * MIB, .kind = MEMORY_VMM}};
	struct wire_message event = {.type = WIRE_AGENT_EVENT_CREATE};

	standin_configure("");
	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &segment, SHARE_ENODEV, false, "no device has been opened", "");
	agent_ask_failing(&agent, &event, SHARE_ENODEV, false, "no device has been opened", "");
	cr_assert_eq(agent_end(&agent), 0);
}
