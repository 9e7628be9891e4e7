/* SPDX-License-Identifier: MIT */

/*
 * Two trees in turns: what a machine does beside comes to both alike, and their medians can be
 * compared where single runs cannot. Each run is a share-bench of its own that prints JSON, so the
 * other tree may be of any version that has the figures.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "bench/bench.h"
#include "bench/compare.h"

#define ROW "%-34s %10s %10s %-3s %8s %8s %8s\n"

enum tree { THEIRS, OURS, N_TREES };

struct compared {
	char *name, *unit;
	struct samples values[N_TREES], ratios[N_TREES];
};

struct comparison {
	struct compared *figures;
	size_t n;
};

static struct compared *figure_of(struct comparison *c, const char *name, const char *unit)
{
	struct compared *f;

	for (size_t i = 0; i < c->n; i++)
		if (strcmp(c->figures[i].name, name) == 0)
			return &c->figures[i];
	c->figures = reallocarray(c->figures, c->n + 1, sizeof(*c->figures));
	must_system(c->figures, "memory for figures");
	f = &c->figures[c->n++];
	*f = (struct compared){.name = strdup(name), .unit = strdup(unit)};
	must_system(f->name && f->unit, "memory for figures");
	return f;
}

static void take_line(struct comparison *c, enum tree tree, const char *line)
{
	json_t *o = json_loads(line, 0, NULL), *ratio = json_object_get(o, "ratio");
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *unit = json_string_value(json_object_get(o, "unit"));
	struct compared *f;

	if (name && unit) {
		f = figure_of(c, name, unit);
		samples_add(&f->values[tree], json_number_value(json_object_get(o, "value")));
		if (json_is_number(ratio))
			samples_add(&f->ratios[tree], json_number_value(ratio));
	}
	json_decref(o);
}

/* The shell finds the program's path in the environment, where nothing has to be quoted; what else
 * it gets are names of benchmarks. */
static void run_once(struct comparison *c, enum tree tree, const char *program, const char *rest)
{
	char command[1024], line[1024];
	FILE *out;
	int status;

	must_system(setenv("SHARE_BENCH_PROGRAM", program, 1) == 0, "setenv");
	snprintf(command, sizeof(command), "exec \"$SHARE_BENCH_PROGRAM\" --json %s", rest);
	out = popen(command, "re");
	must_system(out, program);
	while (fgets(line, sizeof(line), out))
		take_line(c, tree, line);
	status = pclose(out);
	if (status == 0)
		return;
	fprintf(stderr, "share-bench: %s %s\n", program,
		WIFEXITED(status) && WEXITSTATUS(status) == NOTHING_RAN
		    ? "can run none of these here"
		    : "failed");
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void print_figure(struct compared *f)
{
	double values[N_TREES];
	char ratios[N_TREES][16] = {"-", "-"}, text[N_TREES][32], change[16];

	if (f->values[THEIRS].n == 0 || f->values[OURS].n == 0)
		return; /* one of them does not have it */
	for (int tree = 0; tree < N_TREES; tree++) {
		values[tree] = samples_median(&f->values[tree]);
		snprintf(text[tree], sizeof(text[tree]), "%.*f",
			 values[tree] < 10    ? 2
			 : values[tree] < 100 ? 1
					      : 0,
			 values[tree]);
		if (f->ratios[tree].n > 0)
			snprintf(ratios[tree], sizeof(ratios[tree]), "%.3f",
				 samples_median(&f->ratios[tree]));
	}
	snprintf(change, sizeof(change), "%.3f", values[OURS] / values[THEIRS]);
	printf(ROW, f->name, text[THEIRS], text[OURS], f->unit, change, ratios[THEIRS],
	       ratios[OURS]);
}

void compare(const char *other, unsigned turns, const char *rest)
{
	struct comparison c = {NULL, 0};
	char own[4096];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	must_system(n > 0, "/proc/self/exe");
	own[n] = '\0';
	must_system(unsetenv("SHARE_BROKER") == 0, "unsetenv"); /* each has its own */
	for (unsigned i = 0; i < turns; i++) {
		/* who comes first finds another machine than who comes after it */
		run_once(&c, i % 2 ? OURS : THEIRS, i % 2 ? own : other, rest);
		run_once(&c, i % 2 ? THEIRS : OURS, i % 2 ? other : own, rest);
	}
	printf(ROW, "figure", "other", "this", "", "change", "ratio", "ratio");
	for (size_t i = 0; i < c.n; i++) {
		print_figure(&c.figures[i]);
		for (int tree = 0; tree < N_TREES; tree++) {
			samples_deinit(&c.figures[i].values[tree]);
			samples_deinit(&c.figures[i].ratios[tree]);
		}
		free(c.figures[i].name);
		free(c.figures[i].unit);
	}
	free(c.figures);
}
