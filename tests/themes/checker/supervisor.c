/* SPDX-License-Identifier: MIT */

/*
 * Who looks after the workers. It uses no memory of the pool and no driver; it knows the workers by
 * their wait status and by what they write on the board. Killing is its business: at random numbers
 * of steps, a random worker, and with memory of GPUs now and then the agent.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <share/admin.h>

#include "tests/themes/checker/supervisor.h"
#include "tests/themes/checker/traffic.h"

#define LOOK_MS    5
#define ROWS_SHOWN 40

#define STEPS_TO_FREEZE 60

struct process {
	pid_t pid; /* 0: none */
	unsigned incarnation;
	bool killed;
	uint64_t progress; /* at the last look that saw some */
	int64_t since_ms;
};

struct supervisor {
	struct board *board;
	int board_fd, tokens[2];
	share_client *client;
	struct dice dice;
	struct process processes[WORKERS_MAX];
	pid_t dead[2 * WORKERS_MAX]; /* of which the broker may not know */
	unsigned n_dead;
	unsigned running, kills, agent_kills, broker_kills, keeper_kills, upgrades;
	uint64_t next_kill;   /* at this many steps */
	uint64_t next_freeze; /* likewise */
	int64_t thaw_ms;      /* when the broker goes on; 0: it is not stopped */
	int64_t end_ms;
	pid_t broker, keeper, deputy;
	enum ending ending;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

unsigned supervisor_kills(const struct supervisor *s)
{
	return s->kills;
}

unsigned supervisor_upgrades(const struct supervisor *s)
{
	return s->upgrades;
}

unsigned supervisor_keeper_kills(const struct supervisor *s)
{
	return s->keeper_kills;
}

unsigned supervisor_broker_kills(const struct supervisor *s)
{
	return s->broker_kills;
}

unsigned supervisor_agent_kills(const struct supervisor *s)
{
	return s->agent_kills;
}

/* ------------------------------------------------------------------------------------------- */

static void __attribute__((noreturn))
become_worker(const struct supervisor *s, unsigned index, unsigned incarnation, pid_t parent)
{
	int numbers[5] = {s->board_fd, s->tokens[0], s->tokens[1], (int)index, (int)incarnation};
	char texts[5][16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	for (int i = 0; i < 5; i++)
		snprintf(texts[i], sizeof(texts[i]), "%d", numbers[i]);
	for (int i = 0; i < 3; i++)
		fcntl(numbers[i], F_SETFD, 0);
	execl("/proc/self/exe", "share-checker", "--worker", texts[0], texts[1], texts[2], texts[3],
	      texts[4], (char *)NULL);
	perror("share-checker: /proc/self/exe");
	_exit(1);
}

static void start_worker(struct supervisor *s, unsigned index)
{
	struct process *p = &s->processes[index];
	pid_t self = getpid();

	p->pid = fork();
	if (p->pid < 0) {
		perror("share-checker: fork");
		exit(1);
	}
	if (p->pid == 0)
		become_worker(s, index, p->incarnation, self);
	p->killed = false;
	p->since_ms = now_ms();
	s->running++;
}

static int find_broker(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);
	struct supervisor *s = data;

	s->broker = (pid_t)json_integer_value(json_object_get(row, "pid"));
	s->keeper = (pid_t)json_integer_value(json_object_get(row, "keeper"));
	s->deputy = (pid_t)json_integer_value(json_object_get(row, "deputy"));
	json_decref(row);
	return 0;
}

static void choose_next_kill(struct supervisor *s)
{
	s->next_kill = atomic_load(&s->board->claimed) + 1 +
		       dice_roll(&s->dice, 2 * s->board->options.kill + 1);
}

static void choose_next_freeze(struct supervisor *s)
{
	s->next_freeze =
	    atomic_load(&s->board->claimed) + 1 + dice_roll(&s->dice, 2 * STEPS_TO_FREEZE + 1);
}

struct supervisor *supervisor_start(struct board *board, int board_fd, share_client *client)
{
	static struct supervisor s;

