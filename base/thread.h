/* SPDX-License-Identifier: MIT */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Both start a thread with all signals blocked: signals are for the threads of the program, or for
 * the loop of the broker. 0 or negative errno. */
int thread_start(pthread_t *out, void *(*function)(void *data), void *data);
/* The same for one that nobody joins. */
int thread_start_detached(void *(*function)(void *data), void *data);

#endif
