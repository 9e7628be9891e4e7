/* SPDX-License-Identifier: MIT */

#include "broker/keeper/keeper.h"

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

#include "base/beat.h"
#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "base/system/file.h"
#include "base/system/process.h"
#include "broker/keeper/process/deputy.h"
#include "broker/keeper/process/module.h"
#include "broker/keeper/process/state.h"
#include "broker/keeper/process/table.h"
#include "broker/keeper/silence.h"
#include "broker/log/log.h"
#include "wire/packet.h"

/* When more than QUICK_MANY keepers, one after the other, have died within so short a time, each
 * next one waits longer than the one before. */
#define QUICK_MS   2000
#define QUICK_MANY 5

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP};

static void handled_signals(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(set, forwarded[i]);
	sigaddset(set, SIGCHLD);
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker says */

static void has_taken_over(struct state *s)
{
	s->serves = true;
	s->hands_over = false;
	if (!s->has_served)
		state_close_strays(s);
	s->has_served = true;
	s->brokers_upgraded += s->own[OWN_MODULE_BEFORE] >= 0;
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
		return broker_rehearse(s, m->text);
	case KEPT_HAND_OVER:
		s->hands_over = s->own[OWN_MODULE_NEXT] >= 0;
		m->text[sizeof(s->keeper.version_before) - 1] = '\0';
		strcpy(s->keeper.version_before, m->text);
		return s->hands_over ? 0 : -ENOENT;
	default:
		return -EPROTO;
	}
}

/* Reads what the broker asks, and prepares the answer. A broker whose keeper died before it
 * answered asks twice; if the answer is there, nothing is done again. */
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
		r = -EMFILE; /* there was no room for the descriptors that came with it */
	m.word = (uint32_t)-r;
	s->answer = m;
}

/* Says what there is to say. If the kernel has no memory for it yet, the keeper tries again, as the
 * broker waits for it. */
static void speak(const struct state *s)
{
	static const struct kept_message it_is_there = {.serial = 0};
	const struct kept_message *m = s->says == SAYS_ANSWER ? &s->answer : &it_is_there;
	int r;

	if (s->says == SAYS_NOTHING || s->own[OWN_SOCKET] < 0)
		return;
	/* Sending does not wait: there is room for an answer, and a broker that has not read many
	 * words of deputies yet reads the first ones. */
	do {
		beat();
		r = packet_send(s->own[OWN_SOCKET], m, sizeof(*m), NULL, 0, false);
	} while ((r == -ENOBUFS || r == -ENOMEM) && usleep(1000) == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* What happens to the keeper */

/* Takes note of processes that have died. Agents of brokers that have died are among the keeper's
 * children, too; nothing is to be done about those. */
static void collect(struct state *s)
{
	struct kept_table *t = s->keeper.table;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == atomic_load(&t->deputy)) {
			log_warning("deputy %d has died; there is another one", (int)pid);
			atomic_store(&t->deputy, 0);
		} else if (pid == s->broker)
			broker_has_ended(s, &status);
	}
	if (s->broker == 0 || !process_has_ended(s->own[OWN_BROKER]))
		return;
	/* the broker is no child of this process if an earlier keeper has forked it */
	pid = waitpid(s->broker, &status, WNOHANG);
	if (pid != 0)
		broker_has_ended(s, pid > 0 ? &status : NULL);
}

/* What this keeper has seen of the broker's beats. Each keeper begins anew. */
static struct silence silence;

static void listen_for_beats(const struct state *s)
{
	silence_begin(&silence, atomic_load(&s->keeper.health->beat), clock_ms());
}

/* Finds out whether the broker hangs, and then notes that it is to die. It is killed only when that
 * is written down: if this keeper is killed before, its deputy knows why the broker has died. And
 * only when the pidfd says that the broker is dead, another one is forked. */
static void look_at_broker(struct state *s)
{
	const struct kept_health *h = s->keeper.health;
	unsigned hang_ms = atomic_load(&h->hang_ms);

	/* This is called for a broker that is dying, too, as it decides how long to wait until the
	 * next look. */
	if (!silence_look(&silence, atomic_load(&h->beat), hang_ms, clock_ms()) || s->broker == 0 ||
	    s->hangs)
		return;
	s->hangs = silence_is_fatal(&silence, "broker", s->broker, hang_ms);
	if (s->hangs && MUTATION(followed_before_dead))
		broker_has_ended(s, NULL);
}

