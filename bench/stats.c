/* SPDX-License-Identifier: MIT */

/*
 * Samples, and their medians and percentiles. There are no means and no deviations: latencies have
 * a long tail, which distorts a mean, and they are not distributed like a bell curve.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

void samples_add(struct samples *s, double value)
{
	if (s->n == s->room) {
		s->room = s->room ? s->room * 2 : 1024;
		s->values = realloc(s->values, s->room * sizeof(double));
		must_system(s->values, "memory for samples");
	}
	s->values[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double samples_percentile(struct samples *s, unsigned percent)
{
	size_t rank = (s->n * percent + 99) / 100;

	qsort(s->values, s->n, sizeof(double), by_value);
	return s->values[rank > 0 ? rank - 1 : 0];
}

double samples_median(struct samples *s)
{
	return samples_percentile(s, 50);
}

void samples_clear(struct samples *s)
{
	s->n = 0;
}

void samples_deinit(struct samples *s)
{
	free(s->values);
	*s = (struct samples){NULL, 0, 0};
}

void series_end_round(struct series *s)
{
	samples_add(&s->medians, samples_median(&s->round));
	samples_add(&s->p99s, samples_percentile(&s->round, 99));
	samples_clear(&s->round);
}

void series_deinit(struct series *s)
{
	samples_deinit(&s->medians);
	samples_deinit(&s->p99s);
	samples_deinit(&s->round);
}

void series_report_median(struct series *value, struct series *floor, const struct figure *f)
{
	struct figure median = *f;

	median.value = samples_median(&value->medians);
	median.floor = floor ? samples_median(&floor->medians) : NONE;
	figure_report(&median);
}

void series_report(struct series *value, struct series *floor, const struct figure *f,
		   double p99_target)
{
	struct figure p99 = *f;
	char name[128];

	series_report_median(value, floor, f);

	snprintf(name, sizeof(name), "%s.p99", f->name);
	p99.name = name;
	p99.what = "the same, 99th percentile";
	p99.target = p99_target;
	p99.value = samples_median(&value->p99s);
	p99.floor = floor ? samples_median(&floor->p99s) : NONE;
	figure_report(&p99);
}
