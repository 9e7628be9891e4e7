/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * What the exporter shows of a broker, as bytes that are ready to be sent. A thread of its own asks
 * the broker, so that whoever serves HTTP never waits for it.
 */

enum view { VIEW_METRICS, VIEW_STATE, VIEWS };

struct body {
	char *bytes; /* NULL: there is no memory */
	size_t size;
	bool up; /* the broker has told all of it */
};

struct viewer;

/* @address: of the broker, NULL: where programs find it. @ready: called from the thread whenever
 * view_take() has something. Returns NULL if there is no memory or no thread. */
struct viewer *viewer_new(const char *address, void (*ready)(void *data), void *data);

/* Asks for a view. It is made once however often it is asked for, until it is taken. */
void view_want(struct viewer *v, enum view view);
/* Returns whether a view was ready, and gives it to the caller then, who frees the bytes. */
bool view_take(struct viewer *v, enum view view, struct body *out);
/* Returns what a view looks like while the broker does not answer; the caller frees the bytes. */
struct body view_without_broker(enum view view, const char *why);

/* Returns false, and leaves all as it is, if the thread waits for the broker just now. */
bool viewer_free(struct viewer *v);
