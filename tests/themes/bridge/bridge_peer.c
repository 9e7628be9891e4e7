/* SPDX-License-Identifier: MIT */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "tests/themes/bridge/bridge_peer.h"

unsigned char peer_key[32];

static unsigned give_key(SSL *ssl, const char *hint, char *identity, unsigned room,
			 unsigned char *out, unsigned key_room)
{
	(void)ssl, (void)hint;
	check(key_room >= sizeof(peer_key));
	snprintf(identity, room, "share-bridge");
	memcpy(out, peer_key, sizeof(peer_key));
	return sizeof(peer_key);
}

void peer_read_key(const struct sides *s)
{
	char text[256];
	FILE *f = fopen(s->key, "r");

	check(f && fgets(text, sizeof(text), f));
	fclose(f);
	text[strcspn(text, "\n")] = 0;
	check(EVP_Digest(text, strlen(text), peer_key, NULL, EVP_sha256(), NULL) == 1);
}

int peer_connect_to(const char *place)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct timeval limit = {.tv_sec = HARNESS_LIMIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* A bridge hangs up whenever it likes, and SSL_write() writes without MSG_NOSIGNAL. */
	signal(SIGPIPE, SIG_IGN);
	to.sin_port = htons((uint16_t)atoi(strrchr(place, ':') + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

bool peer_connect(struct peer *p, const struct sides *s)
{
	*p = (struct peer){.tls = SSL_CTX_new(TLS_client_method())};
	SSL_CTX_set_psk_client_callback(p->tls, give_key);
	p->ssl = SSL_new(p->tls);
	p->socket = peer_connect_to(s->place);
	SSL_set_fd(p->ssl, p->socket);
	return SSL_connect(p->ssl) == 1;
}

void peer_close(struct peer *p)
{
	ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_EP_CLOSE_FLAG_FORCE};

	if (p->endpoint) {
		ucs_status_ptr_t r = ucp_ep_close_nbx(p->endpoint, &force);

		while (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
			ucp_worker_progress(p->worker);
		if (UCS_PTR_IS_PTR(r))
			ucp_request_free(r);
	}
	if (p->worker) {
		ucp_worker_release_address(p->worker, p->address);
		ucp_worker_destroy(p->worker);
		ucp_cleanup(p->context);
	}
	SSL_free(p->ssl);
	SSL_CTX_free(p->tls);
	close(p->socket);
}

void peer_say(struct peer *p, const char *text)
{
	SSL_write(p->ssl, text, (int)strlen(text)); /* the other end may be gone already */
	SSL_write(p->ssl, "\n", 1);
}

/* false: it was hung up on. */
static bool peer_hear(struct peer *p)
{
	size_t n = 0;

	while (n < sizeof(p->line) - 1 && SSL_read(p->ssl, p->line + n, 1) == 1)
		if (p->line[n++] == '\n') {
			p->line[n] = 0;
			return true;
		}
	return false;
}

void peer_expect_hung_up(struct peer *p)
{
	while (peer_hear(p))
		;
}

void peer_hear_word(struct peer *p, const char *word)
{
	char text[64];

	snprintf(text, sizeof(text), "\"say\":\"%s\"", word);
	do
		check(peer_hear(p));
	while (!strstr(p->line, text));
}

static void unhex(const char *text, unsigned char *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned value;

		check(sscanf(text + 2 * i, "%2x", &value) == 1);
		out[i] = (unsigned char)value;
	}
}

static ucs_status_t hear(void *arg, const void *header, size_t n, void *data, size_t size,
			 const ucp_am_recv_param_t *param)
{
	struct data_header h;
	struct peer *p = arg;

	(void)data, (void)size, (void)param;
	check(n >= BARE);
	memcpy(&h, header, BARE);
	if (h.kind <= DATA_GO)
		p->heard[h.kind]++;
	if (h.kind == DATA_PIECE && h.number < 4)
		p->pieces[h.number]++;
	return UCS_OK;
}

void peer_hear_content(struct peer *p, enum data_kind kind)
{
	while (p->heard[kind] == 0)
		ucp_worker_progress(p->worker);
	p->heard[kind]--;
}

void peer_greet(struct peer *p)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	ucp_worker_params_t worker = {0};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							UCP_AM_HANDLER_PARAM_FIELD_CB |
							UCP_AM_HANDLER_PARAM_FIELD_ARG,
					  .id = 1,
					  .cb = hear,
					  .arg = p};
	ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
					    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
			      .err_mode = UCP_ERR_HANDLING_MODE_PEER};
	char hello[20000], *at;
	unsigned char address[8192];
	int n;

	check(ucp_init(&params, NULL, &p->context) == UCS_OK);
	check(ucp_worker_create(p->context, &worker, &p->worker) == UCS_OK);
	check(ucp_worker_set_am_recv_handler(p->worker, &handler) == UCS_OK);
	check(ucp_worker_get_address(p->worker, &p->address, &p->address_size) == UCS_OK);
	peer_hear_word(p, "hello");
	unhex(strstr(p->line, "\"secret\":\"") + 10, p->secret, DATA_SECRET);
	at = strstr(p->line, "\"address\":\"") + 11;
	unhex(at, address, strcspn(at, "\"") / 2);
	n = snprintf(hello, sizeof(hello),
		     "{\"say\":\"hello\",\"version\":2,\"site\":\"peer\",\"run\":\"1\",\"secret\":"
		     "\"00112233445566778899aabbccddeeff\",\"address\":\"");
	for (size_t i = 0; i < p->address_size; i++)
		n += snprintf(hello + n, sizeof(hello) - (size_t)n, "%02x",
			      ((unsigned char *)p->address)[i]);
	snprintf(hello + n, sizeof(hello) - (size_t)n, "\",\"pieces\":%s%s}",
		 p->wants_pieces ? "true" : "false", p->takes_parts ? ",\"parts\":true" : "");
	peer_say(p, hello);
	peer_hear_word(p, "listed");
	ep.address = (ucp_address_t *)address;
	check(ucp_ep_create(p->worker, &ep, &p->endpoint) == UCS_OK);
}

void peer_send(struct peer *p, struct data_header *h, size_t n, const void *memory, size_t size)
{
	ucp_request_param_t param = {0};
	ucs_status_ptr_t r = ucp_am_send_nbx(p->endpoint, 1, h, n, memory, size, &param);

	while (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(p->worker);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
}

uint64_t peer_offer(struct peer *p, uint64_t size)
{
	unsigned long long id;
	char text[160];

	peer_say(p, "{\"say\":\"name\",\"name\":\"in/x\",\"version\":5}");
	peer_hear_word(p, "want");
	id = strtoull(strstr(p->line, "\"id\":") + 5, NULL, 10);
	snprintf(
	    text, sizeof(text),
	    "{\"say\":\"content\",\"id\":%llu,\"version\":5,\"size\":%llu,\"path\":[\"peer\"]}", id,
	    (unsigned long long)size);
	peer_say(p, text);
	peer_hear_word(p, "ready");
	return id;
}
