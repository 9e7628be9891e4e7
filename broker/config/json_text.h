/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CONFIG_JSON_TEXT_H
#define BROKER_CONFIG_JSON_TEXT_H

#include <stddef.h>

#include <jansson.h>

/* jansson's memory comes through here from now on, so that a lack of it can be told. */
void json_text_init(void);

/* What json_loadb() does, without a key given twice. A text that there was no memory for is not
 * called wrong: json_error_code() is json_error_out_of_memory. */
json_t *json_text_read(const char *text, size_t size, json_error_t *error);

#endif
