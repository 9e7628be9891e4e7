/* SPDX-License-Identifier: MIT */

/*
 * A private broker. The socket is bound and listening before the broker runs, so nobody has to
 * wait for it; and the broker holds a pidfd of this process, so that it ends with it. It is started
 * through an intermediate child, so that the program never sees a child it does not know. Programs
 * with more rights than who has started them do not get here (libshare/client/connect.c).
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.h>

#include "base/system/descriptor.h"
#include "libshare/program/embedded.h"
#include "libshare/program/error.h"

#define PROGRAM "share-broker"
#define NO_PIDFDS                                                                             \
	"a private broker takes pidfd_open(), which an old valgrind lacks: run this program " \
	"under share-run"

#ifndef P_PIDFD
#define P_PIDFD 3 /* of Linux 5.4; C libraries came to know it later */
#endif

struct embedded {
	char directory[PATH_MAX];
	char socket[PATH_MAX + sizeof("/broker.sock")];
	pid_t pid;
	int pidfd;
};

/* A folder can have the name of a program, and may be entered by who may run that. */
static bool usable(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
		return false;
	}
	return access(path, X_OK) == 0;
}

/* Where the broker may be relative to the file this code was loaded from: beside a program that
 * links us statically, or in bin/ next to lib/ or lib/<architecture>/. */
static bool find_beside(char *out, size_t size)
{
	static const char *const places[] = {"", "../bin/", "../../bin/"};
	char self[PATH_MAX], *slash;
	Dl_info info;

	if (!dladdr(PROGRAM, &info) || !info.dli_fname || !realpath(info.dli_fname, self))
		return false;
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	slash[1] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (snprintf(out, size, "%s%s" PROGRAM, self, places[i]) < (int)size && usable(out))
			return true;
	return false;
}

static bool find_in_path(char *out, size_t size)
{
	const char *path = secure_getenv("PATH");

	while (path && *path) {
		size_t n = strcspn(path, ":");

		if (n > 0 && snprintf(out, size, "%.*s/" PROGRAM, (int)n, path) < (int)size &&
		    usable(out))
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

static int find_program(char *out, size_t size)
{
	const char *set = secure_getenv("SHARE_BROKER");

	if (set && *set) {
		snprintf(out, size, "%s", set);
		return usable(out) ? 0
				   : fail(SHARE_ENOBROKER,
					  "$SHARE_BROKER is %s, which cannot be "
					  "run: %s",
					  set, strerror(errno));
	}
	if (find_beside(out, size))
		return 0;
	snprintf(out, size, "%s/" PROGRAM, SHARE_BINDIR);
	if (usable(out) || find_in_path(out, size))
		return 0;
	return fail(SHARE_ENOBROKER,
		    "no " PROGRAM
		    " was found beside libshare, in %s or in $PATH; set "
		    "$SHARE_BROKER to its path",
		    SHARE_BINDIR);
}

static int make_directory(struct embedded *e)
{
	const char *bases[] = {secure_getenv("XDG_RUNTIME_DIR"), secure_getenv("TMPDIR"), "/tmp"};

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		/* relative to where? others will ask for the address from elsewhere */
		if (!bases[i] || bases[i][0] != '/')
			continue;
		snprintf(e->directory, sizeof(e->directory), "%s/share-XXXXXX", bases[i]);
		/* with room for the socket's name, which has to be short */
		if (strlen(e->directory) + sizeof("/broker.sock") >
		    sizeof(((struct sockaddr_un *)0)->sun_path))
			continue;
		if (mkdtemp(e->directory)) {
			snprintf(e->socket, sizeof(e->socket), "%s/broker.sock", e->directory);
			return 0;
		}
	}
	e->directory[0] = '\0';
	return fail_system(-errno, "making a directory for the broker's socket");
}

static int make_listener(const struct embedded *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return fail_system(-errno, "socket");
	strcpy(address.sun_path, e->socket);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, SOMAXCONN) < 0) {
		int r = fail_system(-errno, "listening on the broker's socket");

		fd_close(fd);
		return r;
	}
	return fd;
}

/* In the intermediate child: only what is safe after fork. */
static void __attribute__((noreturn))
become_broker(const char *program, char *const *arguments, const int *inherited, int report)
{
	pid_t pid = fork();

	if (pid == 0) {
		sigset_t none;

		setsid(); /* a ^C in the terminal is for the program; the broker ends after it */
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* the program's pipes and locks are not for the broker to hold */
		syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
		fcntl(inherited[0], F_SETFD, 0);
		fcntl(inherited[1], F_SETFD, 0);
		execv(program, arguments);
		_exit(127);
	}
	if (write(report, &pid, sizeof(pid)) != sizeof(pid))
		_exit(1);
	_exit(0);
}

