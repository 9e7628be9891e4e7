/* SPDX-License-Identifier: MIT */
#pragma once

struct event_base;
struct evhttp;
struct evhttp_request;

/* Which connections there are, so that those who say nothing, or say it slowly, keep nobody out. */

struct connections;

/* From now on @http has its connections counted. Returns NULL if there is no memory. */
struct connections *connections_new(struct event_base *base, struct evhttp *http);
/* After evhttp_free(). */
void connections_free(struct connections *all);
/* A whole request has come: time begins anew for it, and once more when it is answered. */
void connections_asked(struct connections *all, struct evhttp_request *r);
