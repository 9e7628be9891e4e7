/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

/*
 * Shows the value of @key in @row. Returns a text for free(), or NULL when there is no memory. A
 * value that is missing or of another type shows as "-", as the broker may be older or newer than
 * this program. With @exact, sizes are shown in bytes.
 */
typedef char *value_show(const json_t *row, const char *key, bool exact);

value_show show_text;
value_show show_count;  /* 1234 */
value_show show_size;   /* 1.5MiB; exact: 1572864 */
value_show show_hex;    /* 0x100000002: offsets */
value_show show_yes_no; /* a boolean */
value_show show_user;   /* the name of a uid, or the uid if it has none */
value_show show_time;   /* of milliseconds: 2d 03:04:05 */
value_show show_any;    /* a value of any type */

/* Each of these is for one column. */
value_show show_pool_state;
value_show show_holders;
value_show show_members;

/* Returns a text with what @put writes of each element, one after the other. */
char *show_list(const json_t *list, void (*put)(FILE *out, const json_t *each));
/* Returns a text of that kind. */
char *show_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
