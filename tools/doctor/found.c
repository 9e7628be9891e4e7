/* SPDX-License-Identifier: MIT */

/* What every examination does: it reads files, and says what it has found. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/inside.h"

/* jansson refuses what is no UTF-8, which a path may be. */
static json_t *text_or_mark(const char *text)
{
	json_t *value = json_string(text);

	return value ? value : json_string("?");
}

void found(struct examination *e, const char *subject, enum state state, const char *costs,
	   const char *cure, const char *format, ...)
{
	static const char *const words[] = {[OK] = "ok", [NOTE] = "note", [BAD] = "bad"};
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_array_append_new(e->findings,
			      json_pack("{s:s, s:s, s:o, s:s?, s:s?}", "subject", subject, "state",
					words[state], "found", text_or_mark(text), "costs", costs,
					"do", cure));
}

static bool path_of(const struct examination *e, const char *path, char *out, size_t size)
{
	int n = snprintf(out, size, "%s%s", e->root, path);

	return n > 0 && (size_t)n < size;
}

bool exists(const struct examination *e, const char *path)
{
	char whole[4096];

	return path_of(e, path, whole, sizeof(whole)) && access(whole, F_OK) == 0;
}

bool read_text(const struct examination *e, const char *path, char *out, size_t size)
{
	char whole[4096];
	FILE *file = path_of(e, path, whole, sizeof(whole)) ? fopen(whole, "re") : NULL;
	size_t n = file ? fread(out, 1, size - 1, file) : 0;

	while (n > 0 && strchr(" \n\t", out[n - 1]))
		n--;
	out[n] = '\0';
	if (file)
		fclose(file);
	return file != NULL;
}
