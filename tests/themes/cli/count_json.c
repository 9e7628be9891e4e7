/* SPDX-License-Identifier: MIT */

/* cli-count-json: prints how many elements the JSON array or members the object on stdin has; fails
 * if stdin is not one whole JSON value. */

#include <stdio.h>

#include <jansson.h>

int main(void)
{
	json_error_t error;
	json_t *value = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);

	if (!value) {
		fprintf(stderr, "line %d: %s\n", error.line, error.text);
		return 1;
	}
	printf("%zu\n", json_is_array(value) ? json_array_size(value) : json_object_size(value));
	json_decref(value);
	return 0;
}
