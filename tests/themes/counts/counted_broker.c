/* SPDX-License-Identifier: MIT */

/*
 * A broker that callgrind can run, linked from all that share-broker is: valgrind knows neither the
 * calls of the kernel by which a keeper watches its broker, nor may it be kept from calls of its
 * own. So this one has no keeper, and does not confine itself. Neither has a part in a request.
 */

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/keeper/keeper.h"
#include "broker/life/confine.h"
#include "broker/log/log.h"

/* Without it nothing is handed to a keeper (broker/keeper/kept.h). */
void __wrap_kept_init(const struct keeper *k);
void __wrap_kept_init(const struct keeper *k)
{
	(void)k;
}

int __wrap_confine(const char **what);
int __wrap_confine(const char **what)
{
	(void)what;
	return 0;
}

int main(int argc, char **argv)
{
	struct keeper nobody = {.broker = -1, .generation = 1, .pid = getpid()};

	log_open();
	nobody.journal = memfd_create("share-journal", MFD_CLOEXEC);
	return nobody.journal < 0 ? 1 : KEEPER_MAIN_SYMBOL(&nobody, argc, argv);
}
