/* SPDX-License-Identifier: MIT */

/* share-broker: arguments, descriptors it was given, and the exit code. */

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <share/share.h>

#include "base/descriptor.h"
#include "broker/broker.h"
#include "broker/client/peer.h"
#include "broker/config/config.h"
#include "broker/config/reader.h"
#include "broker/confine.h"
#include "broker/ending.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"
#include "broker/listener.h"
#include "broker/log/log.h"
#include "broker/socket_path.h"

/* The C library looks for it. */
__attribute__((visibility("default"))) const char *argp_program_version =
    "share-broker " SHARE_VERSION;

struct arguments {
	const char *config;
	const char *socket;
	const char *remove;
	int listen_fd;
	int lifeline_fd;
	int drain_ms;
	bool check, keep;
};

enum {
	OPTION_LISTEN_FD = 256,
	OPTION_LIFELINE_FD,
	OPTION_REMOVE,
	OPTION_CHECK,
	OPTION_DRAIN,
	OPTION_KEEP
};

static const struct argp_option options[] = {
    {"config", 'c', "FILE", 0, "Read the configuration from FILE (default: built in)", 0},
    {"socket", 's', "PATH", 0, "Serve at PATH, whatever the configuration says", 0},
    {"log-level", 'l', "LEVEL", 0, "error, warning, info (default) or debug", 0},
    {"check", OPTION_CHECK, NULL, 0,
     "Read the configuration, look whether a socket can be made, report, and exit", 0},
    {"drain-ms", OPTION_DRAIN, "MS", 0,
     "At its end, wait that long for clients, whatever the configuration says", 0},
    {"keep", OPTION_KEEP, NULL, 0,
     "Go on when the broker dies: a keeper starts the next one, with all that it had", 0},
    {NULL, 0, NULL, 0, "For programs that start a private broker:", 1},
    {"listen-fd", OPTION_LISTEN_FD, "FD", 0, "Serve this listening SOCK_SEQPACKET socket", 1},
    {"lifeline-fd", OPTION_LIFELINE_FD, "FD", 0,
     "End when this descriptor becomes readable (a pidfd, or a pipe that is closed)", 1},
    {"remove", OPTION_REMOVE, "PATH", 0,
     "Remove this socket at the end, and its directory if that is empty then", 1},
    {NULL, 0, NULL, 0, NULL, 0},
};

static int parse_fd(struct argp_state *state, const char *text)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (*end || end == text || fd < 0 || fd > 1 << 20 || fcntl((int)fd, F_GETFD) < 0)
		argp_error(state, "'%s' is not an open descriptor", text);
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	return (int)fd;
}

static int parse_drain(struct argp_state *state, const char *text)
{
	char *end;
	long ms = strtol(text, &end, 10);

	if (*end || end == text || ms < 0 || ms > CONFIG_DRAIN_MAX_MS)
		argp_error(state, "'%s' is not a time limit (0 to %d ms)", text,
			   CONFIG_DRAIN_MAX_MS);
	return (int)ms;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'c':
		a->config = value;
		return 0;
	case 's':
		a->socket = value;
		return 0;
	case 'l':
		if (log_level_from_name(value) < 0)
			argp_error(state, "'%s' is not a log level", value);
		log_set_level((enum log_level)log_level_from_name(value));
		return 0;
	case OPTION_LISTEN_FD:
		a->listen_fd = parse_fd(state, value);
		return 0;
	case OPTION_LIFELINE_FD:
		a->lifeline_fd = parse_fd(state, value);
		return 0;
	case OPTION_REMOVE:
		a->remove = value;
		return 0;
	case OPTION_DRAIN:
		a->drain_ms = parse_drain(state, value);
		return 0;
	case OPTION_KEEP:
		a->keep = true;
		return 0;
	case OPTION_CHECK:
		a->check = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
    options, parse,
    NULL,    "Owns memory that processes share, and hands it to clients over a Unix socket.",
    NULL,    NULL,
    NULL};

