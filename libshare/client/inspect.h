/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CLIENT_INSPECT_H
#define LIBSHARE_CLIENT_INSPECT_H

#include <share/admin.h>
#include <share/share.h>

/* share_inspect() with a prefix for names. */
int inspect(share_client *c, const char *what, const char *prefix,
	    int (*each)(const char *json, void *data), void *data);

#endif
