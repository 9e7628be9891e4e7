/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

struct evhttp_request;

/* Answers a request. */
void answer(struct evhttp_request *r, int code, const char *type, const void *bytes, size_t size);
void answer_text(struct evhttp_request *r, int code, const char *text);
void answer_page(struct evhttp_request *r);

/* The page (page.html); it ends with a NUL, which is no part of it. */
extern const char page_html[];
extern const char page_html_end[];