static void kill_hanging(const struct state *s)
{
	if (s->broker > 0 && s->hangs)
		syscall(SYS_pidfd_send_signal, s->own[OWN_BROKER], SIGKILL, NULL, 0);
}

static void take_signal(struct state *s)
{
	struct signalfd_siginfo info;

	if (read(s->own[OWN_SIGNALS], &info, sizeof(info)) != sizeof(info) ||
	    info.ssi_signo == SIGCHLD)
		return;
	if (info.ssi_signo != SIGHUP)
		s->end = (int)info.ssi_signo;
	/* by its number it might be another process by now, if it is no child of this one */
	if (s->broker > 0)
		syscall(SYS_pidfd_send_signal, s->own[OWN_BROKER], info.ssi_signo, NULL, 0);
}

/* ------------------------------------------------------------------------------------------- */

/* Waits until the next broker is to be forked. A signal ends the wait, as it may be one that the
 * broker is to be told. */
static void wait_for(const struct state *s)
{
	struct pollfd fds = {s->own[OWN_SIGNALS], POLLIN, 0};
	unsigned look_ms = silence_look_ms(atomic_load(&s->keeper.health->hang_ms));

	for (unsigned left = s->wait_ms; left > 0;) {
		unsigned ms = left < look_ms ? left : look_ms;

		beat();
		if (poll(&fds, 1, (int)ms) != 0)
			break;
		left -= ms;
	}
}

static void start_next(struct state *s)
{
	int r;

	wait_for(s);
	r = broker_fork(s);
	listen_for_beats(s);
	if (r == 0)
		return;
	log_error("cannot fork a broker, or have a descriptor of it: %s", strerror(-r));
	s->wait_ms = WAIT_FIRST_MS;
	s->status = EXIT_FAILURE;
	take_signal(s);
	/* There is no broker that could be told of a signal. And where the system has no
	 * descriptors of processes, or something like a container keeps them from this one, the
	 * next fork would be as much in vain. */
	s->is_over = s->end != 0 || r == -ENOSYS || r == -EPERM;
}

static void wait_and_handle(struct state *s)
{
	struct pollfd fds[] = {{s->own[OWN_SIGNALS], POLLIN, 0},
			       {s->own[OWN_BROKER], POLLIN, 0},
			       {s->own[OWN_SOCKET], POLLIN, 0}};

	unsigned hang_ms = atomic_load(&s->keeper.health->hang_ms);

	if (poll(fds, 3, (int)silence_left_ms(&silence, hang_ms, clock_ms())) < 0)
		return;
	if (fds[2].revents)
		listen_to_broker(s);
	if (fds[0].revents)
		take_signal(s);
	if (fds[0].revents || fds[1].revents)
		collect(s);
	look_at_broker(s);
}

static void go_on_for_another(void);

/* Starts a deputy if there is none. If that fails, the keeper goes on without one: it does all else
 * as well, and tries again later. */
static void have_deputy(struct state *s)
{
	struct kept_table *t = s->keeper.table;
	pid_t pid;

	if (atomic_load(&t->deputy) != 0)
		return;
	if (s->own[OWN_SELF] < 0)
		s->own[OWN_SELF] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	pid = s->own[OWN_SELF] < 0
		  ? -errno
		  : deputy_start(&(struct deputy_watch){.keeper = getpid(),
							.pidfd = s->own[OWN_SELF],
							.beat = &s->keeper.health->keeper_beat,
							.hang_ms = &s->keeper.health->hang_ms,
							.go_on = go_on_for_another});
	atomic_store(&t->deputy, pid > 0 ? pid : 0);
}

/* Keeps brokers until there is to be no other one. Returns the exit status for the process. */
static int keep_brokers(void)
{
	pid_t deputy;

	while (!state_now()->is_over) {
		struct state s = *state_now();

		beat();
		s.says = SAYS_NOTHING;
		have_deputy(&s);
		if (s.broker == 0)
			start_next(&s);
		else
			wait_and_handle(&s);
		state_commit(&s);
		speak(&s);
		kill_hanging(&s);
	}
	deputy = atomic_load(&state_now()->keeper.table->deputy);
	if (deputy > 0 && kill(deputy, SIGKILL) == 0)
		waitpid(deputy, NULL, 0);
	return state_now()->status;
}

/* Tells systemd that this process is the service's main one now. Otherwise systemd would send
 * signals to the process that it has started. If that was not the first keeper, the service is
 * somebody else's, who has started a private broker, and nothing is told. */
