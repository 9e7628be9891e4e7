/* SPDX-License-Identifier: MIT */
#ifndef PYTHON_BY_ADDRESS_H
#define PYTHON_BY_ADDRESS_H

#include <stdbool.h>

#include <share/share.h>

/*
 * What frameworks have of our memory, to be found again by its address: a tensor of a framework
 * does not say which buffer it lies in. Whoever lends memory out keeps an entry as long as it is
 * lent. All of it runs in any thread, with or without the GIL.
 */
struct by_address {
	struct by_address *next, **back;
	share_client *client;
	share_buffer *b;
	void *stream,
	    *owner; /* a PyObject that the stream ends with, or NULL; this has a reference */
	bool on_gpu;
};

void by_address_add(struct by_address *l);
void by_address_remove(struct by_address *l);
/* Into @out, with a reference of its own to its buffer, what holds the byte at @address. The owner
 * of its stream is borrowed: it stays as long as the caller has the GIL, as it takes that to let
 * go. */
bool by_address_find(const void *address, struct by_address *out);

#endif