	s = (struct supervisor){.board = board, .board_fd = board_fd, .client = client};
	s.dice = dice_new(board->options.seed, WORKERS_MAX, 0);
	pipe_new(s.tokens);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (share_inspect(client, "status", find_broker, &s) != 0)
		exit(1);
	s.end_ms =
	    board->options.seconds ? now_ms() + board->options.seconds * INT64_C(1000) : INT64_MAX;
	choose_next_kill(&s);
	choose_next_freeze(&s);
	for (unsigned i = 0; i < board->options.processes; i++)
		start_worker(&s, i);
	return &s;
}

/* ------------------------------------------------------------------------------------------- */
/* Killing                                                                                     */

static int take_agent(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(row, "agent"));

	if (pid > 0)
		*(pid_t *)data = pid;
	json_decref(row);
	return 0;
}

/* 0: there is none. Whose child it is says nothing: it may be of a broker that was killed. */
static pid_t find_agent(const struct supervisor *s)
{
	pid_t found = 0;

	share_inspect(s->client, "agents", take_agent, &found);
	return found;
}

static void upgrade(struct supervisor *s)
{
	if (share_upgrade(s->client, NULL, NULL) != 0) {
		fprintf(stderr, "not upgraded: %s\n", share_error_detail());
		exit(1);
	}
	s->upgrades++;
}

/* One of those two, or both at once, and in any order, at times with a moment between them. A
 * broker that a sanitizer is in has a keeper without a deputy. */
static void kill_some(struct supervisor *s)
{
	bool keeper = s->deputy > 0 && dice_hit(&s->dice, 40);
	bool broker = !keeper || dice_hit(&s->dice, 50);
	bool first = dice_hit(&s->dice, 50);

	if (broker && first)
		s->broker_kills += kill(s->broker, SIGKILL) == 0;
	if (keeper && broker)
		usleep((useconds_t)dice_roll(&s->dice, 4) * (useconds_t)dice_roll(&s->dice, 1000));
	if (keeper)
		s->keeper_kills +=
		    kill(dice_hit(&s->dice, 20) ? s->deputy : s->keeper, SIGKILL) == 0;
	if (broker && !first)
		s->broker_kills += kill(s->broker, SIGKILL) == 0;
}

/* The next one answers, whoever asks. At times it is asked to hand over instead. */
static void kill_broker(struct supervisor *s)
{
	pid_t keeper = s->keeper, deputy = s->deputy;
	unsigned killed = s->keeper_kills;

	if (dice_hit(&s->dice, 25))
		upgrade(s);
	else
		kill_some(s);
	do {
		if (share_inspect(s->client, "status", find_broker, s) != 0) {
			fprintf(stderr, "no broker goes on: %s\n", share_error_detail());
			exit(1);
		}
	} while (s->keeper_kills != killed &&
		 (s->deputy == 0 || (s->keeper == keeper && s->deputy == deputy)));
}

static void kill_somebody(struct supervisor *s)
{
	struct process *p = &s->processes[dice_roll(&s->dice, s->board->options.processes)];
	bool agent = dice_hit(&s->dice, 15);
	/* a broker that is stopped does not say */
	pid_t pid = agent && s->thaw_ms == 0 ? find_agent(s) : 0;

	choose_next_kill(s);
	if (s->thaw_ms == 0 && dice_hit(&s->dice, s->board->options.kill_broker)) {
		kill_broker(s);
		return;
	}
	if (pid > 0 && kill(pid, SIGKILL) == 0)
		s->agent_kills++;
	if (agent || p->pid == 0 || p->killed || s->n_dead >= WORKERS_MAX)
		return;
	record_dying(s->board);
	kill(p->pid, SIGKILL);
	p->killed = true;
	s->kills++;
}

static bool is_over(const struct supervisor *s)
{
	uint64_t most = s->board->options.steps;

	return atomic_load(&s->board->stop) || (most && atomic_load(&s->board->claimed) >= most);
}

