/* SPDX-License-Identifier: MIT */
#pragma once

#include "tools/value.h"

/* How long the answers to requests took, in the columns of the report "requests". */

value_show show_refused;   /* SHARE_ENOMEM:2 */
value_show show_mean;      /* 8.1us */
value_show show_median;    /* <16.4us: half of the answers took no longer */
value_show show_hundredth; /* the same for all but a hundredth of them */
