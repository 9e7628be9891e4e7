/* SPDX-License-Identifier: MIT */

/*
 * The pages of host memory. A policy of NUMA belongs to the memfd, so it is set once, by a mapping
 * that goes again at once, and holds for whoever touches a page first. So do reserved huge pages:
 * the mapping takes as many out of the system's as the memfd can need, and nobody is killed later
 * for want of one.
 *
 * Pages are made ahead by MADV_POPULATE_WRITE, which does what a store would do and changes
 * nothing. fallocate() would be no help: it takes pages without zeroing them, and leaves that to
 * who touches them; and it takes small ones where huge ones have to be asked for by a mapping.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/error.h>
#include <share/share.h>

#include "base/system/mapping.h"
#include "memory/host/inside.h"

/* linux/mempolicy.h, which not every system has with its headers */
#define POLICY_PREFERRED   1
#define POLICY_INTERLEAVE  3
#define POLICY_OF_MEMORIES 4 /* MPOL_F_MEMS_ALLOWED */

#define NODES_MAX     1024
#define BITS_OF_WORD  (8 * sizeof(unsigned long))
#define WORDS_OF_MASK (NODES_MAX / BITS_OF_WORD)

/* Younger than the headers of some systems. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGES_OF_SHMEM  "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define HUGE_PAGES_OF_SYSTEM "/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* ------------------------------------------------------------------------------------------- */
/* What the machine has                                                                        */

static bool has_node(const unsigned long *mask, uint32_t node)
{
	return node < NODES_MAX && mask[node / BITS_OF_WORD] >> node % BITS_OF_WORD & 1;
}

/* The nodes that this process may have memory of. How many, or negative errno. */
static int find_nodes(unsigned long mask[WORDS_OF_MASK])
{
	int n = 0;

	memset(mask, 0, WORDS_OF_MASK * sizeof(*mask));
	if (syscall(SYS_get_mempolicy, NULL, mask, (unsigned long)NODES_MAX, NULL,
		    (unsigned long)POLICY_OF_MEMORIES) < 0)
		return -errno;
	for (uint32_t i = 0; i < NODES_MAX; i++)
		n += has_node(mask, i);
	return n;
}

static uint64_t read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t n = 0;

	if (file && fscanf(file, "%" SCNu64, &n) != 1)
		n = 0;
	if (file)
		fclose(file);
	return n;
}

/* The word that the kernel has in brackets. False when there is none. */
static bool read_choice(const char *path, char out[32])
{
	FILE *file = fopen(path, "re");
	char text[256] = "", *word;

	if (file && !fgets(text, sizeof(text), file))
		strcpy(text, "");
	if (file)
		fclose(file);
	word = strchr(text, '[');
	return word && sscanf(word, "[%31[a-z_]", out) == 1;
}

static int check_numa(uint32_t numa, struct failure *failure)
{
	unsigned long mask[WORDS_OF_MASK];
	char there[128] = "";
	size_t size = 0;
	int n;

	if (numa == SHARE_NUMA_ANY)
		return 0;
	n = find_nodes(mask);
	if (n < 0)
		return failure_set(failure, SHARE_ENOTSUP,
				   "numa: the kernel does not say which nodes there are: %s",
				   strerror(-n));
	if (numa == SHARE_NUMA_INTERLEAVE || has_node(mask, numa - 1))
		return 0;
	for (uint32_t i = 0; i < NODES_MAX && size < sizeof(there); i++)
		if (has_node(mask, i))
			size += (size_t)snprintf(there + size, sizeof(there) - size, " %u", i);
	return failure_set(failure, SHARE_EINVAL,
			   "numa: the broker may have no memory of node %u, but of:%s", numa - 1,
			   there);
}

int memory_host_check(const struct memory_host_pages *pages, struct failure *failure)
{
	if (pages->huge_pages == SHARE_HUGE_PAGES_REQUIRE &&
	    read_number(HUGE_PAGES_OF_SYSTEM "nr_hugepages") == 0 &&
	    read_number(HUGE_PAGES_OF_SYSTEM "nr_overcommit_hugepages") == 0)
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "huge_pages: \"require\": this machine has no huge pages of 2 "
		    "MiB; vm.nr_hugepages says how many it has, and \"advise\" takes "
		    "what there is");
	return check_numa(pages->numa, failure);
}

static size_t describe_huge_pages(const struct memory_host_pages *pages, char *out, size_t size)
{
	char word[32] = "not there";
	bool any;

	if (pages->huge_pages == SHARE_HUGE_PAGES_SYSTEM)
		return 0;
	if (pages->huge_pages == SHARE_HUGE_PAGES_REQUIRE)
		return (size_t)snprintf(out, size,
					"; huge pages of 2 MiB, reserved for each segment");
	any = read_choice(HUGE_PAGES_OF_SHMEM, word) && strcmp(word, "never") != 0 &&
	      strcmp(word, "deny") != 0;
	return (size_t)snprintf(out, size,
				any ? "; huge pages where the kernel finds them (%s is \"%s\")"
				    : "; no huge pages, as %s is \"%s\"",
				HUGE_PAGES_OF_SHMEM, word);
}

