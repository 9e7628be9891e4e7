/* SPDX-License-Identifier: MIT */

/*
 * How to reach published buffers without libshare. Each name is looked up to read, as a consumer
 * does it, and released again: only who holds a buffer is told its recipe. So its memory is mapped
 * here for a moment, which takes CUDA where it is that of a GPU.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "tools/sharectl/recipe.h"
#include "tools/value.h"

struct pool_wanted {
	uint64_t buffer;
	json_t *name; /* of its pool; NULL: not known */
};

/* Names are told in byte order, so the name itself is the first of those that start with it. When
 * it leads to another buffer by now, or to none, the pool is not known. */
static int take_pool(const share_name_info *info, void *data)
{
	struct pool_wanted *wanted = data;

	if (info->buffer == wanted->buffer)
		wanted->name = json_string(info->pool);
	return 1;
}

/* The 64 bytes as hexadecimal digits; NULL when they are zeros, as the memory has a descriptor
 * only. */
static json_t *handle_of(const share_recipe *recipe)
{
	static const unsigned char none[sizeof(recipe->pointer)];
	char text[2 * sizeof(recipe->pointer) + 1];

	if (memcmp(recipe->pointer, none, sizeof(none)) == 0)
		return NULL;
	for (size_t i = 0; i < sizeof(recipe->pointer); i++)
		snprintf(text + 2 * i, 3, "%02x", recipe->pointer[i]);
	return json_string(text);
}

static json_t *row_of(const char *name, const share_buffer *b, const share_recipe *recipe,
		      json_t *pool)
{
	return json_pack("{s:s, s:o?, s:s, s:s?, s:o?, s:I, s:I, s:I}", "name", name, "pool", pool,
			 "kind", recipe->kind, "device", recipe->device[0] ? recipe->device : NULL,
			 "handle", handle_of(recipe), "offset", (json_int_t)recipe->offset, "size",
			 (json_int_t)share_size(b), "segment_size",
			 (json_int_t)recipe->segment_size);
}

/* Returns 0, an error of libshare, or a positive errno. */
static int read_row(share_client *client, const char *name, char **out)
{
	struct pool_wanted wanted = {0};
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *b;
	json_t *row;
	int r = share_lookup(client, name, SHARE_RDONLY, 0, NULL, &b);

	if (r != 0)
		return r;
	wanted.buffer = share_id(b);
	r = share_get_recipe(b, &recipe);
	if (r == 0) {
		close(recipe.fd);
		r = share_list(client, name, take_pool, &wanted);
	}
	if (r >= 0) {
		row = row_of(name, b, &recipe, wanted.name);
		*out = row ? json_dumps(row, JSON_COMPACT) : NULL;
		json_decref(row);
		r = *out ? 0 : ENOMEM;
	}
	share_release(b, NULL);
	return r;
}

/* After what is on stdout already, as both may go to the same place. */
static void say_failure(int *failed)
{
	fflush(stdout);
	fprintf(stderr, "sharectl: %s\n", share_error_detail());
	++*failed;
}

int recipes_each(share_client *client, const char *const *names, size_t n,
		 int (*each)(const char *json, void *data), void *data, int *failed)
{
	int r = 0;

	for (size_t i = 0; r <= 0 && i < n; i++) {
		char *row = NULL;

		r = read_row(client, names[i], &row);
		if (r == 0)
			r = each(row, data);
		else if (r < 0)
			say_failure(failed);
		free(row);
	}
	return r > 0 ? r : 0;
}

/* Those of other kinds have nothing that could be printed. */
static char *show_handle(const json_t *row, const char *key, bool exact)
{
	if (!json_is_string(json_object_get(row, key)))
		return strdup("a descriptor, which goes over a socket only");
	return show_text(row, key, exact);
}

int recipe_print(const char *json, bool exact)
{
	static const struct {
		const char *key;
		value_show *show;
	} lines[] = {{"pool", show_text},        {"kind", show_text},  {"device", show_text},
		     {"handle", show_handle},    {"offset", show_hex}, {"size", show_size},
		     {"segment_size", show_size}};
	json_t *row = json_loads(json, 0, NULL);
	char *text = show_text(row, "name", exact);
	int n = text ? printf("%s\n", text) : -1;

	free(text);
	for (size_t i = 0; n >= 0 && i < sizeof(lines) / sizeof(lines[0]); i++) {
		text = lines[i].show(row, lines[i].key, exact);
		n = text ? printf("  %-12s  %s\n", lines[i].key, text) : -1;
		free(text);
	}
	json_decref(row);
	return n < 0 ? -errno : 0;
}
