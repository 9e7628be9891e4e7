/* SPDX-License-Identifier: MIT */

/*
 * What an agent answers when something is wrong: no driver, an old one, no device, each call of the
 * driver failing in turn. Each is an answer that names the call and the driver's word for it, none
 * is a crash, and what was half made is given back. The stand-in driver fails on request.
 */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/device.h"
#include "tests/agent/agent_process.h"
#include "tests/standin/calls.h"

#define MIB (UINT64_C(1) << 20)

static struct agent_process agent;
static char directory[] = "/tmp/share-agent-test-XXXXXX";
static char faults[64];

static void prepare(void)
{
	cr_assert(mkdtemp(directory));
	snprintf(faults, sizeof(faults), "%s/faults", directory);
	setenv("SHARE_STANDIN_FAULTS", faults, 1);
	standin_configure("");
}

static void clean_up(void)
{
	unlink(faults);
	rmdir(directory);
}

TestSuite(agent_failure, .init = prepare, .fini = clean_up, .timeout = 120);

/* "" for none. */
static void set_faults(const char *text)
{
	FILE *file = fopen(faults, "w");

	cr_assert(file);
	fprintf(file, "%s\n", text);
	cr_assert_eq(fclose(file), 0);
}

static void start_device(unsigned index)
{
	char *device = agent_device_uuid(index);

	cr_assert(device);
	agent_start(&agent, device);
	free(device);
}

static struct wire_message device_get = {.type = WIRE_AGENT_DEVICE_GET};
static struct wire_message make_vmm = {
    .type = WIRE_AGENT_SEGMENT_CREATE,
    .agent_segment_create = {.size = 32 * MIB, .kind = MEMORY_VMM}};
static struct wire_message make_pinned = {
    .type = WIRE_AGENT_SEGMENT_CREATE,
    .agent_segment_create = {.size = 32 * MIB, .kind = MEMORY_PINNED}};
static struct wire_message make_mempool = {
    .type = WIRE_AGENT_SEGMENT_CREATE,
    .agent_segment_create = {.size = 32 * MIB, .kind = MEMORY_MEMPOOL}};
static struct wire_message make_legacy = {
    .type = WIRE_AGENT_SEGMENT_CREATE,
    .agent_segment_create = {.size = 32 * MIB, .kind = MEMORY_LEGACY}};
static struct wire_message make_event = {.type = WIRE_AGENT_EVENT_CREATE};

static uint64_t free_memory(void)
{
	struct wire_message answer;

	agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
	return answer.agent_device.free;
}

/* ------------------------------------------------------------------------------------------- */
/* No driver, or none that will do                                                             */

Test(agent_failure, without_a_driver_it_says_so)
{
	char library[64];

	snprintf(library, sizeof(library), "%s/libcuda.so.1", directory);
	cr_assert_eq(close(open(library, O_WRONLY | O_CREAT, 0644)), 0);
	/* in front of any real one: a file that is no library */
	setenv("LD_LIBRARY_PATH", directory, 1);
	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &device_get, SHARE_ENODEV, false, "no GPU driver",
			  "libcuda.so.1");
	/* it can be tried again */
	agent_ask_failing(&agent, &device_get, SHARE_ENODEV, false, "no GPU driver",
			  "libcuda.so.1");
	cr_assert_eq(agent_end(&agent), 0);
	unlink(library);
}

Test(agent_failure, a_driver_too_old_is_told_from_none)
{
	standin_configure("driver=11080");
	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &device_get, SHARE_ENODEV, false,
			  "too old: it is made for CUDA 11.8", "12.0 or newer");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, no_device_is_told_from_no_driver)
{
	standin_configure("devices=0");
	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &device_get, SHARE_ENODEV, false, "CUDA_ERROR_NO_DEVICE",
			  "CUDA_VISIBLE_DEVICES");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, cuda_visible_devices_can_hide_them_all)
{
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	agent_start(&agent, NULL);
	agent_ask_failing(&agent, &device_get, SHARE_ENODEV, false, "CUDA_ERROR_NO_DEVICE",
			  "CUDA_VISIBLE_DEVICES");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, an_unknown_uuid_is_named_and_ends_it)
{
	agent_start(&agent, "GPU-00000000-0000-0000-0000-000000000000");
	agent_ask_failing(
	    &agent, &device_get, SHARE_ENODEV, true,
	    "device GPU-00000000-0000-0000-0000-000000000000:", "CUDA_ERROR_NO_DEVICE");
	cr_assert_eq(agent_end(&agent), 1);
}

Test(agent_failure, text_that_is_no_uuid_is_refused)
{
	/* the driver takes it for the beginning of one: nothing else would refuse it */
	agent_start(&agent, "GPU-73");
	agent_ask_failing(&agent, &device_get, SHARE_EINVAL, true,
			  "device GPU-73:", "a UUID is needed");
	cr_assert_eq(agent_end(&agent), 1);
}

