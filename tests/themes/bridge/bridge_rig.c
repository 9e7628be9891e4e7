/* SPDX-License-Identifier: MIT */

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/themes/bridge/bridge_cable.h"
#include "tests/themes/bridge/bridge_rig.h"

#define OPTIONS_MAX 64

static void temporary(char *path, size_t room, const char *what)
{
	int fd;

	snprintf(path, room, "/tmp/share-test-%s-XXXXXX", what);
	fd = mkstemp(path);
	check(fd >= 0);
	close(fd);
}

/* A port of the loopback device that nobody gets who does not ask for it. One who may use it again,
 * as bridges may, can listen there. */
static void reserve(struct sides *s)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int yes = 1;

	s->reserved = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(s->reserved >= 0 &&
	      setsockopt(s->reserved, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
	      bind(s->reserved, (struct sockaddr *)&at, size) == 0 &&
	      getsockname(s->reserved, (struct sockaddr *)&at, &size) == 0);
	snprintf(s->place, sizeof(s->place), "127.0.0.1:%u", ntohs(at.sin_port));
}

void sides_begin(struct sides *s)
{
	FILE *key;

	char broker[4096];

	snprintf(broker, sizeof(broker), "%s/share-broker", getenv("SHARE_TEST_BIN"));
	setenv("SHARE_BROKER", broker, 0);
	*s = (struct sides){.far = connect_as("far")};
	check_ok(share_connect("embedded", &s->near));
	reserve(s);
	temporary(s->key, sizeof(s->key), "key");
	key = fopen(s->key, "w");
	check(key != NULL);
	fputs("no secret but for this test\n", key);
	fclose(key);
}

void sides_end(struct sides *s)
{
	bridge_stop(&s->near_bridge);
	bridge_stop(&s->far_bridge);
	unlink(s->key);
	close(s->reserved);
	share_disconnect(s->near);
	share_disconnect(s->far);
}

static void run(const char **arguments)
{
	const char *transports = getenv("SHARE_TEST_UCX_TLS");
	char path[4096];

	snprintf(path, sizeof(path), "%s/share-bridge", getenv("SHARE_TEST_BIN"));
	arguments[0] = path;
	setenv("UCX_TLS", transports ? transports : "tcp,self", 1);
	setenv("UCX_NET_DEVICES", "lo", 0);
	if (getenv("SHARE_TEST_BRIDGE_PRELOAD"))
		setenv("LD_PRELOAD", getenv("SHARE_TEST_BRIDGE_PRELOAD"), 1);
	/* What UCX leaves when it ends is not ours. */
	setenv("ASAN_OPTIONS", "detect_leaks=0:handle_sigill=1", 1);
	execv(path, (char *const *)(uintptr_t)arguments);
	perror(path);
	_exit(127);
}

/* @network: 0: that of the test. */
static void start(struct bridge_process *p, const char **arguments, int network)
{
	int log;

	temporary(p->log, sizeof(p->log), "bridge");
	p->pid = fork();
	check(p->pid >= 0);
	if (p->pid == 0) {
		log = open(p->log, O_WRONLY | O_APPEND);
		dup2(log, STDERR_FILENO);
		if (network) {
			cable_enter(network);
			setenv("UCX_NET_DEVICES", "cable", 1);
		}
		run(arguments);
	}
}

const char *bridge_gpu_way(void)
{
	const char *said = getenv("SHARE_TEST_GPU_WAY");

	return said ? said : "staged";
}

static void add(const char **arguments, size_t *n, const char *const *options)
{
	for (; options && *options; options++) {
		check(*n < OPTIONS_MAX - 1);
		arguments[(*n)++] = *options;
	}
	arguments[*n] = NULL;
}

static char *log_of(const struct bridge_process *p)
{
	FILE *f = fopen(p->log, "r");
	char *text = calloc(1, 65536);

	check(f && text);
	check(fread(text, 1, 65535, f) < 65535);
	fclose(f);
	return text;
}

int bridge_said(const struct bridge_process *p, const char *text)
{
	char *log = log_of(p), *line, *rest = log;
	int n = 0;

	while ((line = strsep(&rest, "\n")) != NULL)
		n += strstr(line, text) != NULL;
	free(log);
	return n;
}

void bridge_show(const struct bridge_process *p)
{
	char *log = log_of(p);

	fprintf(stderr, "---- a bridge said ----\n%s----\n", log);
	free(log);
}

