/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * The real share-broker, one at a time: $SHARE_TEST_BIN/share-broker, with a socket that is
 * listening before it runs, a configuration and a directory of its own. It ends with the test
 * whatever becomes of that.
 */

/* One pool, "default", for everybody: host memory, segments of 1 MiB, none kept when empty. */
extern const char broker_default_config[];

/* @config: JSON text; NULL: the one above. */
void broker_start(const char *config);
/* The same of one that may not come to serve, or has clients at once: nobody connects to it, and at
 * its end its descriptors are not compared. */
void broker_begin(const char *config);

/*
 * Expects that nothing is left in the broker once all clients have gone (objects, descriptors),
 * ends it with SIGTERM, and expects exit code 0 and a clean log. Removes its directory. Only tidies
 * up when the test has failed already.
 */
void broker_stop(void);

/* Before the start: how many descriptors the broker may have, and another program than the usual
 * one: its path, or the name of one that lies beside the test's program. */
void broker_limit_descriptors(unsigned n);
void broker_use_program(const char *path);
/* That the kernel's limits are for it, too, though root has started it. */
void broker_without_privileges(void);
/* How long it waits for clients at its end; 0, if nothing is said. */
void broker_drain(const char *ms);
/* Its stderr, which broker_log() does not see then. */
void broker_log_to(int fd);

/* Its file is something else from now on; it is the broker that has to read it again. */
void broker_write_config(const char *config);
const char *broker_config(void); /* the path */

const char *broker_socket(void);
/* How many it has when there is one client, and nothing else. */
int broker_descriptors(void);
pid_t broker_pid(void); /* of the one that serves now */

/* SIGKILL for that one, and not for its keeper: it is dead, and there is the next one. */
void broker_kill_serving(void);
/* The same, and there is no broker until the keeper is let go on. */
void broker_kill_serving_for_now(void);
void broker_let_keeper_go_on(void);
/* SIGSTOP and SIGCONT for the keeper alone: its broker serves. */
void broker_freeze_keeper(void);
void broker_thaw_keeper(void);

/* SIGSTOP for the keeper alone, until its deputy has killed it for that and goes on. */
void broker_hang_keeper(void);

/* SIGKILL for the keeper alone, or with its broker: its deputy goes on. Not where a sanitizer
 * leaves it without one. */
void broker_kill_keeper(void);
void broker_kill_keeper_and_serving(void);

/* SIGKILL for the keeper and its deputy: the broker ends by itself. */
void broker_kill_keepers(void);
/* SIGKILL for all three, and waits for their end. Nothing is expected of them then. */
void broker_kill(void);
/* The same for others than these, without waiting. 0: there is none of that. */
void broker_kill_all(pid_t keeper, pid_t deputy, pid_t serving);
/* SIGSTOP and SIGCONT: a broker that answers nothing for a while. Stopped once it returns. */
void broker_freeze(void);
void broker_thaw(void);
/* What it has said on stderr so far. For free(). */
char *broker_log(void);
/* How many lines of that have @text in them. */
int broker_said(const char *text);
/* Waits for the end of the broker, whose exit code is returned; and closes the lifeline before. */
int broker_wait(void);
int broker_let_go(void);
