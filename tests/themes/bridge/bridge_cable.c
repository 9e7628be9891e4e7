/* SPDX-License-Identifier: MIT */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/check.h"
#include "tests/themes/bridge/bridge_cable.h"

#define PACKET_MAX  1500
#define WAITING_MAX 1024 /* packets; what comes when so many wait is dropped, as in a router */

struct packet {
	uint64_t due_ns;
	size_t size;
	unsigned char bytes[PACKET_MAX];
};

struct direction {
	int from, to;     /* TUN devices */
	uint64_t free_ns; /* when what was let in before has passed, at this rate */
	unsigned first, n;
	struct packet waiting[WAITING_MAX];
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint32_t one_of_a_million(void)
{
	static uint64_t x = 88172645463325252;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x % 1000000);
}

/* One packet comes out of a device. It waits for those before it, for its own time at this rate,
 * and for the delay. */
static void let_in(struct direction *d, struct cable_state *state)
{
	uint32_t rate = state->bytes_per_ms;
	uint64_t now = clock_ns();
	unsigned char bytes[PACKET_MAX];
	ssize_t size = read(d->from, bytes, sizeof(bytes));
	struct packet *p;

	if (size <= 0)
		return;
	if (state->cut || d->n == WAITING_MAX || one_of_a_million() < state->lost) {
		state->dropped++;
		return;
	}
	if (d->free_ns < now)
		d->free_ns = now;
	if (rate)
		d->free_ns += (uint64_t)size * 1000000 / rate;
	p = &d->waiting[(d->first + d->n++) % WAITING_MAX];
	p->due_ns = d->free_ns + state->delay_us * UINT64_C(1000);
	p->size = (size_t)size;
	memcpy(p->bytes, bytes, p->size);
}

/* What is due. A device that takes none at this moment drops it. Returns when the next one is. */
static uint64_t let_out(struct direction *d, struct cable_state *state)
{
	while (d->n > 0) {
		struct packet *p = &d->waiting[d->first];

		if (p->due_ns > clock_ns())
			return p->due_ns;
		if (write(d->to, p->bytes, p->size) == (ssize_t)p->size)
			state->carried++;
		else
			state->dropped++;
		d->first = (d->first + 1) % WAITING_MAX;
		d->n--;
	}
	return UINT64_MAX;
}

static void carry(struct direction *directions, struct cable_state *state)
{
	for (;;) {
		uint64_t next = UINT64_MAX, now;
		struct pollfd fds[2];
		struct timespec in;

		for (int i = 0; i < 2; i++) {
			uint64_t due = let_out(&directions[i], state);

			next = due < next ? due : next;
			fds[i] = (struct pollfd){.fd = directions[i].from, .events = POLLIN};
		}
		now = clock_ns();
		next = next == UINT64_MAX || next < now ? 0 : next - now;
		in = (struct timespec){(time_t)(next / 1000000000), (long)(next % 1000000000)};
		if (ppoll(fds, 2, directions[0].n + directions[1].n > 0 ? &in : NULL, NULL) < 0 &&
		    errno != EINTR)
			return;
		for (int i = 0; i < 2; i++)
			if (fds[i].revents)
				let_in(&directions[i], state);
	}
}

/* The address or netmask of a device, for ioctl(). */
static bool set_address(int s, struct ifreq *r, unsigned long what, const char *address)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};

	memcpy(&r->ifr_addr, &in, sizeof(in));
	return ioctl(s, what, r) == 0;
}

static bool set_up(int s, struct ifreq *r)
{
	r->ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(s, SIOCSIFFLAGS, r) == 0;
}

/* A new network, of which the calling thread is a part afterwards, with a device "cable" of this
 * address. Its TUN descriptor, or -1. */
static int make_network(const char *address)
{
	struct ifreq r = {.ifr_name = "cable"}, lo = {.ifr_name = "lo"};
	int s, tun;

	if (unshare(CLONE_NEWNET) != 0)
		return -1;
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	r.ifr_flags = IFF_TUN | IFF_NO_PI;
	if (s < 0 || tun < 0 || ioctl(tun, TUNSETIFF, &r) != 0 ||
	    !set_address(s, &r, SIOCSIFADDR, address) ||
	    !set_address(s, &r, SIOCSIFNETMASK, "255.255.255.252") || !set_up(s, &r) ||
	    !set_up(s, &lo)) {
		if (tun >= 0)
			close(tun);
		tun = -1;
	}
	if (s >= 0)
		close(s);
	return tun;
}

static int own_network(void)
{
	return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

bool cable_is_possible(void)
{
	pid_t pid = fork();
	int status;

	check(pid >= 0);
	if (pid == 0) {
		if (make_network(CABLE_FAR) < 0)
			_exit(1);
		cable_enter(own_network()); /* containers may refuse to mount alone */
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

void cable_start(struct cable *c)
{
	struct direction *directions = calloc(2, sizeof(*directions));
	int before = own_network(), tuns[2];
	pid_t test = getpid();

	*c = (struct cable){.state = mmap(NULL, sizeof(*c->state), PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
	check(directions && before >= 0 && c->state != MAP_FAILED);
	check((tuns[0] = make_network(CABLE_FAR)) >= 0);
	c->far_network = own_network();
	check((tuns[1] = make_network(CABLE_NEAR)) >= 0);
	c->near_network = own_network();
	check(setns(before, CLONE_NEWNET) == 0 && c->far_network >= 0 && c->near_network >= 0);
	for (int i = 0; i < 2; i++) {
		directions[i].from = tuns[i];
		directions[i].to = tuns[!i];
	}
	c->pid = fork();
	check(c->pid >= 0);
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != test) /* it has died before that */
			_exit(1);
		carry(directions, c->state);
		_exit(1);
	}
	close(tuns[0]);
	close(tuns[1]);
	close(before);
	free(directions);
}

void cable_stop(struct cable *c)
{
	check(kill(c->pid, SIGKILL) == 0 && waitpid(c->pid, NULL, 0) == c->pid);
	close(c->far_network);
	close(c->near_network);
	munmap(c->state, sizeof(*c->state));
}

void cable_enter(int network)
{
	if (setns(network, CLONE_NEWNET) != 0 || unshare(CLONE_NEWNS) != 0 ||
	    mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) != 0 ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL) != 0) {
		perror("a network of its own");
		_exit(127);
	}
}
