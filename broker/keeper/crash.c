/* SPDX-License-Identifier: MIT */

#include "broker/keeper/crash.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/system/process.h"
#include "broker/keeper/keeper.h"
#include "broker/log/log.h"

#define OWN_FRAMES 2

static struct crash *report;

/* The stack on which a crash is reported, as a process that has used up its own needs another
 * one. */
static char stack[64 * 1024] __attribute__((aligned(16)));

/* Returns a file's name without its folder. The module may have been loaded by the number of a
 * descriptor, which says nothing, so that is replaced by the module's name. */
static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (strncmp(path, "/proc/self/fd/", strlen("/proc/self/fd/")) == 0)
		return "share-broker.so";
	return slash ? slash + 1 : path;
}

static void name_frame(struct crash_frame *f, void *address)
{
	Dl_info info;

	if (!dladdr(address, &info) || !info.dli_fname)
		return;
	strncpy(f->object, name_of(info.dli_fname), sizeof(f->object) - 1);
	f->offset -= (uint64_t)(uintptr_t)info.dli_fbase;
}

/* Writes down where the process has crashed. Each step depends on more than the one before it, and
 * if one goes wrong, what was written until then is there. Should a step crash, the process dies;
 * should one hang, the keeper kills it. The two innermost frames are left out: they are this
 * function's own, and the one that returns from it. When it has returned, the signal comes again,
 * and then it kills. */
static void on_crash(int number, siginfo_t *info, void *context)
{
	void *frames[CRASH_FRAMES + OWN_FRAMES];
	int n;

	(void)context;
	report->address = info->si_code > 0 ? (uint64_t)(uintptr_t)info->si_addr : 0;
	atomic_store(&report->signal, number);
	n = backtrace(frames, CRASH_FRAMES + OWN_FRAMES) - OWN_FRAMES;
	for (int i = 0; i < n; i++) {
		report->frames[i].object[0] = '\0';
		report->frames[i].offset = (uint64_t)(uintptr_t)frames[i + OWN_FRAMES];
	}
	report->n = n > 0 ? (uint32_t)n : 0;
	for (int i = 0; i < n; i++)
		name_frame(&report->frames[i], frames[i + OWN_FRAMES]);
	raise(number);
}

void crash_report_to(struct crash *out)
{
	static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
	const stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_sigaction = on_crash,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
	void *frame;

	report = out;
	if (PROCESS_IS_INSTRUMENTED)
		return;
	backtrace(&frame, 1); /* this loads a library, for which it is too late in a crash */
	sigaltstack(&other, NULL);
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		sigaction(crashes[i], &action, NULL);
}

/* ------------------------------------------------------------------------------------------- */

static size_t write_frame(const struct crash_frame *f, char *out, size_t size)
{
	char object[CRASH_OBJECT];
	int n;

	memcpy(object, f->object, sizeof(object));
	object[sizeof(object) - 1] = '\0';
	for (char *c = object; *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '?';
	n = snprintf(out, size, " %s%s%#" PRIx64, object, object[0] ? "+" : "", f->offset);
	return n < 0 || (size_t)n >= size ? 0 : (size_t)n;
}

const char *signal_text(int signal)
{
	const char *text = sigdescr_np(signal);

	return text ? text : "?";
}

void crash_log(const struct crash *c, const char *who, pid_t pid)
{
	uint32_t n = c->n < CRASH_FRAMES ? c->n : CRASH_FRAMES;
	int number = atomic_load(&c->signal);
	char frames[1024] = "";
	size_t size = 0;

	if (number == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		size += write_frame(&c->frames[i], frames + size, sizeof(frames) - size);
	frames[size] = '\0';
	log_error("%s %d has crashed: signal %d (%s), address %#" PRIx64 ", at%s", who, (int)pid,
		  number, signal_text(number), c->address, n ? frames : " ?");
}