Test(agent_failure, a_scout_tells_of_every_device)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;
	unsigned n = 0;

	standin_configure("devices=3,memory=536870912");
	agent_start(&agent, NULL);
	agent_send(&agent, &m);
	while (agent_receive(&agent, &answer, NULL) && answer.type == WIRE_AGENT_DEVICE) {
		cr_assert_eq(answer.agent_device.ordinal, n++);
		cr_assert_eq(answer.agent_device.total, UINT64_C(536870912));
	}
	cr_assert_eq(answer.type, WIRE_AGENT_DONE);
	cr_assert_eq(n, 3);
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, a_running_mps_daemon_is_noticed)
{
	struct wire_message answer;
	char control[64];

	start_device(0);
	agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
	cr_assert_eq(answer.agent_device.flags & WIRE_DEVICE_MPS, 0);
	cr_assert_eq(agent_end(&agent), 0);

	snprintf(control, sizeof(control), "%s/control", directory);
	cr_assert_eq(mkfifo(control, 0600), 0);
	setenv("CUDA_MPS_PIPE_DIRECTORY", directory, 1);
	start_device(0);
	agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
	cr_assert(answer.agent_device.flags & WIRE_DEVICE_MPS);
	cr_assert_eq(agent_end(&agent), 0);
	unlink(control);
}

Test(agent_failure, whoever_makes_memory_is_no_mps_client)
{
	struct failure failure;
	const char *pipes;
	uint32_t n;

	setenv("CUDA_MPS_PIPE_DIRECTORY", directory, 1);
	cr_assert_eq(memory_devices_init(&n, &failure), 0, "%s", failure.text);
	pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
	cr_assert(pipes && strcmp(pipes, directory) != 0);
	cr_assert(access(pipes, F_OK) < 0);
	cr_assert(mkdir(pipes, 0700) < 0, "nobody may start a daemon there");
}

Test(agent_failure, a_device_says_what_it_cannot_do)
{
	struct wire_message answer;

	standin_configure("vmm=0,mempool=0,memops=0");
	agent_start(&agent, NULL);
	agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
	cr_assert_eq(answer.agent_device.flags &
			 (memory_kind_by_id(MEMORY_VMM)->ability |
			  memory_kind_by_id(MEMORY_MEMPOOL)->ability | WIRE_DEVICE_STREAM_MEM_OPS),
		     0);
	cr_assert_eq(answer.agent_device.granularity, 0);
	cr_assert(agent_receive(&agent, &answer, NULL) && answer.type == WIRE_AGENT_DONE);
	cr_assert_eq(agent_end(&agent), 0);
}

