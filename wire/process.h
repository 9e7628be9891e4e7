/* SPDX-License-Identifier: MIT */
#ifndef WIRE_PROCESS_H
#define WIRE_PROCESS_H

/*
 * Whether what a GPU wrote for another process can be believed. A process that is killed begins to
 * exit, then the driver takes its GPU work down, in which a value may still be written though the
 * work before it never finished (measured: the pidfd becomes readable some 50 ms after the kill).
 * So: look at the value first, then ask whether its owner has begun to exit.
 */
enum process_state {
	PROCESS_RUNS,
	PROCESS_EXITS,   /* or has */
	PROCESS_UNKNOWN, /* /proc is not there, or hides it */
};

/* @stat keeps a descriptor between calls: -1 at first, the caller's to close. */
enum process_state process_state(int pidfd, int *stat);

#endif
