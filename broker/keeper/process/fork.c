/* SPDX-License-Identifier: MIT */

/* The processes that a keeper forks: brokers, and those that only find out whether they could be
 * one, which are rehearsals. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "base/system/file.h"
#include "broker/keeper/process/module.h"
#include "broker/keeper/process/state.h"
#include "broker/keeper/silence.h"
#include "wire/packet.h"

#define SLICE_MS 50 /* between two beats, so that this keeper is not taken for one that hangs */

#ifdef __SANITIZE_ADDRESS__
#define WITHOUT_LEAK_CHECK 1
#else
#define WITHOUT_LEAK_CHECK 0
#endif

/* Waits until the keeper has written down that there is this broker. If the keeper dies before
 * that, its deputy does not know of this broker and starts another one; so this one ends. */
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

/* Runs the broker's program in the child, with the keeper's state as the program gets it. SIGTERM
 * and the other signals that are blocked wait until the broker's loop takes them
 * (broker/life/ending.c). */
static void __attribute__((noreturn)) become_broker(struct state *s, int module)
{
	keeper_main *program;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	prctl(PR_SET_NAME, "share-broker");
	program = module_load(module, s->path);
	/* the keeper's own descriptors are of no use to a broker, but for the journal */
	for (int i = 0; i < N_OWN; i++)
		if (i != OWN_JOURNAL && (i != OWN_LOG || !KEEPER_MAIN_SYMBOL))
			fd_close(s->own[i]);
	if (!s->keeper.rehearses && !MUTATION(begins_unknown))
		wait_until_known(s->keeper.broker);
	r = program ? program(&s->keeper, s->argc, s->argv) : EXIT_FAILURE;
	/* A rehearsal has half of what is somebody else's, and takes nothing down. And GCC 12's
	 * LeakSanitizer crashes at the end of a process that was forked and has loaded a module
	 * since. */
	if (s->keeper.rehearses || WITHOUT_LEAK_CHECK) {
		fflush(NULL);
		_exit(r);
	}
	atomic_store(&s->keeper.table->ended, r);
	exit(r);
}

int broker_fork(struct state *s)
{
	int ends[2], pidfd = -1, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	s->keeper.generation++;
	s->keeper.serial = s->answer.serial;
	atomic_store(&s->keeper.table->ended, -1);
	s->keeper.health->crash = (struct crash){.n = 0};
	pid = fork();
	if (pid == 0) {
		fd_close(ends[0]);
		/* a terminal's signal is for the keeper alone, which tells its broker */
		setpgid(0, 0);
		s->keeper.broker = ends[1];
		become_broker(s, s->own[OWN_MODULE]);
	}
	r = pid < 0 ? -errno : 0;
	fd_close(ends[1]);
	if (r == 0 && (pidfd = (int)syscall(SYS_pidfd_open, pid, 0)) < 0)
		r = -errno;
	if (r < 0) { /* a child that was made ends, as nobody says that it may begin */
		s->keeper.generation--;
		fd_close(ends[0]);
		return r;
	}
	s->own[OWN_SOCKET] = ends[0];
	s->own[OWN_BROKER] = pidfd;
	s->broker = pid;
	s->serves = s->hands_over = s->hangs = false;
	s->says = SAYS_IT_IS_THERE;
	if (s->end == 0)
		s->end = atomic_load(&s->keeper.health->told_to_end);
	if (s->end)
		kill(pid, s->end);
	return 0;
}

/* A rehearsal that was killed may take longer than this to die. Nobody waits for that, as the
 * broker waits for the keeper. */
#define DEATH_MS 1000

/* A rehearsal, and a descriptor of it that spares the keeper the rest of a slice; -1: there is
 * none. */
struct rehearsal {
	pid_t pid;
	int pidfd;
	int status; /* once it has ended */
};

/* Waits a slice, or until the rehearsal ends. Returns what waitpid() says: 0 when it runs. */
static pid_t wait_a_slice(struct rehearsal *r)
{
	struct pollfd ended = {r->pidfd, POLLIN, 0};

	beat();
	poll(&ended, 1, SLICE_MS);
	return waitpid(r->pid, &r->status, WNOHANG);
}

