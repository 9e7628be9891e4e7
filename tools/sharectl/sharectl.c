/* SPDX-License-Identifier: MIT */

/*
 * sharectl: shows an operator what a broker knows. Most commands are a report (show.c). Those that
 * end something are in act.c, all others in command.c.
 */

#include <errno.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "tools/sharectl/act.h"
#include "tools/sharectl/arguments.h"
#include "tools/sharectl/command.h"
#include "tools/sharectl/show.h"

/* An upgrade takes longer by its nature than other answers: the new program has 10 seconds to
 * rehearse, and takes over what may be millions of objects. */
#define UPGRADE_TIMEOUT_MS 60000

static int connect_for(const struct arguments *a, int64_t timeout_ms, share_client **out)
{
	share_connect_options wanted = SHARE_CONNECT_OPTIONS_INIT;

	wanted.flags = SHARE_CONNECT_OPERATOR;
	wanted.timeout_ms = timeout_ms;
	return share_connect_with(a->socket, &wanted, out);
}

/* Who hangs is not waited for as long as an upgrade may take. */
static int connect_to_broker(const struct arguments *a, share_client **out)
{
	int r = connect_for(a, a->timeout_ms, out);

	if (r != 0 || a->timeout > 0 || !arguments_are_for(a, "upgrade"))
		return r;
	share_disconnect(*out);
	*out = NULL;
	return connect_for(a, UPGRADE_TIMEOUT_MS, out);
}

static int run(const struct arguments *a, share_client *client)
{
	return a->command ? a->command->run(a, client) : show_report(a, client);
}

int main(int argc, char **argv)
{
	int r, failed = 0;
	struct arguments a = {.options.headings = true, .failed = &failed};
	share_client *client = NULL;

	a.words = calloc((size_t)argc, sizeof(char *)); /* there cannot be more words */
	if (!a.words)
		return EXIT_FAILURE;
	/* For printable characters only: numbers and messages stay as they are. */
	setlocale(LC_CTYPE, "");
	arguments_parse(argc, argv, &a);
	r = a.connected = connect_to_broker(&a, &client);
	if (a.command && !a.command->needs_broker)
		r = 0;
	if (r == 0 && a.act)
		failed = act_run(a.act, client, a.words, a.n_words, a.yes);
	else if (r == 0)
		r = run(&a, client);
	/* Only after all is written does a full disk show. */
	if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = errno ? errno : EIO;
	if (r != 0)
		fprintf(stderr, "sharectl: %s\n", r < 0 ? share_error_detail() : strerror(r));
	share_disconnect(client);
	free((void *)a.words);
	return r == 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
