/* SPDX-License-Identifier: MIT */
#pragma once

/* "90s", "5m", "2h", "1d" in seconds; a number alone is seconds. A negative number when @text is
 * none of these. */
double duration_read(const char *text);
