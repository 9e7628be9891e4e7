/* SPDX-License-Identifier: MIT */

#include "broker/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/process.h"
#include "broker/log/log.h"
#include "wire/packet.h"

#define ROOM_MAX (UINT32_C(1) << 20) /* descriptors */

/* So many brokers may end so soon, for no reason from outside, before it gives up. */
#define DEATHS_MAX    5
#define DEATHS_MS     30000
#define WAIT_FIRST_MS 100
#define WAIT_LAST_MS  10000

struct life {
	pid_t broker; /* 0: there is none */
	bool serves;
	int end;                     /* the signal by which it was told to end, 0: it was not */
	uint64_t deaths[DEATHS_MAX]; /* when, the last ones in a ring */
	unsigned n_deaths;
	unsigned wait_ms;
};

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP};

static void signals(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(set, forwarded[i]);
	sigaddset(set, SIGCHLD);
}

/* ------------------------------------------------------------------------------------------- */
/* What it keeps                                                                               */

static uint32_t first_free; /* no slot before it is free */

static uint32_t find_free(const struct kept_table *t)
{
	uint32_t n = atomic_load(&t->n);

	while (first_free < n && atomic_load(&t->slots[first_free].fd) >= 0)
		first_free++;
	return first_free;
}

static void let_go(struct kept_table *t, uint32_t id)
{
	struct kept_slot *k;
	int fd;

	if (id == 0 || id > atomic_load(&t->n))
		return;
	k = &t->slots[id - 1];
	fd = atomic_load(&k->fd);
	atomic_store(&k->fd, -1);
	if (k->address)
		munmap(k->address, k->size);
	k->address = NULL;
	if (id - 1 < first_free)
		first_free = id - 1;
	fd_close(fd);
}

static int keep_one(struct kept_table *t, uint32_t at, int fd, uint64_t size)
{
	struct kept_slot *k = &t->slots[at];

	if (at == t->room)
		return -EMFILE;
	k->address = NULL;
	k->size = size;
	if (size > 0) {
		/* a forked broker is to have it as well, so no MADV_DONTFORK */
		void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			return -errno;
		k->address = p;
	}
	atomic_store(&k->fd, fd);
	if (at == atomic_load(&t->n))
		atomic_store(&t->n, at + 1);
	return 0;
}

static int keep(struct kept_table *t, struct kept_message *m, struct fd_list *fds)
{
	int r = fds->n == m->n ? 0 : -EMFILE;

	for (uint32_t i = 0; r == 0 && i < m->n; i++) {
		uint32_t at = find_free(t);

		r = keep_one(t, at, fds->fds[i], m->sizes[i]);
		if (r == 0) {
			fds->fds[i] = -1;
			m->ids[i] = at + 1;
			continue;
		}
		while (i-- > 0)
			let_go(t, m->ids[i]);
		break;
	}
	return r;
}

static void drop(struct kept_table *t, const struct kept_message *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		let_go(t, m->ids[i]);
}

/* False: the broker has ended. */
static bool listen_to(struct keeper *k, struct life *life)
{
	struct kept_message m;
	size_t size = sizeof(m);
	struct fd_list fds;
	int r = packet_receive(k->broker, &m, &size, &fds, false);

	if (r == -EAGAIN)
		return true;
	if (r < 0)
		return false;
	r = size == sizeof(m) && m.n <= KEPT_AT_ONCE ? 0 : -EPROTO;
	if (r == 0 && m.word == KEPT_KEEP)
		r = keep(k->table, &m, &fds);
	else if (r == 0 && m.word == KEPT_DROP)
		drop(k->table, &m);
	else if (r == 0 && m.word == KEPT_SERVES)
		life->serves = true;
	fd_list_close(&fds);
	m.word = (uint32_t)-r;
	/* the broker waits for it: the kernel may have no memory for it yet */
	do
		r = packet_send(k->broker, &m, sizeof(m), NULL, 0, true);
	while ((r == -ENOBUFS || r == -ENOMEM) && usleep(1000) == 0);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* Its brokers                                                                                 */

static void become_broker(struct keeper *k, int socket, pid_t keeper)
{
	sigset_t set;

	/* who stops the service from a terminal means the keeper, which tells its broker */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(1);
	/* the others when its loop takes them: until then they wait (broker/ending.c) */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	prctl(PR_SET_NAME, "share-broker");
	k->broker = socket;
	kept_init(k->table, socket);
}

/* 0 in the broker; in the keeper its pid, or negative errno. */
static pid_t fork_broker(struct keeper *k)
{
	pid_t keeper = getpid(), pid;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	k->generation++;
	pid = fork();
	if (pid == 0) {
		fd_close(ends[0]);
		become_broker(k, ends[1], keeper);
		return 0;
	}
	fd_close(ends[1]);
	if (pid < 0) {
		fd_close(ends[0]);
		return -EAGAIN;
	}
	k->broker = ends[0];
	return pid;
}

static bool too_many_deaths(struct life *life)
{
	uint64_t now = clock_ms(), *oldest = &life->deaths[life->n_deaths % DEATHS_MAX];
	bool many = life->n_deaths >= DEATHS_MAX && now - *oldest < DEATHS_MS;

	*oldest = now;
	life->n_deaths++;
	return many;
}

/* True when there is to be no other one. */
static bool look_after(struct life *life, int status, int *result)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	bool again = WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_TRY_AGAIN;

	life->broker = 0;
	if (WIFEXITED(status) && !again) {
		*result = WEXITSTATUS(status);
		return true;
	}
	*result = 1;
	if (!life->serves && (killed || again))
		life->wait_ms = life->wait_ms ? life->wait_ms * 2 : WAIT_FIRST_MS;
	else
		life->wait_ms = 0;
	if (again && life->wait_ms > WAIT_LAST_MS) {
		log_error("no broker can take over what there was: giving up");
		return true;
	}
	if (life->wait_ms > WAIT_LAST_MS)
		life->wait_ms = WAIT_LAST_MS;
	if (again) {
		log_warning("a broker could not take over: the next one tries in %u ms",
			    life->wait_ms);
		return false;
	}
	if (!killed && too_many_deaths(life)) {
		log_error("the broker has died %d times in %d seconds (signal %d): giving up",
			  DEATHS_MAX + 1, DEATHS_MS / 1000, WTERMSIG(status));
		return true;
	}
	log_warning("the broker has died (signal %d): the next one goes on", WTERMSIG(status));
	return false;
}

