/* SPDX-License-Identifier: MIT */

/*
 * Who reads metadata that anybody may have set: bridges, and `sharectl bridges`. The input is the
 * metadata of every buffer there is, and what another bridge says of one. The library has looked at
 * metadata before anybody reads it; nobody has looked at what a bridge says.
 */

#include <locale.h>
#include <string.h>

#include <jansson.h>
#include <share/share.h>

#include "bridge/bridge.h"
#include "bridge/names/about.h"
#include "bridge/settings.h"
#include "libshare/handover/inside.h"
#include "tests/themes/fuzz/fuzz.h"
#include "tools/report.h"
#include "tools/sharectl/bridges.h"

#define OWN  "own"
#define PEER "peer"

static const char *metadata;
static size_t metadata_size;

int __wrap_share_metadata_get(share_buffer *b, char **out);
int __wrap_share_metadata_get(share_buffer *b, char **out)
{
	int r = metadata_check(metadata, metadata_size, SHARE_EPROTO);

	(void)b;
	if (r == 0)
		*out = strndup(metadata, metadata_size);
	return r;
}

int __wrap_share_list(share_client *c, const char *prefix,
		      int (*each)(const share_name_info *info, void *data), void *data);
int __wrap_share_list(share_client *c, const char *prefix,
		      int (*each)(const share_name_info *info, void *data), void *data)
{
	const share_name_info info = {.name = "bridge/there"};

	(void)c, (void)prefix;
	return each(&info, data);
}

int __wrap_share_lookup(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
			share_buffer **out);
int __wrap_share_lookup(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
			share_buffer **out)
{
	(void)c, (void)name, (void)mode, (void)timeout_ms, (void)stream;
	*out = NULL;
	return 0;
}

int __wrap_share_release(share_buffer *b, void *stream);
int __wrap_share_release(share_buffer *b, void *stream)
{
	(void)b, (void)stream;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Bridges                                                                                     */

static void expect_json(const json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	json_t *again;

	expect(text);
	again = json_loads(text, JSON_DECODE_ANY, NULL);
	expect(again);
	json_decref(again);
	free(text);
}

static void expect_path(const json_t *path)
{
	size_t n = json_array_size(path), i;
	json_t *site;

	expect(n > 0 && n <= ABOUT_SITES_MAX);
	json_array_foreach (path, i, site) {
		expect(settings_is_site(json_string_value(site)));
		expect(strcmp(json_string_value(site), PEER) != 0);
	}
	expect(strcmp(json_string_value(json_array_get(path, n - 1)), OWN) == 0);
}

/* What the peer makes of it: its metadata has the way by which it came, so it does not go back. */
static void arrive(json_t *bare, json_t *path)
{
	json_t *content = json_pack("{s:O, s:O}", "metadata", bare, "path", path), *about, *back;
	bool loop;

	about = about_describe(content, PEER, 1, &loop);
	expect(about && !loop);
	expect_json(about);
	back = about_path(about, PEER, OWN);
	expect(!back);
	json_decref(about);
	json_decref(content);
}

static void leave(void)
{
	json_t *all = about_read(NULL), *bare = about_bare(all), *path = about_path(all, OWN, PEER);

	expect(all);
	expect_json(all);
	if (path)
		expect_path(path);
	if (bare) {
		expect(!json_object_get(bare, "bridge"));
		expect(json_dumpb(bare, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <=
		       SHARE_METADATA_MAX);
	}
	if (path && bare)
		arrive(bare, path);
	json_decref(path);
	json_decref(bare);
	json_decref(all);
}

static void be_told(const char *text, size_t size)
{
	json_t *content = json_loadb(text, size, 0, NULL), *about;
	bool loop;

	if (!content)
		return;
	about = about_describe(content, OWN, 7, &loop);
	expect(!about || !loop);
	if (about)
		expect_json(about);
	json_decref(about);
	json_decref(content);
}

/* ------------------------------------------------------------------------------------------- */
/* sharectl                                                                                    */

static int add_row(const char *json, void *table)
{
	json_t *row = json_loads(json, 0, NULL);

	expect(json_is_object(row));
	json_decref(row);
	expect(table_add(table, json) == 0);
	return 0;
}

/* Nothing that a terminal would take for more than text. */
static void expect_plain(char *text)
{
	char *line;

	while ((line = strsep(&text, "\n")))
		expect(!say_has_control(line));
}

static void show(bool exact)
{
	const struct report_options options = {.exact = exact, .headings = true};
	struct table *t;
	FILE *terminal = stdout;
	char *shown = NULL;
	size_t size;

	stdout = open_memstream(&shown, &size);
	expect(stdout);
	t = table_new(report_find("bridges"), &options);
	expect(t && bridges_each(NULL, add_row, t) == 0 && table_print(t) == 0);
	table_free(t);
	fclose(stdout);
	stdout = terminal;
	expect_plain(shown);
	free(shown);
}

/* ------------------------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	setlocale(LC_CTYPE, "C.UTF-8");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	be_told((const char *)data, size);
	if (size == 0 || size > SHARE_METADATA_MAX)
		return 0;
	metadata = (const char *)data;
	metadata_size = size;
	leave();
	show(false);
	show(true);
	return 0;
}
