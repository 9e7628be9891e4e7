/* SPDX-License-Identifier: MIT */

/*
 * sharectl top: asks the broker every two seconds and draws what view.c makes of the answers. Keys
 * are waited for in between, so that a key is answered at once. A broker that is gone is shown as
 * that, and looked for again: whoever watches a machine at night must not have to start this anew.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <curses.h>
#include <jansson.h>

#include "tools/clock.h"
#include "tools/report.h"
#include "tools/snapshot.h"
#include "tools/top/top.h"
#include "tools/top/view.h"

#define INTERVAL_MS 2000

/* What the key 's' goes through. */
static const char *const sorts[] = {"BYTES", "LEASES", "OLDEST", "PARKED", "CLIENT", "PID", "USER"};

struct top {
	const struct top_options *options;
	share_client *given;  /* the caller's */
	share_client *client; /* the same, or another one after the broker was lost */
	json_t *now, *before;
	double at, seconds; /* when @now was taken; how much later than @before */
	const char *sort;
	bool reverse;
	int first; /* the line that is shown first, below those that always are */
	bool lost; /* the broker does not answer: @now is old */
};

static int look(struct top *t)
{
	double at = clock_seconds();
	json_t *snapshot;
	int r = snapshot_take(t->client, view_reports, view_n_reports, &snapshot);

	if (r != 0) {
		t->lost = true;
		return r;
	}
	json_decref(t->before);
	t->before = t->now;
	if (t->lost) { /* which may be another broker, with counters of its own */
		json_decref(t->before);
		t->before = NULL;
	}
	t->lost = false;
	t->now = snapshot;
	t->seconds = at - t->at;
	t->at = at;
	return 0;
}

static int print(const struct top *t, FILE *out, int width)
{
	const struct view_options options = {
	    .sort_key = report_sort_key(report_find("clients"), t->sort),
	    .reverse = t->reverse,
	    .exact = t->options->exact,
	    .width = width < VIEW_WIDTH_MIN ? VIEW_WIDTH_MIN : width,
	};

	return view_print(out, t->now, t->before, t->seconds, &options);
}

/* ------------------------------------------------------------------------------------------- */
/* Once                                                                                        */

static int print_once(struct top *t)
{
	char *text = NULL;
	size_t size;
	FILE *out;
	int r;

	if (t->options->json)
		return json_dumpf(t->now, stdout, JSON_COMPACT) < 0 || putchar('\n') < 0 ? EIO : 0;
	out = open_memstream(&text, &size);
	if (!out)
		return errno;
	r = print(t, out, VIEW_WIDTH_MIN);
	fclose(out);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		puts(line + (*line == '\t'));
	free(text);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* On a terminal                                                                               */

static void draw_text(struct top *t, char *text)
{
	int row = 0, n = 0, fixed = 2; /* the lines about the broker */

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n++) {
		if (row >= LINES - 1 || (n >= fixed && n < fixed + t->first))
			continue;
		if (*line == '\t')
			attron(A_REVERSE);
		mvaddnstr(row++, 0, line + (*line == '\t'), -1);
		attroff(A_REVERSE);
	}
	if (t->first > 0 && t->first > n - fixed - 1)
		t->first = n - fixed - 1;
}

static void draw(struct top *t)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	erase();
	print(t, out, COLS);
	fclose(out);
	draw_text(t, text);
	free(text);
	attron(A_BOLD);
	mvprintw(LINES - 1, 0, "%.*s", COLS - 1,
		 t->lost ? "the broker does not answer: this is old   q quit"
			 : "q quit  s sort clients by the next column  r reverse  arrows scroll");
	if (!t->lost && COLS > 75)
		printw("  %s", t->sort);
	attroff(A_BOLD);
	refresh();
}

static void sort_by_next(struct top *t)
{
	size_t n = sizeof(sorts) / sizeof(sorts[0]), i;

	for (i = 0; i < n && strcasecmp(sorts[i], t->sort) != 0; i++)
		;
	t->sort = sorts[(i + 1) % n];
}

/* Handles a key. Returns false when the user ends it. */
static bool on_key(struct top *t, int key)
{
	switch (key) {
	case 'q':
		return false;
	case 's':
		sort_by_next(t);
		break;
	case 'r':
		t->reverse = !t->reverse;
		break;
	case KEY_DOWN:
		t->first++;
		break;
	case KEY_UP:
		t->first -= t->first > 0;
		break;
	default:
		break;
	}
	return true;
}

/* Looks for a broker at the same place as before. */
static void connect_again(struct top *t)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *client;

	options.flags = SHARE_CONNECT_OPERATOR;
	options.timeout_ms = t->options->timeout_ms;
	if (share_connect_with(share_address(t->client), &options, &client) != 0)
		return;
	if (t->client != t->given)
		share_disconnect(t->client);
	t->client = client;
}

static int show_live(struct top *t)
{
	SCREEN *screen;
	double next;
	int key;

	screen =
	    isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? newterm(NULL, stdout, stdin) : NULL;
	if (!screen)
		return ENOTTY;
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	for (;;) {
		draw(t);
		next = t->at + INTERVAL_MS / 1e3 - clock_seconds();
		timeout(t->lost || next < 0 ? INTERVAL_MS : (int)(next * 1e3) + 1);
		key = getch();
		if (key == ERR && look(t) != 0 && share_address(t->client))
			connect_again(t);
		else if (key != ERR && !on_key(t, key))
			break;
	}
	endwin();
	delscreen(screen);
	if (t->client != t->given)
		share_disconnect(t->client);
	return 0;
}

int top_run(share_client *client, const struct top_options *options)
{
	struct top t = {.options = options,
			.given = client,
			.client = client,
			.sort = options->sort ? options->sort : TOP_SORT,
			.reverse = options->reverse};
	int r = look(&t);

	if (r == 0)
		r = options->once || options->json ? print_once(&t) : show_live(&t);
	json_decref(t.now);
	json_decref(t.before);
	return r;
}