void memory_host_describe(const struct memory_host_pages *pages, char *out, size_t size)
{
	unsigned long mask[WORDS_OF_MASK];
	size_t n = describe_huge_pages(pages, out, size);
	int nodes;

	if (n >= size || pages->numa == SHARE_NUMA_ANY) {
		out[n < size ? n : size - 1] = '\0';
		return;
	}
	nodes = find_nodes(mask);
	if (pages->numa == SHARE_NUMA_INTERLEAVE)
		snprintf(out + n, size - n, "; spread over %d NUMA node%s", nodes,
			 nodes == 1 ? ", which is all there is" : "s");
	else
		snprintf(out + n, size - n, "; of NUMA node %u as long as it has memory%s",
			 pages->numa - 1, nodes == 1 ? ", which is the only one" : "");
}

uint64_t memory_host_granularity(const struct memory_host_pages *pages)
{
	return pages->huge_pages == SHARE_HUGE_PAGES_REQUIRE ? MEMORY_ALIGNMENT
							     : memory_host_kind()->granularity;
}

/* ------------------------------------------------------------------------------------------- */

static int set_policy(void *at, uint64_t size, uint32_t numa, struct failure *failure)
{
	unsigned long mask[WORDS_OF_MASK] = {0};
	int policy = POLICY_INTERLEAVE, n = 1;

	if (numa == SHARE_NUMA_INTERLEAVE) {
		n = find_nodes(mask);
	} else {
		policy = POLICY_PREFERRED;
		mask[(numa - 1) / BITS_OF_WORD] = 1ul << (numa - 1) % BITS_OF_WORD;
	}
	if (n < 0 || syscall(SYS_mbind, at, size, policy, mask, (unsigned long)NODES_MAX, 0) < 0)
		return failure_system(failure, "numa: setting the policy of a segment (mbind)",
				      n < 0 ? -n : errno);
	return 0;
}

int memory_host_set_up(const struct memory_host_pages *pages, int fd, uint64_t size,
		       struct failure *failure)
{
	bool reserve = pages->huge_pages == SHARE_HUGE_PAGES_REQUIRE;
	void *at;
	int r = 0;

	if (!reserve && pages->numa == SHARE_NUMA_ANY)
		return 0;
	at = mapping_make(NULL, size, PROT_NONE, MAP_SHARED, fd);
	if (!at && errno == ENOMEM && reserve)
		return failure_set(failure, SHARE_ENOMEM,
				   "%" PRIu64 " huge pages of 2 MiB are wanted, and %" PRIu64
				   " of %" PRIu64 " are free (vm.nr_hugepages)",
				   size / MEMORY_ALIGNMENT,
				   read_number(HUGE_PAGES_OF_SYSTEM "free_hugepages") -
				       read_number(HUGE_PAGES_OF_SYSTEM "resv_hugepages"),
				   read_number(HUGE_PAGES_OF_SYSTEM "nr_hugepages"));
	if (!at)
		return failure_system(failure, "mapping a segment", errno);
	if (pages->numa != SHARE_NUMA_ANY)
		r = set_policy(at, size, pages->numa, failure);
	munmap(at, size);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Making pages                                                                                */

int memory_host_window_open(struct memory_host_window *w)
{
	void *p = mmap(NULL, 2 * MEMORY_HOST_PIECE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	*w = (struct memory_host_window){.reserved = p};
	w->address = w->reserved + (-(uintptr_t)w->reserved & (MEMORY_HOST_PIECE - 1));
	return 0;
}

void memory_host_window_close(struct memory_host_window *w)
{
	munmap(w->reserved, 2 * MEMORY_HOST_PIECE);
}

int memory_host_window_move(struct memory_host_window *w, const struct memory_segment *segment,
			    uint64_t offset)
{
	uint64_t left = segment->recipe.size - offset;

	w->size = left < MEMORY_HOST_PIECE ? left : MEMORY_HOST_PIECE;
	if (!mapping_make_at(w->address, w->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			     segment->fd, offset))
		return -errno;
	if (segment->recipe.flags & MEMORY_HUGE_PAGES)
		madvise(w->address, w->size, MADV_HUGEPAGE);
	return 0;
}

int memory_host_window_fill(struct memory_host_window *w)
{
	/* a signal is none of its business, nor is memory that the kernel had to wait for */
	while (madvise(w->address, w->size, MADV_POPULATE_WRITE) < 0)
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	return 0;
}

void memory_host_window_discard(struct memory_host_window *w)
{
	madvise(w->address, w->size, MADV_REMOVE);
}
