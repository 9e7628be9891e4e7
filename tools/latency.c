/* SPDX-License-Identifier: MIT */

/*
 * Times of answers as people read them. The broker counts answers in classes, each twice as long as
 * the one before; so a quantile is known no better than by its class, and is shown as what it is
 * less than.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/latency.h"

static char *show_ns(const char *before, double ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	size_t unit = 0;

	for (; ns >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		ns /= 1000;
	return show_format("%s%.*f%s", before, ns < 10 ? 1 : 0, ns, units[unit]);
}

char *show_mean(const json_t *row, const char *key, bool exact)
{
	json_int_t n = json_integer_value(json_object_get(row, "timed"));

	(void)exact;
	if (n <= 0)
		return strdup("-");
	return show_ns("", (double)json_integer_value(json_object_get(row, key)) / (double)n);
}

static char *show_quantile(const json_t *row, const char *key, double part)
{
	double wanted = ceil((double)json_integer_value(json_object_get(row, "timed")) * part);
	const json_t *classes = json_object_get(row, key), *each, *longest = NULL;
	double before = 0, shorter = 0;
	size_t i;

	if (wanted <= 0)
		return strdup("-");
	json_array_foreach (classes, i, each) {
		longest = json_object_get(each, "longest_ns");
		before += (double)json_integer_value(json_object_get(each, "answers"));
		if (before >= wanted)
			break;
		shorter = (double)json_integer_value(longest);
	}
	return json_is_integer(longest) ? show_ns("<", (double)json_integer_value(longest))
					: show_ns(">", shorter);
}

char *show_median(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_quantile(row, key, 0.5);
}

char *show_hundredth(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_quantile(row, key, 0.99);
}

char *show_refused(const json_t *row, const char *key, bool exact)
{
	json_t *refused = json_object_get(row, key), *count;
	char *text = NULL;
	const char *error;
	size_t size;
	FILE *out;

	(void)exact;
	if (json_object_size(refused) == 0)
		return strdup("-");
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	json_object_foreach (refused, error, count)
		fprintf(out, "%s%s:%" JSON_INTEGER_FORMAT, ftell(out) > 0 ? " " : "", error,
			json_integer_value(count));
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}
