/*
 * Chunks of memory that PHP's heap takes after the mark and gives back when a request ends. The
 * kernel would have to map them in each request, and clear every page; and a change of mappings
 * costs a look at all of them. So they are part of the mark: what was written to is cleared by the
 * process itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rewind.h"

static bool contains(const struct spares *spares, uintptr_t address)
{
	return spares->from && address >= spares->from
		&& address < spares->from + SPARES_MAX * CHUNK_BYTES;
}

/* At the mark. Without memory for them there are none. */
void maitred_rewind_reserve(struct spares *spares)
{
	long start = syscall(SYS_mmap, NULL, (SPARES_MAX + 1) * CHUNK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t) 0);

	spares->taken = 0;
	spares->from = start == -1 ? 0 : ((uintptr_t) start + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
}

/* The lowest that is free, since its pages are in memory more likely; NULL: there is none. */
void *maitred_rewind_take_spare(struct spares *spares)
{
	for (unsigned i = 0; spares->from && i < SPARES_MAX; i++) {
		if (!(spares->taken & 1U << i)) {
			spares->taken |= 1U << i;
			return (void *) (spares->from + i * CHUNK_BYTES);
		}
	}
	return NULL;
}

/* Whether memory that is unmapped is a spare chunk, which is free now. */
bool maitred_rewind_give_spare(struct spares *spares, uintptr_t from, size_t length)
{
	if (!contains(spares, from) || length != CHUNK_BYTES || from % CHUNK_BYTES) {
		return false;
	}
	spares->taken &= ~(1U << (from - spares->from) / CHUNK_BYTES);
	return true;
}
