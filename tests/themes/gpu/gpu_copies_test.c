/* SPDX-License-Identifier: MIT */

/*
 * Two copies of the library in one process, each loaded for itself, as by plug-ins that bring one
 * along: they find each other, whichever was loaded or used first. What the driver does not let two
 * have, memory of kind mempool, the second one refuses, with the reason; all else both have. And
 * the first one's memory stays when the second one goes.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/support/gpu_owner.h"

TestSuite(gpu_copies, .init = gpu_start, .fini = gpu_stop, .timeout = 120);

struct copy {
	const void *word;
	int (*connect)(const char *address, const share_connect_options *options,
		       share_client **out);
	int (*lookup)(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		      share_buffer **out);
	int (*copy_to_host)(share_buffer *b, uint64_t offset, void *to, uint64_t size,
			    void *stream);
	int (*release)(share_buffer *b, void *stream);
	void (*disconnect)(share_client *c);
	const char *(*detail)(void);
};

static void find(void *library, const char *name, void *function)
{
	void *address = dlsym(library, name);

	check(address != NULL);
	memcpy(function, &address, sizeof(address));
}

/* A file of its own, so that it is no second handle of the same. */
static struct copy load(int number)
{
	char path[] = "/tmp/share-copy-XXXXXX";
	struct copy c;
	struct stat st;
	void *library;
	int from = open(LIBRARY, O_RDONLY | O_CLOEXEC), to = mkostemp(path, O_CLOEXEC);

	check(from >= 0 && to >= 0 && fstat(from, &st) == 0);
	check(sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size);
	close(from);
	close(to);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		check_failed(__FILE__, __LINE__, "copy %d: %s", number, dlerror());
	unlink(path);
	find(library, "share_first_copy", &c.word);
	find(library, "share_connect_with", &c.connect);
	find(library, "share_lookup", &c.lookup);
	find(library, "share_copy_to_host", &c.copy_to_host);
	find(library, "share_release", &c.release);
	find(library, "share_disconnect", &c.disconnect);
	find(library, "share_error_detail", &c.detail);
	return c;
}

static share_client *connected(const struct copy *c)
{
	share_client *client;

	check_ok(c->connect(broker_socket(), NULL, &client));
	return client;
}

static void has_the_memory(const struct copy *c, share_client *client, share_buffer **out)
{
	char text[8] = "";

	check_ok(c->lookup(client, "name", SHARE_RDONLY, 0, NULL, out));
	check_ok(c->copy_to_host(*out, 0, text, sizeof("content"), NULL));
	check(strcmp(text, "content") == 0);
}

/* @data: whether the one that was loaded last comes first. */
static void one_of_two_has_mempool_memory(struct child *self, void *data)
{
	struct copy loaded[2];
	const struct copy *first, *second;
	share_client *a, *b;
	share_buffer *held, *none = NULL;
	char text[8] = "";

	(void)self;
	loaded[0] = load(0);
	loaded[1] = load(1);
	check(loaded[0].connect != loaded[1].connect && loaded[0].word == loaded[1].word);
	first = &loaded[data != NULL];
	second = &loaded[data == NULL];
	a = connected(first);
	b = connected(second);
	has_the_memory(first, a, &held);
	check_eq(second->lookup(b, "name", SHARE_RDONLY, 0, NULL, &none), SHARE_ENOTSUP);
	check(none == NULL && strstr(second->detail(), "another copy of libshare in this process"));
	second->disconnect(b);
	check_ok(first->copy_to_host(held, 0, text, sizeof("content"), NULL));
	check(strcmp(text, "content") == 0);
	check_ok(first->release(held, NULL));
	first->disconnect(a);
}

static void both_have_other_memory(struct child *self, void *data)
{
	struct copy loaded[2] = {load(0), load(1)};
	share_client *c[2];
	share_buffer *b[2];

	(void)self, (void)data;
	for (int i = 0; i < 2; i++)
		c[i] = connected(&loaded[i]);
	for (int i = 0; i < 2; i++)
		has_the_memory(&loaded[i], c[i], &b[i]);
	for (int i = 0; i < 2; i++) {
		check_ok(loaded[i].release(b[i], NULL));
		loaded[i].disconnect(c[i]);
	}
}

static void with(const char *kind, void (*function)(struct child *self, void *data), void *data)
{
	struct child *owner = owner_start(kind);

	child_finish(child_start(function, data));
	owner_finish(owner);
}

Test(gpu_copies, the_one_that_was_loaded_first_has_mempool_memory_and_the_other_says_so)
{
	with("mempool", one_of_two_has_mempool_memory, NULL);
}

Test(gpu_copies, the_one_that_was_loaded_last_has_it_if_it_needs_it_first)
{
	static char last[] = "last";

	with("mempool", one_of_two_has_mempool_memory, last);
}

Test(gpu_copies, both_have_memory_of_another_kind)
{
	with("vmm", both_have_other_memory, NULL);
}
