/* SPDX-License-Identifier: MIT */
#pragma once

#include "tools/value.h"

/* How a bridge's links are, in the columns of the report "bridges". */

value_show show_microseconds; /* 0.3ms; "-" for 0, which is not known yet */
value_show show_credits;      /* the channels on a link */
value_show show_calls;        /* the services on it */
