/* SPDX-License-Identifier: MIT */

/*
 * PyTorch as a floor: a process that runs torch_queue.py, with a pipe in each direction. The
 * process first says whether it can run, and is then told what to do, line by line. Without Python,
 * or torch for it, there is no floor.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/channel/torch.h"

#define SCRIPT "torch_queue.py"
#define PLACE  "../share/" SCRIPT /* seen from this program */

struct torch {
	pid_t pid;
	FILE *to, *from;
	char said[256];
};

static void run_script(int in, int out)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(PLACE) - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, PLACE);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execlp("python3", "python3", path, (char *)NULL);
	dprintf(STDOUT_FILENO, "SKIPPED: there is no python3\n");
	_exit(0);
}

struct torch *torch_start(void)
{
	struct torch *t = calloc(1, sizeof(*t));
	int to[2], from[2];

	must_system(t && pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, "pipe");
	t->pid = fork();
	must_system(t->pid >= 0, "fork");
	if (t->pid == 0)
		run_script(to[0], from[1]);
	close(to[0]);
	close(from[1]);
	t->to = fdopen(to[1], "w");
	t->from = fdopen(from[0], "r");
	must_system(t->to && t->from, "fdopen");
	signal(SIGPIPE, SIG_IGN); /* the other process may have ended */
	return t;
}

static bool read_line(struct torch *t)
{
	if (!fgets(t->said, sizeof(t->said), t->from))
		return false;
	t->said[strcspn(t->said, "\n")] = '\0';
	return true;
}

const char *torch_wait(struct torch *t)
{
	static const char skipped[] = "SKIPPED: ";

	if (!read_line(t))
		return SCRIPT " ended";
	if (strncmp(t->said, skipped, strlen(skipped)) == 0)
		return t->said + strlen(skipped);
	return strncmp(t->said, "ready ", strlen("ready ")) == 0 ? NULL : t->said;
}

void torch_play(struct torch *t, uint64_t size, unsigned n, struct samples *hand_over,
		struct samples *whole)
{
	double a, b;

	fprintf(t->to, "%llu %u\n", (unsigned long long)size, n);
	fflush(t->to);
	for (unsigned i = 0; i < n; i++) {
		if (!read_line(t) || sscanf(t->said, "%lf %lf", &a, &b) != 2) {
			fprintf(stderr, "share-bench: " SCRIPT " has failed\n");
			exit(1);
		}
		samples_add(hand_over, a);
		samples_add(whole, b);
	}
}

void torch_stop(struct torch *t)
{
	fclose(t->to);
	while (read_line(t))
		; /* lines that nobody has read */
	fclose(t->from);
	waitpid(t->pid, NULL, 0);
	free(t);
}
