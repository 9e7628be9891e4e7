/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/system/descriptor.h"
#include "memory/kind.h"
#include "wire/wire.h"

/* A share-agent of our own, with this process in the broker's place. Whatever goes wrong fails the
 * test. */
struct agent_process {
	pid_t pid;
	int socket;
	int log; /* what it wrote to stderr */
	uint32_t serial;
	char packet[WIRE_PACKET_MAX]; /* what the last answer's bytes lie in */
};

/* With the environment as it is. @device NULL: a scout. */
void agent_start(struct agent_process *p, const char *device);
/* Closes the socket and waits. The exit code, or 1000 + the signal that killed it. */
int agent_end(struct agent_process *p);
/* Waits only. */
int agent_wait(struct agent_process *p);
/* For the end of a test: it must end with 0 and have logged nothing. Criterion forgives what fails
 * in a .fini, so there the test process ends badly. One that has ended already is fine. */
void agent_end_well(struct agent_process *p);
/* All of it, so far; static storage. */
const char *agent_log_text(struct agent_process *p);

void agent_send(struct agent_process *p, struct wire_message *m);
/* false: it is gone instead. @fd NULL: none may come. */
bool agent_receive(struct agent_process *p, struct wire_message *out, int *fd);

/* The answer must be this one. */
void agent_ask(struct agent_process *p, struct wire_message *m, enum wire_type expected,
	       struct wire_message *out, int *fd);
/* The answer must be this error, with all the words in the text. */
void agent_ask_failing(struct agent_process *p, struct wire_message *m, int error, bool fatal,
		       const char *words, const char *more_words);

/* What the tests ask most. */
struct agent_segment {
	uint64_t handle;
	int fd;
	struct memory_recipe recipe;
};
void agent_make_segment(struct agent_process *p, enum memory_kind_id kind, uint64_t size,
			struct agent_segment *out);
void agent_drop_segment(struct agent_process *p, struct agent_segment *s);
/* Whether its device says that it can make memory of that kind. */
bool agent_can_make(struct agent_process *p, enum memory_kind_id kind);
/* The device's UUID as text, by a scout; NULL: there are fewer. The caller's. */
char *agent_device_uuid(unsigned index);
