/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/suballocator/suballocator.h"

/*
 * What a block's tag says: which user may have written what is in the memory; or that nobody has,
 * and it is zero; or that several have.
 */
static inline uint32_t writer_tag(uid_t uid)
{
	return (uint32_t)uid + 1;
}

/* Notes that this user may write to the block from now on. */
static inline void block_mark_writer(struct block *block, uid_t uid)
{
	block->tag = suballocator_join_tags(block->tag, writer_tag(uid));
}

static inline bool block_is_of_others(const struct block *block, uid_t uid)
{
	return block->tag && block->tag != writer_tag(uid);
}
