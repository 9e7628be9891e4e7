/* SPDX-License-Identifier: MIT */

/*
 * What a profiler is to NVTX: a library that NVTX loads because NVTX_INJECTION64_PATH names it. It
 * writes the ranges of all domains to the file $SHARE_TEST_RANGES, each with its thread.
 */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static FILE *out;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	flockfile(out);
	fprintf(out, "%s ", gettid() == getpid() ? "main" : "other");
	vfprintf(out, format, arguments);
	fflush(out); /* the program may end by _exit() */
	funlockfile(out);
	va_end(arguments);
}

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
	say("domain %s\n", name);
	return (nvtxDomainHandle_t)out; /* anything but NULL */
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a)
{
	if (domain != (nvtxDomainHandle_t)out)
		say("push in a domain that was not created\n");
	say("push %s", a->messageType == NVTX_MESSAGE_TYPE_ASCII ? a->message.ascii : "?");
	if (a->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
		fprintf(out, " %" PRIu64, a->payload.ullValue);
	fputc('\n', out);
	fflush(out);
	return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
	say(domain == (nvtxDomainHandle_t)out ? "pop\n" : "pop in a domain that was not created\n");
	return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table)
{
	const NvtxExportTableCallbacks *callbacks = get_export_table(NVTX_ETID_CALLBACKS);
	const char *path = getenv("SHARE_TEST_RANGES");
	NvtxFunctionTable table;
	unsigned size;

	out = path ? fopen(path, "a") : NULL;
	if (!out || !callbacks ||
	    !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
	    size <= NVTX_CBID_CORE2_DomainCreateA)
		return 0;
	*table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	*table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
	*table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
	return 1;
}
