/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_VALUE_H
#define TOOLS_VALUE_H

#include <stdarg.h>
#include <stdbool.h>

#include <jansson.h>

/*
 * How the value of @key in @row is shown: as a text for free(), or NULL when memory is out. What is
 * missing or of another type (the broker is older or newer than we are) shows as "-". @exact asks
 * for sizes in bytes.
 */
typedef char *value_show(const json_t *row, const char *key, bool exact);

value_show show_text;
value_show show_count;  /* 1234 */
value_show show_size;   /* 1.5MiB; exact: 1572864 */
value_show show_hex;    /* 0x100000002: offsets */
value_show show_yes_no; /* a boolean */
value_show show_user;   /* the name of a uid, or the uid if it has none */
value_show show_time;   /* of milliseconds: 2d 03:04:05 */
value_show show_any;    /* whatever it is */

/* These are for one column each. */
value_show show_pool_state;
value_show show_holders;
value_show show_members;

/* Such a text. */
char *show_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
