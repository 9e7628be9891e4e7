/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>
#include <share/share.h>

struct examination {
	const char *root;
	share_client *client; /* NULL: there is no broker */
	int error;            /* why there is none, */
	const char *detail;   /* in words */
	long long broker_pid; /* 0: not known */
	char driver[512];     /* what the driver of GPUs says of itself; empty: there is none */
	bool mps, mig, confidential; /* which of these is on */
	json_t *findings;
};

enum state { OK, NOTE, BAD };

/* Adds a finding. @costs and @cure are NULL where there is nothing to say. */
void found(struct examination *e, const char *subject, enum state state, const char *costs,
	   const char *cure, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Returns whether there is a file or folder. */
bool exists(const struct examination *e, const char *path);
/* Reads what a file begins with, without white space at its end. Returns false if it cannot be
 * read; @out is empty then. */
bool read_text(const struct examination *e, const char *path, char *out, size_t size);

/* Each looks at some subjects. */
void examine_old_memory(struct examination *e);
void examine_kernel(struct examination *e);
void examine_limits(struct examination *e);
void examine_memory(struct examination *e);
void examine_gpus(struct examination *e);
void examine_platform(struct examination *e); /* after examine_gpus() */
