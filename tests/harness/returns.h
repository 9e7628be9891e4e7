/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Every call of a public function that a test makes (or the library, from another of its files)
 * goes through here, and ends the test if the answer is not on the function's page. The calls are
 * generated: returns.py.
 */

/* @r, which @function has returned. @errors are those on its page, before a 0. @counts: more than 0
 * can be, too. @callback: so can what a callback of the program has returned. */
int check_returned(const char *function, int r, const int *errors, int counts, int callback);
