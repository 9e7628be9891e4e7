/* SPDX-License-Identifier: MIT */

/*
 * workers: many inference workers, one copy of the weights, and a queue of requests between them.
 *
 * The loader puts the weights of a perceptron into a shared buffer, publishes it read-only and
 * persistent, and ends: the name stays, and so does the memory. Then workers look the weights up
 * and answer the requests of a service. The parent asks, with several calls under way at a time;
 * the library decides which worker gets which request. Half way through, one worker is killed: the
 * requests that it had not answered go to the others, and none is lost.
 *
 * The parent checks each answer against a computation with weights of its own. It also asks the
 * kernel how much memory the workers take: Rss counts a page in every process that has it, Pss
 * divides it by their number. So the sum of Rss is what private copies would take, and the sum of
 * Pss is what the one copy takes.
 */

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/service.h>

#define POOL        "perceptron"
#define SERVICE     "perceptron"
#define WEIGHTS     "perceptron/weights"
#define LAYERS      3
#define WIDTH       1024 /* numbers in a request, and in an answer */
#define WIDEST      2048
#define MODEL       (2 * WIDTH * WIDEST + WIDEST * WIDEST) /* weights of all layers */
#define VECTOR      (WIDTH * sizeof(float))
#define WORKERS_MAX 32
#define TIMEOUT_MS  120000 /* only so that a stuck program ends */
#define MIB         (1024.0 * 1024)

/* Layer l has widths[l + 1] rows of widths[l] weights; one layer follows the other. */
static const int widths[LAYERS + 1] = {WIDTH, WIDEST, WIDEST, WIDTH};

static void expect(int fine, const char *what, const char *why)
{
	if (fine)
		return;
	fprintf(stderr, "workers: %s: %s\n", what, why);
	exit(1);
}

static void check_system(int fine, const char *what)
{
	expect(fine, what, strerror(errno));
}

static void check(int result, const char *what)
{
	expect(result >= 0, what, share_error_detail());
}

/* ------------------------------------------------------------------------------------------- */
/* The model                                                                                   */

static float next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (float)(*state >> 40) / (float)(1 << 23) - 1; /* from -1 to 1 */
}

/* Stands for a function that reads a file of trained weights. */
static void read_weights(float *weights)
{
	uint64_t seed = 1;

	for (int l = 0; l < LAYERS; l++)
		for (int i = 0; i < widths[l] * widths[l + 1]; i++)
			*weights++ = sqrtf(6 / (float)widths[l]) * next_random(&seed);
}

static void make_request(int number, float *request)
{
	uint64_t seed = (uint64_t)number + 1000;

	for (int i = 0; i < WIDTH; i++)
		request[i] = next_random(&seed);
}

static void infer(const float *weights, const float *request, float *answer)
{
	float values[2][WIDEST];

	memcpy(values[0], request, VECTOR);
	for (int l = 0; l < LAYERS; l++) {
		const float *in = values[l % 2];

		for (int i = 0; i < widths[l + 1]; i++, weights += widths[l]) {
			float sum = 0;

			for (int j = 0; j < widths[l]; j++)
				sum += weights[j] * in[j];
			values[(l + 1) % 2][i] = sum > 0 || l == LAYERS - 1 ? sum : 0;
		}
	}
	memcpy(answer, values[LAYERS % 2], VECTOR);
}

/* ------------------------------------------------------------------------------------------- */
/* Loader and workers, each a process of its own                                               */

