/* SPDX-License-Identifier: MIT */
#pragma once

struct embedded;

/* Starts a private broker that ends with this process, or with embedded_stop(). @config may be
 * NULL. Once this returns, connections are accepted. 0 or an error. */
int embedded_start(const char *config, struct embedded **out);
const char *embedded_address(const struct embedded *e);
/* Waits until it has ended. @connection is one to it, or -1. NULL is fine. */
void embedded_stop(struct embedded *e, int connection);
