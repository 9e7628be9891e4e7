/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>

/* Both start a thread in which all signals are blocked: signals are for the threads of the program,
 * or for the broker's loop. They return 0 or a negative errno. */
int thread_start(pthread_t *out, void *(*function)(void *data), void *data);
/* The same for a thread that nobody joins. */
int thread_start_detached(void *(*function)(void *data), void *data);
