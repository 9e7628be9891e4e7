/* SPDX-License-Identifier: MIT */

/* The broker's own program, which its keeper loads: arguments, descriptors that it was given, and
 * the exit code. */

#include <argp.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <share/share.h>

#include "base/system/descriptor.h"
#include "broker/broker.h"
#include "broker/client/listener.h"
#include "broker/config/config.h"
#include "broker/config/machine.h"
#include "broker/config/reader.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"
#include "broker/life/configure.h"
#include "broker/life/confine.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"
#include "broker/socket/peer.h"
#include "broker/socket/socket_path.h"

struct arguments {
	const char *config;
	const char *socket;
	const char *remove;
	int listen_fd;
	/* a broker that goes on does not have the descriptor under that number */
	bool got_listen_fd;
	int lifeline_fd;
	int drain_ms;
	bool check;
	bool goes_on; /* the keeper has by now what the first broker was started with */
};

enum { OPTION_LISTEN_FD = 256, OPTION_LIFELINE_FD, OPTION_REMOVE, OPTION_CHECK, OPTION_DRAIN };

static const struct argp_option options[] = {
    {"config", 'c', "FILE", 0, "Read the configuration from FILE (default: built in)", 0},
    {"socket", 's', "PATH", 0, "Serve at PATH, whatever the configuration says", 0},
    {"log-level", 'l', "LEVEL", 0, "error, warning, info (default) or debug", 0},
    {"check", OPTION_CHECK, NULL, 0,
     "Read the configuration, look whether a socket can be made, report, and exit", 0},
    {"drain-ms", OPTION_DRAIN, "MS", 0,
     "At its end, wait that long for clients, whatever the configuration says", 0},
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
	const struct arguments *a = state->input;
	char *end;
	long fd = strtol(text, &end, 10);

	if (a->goes_on)
		return -1;
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
		a->got_listen_fd = true;
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

/* Returns the one listening socket that a service manager gave, as descriptor 3; else -1. */
static int activation_fd(const struct keeper *keeper)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");

	if (!pid || !fds || strtol(pid, NULL, 10) != keeper->pid || strcmp(fds, "1") != 0)
		return -1;
	fcntl(3, F_SETFD, FD_CLOEXEC);
	return 3;
}

struct listening {
	int fd;   /* -1: nobody is let in any more */
	int lock; /* -1: another program has made the socket */
};

/* Finds the path at which the broker serves if no other program has made the socket. With @make its
 * directory exists afterwards; without, it could be made. */
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

/* For --check: the file itself is good, so this looks at what is around it. */
static int check(const struct arguments *a, const struct config *config,
		 const struct keeper *keeper)
{
	char path[PATH_MAX];
	int r = 0;

	if (a->listen_fd < 0 && activation_fd(keeper) < 0)
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

/* The path at which the broker serves, whoever has bound the socket. */
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
		      uint64_t descriptors_before)
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
		snprintf(raised, sizeof(raised), ", raised from %" PRIu64, descriptors_before);
	log_info("descriptors: %zu (RLIMIT_NOFILE%s), %zu of them for users and pools",
		 b->n_descriptors, raised, b->n_descriptors - b->n_own_descriptors);
}

/* Gives up what the broker does not need. A kernel or a container may not allow that, which is no
 * reason not to serve. */
static void give_up_rights(void)
{
	const char *what;
	int r = confine(&what);

	if (r < 0)
		log_warning("cannot %s: %s; the broker serves with more rights than it needs", what,
			    strerror(-r));
}

/* Gets the socket at which the broker listens, and the lock if the broker has made the socket. 0 or
 * negative errno. */
static int start_to_listen(const struct arguments *a, const struct config *config,
			   const struct keeper *keeper, struct listening *out)
{
	char error[512], path[PATH_MAX];
	int r = 0;

	out->fd = a->listen_fd >= 0 ? a->listen_fd : activation_fd(keeper);
	out->lock = -1;
	if (out->fd < 0)
		r = find_socket(a, config, true, path);
	if (r == 0 && out->fd < 0) {
		out->fd =
		    listener_bind(path, config->socket_mode, &out->lock, error, sizeof(error));
		if (out->fd < 0) {
			log_error("%s", error);
			r = out->fd;
		}
	}
	if (r == 0)
		fcntl(out->fd, F_SETFL, O_NONBLOCK);
	return r;
}

/* Gives the keeper all that was there at the start, so that the next broker goes on with it. */
static int hand_to_keeper(const struct arguments *a, const struct config *config,
			  const struct listening *l)
{
	_cleanup_fd_ int text = configuration_write(config);
	const int fds[KEPT_FIXED] = {l->fd, l->lock, a->lifeline_fd, text};

	return text < 0 ? text : kept_keep_fixed(fds);
}

