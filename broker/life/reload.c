/* SPDX-License-Identifier: MIT */

/*
 * Reading the configuration again while the broker serves, on SIGHUP or on a RELOAD.
 *
 * To look up the users and groups that are in a file may take as long as a network does, and nobody
 * is to wait for that. So the file is read in a thread, which has the file's path and nothing
 * else of the broker, and hands over what it has read; everything that follows is done in the
 * loop. Whoever sent the RELOAD is deferred meanwhile. A broker that ends does not wait for the
 * thread either.
 *
 * A file that is wrong is refused as a whole. Either way the log has every line.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/system/descriptor.h"
#include "base/system/thread.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/keeper/kept.h"
#include "broker/life/configure.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"

#define ROW_MAX 4096 /* bytes of a change as JSON, escapes and all */

struct reload {
	struct broker *broker;
	/* Those that are answered when the file was read, and those that have come meanwhile: the
	 * file may have changed since it was opened, so it is read once more for them. */
	struct deferred_list waits[2];
	unsigned current; /* which of the two is answered next */
	bool again;
	bool reading;

	char *path; /* NULL: the broker was started without a file */

	/* these are the thread's, while it is reading */
	struct config *file;
	int result; /* as config_load() */
	char error[CONFIG_ERROR_MAX];
	int done; /* an eventfd */

	struct event *on_done;
	/* what came of it the last time */
	int refused; /* a SHARE_E... number, or 0 */
	char why[CONFIG_ERROR_MAX];
	struct config_changes changes; /* what changed, if it was not refused */
};

/* The one of a broker that has ended, and that its thread still uses. Nobody reads this: it shows
 * leak checkers that the memory is not lost. */
static struct reload *volatile left_to_thread;

static void *read_file(void *data)
{
	struct reload *r = data;
	const uint64_t one = 1;

	r->result = config_load(r->path, &r->file, r->error, sizeof(r->error));
	/* the eventfd is 0 before and takes a number of 64 bits, so this cannot fail */
	if (write(r->done, &one, sizeof(one)) != sizeof(one))
		log_bug("nobody is told that the configuration was read");
	return NULL;
}

/* Starts the thread. 0 or negative errno. */
static int start(struct reload *r)
{
	int error;

	r->again = false;
	error = thread_start_detached(read_file, r);
	r->reading = error == 0;
	return error;
}

static void tell_log(const struct reload *r)
{
	if (r->refused) {
		log_error("the configuration stays as it was: %s", r->why);
		return;
	}
	log_info("%s was read again: %s", r->path,
		 r->changes.n > 0 ? "this is new" : "nothing is new");
	for (size_t i = 0; i < r->changes.n; i++) {
		const struct config_change *change = &r->changes.entries[i];

		if (change->now)
			log_info("%s: %s", change->key, change->text);
		else
			log_warning("%s: %s", change->key, change->text);
	}
}

/* Gives the keeper the configuration that is in force now, by which the next broker goes on.
 * Without memory for that the next one goes on by the configuration before. */
static void keep_what_is_new(const struct broker *b)
{
	_cleanup_fd_ int text = configuration_write(b->config);

	if (text < 0 || kept_keep_fixed((const int[KEPT_FIXED]){-1, -1, -1, text}) < 0)
		log_warning(
		    "if this broker dies, the next one goes on with an older configuration");
}

static void take(struct reload *r)
{
	int e = r->result;

	config_changes_deinit(&r->changes);
	r->refused = 0;
	if (e == 0)
		e = configure_again(r->broker, r->file, &r->changes);
	if (e > 0)
		r->refused = SHARE_EINVAL;
	else if (e < 0)
		r->refused = SHARE_ESYSTEM; /* the file is not there, ...: the sentence says it */
	if (e == -ENOMEM)
		snprintf(r->why, sizeof(r->why), "the broker is out of memory");
	else if (e != 0)
		snprintf(r->why, sizeof(r->why), "%s", r->error);
	else
		keep_what_is_new(r->broker);
	tell_log(r);
}

