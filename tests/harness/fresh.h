/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/channel.h>

/* An element of an array, for a call that receives into it. */
static inline share_message *fresh(share_message *m)
{
	*m = (share_message)SHARE_MESSAGE_INIT;
	return m;
}
