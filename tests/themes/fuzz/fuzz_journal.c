/* SPDX-License-Identifier: MIT */

/*
 * A journal that was damaged. Three clients do to a broker what the input says (play.c), the broker
 * stops, its journal is damaged as the input says (damage.c), and the next broker is forked. It
 * says why it does not go on from that, or goes on: then it does what it was asked, its clients
 * die, and it has nothing left, as ever. What it never does is to crash, to take more memory
 * or time than it should, or to take a descriptor for its own twice.
 *
 * An input is that of play.c, then damages, and a byte that says how many these are.
 *
 * Each input has processes of its own, as who gives up half-way takes nothing apart: the clients
 * with the first broker, a keeper, and its next broker. So libFuzzer does not see what the
 * latter reaches: it is as good as chance, and best with seeds.
 */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
#include <sanitizer/lsan_interface.h>
#endif

#include "base/system/descriptor.h"
#include "broker/broker.h"
#include "broker/journal/inside.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/process/table.h"
#include "broker/life/inside.h"
#include "tests/themes/fuzz/damage.h"
#include "tests/themes/fuzz/fuzz.h"
#include "tests/themes/fuzz/play.h"
#include "wire/packet.h"

#define DAMAGES_MAX 16
#define SECONDS_MAX 30                 /* of the next broker: a thousand times what it takes */
#define MEMORY_MAX  (INT64_C(1) << 20) /* KiB, with what a sanitizer takes */
#define NEXT_BROKER 99                 /* said to the keeper: see enum kept_word */
#define TEXT_MAX    65536
#define HAS_REFUSED 3
#define HAS_GONE_ON 0

static struct kept_table *table;
static int journal_fd, output;

/* Not by exit(), by which a process of libFuzzer says that it has failed. */
static _Noreturn void end(int status)
{
#ifdef SANITIZED
	__lsan_do_recoverable_leak_check();
#endif
	_exit(status);
}

/* ------------------------------------------------------------------------------------------- */
/* The next broker                                                                             */

static int go_on(int socket)
{
	const struct keeper keeper = {
	    .table = table, .journal = journal_fd, .broker = socket, .generation = 2};

	dup2(output, STDERR_FILENO);
	alarm(SECONDS_MAX);
	kept_init(&keeper);
	/* one that has begun to go on and cannot ends the process: KEEPER_TRY_AGAIN */
	if (play_start(&keeper) < 0)
		return HAS_REFUSED;
	if (journal_is_old(broker->journal) && restore_requests(broker) < 0)
		_exit(KEEPER_TRY_AGAIN);
	for (int i = 0; i < 5; i++)
		play_run();
	play_end();
	for (uint32_t i = KEPT_FIXED; i < table->n; i++)
		expect(table->slots[i].fd < 0);
	return HAS_GONE_ON;
}

/* ------------------------------------------------------------------------------------------- */
/* Their keeper                                                                                */

/* False: there is no broker any more, or the next one is to come. */
static bool serve(int socket)
{
	struct kept_message m;
	size_t size = sizeof(m);
	struct fd_list fds;
	uint32_t error = 0;

	if (packet_receive(socket, &m, &size, &fds, true) < 0)
		return false;
	expect(size == sizeof(m) && m.n <= KEPT_AT_ONCE);
	if (m.word == NEXT_BROKER)
		return false;
	if (m.word == KEPT_KEEP)
		error = (uint32_t)-table_keep(table, &m, &fds);
	else if (m.word == KEPT_DROP)
		table_drop(table, &m);
	fd_list_close(&fds);
	m.word = error;
	return packet_send(socket, &m, sizeof(m), NULL, 0, true) == 0;
}

/* How it has ended. The fuzzer looks every few seconds how long it takes, by a signal. */
static int status_of(pid_t pid)
{
	int status;
	pid_t ended;

	do
		ended = waitpid(pid, &status, 0);
	while (ended < 0 && errno == EINTR);
	expect(ended == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Returns how the next broker has ended. */
static int be_keeper(int socket)
{
	struct rusage usage;
	int ends[2], status;
	pid_t pid;

	while (serve(socket))
		;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	pid = fork();
	expect(pid >= 0);
	if (pid == 0) {
		close(ends[0]);
		end(go_on(ends[1]));
	}
	close(ends[1]);
	while (serve(ends[0]))
		;
	expect(wait4(pid, &status, 0, &usage) == pid);
	expect(usage.ru_maxrss < MEMORY_MAX);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ------------------------------------------------------------------------------------------- */
/* The clients and their first broker                                                          */

/* Returns how the next one has ended. */
static int play_and_damage(const uint8_t *data, size_t size)
{
	const struct kept_message next = {.word = NEXT_BROKER};
	size_t n = size > 0 ? data[size - 1] % DAMAGES_MAX : 0;
	struct keeper keeper = {.table = table, .journal = journal_fd, .generation = 1};
	struct input in = {data, data + size - (size > 0)};
	int ends[2];
	pid_t pid;

	if (n > input_left(&in) / DAMAGE_SIZE)
		n = input_left(&in) / DAMAGE_SIZE;
	in.end -= n * DAMAGE_SIZE;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	pid = fork();
	expect(pid >= 0);
	if (pid == 0) {
		close(ends[1]);
		end(be_keeper(ends[0]));
	}
	close(ends[0]);
	keeper.broker = ends[1];
	kept_init(&keeper);
	expect(play_start(&keeper) == 0);
	play(&in);
	broker_commit(broker);
	for (size_t i = 0; i < n; i++)
		if (!damage(broker->journal, journal_fd, in.end + i * DAMAGE_SIZE))
			break;
	expect(packet_send(ends[1], &next, sizeof(next), NULL, 0, true) == 0);
	return status_of(pid);
}

/* ------------------------------------------------------------------------------------------- */

static void fail(const char *text, int status)
{
	fprintf(stderr, "%s\nfuzz_journal.c: BUG: the next broker ended with %d\n", text, status);
	abort();
}

/* What it has said: nothing that a sanitizer says, and if it did not go on, why. */
static void look_at(int status, bool was_damaged)
{
	static char text[TEXT_MAX];
	ssize_t size = pread(output, text, sizeof(text) - 1, 0);

	text[size > 0 ? size : 0] = '\0';
	if (strstr(text, "Sanitizer") || strstr(text, "runtime error") || strstr(text, "BUG"))
		fail(text, status);
	if (status != HAS_GONE_ON &&
	    (!was_damaged || (status != KEEPER_TRY_AGAIN && status != HAS_REFUSED) ||
	     !strstr(text, "journal")))
		fail(text, status);
}

/* What a keeper had that has ended. */
static void forget_all(void)
{
	for (uint32_t i = 0; i < table->n; i++) {
		table->slots[i].fd = -1;
		table->slots[i].address = NULL;
	}
	table->n = KEPT_FIXED;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	play_init();
	table = table_new();
	expect(table);
	output = memfd_create("output", MFD_CLOEXEC);
	expect(output >= 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pid_t pid;

	journal_fd = memfd_create("journal", MFD_CLOEXEC);
	forget_all();
	expect(journal_fd >= 0 && ftruncate(output, 0) == 0 && lseek(output, 0, SEEK_SET) == 0);
	pid = fork();
	expect(pid >= 0);
	if (pid == 0)
		_exit(play_and_damage(data, size));
	look_at(status_of(pid), size > 0 && data[size - 1] % DAMAGES_MAX > 0);
	close(journal_fd);
	return 0;
}