/* As it is on a machine that has too much to do. Whoever asks the broker waits. */
static void freeze_or_thaw(struct supervisor *s)
{
	int64_t now = now_ms();

	if (s->thaw_ms == 0 && !is_over(s) && atomic_load(&s->board->claimed) >= s->next_freeze) {
		kill(s->broker, SIGSTOP);
		s->thaw_ms = now + 1 + (int64_t)dice_roll(&s->dice, s->board->options.freeze_ms);
	} else if (s->thaw_ms != 0 && (now >= s->thaw_ms || is_over(s))) {
		kill(s->broker, SIGCONT);
		s->thaw_ms = 0;
		choose_next_freeze(s);
	}
}

static void kill_all(struct supervisor *s)
{
	for (unsigned i = 0; i < s->board->options.processes; i++) {
		struct process *p = &s->processes[i];

		if (p->pid == 0)
			continue;
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
		p->pid = 0;
	}
	s->running = 0;
}

/* ------------------------------------------------------------------------------------------- */
/* The watchdog                                                                                */

struct telling {
	unsigned rows;
};

static int tell_row(const char *json, void *data)
{
	struct telling *t = data;

	fprintf(stderr, "    %s\n", json);
	return ++t->rows >= ROWS_SHOWN;
}

void supervisor_tell(share_client *client)
{
	static const char *const what[] = {"status", "pools",    "clients",
					   "names",  "channels", "buffers"};

	alarm(20); /* it may be the broker that is stuck */
	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		struct telling t = {0};
		int r;

		fprintf(stderr, "  the broker's %s:\n", what[i]);
		r = share_inspect(client, what[i], tell_row, &t);
		if (r < 0)
			fprintf(stderr, "    %s\n", share_error_detail());
	}
	alarm(0);
}

static void tell_file(pid_t pid, const char *name)
{
	char path[64], text[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	file = fopen(path, "re");
	if (file && fgets(text, sizeof(text), file))
		fprintf(stderr, ", %s: %.*s", name, (int)strcspn(text, "\n"), text);
	if (file)
		fclose(file);
}

static void tell_stuck(struct supervisor *s)
{
	int64_t now = now_ms();

	fprintf(stderr, "STUCK: after %" PRIu64 " steps:\n", atomic_load(&s->board->claimed));
	for (unsigned i = 0; i < s->board->options.processes; i++) {
		const struct worker_state *state = &s->board->workers[i];
		const struct process *p = &s->processes[i];

		if (p->pid == 0)
			continue;
		fprintf(stderr, "  process %u (pid %d): %s, stream %d, for %" PRId64 " ms", i,
			(int)p->pid, action_text(atomic_load(&state->action)),
			atomic_load(&state->stream), now - p->since_ms);
		tell_file(p->pid, "wchan");
		tell_file(p->pid, "syscall");
		fputc('\n', stderr);
	}
	supervisor_tell(s->client);
}

static bool is_stuck(struct supervisor *s, unsigned index)
{
	uint64_t progress = atomic_load(&s->board->workers[index].progress);
	struct process *p = &s->processes[index];
	int64_t now = now_ms();

	if (p->pid == 0)
		return false;
	if (progress != p->progress) {
		p->progress = progress;
		p->since_ms = now;
	}
	return now - p->since_ms > s->board->options.stuck_seconds * INT64_C(1000);
}

/* ------------------------------------------------------------------------------------------- */

static void set_ending(struct supervisor *s, enum ending ending)
{
	if (s->ending == ENDING_WELL)
		s->ending = ending;
	atomic_store(&s->board->stop, true);
}

static bool is_worker(const struct supervisor *s, pid_t pid)
{
	for (unsigned i = 0; i < s->board->options.processes; i++)
		if (s->processes[i].pid == pid)
			return true;
	return false;
}

/* Brokers and keepers whose parent was killed. Whose they would be otherwise may not care for them.
 */
static void bury_orphans(const struct supervisor *s)
{
	siginfo_t ended = {.si_pid = 0};

	while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid > 0 &&
	       !is_worker(s, ended.si_pid)) {
		waitpid(ended.si_pid, NULL, 0);
		ended.si_pid = 0;
	}
}

