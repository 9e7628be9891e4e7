/* SPDX-License-Identifier: MIT */

/*
 * libshare against its broker. The input is a program of calls (script.h) and the packets with
 * which a broker that may be anything answers them, descriptors included. The program must end
 * without harm, and nothing may be left behind.
 *
 * There is no broker: connect() makes a pair of sockets, and each packet that libshare sends has
 * the next packets of the input as its consequence; so has waiting for more. When the input is used
 * up, so is the broker.
 *
 * An input is the number of calls, the calls, and records: a byte (bit 0: the next record comes
 * along with this one; the rest: how many descriptors), two bytes of size, a byte for each
 * descriptor, and the packet. A serial of all ones stands for the request's.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/script.h"
#include "wire/packet.h"
#include "wire/timeline.h"

#define CALLS_MAX     64
#define FILES_MAX     256
#define SEGMENT_SIZE  (64 << 20)
#define WAIT_MS       100
#define SAME_AS_ASKED 0xffffffff

enum descriptor { A_SEGMENT, A_PAGE, A_LIVING_PROCESS, A_DEVICE, AN_EMPTY_FILE, A_DEAD_PROCESS };

static struct input in;
static int broker = -1; /* its end */
static uint32_t asked;  /* the last request's serial */
static unsigned char packet[WIRE_PACKET_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int files[FILES_MAX]; /* memory that was sent */
static size_t n_files;

int __real_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __real_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);
int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
			  void *(*function)(void *), void *data);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
			  void *(*function)(void *), void *data);

/* ------------------------------------------------------------------------------------------- */
/* Descriptors                                                                                 */

static int memory(off_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	expect(fd >= 0 && ftruncate(fd, size) == 0);
	pthread_mutex_lock(&lock);
	if (n_files < FILES_MAX)
		files[n_files++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&lock);
	return fd;
}

static int open_descriptor(enum descriptor what)
{
	switch (what) {
	case A_SEGMENT:
		return memory(SEGMENT_SIZE);
	case A_PAGE:
		return memory(TIMELINE_PAGE_SIZE);
	case A_LIVING_PROCESS:
		return (int)__real_syscall(SYS_pidfd_open, getpid(), 0, 0, 0, 0, 0);
	case AN_EMPTY_FILE:
		return memory(0);
	case A_DEAD_PROCESS: /* readable, as its pidfd would be */
	case A_DEVICE:
	default:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	}
}

/*
 * Nobody waits for ever in a fuzzer: whoever waits for a timeline is told at once that its owner is
 * dead. That is what a good broker does some time; a bad one would just be waited for.
 */
static void poison_all(void)
{
	struct timeline_page page = {0};

	for (size_t i = 0; i < TIMELINE_SLOTS; i++)
		page.slots[i].value = TIMELINE_POISON;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_files; i++)
		if (lseek(files[i], 0, SEEK_END) >= (off_t)sizeof(page))
			expect(pwrite(files[i], &page, sizeof(page), 0) == sizeof(page));
	pthread_mutex_unlock(&lock);
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number != SYS_futex || b != FUTEX_WAIT)
		return __real_syscall(number, a, b, c, d, e, f);
	poison_all();
	clock_advance(WAIT_MS);
	errno = ETIMEDOUT;
	return -1;
}

/* A thread that nobody joins is one that waits, and waiting takes no time here. */
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
			  void *(*function)(void *), void *data)
{
	int state = PTHREAD_CREATE_JOINABLE;

	if (attributes)
		pthread_attr_getdetachstate(attributes, &state);
	if (state == PTHREAD_CREATE_JOINABLE)
		return __real_pthread_create(out, attributes, function, data);
	function(data);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* The broker                                                                                  */

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	int pair[2];

	(void)address, (void)size;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	expect(dup3(pair[0], fd, O_CLOEXEC) == fd);
	fd_close(pair[0]);
	broker = pair[1];
	return 0;
}

/* A fence beyond the poison is never reached, not even by the owner's death. */
static void mend(size_t size)
{
	uint32_t serial;
	struct wire_message m;

	if (size < WIRE_HEADER_SIZE)
		return;
	memcpy(&serial, packet + 4, sizeof(serial));
	if (serial == SAME_AS_ASKED)
		memcpy(packet + 4, &asked, sizeof(asked));
	if (wire_decode(&m, WIRE_TO_CLIENT, packet, size, 1) == WIRE_E_TRUNCATED ||
	    m.type != WIRE_GRANT || !m.grant.fences.data)
		return;
	for (uint32_t at = 8; at + 8 <= m.grant.fences.size; at += 16)
		((unsigned char *)(uintptr_t)m.grant.fences.data)[at + 7] &= 0x3f;
}

/* One record; whether the next belongs to it. */
static bool answer(void)
{
	uint8_t head = input_u8(&in);
	uint16_t size = input_u16(&in);
	int fds[WIRE_FDS_MAX];
	size_t n_fds = head >> 1 < WIRE_FDS_MAX ? head >> 1 : WIRE_FDS_MAX;
	const uint8_t *data;

	for (size_t i = 0; i < n_fds; i++)
		fds[i] = open_descriptor(input_u8(&in));
	size = (uint16_t)input_bytes(&in, size, &data);
	if (size > 0) {
		memcpy(packet, data, size);
		mend(size);
		__real_packet_send(broker, packet, size, fds, n_fds, false);
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
	return head & 1;
}

int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait)
{
	(void)socket, (void)fds, (void)n_fds, (void)wait;
	expect(size >= WIRE_HEADER_SIZE);
	if (input_left(&in) == 0) {
		broker = fd_close(broker);
		return -EPIPE;
	}
	memcpy(&asked, (const char *)data + 4, sizeof(asked));
	while (answer() && input_left(&in) > 0)
		;
	return 0;
}

/* Who would wait for an answer that does not come is sent the next one, whatever it is for. */
int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait)
{
	struct pollfd p = {.fd = socket, .events = POLLIN};

	while (wait && poll(&p, 1, 0) == 0) {
		if (input_left(&in) > 0)
			answer();
		else
			broker = fd_close(broker);
	}
	return __real_packet_receive(socket, data, size, fds, wait);
}

/* ------------------------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int before = lowest_free_descriptor();
	const uint8_t *calls;
	share_client *c;
	size_t n;

	in = (struct input){data, data + size};
	n = input_bytes(&in, input_u8(&in) % (CALLS_MAX + 1), &calls);
	if (share_connect("/a/socket", &c) == 0) {
		script_run(c, calls, n);
		share_disconnect(c);
	}
	broker = fd_close(broker);
	while (n_files > 0)
		fd_close(files[--n_files]);
	clock_reset();
	expect(lowest_free_descriptor() == before);
	return 0;
}