static void say_why(const struct keeper *keeper)
{
	switch (keeper->before) {
	case KEEPER_FIRST:
		break;
	case KEEPER_DIED:
		if (keeper->hung)
			log_warning("broker %d has hung, and was killed; this one goes on",
				    (int)keeper->broker_before);
		else if (keeper->signal)
			log_warning("broker %d has died (signal %d, %s); this one goes on",
				    (int)keeper->broker_before, keeper->signal,
				    signal_text(keeper->signal));
		else
			log_warning("broker %d has died, and its keeper as well; this one goes on",
				    (int)keeper->broker_before);
		break;
	case KEEPER_TRIED:
		log_warning("broker %d could not take over; this one goes on",
			    (int)keeper->broker_before);
		break;
	case KEEPER_HANDED_OVER:
		log_info("version " SHARE_VERSION " goes on from version %s, broker %d from %d",
			 keeper->version_before, (int)getpid(), (int)keeper->broker_before);
		if (!keeper->health)
			log_warning(
			    "the keeper is of an older version: until the service is started "
			    "again, a broker that hangs is not killed, and one that crashes does "
			    "not say where");
		break;
	case KEEPER_FELL_BACK:
		log_error("the new version could not go on; version " SHARE_VERSION " does");
		break;
	}
}

static int serve_with(struct arguments *a, struct config *config, const struct listening *l,
		      const struct keeper *keeper)
{
	int listener, listening = a->goes_on ? kept_look(KEPT_LISTENER) : l->fd;
	struct broker *broker;
	int r = a->goes_on ? 0 : hand_to_keeper(a, config, l);

	if (r == 0)
		r = broker_new(config, keeper, &broker);
	if (keeper->rehearses)
		return r;
	if (r < 0) {
		if (l->lock >= 0)
			listener_remove(listening);
		return r;
	}
	listener_name_self(listening);
	broker->made_socket = l->lock >= 0;
	broker->life->socket_stays = l->lock < 0 && !a->got_listen_fd;
	give_up_rights();
	if (a->goes_on)
		say_why(keeper);
	else
		say_start(config, l->fd, broker, keeper->descriptors_before);
	listener = l->fd;
	if (a->goes_on) {
		listener = kept_take(KEPT_LISTENER);
		if (listener < 0 && kept_look(KEPT_LISTENER) >= 0)
			kept_end(KEEPER_TRY_AGAIN); /* there was no memory to take it */
	}
	r = broker_run(broker, listener, a->lifeline_fd, a->drain_ms);
	broker_free(broker);
	return r;
}

static int run(struct arguments *a, struct config *config, const struct keeper *keeper)
{
	struct listening l = {.lock = kept_look(KEPT_LOCK)};
	int r = 0;

	if (a->goes_on)
		a->lifeline_fd = kept_look(KEPT_LIFELINE);
	else
		r = start_to_listen(a, config, keeper, &l);
	return r < 0 ? r : serve_with(a, config, &l, keeper);
}

/* Loads the configuration, which is the one in force if there was a broker before. */
static int load(const struct arguments *a, struct config **out)
{
	char error[1024];
	int r;

	/* such a broker was started for those who are in the same cgroup */
	if ((a->goes_on ? kept_look(KEPT_LIFELINE) : a->lifeline_fd) >= 0)
		machine_follow_cgroup("");
	if (a->goes_on) {
		r = configuration_kept(a->config, out, error, sizeof(error));
	} else if (a->config) {
		r = config_load(a->config, out, error, sizeof(error));
	} else {
		r = config_default(out);
		snprintf(error, sizeof(error), "%s", strerror(r < 0 ? -r : 0));
	}
	if (r != 0)
		log_error("%s", error);
	return r;
}

__attribute__((visibility("default"))) int KEEPER_MAIN_SYMBOL(struct keeper *keeper, int argc,
							      char **argv)
{
	struct arguments a = {.listen_fd = -1, .lifeline_fd = -1, .drain_ms = DRAIN_AS_CONFIGURED};
	struct config *config;
	int r;

	argp_program_version = "share-broker " SHARE_VERSION;
	argp_err_exit_status = EX_USAGE; /* 2 is the exit code of a wrong configuration */
	kept_init(keeper);
	a.goes_on = kept_look(KEPT_CONFIG) >= 0;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (!a.check && !keeper->rehearses)
		log_open();
	signal(SIGPIPE, SIG_IGN);
	config_reader_init();
	r = load(&a, &config);
	if (r != 0) {
		if (a.goes_on)
			return r < 0 ? KEEPER_TRY_AGAIN : 2;
		if (a.remove)
			remove_path(a.remove);
		return 2;
	}
	r = a.check ? check(&a, config, keeper) : run(&a, config, keeper);
	if (keeper->rehearses)
		return r < 0 ? 1 : 0;
	if (a.remove)
		remove_path(a.remove);
	config_free(config);
	return r < 0 ? 1 : 0;
}

/* What a keeper calls that is of 0.1.0 as it first was. */
__attribute__((visibility("default"))) int KEEPER_MAIN_BEFORE(struct keeper *keeper, int argc,
							      char **argv)
{
	struct keeper all = {.health = NULL};

	memcpy(&all, keeper, offsetof(struct keeper, hung));
	return KEEPER_MAIN_SYMBOL(&all, argc, argv);
}
