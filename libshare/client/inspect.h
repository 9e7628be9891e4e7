/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/admin.h>
#include <share/share.h>

/* share_inspect() with a prefix for names. */
int inspect(share_client *c, const char *what, const char *prefix,
	    int (*each)(const char *json, void *data), void *data);
