/* SPDX-License-Identifier: MIT */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/rand.h>

#include "base/failure.h"
#include "bridge/bridge.h"
#include "bridge/channels/channels.h"
#include "bridge/data/data.h"
#include "bridge/helper.h"
#include "bridge/hex.h"
#include "bridge/link.h"
#include "bridge/names/names.h"
#include "bridge/services/services.h"
#include "bridge/status.h"
#include "memory/stream.h"

static void on_broker(evutil_socket_t fd, short what, void *arg)
{
	struct bridge *b = arg;

	(void)fd, (void)what;
	if (share_dispatch(b->client) >= 0)
		return;
	say("the broker is lost");
	event_del(b->broker_event);
	bridge_give_up(b);
}

/* Which device the memory for what comes in is on. */
static int find_ordinal(struct bridge *b)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct failure failure;
	int r = share_pool_get_info(b->pool, &info);

	b->ordinal = -1;
	if (r == 0 && info.device) {
		r = memory_device_ordinal(info.device, &b->ordinal, &failure);
		if (r != 0)
			say("the pool '%s' cannot be used: %s", b->settings->pool, failure.text);
	}
	return r;
}

static int connect_to_broker(struct bridge *b)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	char label[SHARE_LABEL_MAX + 1];

	snprintf(label, sizeof(label), "bridge %.40s", b->settings->site);
	options.label = label;
	options.flags = SHARE_CONNECT_NEVER_BLOCK;
	if (share_connect_with(b->settings->broker, &options, &b->client) != 0) {
		say("%s", share_error_detail());
		return -1;
	}
	if (share_pool_open(b->client, b->settings->pool, &b->pool) != 0) {
		say("%s (--pool says where what comes in is)", share_error_detail());
		return -1;
	}
	if (find_ordinal(b) != 0)
		return -1;
	b->broker_event =
	    event_new(b->base, share_get_fd(b->client), EV_READ | EV_PERSIST, on_broker, b);
	return b->broker_event && event_add(b->broker_event, NULL) == 0 ? 0 : -1;
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	event_base_loopbreak(arg);
}

static int prepare(struct bridge *b)
{
	unsigned char random[16];
	char *hex;

	if (RAND_bytes(random, sizeof(random)) != 1)
		return -1;
	hex = hex_make(random, sizeof(random));
	if (!hex)
		return -1;
	snprintf(b->run, sizeof(b->run), "%s", hex);
	free(hex);
	b->awaited = json_object();
	b->base = event_base_new();
	if (!b->awaited || !b->base)
		return -1;
	return connect_to_broker(b);
}

static int serve(struct bridge *b)
{
	struct event *term = evsignal_new(b->base, SIGTERM, on_signal, b->base);
	struct event *interrupt = evsignal_new(b->base, SIGINT, on_signal, b->base);
	int r = -1;

	if (term && interrupt && event_add(term, NULL) == 0 && event_add(interrupt, NULL) == 0 &&
	    helper_open(b) == 0 && data_open(b) == 0 && names_out_open(b) == 0 &&
	    channels_open(b) == 0 && services_open(b) == 0 && status_open(b) == 0 &&
	    links_start(b) == 0) {
		say("serves as %s", b->settings->site);
		r = !b->lost && event_base_dispatch(b->base) >= 0 && !b->lost ? 0 : -1;
	}
	links_stop(b);
	status_close(b);
	services_close(b);
	channels_close(b);
	names_out_close(b);
	data_close(b);
	helper_close(b);
	if (term)
		event_free(term);
	if (interrupt)
		event_free(interrupt);
	return r;
}

int main(int argc, char **argv)
{
	struct settings settings;
	struct bridge b = {.settings = &settings};
	int r;

	settings_read(&settings, argc, argv);
	data_prepare();
	TAILQ_INIT(&b.links);
	signal(SIGPIPE, SIG_IGN);
	r = prepare(&b) == 0 ? serve(&b) : -1;
	if (b.broker_event)
		event_free(b.broker_event);
	share_pool_close(b.pool);
	share_disconnect(b.client);
	json_decref(b.awaited);
	if (b.base)
		event_base_free(b.base);
	settings_free(&settings);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
