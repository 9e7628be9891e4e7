/* SPDX-License-Identifier: MIT */

/* What every benchmark does: it ends when a call fails, and looks at what a process or the broker
 * says of itself. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <share/admin.h>
#include <share/share.h>

#include "bench/bench.h"

void must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "share-bench: %s: %s (%s)\n", what, share_strerror(r),
		share_error_detail());
	exit(1);
}

void must_system(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "share-bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

struct lookup {
	const char *key;
	int64_t value;
};

static int find_number(const char *json, void *data)
{
	struct lookup *l = data;
	json_t *object = json_loads(json, 0, NULL), *value = json_object_get(object, l->key);

	if (json_is_integer(value))
		l->value = json_integer_value(value);
	json_decref(object);
	return 0;
}

double resident(pid_t pid)
{
	char path[64], line[256];
	double kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	f = fopen(path, "r");
	must_system(f, path);
	while (kib < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %lf", &kib) != 1)
			kib = -1;
	fclose(f);
	must_system(kib >= 0, "read smaps_rollup");
	return kib * 1024;
}

int64_t broker_number(share_client *c, const char *key)
{
	struct lookup l = {key, -1};

	must(share_inspect(c, "status", find_number, &l), "share_inspect");
	if (l.value < 0) {
		fprintf(stderr, "share-bench: the broker's status has no \"%s\"\n", key);
		exit(1);
	}
	return l.value;
}
