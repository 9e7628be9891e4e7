/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/queue.h>

#include "memory/cuda/driver.h"

/* What importers have mapped in this process, which is no memory of the program's own. */
struct cuda_import {
	LIST_ENTRY(cuda_import) link;
	CUdeviceptr base;
	uint64_t size;
};

void cuda_import_attach(struct cuda_import *i, CUdeviceptr base, uint64_t size);
void cuda_import_detach(struct cuda_import *i);
bool cuda_is_import(CUdeviceptr pointer);
