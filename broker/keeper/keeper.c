/* SPDX-License-Identifier: MIT */

#include "broker/keeper/inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/process.h"
#include "broker/keeper/module.h"
#include "broker/keeper/table.h"
#include "broker/log/log.h"
#include "wire/packet.h"

/* So many brokers may end so soon, for no reason from outside, before it gives up. */
#define DEATHS_MAX    5
#define DEATHS_MS     30000
#define WAIT_FIRST_MS 100
#define WAIT_LAST_MS  10000
/* No longer: who serves meanwhile waits for it, and so do all that it serves. */
#define REHEARSAL_MS 10000

#ifdef __SANITIZE_ADDRESS__
#define WITHOUT_LEAK_CHECK 1
#else
#define WITHOUT_LEAK_CHECK 0
#endif

struct keeping {
	struct keeper keeper; /* as the next broker gets it */
	const char *path;     /* of the module */
	int argc;
	char **argv;
	int signals;
	int module;        /* what brokers are made of */
	int module_before; /* the one before, until a broker of the new one serves; or -1 */
	int module_next;   /* that was found good, and is handed over to; or -1 */
	bool hands_over;

	pid_t broker;                /* 0: there is none */
	bool serves, has_served;     /* it; or any */
	int end;                     /* the signal by which it was told to end, 0: it was not */
	uint64_t deaths[DEATHS_MAX]; /* when, the last ones in a ring */
	unsigned n_deaths;
	unsigned wait_ms;
	int status; /* what this process is to end with */
};

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP};

static void handled_signals(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(set, forwarded[i]);
	sigaddset(set, SIGCHLD);
}

/* ------------------------------------------------------------------------------------------- */
/* Processes                                                                                   */

/* What is the keeper's and of no use to a broker. */
static void close_own(const struct keeping *k)
{
	fd_close(k->module);
	fd_close(k->module_before);
	fd_close(k->module_next);
	fd_close(k->signals);
}

/* In the child. SIGTERM and others wait until its loop takes them (broker/ending.c). */
static void __attribute__((noreturn)) become_broker(struct keeping *k, int module, pid_t keeper)
{
	keeper_main *program;
	sigset_t set;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(EXIT_FAILURE);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	prctl(PR_SET_NAME, "share-broker");
	program = module_load(module, k->path);
	close_own(k);
	r = program ? program(&k->keeper, k->argc, k->argv) : EXIT_FAILURE;
	/* What rehearses has half of what is somebody else's, and takes nothing down. And GCC 12's
	 * LeakSanitizer crashes at the end of a process that was forked and has loaded a module
	 * since.
	 */
	if (k->keeper.rehearses || WITHOUT_LEAK_CHECK) {
		fflush(NULL);
		_exit(r);
	}
	exit(r);
}

static int fork_broker(struct keeping *k)
{
	pid_t keeper = getpid(), pid;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	k->keeper.generation++;
	pid = fork();
	if (pid == 0) {
		fd_close(ends[0]);
		/* who stops the service from a terminal means the keeper, which tells its broker */
		setpgid(0, 0);
		k->keeper.broker = ends[1];
		become_broker(k, k->module, keeper);
	}
	fd_close(ends[1]);
	if (pid < 0) {
		k->keeper.generation--;
		fd_close(ends[0]);
		return -EAGAIN;
	}
	k->keeper.broker = ends[0];
	k->broker = pid;
	k->serves = k->hands_over = false;
	if (k->end)
		kill(pid, k->end);
	return 0;
}

