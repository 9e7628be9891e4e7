/* SPDX-License-Identifier: MIT */

/*
 * The ranges that importers have mapped, in this process. A forked child has none of them; nor can
 * it use the driver that would be asked before anybody looks here.
 */

#include <pthread.h>
#include <stddef.h>

#include "memory/gpu/imports.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, cuda_import) all = LIST_HEAD_INITIALIZER(all);

void cuda_import_attach(struct cuda_import *i, CUdeviceptr base, uint64_t size)
{
	i->base = base;
	i->size = size;
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&all, i, link);
	pthread_mutex_unlock(&lock);
}

void cuda_import_detach(struct cuda_import *i)
{
	pthread_mutex_lock(&lock);
	LIST_REMOVE(i, link);
	pthread_mutex_unlock(&lock);
}

bool cuda_is_import(CUdeviceptr pointer)
{
	const struct cuda_import *i;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (i, &all, link)
		if (pointer >= i->base && pointer - i->base < i->size)
			break;
	pthread_mutex_unlock(&lock);
	return i != NULL;
}
