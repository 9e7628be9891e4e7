/* SPDX-License-Identifier: MIT */

/*
 * NVTX is headers alone: they load what the profiler has named in the environment, when they are
 * first used. They use getenv(), so a program with more rights than who has started it does not
 * come to them.
 */

#include <stdlib.h>

#include "libshare/program/range.h"

bool ranges_are_drawn;

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <pthread.h>

#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;

static void create_domain(void)
{
	domain = nvtxDomainCreateA("libshare");
}

bool range_begin(const char *name, uint64_t payload)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	nvtxEventAttributes_t attributes = {
	    .version = NVTX_VERSION,
	    .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
	    .payloadType = payload ? NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 : NVTX_PAYLOAD_UNKNOWN,
	    .payload.ullValue = payload,
	    .messageType = NVTX_MESSAGE_TYPE_ASCII,
	    .message.ascii = name,
	};

	pthread_once(&once, create_domain);
	nvtxDomainRangePushEx(domain, &attributes);
	return true;
}

void range_pop(void)
{
	nvtxDomainRangePop(domain);
}

__attribute__((constructor)) static void look_for_profiler(void)
{
	const char *path = sizeof(void *) == 4 ? secure_getenv("NVTX_INJECTION32_PATH")
					       : secure_getenv("NVTX_INJECTION64_PATH");

	ranges_are_drawn = path && *path;
}

#else

bool range_begin(const char *name, uint64_t payload)
{
	(void)name, (void)payload;
	return true;
}

void range_pop(void)
{
}

#endif
