/* SPDX-License-Identifier: MIT */

/* From the program's handle to the client, which stays as long as anybody has a reference. */

#include "libshare/client/client.h"

int client_find(const share_client *handle, share_client **out)
{
	void *found = NULL;
	int r = hazard_find(handle, HANDLE_CLIENT, &found);

	if (r != 0)
		return r;
	*out = found;
	return client_is_forked(*out) ? fail_fork() : 0;
}

int client_resolve_for(share_client **c, const void *out)
{
	int r = client_resolve(c);

	return r == 0 && !out ? fail(SHARE_EINVAL, "out is NULL") : r;
}

share_client *client_ref(share_client *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}
