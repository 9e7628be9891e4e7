/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/packet.h"
#include "wire/wire.h"

struct broker;

/*
 * The broker's side of a share-agent, the process that talks to the driver of one device. It is
 * started when it is first asked something. When it dies, says nonsense or misses a deadline, it is
 * killed, and another one is started for what else is asked, later and later while that goes on. If
 * a process ended with a request, the next one gets that request, once. Whoever is owed an answer
 * after that, or by a process that was too slow, is told so.
 */
struct agent;

/*
 * What came of a request: an answer of the expected type, or NULL with an error and a sentence.
 * Descriptors that are not taken are closed. It is called from the loop, never from agent_ask(). An
 * agent without a device answers one request many times: the last answer is AGENT_DONE, or an
 * error.
 */
typedef void agent_answer(void *data, const struct wire_message *m, struct fd_list *fds, int error,
			  const char *text);

/* Makes an agent, which has no process yet. @device is a UUID as text; NULL: it has none, and only
 * tells which there are. 0 or -ENOMEM. */
int agent_new(struct broker *b, const char *device, struct agent **out);

/* Ends the process and frees the agent. Everything asked is answered with SHARE_ECANCELED. @a may
 * be NULL. */
void agent_free(struct agent *a);

/* Asks the agent; requests are answered in order. A descriptor (-1: none) stays the caller's; it
 * and what variable fields point to have to last until the answer. 0 or -ENOMEM. The broker's time
 * limit for agents is for getting to the process, and once more for its answer. */
int agent_ask(struct agent *a, const struct wire_message *m, int fd, agent_answer *answer,
	      void *data);
/* Asks it to destroy something, which the log says of @what if it fails ("a segment"). */
void agent_ask_to_destroy(struct agent *a, const struct wire_message *m, const char *what);

/* Has the loop look whether it is time for something. */
void agent_look(struct agent *a);

/* Returns which process this is, as what one made is unknown to the next. */
uint32_t agent_incarnation(const struct agent *a);

/* Ends the process though nothing is wrong with it; the next request starts another one. @why is
 * for the log; NULL: it is not worth a line. */
void agent_replace(struct agent *a, const char *why);

/* Treats the process like one that says nonsense, as what it has answered cannot be. */
void agent_distrust(struct agent *a, const char *why);

pid_t agent_pid(const struct agent *a); /* 0: none is running */
/* Returns the last process that was told to end: an error may be its answer, and it may not have
 * ended yet. 0: there was none. */
pid_t agent_pid_before(const struct agent *a);
unsigned agent_failures(const struct agent *a);

/* Notes in the journal what it is now. */
void agent_note(struct agent *a);
/* Restores the agents in a broker that comes after another one, once there are its devices. They
 * are those that ran, and what they have made remains. 0 or negative errno. */
int agents_restore(struct broker *b);

/* Tells the agent all objects that there are of one kind; one that was taken over destroys others
 * that it has. It has to be told before it is asked to make any. 0 or -ENOMEM. */
int agent_tell_known(struct agent *a, enum wire_known what, const uint64_t *handles, size_t n);
