/* SPDX-License-Identifier: MIT */

/* The broker's side of what the keeper keeps. A process has one keeper at most, so what is known of
 * it belongs to the process, and not to a struct broker. */

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "base/system/mapping.h"
#include "broker/keeper/common.h"
#include "broker/keeper/inside.h"
#include "broker/keeper/silence.h"
#include "broker/log/log.h"
#include "wire/packet.h"

#define TRIES 200 /* ms */
/* how long a broker waits for an answer between two beats */
#define SLICE_MS 50

static struct {
	struct kept_table *table;
	struct kept_health *health;
	int socket, journal;
	uint64_t serial; /* the serial of the last message */
	uint64_t late;   /* the serial that was not answered in time; 0: there is none */
	uint32_t late_word;
	bool rehearses;
	uint32_t *ids; /* numbers in the table, by descriptor */
	int n_ids;
	bool *taken; /* whether it was taken, by number in the table */
} mine = {.socket = -1};

/* Makes a mapping private, so that what a rehearsal writes to pages of clients and channels is
 * written to copies. */
static void map_privately(struct kept_slot *k)
{
	void *p = mapping_make(k->address, k->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
			       atomic_load(&k->fd));

	if (!p) {
		log_error("what is kept cannot be mapped: %s", strerror(errno));
		_exit(EXIT_FAILURE);
	}
}

void kept_init(const struct keeper *k)
{
	static struct kept_health nobodys;

	mine.table = k->table;
	mine.health = k->health ? k->health : &nobodys;
	mine.socket = k->broker;
	mine.journal = k->journal;
	mine.serial = k->serial;
	mine.rehearses = k->rehearses;
	beat_at(mine.rehearses ? &mine.health->beat_of_rehearsal : &mine.health->beat);
	if (!mine.rehearses)
		blame_at(&mine.health->blames);
	crash_report_to(mine.rehearses ? &mine.health->crash_of_rehearsal : &mine.health->crash);
	mine.taken = calloc(k->table->room, sizeof(*mine.taken));
	for (uint32_t i = 0; k->rehearses && i < atomic_load(&k->table->n); i++)
		if (atomic_load(&k->table->slots[i].fd) >= 0 && k->table->slots[i].address)
			map_privately(&k->table->slots[i]);
}

/* Whether an error goes away by itself, as there may be memory again later, or fewer descriptors
 * under way. */
static bool passes(int error)
{
	return error == -EAGAIN || error == -ENOMEM || error == -ENOBUFS || error == -ETOOMANYREFS;
}

static void __attribute__((noreturn)) end_with_keeper(int error)
{
	/* A broker that nobody keeps any more ends, as nobody else could tell it from one that goes
	 * on. */
	log_error(
	    "keeper and deputy have died (%s): this broker ends, and all its clients are "
	    "disconnected",
	    strerror(-error));
	_exit(EXIT_FAILURE);
}

/* Tells the keeper something. If that has not worked after TRIES, it is an error and was not
 * said. */
static int say(const struct kept_message *m, const int *fds, size_t n_fds)
{
	int r, tries = 0;

	while (passes(r = packet_send(mine.socket, m, sizeof(*m), fds, n_fds, true)) &&
	       tries++ < TRIES)
		usleep(1000);
	if (r < 0 && !passes(r))
		end_with_keeper(r);
	if (r < 0)
		log_error("the keeper cannot be told what to keep: %s", strerror(-r));
	return r;
}

/* Reads a message of the keeper's, if there is one; false: there is none yet. If it has another
 * size, it is taken for one with serial 0. */
static bool hear(struct kept_message *m)
{
	struct fd_list none;
	size_t size = sizeof(*m);
	int r = packet_receive(mine.socket, m, &size, &none, false);

	if (r < 0 && !passes(r))
		end_with_keeper(r);
	if (r == 0 && size != sizeof(*m))
		m->serial = 0;
	return r == 0;
}

/* Returns until when to wait for an answer, which is long after a keeper that stands still would
 * have been followed by its deputy. So if there is no answer by then, there is no deputy, or it
 * stands still as well. */
static int64_t patience(uint32_t word)
{
	unsigned hang_ms = atomic_load(&mine.health->hang_ms), ms;

	ms = 3 * (hang_ms ? hang_ms : KEPT_HANG_MS);
	if (word == KEPT_REHEARSE)
		ms += rehearsal_most(mine.health, mine.journal).ms;
	return deadline_from((int)ms);
}

/* Waits for a message until @deadline, with beats meanwhile, as a broker that waits for its keeper
 * does not hang. */
static bool hear_until(struct kept_message *m, int64_t deadline)
{
	struct pollfd said = {mine.socket, POLLIN, 0};
	int left;

	while (!hear(m)) {
		left = deadline_left(deadline);
		if (left == 0)
			return false;
		beat();
		poll(&said, 1, left < SLICE_MS ? left : SLICE_MS);
	}
	return true;
}

