/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <jansson.h>
#include <share/share.h>

/* What goes along with a buffer: its metadata, which everybody who may write in the buffer could
 * set, and the sites that it came by, which bridges keep in there. */

#define ABOUT_SITES_MAX 64 /* that something came by */

/* NULL, JSON's, if there is none, or it is no JSON. */
json_t *about_read(share_buffer *b);
/* The sites that a buffer with this metadata came by, and @own. NULL: @peer is among them, or there
 * are too many. What is no site by its form counts for nothing: no bridge has set that. */
json_t *about_path(const json_t *metadata, const char *own, const char *peer);
/* The metadata without what bridges keep in it. NULL: it is too large for a buffer, as numbers may
 * be longer when they are written than they were when they were read. */
json_t *about_bare(const json_t *metadata);
/* The metadata as it will be at @own, which is told of it in @content. NULL: that makes no sense,
 * or *@loop: it has been here. */
json_t *about_describe(const json_t *content, const char *own, json_int_t version, bool *loop);
