/* SPDX-License-Identifier: MIT */

/*
 * hello: memory from one process to another, on one page.
 *
 * The parent allocates a buffer, writes into it, and publishes it under a name. The child connects
 * for itself (handles and shared memory are not inherited), looks the name up, and reads what the
 * parent wrote: the same memory, not a copy.
 *
 *   hello                    with a private broker that ends with the program
 *   share-run -- hello       with the broker of share-run
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.h>

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "hello: %s: %s (%s)\n", what, share_strerror(result), share_error_detail());
	exit(1);
}

static void read_greeting(void)
{
	share_client *client;
	share_buffer *greeting;

	check(share_connect(NULL, &client), "share_connect");
	/* waits up to 5 s for the name to be published; the mapping is read-only */
	check(share_lookup(client, "greeting", SHARE_RDONLY, 5000, NULL, &greeting),
	      "share_lookup");
	printf("child %d reads: %s\n", (int)getpid(), (const char *)share_ptr(greeting));
	check(share_release(greeting, NULL), "share_release");
	share_disconnect(client);
}

int main(int argc, char **argv)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *client;
	share_pool *pool;
	share_buffer *greeting;
	pid_t child;
	int status;

	if (argc > 1) {
		int help = strcmp(argv[1], "--help") == 0;

		fprintf(help ? stdout : stderr, "usage: hello\n");
		return !help;
	}
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	/* where share_connect(NULL) of the child looks */
	setenv("SHARE_SOCKET", share_address(client), 1);

	options.kind = "host"; /* not GPU memory: this program reads and writes it itself */
	check(share_pool_create(client, "hello", &options, &pool), "share_pool_create");
	check(share_alloc(pool, 4096, NULL, &greeting), "share_alloc");
	snprintf(share_ptr(greeting), 4096, "hello from %d", (int)getpid());
	check(share_publish(greeting, "greeting", NULL), "share_publish");
	check(share_release(greeting, NULL), "share_release"); /* the name keeps it alive */

	child = fork();
	if (child == 0) {
		read_greeting();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "hello: the child failed\n");
		return 1;
	}
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
