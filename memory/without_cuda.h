/* SPDX-License-Identifier: MIT */
#pragma once

#define MEMORY_WITHOUT_CUDA \
	"this build has no GPU support: the CUDA headers were not found when it was built"
