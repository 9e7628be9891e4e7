/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_WITHOUT_CUDA_H
#define MEMORY_WITHOUT_CUDA_H

#define MEMORY_WITHOUT_CUDA \
	"this build has no GPU support: the CUDA headers were not found when it was built"

#endif
