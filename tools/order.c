/* SPDX-License-Identifier: MIT */

/*
 * The order of rows for who reads them. Identifiers come as hexadecimal texts of any length; they
 * are compared as the numbers that they are.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/order.h"

struct place {
	json_t *row;
	const json_t *value;
	size_t was;
};

static bool is_identifier(const char *text)
{
	return strncmp(text, "0x", 2) == 0 &&
	       text[2 + strspn(text + 2, "0123456789abcdef")] == '\0';
}

static int compare_texts(const char *a, const char *b)
{
	size_t a_length = strlen(a), b_length = strlen(b);

	if (is_identifier(a) && is_identifier(b) && a_length != b_length)
		return a_length < b_length ? -1 : 1;
	return strcmp(a, b);
}

/* Negative when @a is to be above @b, if the order is not reversed. */
static int compare_values(const json_t *a, const json_t *b)
{
	double x = json_number_value(a), y = json_number_value(b);

	if (json_is_string(a) && json_is_string(b))
		return compare_texts(json_string_value(a), json_string_value(b));
	if (json_is_boolean(a) && json_is_boolean(b))
		return json_is_true(b) - json_is_true(a);
	return (x < y) - (x > y);
}

static bool is_missing(const json_t *value)
{
	return !value || json_is_null(value);
}

static int compare(const void *left, const void *right, void *data)
{
	const struct place *a = left, *b = right;
	const bool *reverse = data;
	int r = is_missing(a->value) - is_missing(b->value);

	if (r == 0 && !is_missing(a->value))
		r = compare_values(a->value, b->value) * (*reverse ? -1 : 1);
	return r ? r : (a->was > b->was) - (a->was < b->was);
}

int order_rows(json_t *rows, const char *key, bool reverse)
{
	size_t n = json_array_size(rows), i;
	struct place *places = calloc(n ? n : 1, sizeof(*places));
	json_t *row;

	if (!places)
		return ENOMEM;
	json_array_foreach (rows, i, row)
		places[i] = (struct place){json_incref(row), json_object_get(row, key), i};
	qsort_r(places, n, sizeof(*places), compare, &reverse);
	for (i = 0; i < n; i++)
		json_array_set_new(rows, i, places[i].row);
	free(places);
	return 0;
}
