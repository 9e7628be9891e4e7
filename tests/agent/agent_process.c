/* SPDX-License-Identifier: MIT */

/* Starting an agent as the broker does, and talking to it. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/agent/agent_process.h"
#include "wire/packet.h"

static void become_agent(int socket, int log, const char *path, const char *device)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	fcntl(socket, F_SETFD, 0);
	snprintf(number, sizeof(number), "%d", socket);
	if (device)
		execl(path, path, "--socket", number, "--device", device, (char *)NULL);
	else
		execl(path, path, "--socket", number, (char *)NULL);
	_exit(127);
}

void agent_start(struct agent_process *p, const char *device)
{
	const char *bin = getenv("SHARE_TEST_BIN");
	char path[4096];
	int pair[2];

	cr_assert(bin, "SHARE_TEST_BIN says where the programs are");
	snprintf(path, sizeof(path), "%s/share-agent", bin);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	*p = (struct agent_process){.socket = pair[0]};
	p->log = memfd_create("share-agent's stderr", MFD_CLOEXEC);
	cr_assert(p->log >= 0);
	p->pid = fork();
	if (p->pid == 0)
		become_agent(pair[1], p->log, path, device);
	cr_assert(p->pid > 0);
	close(pair[1]);
}

int agent_wait(struct agent_process *p)
{
	int status;

	cr_assert_eq(waitpid(p->pid, &status, 0), p->pid);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int agent_end(struct agent_process *p)
{
	p->socket = fd_close(p->socket);
	return agent_wait(p);
}

void agent_end_well(struct agent_process *p)
{
	int status = p->socket >= 0 ? agent_end(p) : 0;
	const char *log = agent_log_text(p);

	if (status == 0 && *log == '\0')
		return;
	fprintf(stderr, "the agent ended with %d, and said: %s\n", status, log);
	abort();
}

const char *agent_log_text(struct agent_process *p)
{
	static char text[4096];
	ssize_t n = pread(p->log, text, sizeof(text) - 1, 0);

	cr_assert(n >= 0);
	text[n] = '\0';
	return text;
}

void agent_send(struct agent_process *p, struct wire_message *m)
{
	char packet[4096];
	size_t size;

	m->serial = ++p->serial;
	size = wire_encode(m, packet, sizeof(packet));
	cr_assert(size > 0);
	cr_assert_eq(packet_send(p->socket, packet, size, NULL, 0, true), 0);
}

bool agent_receive(struct agent_process *p, struct wire_message *out, int *fd)
{
	_cleanup_fd_list_ struct fd_list fds = {.n = 0};
	size_t size = sizeof(p->packet);
	int r;

	r = packet_receive(p->socket, p->packet, &size, &fds, true);
	if (r == -EPIPE)
		return false;
	cr_assert_eq(r, 0, "%s", strerror(-r));
	r = wire_decode(out, WIRE_FROM_AGENT, p->packet, size, fds.n);
	cr_assert_eq(r, 0, "%s", wire_error_text(r));
	cr_assert_eq(out->serial, p->serial, "answers carry their request's serial");
	cr_assert(fd || fds.n == 0, "a descriptor nobody asked for");
	if (fd)
		*fd = fd_list_take(&fds, 0);
	return true;
}

static const char *why(const struct wire_message *m)
{
	static char text[1100] = "";

	if (m->type == WIRE_AGENT_FAILED)
		snprintf(text, sizeof(text), "error %d: %.*s", m->agent_failed.error,
			 (int)m->agent_failed.text.size, (const char *)m->agent_failed.text.data);
	return text;
}

void agent_ask(struct agent_process *p, struct wire_message *m, enum wire_type expected,
	       struct wire_message *out, int *fd)
{
	agent_send(p, m);
	cr_assert(agent_receive(p, out, fd), "the agent is gone: %s", agent_log_text(p));
	cr_assert_eq(out->type, expected, "an answer of type %d: %s", (int)out->type, why(out));
}

void agent_ask_failing(struct agent_process *p, struct wire_message *m, int error, bool fatal,
		       const char *words, const char *more_words)
{
	struct wire_message answer;
	char text[1100];

	agent_ask(p, m, WIRE_AGENT_FAILED, &answer, NULL);
	snprintf(text, sizeof(text), "%.*s", (int)answer.agent_failed.text.size,
		 (const char *)answer.agent_failed.text.data);
	cr_assert_eq(answer.agent_failed.error, error, "error %d: %s", answer.agent_failed.error,
		     text);
	cr_assert_eq(answer.agent_failed.fatal, (uint32_t)fatal, "%s", text);
	cr_assert(strstr(text, words), "'%s' is not in '%s'", words, text);
	cr_assert(strstr(text, more_words), "'%s' is not in '%s'", more_words, text);
}

bool agent_can_make(struct agent_process *p, enum memory_kind_id kind)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;

	agent_ask(p, &m, WIRE_AGENT_DEVICE, &answer, NULL);
	return answer.agent_device.flags & memory_kind_by_id(kind)->ability;
}

void agent_make_segment(struct agent_process *p, enum memory_kind_id kind, uint64_t size,
			struct agent_segment *out)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_CREATE,
				 .agent_segment_create = {.size = size, .kind = kind}};
	struct wire_message answer;

	agent_ask(p, &m, WIRE_AGENT_SEGMENT, &answer, &out->fd);
	cr_assert(out->fd >= 0);
	cr_assert_eq(answer.agent_segment.recipe.size, sizeof(out->recipe));
	memcpy(&out->recipe, answer.agent_segment.recipe.data, sizeof(out->recipe));
	out->handle = answer.agent_segment.handle;
}

void agent_drop_segment(struct agent_process *p, struct agent_segment *s)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_DESTROY,
				 .agent_segment_destroy = {.handle = s->handle}};
	struct wire_message answer;

	s->fd = fd_close(s->fd);
	if (s->handle)
		agent_ask(p, &m, WIRE_AGENT_DONE, &answer, NULL);
}

char *agent_device_uuid(unsigned index)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;
	struct agent_process scout;
	char *found = NULL;

	agent_start(&scout, NULL);
	agent_send(&scout, &m);
	while (agent_receive(&scout, &answer, NULL) && answer.type == WIRE_AGENT_DEVICE)
		if (index-- == 0)
			found = strndup(answer.agent_device.uuid_text.data,
					answer.agent_device.uuid_text.size);
	cr_assert_eq(agent_end(&scout), 0);
	close(scout.log);
	return found;
}
