/* SPDX-License-Identifier: MIT */

/*
 * A C program beside the frameworks of frameworks.py: it takes the same orders, a line each, and
 * answers in the same words. It fills and checks memory by copies on a stream, so it needs neither
 * the CUDA headers nor a kernel.
 *
 * usage: python_peer ADDRESS
 */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#define WORDS (1 << 20)

static void *const stream = (void *)(uintptr_t)1; /* CU_STREAM_LEGACY */
static int32_t words[WORDS];

static void answer(const char *what, json_int_t n)
{
	printf("{\"%s\": %lld}\n", what, (long long)n);
	fflush(stdout);
}

static void failed(const char *call)
{
	json_t *o =
	    json_pack("{s: o}", "error", json_sprintf("%s: %s", call, share_error_detail()));

	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(o);
}

static void produce(share_client *c, const char *kind, const char *name, int base)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	int64_t shape = WORDS;
	share_buffer *b;
	share_pool *p;

	for (int i = 0; i < WORDS; i++)
		words[i] = base + i;
	share_tensor_init(&t, SHARE_INT32, 1, &shape);
	options.tensor = &t;
	if (share_pool_open(c, kind, &p) != 0) {
		failed("open");
		return;
	}
	if (share_alloc(p, sizeof(words), stream, &b) != 0) {
		failed("alloc");
	} else {
		if (share_copy_from_host(b, 0, words, sizeof(words), stream) != 0 ||
		    share_publish_with(b, name, &options, stream, NULL) != 0)
			failed("publish");
		else
			answer("ok", 1);
		share_release(b, stream);
	}
	share_pool_close(p);
}

static void consume(share_client *c, const char *name, int base)
{
	share_tensor t = SHARE_TENSOR_INIT;
	json_int_t wrong = 0;
	share_buffer *b;

	if (share_lookup(c, name, SHARE_RDONLY, 10000, stream, &b) != 0) {
		failed("look up");
		return;
	}
	if (share_tensor_get(b, &t) != 0 || t.dtype != SHARE_INT32 || t.ndim != 1 ||
	    t.shape[0] != WORDS) {
		failed("it is no tensor of that shape");
	} else if (share_copy_to_host(b, t.offset, words, sizeof(words), stream) != 0) {
		failed("copy");
	} else {
		for (int i = 0; i < WORDS; i++)
			wrong += words[i] != base + i;
		answer("wrong", wrong);
	}
	share_release(b, stream);
}

int main(int argc, char **argv)
{
	char line[4096];
	share_client *c;

	if (argc != 2) {
		fprintf(stderr, "usage: python_peer ADDRESS\n");
		return 2;
	}
	if (share_connect(argv[1], &c) != 0) {
		failed("connect");
		return 1;
	}
	answer("ready", 1);
	while (fgets(line, sizeof(line), stdin)) {
		const char *what, *kind, *name;
		json_t *order = json_loads(line, 0, NULL);
		int base;

		if (json_unpack(order, "{s:s, s:s, s:s, s:i}", "do", &what, "kind", &kind, "name",
				&name, "base", &base) != 0)
			failed("that is no order");
		else if (strcmp(what, "produce") == 0)
			produce(c, kind, name, base);
		else
			consume(c, name, base);
		json_decref(order);
	}
	share_disconnect(c);
	return 0;
}