static void tell_service_manager(pid_t started)
{
	const char *path = getenv("NOTIFY_SOCKET"), *pid = getenv("SYSTEMD_EXEC_PID");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = -1;
	char text[32];

	if (!pid || strtol(pid, NULL, 10) != started)
		return;
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

static void become_keeper(const struct keeper *k)
{
	/* agents outlive the broker that has started them, and become the keeper's children */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	beat_at(&k->health->keeper_beat);
	atomic_store(&k->table->deputy, 0);
	atomic_store(&k->table->keeper, getpid());
}

/* Sleeps, with beats meanwhile, as the deputy is there already and looks for them. */
static void sleep_ms(unsigned ms)
{
	const unsigned piece = 16;

	for (unsigned slept = 0; slept < ms; slept += piece) {
		beat();
		usleep(piece * 1000);
	}
}

/* Makes a deputy, whose keeper has died, the keeper. */
static void go_on_for_another(void)
{
	struct state s = *state_now();
	struct kept_table *t = s.keeper.table;
	pid_t before = atomic_load(&t->keeper);
	uint64_t now = clock_ms();

	become_keeper(&s.keeper);
	listen_for_beats(&s);
	s.own[OWN_SELF] = -1;
	if (!s.is_over)
		have_deputy(&s);
	if (!MUTATION(unanswered_is_kept))
		table_repair(t, s.answer.serial);
	if (s.has_served && !MUTATION(strays_stay_open))
		state_close_strays(&s);
	s.says = SAYS_IT_IS_THERE;
	s.keepers_died++;
	s.quick_deaths = now - s.keeper_since_ms < QUICK_MS ? s.quick_deaths + 1 : 0;
	s.keeper_since_ms = now;
	state_commit(&s);
	speak(&s);
	if (!s.is_over) {
		log_warning("keeper %d has died; its deputy goes on", (int)before);
		tell_service_manager(s.keeper.pid);
		/* if keepers die by themselves, they die less often so; the broker serves
		 * meanwhile */
		if (s.quick_deaths > QUICK_MANY)
			sleep_ms(1U << (s.quick_deaths < 10 ? s.quick_deaths : 10));
	}
	_exit(keep_brokers());
}

/* Raises a limit to as much as this process may let itself have. Returns what it was before. */
static rlim_t raise_limit(__rlimit_resource_t resource)
{
	struct rlimit limit = {0};
	rlim_t before;

	getrlimit(resource, &limit);
	before = limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max;
	if (before < limit.rlim_max)
		setrlimit(resource, &limit);
	return before;
}

/* Raises the limits that the broker might reach. Every client and every segment costs descriptors
 * (docs/operating.md). A journal is a file that is mapped, and has room for more than it ever
 * needs. What is too much for the limit of a file's size is to fail, and not to kill: SIGXFSZ is
 * ignored. */
static void raise_limits(struct keeper *k)
{
	k->descriptors_before = raise_limit(RLIMIT_NOFILE);
	raise_limit(RLIMIT_FSIZE);
	raise_limit(RLIMIT_AS);
	signal(SIGXFSZ, SIG_IGN);
}

int keeper_run(const char *module, int argc, char **argv)
{
	struct state s = {
	    .keeper = {.broker = -1, .pid = getpid()}, .path = module, .argc = argc, .argv = argv};
	sigset_t set;

	memset(s.own, -1, sizeof(s.own));
	raise_limits(&s.keeper);
	/* SIGPIPE comes from a log that nobody reads any more. SIGTTOU comes from a terminal that
	 * stops whoever writes to it from another group than the one in its foreground, as brokers
	 * do. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	handled_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s.own[OWN_SIGNALS] = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s.own[OWN_LOG] = log_descriptor();
	s.own[OWN_MODULE] = module_open(module);
	s.own[OWN_JOURNAL] = s.keeper.journal = memfd_create("share-journal", MFD_CLOEXEC);
	s.keeper.table = table_new();
	s.keeper.health = health_new();
	if (s.own[OWN_SIGNALS] < 0 || s.own[OWN_MODULE] < 0 || s.keeper.journal < 0 ||
	    !s.keeper.table || !s.keeper.health) {
		if (s.own[OWN_MODULE] < 0)
			log_error("cannot start: %s: %s", module, file_error(s.own[OWN_MODULE]));
		else
			log_error("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	state_begin(&s);
	prctl(PR_SET_NAME, "share-keeper");
	if (!PROCESS_IS_INSTRUMENTED)
		process_hide();
	log_lock_nothing();
	become_keeper(&s.keeper);
	return keep_brokers();
}
