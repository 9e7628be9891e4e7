/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include <share/admin.h>

#include "bench/bench.h"
#include "bench/bridge/bridge_pair.h"

#define SMALL      64
#define DEVICE_MAX 64

/* ------------------------------------------------------------------------------------------- */
/* Two brokers, two bridges                                                                    */

bool bridge_pair_find(struct bridge_pair *p)
{
	char *program = p->program;
	const char *said = getenv("SHARE_BRIDGE");
	ssize_t n;

	if (said) {
		snprintf(program, PATH_MAX, "%s", said);
		return access(program, X_OK) == 0;
	}
	n = readlink("/proc/self/exe", program, PATH_MAX - 16);
	must_system(n > 0, "/proc/self/exe");
	program[n] = '\0';
	snprintf(strrchr(program, '/'), 16, "/share-bridge");
	return access(program, X_OK) == 0;
}

static void make_key(struct bridge_pair *p)
{
	const char *tmp = getenv("TMPDIR");
	unsigned char bytes[64];
	int fd;

	snprintf(p->directory, sizeof(p->directory), "%s/share-bench-XXXXXX", tmp ? tmp : "/tmp");
	must_system(mkdtemp(p->directory), "mkdtemp");
	snprintf(p->key, sizeof(p->key), "%s/key", p->directory);
	snprintf(p->log, sizeof(p->log), "%s/log", p->directory);
	must_system(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)('a' + bytes[i] % 26);
	fd = open(p->key, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	must_system(fd >= 0 && write(fd, bytes, sizeof(bytes)) == sizeof(bytes), p->key);
	close(fd);
}

static int take_device(const char *json, void *data)
{
	char *last = data;
	json_t *o = json_loads(json, 0, NULL);
	const char *device = json_string_value(json_object_get(o, "device"));

	if (device)
		snprintf(last, DEVICE_MAX, "%s", device);
	json_decref(o);
	return 0;
}

/* On the device that the broker chooses, which is the first, or on the last one. */
static int open_side(struct bridge_side *s, const struct bridge_setup *setup, uint64_t room,
		     bool last)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	char device[DEVICE_MAX] = "";

	must(share_connect("embedded", &s->client), "share_connect");
	if (last)
		must(share_inspect(s->client, "devices", take_device, device), "share_inspect");
	options.kind = setup->kind;
	options.device = *device ? device : NULL;
	options.limit = room;
	options.release_threshold = room;
	return share_pool_create(s->client, BRIDGE_POOL, &options, &s->pool);
}

static pid_t start_bridge(const struct bridge_pair *p, const struct bridge_setup *setup,
			  const struct bridge_side *s, const char *site, const char *what,
			  const char *where, const char *role)
{
	char names[32], channels[32];
	pid_t pid = fork();
	int log;

	must_system(pid >= 0, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* stdout is for figures, and UCX says there what it has to say */
	log = open(p->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0 || dup2(log, 1) != 1 || dup2(log, 2) != 2)
		_exit(127);
	snprintf(names, sizeof(names), "--%s", role);
	snprintf(channels, sizeof(channels), "--%s-channel", role);
	execl(p->program, "share-bridge", "--socket", share_address(s->client), "--site", site,
	      what, where, "--key", p->key, "--gpu", setup->gpu, "--pool", BRIDGE_POOL, names,
	      "bench/*", setup->channel ? channels : NULL, setup->channel, (char *)NULL);
	_exit(127);
}

static void on_change(const share_name_event *event, void *data)
{
	struct bridge_pair *p = data;

	if (event->change == SHARE_PUBLISHED || event->change == SHARE_REPLACED)
		p->arrived++;
	if (event->change == SHARE_OVERFLOW) {
		errno = EOVERFLOW;
		must_system(false, "changes were lost");
	}
}

static void must_live(const struct bridge_pair *p, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, WNOHANG) == 0)
		return;
	fprintf(stderr, "share-bench: a bridge has ended: status %#x; see %s\n", (unsigned)status,
		p->log);
	exit(1);
}

void bridge_pair_must_live(const struct bridge_pair *p)
{
	must_live(p, p->here.bridge);
	must_live(p, p->there.bridge);
}

/* Until @n names have come over there since the last time. */
static void await(struct bridge_pair *p, unsigned n)
{
	struct pollfd fd = {.fd = share_get_fd(p->there.client), .events = POLLIN};
	double end = now_us() + HANGS_MS * 1e3;

	while (p->arrived < n) {
		int r = poll(&fd, 1, 1000);

		must_system(r >= 0 || errno == EINTR, "poll");
		bridge_pair_must_live(p);
		errno = ETIMEDOUT;
		must_system(now_us() < end, "names that do not come over the bridges");
		r = share_dispatch(p->there.client);
		must(r < 0 ? r : 0, "share_dispatch");
	}
	p->arrived = 0;
}

