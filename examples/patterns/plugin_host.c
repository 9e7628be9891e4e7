/* SPDX-License-Identifier: MIT */

/*
 * plugin_host: a program that uses the library, and loads a plug-in that does so as well, without
 * either knowing of the other.
 *
 *   plugin_host PLUGIN      PLUGIN is ./plugin_filter.so in the folder of this program: without a
 *                           slash it would be looked for where libraries are
 *
 * Both are linked with libshare.so.0, so there is one library in the process, whichever loads it
 * first. Each has a connection of its own, and hands memory over by a name, as two processes would:
 * handles are not passed on, because who has them would have to know who gives them up, and
 * when. A plug-in may be unloaded; the library stays.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "plugin_host: %s: %s\n", what, share_error_detail());
	exit(1);
}

/* As others would load it: found by name, with its symbols its own. */
static int run_plugin(const char *path, const char *address, const char *name)
{
	int (*filter)(const char *address, const char *name);
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found;
	int r;

	if (!plugin || !(found = dlsym(plugin, "filter"))) {
		fprintf(stderr, "plugin_host: %s\n", dlerror());
		exit(1);
	}
	memcpy(&filter, &found, sizeof(filter));
	r = filter(address, name);
	dlclose(plugin);
	return r;
}

int main(int argc, char **argv)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *client;
	share_pool *pool;
	share_buffer *picture;
	unsigned char *pixels;

	if (argc != 2) {
		fprintf(stderr, "usage: plugin_host ./plugin_filter.so\n");
		return 2;
	}
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client) == 0,
	      "share_connect");
	options.kind = "host";
	check(share_pool_create(client, "pictures", &options, &pool) == 0, "share_pool_create");
	check(share_alloc(pool, 4096, NULL, &picture) == 0, "share_alloc");
	pixels = share_ptr(picture);
	memset(pixels, 10, 4096);
	check(share_publish(picture, "picture", NULL) == 0, "share_publish");
	for (int i = 0; i < 2; i++) /* loaded, unloaded, and loaded again */
		check(run_plugin(argv[1], share_address(client), "picture") == 0, "the plug-in");
	/* the same memory, which the plug-in has at another address */
	printf("plugin_host: a pixel is %d\n", pixels[4095]);
	check(share_release(picture, NULL) == 0, "share_release");
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
