/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_SHARECTL_DURATION_H
#define TOOLS_SHARECTL_DURATION_H

/* "90s", "5m", "2h", "1d" in seconds; a number alone is seconds. A negative number when @text is
 * none of these. */
double duration_read(const char *text);

#endif