static void close_sides(struct bridge_pair *p)
{
	share_pool_close(p->here.pool);
	share_pool_close(p->there.pool);
	share_disconnect(p->here.client);
	share_disconnect(p->there.client);
}

static void start_bridges(struct bridge_pair *p, const struct bridge_setup *setup)
{
	unsigned port;
	char where[32];
	share_buffer *b;

	make_key(p);
	must(share_watch_names(p->there.client, "bench/", on_change, p, &p->watch),
	     "share_watch_names");
	p->reserved = bridge_reserve_port(&port);
	snprintf(where, sizeof(where), "127.0.0.1:%u", port);
	p->here.bridge = start_bridge(p, setup, &p->here, "here", "--listen", where, "export");
	p->there.bridge = start_bridge(p, setup, &p->there, "there", "--peer", where, "import");
	must(share_alloc(p->here.pool, SMALL, NULL, &b), "share_alloc");
	must(share_publish(b, "bench/first", NULL), "share_publish");
	must(share_release(b, NULL), "share_release");
	await(p, 1);
}

int bridge_pair_open(struct bridge_pair *p, const struct bridge_setup *setup)
{
	int r = open_side(&p->here, setup, setup->room, false);

	if (r == 0)
		r = open_side(&p->there, setup, 2 * setup->room, setup->apart);
	if (r == 0)
		start_bridges(p, setup);
	else
		close_sides(p);
	return r;
}

static void stop(pid_t pid)
{
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

void bridge_pair_close(struct bridge_pair *p)
{
	stop(p->there.bridge);
	stop(p->here.bridge);
	close(p->reserved);
	share_unwatch(p->watch);
	close_sides(p);
	unlink(p->key);
	unlink(p->log);
	rmdir(p->directory);
}

/* ------------------------------------------------------------------------------------------- */
/* Buffers                                                                                     */

double bridge_pair_cpu_us(const struct bridge_pair *p)
{
	return processor_us(p->here.bridge) + processor_us(p->there.bridge);
}

/* Of the host, or NULL. */
static uint64_t *words_of(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	must(share_buffer_get_info(b, &info), "share_buffer_get_info");
	return info.ordinal < 0 ? share_ptr(b) : NULL;
}

static uint64_t *copy_for(share_buffer *b)
{
	uint64_t *copy = malloc(share_size(b));

	must_system(copy, "malloc");
	return copy;
}

static void fill(share_buffer *b, uint64_t seed)
{
	uint64_t *own = words_of(b), *words = own ? own : copy_for(b);

	for (uint64_t i = 0; i < share_size(b) / sizeof(*words); i++)
		words[i] = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
	if (own)
		return;
	must(share_copy_from_host(b, 0, words, share_size(b), NULL), "share_copy_from_host");
	free(words);
}

static void must_equal(struct bridge_pair *p, const char *name, uint64_t seed, uint64_t size)
{
	uint64_t *own, *words;
	share_buffer *b;

	must(share_lookup(p->there.client, name, SHARE_RDONLY, 0, NULL, &b), "share_lookup");
	errno = EBADMSG;
	must_system(share_size(b) == size, "another size came over the bridges");
	own = words_of(b);
	words = own ? own : copy_for(b);
	if (!own)
		must(share_copy_to_host(b, 0, words, size, NULL), "share_copy_to_host");
	errno = EBADMSG;
	for (uint64_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != (seed + i) * UINT64_C(0x9e3779b97f4a7c15))
			must_system(false, "another content came over the bridges");
	if (!own)
		free(words);
	must(share_release(b, NULL), "share_release");
}

struct bridge_cost bridge_pair_send(struct bridge_pair *p, const char *name, share_buffer **buffers,
				    unsigned n, uint64_t seed)
{
	double begin, cpu;
	char full[64];

	for (unsigned i = 0; i < n; i++)
		fill(buffers[i], seed + i);
	cpu = bridge_pair_cpu_us(p);
	begin = now_us();
	for (unsigned i = 0; i < n; i++) {
		snprintf(full, sizeof(full), "bench/%s/%u", name, i);
		must(share_publish(buffers[i], full, NULL), "share_publish");
	}
	await(p, n);
	begin = now_us() - begin;
	cpu = bridge_pair_cpu_us(p) - cpu;
	for (unsigned i = 0; i < n; i++) {
		snprintf(full, sizeof(full), "bench/%s/%u", name, i);
		must_equal(p, full, seed + i, share_size(buffers[i]));
	}
	return (struct bridge_cost){begin / n, cpu / n};
}
