/* SPDX-License-Identifier: MIT */

/*
 * cli-activate PATH COMMAND...: becomes COMMAND as a service manager starts it for a socket, which
 * listens at PATH already: as descriptor 3, and with two variables that say so.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	char pid[16];

	if (argc < 3 || fd < 0 || strlen(argv[1]) >= sizeof(address.sun_path))
		return 125;
	strcpy(address.sun_path, argv[1]);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 16) < 0 || dup2(fd, 3) < 0)
		return 125;
	if (fd != 3)
		close(fd);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	execvp(argv[2], argv + 2);
	return 127;
}
