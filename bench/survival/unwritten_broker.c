/* SPDX-License-Identifier: MIT */

/*
 * A broker whose journal has ended before it serves anybody: what share-bench's "survival" compares
 * the broker with. It is linked from all that share-broker is (see CMakeLists.txt), and these are
 * the journal's own functions (broker/journal/journal.h).
 */

#include <errno.h>
#include <stddef.h>

struct broker;
struct journal;

static struct journal *journal;

int __real_journal_new(int fd, struct journal **out, char *why, size_t why_size);
int __wrap_journal_new(int fd, struct journal **out, char *why, size_t why_size);
int __wrap_journal_new(int fd, struct journal **out, char *why, size_t why_size)
{
	int r = __real_journal_new(fd, out, why, why_size);

	journal = r == 0 ? *out : NULL;
	return r;
}

void journal_end(struct journal *j, int error);
int __real_broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms);
int __wrap_broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms);
int __wrap_broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms)
{
	journal_end(journal, ECANCELED);
	return __real_broker_run(b, listen_fd, lifeline_fd, drain_ms);
}
