/* SPDX-License-Identifier: MIT */

/*
 * workers: many inference workers, one copy of the weights.
 *
 * The loader puts the weights of a perceptron into shared buffers, publishes them read-only and
 * persistent, and ends: the names, and so the memory, stay. Then workers look the weights up and
 * answer requests that come through a socket. They are started when the loader is gone, and could
 * be restarted at any time without loading anything again.
 *
 * The parent checks each answer against a computation with weights of its own, and asks the kernel
 * what the workers cost: Rss counts a page in every process that has it, Pss divides it by their
 * number. So the sum of Rss is what private copies would have cost, and the sum of Pss is what the
 * one copy does cost.
 */

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.h>

#define POOL        "perceptron"
#define NAME_FORMAT "perceptron/%d" /* a matrix for each layer */
#define LAYERS      3
#define WIDTH       1024 /* of a request, and of an answer */
#define WIDEST      2048
#define WORKERS_MAX 64
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

static void check_system(int fine, const char *what)
{
	check(fine, what, strerror(errno));
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

static void load(void)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *client;
	share_buffer *layer;
	share_tensor tensor;
	share_pool *pool;
	char name[32];
	int r;

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
		check_share(share_tensor_init(&tensor, SHARE_FLOAT32, 2,
					      (int64_t[]){widths[l + 1], widths[l]}),
			    "share_tensor_init");
		check_share(share_tensor_set(layer, &tensor), "share_tensor_set");
		check_share(share_publish_with(layer, name, &publish, NULL, NULL), name);
		check_share(share_release(layer, NULL), "share_release");
	}
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* A worker                                                                                    */

static void work(int requests)
{
	float request[WIDTH], answer[WIDTH];
	const float *weights[LAYERS];
	share_buffer *layers[LAYERS];
	share_client *client;
	share_tensor tensor;
	char name[32];

	check_share(share_connect(NULL, &client), "share_connect");
	for (int l = 0; l < LAYERS; l++) {
		snprintf(name, sizeof(name), NAME_FORMAT, l);
		check_share(share_lookup(client, name, SHARE_RDONLY, 0, NULL, &layers[l]), name);
		check_share(share_tensor_get(layers[l], &tensor), name);
		check(tensor.dtype == SHARE_FLOAT32 && tensor.ndim == 2 &&
			  tensor.shape[0] == widths[l + 1] && tensor.shape[1] == widths[l] &&
			  tensor.offset == 0,
		      name, "not the weights of this model");
		weights[l] = share_ptr(layers[l]);
	}
	while (recv(requests, request, sizeof(request), 0) == sizeof(request)) {
		infer(weights, request, answer);
		check_system(send(requests, answer, sizeof(answer), 0) == sizeof(answer), "send");
	}
	for (int l = 0; l < LAYERS; l++)
		check_share(share_release(layers[l], NULL), "share_release");
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

struct worker {
	pid_t pid;
	int socket;
};

static void run_loader(void)
{
	pid_t pid = fork();
	int status;

	check_system(pid >= 0, "fork");
	if (pid == 0) {
		load();
		exit(0);
	}
	check(waitpid(pid, &status, 0) == pid && status == 0, "the loader", "failed");
}

static void start_worker(struct worker *workers, int number)
{
	int pair[2]; /* one packet is one request, or one answer */

	check_system(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0,
		     "socketpair");
	workers[number].socket = pair[0];
	workers[number].pid = fork();
	check_system(workers[number].pid >= 0, "fork");
	if (workers[number].pid == 0) {
		/* the parent's ends, so that the workers see it hang up */
		for (int i = 0; i <= number; i++)
			close(workers[i].socket);
		work(pair[1]);
		exit(0);
	}
	close(pair[1]);
}

/* One request to each worker, then one answer from each. Returns how many were wrong. */
static int ask_all(const struct worker *workers, int n, int first, const float *const *weights)
{
	float request[WIDTH], answer[WIDTH], expected[WIDTH];
	int wrong = 0;

	for (int i = 0; i < n; i++) {
		make_request(first + i, request);
		check_system(send(workers[i].socket, request, sizeof(request), MSG_NOSIGNAL) ==
				 sizeof(request),
			     "sending a request");
	}
	for (int i = 0; i < n; i++) {
		make_request(first + i, request);
		infer(weights, request, expected);
		check(recv(workers[i].socket, answer, sizeof(answer), 0) == sizeof(answer),
		      "a worker", "did not answer");
		/* the same program computed both in the same order: not one bit may differ */
		if (memcmp(answer, expected, sizeof(answer)) != 0) {
			fprintf(stderr, "workers: answer %d is wrong\n", first + i);
			wrong++;
		}
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
	check_system(f != NULL, path);
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

static void stop_workers(const struct worker *workers, int n)
{
	int status;

	for (int i = 0; i < n; i++)
		close(workers[i].socket);
	for (int i = 0; i < n; i++)
		check(waitpid(workers[i].pid, &status, 0) == workers[i].pid && status == 0,
		      "a worker", "failed");
}

static void unload(share_client *client)
{
	char name[32];

	for (int l = 0; l < LAYERS; l++) {
		snprintf(name, sizeof(name), NAME_FORMAT, l);
		check_share(share_unpublish(client, name), name);
	}
}

static int run(int n, int rounds)
{
	struct worker workers[WORKERS_MAX];
	struct usage usage = {0};
	float *weights[LAYERS];
	double model = 0, rss, pss;
	share_client *client;
	int wrong = 0;

	check_share(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client),
		    "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* for loader and workers */
	run_loader();
	for (int i = 0; i < n; i++)
		start_worker(workers, i);

	for (int l = 0; l < LAYERS; l++) {
		model += (double)layer_bytes(l) / MIB;
		weights[l] = malloc(layer_bytes(l));
		check(weights[l] != NULL, "malloc", "out of memory");
		load_layer(l, weights[l]);
	}
	for (int i = 0; i < rounds; i++)
		wrong += ask_all(workers, n, i * n, (const float *const *)weights);
	for (int i = 0; i < n; i++)
		add_usage(workers[i].pid, &usage);
	stop_workers(workers, n);
	unload(client);
	share_disconnect(client);
	for (int l = 0; l < LAYERS; l++)
		free(weights[l]);

	rss = (double)usage.rss / 1024;
	pss = (double)usage.pss / 1024;
	printf("%d workers, one copy of %.1f MiB; private copies would have cost %.1f MiB more\n",
	       n, pss, rss - pss);
	/* every worker has all of it, and all of them together have it once (but for a few pages)
	 */
	check(rss >= model * n && pss >= model - 1 && pss <= model + 1, "smaps",
	      "this is not one copy of the weights");
	check(wrong == 0, "answers", "some are wrong");
	printf("workers: ok workers=%d requests=%d model=%.1fMiB rss=%.1fMiB pss=%.1fMiB\n", n,
	       n * rounds, model, rss, pss);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
	    {"workers", required_argument, NULL, 'w'},
	    {"rounds", required_argument, NULL, 'r'},
	    {NULL, 0, NULL, 0},
	};
	int n = 4, rounds = 8, c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'w')
			n = atoi(optarg);
		else if (c == 'r')
			rounds = atoi(optarg);
		else
			n = 0;
	}
	if (optind != argc || n < 1 || n > WORKERS_MAX || rounds < 1) {
		fprintf(stderr, "usage: workers [--workers N] [--rounds N]\n");
		return 1;
	}
	return run(n, rounds);
}
