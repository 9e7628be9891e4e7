/* SPDX-License-Identifier: MIT */

/* Fills in failures: numbers and sentences for what could not be done. It knows errno, but nothing
 * of CUDA: memory/cuda puts the errors of the driver into words. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <share/error.h>

#include "base/failure.h"

int failure_set(struct failure *f, int error, const char *format, ...)
{
	va_list arguments;

	if (!f)
		return error;
	va_start(arguments, format);
	vsnprintf(f->text, sizeof(f->text), format, arguments);
	va_end(arguments);
	f->error = error;
	f->fatal = false;
	return error;
}

int failure_no_memory(struct failure *f, const char *who)
{
	return failure_set(f, SHARE_ESYSTEM, "%s is out of memory", who);
}

const char *failure_limit(int number, char out[FAILURE_LIMIT_TEXT])
{
	bool file = number == EFBIG;
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	out[0] = '\0';
	if (file || number == ENOMEM)
		getrlimit(file ? RLIMIT_FSIZE : RLIMIT_AS, &limit);
	if (limit.rlim_cur != RLIM_INFINITY)
		snprintf(out, FAILURE_LIMIT_TEXT, " (%s is %llu KiB)",
			 file ? "RLIMIT_FSIZE, ulimit -f," : "RLIMIT_AS, ulimit -v,",
			 (unsigned long long)limit.rlim_cur / 1024);
	return out;
}

int failure_system(struct failure *f, const char *what, int number)
{
	char buffer[128], limit[FAILURE_LIMIT_TEXT];
	bool memory = number == ENOMEM || number == ENOSPC || number == EFBIG;

	return failure_set(f, memory ? SHARE_ENOMEM : SHARE_ESYSTEM, "%s: %s%s", what,
			   strerror_r(number, buffer, sizeof(buffer)),
			   failure_limit(number, limit));
}