/* Waits until the rehearsal ends. The broker that serves waits for it, and so do all that it
 * serves. So a rehearsal that does not get on has no more time than a broker that hangs; one that
 * gets on has more, as there may be much to take over. Returns 0 when it takes too long, and @why
 * says so. */
static pid_t wait_while_it_gets_on(const struct state *s, struct rehearsal *rehearsal,
				   char why[static KEPT_TEXT])
{
	const struct kept_health *h = s->keeper.health;
	const struct rehearsal_time most = rehearsal_most(h, s->own[OWN_JOURNAL]);
	const unsigned hang_ms = rehearsal_hang_ms(h);
	const uint64_t begin_ms = clock_ms();
	struct silence silence;
	pid_t r;

	silence_begin(&silence, atomic_load(&h->beat_of_rehearsal), begin_ms);
	while ((r = wait_a_slice(rehearsal)) == 0) {
		if (silence_look(&silence, atomic_load(&h->beat_of_rehearsal), hang_ms,
				 clock_ms())) {
			snprintf(why, KEPT_TEXT, "it has not moved for %u ms (hang_ms)", hang_ms);
			break;
		}
		if (clock_ms() - begin_ms >= most.ms) {
			snprintf(why, KEPT_TEXT,
				 "it was not done after %u ms (twice hang_ms, and %d ms for each "
				 "of %u MiB of journal)",
				 most.ms, REHEARSAL_MIB_MS, most.mib);
			break;
		}
	}
	return r;
}

/* Waits for the rehearsal's verdict. Returns 0: it could go on; or negative errno, with @why where
 * that is known. A rehearsal that takes too long is killed, and could not. */
static int wait_for_rehearsal(const struct state *s, pid_t pid, char why[static KEPT_TEXT])
{
	_cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct rehearsal rehearsal = {pid, pidfd, 0};
	pid_t r = wait_while_it_gets_on(s, &rehearsal, why);
	int status = rehearsal.status;

	if (r < 0)
		return -ECHILD;
	if (r == 0) {
		kill(pid, SIGKILL);
		for (int ms = 0; ms < DEATH_MS && wait_a_slice(&rehearsal) == 0; ms += SLICE_MS)
			;
		return -ETIMEDOUT;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status))
		snprintf(why, KEPT_TEXT, "it ended with exit code %d", WEXITSTATUS(status));
	else
		snprintf(why, KEPT_TEXT, "it died of signal %d (%s)", WTERMSIG(status),
			 signal_text(WTERMSIG(status)));
	return -ECANCELED;
}

/* Reads the first line that the rehearsal has written. @text stays as it is if there is none. */
static void read_reason(int fd, char text[static KEPT_TEXT])
{
	char said[KEPT_TEXT];
	ssize_t n = pread(fd, said, sizeof(said) - 1, 0);

	if (n <= 0)
		return;
	said[n] = '\0';
	said[strcspn(said, "\n")] = '\0';
	strcpy(text, said);
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

int broker_rehearse(struct state *s, char why[static KEPT_TEXT])
{
	_cleanup_fd_ int module = module_open(s->path), said = -1;
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
		snprintf(why, KEPT_TEXT, "%s: %s", s->path, file_error(r));
		return r;
	}
	s->keeper.health->crash_of_rehearsal = (struct crash){.n = 0};
	pid = fork();
	if (pid == 0)
		become_rehearsal(s, module, said, keeper);
	if (pid < 0) {
		snprintf(why, KEPT_TEXT, "no process can be made for it");
		return -EAGAIN;
	}
	r = wait_for_rehearsal(s, pid, why);
	crash_log(&s->keeper.health->crash_of_rehearsal, "rehearsal", pid);
	if (r < 0) {
		read_reason(said, why);
		return r;
	}
	s->own[OWN_MODULE_NEXT] = module;
	module = -1;
	return 0;
}
