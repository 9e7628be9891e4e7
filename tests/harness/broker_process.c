/* SPDX-License-Identifier: MIT */

/*
 * Starting and stopping the broker under test. Its stderr is a memfd, so nobody has to read along.
 * Descriptors of the broker are compared while the same number of clients (one, this file's own)
 * is connected: after the start, and before the end.
 */

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/status.h"

const char broker_default_config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0, \"reuse\": \"gate\", \"access\": "
    "[{\"user\": \"*\", "
    "\"mode\": \"rw\"}]}]}";

static struct {
	pid_t pid;    /* of the keeper; 0: none runs */
	pid_t orphan; /* the broker whose keeper was killed */
	pid_t owner;
	int log;
	int lifeline;
	int descriptors; /* with one client */
	unsigned descriptor_limit;
	int other_log; /* 0: none */
	const char *program;
	const char *drain_ms;
	bool unprivileged;
	char directory[64];
	char socket[96];
	char config[96];
} broker = {.log = -1, .lifeline = -1};

/* CTest says where the programs are. Who runs a test's program itself gets those of the build
 * folder that it lies in, at whatever depth. */
static void __attribute__((constructor)) find_programs(void)
{
	char path[PATH_MAX - 32], program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	while (!getenv("SHARE_TEST_BIN") && (slash = strrchr(path, '/'))) {
		*slash = '\0';
		snprintf(program, sizeof(program), "%s/bin/share-broker", path);
		if (access(program, X_OK) != 0)
			continue;
		*strrchr(program, '/') = '\0';
		setenv("SHARE_TEST_BIN", program, 1);
	}
}

void broker_limit_descriptors(unsigned n)
{
	broker.descriptor_limit = n;
}

void broker_without_privileges(void)
{
	broker.unprivileged = true;
}

void broker_use_program(const char *path)
{
	broker.program = path;
}

void broker_drain(const char *ms)
{
	broker.drain_ms = ms;
}

void broker_log_to(int fd)
{
	broker.other_log = fd;
}

const char *broker_socket(void)
{
	return broker.socket;
}

static bool is_called(pid_t pid, const char *name)
{
	char path[64], found[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file && fscanf(file, "%31s", found) != 1)
		found[0] = '\0';
	if (file)
		fclose(file);
	return strcmp(found, name) == 0;
}

/* The keeper has its deputy, brokers, and agents of dead brokers. 0: there is no such child. */
static pid_t find_child(const char *name)
{
	char path[64];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)broker.pid, (int)broker.pid);
	file = fopen(path, "re");
	while (file && (fscanf(file, "%d", &pid) == 1 || (pid = 0)))
		if (is_called(pid, name))
			break;
	if (file)
		fclose(file);
	return pid;
}

/* As the third word of /proc/PID/stat; 0: there is no such process. */
static char state_of(pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (file)
		fclose(file);
	return state;
}

static bool is_dead(pid_t pid)
{
	char state = state_of(pid);

	return state == 0 || state == 'Z' || state == 'X';
}

/* 0: there is none right now. */
static pid_t find_serving(void)
{
	pid_t pid = find_child("share-broker");

	return pid == 0 && broker.orphan && !is_dead(broker.orphan) ? broker.orphan : pid;
}

pid_t broker_pid(void)
{
	pid_t pid;

	until((pid = find_serving()) > 0);
	return pid;
}

int broker_descriptors(void)
{
	return broker.descriptors;
}

char *broker_log(void)
{
	off_t size = lseek(broker.log, 0, SEEK_END);
	char *text = calloc(1, (size_t)size + 1);

	if (pread(broker.log, text, (size_t)size, 0) < 0)
		text[0] = '\0';
	return text;
}

int broker_said(const char *text)
{
	char *log = broker_log(), *rest = log, *line;
	int n = 0;

	while ((line = strsep(&rest, "\n")))
		n += strstr(line, text) != NULL;
	free(log);
	return n;
}

void broker_write_config(const char *config)
{
	FILE *file = fopen(broker.config, "we");

	check(file && fputs(config, file) >= 0 && fclose(file) == 0);
}

const char *broker_config(void)
{
	return broker.config;
}

static void make_directory(const char *config)
{

	strcpy(broker.directory, "/tmp/share-test-XXXXXX");
	check(mkdtemp(broker.directory));
	/* other users come to visit */
	check(chmod(broker.directory, 0755) == 0);
	snprintf(broker.socket, sizeof(broker.socket), "%s/broker.sock", broker.directory);
	snprintf(broker.config, sizeof(broker.config), "%s/broker.json", broker.directory);
	broker_write_config(config ? config : broker_default_config);
}

