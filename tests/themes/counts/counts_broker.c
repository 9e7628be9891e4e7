/* SPDX-License-Identifier: MIT */

/*
 * What counts_test.sh counts the broker's instructions of: this starts a broker under callgrind,
 * and asks it the same so often. What a broker takes for more of them, less what another one takes
 * for fewer, is theirs.
 *
 * usage: counts_broker VALGRIND OUT BROKER WHAT TURNS; WHAT is ping, alloc_release, lookup_release,
 * or release, of buffers that were allocated before that.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.h>

#define WARM_UP 100 /* so that what happens once is over, and the user is one who asks often */
#define MOST    600

static share_client *client;
static share_pool *pool;
static share_buffer *buffer, *many[MOST];

static void must(int r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "counts_broker: %s\n", share_error_detail());
	exit(1);
}

static void must_system(int r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	exit(1);
}

static void ping(void)
{
	must(share_ping(client));
}

static void alloc_release(void)
{
	must(share_alloc(pool, 4096, NULL, &buffer));
	must(share_release(buffer, NULL));
}

static void lookup_release(void)
{
	must(share_lookup(client, "counts", SHARE_RDONLY, 0, NULL, &buffer));
	must(share_release(buffer, NULL));
}

static void release(void)
{
	static size_t n;

	must(share_release(many[n++], NULL));
}

static void alloc_many(void)
{
	for (size_t i = 0; i < MOST; i++)
		must(share_alloc(pool, 4096, NULL, &many[i]));
}

static void nothing(void)
{
}

static const struct request {
	const char *name;
	void (*before)(void);
	void (*ask)(void);
} requests[] = {
    {"ping", nothing, ping},
    {"alloc_release", nothing, alloc_release},
    {"lookup_release", nothing, lookup_release},
    {"release", alloc_many, release},
};

static void ask(const char *name, int times)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		if (strcmp(requests[i].name, name) != 0)
			continue;
		requests[i].before();
		for (int k = 0; k < times; k++)
			requests[i].ask();
	}
	must(share_ping(client)); /* all that was asked before is done */
}

/* ------------------------------------------------------------------------------------------- */

/* The broker listens before it is there: who connects waits for it. */
static int listen_at(struct sockaddr_un *address, const char *path)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	must_system(fd, "socket");
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "%s.sock", path);
	must_system(bind(fd, (const struct sockaddr *)address, sizeof(*address)), "bind");
	must_system(listen(fd, 1), "listen");
	return fd;
}

/* It ends with @life, of which this process has the other end. */
static pid_t start_broker(char **argv, int listener, int life)
{
	char out[1024], listens[16], lives[16];
	pid_t pid = fork();

	must_system(pid, "fork");
	if (pid != 0)
		return pid;
	fcntl(life, F_SETFD, 0);
	snprintf(out, sizeof(out), "--callgrind-out-file=%s", argv[2]);
	snprintf(listens, sizeof(listens), "%d", listener);
	snprintf(lives, sizeof(lives), "%d", life);
	execl(argv[1], argv[1], "--tool=callgrind", "-q", out, "--toggle-collect=broker_run",
	      argv[3], "--log-level=warning", "--listen-fd", listens, "--lifeline-fd", lives,
	      (char *)NULL);
	_exit(127);
}

static void connect_to(const char *address)
{
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;
	share_buffer *named;

	must(share_connect(address, &client));
	memory.kind = "host";
	must(share_pool_create(client, "counts", &memory, &pool));
	must(share_alloc(pool, 4096, NULL, &named));
	must(share_publish(named, "counts", NULL));
}

int main(int argc, char **argv)
{
	int status, listener, life[2];
	struct sockaddr_un address = {0};
	pid_t pid;

	if (argc != 6)
		return 64;
	signal(SIGPIPE, SIG_IGN);
	listener = listen_at(&address, argv[2]);
	must_system(pipe2(life, O_CLOEXEC), "pipe2");
	pid = start_broker(argv, listener, life[0]);
	close(listener);
	close(life[0]);
	connect_to(address.sun_path);
	ask(argv[4], WARM_UP + atoi(argv[5]));
	/* while this process still has what it has: giving that back is no part of it */
	close(life[1]);
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
