/* SPDX-License-Identifier: MIT */

/*
 * plugin_filter: a plug-in that makes a picture brighter, for plugin_host. It knows an address and
 * a name, and leaves nothing open, so that it can be unloaded.
 *
 * Link a plug-in with libshare.so (-lshare) as a program. One with libshare.a in it brings a second
 * copy along, which has to be linked with -Wl,-z,nodelete, and does without memory of kind
 * "mempool" where another copy uses it.
 */

#include <share/share.h>

int filter(const char *address, const char *name);

int filter(const char *address, const char *name)
{
	unsigned char *pixels;
	share_client *client;
	share_buffer *b;
	int r = share_connect(address, &client);

	if (r != 0)
		return r;
	r = share_lookup(client, name, SHARE_RDWR, 1000, NULL, &b);
	if (r == 0) {
		pixels = share_ptr(b);
		for (uint64_t i = 0; i < share_size(b); i++)
			pixels[i] = (unsigned char)(pixels[i] * 2);
		r = share_release(b, NULL);
	}
	share_disconnect(client);
	return r;
}