static void remove_directory(void)
{
	unlink(broker.socket);
	unlink(broker.config);
	check(rmdir(broker.directory) == 0);
}

static int make_listener(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, broker.socket);
	check(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
	check(chmod(broker.socket, 0666) == 0 && listen(fd, 1024) == 0);
	return fd;
}

/* The path of a program, which lies beside the test's if it is a mere name. */
static void find_beside(const char *program, char *path, size_t size)
{
	ssize_t n = strchr(program, '/') ? 0 : readlink("/proc/self/exe", path, size - 1);

	while (n > 0 && path[n - 1] != '/')
		n--;
	snprintf(path + n, size - (size_t)n, "%s", program);
}

static void __attribute__((noreturn)) become_broker(int listener, int lifeline)
{
	char path[PATH_MAX], listen_fd[16], lifeline_fd[16];
	const char *directory = getenv("SHARE_TEST_BIN");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(broker.other_log ? broker.other_log : broker.log, STDERR_FILENO);
	close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC); /* whatever Criterion has open */
	fcntl(listener, F_SETFD, 0);
	fcntl(lifeline, F_SETFD, 0);
	if (broker.descriptor_limit)
		setrlimit(RLIMIT_NOFILE,
			  &(struct rlimit){broker.descriptor_limit, broker.descriptor_limit});
	if (broker.unprivileged) { /* others than root have none of these */
		prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE);
		prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
	}
	setenv("SHARE_ABORT_ON_BUG", "1", 1);
	/* the stand-in's processes open each other's memory; a test can have it otherwise */
	setenv("SHARE_DUMPABLE", "1", 0);
	if (broker.program) { /* which has no agent beside it */
		snprintf(path, sizeof(path), "%s/share-agent", directory ? directory : ".");
		setenv("SHARE_AGENT", path, 0);
		find_beside(broker.program, path, sizeof(path));
	} else
		snprintf(path, sizeof(path), "%s/share-broker", directory ? directory : ".");
	snprintf(listen_fd, sizeof(listen_fd), "%d", listener);
	snprintf(lifeline_fd, sizeof(lifeline_fd), "%d", lifeline);
	execl(path, path, "--config", broker.config, "--listen-fd", listen_fd, "--lifeline-fd",
	      lifeline_fd, "--drain-ms", broker.drain_ms ? broker.drain_ms : "0", (char *)NULL);
	fprintf(stderr, "%s: %s (is $SHARE_TEST_BIN set?)\n", path, strerror(errno));
	_exit(127);
}

void broker_begin(const char *config)
{
	int listener, lifeline[2];

	check(broker.pid == 0);
	if (!broker.program)
		broker.program = getenv("SHARE_TEST_BROKER");
	make_directory(config);
	broker.log = memfd_create("broker-log", MFD_CLOEXEC);
	listener = make_listener();
	check(broker.log >= 0 && pipe2(lifeline, O_CLOEXEC) == 0);
	broker.lifeline = lifeline[1];
	fflush(NULL);
	broker.owner = getpid();
	broker.pid = fork();
	if (broker.pid == 0)
		become_broker(listener, lifeline[0]);
	close(listener);
	close(lifeline[0]);
	check(broker.pid > 0);
	broker.descriptors = 0;
}

void broker_start(const char *config)
{
	share_client *c;

	broker_begin(config);
	check_ok(share_connect(broker.socket, &c));
	broker.descriptors = descriptors_count(broker_pid());
	share_disconnect(c);
}

static int wait_for_end(void)
{
	int status;

	check(waitpid(broker.pid, &status, 0) == broker.pid);
	broker.pid = 0;
	return status;
}

void broker_freeze_keeper(void)
{
	check(kill(broker.pid, SIGSTOP) == 0);
	until(state_of(broker.pid) == 'T');
}

void broker_thaw_keeper(void)
{
	check(kill(broker.pid, SIGCONT) == 0);
}

void broker_kill_serving_for_now(void)
{
	pid_t serving = broker_pid();

	broker_freeze_keeper();
	check(kill(serving, SIGKILL) == 0);
	until(state_of(serving) == 'Z');
}