/* Starts the thread; if that fails, those who wait for it are answered with the error. */
static void start_or_fail(struct reload *r)
{
	char text[128];
	int e = start(r);

	if (e == 0)
		return;
	snprintf(text, sizeof(text), "the configuration cannot be read again: %s", strerror(-e));
	log_error("%s", text);
	deferred_fail(&r->waits[r->current], SHARE_ESYSTEM, text);
}

static void on_done(evutil_socket_t fd, short what, void *data)
{
	struct reload *r = data;
	struct deferred_list *waited = &r->waits[r->current];
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) != sizeof(count))
		return;
	r->reading = false;
	r->current ^= 1;
	take(r);
	deferred_wake(r->broker, waited);
	if (r->again)
		start_or_fail(r);
}

void reload_on_signal(struct broker *b)
{
	struct reload *r = b->life->reload;

	if (!r->path)
		log_warning(
		    "SIGHUP: there is no configuration to read again, as this broker was "
		    "started without a file");
	else if (r->reading)
		r->again = true;
	else
		start_or_fail(r);
}

/* ------------------------------------------------------------------------------------------- */

static json_t *row_of(const struct config_change *change)
{
	return json_pack("{s:o, s:o, s:b}", "key", report_text(change->key), "change",
			 report_text(change->text), "now", (int)change->now);
}

static bool answer_reload(struct request *request, const struct reload *r)
{
	char rest[64];
	struct page p;

	if (r->refused)
		return request_fail(request, r->refused, "%s", r->why);
	report_begin(&p, request, REPORT_ROWS_MAX); /* there is no other page */
	for (size_t i = 0; i < r->changes.n; i++) {
		if (p.size + 2 * ROW_MAX < REPORT_ROWS_MAX) {
			report_add(&p, row_of(&r->changes.entries[i]));
			continue;
		}
		snprintf(rest, sizeof(rest), "%zu more changes, which the broker's log has",
			 r->changes.n - i);
		report_add(&p,
			   json_pack("{s:s, s:s, s:b}", "key", "...", "change", rest, "now", 1));
		break;
	}
	if (p.failed) /* the configuration was changed all the same */
		return request_fail(
		    request, SHARE_ESYSTEM,
		    "the configuration was read again, but the broker is out of memory "
		    "for what is new: its log has it");
	return report_end(&p);
}

bool handle_reload(struct request *request)
{
	struct broker *b = request->broker;
	struct reload *r = b->life->reload;
	struct deferred_list *list;

	/* this holds even if the new configuration no longer lets the client that asked do so */
	if (request->deferred_ms)
		return answer_reload(request, r);
	if (!client_may_operate(request->client))
		return request_fail(request, SHARE_EACCES,
				    "only administrators may have the configuration read again "
				    "(\"admins\")");
	if (!r->path)
		return request_fail(
		    request, SHARE_ENOTSUP,
		    "there is no configuration to read again, as this broker was started "
		    "without a file");
	list = &r->waits[r->reading ? r->current ^ 1 : r->current];
	if (!request_defer(request, list))
		return false;
	if (r->reading)
		r->again = true;
	else
		start_or_fail(r);
	return true;
}

/* ------------------------------------------------------------------------------------------- */

int reload_new(struct broker *b, struct reload **out)
{
	struct reload *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->broker = b;
	TAILQ_INIT(&r->waits[0]);
	TAILQ_INIT(&r->waits[1]);
	r->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->done >= 0)
		r->on_done = event_new(b->base, r->done, EV_READ | EV_PERSIST, on_done, r);
	if (b->config->file)
		r->path = strdup(b->config->file);
	if (!r->on_done || (b->config->file && !r->path) || event_add(r->on_done, NULL) < 0) {
		reload_free(r);
		return -ENOMEM;
	}
	*out = r;
	return 0;
}

void reload_free(struct reload *r)
{
	if (!r)
		return;
	broker_free_event(r->on_done);
	config_changes_deinit(&r->changes);
	if (r->reading) {
		left_to_thread = r; /* which ends with the process */
		return;
	}
	free(r->path);
	fd_close(r->done);
	free(r);
}
