/* SPDX-License-Identifier: MIT */

/*
 * Answers, and what all of them tell a browser: to take them for nothing else than they are, and to
 * keep none. The page may load nothing from elsewhere and run nothing but its own script, whatever
 * the texts of users that it shows have in them: script and style carry a number that is made for
 * each answer, and the policy names no others.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "tools/exporter/answer.h"

#define NONCE_IN_PAGE "@NONCE@"
#define NONCE_BYTES   16

void answer(struct evhttp_request *r, int code, const char *type, const void *bytes, size_t size)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(r);
	struct evbuffer *body = evbuffer_new();

	evhttp_add_header(headers, "Content-Type", type);
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
	evhttp_add_header(headers, "Cross-Origin-Resource-Policy", "same-origin");
	/* libevent would send the body of an answer to HEAD as well */
	if (body && evhttp_request_get_command(r) != EVHTTP_REQ_HEAD)
		evbuffer_add(body, bytes, size);
	evhttp_send_reply(r, code, code == HTTP_OK ? "OK" : "Error", body);
	if (body)
		evbuffer_free(body);
}

void answer_text(struct evhttp_request *r, int code, const char *text)
{
	answer(r, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* A text of hexadecimal digits, which is used once. */
static bool make_nonce(char *out)
{
	unsigned char bytes[NONCE_BYTES];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(out + 2 * i, "%02x", bytes[i]);
	return true;
}

/* The page with @nonce at each of the places for it. */
static char *fill_in(const char *nonce, size_t *size)
{
	const char *from = page_html, *place;
	char *filled = NULL;
	FILE *out = open_memstream(&filled, size);

	if (!out)
		return NULL;
	for (; (place = strstr(from, NONCE_IN_PAGE)); from = place + strlen(NONCE_IN_PAGE)) {
		fwrite(from, 1, (size_t)(place - from), out);
		fputs(nonce, out);
	}
	fwrite(from, 1, (size_t)(page_html_end - from), out);
	if (fclose(out) == 0)
		return filled;
	free(filled);
	return NULL;
}

void answer_page(struct evhttp_request *r)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(r);
	char nonce[2 * NONCE_BYTES + 1], policy[256];
	char *page = NULL;
	size_t size;

	if (make_nonce(nonce))
		page = fill_in(nonce, &size);
	if (!page) {
		answer_text(r, HTTP_INTERNAL, "the exporter is out of memory\n");
		return;
	}
	snprintf(policy, sizeof(policy),
		 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
		 "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
		 "frame-ancestors 'none'",
		 nonce, nonce);
	evhttp_add_header(headers, "Content-Security-Policy", policy);
	answer(r, HTTP_OK, "text/html; charset=utf-8", page, size);
	free(page);
}
