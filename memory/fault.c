/* SPDX-License-Identifier: MIT */

/* Words and numbers for what fails here. CUDA's own are in memory/cuda/driver.c. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <share/error.h>

#include "memory/fault.h"

int memory_fail(struct memory_fault *fault, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(fault->text, sizeof(fault->text), format, arguments);
	va_end(arguments);
	fault->fatal = false;
	return error;
}

int memory_fail_system(struct memory_fault *fault, const char *what, int number)
{
	char buffer[128];
	bool memory = number == ENOMEM || number == ENOSPC || number == EFBIG;

	return memory_fail(fault, memory ? SHARE_ENOMEM : SHARE_ESYSTEM, "%s: %s", what,
			   strerror_r(number, buffer, sizeof(buffer)));
}
