/* SPDX-License-Identifier: MIT */

/*
 * libshare against its broker. The input is a program of calls (script.h) and the packets with
 * which a broker that may be anything answers them, descriptors included. The program must end
 * without harm, and nothing may be left behind.
 *
 * There is no broker: connect() makes a pair of sockets, and each packet that libshare sends has
 * the next packets of the input as its consequence; so has waiting for more. When the input is used
 * up, so is the broker. Nor does time pass, but for those who wait.
 *
 * An input is the number of calls, the calls, and records: a byte (bit 0: the next record comes
 * along with this one; the rest: how many descriptors), two bytes of size, a byte for each
 * descriptor, and the packet, but for its number: if WELCOME says so, each packet is sent with the
 * next one. A serial of all ones stands for the request's. With SCRIBBLE for the number of
 * descriptors it is what somebody writes into memory that was sent: a byte that says into which,
 * four that say where, and the bytes. With REPEAT the next packet has the number of the last one.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/channel_page.h"
#include "pages/timeline.h"
#include "tests/themes/fuzz/fuzz.h"
#include "tests/themes/fuzz/script.h"
#include "wire/packet.h"

#define CALLS_MAX     64
#define FILES_MAX     256
#define SEGMENT_SIZE  (64 << 20)
#define WAIT_MS       100
#define SAME_AS_ASKED 0xffffffff
#define SCRIBBLE      127
#define REPEAT        126
#define PATIENCE      30 /* so often a wait for something else than a timeline is let be */

/* A page of a channel is the same for all who are sent it. */
enum descriptor {
	A_SEGMENT,
	A_PAGE,
	A_LIVING_PROCESS,
	A_DEVICE,
	AN_EMPTY_FILE,
	A_DEAD_PROCESS,
	A_CONTROL_PAGE,
	A_DOORBELL,
	A_CHANNEL_PAGE = 16, /* and 15 more */
	CHANNEL_PAGES = 16,
};

static struct input in;
static int broker = -1; /* its end */
static uint32_t asked;  /* the last request's serial */
static unsigned char packet[WIRE_PACKET_MAX];
static bool numbered; /* as the last WELCOME has it */
static uint64_t last_number;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int files[FILES_MAX]; /* memory that was sent */
static bool is_of_channel[FILES_MAX];
static size_t n_files;
static unsigned waits;

/* As the last CHANNEL said that they are, and the last CHANNEL_MEMBERS that it is. */
static size_t channel_page_size;
static int channel_pages[CHANNEL_PAGES], control_page;

int __real_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __real_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);
int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
				  const struct timespec *until);
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
int __wrap_thread_start_detached(void *(*function)(void *data), void *data);

/* ------------------------------------------------------------------------------------------- */
/* Descriptors                                                                                 */

