/* SPDX-License-Identifier: MIT */

/*
 * service_client: has the service of service.c sort numbers, and checks the answers.
 *
 * Up to WINDOW requests are under way at a time. Any number of clients may ask at the same time;
 * each gets the answers to its own requests.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/service.h>

#define NAME       "sort" /* name of the service, and of its pool */
#define JOBS_MAX   100000
#define WINDOW     64
#define TIMEOUT_MS 60000

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "service_client: %s (%s)\n", what, share_error_detail());
	exit(1);
}

/* Makes the numbers of job @number, unsorted. Returns how many there are: 100 to 1600. */
static size_t make_numbers(int number, int32_t *out)
{
	size_t n = 100 * ((size_t)number % 16 + 1);
	uint32_t state = (uint32_t)number + 1;

	for (size_t i = 0; out && i < n; i++) {
		state = state * 1664525 + 1013904223;
		out[i] = (int32_t)(state ^ state >> 16);
	}
	return n;
}

static int compare(const void *one, const void *other)
{
	const int32_t *a = one, *b = other;

	return (*a > *b) - (*a < *b);
}

static share_pending *ask(share_service *service, share_pool *pool, int number)
{
	size_t n = make_numbers(number, NULL);
	share_buffer *numbers;
	share_pending *call;

	check(share_alloc(pool, n * sizeof(int32_t), NULL, &numbers) == 0, "share_alloc");
	make_numbers(number, share_ptr(numbers));
	check(share_call_start(service, numbers, NULL, 0, TIMEOUT_MS, NULL, &call) == 0,
	      "share_call_start");
	check(share_release(numbers, NULL) == 0, "share_release"); /* the request keeps it */
	return call;
}

static void check_answer(share_pending *call, int number)
{
	size_t n = make_numbers(number, NULL);
	int32_t *expected = malloc(n * sizeof(*expected));
	share_message answer = SHARE_MESSAGE_INIT;

	check(expected != NULL, "out of memory");
	make_numbers(number, expected);
	qsort(expected, n, sizeof(*expected), compare);
	check(share_call_finish(call, TIMEOUT_MS, NULL, &answer) == 0, "share_call_finish");
	check(answer.buffer && share_size(answer.buffer) == n * sizeof(*expected) &&
		  memcmp(share_ptr(answer.buffer), expected, n * sizeof(*expected)) == 0,
	      "an answer is wrong");
	check(share_ack(&answer, NULL) == 0, "share_ack");
	free(expected);
}

/* Opens the pool, or creates it: services and clients may start in any order. It is host memory,
 * because both read and write it. */
static share_pool *open_pool(share_client *client)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;

	options.kind = "host";
	options.flags = SHARE_POOL_PERSISTENT | SHARE_POOL_OPEN_OR_CREATE;
	check(share_pool_create(client, NAME, &options, &pool) == 0, "share_pool_create");
	return pool;
}

int main(int argc, char **argv)
{
	int jobs = argc > 1 ? atoi(argv[1]) : 8, help = argc == 2 && strcmp(argv[1], "--help") == 0;
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_pending *calls[WINDOW];
	share_service *service;
	share_client *client;
	share_pool *pool;

	if (help || argc > 2 || jobs < 1 || jobs > JOBS_MAX) {
		fprintf(help ? stdout : stderr,
			"usage: service_client [JOBS]\nJOBS is 1 to %d (default: 8).\n", JOBS_MAX);
		return !help;
	}
	check(share_connect(NULL, &client) == 0, "share_connect");
	pool = open_pool(client);
	options.pool = NAME;
	check(share_service_open(client, NAME, SHARE_CALLER, &options, &service) == 0,
	      "share_service_open");
	for (int i = 0; i < jobs + WINDOW; i++) {
		if (i >= WINDOW && i - WINDOW < jobs)
			check_answer(calls[i % WINDOW], i - WINDOW);
		if (i < jobs)
			calls[i % WINDOW] = ask(service, pool, i);
	}
	share_service_close(service);
	share_pool_close(pool);
	share_disconnect(client);
	printf("service_client: ok jobs=%d\n", jobs);
	return 0;
}
