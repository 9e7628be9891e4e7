/* SPDX-License-Identifier: MIT */

/*
 * Makes of the configuration what it says: pools, accounts, and who may do what.
 *
 * What is read again is taken as a whole or not at all. So all that can fail is done first, in a
 * way that can be undone: the pools are made that are new, and the lists copied that pools will
 * have. After that nothing fails any more.
 *
 * Nobody loses what they hold. A user who is above a limit that is lower now gets no more until
 * there is room below it again; a pool that was removed ends with its last user.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/share.h>

#include "base/system/descriptor.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/config/machine.h"
#include "broker/keeper/kept.h"
#include "broker/life/configure.h"
#include "broker/life/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/names/names.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"

/* Finds the pool that the configuration means by this name; NULL: it has ended, or it is a
 * client's. */
static struct pool *find(struct broker *b, const char *name)
{
	struct pool *p = pool_find(b, name, strlen(name));

	return p && p->configured ? p : NULL;
}

/* 0 or -ENOMEM. */
static int make_pool(struct broker *b, const struct pool_config *from)
{
	struct pool_config copy = *from;
	struct failure failure;
	struct pool *p;
	int r;

	copy.name = strdup(from->name);
	copy.access = (struct access_list){0};
	copy.device = from->device ? strdup(from->device) : NULL;
	r = copy.name && (copy.device || !from->device)
		? access_list_copy(&copy.access, &from->access)
		: -ENOMEM;
	/* a pool that is charged to nobody fails only for want of memory */
	if (r == 0 && pool_new(b, &copy, NULL, b->life->uid, NULL, true, &p, &failure) != 0)
		r = -ENOMEM;
	pool_config_deinit(&copy);
	if (r != 0)
		return r;
	p->configured = true;
	pool_note(p);
	/* If it takes a driver to find out what memory a pool has, that is done when the pool is
	 * opened first. Host memory needs none. */
	if (pool_wants_host(p))
		pool_resolve(b, p, &failure);
	return 0;
}

void broker_share_memory(struct broker *b)
{
	accounts_share(b->accounts, LIMIT_MEMORY,
		       machine_broker_memory(b->config->broker_memory, ""));
}

int configure_pools(struct broker *b)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < b->config->n_pools; i++)
		r = make_pool(b, &b->config->pools[i]);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

static void forget(struct config *c, size_t i)
{
	pool_config_deinit(&c->pools[i]);
	memmove(&c->pools[i], &c->pools[i + 1], (c->n_pools - i - 1) * sizeof(*c->pools));
	c->n_pools--;
}

/* Removes the pools from the configuration in force that somebody has destroyed, and those that
 * were leaving and have left. */
static void forget_ended(struct broker *b)
{
	for (size_t i = b->config->n_pools; i-- > 0;) {
		if (!find(b, b->config->pools[i].name))
			forget(b->config, i);
	}
}

/* Takes those pools out of the file whose name a client's pool has: that stays as the client has
 * made it. */
static void set_taken_aside(struct broker *b, struct config *file, struct config_changes *out)
{
	char key[SHARE_NAME_MAX + sizeof("pools[\"\"]")];

	for (size_t i = 0; i < file->n_pools;) {
		const char *name = file->pools[i].name;
		const struct pool *p = pool_find(b, name, strlen(name));

		if (!p || p->configured) {
			i++;
			continue;
		}
		snprintf(key, sizeof(key), "pools[\"%s\"]", name);
		config_changes_add(out, false, key,
				   "not added: user %u has made a pool of that name; read the "
				   "configuration again when that has ended",
				   (unsigned)p->owner);
		forget(file, i);
	}
}

static int make_new_pools(struct broker *b, const struct config *file)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < file->n_pools; i++) {
		if (!find(b, file->pools[i].name))
			r = make_pool(b, &file->pools[i]);
	}
	return r;
}

/* Destroys the pools with a higher identifier than @last, which nobody knows yet. */
static void unmake_pools(struct broker *b, uint64_t last)
{
	struct pool *p, *next;

	for (p = LIST_FIRST(&b->memory->pools); p; p = next) {
		next = LIST_NEXT(p, link);
		if (p->id > last)
			pool_destroy(b, p);
	}
}

/* Copies the list of each pool of the file, in their order. NULL without memory. */
static struct access_list *copy_lists(const struct config *file)
{
	struct access_list *lists = calloc(file->n_pools + 1, sizeof(*lists));

	for (size_t i = 0; lists && i < file->n_pools; i++) {
		if (access_list_copy(&lists[i], &file->pools[i].access) == 0)
			continue;
		while (i-- > 0)
			access_list_deinit(&lists[i]);
		free(lists);
		return NULL;
	}
	return lists;
}

/* Changes the pools to what the configuration says. All of them are there: first those of the file,
 * then those that leave. */
static void change_pools(struct broker *b, struct access_list *lists)
{
	for (size_t i = 0; i < b->config->n_pools; i++) {
		const struct pool_config *from = &b->config->pools[i];
		struct pool *p = find(b, from->name);

		if (from->leaving)
			pool_leave(b, p);
		else
			pool_change(b, p, from, &lists[i]);
	}
	free(lists);
}

int configure_again(struct broker *b, struct config *file, struct config_changes *out)
{
	uint64_t last = b->memory->last_pool;
	struct access_list *lists = NULL;
	int r;

	forget_ended(b);
	set_taken_aside(b, file, out);
	r = config_compare(b->config, file, out);
	if (r == 0)
		r = (lists = copy_lists(file)) ? 0 : -ENOMEM;
	if (r == 0)
		r = make_new_pools(b, file);
	if (r == 0)
		r = config_replace(b->config, file);
	if (r < 0) {
		unmake_pools(b, last);
		for (size_t i = 0; lists && i < file->n_pools; i++)
			access_list_deinit(&lists[i]);
		free(lists);
		config_free(file);
		return r;
	}
	change_pools(b, lists);
	broker_hangs_after(b, b->config->hang_ms);
	accounts_reconfigure(b->accounts);
	broker_share_memory(b);
	names_access_changed(b);
	config_free(file);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* For the next broker                                                                         */

int configuration_write(const struct config *c)
{
	int fd = memfd_create("share-configuration", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (c->file && pwrite(fd, c->text, c->text_size, 0) != (ssize_t)c->text_size) {
		fd_close(fd);
		return -ENOSPC;
	}
	return fd;
}

int configuration_kept(const char *path, struct config **out, char *error, size_t error_size)
{
	int fd = kept_look(KEPT_CONFIG), r = -ENOMEM;
	off_t size = lseek(fd, 0, SEEK_END);
	char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;

	if (text && pread(fd, text, (size_t)size, 0) == size)
		r = size > 0 ? config_load_text(path, text, (size_t)size, out, error, error_size)
			     : config_default(out);
	if (r < 0)
		snprintf(error, error_size, "what is kept of the configuration: %s", strerror(-r));
	free(text);
	fd_close(fd); /* the keeper has its own, for the next broker */
	return r;
}
