/* SPDX-License-Identifier: MIT */
#pragma once

/* Uses the broker at @socket as a program does that was compiled with the headers of commit
 * 9e429ec. NULL, or the call that failed. */
const char *old_program(const char *socket);
