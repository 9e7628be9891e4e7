/* SPDX-License-Identifier: MIT */

/*
 * share-run: runs a program with a private broker, for as long as the program runs.
 *
 * The broker is the embedded one of libshare. It ends with this process, however this process ends,
 * so there is nothing to clean up here. For the rest, share-run is not to be noticed: the program
 * gets the signals that are sent to share-run and the descriptors that share-run was started with,
 * and the caller gets the program's exit code.
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

/* Exit codes for what share-run itself could not do. They are those of env(1), nohup(1) and
 * timeout(1), which programs avoid for their own. */
enum {
	EXIT_FAILED = 125,
	EXIT_NOT_RUNNABLE = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL = 128, /* plus the number of the signal */
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
		/* This argument and all later ones are the command, also those that begin with
		 * '-'. */
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

/* Runs in the child. The child is asked to end when share-run dies, because the broker ends then,
 * and a program without the broker it was started for is of no use. */
static void __attribute__((noreturn))
become_command(char **command, const sigset_t *signals, pid_t parent)
{
	int error;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* The parent died before prctl() had an effect. */
		_exit(EXIT_FAILED);
	sigprocmask(SIG_SETMASK, signals, NULL);
	execvp(command[0], command);
	error = errno;
	fprintf(stderr, "share-run: %s: %s\n", command[0], strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

/* Passes a signal on to the command if another process sent it to share-run. A signal from the
 * kernel came from the terminal, which has sent it to the command as well; only the SIGHUP of a
 * terminal that is gone goes to the leader of the session alone, which may be share-run. */
static void pass_on(pid_t pid, const siginfo_t *signal)
{
	bool for_us = signal->si_signo == SIGHUP && getsid(0) == getpid();

	if (signal->si_signo != SIGCHLD && (signal->si_code <= 0 || for_us))
		kill(pid, signal->si_signo);
}

/* Waits until the command has ended. Returns its exit code as a shell shows it. */
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
	signal(SIGCHLD, SIG_DFL); /* A process that ignores SIGCHLD cannot wait for its child. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&signals, passed_on[i]);

	/* The signals are blocked until the broker has started completely. One that arrived in
	 * between takes effect after that; if it ends share-run, the broker notices that and ends
	 * too. */
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
