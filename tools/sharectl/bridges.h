/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/admin.h>
#include <share/share.h>

/*
 * Calls @each with a JSON object for each link of each bridge of this broker, as share_inspect()
 * does with rows. Returns 0, an error of libshare, what @each has returned, or a positive errno.
 */
int bridges_each(share_client *client, int (*each)(const char *json, void *data), void *data);
