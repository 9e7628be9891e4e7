/* SPDX-License-Identifier: MIT */

/* Times as operators write them. */

#include <stdlib.h>
#include <string.h>

#include "tools/sharectl/duration.h"

double duration_read(const char *text)
{
	static const struct {
		char unit;
		double seconds;
	} units[] = {{'\0', 1}, {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
	size_t digits = strspn(text, "0123456789.");
	char *end;
	double number = strtod(text, &end);

	if (digits == 0 || end != text + digits)
		return -1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (*end == units[i].unit && (!*end || !end[1]))
			return number * units[i].seconds;
	return -1;
}
