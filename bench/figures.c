/* SPDX-License-Identifier: MIT */

/*
 * Prints figures: as a table for people, or as one JSON object in each line for programs. Each
 * figure is printed as soon as it is known, since some take minutes; so the widths of the columns
 * are fixed.
 */

#include <stdio.h>

#include <jansson.h>

#include "bench/bench.h"

#define ROW "%-34s %10s %-3s %10s %7s %9s %-6s  %s\n"

static bool as_json;
static unsigned reported;

void figures_start(bool json)
{
	as_json = json;
	if (!json)
		printf(ROW, "figure", "value", "", "floor", "ratio", "target", "", "what");
	fflush(stdout);
}

unsigned figures_reported(void)
{
	return reported;
}

static double ratio_of(const struct figure *f)
{
	return isnan(f->floor) ? NONE : f->value / f->floor;
}

static json_t *number_or_null(double x)
{
	return isnan(x) ? json_null() : json_real(x);
}

static void print_json(const struct figure *f)
{
	json_t *object = json_pack("{s:s, s:f, s:s, s:o, s:o}", "name", f->name, "value", f->value,
				   "unit", f->unit, "floor", number_or_null(f->floor), "ratio",
				   number_or_null(ratio_of(f)));

	must_system(object, "memory for a figure");
	if (!isnan(f->target))
		json_object_set_new(object, "target", json_real(f->target));
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(object);
}

struct cell {
	char text[32];
};

/* Three significant digits; large numbers as integers. */
static struct cell number(double x)
{
	struct cell c;

	if (isnan(x))
		snprintf(c.text, sizeof(c.text), "-");
	else
		snprintf(c.text, sizeof(c.text), "%.*f", x < 10 ? 2 : x < 100 ? 1 : 0, x);
	return c;
}

static void print_row(const struct figure *f)
{
	double ratio = ratio_of(f), judged = isnan(ratio) ? f->value : ratio;
	struct cell target = {""};
	const char *met = "";

	if (!isnan(f->target)) {
		snprintf(target.text, sizeof(target.text), "<= %g%s", f->target,
			 isnan(ratio) ? "" : " x");
		met = judged <= f->target ? "met" : "MISSED";
	}
	printf(ROW, f->name, number(f->value).text, f->unit, number(f->floor).text,
	       number(ratio).text, target.text, met, f->what);
}

/* A floor of 0 (for instance, where a context takes no memory) is no floor, and a target that is a
 * ratio to it means nothing. */
static struct figure comparable(const struct figure *f)
{
	struct figure g = *f;

	if (!isnan(g.floor) && g.floor <= 0)
		g.floor = g.target = NONE;
	return g;
}

void figure_report(const struct figure *f)
{
	const struct figure g = comparable(f);

	if (as_json)
		print_json(&g);
	else
		print_row(&g);
	fflush(stdout);
	reported++;
}
