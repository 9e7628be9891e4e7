/* SPDX-License-Identifier: MIT */

/*
 * A peer without the key gets nowhere. One that has it and breaks the rules is told of in the log
 * and loses its link, and the bridge serves others as before.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <share/channel.h>
#include <ucp/api/ucp.h>

#include "bridge/data.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_hostile, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BARE         offsetof(struct data_header, more)

/* A peer that is written by hand. */
struct peer {
	SSL_CTX *tls;
	SSL *ssl;
	int socket;
	char line[65536]; /* the last that it was told */
	unsigned char secret[DATA_SECRET];
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_size;
	ucp_ep_h endpoint;
};

static unsigned char key[32];

static unsigned give_key(SSL *ssl, const char *hint, char *identity, unsigned room,
			 unsigned char *out, unsigned key_room)
{
	(void)ssl, (void)hint;
	check(key_room >= sizeof(key));
	snprintf(identity, room, "share-bridge");
	memcpy(out, key, sizeof(key));
	return sizeof(key);
}

static void read_key(const struct sides *s)
{
	char text[256];
	FILE *f = fopen(s->key, "r");

	check(f && fgets(text, sizeof(text), f));
	fclose(f);
	text[strcspn(text, "\n")] = 0;
	check(EVP_Digest(text, strlen(text), key, NULL, EVP_sha256(), NULL) == 1);
}

static int connect_to(const char *place)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct timeval limit = {.tv_sec = HARNESS_LIMIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(place, ':') + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

/* Whether both have the same key. */
static bool peer_connect(struct peer *p, const struct sides *s)
{
	*p = (struct peer){.tls = SSL_CTX_new(TLS_client_method())};
	SSL_CTX_set_psk_client_callback(p->tls, give_key);
	p->ssl = SSL_new(p->tls);
	p->socket = connect_to(s->place);
	SSL_set_fd(p->ssl, p->socket);
	return SSL_connect(p->ssl) == 1;
}

static void peer_close(struct peer *p)
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

static void say_line(struct peer *p, const char *text)
{
	SSL_write(p->ssl, text, (int)strlen(text)); /* the other end may be gone already */
	SSL_write(p->ssl, "\n", 1);
}

/* false: it was hung up on. */
static bool hear_line(struct peer *p)
{
	size_t n = 0;

	while (n < sizeof(p->line) - 1 && SSL_read(p->ssl, p->line + n, 1) == 1)
		if (p->line[n++] == '\n') {
			p->line[n] = 0;
			return true;
		}
	return false;
}

/* Pings are answered by nobody here. */
static void expect_hung_up(struct peer *p)
{
	while (hear_line(p))
		;
}

static void hear_word(struct peer *p, const char *word)
{
	char text[64];

	snprintf(text, sizeof(text), "\"say\":\"%s\"", word);
	do
		check(hear_line(p));
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

static ucs_status_t hear_nothing(void *arg, const void *header, size_t n, void *data, size_t size,
				 const ucp_am_recv_param_t *param)
{
	(void)arg, (void)header, (void)n, (void)data, (void)size, (void)param;
	return UCS_OK;
}

/* As a proper peer does; then it has an endpoint, too. */
static void peer_greet(struct peer *p)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	ucp_worker_params_t worker = {0};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							UCP_AM_HANDLER_PARAM_FIELD_CB,
					  .id = 1,
					  .cb = hear_nothing};
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
	hear_word(p, "hello");
	unhex(strstr(p->line, "\"secret\":\"") + 10, p->secret, DATA_SECRET);
	at = strstr(p->line, "\"address\":\"") + 11;
	unhex(at, address, strcspn(at, "\"") / 2);
	n = snprintf(hello, sizeof(hello),
		     "{\"say\":\"hello\",\"version\":1,\"site\":\"peer\",\"run\":\"1\",\"secret\":"
		     "\"00112233445566778899aabbccddeeff\",\"address\":\"");
	for (size_t i = 0; i < p->address_size; i++)
		n += snprintf(hello + n, sizeof(hello) - (size_t)n, "%02x",
			      ((unsigned char *)p->address)[i]);
	snprintf(hello + n, sizeof(hello) - (size_t)n, "\"}");
	say_line(p, hello);
	hear_word(p, "listed");
	ep.address = (ucp_address_t *)address;
	check(ucp_ep_create(p->worker, &ep, &p->endpoint) == UCS_OK);
}

