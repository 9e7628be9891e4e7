/* SPDX-License-Identifier: MIT */

/*
 * share-run: a private broker for as long as a program runs.
 *
 * The broker is libshare's embedded one, which ends with this process however that ends, so there
 * is nothing here to clean up after. What remains is to be invisible: the program gets the signals
 * that were sent to us and the descriptors that we were given, and our caller its exit code.
 */

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.h>

/* As env(1), nohup(1) and timeout(1) have it: what we could not do is told from what the program
 * said by numbers that programs avoid. */
enum {
	EXIT_FAILED = 125,
	EXIT_NOT_RUNNABLE = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL = 128, /* and the number of the signal */
};

struct arguments {
	const char *config;
	char **command;
};

static const struct argp_option options[] = {
    {"config", 'c', "FILE", 0, "Configuration of the broker (default: built in)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'c':
		a->config = value;
		return 0;
	case ARGP_KEY_ARG:
		/* this one and all that follow, options or not */
		a->command = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "there is no command to run");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
    options,
    parse,
    "[--] COMMAND [ARGUMENT...]",
    "Runs COMMAND with a private broker, which SHARE_SOCKET leads to, and ends the broker with "
    "it.\v"
    "Exits with the exit code of COMMAND, or 128 and the number of the signal that killed it; "
    "with 127 when there is no such command, 126 when it cannot be run, and 125 when there is no "
    "broker for it.",
    NULL,
    NULL,
    NULL};

static int start_broker(const struct arguments *a, share_client **out)
{
	share_connect_options connect = SHARE_CONNECT_OPTIONS_INIT;
	int r;

	connect.config = a->config;
	connect.label = "share-run";
	r = share_connect_with("embedded", &connect, out);
	if (r == 0 && setenv("SHARE_SOCKET", share_address(*out), 1) == 0)
		return 0;
	fprintf(stderr, "share-run: %s\n", r == 0 ? strerror(errno) : share_error_detail());
	if (r == 0)
		share_disconnect(*out);
	return -1;
}

/* In the child. Without us there is no broker, and a program that lost its broker has lost what it
 * was started for: it is asked to end as well. */
static void __attribute__((noreturn))
become_command(char **command, const sigset_t *signals, pid_t parent)
{
	int error;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* died before it could be heard of */
		_exit(EXIT_FAILED);
	sigprocmask(SIG_SETMASK, signals, NULL);
	execvp(command[0], command);
	error = errno;
	fprintf(stderr, "share-run: %s: %s\n", command[0], strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

/* What somebody sent to us is meant for the command. What the kernel sent came from the terminal,
 * to the command as well; only that the terminal is gone it tells the leader of the session alone.
 */
static void pass_on(pid_t pid, const siginfo_t *signal)
{
	bool for_us = signal->si_signo == SIGHUP && getsid(0) == getpid();

	if (signal->si_signo != SIGCHLD && (signal->si_code <= 0 || for_us))
		kill(pid, signal->si_signo);
}

/* Until the command has ended; its exit code, as a shell has it. */
static int wait_for(pid_t pid, const sigset_t *signals)
{
	siginfo_t signal;
	int status;
	pid_t ended;

	while ((ended = waitpid(pid, &status, WNOHANG)) == 0)
		if (sigwaitinfo(signals, &signal) > 0)
			pass_on(pid, &signal);
	if (ended < 0) {
		fprintf(stderr, "share-run: waiting: %s\n", strerror(errno));
		return EXIT_FAILED;
	}
	return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct arguments a = {0};
	sigset_t signals, before;
	share_client *client;
	pid_t self, pid;
	int code;

	argp_program_version = "share-run " SHARE_VERSION;
	argp_err_exit_status = EXIT_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
	signal(SIGCHLD, SIG_DFL); /* who ignores it cannot wait */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&signals, passed_on[i]);

	/* not while there is half a broker; what came meanwhile acts when all of it is there, and
	 * if it ends us, the broker knows what to do */
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (start_broker(&a, &client) < 0)
		return EXIT_FAILED;
	sigprocmask(SIG_SETMASK, &before, NULL);
	sigprocmask(SIG_BLOCK, &signals, NULL);

	self = getpid();
	pid = fork();
	if (pid == 0)
		become_command(a.command, &before, self);
	if (pid > 0) {
		code = wait_for(pid, &signals);
	} else {
		fprintf(stderr, "share-run: fork: %s\n", strerror(errno));
		code = EXIT_FAILED;
	}
	share_disconnect(client);
	return code;
}
