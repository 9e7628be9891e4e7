/* SPDX-License-Identifier: MIT */

/*
 * epoll_server: a worker of a service in a loop of epoll, with nothing else that waits.
 *
 *   epoll_server            answers with the text in capitals, until SIGTERM
 *   epoll_server ask TEXT   asks
 *
 * Three descriptors: that of the service is readable when there may be a request, that of the
 * connection when the broker has something to say, and a signalfd. The one of the service has to be
 * armed: after it was readable, requests are taken until there is none, and so they are once before
 * the loop begins. All of them may be level-triggered. None of them is read or closed here but the
 * signalfd, as the others are the library's.
 */

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <share/service.h>

static int failed(const char *what)
{
	fprintf(stderr, "epoll_server: %s: %s\n", what, share_error_detail());
	return 1;
}

/* Everything that there is. 0, or what ends the server. */
static int answer_all(share_service *s, int *answered)
{
	char text[SHARE_REQUEST_DATA_MAX];
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	while ((r = share_next_request(s, 0, NULL, &m)) != SHARE_EAGAIN) {
		if (r == SHARE_EPIPE)
			continue; /* the last caller has gone: the next one may come */
		if (r != 0)
			return r;
		for (uint32_t i = 0; i < m.data_size; i++)
			text[i] = (char)toupper(m.data[i]);
		/* that nobody waits any more is no failure of the server */
		if (share_reply(&m, NULL, text, m.data_size, NULL) == 0)
			++*answered;
	}
	return 0;
}

/* 0, or what ends the server: an error, or 1. The broker tells when it is about to end: whoever
 * gives up what it has then, and comes again, loses nothing. */
static int hear(share_client *c)
{
	int r = share_dispatch(c);

	if (r >= 0)
		r = share_ending(c);
	return r > 0 ? 1 : r;
}

static int serve(share_client *c, share_service *s)
{
	int fds[3] = {share_service_get_fd(s), share_get_fd(c), -1};
	int loop = epoll_create1(EPOLL_CLOEXEC), answered = 0, r;
	struct epoll_event event = {.events = EPOLLIN};
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fds[2] = signalfd(-1, &signals, SFD_CLOEXEC);
	for (event.data.u32 = 0; event.data.u32 < 3; event.data.u32++)
		if (epoll_ctl(loop, EPOLL_CTL_ADD, fds[event.data.u32], &event) != 0)
			return failed("epoll_ctl");
	printf("epoll_server: ready\n");
	r = answer_all(s, &answered); /* arms it */
	while (r == 0 && epoll_wait(loop, &event, 1, -1) == 1) {
		if (event.data.u32 == 2)
			break;
		r = event.data.u32 == 0 ? answer_all(s, &answered) : hear(c);
	}
	printf("epoll_server: ended answered=%d\n", answered);
	close(fds[2]);
	close(loop);
	if (r < 0)
		return failed("serving");
	if (r > 0)
		fprintf(stderr, "epoll_server: the broker is about to end\n");
	return r;
}

static int ask(share_service *s, const char *text)
{
	share_message m = SHARE_MESSAGE_INIT;

	if (share_call(s, NULL, text, strlen(text), 10000, NULL, &m) != 0)
		return failed("share_call");
	printf("epoll_server: %.*s\n", (int)m.data_size, (const char *)m.data);
	share_ack(&m, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;
	int asks = argc == 3 && strcmp(argv[1], "ask") == 0, r;
	share_service *s;
	share_client *c;
	share_pool *p;

	if (argc != 1 && !asks) {
		fprintf(stderr, "usage: epoll_server [ask TEXT]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	memory.kind = "host";
	memory.flags = SHARE_POOL_OPEN_OR_CREATE;
	options.pool = "capitals";
	if (share_connect(NULL, &c) != 0 || share_pool_create(c, "capitals", &memory, &p) != 0 ||
	    share_service_open(c, "capitals", asks ? SHARE_CALLER : SHARE_WORKER, &options, &s) !=
		0)
		return failed("opening the service");
	r = asks ? ask(s, argv[2]) : serve(c, s);
	share_service_close(s);
	share_pool_close(p);
	share_disconnect(c);
	return r;
}