void broker_let_keeper_go_on(void)
{
	pid_t before = find_serving();

	check(kill(broker.pid, SIGCONT) == 0);
	until(find_serving() > 0 && find_serving() != before);
}

void broker_kill_serving(void)
{
	pid_t before = broker_pid();

	check(kill(before, SIGKILL) == 0);
	until(find_serving() > 0 && find_serving() != before);
}

/* The processes of a keeper that is dead become the test's. */
static void end_keeper(int signal, pid_t serving)
{
	pid_t deputy = 0;

	until((deputy = find_child("share-keeper")) > 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	kill(broker.pid, signal);
	if (serving > 0)
		kill(serving, SIGKILL);
	wait_for_end();
	broker.pid = deputy;
	until(find_child("share-keeper") > 0);
}

void broker_kill_keeper(void)
{
	broker.orphan = broker_pid();
	end_keeper(SIGKILL, 0);
}

void broker_hang_keeper(void)
{
	broker.orphan = broker_pid();
	end_keeper(SIGSTOP, 0);
}

void broker_kill_keeper_and_serving(void)
{
	end_keeper(SIGKILL, broker_pid());
	until(find_serving() > 0);
}

void broker_kill_keepers(void)
{
	broker_freeze_keeper(); /* so that the deputy that is found is the last one */
	broker_kill_all(broker.pid, find_child("share-keeper"), 0);
	wait_for_end();
}

void broker_kill_all(pid_t keeper, pid_t deputy, pid_t serving)
{
	check(keeper > 1);
	kill(keeper, SIGSTOP); /* so that it starts no other one for those that die now */
	if (deputy > 0)
		kill(deputy, SIGKILL);
	if (serving > 0)
		kill(serving, SIGKILL);
	kill(keeper, SIGKILL);
}

void broker_kill(void)
{
	pid_t serving = find_serving();

	broker_kill_all(broker.pid, find_child("share-keeper"), serving);
	wait_for_end();
	if (serving > 0)
		until(is_dead(serving));
}

void broker_freeze(void)
{
	pid_t pid = broker_pid();

	check(kill(pid, SIGSTOP) == 0);
	until(state_of(pid) == 'T');
}

void broker_thaw(void)
{
	kill(broker_pid(), SIGCONT);
}

int broker_wait(void)
{
	int status = wait_for_end();

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int broker_let_go(void)
{
	close(broker.lifeline);
	broker.lifeline = -1;
	return broker_wait();
}

/* ------------------------------------------------------------------------------------------- */

/* An empty segment that is kept for the next buffer has two descriptors, and so has an agent. */
static void expect_nothing_left(void)
{
	struct deadline d = deadline_in(HARNESS_LIMIT_MS);
	struct status status;
	share_client *c;
	int now, wanted;

	check_ok(share_connect(broker.socket, &c));
	settle(c, s.clients == 1);
	end_messages(c);
	settle(c, s.buffers == 0 && s.leases == 0 && s.names == 0 && s.tokens == 0 &&
		      s.buffer_bytes == 0);
	do {
		status_read(c, &status);
		wanted = broker.descriptors + 2 * (int)status.segments + 2 * (int)status.agents;
		now = broker.descriptors ? descriptors_count(broker_pid()) : wanted;
	} while (now != wanted && deadline_pause(&d));
	if (now != wanted) {
		descriptors_list(broker_pid());
		check_failed(__FILE__, __LINE__, "the broker has %d descriptors, not %d", now,
			     wanted);
	}
	share_disconnect(c);
}

static void expect_clean_log(void)
{
	static const char *const bad[] = {"BUG:", "Sanitizer", "runtime error", "assert"};
	char *text = broker_log();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (strstr(text, bad[i]))
			check_failed(__FILE__, __LINE__, "the broker said \"%s\"", bad[i]);
	free(text);
}

static void end(void)
{
	int status;

	kill(broker.pid, SIGTERM);
	status = wait_for_end();
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		check_failed(__FILE__, __LINE__, "the broker ended with %s %d",
			     WIFEXITED(status) ? "exit code" : "signal",
			     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

void broker_stop(void)
{
	if (!check_has_failed()) {
		if (broker.pid > 0) {
			expect_nothing_left();
			end();
		}
		expect_clean_log();
	} else if (broker.pid > 0) {
		broker_kill();
	}
	close(broker.log);
	close(broker.lifeline);
	broker.log = broker.lifeline = -1;
	if (broker.directory[0])
		remove_directory();
}
