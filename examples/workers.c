/* SPDX-License-Identifier: MIT */

/*
 * workers: many inference workers, one copy of the weights, and a queue of requests between them.
 *
 * The loader puts the weights of a perceptron into shared buffers, publishes them read-only and
 * persistent, and ends: the names, and so the memory, stay. Then workers look the weights up and
 * answer the requests of a service. The parent asks, with several calls under way at a time; which
 * worker gets which is the library's business. Half way through one worker is killed: what it had
 * not answered goes to the others, and no request is lost.
 *
 * The parent checks each answer against a computation with weights of its own, and asks the kernel
 * what the workers cost: Rss counts a page in every process that has it, Pss divides it by their
 * number. So the sum of Rss is what private copies would have cost, and the sum of Pss is what the
 * one copy does cost.
 */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
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
#define NAME_FORMAT "perceptron/%d" /* a matrix for each layer */
#define LAYERS      3
#define WIDTH       1024 /* of a request, and of an answer */
#define WIDEST      2048
#define WORKERS_MAX 32
#define TIMEOUT_MS  120000 /* only so that a stuck pool ends */
#define MIB         (1024.0 * 1024)

/* Layer l has widths[l + 1] rows of widths[l] weights. */
static const int64_t widths[LAYERS + 1] = {WIDTH, WIDEST, WIDEST, WIDTH};

static void check(int fine, const char *what, const char *why)
{
	if (fine)
		return;
	fprintf(stderr, "workers: %s: %s\n", what, why);
	exit(1);
}

static void check_share(int result, const char *what)
{
	check(result >= 0, what, share_error_detail());
}

/* ------------------------------------------------------------------------------------------- */
/* The model                                                                                   */

static float next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (float)(*state >> 40) / (float)(1 << 23) - 1; /* -1 to 1 */
}

static size_t layer_bytes(int layer)
{
	return (size_t)(widths[layer] * widths[layer + 1]) * sizeof(float);
}

/* Stands for reading a file of trained weights. */
static void load_layer(int layer, float *weights)
{
	float scale = sqrtf(6 / (float)widths[layer]);
	uint64_t seed = (uint64_t)layer + 1;

	for (size_t i = 0; i < layer_bytes(layer) / sizeof(float); i++)
		weights[i] = scale * next_random(&seed);
}

static void make_request(int number, float *request)
{
	uint64_t seed = (uint64_t)number + 1000;

	for (int i = 0; i < WIDTH; i++)
		request[i] = next_random(&seed);
}

static void infer(const float *const *weights, const float *request, float *answer)
{
	float values[2][WIDEST];

	memcpy(values[0], request, WIDTH * sizeof(float));
	for (int l = 0; l < LAYERS; l++) {
		const float *in = values[l % 2], *row = weights[l];
		float *out = values[(l + 1) % 2];

		for (int64_t i = 0; i < widths[l + 1]; i++, row += widths[l]) {
			float sum = 0;

			for (int64_t j = 0; j < widths[l]; j++)
				sum += row[j] * in[j];
			out[i] = sum > 0 || l == LAYERS - 1 ? sum : 0;
		}
	}
	memcpy(answer, values[LAYERS % 2], WIDTH * sizeof(float));
}

/* ------------------------------------------------------------------------------------------- */
/* The loader                                                                                  */

static void load(int unused)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *client;
	share_buffer *layer;
	share_pool *pool;
	char name[32];
	int r;

	(void)unused;
	check_share(share_connect(NULL, &client), "share_connect");
	options.kind = "host"; /* processors compute here; with a GPU, see cuda/cuda_workers.cu */
	r = share_pool_create(client, POOL, &options, &pool);
	if (r == SHARE_EEXIST) /* loaded before; publishing again replaces it */
		r = share_pool_open(client, POOL, &pool);
	check_share(r, "share_pool_create");
	publish.flags = SHARE_PUBLISH_PERSISTENT;
	publish.mode = SHARE_RDONLY;
	for (int l = 0; l < LAYERS; l++) {
		snprintf(name, sizeof(name), NAME_FORMAT, l);
		check_share(share_alloc(pool, layer_bytes(l), NULL, &layer), "share_alloc");
		load_layer(l, share_ptr(layer));
		check_share(share_publish_with(layer, name, &publish, NULL, NULL), name);
		check_share(share_release(layer, NULL), "share_release");
	}
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* A worker                                                                                    */

