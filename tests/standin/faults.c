/* SPDX-License-Identifier: MIT */

/*
 * The door of every function: what the test wants to happen at this call, and what the process has
 * no right to ask yet. A forked child of a process that used the driver has no driver, as with the
 * real one.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/standin/calls.h"
#include "tests/standin/standin.h"

static const char *const names[] = {
#define NAME(symbol) #symbol,
    STANDIN_FUNCTIONS(NAME)
#undef NAME
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct standin_calls *everyones;
static struct standin_calls ours;
static _Atomic bool forked;

static void in_forked_child(void)
{
	if (devices_initialised())
		forked = true;
	memset(&ours, 0, sizeof(ours));
}

static void start(void)
{
	const char *path = getenv("SHARE_STANDIN_CALLS");

	if (path && *path)
		everyones = standin_calls_open(path);
	pthread_atfork(NULL, NULL, in_forked_child);
}

/* "cuMemAlloc" and "cuMemAlloc_v2" are both the latter. */
static bool is_name(enum standin_function function, const char *word)
{
	size_t length = strlen(word);
	const char *name = names[function];

	return strncmp(name, word, length) == 0 &&
	       (name[length] == '\0' ||
		(strncmp(name + length, "_v", 2) == 0 && strlen(name + length) == 3));
}

static CUresult number_of(const char *word)
{
	CUresult result;

	if (error_by_name(word, &result))
		return result;
	result = (CUresult)atoi(word);
	if (result == CUDA_SUCCESS) {
		fprintf(stderr, "BUG: SHARE_STANDIN_FAULTS: no error is called \"%s\"\n", word);
		abort();
	}
	return result;
}

/* One line of the file of faults. CUDA_SUCCESS: it is not about this call. */
static CUresult apply(char *line, enum standin_function function, uint64_t calls)
{
	char *words[5] = {0}, *rest = NULL;
	size_t n = 0, after;

	for (char *w = strtok_r(line, " \t", &rest); w && n < 5; w = strtok_r(NULL, " \t", &rest))
		words[n++] = w;
	if (n < 2 || !is_name(function, words[0]))
		return CUDA_SUCCESS;
	after = strcmp(words[1], "fail") == 0 ? 3 : 2;
	if (n >= after + 2 && strcmp(words[after], "after") == 0 &&
	    calls <= strtoull(words[after + 1], NULL, 10))
		return CUDA_SUCCESS;
	if (strcmp(words[1], "fail") == 0 && n >= 3)
		return number_of(words[2]);
	if (strcmp(words[1], "hang") == 0)
		for (;;)
			pause();
	if (strcmp(words[1], "die") == 0)
		kill(getpid(), SIGKILL);
	fprintf(stderr, "BUG: SHARE_STANDIN_FAULTS: %s what?\n", words[0]);
	abort();
}

static CUresult fault(enum standin_function function, uint64_t calls)
{
	const char *path = getenv("SHARE_STANDIN_FAULTS");
	char text[4096], *rest = NULL;
	ssize_t size;
	int fd;

	if (!path || !*path)
		return CUDA_SUCCESS;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CUDA_SUCCESS;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0)
		return CUDA_SUCCESS;
	text[size] = '\0';
	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		CUresult result = apply(l, function, calls);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

CUresult standin_enter(enum standin_function function, enum need need)
{
	CUcontext context;
	CUresult result;
	uint64_t calls;

	pthread_once(&once, start);
	calls = atomic_fetch_add(&ours.count[function], 1) + 1;
	if (everyones)
		atomic_fetch_add(&everyones->count[function], 1);

	result = fault(function, calls);
	if (result != CUDA_SUCCESS)
		return result;
	if (need == NEEDS_NOTHING && function != STANDIN_cuInit)
		return CUDA_SUCCESS;
	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (function == STANDIN_cuInit)
		return CUDA_SUCCESS;
	if (!devices_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (need == NEEDS_INIT)
		return CUDA_SUCCESS;

	context = context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return (CUresult)context->sticky;
}
