/* SPDX-License-Identifier: MIT */

/*
 * Facts about calls made while a stream is captured, by the thread that captures and by others:
 * which the driver refuses, whether that spoils the capture, and that a thread which takes the
 * relaxed mode for a moment is refused none.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/themes/facts/gpu.h"

/* What importers and closers call, on things that no graph knows. */
static CUstream other;
static CUdeviceptr plain, mapped, range;
static CUmemGenericAllocationHandle handle;
static CUevent event;
static void *page, *second_page;
static CUmemoryPool pool;
static CUdeviceptr pooled;

static CUresult stream_create(void)
{
	CUstream s;
	CUresult result = cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING);

	if (result == CUDA_SUCCESS)
		cu.StreamDestroy(s);
	return result;
}

static CUresult stream_synchronize(void)
{
	return cu.StreamSynchronize(other);
}

static CUresult copy(void)
{
	static char word[8];

	return cu.MemcpyDtoHAsync(word, plain, sizeof(word), other);
}

static CUresult free_async(void)
{
	CUresult result = cu.MemFreeAsync(pooled, other);

	if (result == CUDA_SUCCESS)
		pooled = 0;
	return result;
}

static CUresult pool_create(void)
{
	CUmemPoolProps properties = pool_properties();
	CUmemoryPool p;
	CUresult result = cu.MemPoolCreate(&p, &properties);

	if (result == CUDA_SUCCESS)
		cu.MemPoolDestroy(p);
	return result;
}

static CUresult pool_import(void)
{
	CUmemoryPool p;
	int fd = -1;
	CUresult result = cu.MemPoolExport(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu.MemPoolImport(&p, (void *)(uintptr_t)fd,
				  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result == CUDA_SUCCESS)
		cu.MemPoolDestroy(p);
	return result;
}

static CUresult vmm_map_there(void)
{
	return cu.MemMap(range, 2 * MIB, 0, handle, 0);
}

static CUresult vmm_access(void)
{
	CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	return cu.MemSetAccess(mapped, 2 * MIB, &access, 1);
}

static CUresult vmm_unmap_there(void)
{
	return cu.MemUnmap(mapped, 2 * MIB);
}

static CUresult vmm_make(void)
{
	CUmemAllocationProp property = vmm_properties();
	CUmemGenericAllocationHandle made;
	CUresult result = cu.MemCreate(&made, 2 * MIB, &property, 0);

	if (result == CUDA_SUCCESS)
		cu.MemRelease(made);
	return result;
}

static CUresult page_register(void)
{
	return cu.MemHostRegister(second_page, 4096, CU_MEMHOSTREGISTER_PORTABLE);
}

static CUresult page_unregister(void)
{
	return cu.MemHostUnregister(page);
}

static CUresult event_query(void)
{
	return cu.EventQuery(event);
}

static CUresult event_destroy(void)
{
	return cu.EventDestroy(event);
}

static CUresult event_create(void)
{
	CUevent e;
	CUresult result = cu.EventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);

	if (result == CUDA_SUCCESS)
		cu.EventDestroy(e);
	return result;
}

static CUresult pointer(void)
{
	unsigned type;

	return cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain);
}

static CUresult allocate(void)
{
	CUdeviceptr p;
	CUresult result = cu.MemAlloc(&p, MIB);

	if (result == CUDA_SUCCESS)
		cu.MemFree(p);
	return result;
}

static CUresult release(void)
{
	return cu.MemFree(plain);
}

/* The last of them take away what the first use. */
static const struct {
	const char *name;
	CUresult (*call)(void);
} calls[] = {
    {"StreamCreate", stream_create},
    {"StreamSynchronize", stream_synchronize},
    {"MemcpyDtoHAsync", copy},
    {"PointerGetAttribute", pointer},
    {"MemPoolCreate", pool_create},
    {"MemPoolImport", pool_import},
    {"MemFreeAsync", free_async},
    {"MemCreate", vmm_make},
    {"MemMap", vmm_map_there},
    {"MemSetAccess", vmm_access},
    {"MemUnmap", vmm_unmap_there},
    {"MemHostRegister", page_register},
    {"MemHostUnregister", page_unregister},
    {"EventCreate", event_create},
    {"EventQuery", event_query},
    {"EventDestroy", event_destroy},
    {"MemAlloc", allocate},
    {"MemFree", release},
};

static CUstream capturing;
static CUcontext context;
static size_t which;
static bool relaxed;