/* Where a device has not got it, to ask for it is to be refused. */
Test(agent_failure, vmm_memory_is_for_rdma_where_the_device_has_that)
{
	static const char *const machines[] = {"", "rdma=0"};

	for (int without = 0; without < 2; without++) {
		struct wire_message answer;
		int fd;

		standin_configure(machines[without]);
		start_device(0);
		agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
		cr_assert(answer.agent_device.flags & memory_kind_by_id(MEMORY_VMM)->ability);
		agent_ask(&agent, &make_vmm, WIRE_AGENT_SEGMENT, &answer, &fd);
		cr_assert_eq(standin_is_for_rdma(fd), !without);
		close(fd);
		agent_end_well(&agent);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Calls that fail                                                                             */

static const struct failing {
	struct wire_message *request;
	const char *call;
} failing[] = {
    {&make_vmm, "cuMemCreate"},
    {&make_vmm, "cuMemExportToShareableHandle"},
    {&make_pinned, "cuMemCreate"},
    {&make_pinned, "cuMemExportToShareableHandle"},
    {&make_mempool, "cuDevicePrimaryCtxRetain"},
    {&make_mempool, "cuCtxPushCurrent"},
    {&make_mempool, "cuMemPoolCreate"},
    {&make_mempool, "cuMemPoolExportToShareableHandle"},
    {&make_mempool, "cuMemAllocFromPoolAsync"},
    {&make_mempool, "cuStreamSynchronize"},
    {&make_mempool, "cuMemPoolExportPointer"},
    {&make_legacy, "cuDevicePrimaryCtxRetain"},
    {&make_legacy, "cuMemAlloc"},
    {&make_legacy, "cuMemGetAddressRange"},
    {&make_legacy, "cuMemsetD8Async"},
    {&make_legacy, "cuStreamSynchronize"},
    {&make_legacy, "cuIpcGetMemHandle"},
    {&make_event, "cuDevicePrimaryCtxRetain"},
    {&make_event, "cuEventCreate"},
    {&make_event, "cuIpcGetEventHandle"},
};

#define N_FAILING (sizeof(failing) / sizeof(failing[0]))

static void fail_call(const char *call, const char *error)
{
	char line[128];

	snprintf(line, sizeof(line), "%s fail %s", call, error);
	set_faults(line);
}

/* How many descriptors of the stand-in's memory the agent has. How much is free an agent tells only
 * when it has a context, which these kinds need not, and memory of the host is not counted there.
 */
static unsigned memory_descriptors(void)
{
	static const char wanted[] = "/memfd:standin-gpu";
	char path[64], link[sizeof(wanted)];
	const struct dirent *e;
	unsigned n = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", agent.pid);
	fds = opendir(path);
	cr_assert(fds, "%s", path);
	while ((e = readdir(fds)))
		if (readlinkat(dirfd(fds), e->d_name, link, sizeof(link)) >=
			(ssize_t)strlen(wanted) &&
		    memcmp(link, wanted, strlen(wanted)) == 0)
			n++;
	closedir(fds);
	return n;
}

Test(agent_failure, every_failing_call_is_named_and_leaves_nothing_behind)
{
	for (size_t i = 0; i < N_FAILING; i++) {
		const struct failing *f = &failing[i];
		enum wire_type good =
		    f->request == &make_event ? WIRE_AGENT_EVENT : WIRE_AGENT_SEGMENT;
		struct wire_message answer;
		uint64_t before;
		int fd = -1;

		set_faults("");
		start_device(0);
		before = free_memory();
		fail_call(f->call, "CUDA_ERROR_INVALID_VALUE");
		agent_ask_failing(&agent, f->request, SHARE_EDEVICE, false, f->call,
				  "CUDA_ERROR_INVALID_VALUE");
		set_faults("");
		cr_assert(free_memory() == before || before == UINT64_MAX, "%s leaks", f->call);
		if (f->request == &make_vmm || f->request == &make_pinned)
			cr_assert_eq(memory_descriptors(), 0, "%s leaks", f->call);
		/* and the next one may go well */
		agent_ask(&agent, f->request, good, &answer,
			  good == WIRE_AGENT_SEGMENT ? &fd : NULL);
		fd_close(fd);
		cr_assert_eq(agent_end(&agent), 0);
		close(agent.log);
	}
}

Test(agent_failure, errors_become_the_number_they_stand_for)
{
	static const struct {
		const char *name;
		int error;
		const char *advice;
	} meanings[] = {
	    {"CUDA_ERROR_OUT_OF_MEMORY", SHARE_ENOMEM, ""},
	    {"CUDA_ERROR_NOT_SUPPORTED", SHARE_ENOTSUP, ""},
	    {"CUDA_ERROR_NOT_PERMITTED", SHARE_ENOTSUP, ""},
	    {"CUDA_ERROR_DEVICE_UNAVAILABLE", SHARE_ENODEV, "compute mode"},
	    {"CUDA_ERROR_SYSTEM_NOT_READY", SHARE_ENODEV, "fabricmanager"},
	    {"CUDA_ERROR_OPERATING_SYSTEM", SHARE_ESYSTEM, "ulimit -n"},
	    {"CUDA_ERROR_INVALID_HANDLE", SHARE_EDEVICE, ""},
	};

	start_device(0);
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		fail_call("cuMemCreate", meanings[i].name);
		agent_ask_failing(&agent, &make_vmm, meanings[i].error, false, meanings[i].name,
				  meanings[i].advice);
	}
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, an_error_that_sticks_ends_it)
{
	static const char *const sticky[] = {
	    "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED",
	    "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_CONTEXT_IS_DESTROYED"};

	for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++) {
		struct wire_message answer;

		set_faults("");
		start_device(0);
		fail_call("cuMemPoolCreate", sticky[i]);
		agent_ask_failing(&agent, &make_mempool, SHARE_EDEVICE, true, "cuMemPoolCreate",
				  sticky[i]);
		cr_assert_not(agent_receive(&agent, &answer, NULL));
		cr_assert_eq(agent_wait(&agent), 1);
		close(agent.socket);
		close(agent.log);
	}
}