static int memory(size_t size, bool of_channel)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	expect(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	pthread_mutex_lock(&lock);
	if (n_files < FILES_MAX) {
		is_of_channel[n_files] = of_channel;
		files[n_files++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

/* The same again when there is one. */
static int same_memory(int *which, size_t size)
{
	if (*which <= 0)
		*which = memory(size, true);
	return fcntl(*which, F_DUPFD_CLOEXEC, 0);
}

static int doorbell(void)
{
	int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);

	expect(fd >= 0 && eventfd_write(fd, UINT64_C(1) << 63) == 0);
	return fd;
}

static int open_descriptor(enum descriptor what)
{
	if (what >= A_CHANNEL_PAGE)
		return same_memory(&channel_pages[what % CHANNEL_PAGES], channel_page_size);
	switch (what) {
	case A_SEGMENT:
		return memory(SEGMENT_SIZE, false);
	case A_PAGE:
		return memory(TIMELINE_PAGE_SIZE, false);
	case A_CONTROL_PAGE:
		return same_memory(&control_page, CHANNEL_CONTROL_SIZE);
	case A_DOORBELL:
		return doorbell();
	case A_LIVING_PROCESS:
		return (int)__real_syscall(SYS_pidfd_open, getpid(), 0, 0, 0, 0, 0);
	case AN_EMPTY_FILE:
		return memory(0, false);
	case A_DEAD_PROCESS: /* readable, as its pidfd would be */
	case A_DEVICE:
	default:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	}
}

/*
 * Nobody waits for ever in a fuzzer: whoever waits for a timeline is told at once that its owner is
 * dead. That is what a good broker does some time; a bad one would just be waited for. A page of a
 * channel has other words to wait for, unless it was sent as a timeline's.
 */
static void poison_all(void)
{
	struct timeline_page page = {0};

	for (size_t i = 0; i < TIMELINE_SLOTS; i++)
		page.slots[i].value = TIMELINE_POISON;
	pthread_mutex_lock(&lock);
	waits++;
	for (size_t i = 0; i < n_files; i++)
		if ((!is_of_channel[i] || waits > PATIENCE) &&
		    lseek(files[i], 0, SEEK_END) >= (off_t)sizeof(page))
			expect(pwrite(files[i], &page, sizeof(page), 0) == sizeof(page));
	pthread_mutex_unlock(&lock);
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	bool waits_for_many = false;

#ifdef SYS_futex_waitv
	waits_for_many = number == SYS_futex_waitv;
#endif
	if (!waits_for_many && (number != SYS_futex || b != FUTEX_WAIT))
		return __real_syscall(number, a, b, c, d, e, f);
	poison_all();
	clock_advance(WAIT_MS);
	errno = ETIMEDOUT;
	return -1;
}

/* A thread that nobody joins is one that waits, and waiting takes no time here. */
int __wrap_thread_start_detached(void *(*function)(void *data), void *data)
{
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

static void set_channel(const struct wire_channel *m)
{
	struct channel_shape shape;

	if (!m->shape.data || m->shape.size != CHANNEL_SHAPE_SENT)
		return;
	memcpy(&shape, m->shape.data, CHANNEL_SHAPE_SENT);
	shape.buffers = m->buffers;
	if (!channel_shape_is_valid(&shape))
		return;
	channel_page_size = channel_ring_size(&shape, m->layout);
	if (channel_page_size < channel_ledger_size(&shape))
		channel_page_size = channel_ledger_size(&shape);
}

/* Before its descriptors are made. */
static void look_at(size_t size, size_t n_fds)
{
	struct wire_message m;

	if (size < WIRE_HEADER_SIZE || wire_decode(&m, WIRE_TO_CLIENT, packet, size, n_fds) != 0)
		return;
	if (m.type == WIRE_WELCOME)
		numbered = true;
	if (m.type == WIRE_CHANNEL)
		set_channel(&m.channel);
	if (m.type == WIRE_CHANNEL_MEMBERS && control_page > 0)
		expect(pwrite(control_page, &m.channel_members.epoch, sizeof(uint32_t), 0) ==
		       sizeof(uint32_t));
}

static void scribble(const uint8_t *data, size_t size)
{
	uint32_t at;

	if (n_files == 0 || size <= 5)
		return;
	memcpy(&at, data + 1, sizeof(at));
	/* within the largest page there is: a file does not grow */
	at %= 1 << 16;
	for (size_t i = 0; i < n_files; i++) {
		size_t which = (data[0] + i) % n_files;

		if (lseek(files[which], 0, SEEK_END) < (off_t)(at + size))
			continue;
		expect(pwrite(files[which], data + 5, size - 5, at) == (ssize_t)(size - 5));
		return;
	}
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

static void send_to_client(size_t size, const uint8_t *kinds, size_t n_fds)
{
	int fds[WIRE_FDS_MAX];

	for (size_t i = 0; i < n_fds; i++)
		fds[i] = open_descriptor(kinds[i]);
	if (numbered)
		size = wire_put_number(packet, size, ++last_number);
	__real_packet_send(broker, packet, size, fds, n_fds, false);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
}

/* One record; whether the next belongs to it. */
static bool answer(void)
{
	uint8_t head = input_u8(&in), kinds[WIRE_FDS_MAX];
	uint16_t size = input_u16(&in);
	size_t n_fds = head >> 1 < WIRE_FDS_MAX ? head >> 1 : WIRE_FDS_MAX;
	const uint8_t *data;

	if (head >> 1 == SCRIBBLE || head >> 1 == REPEAT) {
		size = (uint16_t)input_bytes(&in, size, &data);
		if (head >> 1 == SCRIBBLE)
			scribble(data, size);
		else if (last_number > 0)
			last_number--;
		return head & 1;
	}
	for (size_t i = 0; i < n_fds; i++)
		kinds[i] = input_u8(&in);
	size = (uint16_t)input_bytes(&in, size, &data);
	if (size > 0) {
		memcpy(packet, data, size);
		mend(size);
		look_at(size, n_fds);
		send_to_client(size, kinds, n_fds);
	}
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

static void go_on(void)
{
	if (input_left(&in) > 0)
		answer();
	else
		broker = fd_close(broker);
}

/* Who would wait for an answer that does not come is sent the next one, whatever it is for. */
int __wrap_packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait)
{
	struct pollfd p = {.fd = socket, .events = POLLIN};

	while (wait && __real_poll(&p, 1, 0) == 0)
		go_on();
	return __real_packet_receive(socket, data, size, fds, wait);
}

/* Who waits for a doorbell, or for time to pass. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	int r = __real_poll(fds, n, 0);

	if (r != 0 || timeout == 0)
		return r;
	go_on();
	clock_advance(timeout > 0 && timeout < WAIT_MS ? timeout : WAIT_MS);
	return __real_poll(fds, n, 0);
}

/* There is nobody else who could change anything. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
				  const struct timespec *until)
{
	(void)condition, (void)mutex, (void)until;
	clock_advance(WAIT_MS);
	return ETIMEDOUT;
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
	numbered = false;
	last_number = 0;
	n = input_bytes(&in, input_u8(&in) % (CALLS_MAX + 1), &calls);
	if (share_connect("/a/socket", &c) == 0) {
		script_run(c, calls, n);
		share_disconnect(c);
	}
	broker = fd_close(broker);
	while (n_files > 0)
		fd_close(files[--n_files]);
	for (size_t i = 0; i < CHANNEL_PAGES; i++)
		channel_pages[i] = channel_pages[i] > 0 ? fd_close(channel_pages[i]) : -1;
	control_page = control_page > 0 ? fd_close(control_page) : -1;
	channel_page_size = waits = 0;
	clock_reset();
	expect(lowest_free_descriptor() == before);
	return 0;
}
