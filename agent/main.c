/* SPDX-License-Identifier: MIT */

/* The main program of share-agent: it reads the arguments, and sets up the process so that the CUDA
 * driver sees only the device that this agent works on. */

#include <argp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>

#include <share/share.h>

#include "agent/agent.h"
#include "base/system/process.h"

/* argp, which is part of the C library, prints this for --version. */
__attribute__((visibility("default"))) const char *argp_program_version =
    "share-agent " SHARE_VERSION;

static const struct argp_option options[] = {
    {"socket", 's', "FD", 0, "Speak to the broker over this SOCK_SEQPACKET socket", 0},
    {"device", 'd', "UUID", 0, "Work on this device (default: only tell which there are)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static int parse_socket(struct argp_state *state, const char *text)
{
	int type;
	socklen_t size = sizeof(type);
	char *end;
	long fd = strtol(text, &end, 10);

	if (*end || end == text || fd < 0 || fd > 1 << 20 ||
	    getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET)
		argp_error(state, "'%s' is not a SOCK_SEQPACKET socket", text);
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	return (int)fd;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct agent *a = state->input;

	switch (key) {
	case 's':
		a->socket = parse_socket(state, value);
		return 0;
	case 'd':
		a->device = value;
		return 0;
	case ARGP_KEY_END:
		if (a->socket < 0)
			argp_error(state, "--socket is needed; share-broker starts this program");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Makes GPU memory for share-broker, which starts it: the only process of the two that calls "
    "the driver.",
    NULL,
    NULL,
    NULL};

int main(int argc, char **argv)
{
	/* The agent is never freed: the process ends right after agent_run(), and the kernel takes
	 * everything back. */
	static struct agent a = {.socket = -1};
	int r;

	/* A failure is ignored, as the agent can serve without this. It needs no message either:
	 * the broker hides itself in the same way, and has logged that it could not. */
	process_hide();
	argp_err_exit_status = EX_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	/* A terminal sends these signals to the whole process group; but only the broker decides
	 * when an agent ends. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	/* The driver then initialises no other device, and creates no context on another one. */
	if (a.device)
		setenv("CUDA_VISIBLE_DEVICES", a.device, 1);
	r = watch_broker(a.socket);
	if (r < 0) {
		agent_log("cannot watch the broker: %s", strerror(-r));
		return EX_OSERR;
	}
	return agent_run(&a);
}
