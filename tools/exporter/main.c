/* SPDX-License-Identifier: MIT */

/*
 * share-exporter: serves by HTTP what a broker counts, for Prometheus, and a page that shows it to
 * people. The broker itself has no network; this is an ordinary client of it, which sees what its
 * user may see and holds nothing.
 */

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>
#include <share/share.h>

#include "tools/exporter/site.h"

#define DEFAULT_PORT 9756

struct arguments {
	struct site_options site;
	char host[64];
};

static const struct argp_option options[] = {
    {"listen", 'l', "ADDRESS:PORT", 0, "Serve there instead of at 127.0.0.1:9756", 0},
    {"socket", 's', "PATH", 0, "Ask the broker at PATH", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

/* "127.0.0.1:9756", "[::1]:9756", ":9756" for the loopback device, "0.0.0.0:0" */
static bool read_listen(struct arguments *a, const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	unsigned long port;
	char *end;

	if (!colon || n >= sizeof(a->host) || colon[1] < '0' || colon[1] > '9')
		return false;
	errno = 0;
	port = strtoul(colon + 1, &end, 10);
	if (*end || errno || port > UINT16_MAX)
		return false;
	a->site.port = (uint16_t)port;
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']')
		snprintf(a->host, sizeof(a->host), "%.*s", (int)n - 2, text + 1);
	else if (n > 0)
		snprintf(a->host, sizeof(a->host), "%.*s", (int)n, text);
	return true;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'l':
		if (!read_listen(a, value))
			argp_error(state, "'%s' is no ADDRESS:PORT", value);
		return 0;
	case 's':
		/* libshare gives a meaning of its own to an empty path and to the word
		 * "embedded". */
		if (!*value)
			argp_error(state, "the path of the socket is empty");
		a->site.address = strcmp(value, "embedded") == 0 ? "./embedded" : value;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is one argument too many", value);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Serves what a share-broker counts as OpenMetrics at /metrics, and a page at /.\v"
    "Without --socket, the broker is the one that programs find: at $SHARE_SOCKET when that is "
    "set, else at $XDG_RUNTIME_DIR/share/broker.sock or /run/share/broker.sock.",
    NULL,
    NULL,
    NULL};

static void on_signal(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	event_base_loopbreak(data);
}

static int serve(struct event_base *base, const struct arguments *a)
{
	struct event *term = evsignal_new(base, SIGTERM, on_signal, base);
	struct event *interrupt = evsignal_new(base, SIGINT, on_signal, base);
	bool six = strchr(a->host, ':') != NULL;
	struct site *site;
	int r = -ENOMEM;

	if (term && interrupt && event_add(term, NULL) == 0 && event_add(interrupt, NULL) == 0)
		r = site_new(base, &a->site, &site);
	if (r < 0) {
		fprintf(stderr, "share-exporter: cannot serve at %s:%u: %s\n", a->host,
			a->site.port, strerror(-r));
	} else {
		fprintf(stderr, "share-exporter: serves at http://%s%s%s:%u/\n", six ? "[" : "",
			a->host, six ? "]" : "", site_port(site));
		event_base_dispatch(base);
		if (!site_free(site))
			_exit(EXIT_SUCCESS); /* the broker hangs, and nothing here is worth waiting
						for */
	}
	if (term)
		event_free(term);
	if (interrupt)
		event_free(interrupt);
	return r;
}

int main(int argc, char **argv)
{
	struct arguments a = {.host = "127.0.0.1", .site.port = DEFAULT_PORT};
	struct event_base *base;
	int r;

	argp_program_version = "share-exporter " SHARE_VERSION;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	a.site.host = a.host;
	signal(SIGPIPE, SIG_IGN);
	base = event_base_new();
	r = base ? serve(base, &a) : -ENOMEM;
	if (base)
		event_base_free(base);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