static void prepare(void)
{
	CUmemAllocationProp property = vmm_properties();
	CUmemPoolProps properties = pool_properties();

	context = use_context();
	MUST(StreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	MUST(StreamCreate(&other, CU_STREAM_NON_BLOCKING));
	MUST(MemAlloc(&plain, MIB));
	MUST(MemCreate(&handle, 2 * MIB, &property, 0));
	mapped = vmm_map(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(MemAddressReserve(&range, 2 * MIB, 0, 0, 0));
	MUST(EventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	MUST(EventRecord(event, other));
	MUST(MemPoolCreate(&pool, &properties));
	MUST(MemAllocFromPoolAsync(&pooled, MIB, pool, other));
	MUST(StreamSynchronize(other));
	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		failed("mmap");
	second_page = (char *)page + 4096;
	MUST(MemHostRegister(page, 4096, CU_MEMHOSTREGISTER_PORTABLE));
}

static void *call_it(void *data)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult *result = data;

	MUST(CtxSetCurrent(context));
	if (relaxed)
		MUST(ThreadExchangeCaptureMode(&mode));
	*result = calls[which].call();
	if (relaxed)
		MUST(ThreadExchangeCaptureMode(&mode));
	return NULL;
}

/* Makes call number @which during a capture: by the thread that captures or by another. True when
 * the capture comes to a good end. */
static bool during_capture(bool by_another, CUresult *out)
{
	pthread_t thread;
	CUgraph graph;

	MUST(StreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
	if (by_another) {
		if (pthread_create(&thread, NULL, call_it, out) != 0)
			failed("pthread_create");
		pthread_join(thread, NULL);
	} else {
		call_it(out);
	}
	return cu.StreamEndCapture(capturing, &graph) == CUDA_SUCCESS;
}

static void add(char *list, size_t size, const char *name, const char *more)
{
	size_t used = strlen(list);

	snprintf(list + used, size - used, "%s%s%s", used ? ", " : "", name, more);
}

static void refused(bool by_another)
{
	char all[1024] = "";

	prepare();
	relaxed = false;
	for (which = 0; which < sizeof(calls) / sizeof(calls[0]); which++) {
		CUresult result;
		bool good = during_capture(by_another, &result);

		if (result != CUDA_SUCCESS)
			add(all, sizeof(all), calls[which].name,
			    good ? " (the capture goes on)" : "");
		else if (!good)
			add(all, sizeof(all), calls[which].name, " (not refused, spoils)");
	}
	ok("(report) refused, and the capture spoilt: %s", all);
}

static void refused_here(void)
{
	refused(false);
}

static void refused_elsewhere(void)
{
	refused(true);
}

static void let_through(bool by_another)
{
	prepare();
	relaxed = true;
	for (which = 0; which < sizeof(calls) / sizeof(calls[0]); which++) {
		CUresult result;
		bool good = during_capture(by_another, &result);

		if (result != CUDA_SUCCESS || !good)
			failed("cu%s in the relaxed mode: %s, and the capture is %s",
			       calls[which].name, error_name(result), good ? "good" : "spoilt");
	}
}

static void relaxed_calls(void)
{
	let_through(true);
	ok("none of %zu calls is refused, and no capture spoilt, by another thread",
	   sizeof(calls) / sizeof(calls[0]));
}

static void relaxed_calls_here(void)
{
	let_through(false);
	ok("none of %zu calls is refused, and no capture spoilt, by the thread that captures",
	   sizeof(calls) / sizeof(calls[0]));
}

/* ---- questions about the stream itself ---- */

static CUresult is_capturing(void)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = cu.StreamIsCapturing(capturing, &status);

	if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		failed("a capture is said to be in state %d", (int)status);
	return result;
}

static CUresult get_context(void)
{
	CUcontext of = NULL;
	CUresult result = cu.StreamGetCtx(capturing, &of);

	if (result == CUDA_SUCCESS && of != context)
		failed("another context than the stream was made in");
	return result;
}

static CUresult get_id(void)
{
	unsigned long long id;

	return cu.StreamGetId(capturing, &id);
}

static bool is_spoilt_by(CUstreamCaptureMode mode, CUresult (*question)(void), CUresult *out)
{
	CUgraph graph;

	MUST(StreamBeginCapture(capturing, mode));
	*out = question();
	return cu.StreamEndCapture(capturing, &graph) != CUDA_SUCCESS;
}

static const CUstreamCaptureMode modes[] = {
    CU_STREAM_CAPTURE_MODE_GLOBAL,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED,
};

static void must_be_harmless(const char *name, CUresult (*question)(void))
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		CUresult result;
		bool spoilt = is_spoilt_by(modes[i], question, &result);

		if (result != CUDA_SUCCESS || spoilt)
			failed("cu%s in mode %d: %s, and the capture is %s", name, (int)modes[i],
			       error_name(result), spoilt ? "spoilt" : "good");
	}
}

static void questions(void)
{
	char all[512] = "";

	context = use_context();
	MUST(StreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	must_be_harmless("StreamIsCapturing", is_capturing);
	must_be_harmless("StreamGetCtx", get_context);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		char text[96];
		CUresult result;
		bool spoilt = is_spoilt_by(modes[i], get_id, &result);

		snprintf(text, sizeof(text), "mode %d %s, %s", (int)modes[i], error_name(result),
			 spoilt ? "spoilt" : "good");
		add(all, sizeof(all), text, "");
	}
	ok("IsCapturing and GetCtx are harmless; (report) GetId: %s", all);
}

/* Whether it can be asked first by threads that have not set a context. */
static void question_without_context(void)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE, during = status;
	CUresult result, result_during;
	CUgraph graph;

	context = use_context();
	MUST(StreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	MUST(CtxSetCurrent(NULL));
	result = cu.StreamIsCapturing(capturing, &status);
	if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		failed("a stream that is not captured is said to be: %d", (int)status);
	MUST(CtxSetCurrent(context));
	MUST(StreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(CtxSetCurrent(NULL));
	result_during = cu.StreamIsCapturing(capturing, &during);
	MUST(CtxSetCurrent(context));
	if (result_during == CUDA_SUCCESS && during != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		failed("a capture is said to be in state %d", (int)during);
	MUST(StreamEndCapture(capturing, &graph));
	ok("(report) cuStreamIsCapturing without a current context: %s, and during a capture: %s",
	   error_name(result), error_name(result_during));
}

const struct fact capture_facts[] = {
    {"questions_about_a_captured_stream", questions},
    {"question_about_a_capture_without_a_context", question_without_context},
    {"calls_refused_while_this_thread_captures", refused_here},
    {"calls_refused_while_another_thread_captures", refused_elsewhere},
    {"relaxed_calls_while_another_thread_captures", relaxed_calls},
    {"relaxed_calls_while_this_thread_captures", relaxed_calls_here},
    {NULL, NULL},
};