static bool take_signal(int fd, struct life *life, int *status)
{
	struct signalfd_siginfo info;
	pid_t pid;
	int ended;

	if (read(fd, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo != SIGCHLD) {
		if (info.ssi_signo != SIGHUP)
			life->end = (int)info.ssi_signo;
		if (life->broker > 0)
			kill(life->broker, (int)info.ssi_signo);
		return false;
	}
	while ((pid = waitpid(-1, &ended, WNOHANG)) > 0)
		if (pid == life->broker)
			return look_after(life, ended, status);
	return false;
}

/* Less when there is a signal, which may say that there is to be no other broker. */
static void wait_for(unsigned ms, int signal_fd)
{
	struct pollfd fds = {signal_fd, POLLIN, 0};

	if (ms > 0)
		poll(&fds, 1, (int)ms);
}

/* KEEPER_NONE: this goes on, whether there is a broker now or is yet to be tried again. Ended when
 * it is told to end and there can be none to tell. */
static enum keeper_result start_broker(struct keeper *k, struct life *life, int signal_fd,
				       int *status)
{
	pid_t pid;

	k->broker = fd_close(k->broker);
	wait_for(life->wait_ms, signal_fd);
	life->serves = false;
	pid = fork_broker(k);
	if (pid == 0)
		return KEEPER_BROKER;
	if (pid < 0) {
		log_error("cannot fork a broker: %s", strerror(-pid));
		life->wait_ms = WAIT_FIRST_MS;
		take_signal(signal_fd, life, status);
		*status = 1;
		return life->end ? KEEPER_ENDED : KEEPER_NONE;
	}
	life->broker = pid;
	if (life->end)
		kill(pid, life->end);
	return KEEPER_NONE;
}

static enum keeper_result keep_brokers(struct keeper *k, int signal_fd, int *status)
{
	struct life life = {0};

	for (;;) {
		struct pollfd fds[] = {{signal_fd, POLLIN, 0}, {k->broker, POLLIN, 0}};

		if (life.broker == 0) {
			enum keeper_result r = start_broker(k, &life, signal_fd, status);

			if (r != KEEPER_NONE)
				return r;
			continue;
		}
		if (poll(fds, k->broker < 0 ? 1 : 2, -1) < 0)
			continue;
		if (fds[1].revents && !listen_to(k, &life))
			k->broker = fd_close(k->broker);
		if (fds[0].revents && take_signal(signal_fd, &life, status))
			return KEEPER_ENDED;
	}
}

static int make_table(struct keeper *k)
{
	struct rlimit limit = {.rlim_cur = ROOM_MAX};
	struct kept_table *t;
	size_t size;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur > ROOM_MAX)
		limit.rlim_cur = ROOM_MAX;
	size = sizeof(*t) + limit.rlim_cur * sizeof(struct kept_slot);
	t = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (t == MAP_FAILED)
		return -errno;
	t->room = (uint32_t)limit.rlim_cur;
	k->table = t;
	return 0;
}

enum keeper_result keeper_run(struct keeper *k, int listen_fd, int *status)
{
	_cleanup_fd_ int signal_fd = -1;
	sigset_t set, before;

	*k = (struct keeper){.journal = -1, .broker = -1};
	signals(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	k->journal = memfd_create("share-journal", MFD_CLOEXEC);
	if (signal_fd < 0 || k->journal < 0 || make_table(k) < 0 ||
	    keep_one(k->table, KEPT_LISTENER - 1, listen_fd, 0) < 0) {
		k->journal = fd_close(k->journal);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return KEEPER_NONE;
	}
	prctl(PR_SET_NAME, "share-keeper");
	if (!PROCESS_IS_INSTRUMENTED)
		process_hide();
	return keep_brokers(k, signal_fd, status);
}
