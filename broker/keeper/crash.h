/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What a broker that crashes says about it. It leaves no core, as that would have everybody's
 * memory in it (broker/life/confine.c). So it writes where it was into memory that it shares with
 * its keeper, and the keeper, which is well, logs that.
 */

#define CRASH_FRAMES 20
#define CRASH_OBJECT 32

struct crash {
	atomic_int signal; /* 0: it has not crashed */
	uint64_t address;  /* the address that it could not use; 0: it is not known */
	uint32_t n;        /* the number of frames, of which the innermost one comes first */
	struct crash_frame {
		uint64_t offset;           /* the place in the file, as addr2line(1) takes it */
		char object[CRASH_OBJECT]; /* the file's name; empty: the offset is an address */
	} frames[CRASH_FRAMES];
};

/* Has this process write to @out where it was, before it dies of a signal that says that it has
 * crashed. With a sanitizer this does nothing, as the sanitizer reports crashes itself. */
void crash_report_to(struct crash *out);
/* Logs the crash, if there was one. @who names the process: "broker". What is in @c is not trusted,
 * as a process wrote it that was not well. */
void crash_log(const struct crash *c, const char *who, pid_t pid);
