/* SPDX-License-Identifier: MIT */

/*
 * The second process of a test, by fork: so it has to be started before the first CUDA call.
 */

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/standin/peer.h"

void check_cuda(const char *file, int line, const char *call, CUresult got, CUresult wanted)
{
	const char *got_name = NULL, *name = NULL;

	if (got == wanted)
		return;
	cuGetErrorName(got, &got_name);
	cuGetErrorName(wanted, &name);
	fprintf(stderr, "%s:%d: %s: %s (%d), not %s\n", file, line, call, got_name, got, name);
	abort();
}

struct peer peer_start(void (*run)(int channel))
{
	pid_t parent = getpid(), pid;
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(pair[0]);
		run(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	return (struct peer){.pid = pid, .channel = pair[0]};
}

int peer_wait(struct peer *p)
{
	int status;

	CHECK(waitpid(p->pid, &status, 0) == p->pid);
	close(p->channel);
	return status;
}

void peer_kill(struct peer *p)
{
	kill(p->pid, SIGKILL);
	peer_wait(p);
}

void peer_finish(struct peer *p)
{
	int status = peer_wait(p);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What pause() is to the kernel. */
static bool is_pause(long number)
{
#ifdef SYS_pause
	return number == SYS_pause;
#else
	return number == SYS_ppoll;
#endif
}

void peer_until_it_hangs(const struct peer *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/syscall", p->pid);
	for (;;) {
		FILE *f = fopen(path, "re");
		long number = -1;
		siginfo_t ended = {0};

		CHECK(f);
		if (fscanf(f, "%ld", &number) != 1)
			number = -1; /* "running" */
		fclose(f);
		if (is_pause(number))
			return;
		CHECK(waitid(P_PID, (id_t)p->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		      !ended.si_pid);
		usleep(1000);
	}
}

void peer_send(int channel, const struct packet *p, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct packet copy = *p;
	struct iovec bytes = {.iov_base = &copy, .iov_len = sizeof(copy)};
	struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1};

	if (fd >= 0) {
		m.msg_control = control.space;
		m.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	CHECK(sendmsg(channel, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(copy));
}

void peer_receive(int channel, struct packet *p, int *fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec bytes = {.iov_base = p, .iov_len = sizeof(*p)};
	struct msghdr m = {.msg_iov = &bytes,
			   .msg_iovlen = 1,
			   .msg_control = control.space,
			   .msg_controllen = sizeof(control.space)};

	CHECK(recvmsg(channel, &m, MSG_CMSG_CLOEXEC) == (ssize_t)sizeof(*p));
	CHECK((m.msg_controllen > 0) == (fd != NULL));
	if (fd)
		memcpy(fd, CMSG_DATA(&control.header), sizeof(*fd));
}

void use_context(void)
{
	CUcontext context;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
}

CUmemAllocationProp vmm_properties(int ordinal)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
	};
}

CUmemAccessDesc access_for(int ordinal, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
	    .flags = flags,
	};
}

CUmemGenericAllocationHandle vmm_create(uint64_t size)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;

	MUST(cuMemCreate(&handle, size, &properties, 0));
	return handle;
}

int vmm_export(CUmemGenericAllocationHandle handle)
{
	int fd;

	MUST(
	    cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return fd;
}

CUmemGenericAllocationHandle vmm_import(int fd)
{
	CUmemGenericAllocationHandle handle;

	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return handle;
}

CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, uint64_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = access_for(0, flags);
	CUdeviceptr p;

	MUST(cuMemAddressReserve(&p, size, 0, 0, 0));
	MUST(cuMemMap(p, size, 0, handle, 0));
	MUST(cuMemSetAccess(p, size, &access, 1));
	return p;
}

CUmemoryPool pool_create(uint64_t most)
{
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	    .maxSize = most,
	};
	CUmemoryPool pool;

	MUST(cuMemPoolCreate(&pool, &properties));
	return pool;
}

uint64_t device_free(void)
{
	size_t bytes, total;

	MUST(cuMemGetInfo(&bytes, &total));
	return bytes;
}

unsigned char byte_at(CUdeviceptr p)
{
	unsigned char byte;

	MUST(cuMemcpyDtoH(&byte, p, 1));
	return byte;
}

void set_byte(CUdeviceptr p, unsigned char value)
{
	MUST(cuMemcpyHtoD(p, &value, 1));
}

_Atomic uint64_t *cells(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

void *plain(_Atomic uint64_t *page)
{
	return (void *)(uintptr_t)page;
}

void use_page(_Atomic uint64_t *page)
{
	MUST(cuMemHostRegister(plain(page), PAGE, 0));
}

CUstream stream_create(void)
{
	CUstream s;

	MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}