/* Undoes what was answered too late, as whoever wanted it has gone on without. */
static void take_late(const struct kept_message *answer)
{
	uint32_t word = mine.late_word;

	mine.late = 0;
	log_info("the keeper answers again");
	if (answer->word != 0)
		return;
	if (word == KEPT_KEEP && answer->n > 0 && answer->ids[0] > KEPT_FIXED)
		kept_drop(answer->ids, answer->n);
	/* this broker still serves: it has not ended */
	if (word == KEPT_HAND_OVER)
		kept_serves();
}

/* Asks for the answer that is late, after a deputy has gone on. If what was asked has died with the
 * keeper, this is answered in its place. If not, the deputy takes this for the same message, asked
 * twice, and gives the same answer. */
static void ask_for_answer(void)
{
	struct kept_message m = {.serial = mine.late, .word = KEPT_DROP};

	if (!MUTATION(late_is_forgotten))
		say(&m, NULL, 0);
	else
		take_late(&m);
}

/* While nothing is asked, nothing that is read is an answer that somebody waits for, but for one
 * that is late. */
void kept_hear(void)
{
	struct kept_message m;

	while (hear(&m)) {
		if (mine.late && m.serial == mine.late)
			take_late(&m);
		else if (mine.late && m.serial == 0)
			ask_for_answer();
	}
}

static int give_up_waiting(const struct kept_message *m)
{
	log_error(
	    "the keeper does not answer, and is not followed by its deputy: what has to be "
	    "kept for the next broker cannot be had until it does");
	mine.late = m->serial;
	mine.late_word = m->word;
	return -ETIMEDOUT;
}

/* Asks the keeper, and waits for its answer. The keeper answers everything, and waits for nobody.
 * If it has died meanwhile, its deputy is asked again, by the same serial. A keeper that has not
 * answered in time is asked nothing more until it has. */
static int ask(struct kept_message *m, const int *fds, size_t n_fds)
{
	struct kept_message answer;
	int64_t deadline;
	int r;

	if (mine.rehearses)
		return 0;
	if (mine.late)
		kept_hear();
	if (mine.late)
		return -ETIMEDOUT;
	m->serial = ++mine.serial;
	deadline = patience(m->word);
	r = say(m, fds, n_fds);
	while (r == 0) {
		if (!hear_until(&answer, deadline))
			return give_up_waiting(m);
		if (answer.serial == m->serial) {
			*m = answer;
			return -(int)m->word;
		}
		if (answer.serial == 0)
			r = say(m, fds, n_fds);
	}
	return r;
}

int kept_socket(void)
{
	return mine.table && !mine.rehearses ? mine.socket : -1;
}

void kept_history(struct kept_history *out)
{
	const struct kept_table *t = mine.table;

	*out = (struct kept_history){.keeper = 0};
	if (t)
		*out = (struct kept_history){
		    .keeper = atomic_load(&t->keeper),
		    .deputy = atomic_load(&t->deputy),
		    .brokers_died = atomic_load(&t->brokers_died),
		    .brokers_upgraded = atomic_load(&t->brokers_upgraded),
		    .keepers_died = atomic_load(&t->keepers_died),
		};
}

void kept_hang_after(unsigned ms)
{
	if (mine.health && !mine.rehearses)
		atomic_store(&mine.health->hang_ms, ms);
}

unsigned kept_look_ms(void)
{
	return silence_look_ms(mine.health ? atomic_load(&mine.health->hang_ms) : 0);
}

void kept_told_to_end(int signal)
{
	if (mine.health && !mine.rehearses)
		atomic_store(&mine.health->told_to_end, signal);
}

void kept_end(int code)
{
	if (!mine.rehearses)
		atomic_store(&mine.table->ended, code);
	_exit(code);
}

void kept_serves(void)
{
	struct kept_message m = {.word = KEPT_SERVES};

	if (mine.table)
		ask(&m, NULL, 0);
}

/* What a rehearsal says is a line of a log, without a time; the beginning of that line is left out
 * of the reason. */
int kept_rehearse(char why[static KEPT_TEXT])
{
	static const char said[] = "share-broker: error: ";
	struct kept_message m = {.word = KEPT_REHEARSE};
	struct rehearsal_time most;
	int r = -ENOTSUP;

	if (mine.table) {
		most = rehearsal_most(mine.health, mine.journal);
		log_info(
		    "the program on the disk rehearses, for %u ms at most, as there are %u "
		    "MiB of journal to take over: requests wait meanwhile",
		    most.ms, most.mib);
		r = ask(&m, NULL, 0);
	}
	m.text[KEPT_TEXT - 1] = '\0';
	snprintf(why, KEPT_TEXT, "%s",
		 strncmp(m.text, said, strlen(said)) ? m.text : m.text + strlen(said));
	return r;
}

