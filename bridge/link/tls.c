/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <string.h>

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/util.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "bridge/bridge.h"
#include "bridge/link/tls.h"

#define IDENTITY "share-bridge"

static const struct settings *settings_of(SSL *ssl)
{
	return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

static unsigned give_key(SSL *ssl, unsigned char *key, unsigned room)
{
	const struct settings *s = settings_of(ssl);

	if (room < sizeof(s->key))
		return 0;
	memcpy(key, s->key, sizeof(s->key));
	return sizeof(s->key);
}

static unsigned of_client(SSL *ssl, const char *hint, char *identity, unsigned room,
			  unsigned char *key, unsigned key_room)
{
	(void)hint;
	snprintf(identity, room, IDENTITY);
	return give_key(ssl, key, key_room);
}

static unsigned of_server(SSL *ssl, const char *identity, unsigned char *key, unsigned room)
{
	return identity && strcmp(identity, IDENTITY) == 0 ? give_key(ssl, key, room) : 0;
}

/* No tickets: every connection is proven by the key itself. */
static SSL_CTX *make_context(const struct bridge *b)
{
	SSL_CTX *c = SSL_CTX_new(TLS_method());

	if (!c || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") !=
		1 ||
	    SSL_CTX_set_num_tickets(c, 0) != 1) {
		SSL_CTX_free(c);
		return NULL;
	}
	SSL_CTX_set_app_data(c, b->settings);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	return c;
}

int tls_open(struct bridge *b)
{
	b->tls_client = make_context(b);
	b->tls_server = make_context(b);
	if (!b->tls_client || !b->tls_server) {
		say("OpenSSL does not start");
		return -1;
	}
	SSL_CTX_set_psk_client_callback(b->tls_client, of_client);
	SSL_CTX_set_psk_server_callback(b->tls_server, of_server);
	/* A server without certificates would be proven by nothing: a client insists on the key, as
	 * it accepts no certificate at all. */
	SSL_CTX_set_verify(b->tls_client, SSL_VERIFY_PEER, NULL);
	return 0;
}

void tls_close(struct bridge *b)
{
	SSL_CTX_free(b->tls_client);
	SSL_CTX_free(b->tls_server);
	b->tls_client = b->tls_server = NULL;
}

static struct bufferevent *start(struct bridge *b, SSL_CTX *c, int fd,
				 enum bufferevent_ssl_state state)
{
	SSL *ssl = SSL_new(c);

	return ssl ? bufferevent_openssl_socket_new(b->base, fd, ssl, state,
						    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS)
		   : NULL;
}

struct bufferevent *tls_client(struct bridge *b)
{
	return start(b, b->tls_client, -1, BUFFEREVENT_SSL_CONNECTING);
}

struct bufferevent *tls_server(struct bridge *b, int fd)
{
	return start(b, b->tls_server, fd, BUFFEREVENT_SSL_ACCEPTING);
}

void tls_describe(struct bufferevent *tls, short what, char *out, size_t room)
{
	int error = EVUTIL_SOCKET_ERROR();
	unsigned long e = bufferevent_get_openssl_error(tls);
	const char *reason = e ? ERR_reason_error_string(e) : NULL;
	int dns = bufferevent_socket_get_dns_error(tls);

	if (what & BEV_EVENT_TIMEOUT)
		snprintf(out, room, "it is silent");
	else if (reason)
		snprintf(out, room, "no proof that both sides have the same key: %s", reason);
	else if (dns)
		snprintf(out, room, "its address: %s", evutil_gai_strerror(dns));
	else if (what & BEV_EVENT_EOF)
		snprintf(out, room, "the connection was closed");
	else
		snprintf(out, room, "%s", error ? strerror(error) : "the connection broke");
}