static void load(int unused)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *weights;
	share_client *client;
	share_pool *pool;
	int r;

	(void)unused;
	check(share_connect(NULL, &client), "share_connect");
	options.kind = "host"; /* CPUs compute here; for GPUs see cuda/cuda_workers.cu */
	r = share_pool_create(client, POOL, &options, &pool);
	if (r == SHARE_EEXIST) /* an earlier run made it; publishing replaces its weights */
		r = share_pool_open(client, POOL, &pool);
	check(r, "share_pool_create");
	check(share_alloc(pool, MODEL * sizeof(float), NULL, &weights), "share_alloc");
	read_weights(share_ptr(weights));
	publish.flags = SHARE_PUBLISH_PERSISTENT;
	publish.mode = SHARE_RDONLY;
	check(share_publish_with(weights, WEIGHTS, &publish, NULL, NULL), "share_publish");
	check(share_release(weights, NULL), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

static void work(int ready)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_buffer *weights, *answer;
	share_message request = SHARE_MESSAGE_INIT;
	share_service *service;
	share_client *client;
	share_pool *pool;
	int r;

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	check(share_lookup(client, WEIGHTS, SHARE_RDONLY, 0, NULL, &weights), WEIGHTS);
	options.pool = POOL;
	check(share_service_open(client, SERVICE, SHARE_WORKER, &options, &service),
	      "share_service_open");
	/* The first inference touches all weights, so that their pages are mapped. */
	infer(share_ptr(weights), share_ptr(weights), (float[WIDTH]){0});
	check_system(write(ready, "", 1) == 1, "write");

	while ((r = share_next_request(service, -1, NULL, &request)) == 0) {
		check(share_alloc(pool, VECTOR, NULL, &answer), "share_alloc");
		infer(share_ptr(weights), share_ptr(request.buffer), share_ptr(answer));
		check(share_reply(&request, answer, NULL, 0, NULL), "share_reply");
		check(share_release(answer, NULL), "share_release");
	}
	if (r != SHARE_EPIPE) /* all callers have left */
		check(r, "share_next_request");
	share_service_close(service);
	check(share_release(weights, NULL), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

/* Starts a process of its own for @function, because handles do not survive a fork. */
static pid_t start(void (*function)(int), int argument)
{
	pid_t pid = fork();

	check_system(pid >= 0, "fork");
	if (pid == 0) {
		function(argument);
		exit(0);
	}
	return pid;
}

static void expect_success(int n, const char *who)
{
	int status;

	while (n-- > 0)
		expect(wait(&status) > 0 && status == 0, who, "failed");
}

static void start_workers(pid_t *workers, int n)
{
	int ready[2];
	char byte;

	check_system(pipe(ready) == 0, "pipe");
	for (int i = 0; i < n; i++)
		workers[i] = start(work, ready[1]);
	close(ready[1]); /* so that read() ends if a worker ends early */
	for (int i = 0; i < n; i++)
		expect(read(ready[0], &byte, 1) == 1, "a worker", "did not come up");
	close(ready[0]);
}

/* Makes @n requests. While they are under way, it kills the process @victim, if there is one.
 * Returns how many answers were wrong. */
static int ask_all(share_service *service, share_pool *pool, int n, int first, pid_t victim,
		   const float *weights)
{
	float request[WIDTH], expected[WIDTH];
	share_pending *calls[2 * WORKERS_MAX];
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;
	int wrong = 0;

	for (int i = 0; i < n; i++) {
		check(share_alloc(pool, VECTOR, NULL, &b), "share_alloc");
		make_request(first + i, share_ptr(b));
		check(share_call_start(service, b, NULL, 0, TIMEOUT_MS, NULL, &calls[i]),
		      "share_call_start");
		check(share_release(b, NULL), "share_release"); /* the request keeps it */
	}
	if (victim)
		check_system(kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim,
			     "kill");
	for (int i = 0; i < n; i++) {
		make_request(first + i, request);
		infer(weights, request, expected);
		check(share_call_finish(calls[i], TIMEOUT_MS, NULL, &m), "share_call_finish");
		/* The same code computed both in the same order, so every bit has to be the
		 * same. */
		wrong += memcmp(share_ptr(m.buffer), expected, VECTOR) != 0;
		check(share_ack(&m, NULL), "share_ack");
	}
	return wrong;
}

/* Adds how many KiB of shared segments a process has mapped. */
static void add_usage(pid_t pid, unsigned long *rss, unsigned long *pss)
{
	char path[64], line[512];
	unsigned long value;
	int ours = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	check_system(f != NULL, path);
	while (fgets(line, sizeof(line), f)) {
		if (!isupper((unsigned char)*line)) /* a mapping; its numbers follow */
			ours = strstr(line, "/memfd:share-segment") != NULL;
		else if (ours && sscanf(line, "Rss: %lu", &value) == 1)
			*rss += value;
		else if (ours && sscanf(line, "Pss: %lu", &value) == 1)
			*pss += value;
	}
	fclose(f);
}

static int run(int n, int rounds)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	double model = MODEL * sizeof(float) / MIB, rss, pss;
	unsigned long rss_kib = 0, pss_kib = 0;
	float *weights = malloc(MODEL * sizeof(float));
	pid_t workers[WORKERS_MAX];
	share_service *service;
	share_client *client;
	int wrong = 0, left = n;
	share_pool *pool;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* where loader and workers look */
	start(load, 0);
	expect_success(1, "the loader");
	start_workers(workers, n); /* before this process has threads, which a service starts */
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	options.pool = POOL;
	check(share_service_open(client, SERVICE, SHARE_CALLER, &options, &service),
	      "share_service_open");
	for (int i = 0; i < n; i++)
		add_usage(workers[i], &rss_kib, &pss_kib);

	check_system(weights != NULL, "malloc");
	read_weights(weights);
	for (int i = 0; i < rounds; i++) {
		pid_t victim = n > 1 && i == rounds / 2 ? workers[--left] : 0;

		wrong += ask_all(service, pool, 2 * n, i * 2 * n, victim, weights);
	}
	free(weights);
	share_service_close(service); /* this ends the workers */
	expect_success(left, "a worker");
	check(share_unpublish(client, WEIGHTS), WEIGHTS);
	share_pool_close(pool);
	share_disconnect(client);

	rss = (double)rss_kib / 1024;
	pss = (double)pss_kib / 1024;
	printf("%d workers, one copy of %.1f MiB; private copies would have cost %.1f MiB more\n",
	       n, pss, rss - pss);
	/* Every worker has all of the weights, and all workers together have them once. A few pages
	 * may be missing, because the kernel may have unmapped pages that a process did not touch
	 * for a while. */
	expect(rss >= model * n - 1 && pss >= model - 1 && pss <= model + 1, "smaps",
	       "this is not one copy of the weights");
	expect(wrong == 0, "answers", "some are wrong");
	printf(
	    "workers: ok workers=%d killed=%d requests=%d model=%.1fMiB rss=%.1fMiB "
	    "pss=%.1fMiB\n",
	    n, n - left, 2 * n * rounds, model, rss, pss);
	return 0;
}

int main(int argc, char **argv)
{
	int help = argc == 2 && strcmp(argv[1], "--help") == 0;
	int n = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 8;

	if (!help && argc <= 3 && n >= 1 && n <= WORKERS_MAX && rounds >= 1)
		return run(n, rounds);
	fprintf(help ? stdout : stderr,
		"usage: workers [WORKERS [ROUNDS]]\n"
		"WORKERS is 1 to %d (default: 4); of several, one is killed half way.\n"
		"ROUNDS are of two requests for each of them (default: 8).\n",
		WORKERS_MAX);
	return !help;
}
