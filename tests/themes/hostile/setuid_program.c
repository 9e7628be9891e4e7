/* SPDX-License-Identifier: MIT */

/*
 * Connects to where it is told, or to where the environment says, and tells what came of it in one
 * line: whether the kernel says that its rights are not those of who started it, the error, and the
 * address or the reason.
 *
 * usage: setuid_program [ADDRESS]
 */

#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <share/share.h>

int main(int argc, char **argv)
{
	share_client *c = NULL;
	int r = share_connect(argc > 1 ? argv[1] : NULL, &c);

	printf("secure=%d %s %s\n", getauxval(AT_SECURE) != 0,
	       r == 0 ? "connected" : share_error_name(r),
	       r == 0 ? share_address(c) : share_error_detail());
	fflush(stdout);
	share_disconnect(c);
	/* Sanitizers look for leaks at exit(), and may not look into such a process. */
	_exit(0);
}
