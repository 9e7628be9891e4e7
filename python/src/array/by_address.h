/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/share.h>

/*
 * Finds memory that was lent to a framework by its address, since a tensor of a framework does not
 * say which buffer it lies in. Code that lends memory keeps an entry in the list for as long. All
 * functions can be called in any thread, with or without the GIL.
 */
struct by_address {
	struct by_address *next, **back;
	share_client *client;
	share_buffer *b;
	/* The owner is the PyObject that keeps the stream alive, or NULL; the entry has a
	 * reference. */
	void *stream, *owner;
	bool on_gpu;
	struct source *source; /* of adopted memory; see core.h */
};

void by_address_add(struct by_address *l);
/* The buffer of an entry, or NULL while it has none: then nothing is found by it. Somebody has a
 * reference to the buffer until this has returned from taking it away. */
void by_address_set(struct by_address *l, share_buffer *b);
void by_address_remove(struct by_address *l);
/* Finds the entry whose buffer has the byte at @address, and copies it into @out, with a reference
 * of its own to the buffer. Returns false if there is none. The owner of the stream is borrowed: it
 * lives at least as long as the caller holds the GIL, because dropping it needs the GIL. */
bool by_address_find(const void *address, struct by_address *out);
