/* SPDX-License-Identifier: MIT */
#pragma once

#include "bench/bench.h"

/* The parts of the benchmark "survival" that are in files of their own. */
void survival_pause(const struct run *run);
void survival_cost(const struct run *run);
