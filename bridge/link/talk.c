/* SPDX-License-Identifier: MIT */

/*
 * What is said on the connection of TLS. Each side begins with "hello"; before the other's hello
 * has come, anything else is a mistake.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/buffer.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "bridge/bridge.h"
#include "bridge/channels/channels.h"
#include "bridge/hex.h"
#include "bridge/link/inside.h"
#include "bridge/names/names.h"
#include "bridge/services/services.h"

#define VERSION 2

static json_int_t now_us(void)
{
	return (json_int_t)(clock_ns() / 1000);
}

void talk_on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	struct link_inside *i = l->inside;
	uint32_t limit = i->bridge->settings->timeout_ms;

	(void)fd, (void)what;
	if (clock_ms() - i->heard_ms > limit) {
		link_fail(l, "it is silent");
		return;
	}
	if (l->up)
		link_say(l, json_pack("{s:s, s:I}", "say", "ping", "at", now_us()));
	timer_in(i->beat, limit / 4 + 1);
}

void talk_begin(struct link *l)
{
	struct link_inside *i = l->inside;
	size_t size;
	const void *address;
	char *hex, *secret;

	if (data_begin(l) != 0 || RAND_bytes(i->own_secret, DATA_SECRET) != 1) {
		link_fail(l, "this side has nothing to serve it with");
		return;
	}
	address = data_address(l, &size);
	hex = hex_make(address, size);
	secret = hex_make(i->own_secret, DATA_SECRET);
	link_say(l, json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:b, s:b}", "say", "hello", "version",
			      VERSION, "site", i->bridge->settings->site, "run", i->bridge->run,
			      "address", hex ? hex : "", "secret", secret ? secret : "", "pieces",
			      data_wants_pieces(l), "parts", true));
	free(hex);
	free(secret);
}

static void come_up(struct link *l)
{
	struct link_inside *i = l->inside;

	l->up = true;
	i->again_ms = AGAIN_MIN;
	event_del(i->again);
	say("linked to %s at %s", l->site, l->address);
	names_in_up(l);
	names_out_up(l);
	channels_up(l);
	services_up(l);
	talk_on_beat(-1, 0, l);
}

static const char *hear_hello(struct link *l, json_t *o)
{
	struct link_inside *i = l->inside;
	const char *site, *run, *address, *secret;
	unsigned char bytes[8192];
	int version, pieces;
	size_t n;

	if (json_unpack(o, "{s:i}", "version", &version) == 0 && version != VERSION)
		return "it is of another version"; /* whatever else that one says */
	if (json_unpack(o, "{s:i, s:s, s:s, s:s, s:s, s:b}", "version", &version, "site", &site,
			"run", &run, "address", &address, "secret", &secret, "pieces",
			&pieces) != 0)
		return "its hello is incomplete";
	if (!settings_is_site(site))
		return "its site has no proper name";
	if (strcmp(site, i->bridge->settings->site) == 0)
		return "both sides are called alike: give one of them another --site";
	if (hex_read(secret, i->peers_secret, DATA_SECRET) != DATA_SECRET)
		return "its secret is none";
	n = hex_read(address, bytes, sizeof(bytes));
	if (n == 0)
		return "its address is none";
	snprintf(l->site, sizeof(l->site), "%s", site);
	snprintf(l->run, sizeof(l->run), "%s", run);
	l->takes_parts = json_is_true(json_object_get(o, "parts")); /* who is older does not say */
	link_take_over(l);
	if (data_connect(l, bytes, pieces) != 0)
		return "UCX does not reach it";
	come_up(l);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* Words                                                                                       */

static const char *hear_ping(struct link *l, json_t *o)
{
	json_t *at = json_object_get(o, "at");

	if (!json_is_integer(at))
		return "its ping has no time";
	link_say(l, json_pack("{s:s, s:O}", "say", "pong", "at", at));
	return NULL;
}

static const char *hear_pong(struct link *l, json_t *o)
{
	json_int_t at = json_integer_value(json_object_get(o, "at")), now = now_us();

	if (at > 0 && at <= now && now - at < UINT32_MAX)
		l->traffic.rtt_us = (uint32_t)(now - at);
	return NULL;
}

static const struct {
	const char *say;
	const char *(*hear)(struct link *l, json_t *o); /* what is wrong with it, or NULL */
} vocabulary[] = {
    {"ping", hear_ping},
    {"pong", hear_pong},
    {"name", names_in_hear_name},
    {"gone", names_in_hear_gone},
    {"listed", names_in_hear_listed},
    {"content", names_in_hear_content},
    {"failed", names_in_hear_failed},
    {"want", names_out_hear_want},
    {"ready", names_out_hear_ready},
    {"open", channels_hear_open},
    {"opened", channels_hear_opened},
    {"begin", channels_hear_begin},
    {"closed", channels_hear_closed},
    {"call", services_hear_call},
    {"called", services_hear_called},
};

static const char *hear(struct link *l, json_t *o)
{
	struct link_inside *i = l->inside;
	const char *word = json_string_value(json_object_get(o, "say"));

	if (!word)
		return "it says nothing";
	if (!i->greeted) {
		i->greeted = true;
		return strcmp(word, "hello") == 0 && l->data ? hear_hello(l, o)
							     : "it does not begin with hello";
	}
	for (size_t k = 0; k < sizeof(vocabulary) / sizeof(vocabulary[0]); k++)
		if (strcmp(vocabulary[k].say, word) == 0)
			return vocabulary[k].hear(l, o);
	return NULL; /* a later version may say more */
}

void talk_on_input(struct bufferevent *tls, void *arg)
{
	struct link *l = arg;
	struct link_inside *i = l->inside;
	struct evbuffer *in = bufferevent_get_input(tls);
	const char *wrong = NULL;
	char *line;
	size_t n;

	i->heard_ms = clock_ms();
	while (!wrong && !*i->why && (line = evbuffer_readln(in, &n, EVBUFFER_EOL_LF)) != NULL) {
		json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);

		wrong = !o ? "it says what is no JSON" : hear(l, o);
		json_decref(o);
		free(line);
	}
	if (!wrong && evbuffer_get_length(in) > LINE_LONG)
		wrong = "it talks without end";
	if (wrong)
		link_fail(l, wrong);
}

void link_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	const char *wrong = NULL;

	if (*l->inside->why)
		return;
	switch (h->kind) {
	case DATA_NAME:
		wrong = names_in_content(l, h, p);
		break;
	case DATA_MESSAGE:
	case DATA_TAKEN:
		wrong = channels_content(l, h, p);
		break;
	case DATA_REQUEST:
	case DATA_ANSWER:
	case DATA_CANCEL:
		wrong = services_content(l, h, p);
		break;
	default:
		break;
	}
	if (wrong)
		link_fail(l, wrong);
}
