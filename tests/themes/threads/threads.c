/* SPDX-License-Identifier: MIT */

/*
 * What the thread tests share. They are plain programs, as ThreadSanitizer and Criterion do not get
 * on; each test is a forked child that ends with exit(), so that the leak checkers have their say.
 * Knows libshare by its public headers only.
 */

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/descriptors.h"
#include "tests/themes/threads/threads.h"

#define MARK_EVERY (512 / sizeof(uint64_t))

share_client *client, *second;
share_pool *pool;

static unsigned factor = 1;

unsigned steps(unsigned n)
{
	return n * factor;
}

void start(void)
{
	check_ok(share_connect("embedded", &client));
	check_ok(share_connect(share_address(client), &second));
	check_ok(share_pool_open(client, "default", &pool));
}

void stop(void)
{
	share_pool_close(pool);
	share_disconnect(second);
	settle(client, s.buffers == 0 && s.leases == 0 && s.names == 0 && s.tokens == 0 &&
			   s.clients == 1 && s.pools == 1);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */

static void *member_main(void *data)
{
	struct crew_member *m = data;

	pthread_barrier_wait(&m->crew->ready);
	m->function(m->data, m->index);
	return NULL;
}

void crew_add(struct crew *crew, unsigned n, void (*function)(void *data, unsigned index),
	      void *data)
{
	for (unsigned i = 0; i < n; i++) {
		check(crew->n < CREW_MAX);
		crew->members[crew->n++] = (struct crew_member){
		    .crew = crew, .function = function, .data = data, .index = i};
	}
}

void crew_start(struct crew *crew)
{
	pthread_barrier_init(&crew->ready, NULL, crew->n);
	for (unsigned i = 0; i < crew->n; i++)
		check(pthread_create(&crew->members[i].thread, NULL, member_main,
				     &crew->members[i]) == 0);
}

void crew_join(struct crew *crew)
{
	for (unsigned i = 0; i < crew->n; i++)
		check(pthread_join(crew->members[i].thread, NULL) == 0);
	pthread_barrier_destroy(&crew->ready);
}

void together(unsigned n, void (*function)(void *data, unsigned index), void *data)
{
	struct crew crew = {.n = 0};

	crew_add(&crew, n, function, data);
	crew_start(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------- */

void mark(void *memory, uint64_t size, uint64_t value)
{
	uint64_t *words = memory;

	for (uint64_t i = 0; i < size / sizeof(value); i += MARK_EVERY)
		words[i] = value;
}

bool is_marked(const void *memory, uint64_t size, uint64_t value)
{
	const uint64_t *words = memory;

	for (uint64_t i = 0; i < size / sizeof(value); i += MARK_EVERY)
		if (words[i] != value)
			return false;
	return true;
}

uint64_t mark_of(share_buffer *b)
{
	uint64_t value;

	check(share_size(b) >= sizeof(value));
	memcpy(&value, share_ptr(b), sizeof(value));
	check(is_marked(share_ptr(b), share_size(b), value));
	return value;
}

share_buffer *marked_buffer(share_pool *p, uint64_t size, uint64_t value)
{
	share_buffer *b;

	check_ok(share_alloc(p, size, NULL, &b));
	mark(share_ptr(b), size, value);
	return b;
}

int one_of(const char *file, int line, int r, const int *errors, size_t n)
{
	if (r == 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (r == errors[i])
			return r;
	check_failed(file, line, "%s was not expected (%s)", share_error_name(r),
		     share_error_detail());
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* A thread of the library's may have the last reference on a client, and let go of it a moment
 * after the application did. */
static bool as_many_descriptors(int before)
{
	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS); descriptors_count(0) != before;)
		if (!deadline_pause(&d))
			return false;
	return true;
}

static void run(const struct thread_test *test)
{
	int before = descriptors_count(0);

	check_in_child();
	test->function();
	if (!as_many_descriptors(before)) {
		descriptors_list(0);
		check_failed(__FILE__, __LINE__, "descriptors: %d before, %d after", before,
			     descriptors_count(0));
	}
	exit(0);
}

static bool passes(const struct thread_test *test)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		run(test);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: signal %d\n", test->name, WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		fprintf(stderr, "%s: exit code %d\n", test->name, WEXITSTATUS(status));
	return status == 0;
}

int threads_main(int argc, char **argv, const struct thread_test *tests, size_t n)
{
	const char *only = NULL, *bin = getenv("SHARE_TEST_BIN");
	unsigned passed = 0, failed = 0;
	char broker[4096];
	int option;

	while ((option = getopt(argc, argv, "t:")) == 't')
		only = optarg;
	if (option != -1) {
		fprintf(stderr, "usage: %s [-t TEST] [FACTOR]\n", argv[0]);
		return 2;
	}
	if (optind < argc)
		factor = (unsigned)strtoul(argv[optind], NULL, 10);
	if (factor == 0)
		factor = 1;
	if (bin) { /* as CTest has it; else the one beside this program */
		snprintf(broker, sizeof(broker), "%s/share-broker", bin);
		setenv("SHARE_BROKER", broker, 1);
	}
	for (size_t i = 0; i < n; i++) {
		if (only && strcmp(only, tests[i].name) != 0)
			continue;
		if (passes(&tests[i]))
			passed++;
		else
			failed++;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0 || passed == 0;
}

#define HELD 8

void take_and_give(share_pool *p, unsigned index, uint32_t largest, unsigned n)
{
	struct {
		share_buffer *buffer;
		uint64_t value;
	} held[HELD] = {{NULL, 0}};
	uint32_t state = index + 1;

	for (unsigned i = 0; i < n; i++) {
		unsigned at = dice(&state, HELD);

		if (held[at].buffer) {
			check_eq(mark_of(held[at].buffer), held[at].value);
			check_ok(share_release(held[at].buffer, NULL));
			held[at].buffer = NULL;
		} else {
			held[at].value = (uint64_t)(index + 1) << 32 | i;
			held[at].buffer =
			    marked_buffer(p, 8 + dice(&state, largest), held[at].value);
		}
	}
	for (unsigned at = 0; at < HELD; at++) {
		if (!held[at].buffer)
			continue;
		check_eq(mark_of(held[at].buffer), held[at].value);
		check_ok(share_release(held[at].buffer, NULL));
	}
}
