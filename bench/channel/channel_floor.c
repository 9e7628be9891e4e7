/* SPDX-License-Identifier: MIT */

/*
 * The floors of channels: two processes and memory that both can write, and nothing else. There is
 * no third process, nobody comes, leaves or dies, no memory has to be managed, and neither side
 * checks what the other one writes.
 *
 *   words   a number there and a number back, each in a cache line of its own
 *   spin    64 bytes there and 64 bytes back, each with its number
 *   futex   the same, asleep until the number changes
 *   asleep  the same, where each side thinks for a while before it sends
 *   ring    64 bytes at a time from one process to the other, in batches
 */

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/channel/channel.h"

void *shared_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	must_system(memory != MAP_FAILED, "mmap");
	return memory;
}

void channel_floor_reset(struct channel_floor *f)
{
	memset(f, 0, sizeof(*f));
}

void word_set(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void word_sleep(_Atomic uint32_t *word, uint32_t value)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(word, memory_order_acquire)) != value)
		syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

void word_spin(_Atomic uint32_t *word, uint32_t value)
{
	while (atomic_load_explicit(word, memory_order_acquire) != value)
		;
}

void think(void)
{
	for (double start = now_us(); now_us() < start + THINK_US;)
		;
}

/* ------------------------------------------------------------------------------------------- */

static void give(struct floor_message *m, enum floor_way way, uint32_t turn, const void *data)
{
	if (way == FLOOR_ASLEEP)
		think();
	if (way != FLOOR_WORDS)
		memcpy(m->data, data, MESSAGE_SIZE);
	if (way >= FLOOR_FUTEX)
		word_set(&m->turn, turn);
	else
		atomic_store_explicit(&m->turn, turn, memory_order_release);
}

static void take(struct floor_message *m, enum floor_way way, uint32_t turn, void *data)
{
	if (way >= FLOOR_FUTEX)
		word_sleep(&m->turn, turn);
	else
		word_spin(&m->turn, turn);
	if (way != FLOOR_WORDS)
		memcpy(data, m->data, MESSAGE_SIZE);
}

void floor_play(struct channel_floor *f, enum floor_way way, uint32_t n)
{
	unsigned char data[MESSAGE_SIZE] = {0};

	for (uint32_t i = 1; i <= n; i++) {
		memcpy(data, &i, sizeof(i));
		give(&f->there, way, i, data);
		take(&f->back, way, i, data);
	}
}

void floor_answer(struct channel_floor *f, enum floor_way way, uint32_t n)
{
	unsigned char data[MESSAGE_SIZE] = {0};

	for (uint32_t i = 1; i <= n; i++) {
		take(&f->there, way, i, data);
		give(&f->back, way, i, data);
	}
}

/* ------------------------------------------------------------------------------------------- */

/* Each side reads the word of the other side only when it has to. */
void floor_ring_send(struct floor_ring *r, uint32_t n)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), head = 0;
	unsigned char data[MESSAGE_SIZE] = {0};

	for (uint32_t i = 0; i < n;) {
		while (tail + BATCH - head > RING_SIZE)
			head = atomic_load_explicit(&r->head, memory_order_acquire);
		for (uint32_t k = 0; k < BATCH; k++, i++, tail++) {
			memcpy(data, &i, sizeof(i));
			memcpy(r->slots[tail % RING_SIZE], data, MESSAGE_SIZE);
		}
		atomic_store_explicit(&r->tail, tail, memory_order_release);
	}
}

void floor_ring_receive(struct floor_ring *r, uint32_t n)
{
	static unsigned char messages[BATCH][MESSAGE_SIZE];
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed), tail = head;

	for (uint32_t i = 0; i < n; i += BATCH) {
		while (tail - head < BATCH)
			tail = atomic_load_explicit(&r->tail, memory_order_acquire);
		for (uint32_t k = 0; k < BATCH; k++, head++)
			memcpy(messages[k], r->slots[head % RING_SIZE], MESSAGE_SIZE);
		/* The compiler must not leave out the copy, since a program would use the
		 * messages. */
		__asm__ volatile("" : : "r"(messages) : "memory");
		atomic_store_explicit(&r->head, head, memory_order_release);
	}
}
