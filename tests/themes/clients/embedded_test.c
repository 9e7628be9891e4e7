/* SPDX-License-Identifier: MIT */

/* A private broker, started from inside a program. It lasts as long as the connection, or the
 * process, and leaves nothing behind. */

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/process.h"
#include "tests/harness/fixture.h"

static void start(void)
{
	char path[4096];

	fixture_start();
	snprintf(path, sizeof(path), "%s/share-broker", getenv("SHARE_TEST_BIN"));
	setenv("SHARE_BROKER", path, 1);
}

TestSuite(embedded, .init = start, .fini = fixture_stop, .timeout = 60);

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* The directory of a socket. */
static void directory_of(const char *socket, char *out)
{
	strcpy(out, socket);
	*strrchr(out, '/') = '\0';
}

static share_client *embed(void)
{
	share_client *c;

	check_ok(share_connect("embedded", &c));
	return c;
}

Test(embedded, a_broker_is_there_at_once_and_gone_with_the_connection)
{
	share_client *c = embed();
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	char directory[4096];

	directory_of(share_address(c), directory);
	check(strcmp(share_address(c), broker_socket()) != 0);
	memset(share_ptr(b), 1, 4096);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	check(exists(directory));
	share_disconnect(c);
	check(!exists(directory));
}

/* The signals that this process has sent by a pidfd, in their order. */
static int signals[8];
static size_t n_signals;

/* Takes the place of the C library's function, and hands on what it is asked for. */
long syscall(long number, ...)
{
	long (*real)(long, ...), a[6];
	va_list arguments;

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_pidfd_send_signal && n_signals < 8)
		signals[n_signals++] = (int)a[1];
	*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* A SIGCONT takes back every stop that is about to happen. LeakSanitizer stops a broker that ends
 * to look at its memory, and waited for good when the SIGCONT came behind the SIGTERM. */
Test(embedded, it_is_woken_up_before_it_is_told_to_end_and_not_while_it_ends)
{
	share_disconnect(embed());
	check_eq(n_signals, 2);
	check_eq(signals[0], SIGCONT);
	check_eq(signals[1], SIGTERM);
}

Test(embedded, others_find_it_by_its_address)
{
	share_client *c = embed(), *other;
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL), *v;

	check_ok(share_publish(b, "name", NULL));
	check_ok(share_connect(share_address(c), &other));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &v));
	check_eq(share_id(v), share_id(b));
	check_ok(share_release(v, NULL));
	share_disconnect(other);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(embedded, a_buffer_keeps_it_alive_after_the_client_handle_is_gone)
{
	share_client *c = embed();
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	char directory[4096];

	directory_of(share_address(c), directory);
	share_pool_close(p);
	share_disconnect(c);
	check(exists(directory));
	memset(share_ptr(b), 1, 4096);
	check_ok(share_release(b, NULL));
	check(!exists(directory));
}

static void embeds(struct child *self, void *data)
{
	share_client *c = embed();
	char address[128] = "";

	(void)data;
	strcpy(address, share_address(c));
	child_point_with(self, "embedded", address, sizeof(address));
}

Test(embedded, it_ends_with_its_process_and_removes_its_directory)
{
	struct child *child = child_start(embeds, NULL);
	char address[128], directory[4096];

	child_wait_with(child, "embedded", address, sizeof(address));
	check(exists(address));
	directory_of(address, directory);
	child_kill(child);
	until(!exists(address) && !exists(directory));
}

/* As the first process of a container is: whoever lost its parent becomes its child. */
static void adopts_orphans(struct child *self, void *data)
{
	(void)self, (void)data;
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	share_disconnect(embed());
	check(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

Test(embedded, who_adopts_orphans_is_not_left_with_the_broker)
{
	child_finish(child_start(adopts_orphans, NULL));
}

/* As what a job gets: nobody may raise it again. */
static void is_limited(struct child *self, void *data)
{
	const __rlimit_resource_t resource = data ? RLIMIT_FSIZE : RLIMIT_AS;
	const struct rlimit small = {(rlim_t)1 << 30, (rlim_t)1 << 30};
	share_client *c;

	(void)self;
	check(setrlimit(resource, &small) == 0);
	check_error(share_connect("embedded", &c), SHARE_ENOBROKER);
	check_detail(data ? "RLIMIT_FSIZE, ulimit -f, is 1048576 KiB"
			  : "RLIMIT_AS, ulimit -v, is 1048576 KiB");
}

Test(embedded, where_a_limit_of_the_process_lets_no_broker_start_the_error_names_it)
{
	static char file_sizes;

	child_finish(child_start(is_limited, &file_sizes));
	if (PROCESS_IS_INSTRUMENTED) /* which takes more addresses than that */
		return;
	child_finish(child_start(is_limited, NULL));
}

/* Which the broker may raise for itself. */
static void limits_itself(struct child *self, void *data)
{
	struct rlimit limit;
	share_client *c;

	(void)self, (void)data;
	check(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = 1 << 20;
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	c = embed();
	check_ok(share_ping(c));
	share_disconnect(c);
}

Test(embedded, a_soft_limit_of_the_process_is_none_for_its_broker)
{
	child_finish(child_start(limits_itself, NULL));
}

Test(embedded, a_configuration_that_is_wrong_is_told)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *none = NULL;

	options.config = "/nonexistent/broker.json";
	check_error(share_connect_with("embedded", &options, &none), SHARE_ENOBROKER);
	check(none == NULL);
	setenv("SHARE_BROKER", "/nonexistent/share-broker", 1);
	check_error(share_connect("embedded", &none), SHARE_ENOBROKER);
	check_detail("/nonexistent/share-broker");
}

/* As in a valgrind that does not know the call: a child, as it is for good. */
Test(embedded, who_may_not_open_pidfds_is_told_of_share_run)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
	int status;
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		share_client *c;

		check_in_child();
		check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
		check_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
		check_error(share_connect("embedded", &c), SHARE_ESYSTEM);
		check_detail("run this program under share-run: Function not implemented");
		_exit(0);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
