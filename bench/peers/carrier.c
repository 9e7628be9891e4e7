/* SPDX-License-Identifier: MIT */

/* The list of carriers, and which of them this build has. */

#include <stdio.h>
#include <stdlib.h>

#include "bench/peers/carrier.h"

#ifdef HAVE_ZEROMQ
#define ZEROMQ &carrier_zeromq
#else
#define ZEROMQ NULL
#endif
#ifdef HAVE_NNG
#define NNG &carrier_nng
#else
#define NNG NULL
#endif
#ifdef HAVE_BOOST
#define BOOST &carrier_boost
#else
#define BOOST NULL
#endif

const struct carrier_choice carriers[CARRIERS] = {
    {"share", "", &carrier_share},
    {"zeromq", "libzmq3-dev", ZEROMQ},
    {"nng", "libnng-dev", NNG},
    {"pipe", "", &carrier_pipe},
    {"boost", "libboost-dev, and g++", BOOST},
};

void carrier_must(bool fine, const char *carrier, const char *what, const char *why)
{
	if (fine)
		return;
	fprintf(stderr, "share-bench: %s: %s: %s\n", carrier, what, why);
	exit(1);
}
