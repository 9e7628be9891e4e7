/* SPDX-License-Identifier: MIT */

/* page.html as bytes of the program, so that there is nothing to install beside it. */

#include "tools/exporter/answer.h"

__asm__(
    ".section .rodata\n"
    ".global page_html\n"
    ".global page_html_end\n"
    "page_html:\n"
    ".incbin \"" PAGE_FILE
    "\"\n"
    "page_html_end:\n"
    ".byte 0\n"
    ".previous\n");