/* Without an answer in time it is none. What it has said on stderr is the reason. */
static int wait_for_rehearsal(pid_t pid)
{
	_cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {pidfd, POLLIN, 0};
	int status, r;

	do
		r = poll(&ended, 1, REHEARSAL_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		return -ECHILD;
	if (r <= 0)
		return -ETIMEDOUT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECANCELED;
}

/* Of several lines the first one that is not empty. */
static void read_reason(int fd, char text[static KEPT_TEXT])
{
	ssize_t n = pread(fd, text, KEPT_TEXT - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static int rehearse(struct keeping *k, char why[static KEPT_TEXT])
{
	_cleanup_fd_ int module = module_open(k->path), said = -1;
	pid_t keeper = getpid(), pid;
	int r;

	why[0] = '\0';
	if (KEEPER_MAIN_SYMBOL) {
		snprintf(why, KEPT_TEXT, "this share-broker is one file, and takes a restart");
		return -ENOTSUP;
	}
	said = memfd_create("share-rehearsal", MFD_CLOEXEC);
	if (module < 0 || said < 0) {
		r = module < 0 ? module : -errno;
		snprintf(why, KEPT_TEXT, "%s: %s", k->path, strerror(-r));
		return r;
	}
	pid = fork();
	if (pid == 0) {
		dup2(said, STDOUT_FILENO);
		dup2(said, STDERR_FILENO);
		k->keeper.rehearses = true;
		k->keeper.generation++;
		become_broker(k, module, keeper);
	}
	r = pid < 0 ? -EAGAIN : wait_for_rehearsal(pid);
	if (r < 0) {
		read_reason(said, why);
		return r;
	}
	fd_close(k->module_next);
	k->module_next = module;
	module = -1;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* What its broker says                                                                        */

static bool is_own(const struct keeping *k, int fd)
{
	return fd == k->signals || fd == k->module || fd == k->keeper.journal ||
	       fd == k->keeper.broker || table_has(k->keeper.table, fd);
}

static int highest_own(const struct keeping *k)
{
	const struct kept_table *t = k->keeper.table;
	const int own[] = {k->signals, k->module, k->keeper.journal, k->keeper.broker};
	int highest = STDERR_FILENO;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i] > highest)
			highest = own[i];
	for (uint32_t i = 0; i < atomic_load(&t->n); i++)
		if (atomic_load(&t->slots[i].fd) > highest)
			highest = atomic_load(&t->slots[i].fd);
	return highest;
}

/* What this process was started with is the first broker's to keep or not: the socket, say, that it
 * is to listen on, which nobody is to find open when the broker has closed it. */
static void close_what_was_inherited(const struct keeping *k)
{
	int last = highest_own(k);

	for (int fd = STDERR_FILENO + 1; fd < last; fd++)
		if (!is_own(k, fd))
			close(fd);
	syscall(SYS_close_range, (unsigned)last + 1, ~0U, 0);
}

static void take_over(struct keeping *k)
{
	k->serves = true;
	if (!k->has_served)
		close_what_was_inherited(k);
	k->has_served = true;
	k->module_before = fd_close(k->module_before);
}

static int handle(struct keeping *k, struct kept_message *m, struct fd_list *fds)
{
	switch ((enum kept_word)m->word) {
	case KEPT_KEEP:
		return table_keep(k->keeper.table, m, fds);
	case KEPT_DROP:
		table_drop(k->keeper.table, m);
		return 0;
	case KEPT_SERVES:
		take_over(k);
		return 0;
	case KEPT_REHEARSE:
		return rehearse(k, m->text);
	case KEPT_HAND_OVER:
		k->hands_over = k->module_next >= 0;
		m->text[sizeof(k->keeper.version_before) - 1] = '\0';
		strcpy(k->keeper.version_before, m->text);
		return k->hands_over ? 0 : -ENOENT;
	default:
		return -EPROTO;
	}
}

/* False: the broker has ended. */
static bool listen_to_broker(struct keeping *k)
{
	_cleanup_fd_list_ struct fd_list fds = {.n = 0};
	struct kept_message m;
	size_t size = sizeof(m);
	int r = packet_receive(k->keeper.broker, &m, &size, &fds, false);

	if (r == -EPIPE)
		return false;
	if (r < 0 && r != -EMSGSIZE)
		return true; /* it is still there */
	if (r == 0)
		r = size == sizeof(m) && m.n <= KEPT_AT_ONCE ? handle(k, &m, &fds) : -EPROTO;
	else
		r = -EMFILE; /* there was no room for what came with it */
	m.word = (uint32_t)-r;
	/* the broker waits for it: the kernel may have no memory for it yet */
	do
		r = packet_send(k->keeper.broker, &m, sizeof(m), NULL, 0, true);
	while ((r == -ENOBUFS || r == -ENOMEM) && usleep(1000) == 0);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* How brokers end                                                                             */

static bool too_many_deaths(struct keeping *k)
{
	uint64_t now = clock_ms(), *oldest = &k->deaths[k->n_deaths % DEATHS_MAX];
	bool many = k->n_deaths >= DEATHS_MAX && now - *oldest < DEATHS_MS;

	*oldest = now;
	k->n_deaths++;
	return many;
}

/* The next broker is of that program; if it cannot, then of this one. */
static void change_module(struct keeping *k)
{
	k->module_before = k->module;
	k->module = k->module_next;
	k->module_next = -1;
	k->wait_ms = 0;
	k->keeper.before = KEEPER_HANDED_OVER;
}

static void fall_back(struct keeping *k)
{
	fd_close(k->module);
	k->module = k->module_before;
	k->module_before = -1;
	k->wait_ms = 0;
	k->keeper.before = KEEPER_FELL_BACK;
	log_error("the broker of the new program has ended before it served: the old one goes on");
}

/* One that crashes is no longer waited for than one that served: too_many_deaths() ends that. */
static void delay_next(struct keeping *k, bool may_get_better)
{
	if (k->serves || !may_get_better)
		k->wait_ms = 0;
	else
		k->wait_ms = k->wait_ms ? k->wait_ms * 2 : WAIT_FIRST_MS;
}

/* False: there is to be no other one. */
static bool look_after(struct keeping *k, int status)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	bool again = WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_TRY_AGAIN;

	k->broker = 0;
	k->keeper.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	if (k->hands_over) {
		change_module(k);
		return true;
	}
	if (k->module_before >= 0 && !killed) {
		fall_back(k);
		return true;
	}
	k->keeper.before = KEEPER_DIED;
	if (WIFEXITED(status) && !again) {
		k->status = WEXITSTATUS(status);
		return false;
	}
	k->status = EXIT_FAILURE;
	delay_next(k, killed || again);
	if (again && k->wait_ms > WAIT_LAST_MS) {
		log_error("no broker can take over what there was: giving up");
		return false;
	}
	if (k->wait_ms > WAIT_LAST_MS)
		k->wait_ms = WAIT_LAST_MS;
	if (again)
		log_warning("a broker could not take over: the next one tries in %u ms",
			    k->wait_ms);
	if (!again && !killed && too_many_deaths(k)) {
		log_error("the broker has died %d times in %d seconds (signal %d): giving up",
			  DEATHS_MAX + 1, DEATHS_MS / 1000, WTERMSIG(status));
		return false;
	}
	return true;
}

static bool collect(struct keeping *k)
{
	int status;
	pid_t pid;

	/* agents of brokers that have died among them */
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == k->broker && !look_after(k, status))
			return false;
	return true;
}

static bool take_signal(struct keeping *k)
{
	struct signalfd_siginfo info;

	if (read(k->signals, &info, sizeof(info)) != sizeof(info))
		return true;
	if (info.ssi_signo == SIGCHLD)
		return collect(k);
	if (info.ssi_signo != SIGHUP)
		k->end = (int)info.ssi_signo;
	if (k->broker > 0)
		kill(k->broker, (int)info.ssi_signo);
	return true;
}

/* ------------------------------------------------------------------------------------------- */

/* Less when there is a signal, which may say that there is to be no other broker. */
static void wait_for(const struct keeping *k)
{
	struct pollfd fds = {k->signals, POLLIN, 0};

	if (k->wait_ms > 0)
		poll(&fds, 1, (int)k->wait_ms);
}

/* False: it is told to end, and there can be no broker to tell. */
static bool start_next(struct keeping *k)
{
	int r;

	k->keeper.broker = fd_close(k->keeper.broker);
	wait_for(k);
	r = fork_broker(k);
	if (r == 0)
		return true;
	log_error("cannot fork a broker: %s", strerror(-r));
	k->wait_ms = WAIT_FIRST_MS;
	k->status = EXIT_FAILURE;
	take_signal(k);
	return k->end == 0;
}

static int keep_brokers(struct keeping *k)
{
	for (;;) {
		struct pollfd fds[] = {{k->signals, POLLIN, 0}, {k->keeper.broker, POLLIN, 0}};

		if (k->broker == 0) {
			if (!start_next(k))
				return k->status;
			continue;
		}
		if (poll(fds, k->keeper.broker < 0 ? 1 : 2, -1) < 0)
			continue;
		if (fds[1].revents && !listen_to_broker(k))
			k->keeper.broker = fd_close(k->keeper.broker);
		if (fds[0].revents && !take_signal(k))
			return k->status;
	}
}

/* Every client and every segment costs some (docs/operating.md): as many as may be had. What the
 * limit was before. */
static rlim_t raise_descriptor_limit(void)
{
	struct rlimit limit = {0};
	rlim_t before;

	getrlimit(RLIMIT_NOFILE, &limit);
	before = limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max;
	if (before < limit.rlim_max)
		setrlimit(RLIMIT_NOFILE, &limit);
	return before;
}

int keeper_run(const char *module, int argc, char **argv)
{
	struct keeping k = {.path = module,
			    .argc = argc,
			    .argv = argv,
			    .module_before = -1,
			    .module_next = -1,
			    .keeper = {.broker = -1, .pid = getpid()}};
	sigset_t set;

	k.keeper.descriptors_before = raise_descriptor_limit();
	handled_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	k.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	k.module = module_open(module);
	k.keeper.journal = memfd_create("share-journal", MFD_CLOEXEC);
	k.keeper.table = table_new();
	if (k.signals < 0 || k.module < 0 || k.keeper.journal < 0 || !k.keeper.table) {
		log_error("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	prctl(PR_SET_NAME, "share-keeper");
	/* agents outlive the broker that has started them */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!PROCESS_IS_INSTRUMENTED)
		process_hide();
	return keep_brokers(&k);
}
