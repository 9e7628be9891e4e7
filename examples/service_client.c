/* SPDX-License-Identifier: MIT */

/*
 * service_client: gives jobs to the service of service.c, and checks what comes back.
 *
 * All jobs are published before the first result is asked for. The names, `jobs/<pid>-<number>`,
 * differ between clients, so many may run at a time. A job ends when its name is taken away, or
 * with this process: then the service takes the result away too.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/share.h>

#define JOBS_MAX   1000
#define TIMEOUT_MS 30000

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "service_client: %s (%s)\n", what, share_error_detail());
	exit(1);
}

/* The numbers of job @number, in no order, and how many they are: 100 to 1600. */
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

static void submit(share_pool *pool, int number)
{
	share_buffer *numbers;
	share_tensor tensor;
	size_t n = make_numbers(number, NULL);
	char name[64];

	snprintf(name, sizeof(name), "jobs/%d-%d", (int)getpid(), number);
	check(share_alloc(pool, n * sizeof(int32_t), NULL, &numbers) == 0, "share_alloc");
	make_numbers(number, share_ptr(numbers));
	check(share_tensor_init(&tensor, SHARE_INT32, 1, (int64_t[]){(int64_t)n}) == 0,
	      "share_tensor_init");
	check(share_tensor_set(numbers, &tensor) == 0, "share_tensor_set");
	check(share_publish(numbers, name, NULL) == 0, name);
	check(share_release(numbers, NULL) == 0, "share_release");
}

static void check_result(share_client *client, int number)
{
	size_t n = make_numbers(number, NULL);
	int32_t *expected = malloc(n * sizeof(*expected));
	share_buffer *sorted;
	share_tensor tensor;
	char name[64];

	check(expected != NULL, "out of memory");
	make_numbers(number, expected);
	qsort(expected, n, sizeof(*expected), compare);

	snprintf(name, sizeof(name), "results/%d-%d", (int)getpid(), number);
	check(share_lookup(client, name, SHARE_RDONLY, TIMEOUT_MS, NULL, &sorted) == 0, name);
	check(share_tensor_get(sorted, &tensor) == 0, "share_tensor_get");
	check(tensor.dtype == SHARE_INT32 && tensor.ndim == 1 && tensor.shape[0] == (int64_t)n &&
		  tensor.offset == 0 &&
		  memcmp(share_ptr(sorted), expected, n * sizeof(*expected)) == 0,
	      "a result is wrong");
	check(share_release(sorted, NULL) == 0, "share_release");
	free(expected);

	snprintf(name, sizeof(name), "jobs/%d-%d", (int)getpid(), number);
	check(share_unpublish(client, name) == 0, "share_unpublish");
}

/* Service and clients make it, whoever comes first. Of host memory: they read and write it. */
static share_pool *open_pool(share_client *client)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;
	int r;

	options.kind = "host";
	options.flags = SHARE_POOL_PERSISTENT;
	r = share_pool_create(client, "service", &options, &pool);
	if (r == SHARE_EEXIST)
		r = share_pool_open(client, "service", &pool);
	check(r == 0, "share_pool_create");
	return pool;
}

int main(int argc, char **argv)
{
	int jobs = argc > 1 ? atoi(argv[1]) : 8;
	share_client *client;
	share_pool *pool;

	if (argc > 2 || jobs < 1 || jobs > JOBS_MAX) {
		fprintf(stderr, "usage: service_client [JOBS]\n");
		return 1;
	}
	check(share_connect(NULL, &client) == 0, "share_connect");
	pool = open_pool(client);
	for (int i = 0; i < jobs; i++)
		submit(pool, i);
	for (int i = 0; i < jobs; i++)
		check_result(client, i);
	share_pool_close(pool);
	share_disconnect(client);
	printf("service_client: ok jobs=%d\n", jobs);
	return 0;
}