static int load(const char *path, struct config **out)
{
	char error[1024];
	int r;

	if (path) {
		r = config_load(path, out, error, sizeof(error));
	} else {
		r = config_default(out);
		snprintf(error, sizeof(error), "%s", strerror(r < 0 ? -r : 0));
	}
	if (r != 0)
		log_error("%s", error);
	return r;
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

/* From a service manager: one listening socket, as descriptor 3. */
static int activation_fd(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");

	if (!pid || !fds || strtol(pid, NULL, 10) != getpid() || strcmp(fds, "1") != 0)
		return -1;
	fcntl(3, F_SETFD, FD_CLOEXEC);
	return 3;
}

struct listening {
	int fd;
	int lock; /* -1: somebody else has made the socket */
	char path[PATH_MAX];
};

/* Where it serves, unless somebody else has made the socket. With @make its directory exists
 * afterwards; without, it could be made. */
static int find_socket(const struct arguments *a, const struct config *config, bool make,
		       char out[static PATH_MAX])
{
	const char *path = a->socket ? a->socket : config->socket;
	bool from_file = path && !a->socket;
	char error[PATH_MAX + 512];
	int r = 0;

	if (path)
		snprintf(out, PATH_MAX, "%s", path);
	else
		r = socket_path_default(out, PATH_MAX, error, sizeof(error));
	if (r == 0)
		r = socket_path_check(out, make, path || geteuid() == 0, error, sizeof(error));
	if (r < 0)
		log_error("%s%s%s", from_file ? config->file : "", from_file ? ": socket: " : "",
			  error);
	return r;
}

/* What is in the file is good; what is around it? */
static int check(const struct arguments *a, const struct config *config)
{
	char path[PATH_MAX];
	int r = 0;

	if (a->listen_fd < 0 && activation_fd() < 0)
		r = find_socket(a, config, false, path);
	if (r == 0)
		printf("%s: good (pools: %zu)\n",
		       config->file ? config->file : "built-in configuration", config->n_pools);
	return r;
}

static void remove_path(const char *path)
{
	char *copy = strdup(path), *slash;

	unlink(path);
	slash = copy ? strrchr(copy, '/') : NULL;
	if (slash && slash > copy) {
		*slash = '\0';
		rmdir(copy);
	}
	free(copy);
}

/* Where it serves, whoever has bound the socket. */
static const char *address_of(int listen_fd, struct sockaddr_un *address)
{
	socklen_t size = sizeof(*address) - 1; /* so that a path always has its NUL */

	memset(address, 0, sizeof(*address));
	if (getsockname(listen_fd, (struct sockaddr *)address, &size) < 0 ||
	    address->sun_path[0] == '\0')
		return "a socket without a path";
	return address->sun_path;
}

static void say_start(const struct config *config, int listen_fd, const struct broker *b,
		      rlim_t descriptors_before)
{
	struct sockaddr_un address;
	char pools[768] = "", raised[64] = "";
	size_t n = 0;

	for (size_t i = 0; i < config->n_pools; i++) {
		const char *name = config->pools[i].name,
			   *more = i + 1 < config->n_pools ? ", " : "";

		if (n + strlen(name) + sizeof("'', ...") > sizeof(pools)) {
			strcpy(pools + n, "...");
			break;
		}
		n += (size_t)sprintf(pools + n, "'%s'%s", name, more);
	}
	if (!peer_all_have_numbers())
		log_warning(
		    "this user namespace has numbers for some users only: all others are "
		    "refused, as the kernel shows them as one");
	log_start(SHARE_VERSION, address_of(listen_fd, &address), config->file, config->n_pools,
		  pools);
	if (descriptors_before < b->n_descriptors)
		snprintf(raised, sizeof(raised), ", raised from %ju",
			 (uintmax_t)descriptors_before);
	log_info("descriptors: %zu (RLIMIT_NOFILE%s), %zu of them for users and pools",
		 b->n_descriptors, raised, b->n_descriptors - b->n_own_descriptors);
}

static void hold_back_hangups(void)
{
	sigset_t hangup;

	sigemptyset(&hangup);
	sigaddset(&hangup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hangup, NULL);
}

/* A kernel or a container may not let it. That is no reason not to serve. */
static void give_up_rights(void)
{
	const char *what;
	int r = confine(&what);

	if (r < 0)
		log_warning("cannot %s: %s; the broker serves with more rights than it needs", what,
			    strerror(-r));
}

/* Where it listens. The lock is its own if it has made the socket. 0 or negative errno. */
static int start_to_listen(const struct arguments *a, const struct config *config,
			   struct listening *out)
{
	char error[512];
	int r = 0;

	out->fd = a->listen_fd >= 0 ? a->listen_fd : activation_fd();
	out->lock = -1;
	if (out->fd < 0)
		r = find_socket(a, config, true, out->path);
	if (r == 0 && out->fd < 0) {
		out->fd =
		    listener_bind(out->path, config->socket_mode, &out->lock, error, sizeof(error));
		if (out->fd < 0) {
			log_error("%s", error);
			r = out->fd;
		}
	}
	if (r == 0)
		fcntl(out->fd, F_SETFL, O_NONBLOCK);
	return r;
}

static int serve(const struct arguments *a, struct config *config, const struct listening *l,
		 const struct keeper *keeper, rlim_t descriptors_before)
{
	struct broker *broker;
	int r = broker_new(config, keeper, &broker);

	if (r < 0) {
		fd_close(l->fd);
		return r;
	}
	give_up_rights();
	if (!keeper || keeper->generation == 1)
		say_start(config, l->fd, broker, descriptors_before);
	r = broker_run(broker, l->fd, a->lifeline_fd, a->drain_ms);
	broker_free(broker);
	return r;
}

/* Who has made the socket takes it away: before the lock goes, as the next broker must find no
 * socket, or its own. */
static void stop_to_listen(const struct listening *l)
{
	if (l->lock >= 0)
		unlink(l->path);
	fd_close(l->lock);
}

static int run(const struct arguments *a, struct config *config)
{
	struct keeper keeper = {.journal = -1};
	enum keeper_result kept = KEEPER_NONE;
	rlim_t descriptors_before = raise_descriptor_limit();
	struct listening l;
	int r = start_to_listen(a, config, &l), status = 0;

	if (r < 0)
		return r;
	if (a->keep)
		kept = keeper_run(&keeper, l.fd, &status);
	switch (kept) {
	case KEEPER_ENDED:
		stop_to_listen(&l);
		return status == 0 ? 0 : -EIO;
	case KEEPER_BROKER:
		l.fd = kept_take(KEPT_LISTENER);
		if (l.fd < 0 && kept_look(KEPT_LISTENER) >= 0)
			_exit(KEEPER_TRY_AGAIN); /* no memory to take anything */
		return serve(a, config, &l, &keeper, descriptors_before);
	case KEEPER_NONE:
		break;
	}
	r = serve(a, config, &l, NULL, descriptors_before);
	stop_to_listen(&l);
	return r;
}

int main(int argc, char **argv)
{
	struct arguments a = {.listen_fd = -1, .lifeline_fd = -1, .drain_ms = DRAIN_AS_CONFIGURED};
	struct config *config;
	int r;

	argp_err_exit_status = EX_USAGE; /* a configuration that is wrong is 2 */
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (!a.check)
		log_open();
	signal(SIGPIPE, SIG_IGN);
	hold_back_hangups(); /* until the loop takes them: the file may have changed meanwhile */
	config_reader_init();
	if (load(a.config, &config) != 0) {
		if (a.remove)
			remove_path(a.remove);
		return 2;
	}
	r = a.check ? check(&a, config) : run(&a, config);
	if (a.remove)
		remove_path(a.remove);
	config_free(config);
	return r < 0 ? 1 : 0;
}