static void send_content(struct peer *p, struct data_header *h, size_t n, const void *memory,
			 size_t size)
{
	ucp_request_param_t param = {0};
	ucs_status_ptr_t r = ucp_am_send_nbx(p->endpoint, 1, h, n, memory, size, &param);

	while (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(p->worker);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
}

/* Whether the bridge still does what it is for. */
static void expect_served(struct sides *s, unsigned seed)
{
	content_publish(s->far, "w", 10000, seed);
	until(content_at(s->near, "w", 10000, seed));
}

static void begin(struct sides *s)
{
	setenv("UCX_TLS", "tcp,self", 1);
	setenv("UCX_NET_DEVICES", "lo", 1);
	sides_begin(s);
	read_key(s);
	far_start(s, OPTIONS("--export", "*", "--import", "in/*", "--export-channel", "c*",
			     "--import-channel", "m", "--export-service", "s*"));
	near_start(s, OPTIONS("--import", "*"));
	expect_served(s, 1);
}

Test(bridge_hostile, without_the_key_nobody_gets_anywhere)
{
	struct sides s;
	struct peer p;
	int fd;

	begin(&s);
	key[0] ^= 1;
	check(!peer_connect(&p, &s));
	until(bridge_said(&s.far_bridge, "no proof that both sides have the same key") == 1);
	peer_close(&p);
	fd = connect_to(s.place);
	check(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
	until(bridge_said(&s.far_bridge, "no proof") == 2);
	close(fd);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_has_connected_and_says_nothing_is_hung_up_on)
{
	struct sides s;
	char c;
	int fd;

	sides_begin(&s);
	far_start(&s, OPTIONS("--timeout", "0.2"));
	fd = connect_to(s.place);
	check(read(fd, &c, 1) <= 0);
	close(fd);
	bridge_stop(&s.far_bridge);
	unlink(s.key);
	share_disconnect(s.near);
	share_disconnect(s.far);
}

/* What is wrong before hello, and what is wrong after it. */
static const char *const before[] = {
    "",
    "{",
    "[]",
    "{\"say\":1}",
    "{\"say\":\"want\",\"id\":1,\"name\":\"w\"}",
    "{\"say\":\"hello\"}",
    "{\"say\":\"hello\",\"version\":2,\"site\":\"x\",\"run\":\"\",\"secret\":\"\",\"address\":"
    "\"\"}",
    "{\"say\":\"hello\",\"version\":1,\"site\":\"far\",\"run\":\"\",\"secret\":\"\",\"address\":"
    "\"\"}",
    "{\"say\":\"hello\",\"version\":1,\"site\":\"a/"
    "b\",\"run\":\"\",\"secret\":\"\",\"address\":\"\"}",
    "{\"say\":\"hello\",\"version\":1,\"site\":\"x\",\"run\":\"\",\"secret\":\"00\",\"address\":"
    "\"\"}",
};

static const char *const after[] = {
    "no JSON",
    "{\"say\":\"ping\"}",
    "{\"say\":\"name\"}",
    "{\"say\":\"name\",\"name\":\"in/x\",\"version\":0}",
    "{\"say\":\"name\",\"name\":[],\"version\":1}",
    "{\"say\":\"gone\"}",
    "{\"say\":\"content\",\"id\":1}",
    "{\"say\":\"content\",\"id\":1,\"version\":1,\"size\":-5}",
    "{\"say\":\"want\",\"name\":\"w\"}",
    "{\"say\":\"ready\",\"id\":77,\"take\":true}",
    "{\"say\":\"open\",\"name\":\"c\"}",
    "{\"say\":\"open\",\"which\":4294967296,\"name\":\"c\"}",
    "{\"say\":\"opened\",\"which\":12345,\"next\":1}",
    "{\"say\":\"closed\",\"which\":12345}",
    "{\"say\":\"begin\",\"which\":1,\"next\":0}",
    "{\"say\":\"call\",\"which\":-1,\"name\":\"s\"}",
    "{\"say\":\"called\",\"which\":1,\"name\":\"nobody wanted it\",\"open\":true}",
};

/* What is odd, but breaks no rule: names that were not asked for, answers that come too late. */
static const char *const harmless[] = {
    "{\"say\":\"something new\"}",
    "{\"say\":\"name\",\"name\":\"not wanted\",\"version\":1}",
    "{\"say\":\"gone\",\"name\":\"never was\"}",
    "{\"say\":\"failed\",\"id\":99}",
    "{\"say\":\"content\",\"id\":99,\"version\":1,\"size\":5,\"path\":[\"peer\"]}",
    "{\"say\":\"pong\",\"at\":-1}",
    "{\"say\":\"want\",\"id\":1,\"name\":\"bridge/far/1\"}",
    "{\"say\":\"open\",\"which\":9,\"name\":\"not exported\"}",
    "{\"say\":\"begin\",\"which\":9,\"next\":5}",
    "{\"say\":\"call\",\"which\":9,\"name\":\"not exported\"}",
    "{\"say\":\"listed\"}",
};

Test(bridge_hostile, who_breaks_the_rules_before_hello_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		check(peer_connect(&p, &s));
		say_line(&p, before[i]);
		expect_hung_up(&p);
		peer_close(&p);
	}
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_breaks_the_rules_after_hello_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
		check(peer_connect(&p, &s));
		peer_greet(&p);
		say_line(&p, after[i]);
		expect_hung_up(&p);
		peer_close(&p);
	}
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_talks_without_end_loses_the_link)
{
	struct sides s;
	struct peer p;
	char *text = malloc(300001);

	begin(&s);
	memset(text, ' ', 300000);
	text[300000] = 0;
	check(peer_connect(&p, &s));
	peer_greet(&p);
	SSL_write(p.ssl, text, 300000);
	expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "it talks without end") == 1);
	peer_close(&p);
	free(text);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, what_is_odd_and_breaks_no_rule_is_passed_over)
{
	struct sides s;
	struct peer p;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		say_line(&p, harmless[i]);
	say_line(&p, "{\"say\":\"ping\",\"at\":4711}");
	do
		hear_word(&p, "pong");
	while (!strstr(p.line, "4711"));
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

/* Content that nobody asked for, of each kind and in each state, from who knows the secret and who
 * does not. */
Test(bridge_hostile, content_that_nobody_asked_for_gets_nowhere)
{
	struct sides s;
	struct peer p;
	static unsigned char memory[100000];

	begin(&s);
	for (uint32_t kind = 0; kind < 8; kind++)
		for (int way = 0; way < 6; way++) {
			struct data_header h = {.kind = kind, .which = 1, .id = 1};
			size_t n = BARE, size = 0;

			check(peer_connect(&p, &s));
			peer_greet(&p);
			memcpy(h.secret, p.secret, DATA_SECRET);
			if (way == 1)
				h.secret[3] ^= 1;
			else if (way == 2)
				n = BARE - 1;
			else if (way == 3)
				h.size = 5; /* and there is nothing */
			else if (way == 4)
				h.n_more = UINT32_MAX;
			else if (way == 5)
				h.size = size = sizeof(memory), h.flags = DATA_HAS_BUFFER;
			send_content(&p, &h, n, memory, size);
			peer_close(&p);
		}
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, content_of_another_size_than_was_said_ends_the_link)
{
	struct sides s;
	struct peer p;
	struct data_header h = {.kind = DATA_NAME, .size = 100};
	unsigned char memory[100] = {0};
	char text[160], *at;
	share_buffer *b;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	say_line(&p, "{\"say\":\"name\",\"name\":\"in/x\",\"version\":5}");
	hear_word(&p, "want");
	at = strstr(p.line, "\"id\":") + 5;
	h.id = strtoull(at, NULL, 10);
	snprintf(text, sizeof(text),
		 "{\"say\":\"content\",\"id\":%llu,\"version\":5,\"size\":50,\"path\":[\"peer\"]}",
		 (unsigned long long)h.id);
	say_line(&p, text);
	hear_word(&p, "ready");
	memcpy(h.secret, p.secret, DATA_SECRET);
	send_content(&p, &h, BARE, memory, sizeof(memory));
	expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "content is of another size") == 1);
	check_error(share_lookup(s.far, "in/x", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}

Test(bridge_hostile, who_wants_too_much_at_a_time_loses_the_link)
{
	struct sides s;
	struct peer p;

	begin(&s);
	check(peer_connect(&p, &s));
	peer_greet(&p);
	for (int i = 0; i < 65; i++) {
		char text[80];

		snprintf(text, sizeof(text), "{\"say\":\"want\",\"id\":%d,\"name\":\"absent\"}", i);
		say_line(&p, text);
	}
	expect_hung_up(&p);
	until(bridge_said(&s.far_bridge, "it wants too much at a time") == 1);
	peer_close(&p);
	expect_served(&s, 2);
	sides_end(&s);
}
