/* SPDX-License-Identifier: MIT */

#include "broker/keeper/inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/mutation.h"
#include "base/process.h"
#include "broker/keeper/deputy.h"
#include "broker/keeper/module.h"
#include "broker/keeper/table.h"
#include "broker/log/log.h"
#include "broker/log/sink.h"
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

/* Its own descriptors, besides those that it keeps. */
enum own {
	OWN_SIGNALS,
	OWN_LOG,
	OWN_SELF,          /* a pidfd of this process, for its deputy */
	OWN_MODULE,        /* what brokers are made of */
	OWN_MODULE_BEFORE, /* the one before, until a broker of the new one serves */
	OWN_MODULE_NEXT,   /* that was found good, and is handed over to */
	OWN_JOURNAL,
	OWN_SOCKET, /* to the broker */
	OWN_BROKER, /* a pidfd of it */
	N_OWN
};

/* A keeper may be killed at any instruction, and its deputy goes on. So there are two of these, one
 * of which counts (now). Whatever happens is done to a copy, which counts instead from one store
 * on; and a descriptor is closed only when it is in neither. What a keeper that died had begun then
 * did not happen: descriptors that it had opened are closed, a broker that it had forked ends,
 * and what it was asked it is asked again. */
struct state {
	struct keeper keeper; /* as the next broker gets it */
	int own[N_OWN];       /* -1: there is none */
	bool is_over;
	bool hands_over;

	pid_t broker;                /* 0: there is none */
	bool serves, has_served;     /* it; or any */
	int end;                     /* the signal by which it was told to end, 0: it was not */
	uint64_t deaths[DEATHS_MAX]; /* when, the last ones in a ring */
	unsigned n_deaths;
	unsigned wait_ms;
	int status; /* what this process is to end with */

	enum { SAYS_NOTHING, SAYS_IT_IS_THERE, SAYS_ANSWER } says; /* once this state counts */
	struct kept_message answer;                                /* the last one */
};

static struct {
	const char *path; /* of the module */
	int argc;
	char **argv;
	struct state states[2];
	atomic_uint now; /* the one that counts */
} keeping;

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP};

static void handled_signals(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(set, forwarded[i]);
	sigaddset(set, SIGCHLD);
}

static struct kept_table *table(void)
{
	return keeping.states[keeping.now].keeper.table;
}

/* ------------------------------------------------------------------------------------------- */
/* States                                                                                      */

static bool is_own(const struct state *s, int fd)
{
	for (int i = 0; i < N_OWN; i++)
		if (s->own[i] == fd)
			return true;
	return false;
}

/* From now on @s counts. */
static void commit(const struct state *s)
{
	unsigned before = keeping.now;

	keeping.states[!before] = *s;
	keeping.now = !before;
	for (int i = 0; i < N_OWN; i++)
		if (keeping.states[before].own[i] >= 0 && !is_own(s, keeping.states[before].own[i]))
			fd_close(keeping.states[before].own[i]);
}

/* What this process was started with is the first broker's to keep or not: the socket, say, that it
 * is to listen on, which nobody is to find open when the broker has closed it. And what a keeper
 * that has died had just opened is nobody's. */
