/* SPDX-License-Identifier: MIT */

/*
 * The kernels, in the language that the driver itself compiles: each thread spins by the GPU's
 * clock, then takes one word after the other.
 */

#include "tests/themes/checker/gpu_kernels.h"

#include <dlfcn.h>

#define THREADS 256
#define BLOCKS  8

/* clang-format off */
#define SPIN                                                                                       \
	"	ld.param.u64 %length, [nanoseconds];\n"                                            \
	"	mov.u64 %start, %globaltimer;\n"                                                   \
	"spin:\n"                                                                                  \
	"	mov.u64 %now, %globaltimer;\n"                                                     \
	"	sub.u64 %now, %now, %start;\n"                                                     \
	"	setp.lt.u64 %again, %now, %length;\n"                                              \
	"	@%again bra spin;\n"

/* %i: the thread's first word; %step: how far it is to its next one */
#define FIRST                                                                                      \
	"	mov.u32 %block, %ctaid.x;\n"                                                       \
	"	mov.u32 %threads, %ntid.x;\n"                                                      \
	"	mov.u32 %thread, %tid.x;\n"                                                        \
	"	mov.u32 %blocks, %nctaid.x;\n"                                                     \
	"	mad.lo.u32 %thread, %block, %threads, %thread;\n"                                  \
	"	mul.lo.u32 %threads, %threads, %blocks;\n"                                         \
	"	cvt.u64.u32 %i, %thread;\n"                                                        \
	"	cvt.u64.u32 %step, %threads;\n"                                                    \
	"	ld.param.u64 %n, [words];\n"                                                       \
	"	setp.ge.u64 %again, %i, %n;\n"                                                     \
	"	@%again bra done;\n"

#define NEXT                                                                                       \
	"	add.u64 %i, %i, %step;\n"                                                          \
	"	setp.lt.u64 %again, %i, %n;\n"                                                     \
	"	@%again bra next;\n"                                                               \
	"done:\n"                                                                                  \
	"	ret;\n"

#define REGISTERS                                                                                  \
	"	.reg .pred %again;\n"                                                              \
	"	.reg .u32 %block, %blocks, %thread, %threads, %x;\n"                               \
	"	.reg .u64 %length, %start, %now, %i, %n, %step, %base, %other, %at;\n"

static const char ptx[] =
	".version 6.4\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry fill(.param .u64 memory, .param .u64 words, .param .u32 word,\n"
	"		      .param .u64 nanoseconds)\n"
	"{\n"
	REGISTERS
	SPIN
	FIRST
	"	ld.param.u64 %base, [memory];\n"
	"	ld.param.u32 %x, [word];\n"
	"next:\n"
	"	shl.b64 %at, %i, 2;\n"
	"	add.u64 %at, %at, %base;\n"
	"	st.global.u32 [%at], %x;\n"
	NEXT
	"}\n"
	".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 words,\n"
	"		      .param .u64 nanoseconds)\n"
	"{\n"
	REGISTERS
	SPIN
	FIRST
	"	ld.param.u64 %base, [from];\n"
	"	ld.param.u64 %other, [to];\n"
	"next:\n"
	"	shl.b64 %at, %i, 2;\n"
	"	add.u64 %at, %at, %base;\n"
	"	ld.global.u32 %x, [%at];\n"
	"	shl.b64 %at, %i, 2;\n"
	"	add.u64 %at, %at, %other;\n"
	"	st.global.u32 [%at], %x;\n"
	NEXT
	"}\n";
/* clang-format on */

/* What libshare has no use for. */
static PFN_cuModuleLoadData_v2000 module_load;
static PFN_cuModuleGetFunction_v2000 get_function;
static PFN_cuLaunchKernel_v4000 launch;
static CUfunction fill, copy;

static CUresult run(CUfunction function, CUstream stream, void *parameters[])
{
	return launch(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

CUresult kernel_fill(CUstream stream, CUdeviceptr at, uint64_t words, uint32_t word,
		     unsigned spin_us)
{
	uint64_t nanoseconds = spin_us * UINT64_C(1000);

	return run(fill, stream, (void *[]){&at, &words, &word, &nanoseconds});
}

CUresult kernel_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, uint64_t words,
		     unsigned spin_us)
{
	uint64_t nanoseconds = spin_us * UINT64_C(1000);

	return run(copy, stream, (void *[]){&to, &from, &words, &nanoseconds});
}

bool kernels_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUmodule module; /* stays loaded */

	if (!library)
		return false;
	*(void **)&module_load = dlsym(library, "cuModuleLoadData");
	*(void **)&get_function = dlsym(library, "cuModuleGetFunction");
	*(void **)&launch = dlsym(library, "cuLaunchKernel");
	return module_load && get_function && launch && module_load(&module, ptx) == CUDA_SUCCESS &&
	       get_function(&fill, module, "fill") == CUDA_SUCCESS &&
	       get_function(&copy, module, "copy") == CUDA_SUCCESS &&
	       kernel_fill(CU_STREAM_PER_THREAD, 0, 0, 0, 0) == CUDA_SUCCESS &&
	       kernel_copy(CU_STREAM_PER_THREAD, 0, 0, 0, 0) == CUDA_SUCCESS;
}
