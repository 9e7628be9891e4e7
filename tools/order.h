/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/*
 * Puts the objects of the array @rows in order by their member @key: the largest number first, and
 * texts from A on, since who sorts by a number looks for who has most. With @reverse it is the
 * other way round. Rows without the member are last. Rows with the same value stay in the order
 * they had. Returns 0 or a positive errno.
 */
int order_rows(json_t *rows, const char *key, bool reverse);