int kept_hand_over(const char *version)
{
	struct kept_message m = {.word = KEPT_HAND_OVER};
	int r;

	snprintf(m.text, sizeof(m.text), "%s", version);
	r = ask(&m, NULL, 0);
	if (r < 0)
		return r;
	kept_end(EXIT_SUCCESS);
}

int kept_set_id(int fd, uint32_t id)
{
	if (fd >= mine.n_ids) {
		int n = mine.n_ids ? mine.n_ids : 1024;
		uint32_t *ids;

		while (n <= fd)
			n *= 2;
		ids = realloc(mine.ids, (size_t)n * sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		memset(ids + mine.n_ids, 0, (size_t)(n - mine.n_ids) * sizeof(*ids));
		mine.ids = ids;
		mine.n_ids = n;
	}
	mine.ids[fd] = id;
	return 0;
}

uint32_t kept_id(int fd)
{
	return fd >= 0 && fd < mine.n_ids ? mine.ids[fd] : 0;
}

bool kept_drop(const uint32_t *ids, size_t n)
{
	struct kept_message m = {.word = KEPT_DROP, .n = (uint32_t)n};

	if (n == 0)
		return true;
	memcpy(m.ids, ids, n * sizeof(*ids));
	return ask(&m, NULL, 0) == 0;
}

int kept_keep(const int *fds, const size_t *sizes, size_t n)
{
	struct kept_message m = {.word = KEPT_KEEP, .n = (uint32_t)n};
	int r = 0;

	if (!mine.table)
		return 0;
	assert(n <= KEPT_AT_ONCE);
	for (size_t i = 0; sizes && i < n; i++)
		m.sizes[i] = sizes[i];
	for (size_t i = 0; r == 0 && i < n; i++)
		r = kept_set_id(fds[i], 0);
	if (r == 0)
		r = ask(&m, fds, n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		kept_set_id(fds[i], m.ids[i]);
		/* In the table is the keeper's number of the descriptor, which is not this
		 * process's. So it counts as taken: nobody here may take it or close it. A
		 * rehearsal, which asks nobody, is told no id. */
		if (mine.taken && m.ids[i] > 0)
			mine.taken[m.ids[i] - 1] = true;
	}
	if (r < 0)
		log_error("the keeper does not take what the next broker needs: %s", strerror(-r));
	return r;
}

int kept_keep_fixed(const int fds[static KEPT_FIXED])
{
	struct kept_message m = {.word = KEPT_KEEP};
	int some[KEPT_FIXED], r;

	for (uint32_t id = 1; id <= KEPT_FIXED; id++) {
		if (fds[id - 1] < 0)
			continue;
		some[m.n] = fds[id - 1];
		m.ids[m.n++] = id;
	}
	if (!mine.table)
		return 0;
	/* the others get no id here, so the keeper has them still when they are closed here */
	r = fds[0] < 0 ? 0 : kept_set_id(fds[0], KEPT_LISTENER);
	return r < 0 ? r : ask(&m, some, m.n);
}

int kept_take(uint32_t id)
{
	int fd = kept_look(id);

	if (fd < 0 || !mine.taken || (mine.taken[id - 1] && !MUTATION(kept_taken_twice)) ||
	    kept_set_id(fd, id) < 0)
		return -1;
	mine.taken[id - 1] = true;
	return fd;
}

int kept_take_mapped(uint32_t id, size_t size, void **address)
{
	const struct kept_slot *k = kept_look(id) < 0 ? NULL : &mine.table->slots[id - 1];

	*address = NULL;
	if (!k || !k->address || (k->size != size && !MUTATION(kept_size_not_compared)))
		return -1;
	*address = k->address;
	return kept_take(id);
}

int kept_look(uint32_t id)
{
	return mine.table && id > 0 && id <= atomic_load(&mine.table->n)
		   ? atomic_load(&mine.table->slots[id - 1].fd)
		   : -1;
}

/* Has the keeper let go first: whoever closes something last may take long for that, and the
 * keeper, which is there for all, is not to be the one. */
static void drop_and_close(const uint32_t *ids, const int *fds, size_t n)
{
	kept_drop(ids, n);
	for (size_t i = 0; i < n; i++)
		fd_close(fds[i]);
}

void kept_sweep(void)
{
	uint32_t ids[KEPT_AT_ONCE] = {0}, n = mine.table ? atomic_load(&mine.table->n) : 0;
	int fds[KEPT_AT_ONCE] = {0};
	size_t found = 0;

	for (uint32_t i = KEPT_FIXED; mine.taken && i < n; i++) {
		int fd = atomic_load(&mine.table->slots[i].fd);

		if (fd < 0 || mine.taken[i])
			continue;
		if (mine.table->slots[i].address)
			munmap(mine.table->slots[i].address, mine.table->slots[i].size);
		fds[found] = fd;
		ids[found++] = i + 1;
		if (found == KEPT_AT_ONCE) {
			drop_and_close(ids, fds, found);
			found = 0;
		}
	}
	drop_and_close(ids, fds, found);
}
