/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_CRASH_H
#define BROKER_KEEPER_CRASH_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What a broker that crashes says about it. It leaves no core, as everybody's memory would be in
 * that (broker/life/confine.c). So it writes where it was into memory that it shares with its
 * keeper, and the keeper, which is well, logs it.
 */

#define CRASH_FRAMES 20
#define CRASH_OBJECT 32

struct crash {
	atomic_int signal; /* 0: it has not crashed */
	uint64_t address;  /* that it could not use; 0: it is not known */
	uint32_t n;        /* frames, the innermost one first */
	struct crash_frame {
		uint64_t offset;           /* in the file, as addr2line(1) takes it */
		char object[CRASH_OBJECT]; /* the file's name; empty: the offset is an address */
	} frames[CRASH_FRAMES];
};

/* From now on this process does so, in @out, before it dies of a signal that says that it has
 * crashed. Not where a sanitizer does it. */
void crash_report_to(struct crash *out);
/* Logs it, if there is something. @who: "broker". What is there is not trusted. */
void crash_log(const struct crash *c, const char *who, pid_t pid);

#endif
