/* SPDX-License-Identifier: MIT */
#ifndef TESTS_HARNESS_FRESH_H
#define TESTS_HARNESS_FRESH_H

#include <share/channel.h>

/* An element of an array, for a call that receives into it. */
static inline share_message *fresh(share_message *m)
{
	*m = (share_message)SHARE_MESSAGE_INIT;
	return m;
}

#endif
