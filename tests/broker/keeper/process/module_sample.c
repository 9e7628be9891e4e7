/* SPDX-License-Identifier: MIT */

/* A broker's program that says which of several it is. */

#include "broker/keeper/keeper.h"

__attribute__((visibility("default"))) int KEEPER_MAIN_SYMBOL(struct keeper *k, int argc,
							      char **argv)
{
	(void)k;
	(void)argc;
	(void)argv;
	return WHICH;
}