static void close_all_but_own(const struct state *s)
{
	const struct kept_table *t = s->keeper.table;
	int last = STDERR_FILENO;

	for (int i = 0; i < N_OWN; i++)
		if (s->own[i] > last)
			last = s->own[i];
	for (uint32_t i = 0; i < atomic_load(&t->n); i++)
		if (atomic_load(&t->slots[i].fd) > last)
			last = atomic_load(&t->slots[i].fd);
	for (int fd = STDERR_FILENO + 1; fd < last; fd++)
		if (!is_own(s, fd) && !table_has(t, fd))
			close(fd);
	syscall(SYS_close_range, (unsigned)last + 1, ~0U, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Processes                                                                                   */

/* The keeper first writes down that there is this broker. If it dies before, its deputy does not
 * know of it, and starts another one. */
static void wait_until_known(int socket)
{
	struct kept_message m;
	struct fd_list none;
	size_t size = sizeof(m);
	int r;

	do
		r = packet_receive(socket, &m, &size, &none, true);
	while (r == -EINTR || r == -ENOMEM || r == -ENOBUFS);
	if (r < 0)
		_exit(EXIT_FAILURE);
}

/* In the child, with its keeper as it gets it. SIGTERM and others wait until its loop takes them
 * (broker/ending.c). */
static void __attribute__((noreturn)) become_broker(struct state *s, int module)
{
	keeper_main *program;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	prctl(PR_SET_NAME, "share-broker");
	program = module_load(module, keeping.path);
	/* what is the keeper's and of no use to a broker */
	for (int i = 0; i < N_OWN; i++)
		if (i != OWN_JOURNAL && (i != OWN_LOG || !KEEPER_MAIN_SYMBOL))
			fd_close(s->own[i]);
	if (!s->keeper.rehearses && !MUTATION(begins_unknown))
		wait_until_known(s->keeper.broker);
	r = program ? program(&s->keeper, keeping.argc, keeping.argv) : EXIT_FAILURE;
	/* What rehearses has half of what is somebody else's, and takes nothing down. And GCC 12's
	 * LeakSanitizer crashes at the end of a process that was forked and has loaded a module
	 * since.
	 */
	if (s->keeper.rehearses || WITHOUT_LEAK_CHECK) {
		fflush(NULL);
		_exit(r);
	}
	atomic_store(&s->keeper.table->ended, r);
	exit(r);
}

static int fork_broker(struct state *s)
{
	int ends[2], pidfd;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	s->keeper.generation++;
	s->keeper.serial = s->answer.serial;
	atomic_store(&s->keeper.table->ended, -1);
	pid = fork();
	if (pid == 0) {
		fd_close(ends[0]);
		/* who stops the service from a terminal means the keeper, which tells its broker */
		setpgid(0, 0);
		s->keeper.broker = ends[1];
		become_broker(s, s->own[OWN_MODULE]);
	}
	fd_close(ends[1]);
	pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) { /* a child that there is ends, as nobody says that it may begin */
		s->keeper.generation--;
		fd_close(ends[0]);
		return -EAGAIN;
	}
	s->own[OWN_SOCKET] = ends[0];
	s->own[OWN_BROKER] = pidfd;
	s->broker = pid;
	s->serves = s->hands_over = false;
	s->says = SAYS_IT_IS_THERE;
	if (s->end)
		kill(pid, s->end);
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

static void __attribute__((noreturn))
become_rehearsal(struct state *s, int module, int said, pid_t keeper)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(EXIT_FAILURE);
	dup2(said, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	s->keeper.rehearses = true;
	s->keeper.generation++;
	become_broker(s, module);
}

static int rehearse(struct state *s, char why[static KEPT_TEXT])
{
	_cleanup_fd_ int module = module_open(keeping.path), said = -1;
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
		snprintf(why, KEPT_TEXT, "%s: %s", keeping.path, strerror(-r));
		return r;
	}
	pid = fork();
	if (pid == 0)
		become_rehearsal(s, module, said, keeper);
	r = pid < 0 ? -EAGAIN : wait_for_rehearsal(pid);
	if (r < 0) {
		read_reason(said, why);
		return r;
	}
	s->own[OWN_MODULE_NEXT] = module;
	module = -1;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* What its broker says                                                                        */

static void has_taken_over(struct state *s)
{
	s->serves = true;
	if (!s->has_served)
		close_all_but_own(s);
	s->has_served = true;
	s->own[OWN_MODULE_BEFORE] = -1;
}

static int handle(struct state *s, struct kept_message *m, struct fd_list *fds)
{
	switch ((enum kept_word)m->word) {
	case KEPT_KEEP:
		return table_keep(s->keeper.table, m, fds);
	case KEPT_DROP:
		table_drop(s->keeper.table, m);
		return 0;
	case KEPT_SERVES:
		has_taken_over(s);
		return 0;
	case KEPT_REHEARSE:
		return rehearse(s, m->text);
	case KEPT_HAND_OVER:
		s->hands_over = s->own[OWN_MODULE_NEXT] >= 0;
		m->text[sizeof(s->keeper.version_before) - 1] = '\0';
		strcpy(s->keeper.version_before, m->text);
		return s->hands_over ? 0 : -ENOENT;
	default:
		return -EPROTO;
	}
}

/* What was asked twice, as a keeper died in between, has its answer already. */
static void listen_to_broker(struct state *s)
{
	_cleanup_fd_list_ struct fd_list fds = {.n = 0};
	struct kept_message m;
	size_t size = sizeof(m);
	int r = packet_receive(s->own[OWN_SOCKET], &m, &size, &fds, false);

	if (r == -EPIPE)
		s->own[OWN_SOCKET] = -1;
	if (r < 0 && r != -EMSGSIZE)
		return;
	s->says = SAYS_ANSWER;
	if (size == sizeof(m) && m.serial == s->answer.serial && !MUTATION(asked_twice_done_twice))
		return;
	if (r == 0)
		r = size == sizeof(m) && m.n <= KEPT_AT_ONCE ? handle(s, &m, &fds) : -EPROTO;
	else
		r = -EMFILE; /* there was no room for what came with it */
	m.word = (uint32_t)-r;
	s->answer = m;
}

/* The broker waits for it: the kernel may have no memory for it yet. */
static void speak(const struct state *s)
{
	static const struct kept_message it_is_there = {.serial = 0};
	const struct kept_message *m = s->says == SAYS_ANSWER ? &s->answer : &it_is_there;
	int r;

	if (s->says == SAYS_NOTHING || s->own[OWN_SOCKET] < 0)
		return;
	do
		r = packet_send(s->own[OWN_SOCKET], m, sizeof(*m), NULL, 0, true);
	while ((r == -ENOBUFS || r == -ENOMEM) && usleep(1000) == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* How brokers end                                                                             */

struct end {
	bool by_itself; /* else it was killed, or has crashed */
	int code;       /* what it has ended with by itself */
	int signal;     /* that it has died of; 0: nobody knows */
};

static struct end end_of_child(int status)
{
	return (struct end){.by_itself = WIFEXITED(status),
			    .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
			    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

/* Of one that an earlier keeper has forked the kernel says nothing but that it has ended. */
static struct end end_of_other(const struct kept_table *t)
{
	int code = atomic_load(&t->ended);

	return (struct end){.by_itself = code >= 0, .code = code};
}

static bool too_many_deaths(struct state *s)
{
	uint64_t now = clock_ms(), *oldest = &s->deaths[s->n_deaths % DEATHS_MAX];
	bool many = s->n_deaths >= DEATHS_MAX && now - *oldest < DEATHS_MS;

	*oldest = now;
	s->n_deaths++;
	return many;
}

/* The next broker is of that program; if it cannot, then of this one. */
static void change_module(struct state *s)
{
	s->own[OWN_MODULE_BEFORE] = s->own[OWN_MODULE];
	s->own[OWN_MODULE] = s->own[OWN_MODULE_NEXT];
	s->own[OWN_MODULE_NEXT] = -1;
	s->wait_ms = 0;
	s->keeper.before = KEEPER_HANDED_OVER;
}

static void fall_back(struct state *s)
{
	s->own[OWN_MODULE] = s->own[OWN_MODULE_BEFORE];
	s->own[OWN_MODULE_BEFORE] = -1;
	s->wait_ms = 0;
	s->keeper.before = KEEPER_FELL_BACK;
	log_error("the broker of the new program has ended before it served: the old one goes on");
}

/* One that crashes is no longer waited for than one that served: too_many_deaths() ends that. */
static void delay_next(struct state *s, bool may_get_better)
{
	if (s->serves || !may_get_better)
		s->wait_ms = 0;
	else
		s->wait_ms = s->wait_ms ? s->wait_ms * 2 : WAIT_FIRST_MS;
}

/* False: there is to be no other one. */
static bool follow(struct state *s, const struct end *end)
{
	bool again = end->by_itself && end->code == KEEPER_TRY_AGAIN;
	bool killed = !end->by_itself && (end->signal == SIGKILL || end->signal == 0);

	s->keeper.signal = end->signal;
	if (s->hands_over) {
		change_module(s);
		return true;
	}
	if (s->own[OWN_MODULE_BEFORE] >= 0 && !killed) {
		fall_back(s);
		return true;
	}
	s->keeper.before = KEEPER_DIED;
	if (end->by_itself && !again) {
		s->status = end->code;
		return false;
	}
	s->status = EXIT_FAILURE;
	delay_next(s, killed || again);
	if (again && s->wait_ms > WAIT_LAST_MS) {
		log_error("no broker can take over what there was: giving up");
		return false;
	}
	if (s->wait_ms > WAIT_LAST_MS)
		s->wait_ms = WAIT_LAST_MS;
	if (again)
		log_warning("a broker could not take over: the next one tries in %u ms",
			    s->wait_ms);
	if (!again && !killed && too_many_deaths(s)) {
		log_error("the broker has died %d times in %d seconds (signal %d): giving up",
			  DEATHS_MAX + 1, DEATHS_MS / 1000, end->signal);
		return false;
	}
	return true;
}

static void has_ended(struct state *s, struct end end)
{
	s->broker = 0;
	s->own[OWN_SOCKET] = s->own[OWN_BROKER] = -1;
	s->is_over = !follow(s, &end);
}

/* Agents of brokers that have died are among its children. */
static void collect(struct state *s)
{
	struct kept_table *t = s->keeper.table;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == atomic_load(&t->deputy))
			atomic_store(&t->deputy, 0);
		else if (pid == s->broker)
			has_ended(s, end_of_child(status));
	}
	if (s->broker == 0 || poll(&(struct pollfd){s->own[OWN_BROKER], POLLIN, 0}, 1, 0) != 1)
		return;
	/* it is no child of this process if an earlier keeper has forked it */
	pid = waitpid(s->broker, &status, WNOHANG);
	if (pid != 0)
		has_ended(s, pid > 0 ? end_of_child(status) : end_of_other(t));
}

static void take_signal(struct state *s)
{
	struct signalfd_siginfo info;

	if (read(s->own[OWN_SIGNALS], &info, sizeof(info)) != sizeof(info) ||
	    info.ssi_signo == SIGCHLD)
		return;
	if (info.ssi_signo != SIGHUP)
		s->end = (int)info.ssi_signo;
	if (s->broker > 0)
		kill(s->broker, (int)info.ssi_signo);
}

/* ------------------------------------------------------------------------------------------- */

/* Less when there is a signal, which may say that there is to be no other broker. */
static void wait_for(const struct state *s)
{
	struct pollfd fds = {s->own[OWN_SIGNALS], POLLIN, 0};

	if (s->wait_ms > 0)
		poll(&fds, 1, (int)s->wait_ms);
}

static void start_next(struct state *s)
{
	int r;

	wait_for(s);
	r = fork_broker(s);
	if (r == 0)
		return;
	log_error("cannot fork a broker: %s", strerror(-r));
	s->wait_ms = WAIT_FIRST_MS;
	s->status = EXIT_FAILURE;
	take_signal(s);
	s->is_over = s->end != 0; /* there can be no broker to tell */
}

static void wait_and_handle(struct state *s)
{
	struct pollfd fds[] = {{s->own[OWN_SIGNALS], POLLIN, 0},
			       {s->own[OWN_BROKER], POLLIN, 0},
			       {s->own[OWN_SOCKET], POLLIN, 0}};

	if (poll(fds, 3, -1) < 0)
		return;
	if (fds[2].revents)
		listen_to_broker(s);
	if (fds[0].revents)
		take_signal(s);
	if (fds[0].revents || fds[1].revents)
		collect(s);
}

static void go_on_for_another(void);

/* Without one, this keeper is not less than it would be otherwise. */
static void have_deputy(struct state *s)
{
	struct kept_table *t = s->keeper.table;
	pid_t pid;

	if (atomic_load(&t->deputy) != 0)
		return;
	if (s->own[OWN_SELF] < 0)
		s->own[OWN_SELF] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	pid = s->own[OWN_SELF] < 0 ? -errno : deputy_start(s->own[OWN_SELF], go_on_for_another);
	atomic_store(&t->deputy, pid > 0 ? pid : 0);
}

/* What it ends with. */
static int keep_brokers(void)
{
	pid_t deputy;

	while (!keeping.states[keeping.now].is_over) {
		struct state s = keeping.states[keeping.now];

		s.says = SAYS_NOTHING;
		have_deputy(&s);
		if (s.broker == 0)
			start_next(&s);
		else
			wait_and_handle(&s);
		commit(&s);
		speak(&s);
	}
	deputy = atomic_load(&table()->deputy);
	if (deputy > 0 && kill(deputy, SIGKILL) == 0)
		waitpid(deputy, NULL, 0);
	return keeping.states[keeping.now].status;
}

/* systemd knows the service by the process that it has started, and would send signals to that
 * one. */
static void tell_service_manager(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = -1;
	char text[32];

	if (!path || strlen(path) >= sizeof(address.sun_path))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, path);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	snprintf(text, sizeof(text), "MAINPID=%d", (int)getpid());
	if (fd >= 0)
		sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
		       (const struct sockaddr *)&address,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

static void become_keeper(struct kept_table *t)
{
	/* agents outlive the broker that has started them */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	atomic_store(&t->deputy, 0);
	atomic_store(&t->keeper, getpid());
}

/* In the deputy, whose keeper has died. */
static void go_on_for_another(void)
{
	struct state s = keeping.states[keeping.now];
	struct kept_table *t = s.keeper.table;
	pid_t before = atomic_load(&t->keeper);

	become_keeper(t);
	s.own[OWN_SELF] = -1;
	if (!s.is_over)
		have_deputy(&s);
	if (!MUTATION(unanswered_is_kept))
		table_repair(t, s.answer.serial);
	if (s.has_served && !MUTATION(strays_stay_open))
		close_all_but_own(&s);
	s.says = SAYS_IT_IS_THERE;
	commit(&s);
	speak(&s);
	if (!s.is_over) {
		log_warning("keeper %d has died; its deputy goes on", (int)before);
		tell_service_manager();
	}
	_exit(keep_brokers());
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
	struct state s = {.keeper = {.broker = -1, .pid = getpid()}};
	sigset_t set;

	keeping.path = module;
	keeping.argc = argc;
	keeping.argv = argv;
	memset(s.own, -1, sizeof(s.own));
	s.keeper.descriptors_before = raise_descriptor_limit();
	handled_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s.own[OWN_SIGNALS] = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s.own[OWN_LOG] = log_sink_descriptor();
	s.own[OWN_MODULE] = module_open(module);
	s.own[OWN_JOURNAL] = s.keeper.journal = memfd_create("share-journal", MFD_CLOEXEC);
	s.keeper.table = table_new();
	if (s.own[OWN_SIGNALS] < 0 || s.own[OWN_MODULE] < 0 || s.keeper.journal < 0 ||
	    !s.keeper.table) {
		log_error("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	keeping.states[keeping.now] = s;
	prctl(PR_SET_NAME, "share-keeper");
	if (!PROCESS_IS_INSTRUMENTED)
		process_hide();
	become_keeper(s.keeper.table);
	return keep_brokers();
}