Test(agent_failure, it_fails_to_start_with_the_reason)
{
	static const char *const calls[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet",
					    "cuDeviceGetUuid"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		set_faults("");
		start_device(0);
		fail_call(calls[i], "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
		agent_ask_failing(&agent, &make_vmm, SHARE_ENODEV, true, calls[i],
				  "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
		cr_assert_eq(agent_end(&agent), 1);
		close(agent.log);
	}
}

Test(agent_failure, a_device_that_cannot_be_described_hides_no_other)
{
	struct wire_message answer;

	standin_configure("devices=2");
	set_faults("cuDeviceGetName fail CUDA_ERROR_UNKNOWN after 1");
	agent_start(&agent, NULL);
	agent_ask(&agent, &device_get, WIRE_AGENT_DEVICE, &answer, NULL);
	cr_assert_eq(answer.agent_device.ordinal, 0);
	cr_assert(agent_receive(&agent, &answer, NULL));
	cr_assert_eq(answer.type, WIRE_AGENT_DONE);
	cr_assert(strstr(agent_log_text(&agent), "device 1: cuDeviceGetName: CUDA_ERROR_UNKNOWN"));
	/* now none can */
	agent_ask_failing(&agent, &device_get, SHARE_EDEVICE, true, "cuDeviceGetName",
			  "CUDA_ERROR_UNKNOWN");
	cr_assert_eq(agent_end(&agent), 1);
}

Test(agent_failure, a_driver_that_crashes_takes_the_agent_and_nothing_else)
{
	struct wire_message answer;
	struct agent_segment s;
	struct stat st;

	start_device(0);
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	set_faults("cuMemCreate die");
	agent_send(&agent, &make_vmm);
	cr_assert_not(agent_receive(&agent, &answer, NULL));
	cr_assert_eq(agent_wait(&agent), 1000 + SIGKILL);
	cr_assert_eq(fstat(s.fd, &st), 0);
	close(s.fd);
}

/* ------------------------------------------------------------------------------------------- */
/* What there is not enough of                                                                 */

Test(agent_failure, out_of_memory_is_an_answer_and_passes)
{
	struct wire_message answer;
	struct agent_segment s;
	int fd;

	standin_configure("memory=67108864");
	start_device(0);
	agent_make_segment(&agent, MEMORY_VMM, 48 * MIB, &s);
	agent_ask_failing(&agent, &make_vmm, SHARE_ENOMEM, false, "cuMemCreate",
			  "CUDA_ERROR_OUT_OF_MEMORY");
	agent_ask_failing(&agent, &make_mempool, SHARE_ENOMEM, false, "cuMemAllocFromPoolAsync",
			  "CUDA_ERROR_OUT_OF_MEMORY");
	agent_drop_segment(&agent, &s);
	agent_ask(&agent, &make_mempool, WIRE_AGENT_SEGMENT, &answer, &fd);
	close(fd);
	cr_assert_eq(agent_end(&agent), 0);
}

static uint64_t last_event(unsigned n)
{
	struct wire_message answer = {.type = WIRE_NOTHING};

	for (unsigned i = 0; i < n; i++)
		agent_ask(&agent, &make_event, WIRE_AGENT_EVENT, &answer, NULL);
	return answer.agent_event.handle;
}

Test(agent_failure, events_are_limited_and_those_of_the_dead_are_lost)
{
	struct wire_message destroy = {.type = WIRE_AGENT_EVENT_DESTROY}, answer;

	start_device(0);
	destroy.agent_event_destroy.handle = last_event(4096);
	agent_ask_failing(&agent, &make_event, SHARE_EQUOTA, false, "4096", "0 were lost");

	/* a driver that is asked about a wedged event hangs */
	set_faults("cuEventDestroy die");
	destroy.agent_event_destroy.wedged = 1;
	agent_ask(&agent, &destroy, WIRE_AGENT_DONE, &answer, NULL);
	agent_ask_failing(&agent, &make_event, SHARE_EQUOTA, false, "4096", "1 were lost");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, an_event_given_back_can_be_had_again)
{
	struct wire_message destroy = {.type = WIRE_AGENT_EVENT_DESTROY}, answer;

	start_device(0);
	destroy.agent_event_destroy.handle = last_event(4096);
	agent_ask(&agent, &destroy, WIRE_AGENT_DONE, &answer, NULL);
	last_event(1);
	agent_ask_failing(&agent, &make_event, SHARE_EQUOTA, false, "4096", "0 were lost");
	cr_assert_eq(agent_end(&agent), 0);
}

Test(agent_failure, a_driver_that_gives_fewer_events_is_believed)
{
	standin_configure("events=5");
	start_device(0);
	last_event(5);
	agent_ask_failing(&agent, &make_event, SHARE_ENOMEM, false, "cuEventCreate",
			  "CUDA_ERROR_OUT_OF_MEMORY");
	cr_assert_eq(agent_end(&agent), 0);
}

/* ------------------------------------------------------------------------------------------- */

/* Nobody is left who would kill it. */
Test(agent_failure, in_the_middle_of_a_call_it_ends_with_the_broker)
{
	start_device(0);
	set_faults("cuMemCreate hang");
	agent_send(&agent, &make_vmm);
	cr_assert_eq(agent_end(&agent), 0);
}