/* As much as is asked for, whatever signals the program gets meanwhile. */
static int read_whole(int fd, void *out, size_t size)
{
	ssize_t n;

	do
		n = read(fd, out, size);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : -1;
}

static int spawn(struct embedded *e, const char *config, int listener, int own_pidfd)
{
	char program[PATH_MAX], listen_fd[16], lifeline_fd[16];
	char *arguments[12];
	int n = 0, report[2], status, r;
	pid_t child;

	r = find_program(program, sizeof(program));
	if (r != 0)
		return r;
	snprintf(listen_fd, sizeof(listen_fd), "%d", listener);
	snprintf(lifeline_fd, sizeof(lifeline_fd), "%d", own_pidfd);
	arguments[n++] = program;
	arguments[n++] = (char *)(uintptr_t) "--log-level=warning";
	arguments[n++] = (char *)(uintptr_t) "--listen-fd";
	arguments[n++] = listen_fd;
	arguments[n++] = (char *)(uintptr_t) "--lifeline-fd";
	arguments[n++] = lifeline_fd;
	arguments[n++] = (char *)(uintptr_t) "--remove";
	arguments[n++] = e->socket;
	if (config) {
		arguments[n++] = (char *)(uintptr_t) "--config";
		arguments[n++] = (char *)(uintptr_t)config;
	}
	arguments[n] = NULL;
	if (pipe2(report, O_CLOEXEC) < 0)
		return fail_system(-errno, "pipe");
	child = fork();
	if (child == 0)
		become_broker(program, arguments, (int[]){listener, own_pidfd}, report[1]);
	fd_close(report[1]);
	if (child < 0)
		r = fail_system(-errno, "fork");
	else if (read_whole(report[0], &e->pid, sizeof(e->pid)) < 0 || e->pid < 0)
		r = fail(SHARE_ESYSTEM, "the broker could not be started");
	fd_close(report[0]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return r;
}

int embedded_start(const char *config, struct embedded **out)
{
	struct embedded *e = calloc(1, sizeof(*e));
	int listener = -1, own = -1, r;

	if (!e)
		return fail_system(-ENOMEM, "starting a broker");
	e->pidfd = -1;
	r = make_directory(e);
	if (r == 0) {
		listener = make_listener(e);
		r = listener < 0 ? listener : 0;
	}
	if (r == 0) {
		own = (int)syscall(SYS_pidfd_open, getpid(), 0);
		if (own < 0)
			r = fail_system(-errno, errno == ENOSYS ? NO_PIDFDS : "pidfd_open");
	}
	if (r == 0)
		r = spawn(e, config, listener, own);
	if (r == 0)
		e->pidfd = (int)syscall(SYS_pidfd_open, e->pid, 0);
	fd_close(listener);
	fd_close(own);
	if (r != 0) {
		embedded_stop(e, -1);
		return r;
	}
	*out = e;
	return 0;
}

const char *embedded_address(const struct embedded *e)
{
	return e->socket;
}

/* Its first process was killed, and others go on with the service, which one cannot know by their
 * numbers. They are of the session that the first one has begun, and no process gets the number of
 * a session that somebody is of: a broker that has not hung up is. */
static void stop_those_left(const struct embedded *e, int connection)
{
	struct pollfd hung_up = {.fd = connection};

	if (connection < 0 || poll(&hung_up, 1, 0) != 0)
		return;
	kill(-e->pid, SIGCONT);
	kill(-e->pid, SIGTERM);
	while (poll(&hung_up, 1, -1) < 0 && errno == EINTR)
		;
}

void embedded_stop(struct embedded *e, int connection)
{
	struct pollfd ended = {.events = POLLIN};
	siginfo_t ignored;

	if (!e)
		return;
	if (e->pidfd >= 0) {
		ended.fd = e->pidfd;
		/* It may have been stopped. The order matters, because SIGCONT takes back whatever
		 * is about to stop the broker: a debugger that looks at how it ends, or
		 * LeakSanitizer, would then wait for good. */
		syscall(SYS_pidfd_send_signal, e->pidfd, SIGCONT, NULL, 0);
		syscall(SYS_pidfd_send_signal, e->pidfd, SIGTERM, NULL, 0);
		while (poll(&ended, 1, -1) < 0 && errno == EINTR)
			;
		/* ours by now, if this process adopts orphans: the first one of a container */
		waitid(P_PIDFD, (id_t)e->pidfd, &ignored, WEXITED | WNOHANG);
		fd_close(e->pidfd);
		stop_those_left(e, connection);
	}
	/* the broker does this, unless it was killed */
	if (e->directory[0]) {
		unlink(e->socket);
		rmdir(e->directory);
	}
	free(e);
}