/* Who did not say goodbye is dead, and the broker will find out. */
static void remember_dead(struct supervisor *s, unsigned index, pid_t pid, bool said_goodbye)
{
	if (!s->processes[index].killed && !said_goodbye)
		record_dying(s->board);
	for (unsigned i = 0; i < CHANNELS; i++)
		atomic_store(&s->board->workers[index].leaving[i], 0);
	if ((s->processes[index].killed || !said_goodbye) && s->n_dead < 2 * WORKERS_MAX)
		s->dead[s->n_dead++] = pid;
}

static void worker_ended(struct supervisor *s, unsigned index, int status)
{
	struct process *p = &s->processes[index];
	pid_t pid;
	bool well =
	    WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == EXIT_HUNG_UP);

	pid = p->pid;
	s->running--;
	p->pid = 0;
	if (atomic_exchange(&s->board->workers[index].kills_itself, false)) {
		if (p->killed)
			record_dead(s->board); /* both have said so */
		else
			s->kills++;
		p->killed = true;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		set_ending(s, ENDING_SKIPPED);
		return;
	}
	if (!well && !(p->killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
		fprintf(stderr, "FAILED: process %u, %s: %s %d\n", index,
			action_text(atomic_load(&s->board->workers[index].action)),
			WIFSIGNALED(status) ? "signal" : "exit code",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		set_ending(s, ENDING_WRONG);
		return;
	}
	remember_dead(s, index, pid, WIFEXITED(status) && WEXITSTATUS(status) == 0);
	p->incarnation++;
	if (!is_over(s))
		start_worker(s, index);
}

static void reap(struct supervisor *s)
{
	for (unsigned i = 0; i < s->board->options.processes; i++) {
		int status;

		if (s->processes[i].pid > 0 &&
		    waitpid(s->processes[i].pid, &status, WNOHANG) == s->processes[i].pid)
			worker_ended(s, i, status);
	}
	bury_orphans(s);
}

/* Those of which the broker knows nothing any more. */
static int keep_pid(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(row, "pid"));
	struct supervisor *s = data;

	for (unsigned i = 0; i < s->n_dead; i++)
		if (s->dead[i] == pid)
			s->dead[i] = -pid;
	json_decref(row);
	return 0;
}

static void settle_dead(struct supervisor *s)
{
	unsigned n = 0;

	if (s->n_dead == 0 || share_inspect(s->client, "clients", keep_pid, s) != 0)
		return;
	for (unsigned i = 0; i < s->n_dead; i++)
		if (s->dead[i] < 0)
			s->dead[n++] = -s->dead[i];
		else
			record_dead(s->board);
	s->n_dead = n;
}

/* Until all workers are gone. */
static void watch(struct supervisor *s)
{
	while (s->running > 0) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		reap(s);
		if (s->board->options.freeze_ms)
			freeze_or_thaw(s);
		if (s->thaw_ms == 0)
			settle_dead(s);
		if (now_ms() >= s->end_ms)
			atomic_store(&s->board->stop, true);
		if (s->board->options.kill && !is_over(s) &&
		    atomic_load(&s->board->claimed) >= s->next_kill)
			kill_somebody(s);
		for (unsigned i = 0; i < s->board->options.processes; i++) {
			if (!is_stuck(s, i))
				continue;
			if (s->thaw_ms != 0)
				kill(s->broker, SIGCONT);
			tell_stuck(s);
			set_ending(s, ENDING_STUCK);
			kill_all(s);
			break;
		}
	}
	if (s->thaw_ms != 0)
		kill(s->broker, SIGCONT);
	s->thaw_ms = 0;
}

enum ending supervisor_run(struct supervisor *s)
{
	watch(s);
	if (s->ending == ENDING_WELL && s->board->options.channels > 0 &&
	    atomic_load(&s->board->wrong) == 0) {
		atomic_store(&s->board->stop, true);
		atomic_store(&s->board->last, true);
		start_worker(s, 0);
		watch(s);
	}
	if (atomic_load(&s->board->wrong) > 0 && s->ending != ENDING_STUCK)
		s->ending = ENDING_WRONG;
	close(s->tokens[0]);
	close(s->tokens[1]);
	return s->ending;
}
