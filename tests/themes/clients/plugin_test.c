/* SPDX-License-Identifier: MIT */

/*
 * A plug-in brings the library along, and its program unloads the plug-in while something is still
 * open: threads of the library run then, and so does what it has asked to be called at a fork. The
 * library stays where it is, and who loads it again finds it as it was.
 */

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/fence.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

/* What the plug-in uses. These are functions of the library that was loaded, as the program has one
 * of its own. */
struct plugin {
	void *library;
	int (*connect)(const char *address, const share_connect_options *options,
		       share_client **out);
	int (*ping)(share_client *c);
	int (*pool_open)(share_client *c, const char *name, share_pool **out);
	int (*alloc)(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out);
	int (*release)(share_buffer *b, void *stream);
	int (*stream_create)(share_client *c, share_host_stream **out);
	int (*stream_launch)(share_host_stream *s, void (*function)(void *data), void *data);
	void (*stream_destroy)(share_host_stream *s);
	void (*pool_close)(share_pool *p);
	void (*disconnect)(share_client *c);
};

static void find(const struct plugin *p, const char *name, void *function, size_t size)
{
	void *address = dlsym(p->library, name);

	check(address != NULL);
	memcpy(function, &address, size);
}

#define FIND(member, name) find(p, name, &p->member, sizeof(p->member))

static void load(struct plugin *p)
{
	p->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	check(p->library != NULL);
	FIND(connect, "share_connect_with");
	FIND(ping, "share_ping");
	FIND(pool_open, "share_pool_open");
	FIND(alloc, "share_alloc_with");
	FIND(release, "share_release");
	FIND(stream_create, "share_host_stream_create");
	FIND(stream_launch, "share_host_stream_launch");
	FIND(stream_destroy, "share_host_stream_destroy");
	FIND(pool_close, "share_pool_close");
	FIND(disconnect, "share_disconnect");
	check(p->connect != share_connect_with);
}

static void unload(struct plugin *p)
{
	check(dlclose(p->library) == 0);
	*p = (struct plugin){0};
}

static void wait_for_gate(void *data)
{
	struct gate *gate = data;

	atomic_fetch_add(&gate->started, 1);
	until(atomic_load(&gate->open));
	atomic_fetch_add(&gate->done, 1);
}

static void fork_and_wait(void)
{
	pid_t pid = fork();
	int status;

	check(pid >= 0);
	if (pid == 0)
		_exit(0);
	check(waitpid(pid, &status, 0) == pid);
	check_eq(status, 0);
}

TestSuite(plugin, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

Test(plugin, that_is_unloaded_with_something_open_leaves_it_as_it_is)
{
	struct gate *gate = gate_new();
	share_host_stream *stream;
	struct plugin p;
	share_client *c;
	share_buffer *b;
	share_pool *pool;

	load(&p);
	check_ok(p.connect(broker_socket(), NULL, &c));
	check_ok(p.pool_open(c, "default", &pool));
	check_ok(p.alloc(pool, 4096, NULL, NULL, &b));
	check_ok(p.stream_create(c, &stream));
	check_ok(p.stream_launch(stream, wait_for_gate, gate));
	until(atomic_load(&gate->started) == 1);
	unload(&p);
	gate_open(gate); /* a thread of the library goes on */
	until(atomic_load(&gate->done) == 1);
	fork_and_wait();
	load(&p);
	check_ok(p.ping(c));
	check_ok(p.release(b, stream));
	p.stream_destroy(stream);
	p.pool_close(pool);
	p.disconnect(c);
	unload(&p);
	gate_free(gate);
}

Test(plugin, that_closes_all_can_be_loaded_and_unloaded_again)
{
	struct plugin p;
	share_client *c;

	for (int i = 0; i < 3; i++) {
		load(&p);
		check_ok(p.connect(broker_socket(), NULL, &c));
		check_ok(p.ping(c));
		p.disconnect(c);
		unload(&p);
		fork_and_wait();
	}
}