/* On a busy machine a peer may be silent for long, and is lost where a test says so. */
void far_start(struct sides *s, const char *const *options)
{
	const char *arguments[OPTIONS_MAX] = {"",
					      "--socket",
					      share_address(s->far),
					      "--site",
					      "far",
					      "--key",
					      s->key,
					      "--timeout",
					      "60",
					      "--gpu",
					      bridge_gpu_way(),
					      "--listen",
					      s->place};
	size_t n = 13;

	add(arguments, &n, options);
	start(&s->far_bridge, arguments, s->cable ? s->cable->far_network : 0);
	until(bridge_said(&s->far_bridge, "listens at ") > 0);
}

void near_start(struct sides *s, const char *const *options)
{
	const char *arguments[OPTIONS_MAX] = {"",
					      "--socket",
					      share_address(s->near),
					      "--site",
					      "near",
					      "--key",
					      s->key,
					      "--timeout",
					      "60",
					      "--gpu",
					      bridge_gpu_way(),
					      "--peer",
					      *s->way ? s->way : s->place};
	size_t n = 13;

	add(arguments, &n, options);
	start(&s->near_bridge, arguments, s->cable ? s->cable->near_network : 0);
}

static int end(struct bridge_process *p, int signal)
{
	int status;

	check(kill(p->pid, signal) == 0);
	check(waitpid(p->pid, &status, 0) == p->pid);
	p->pid = 0;
	return status;
}

static void expect_exit(const struct bridge_process *p, int status, int code, const char *said)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code ||
	    (said && bridge_said(p, said) == 0)) {
		char *log = log_of(p);

		fprintf(stderr, "---- a bridge's log ----\n%s----\n", log);
		free(log);
		check_failed(__FILE__, __LINE__, "a bridge ended with status %x", (unsigned)status);
	}
	unlink(p->log);
}

void bridge_stop(struct bridge_process *p)
{
	if (p->pid)
		expect_exit(p, end(p, SIGTERM), 0, NULL);
}

void bridge_expect_end(struct bridge_process *p, int code, const char *said)
{
	int status;

	check(waitpid(p->pid, &status, 0) == p->pid);
	p->pid = 0;
	expect_exit(p, status, code, said);
}

void bridge_kill(struct bridge_process *p)
{
	end(p, SIGKILL);
	unlink(p->log);
}

/* ------------------------------------------------------------------------------------------- */

share_channel *mirror_open(share_client *c)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;

	options.flags = SHARE_CHANNEL_EXISTING;
	until(share_channel_open(c, "q", SHARE_CONSUMER, &options, &ch) == 0);
	return ch;
}

static unsigned char byte_of(unsigned seed, uint64_t at)
{
	uint64_t x = (at + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed;

	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return (unsigned char)(x >> 40);
}

void content_fill(share_buffer *b, unsigned seed)
{
	unsigned char *p = share_ptr(b);

	for (uint64_t i = 0; i < share_size(b); i++)
		p[i] = byte_of(seed, i);
}

bool content_is(share_buffer *b, unsigned seed)
{
	const unsigned char *p = share_ptr(b);

	for (uint64_t i = 0; i < share_size(b); i++)
		if (p[i] != byte_of(seed, i))
			return false;
	return true;
}

void content_publish(share_client *c, const char *name, uint64_t size, unsigned seed)
{
	share_pool *pool = open_pool(c);
	share_buffer *b = allocate(pool, size, NULL);

	content_fill(b, seed);
	check_ok(share_publish(b, name, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
}

bool content_at(share_client *c, const char *name, uint64_t size, unsigned seed)
{
	share_buffer *b;
	bool is;

	if (share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b) != 0)
		return false;
	is = share_size(b) == size && content_is(b, seed);
	check_ok(share_release(b, NULL));
	return is;
}

char *metadata_at(share_client *c, const char *name, const char *key)
{
	char *text, *value = NULL;
	share_buffer *b;
	json_t *all;

	if (share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b) != 0)
		return NULL;
	if (share_metadata_get(b, &text) == 0) {
		json_t *v;

		all = json_loads(text, 0, NULL);
		v = json_object_get(json_object_get(all, "bridge"), key);
		value = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
		json_decref(all);
		free(text);
	}
	check_ok(share_release(b, NULL));
	return value;
}

bool sharectl_bridges_say(share_client *c, const char *options, const char *text)
{
	char command[512], line[4096];
	bool said = false;
	FILE *out;

	snprintf(command, sizeof(command), "%s/sharectl --socket=%s %s bridges",
		 getenv("SHARE_TEST_BIN"), share_address(c), options);
	out = popen(command, "r");
	check(out != NULL);
	while (fgets(line, sizeof(line), out))
		said |= strstr(line, text) != NULL;
	check_eq(pclose(out), 0);
	return said;
}