static void work(int ready)
{
	const float *weights[LAYERS];
	share_buffer *layers[LAYERS], *answer;
	share_message request;
	share_service *service;
	share_client *client;
	share_pool *pool;
	char name[32];
	int r;

	check_share(share_connect(NULL, &client), "share_connect");
	check_share(share_pool_open(client, POOL, &pool), "share_pool_open");
	for (int l = 0; l < LAYERS; l++) {
		snprintf(name, sizeof(name), NAME_FORMAT, l);
		check_share(share_lookup(client, name, SHARE_RDONLY, 0, NULL, &layers[l]), name);
		check(share_size(layers[l]) == layer_bytes(l), name, "not this model's");
		weights[l] = share_ptr(layers[l]);
	}
	check_share(share_service_open(client, SERVICE, SHARE_WORKER, NULL, &service),
		    "share_service_open");
	/* the first inference brings the weights in */
	infer(weights, weights[0], (float[WIDTH]){0});
	check(write(ready, "", 1) == 1, "write", strerror(errno));

	while ((r = share_next_request(service, -1, NULL, &request)) == 0) {
		check_share(share_alloc(pool, WIDTH * sizeof(float), NULL, &answer), "share_alloc");
		infer(weights, share_ptr(request.buffer), share_ptr(answer));
		check_share(share_reply(&request, answer, NULL, 0, NULL), "share_reply");
		check_share(share_release(answer, NULL), "share_release");
	}
	check(r == SHARE_EPIPE, "share_next_request", share_error_detail()); /* nobody asks */

	share_service_close(service);
	for (int l = 0; l < LAYERS; l++)
		check_share(share_release(layers[l], NULL), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

/* In a process of its own; handles do not survive a fork. */
static pid_t start(void (*function)(int), int argument)
{
	pid_t pid = fork();

	check(pid >= 0, "fork", strerror(errno));
	if (pid == 0) {
		function(argument);
		exit(0);
	}
	return pid;
}

static void start_workers(pid_t *workers, int n)
{
	int ready[2];
	char byte;

	check(pipe(ready) == 0, "pipe", strerror(errno));
	for (int i = 0; i < n; i++)
		workers[i] = start(work, ready[1]);
	close(ready[1]); /* when a worker ends early, the rest are not waited for in vain */
	for (int i = 0; i < n; i++)
		check(read(ready[0], &byte, 1) == 1, "a worker", "did not come up");
	close(ready[0]);
}

/* Two requests for each of @n workers, one of which is killed then if @victim says so. Returns how
 * many answers were wrong. */
static int ask_all(share_service *service, share_pool *pool, int n, int first, pid_t victim,
		   const float *const *weights)
{
	float request[WIDTH], expected[WIDTH];
	share_pending *calls[2 * WORKERS_MAX];
	share_buffer *b;
	share_message m;
	int wrong = 0;

	for (int i = 0; i < 2 * n; i++) {
		check_share(share_alloc(pool, sizeof(request), NULL, &b), "share_alloc");
		make_request(first + i, share_ptr(b));
		check_share(share_call_start(service, b, NULL, 0, TIMEOUT_MS, NULL, &calls[i]),
			    "share_call_start");
		check_share(share_release(b, NULL), "share_release"); /* the request has it */
	}
	if (victim)
		check(kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim, "kill",
		      strerror(errno));
	for (int i = 0; i < 2 * n; i++) {
		make_request(first + i, request);
		infer(weights, request, expected);
		check_share(share_call_finish(calls[i], -1, NULL, &m), "share_call_finish");
		/* the same program computed both in the same order: not one bit may differ */
		if (memcmp(share_ptr(m.buffer), expected, sizeof(expected)) != 0) {
			fprintf(stderr, "workers: answer %d is wrong\n", first + i);
			wrong++;
		}
		check_share(share_ack(&m, NULL), "share_ack");
	}
	return wrong;
}

struct usage {
	uint64_t rss, pss; /* KiB */
};

/* Adds what a process has mapped of shared segments. */
static void add_usage(pid_t pid, struct usage *u)
{
	char path[64], *line = NULL;
	size_t space = 0;
	uint64_t value;
	int ours = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	check(f != NULL, path, strerror(errno));
	while (getline(&line, &space, f) > 0) {
		if (!isupper((unsigned char)*line)) /* a mapping: its figures follow */
			ours = strstr(line, "/memfd:share-segment") != NULL;
		else if (ours && sscanf(line, "Rss: %" SCNu64, &value) == 1)
			u->rss += value;
		else if (ours && sscanf(line, "Pss: %" SCNu64, &value) == 1)
			u->pss += value;
	}
	free(line);
	fclose(f);
}

static int run(int n, int rounds)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	struct usage usage = {0};
	float *weights[LAYERS];
	pid_t workers[WORKERS_MAX];
	double model = 0, rss, pss;
	share_service *service;
	share_client *client;
	int wrong = 0, left = n, status;
	share_pool *pool;
	char name[32];

	check_share(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client),
		    "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* for loader and workers */
	start(load, 0);
	check(wait(&status) > 0 && status == 0, "the loader", "failed");
	check_share(share_pool_open(client, POOL, &pool), "share_pool_open");
	options.pool = POOL;
	check_share(share_service_open(client, SERVICE, SHARE_CALLER, &options, &service),
		    "share_service_open");
	start_workers(workers, n);

	for (int l = 0; l < LAYERS; l++) {
		model += (double)layer_bytes(l) / MIB;
		weights[l] = malloc(layer_bytes(l));
		check(weights[l] != NULL, "malloc", "out of memory");
		load_layer(l, weights[l]);
	}
	for (int i = 0; i < n; i++)
		add_usage(workers[i], &usage);
	for (int i = 0; i < rounds; i++) {
		pid_t victim = n > 1 && i == rounds / 2 ? workers[--left] : 0;

		wrong +=
		    ask_all(service, pool, n, i * 2 * n, victim, (const float *const *)weights);
	}
	share_service_close(service); /* which ends the workers */
	for (int i = 0; i < left; i++)
		check(wait(&status) > 0 && status == 0, "a worker", "failed");
	for (int l = 0; l < LAYERS; l++) {
		snprintf(name, sizeof(name), NAME_FORMAT, l);
		check_share(share_unpublish(client, name), name);
		free(weights[l]);
	}
	share_pool_close(pool);
	share_disconnect(client);

	rss = (double)usage.rss / 1024;
	pss = (double)usage.pss / 1024;
	printf("%d workers, one copy of %.1f MiB; private copies would have cost %.1f MiB more\n",
	       n, pss, rss - pss);
	/* every worker has all of it, and all of them together have it once (but for a few pages)
	 */
	check(rss >= model * n && pss >= model - 1 && pss <= model + 1, "smaps",
	      "this is not one copy of the weights");
	check(wrong == 0, "answers", "some are wrong");
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
