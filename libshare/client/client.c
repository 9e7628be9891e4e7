/* SPDX-License-Identifier: MIT */

/* The life of a client. */

#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/system/descriptor.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"
#include "libshare/program/embedded.h"

#define GUARD_SIZE 4096

static struct connection *connection_new(void)
{
	struct connection *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->packet = malloc(WIRE_PACKET_MAX);
	if (!n->packet) {
		free(n);
		return NULL;
	}
	n->socket = -1;
	n->answer_by = -1;
	n->patience_ms = -1;
	LIST_INIT(&n->calls);
	return n;
}

static void connection_free(struct connection *n)
{
	if (!n)
		return;
	embedded_stop(n->embedded, n->socket);
	fd_close(n->socket);
	free(n->later);
	free(n->address);
	free(n->packet);
	free(n);
}

static uint32_t *guard_new(void)
{
	uint32_t *guard =
	    mmap(NULL, GUARD_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (guard == MAP_FAILED)
		return NULL;
	madvise(guard, GUARD_SIZE, MADV_WIPEONFORK);
	*guard = 1;
	return guard;
}

share_client *client_new(void)
{
	share_client *c = handle_new(HANDLE_CLIENT, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	LIST_INIT(&c->watches);
	LIST_INIT(&c->channels);
	atomic_init(&c->refs, 1);
	c->guard = guard_new();
	c->connection = connection_new();
	c->dispatch = dispatch_new();
	if (c->guard && c->connection && c->dispatch)
		return c;
	client_free(c);
	return NULL;
}

void client_free(share_client *c)
{
	size_t n = 0;

	dispatch_free(c);
	while (client_rooms[n])
		n++;
	while (n-- > 0)
		if (client_rooms[n]->free)
			client_rooms[n]->free(c);
	connection_free(c->connection);
	waiters_free(c);
	pthread_mutex_destroy(&c->lock);
	if (c->guard)
		munmap(c->guard, GUARD_SIZE);
	handle_free(c);
}

/* Whether the broker may hear that this process has nothing of it any more. */
static bool end(share_client *c)
{
	for (size_t i = 0; client_rooms[i]; i++)
		if (client_rooms[i]->end && !client_rooms[i]->end(c))
			return false;
	return true;
}

void client_unref(share_client *c)
{
	struct wire_message bye = {.type = WIRE_BYE};

	if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
		return;
	DETAIL_STAYS;
	/* its GPUs may still use what it has: then it stays mapped, and the broker keeps it for
	 * this process until that ends */
	if (!end(c)) {
		shutdown(c->connection->socket, SHUT_RDWR);
		return;
	}
	if (!c->connection->embedded) /* which ends now, and everything with it */
		rpc(c, &bye, NULL);
	client_free(c);
}

const char *share_address(const share_client *c)
{
	HAZARDS;
	const share_client *found =
	    hazard_set(handle_object(c)) ? handle_find(c, HANDLE_CLIENT) : NULL;

	return found ? found->connection->address : NULL;
}

int share_ending(share_client *c)
{
	HAZARDS;
	int64_t ends_by, left;
	int r = client_resolve(&c);

	if (r != 0)
		return r;
	rpc_poll(c);
	pthread_mutex_lock(&c->lock);
	ends_by = c->connection->ends_by;
	if (c->lost)
		r = client_lost(c);
	pthread_mutex_unlock(&c->lock);
	if (r != 0 || ends_by == 0)
		return r;
	left = ends_by - (int64_t)clock_ms();
	return left < 1 ? 1 : left > INT_MAX ? INT_MAX : (int)left;
}

int share_ping(share_client *c)
{
	HAZARDS;
	struct wire_message ping = {.type = WIRE_PING};
	int r = client_resolve(&c);

	return r != 0 ? r : rpc(c, &ping, NULL);
}
