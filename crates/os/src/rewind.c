/*
 * A process that goes back to what it was at its mark, as if it had been forked again.
 *
 * What a process can change is its memory, its descriptors, and a list of things that the kernel
 * keeps for it. Memory is put back page by page: a page that was changed since the fork is mapped
 * by this process alone (bit 56 of its word in /proc/self/pagemap, Documentation/admin-guide/mm/
 * pagemap.rst), because a write to a page of two processes makes a copy. All such pages get the
 * content they had at the mark, whether this is different or not. No write happens without a page
 * fault before it, so as long as there was none, the pages are those of the last time. Both holds
 * only if the kernel leaves pages where they are: huge pages and the merging of equal ones are
 * switched off (rewind.rs, keep_pages_apart), and no process writes through /proc/PID/mem
 * (worker/src/snapshot.rs).
 *
 * Descriptors that were not open at the mark are closed; what the kernel keeps is put back where
 * that can be done. Whatever cannot be put back, or is not understood, makes the answer "no": then
 * the process has to end, which is what it would have done without all this.
 *
 * All that is used here lies in memory that is shared, which is not put back. Nothing runs on the
 * stack that is being written to.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "rewind.h"

/* Bits of a page's word. */
#define PRESENT (UINT64_C(1) << 63)
#define SWAPPED (UINT64_C(1) << 62)
#define OF_FILE (UINT64_C(1) << 61)
#define ALONE (UINT64_C(1) << 56)

enum state { MARKING, MARKED, AGAIN };

struct hot_page {
	char *page;
	const char *content;   /* NULL: zeros */
};

struct rewind {
	struct image *image;
	struct rewind_files files;
	enum state state;
	int error;
	const char *why;
	ucontext_t mark;
	ucontext_t here;
	ucontext_t aside;
	uint64_t carried[REWIND_CARRIED];
	long faults;             /* up to which the list of hot pages is complete; -1: none */
	struct sizes sizes;
	uintptr_t heap_end;
	struct outside outside;
	struct mapping mappings[MAPPINGS_MAX];
	size_t mapping_count;
	struct mapping found[MAPPINGS_MAX];
	size_t found_count;
	struct mapping lost;     /* the one that is not what it was */
	char reason[REASON_BYTES];
	size_t hot_count;
	struct hot_page hot[HOT_MAX];
	size_t changed_count;    /* pages that were not as in the image at the mark, by address */
	const char *changed[CHANGED_MAX];
	char contents[CHANGED_MAX][PAGE_BYTES];
	uint64_t words[WORDS];
	char text[TEXT_BYTES];
	char stack[STACK_BYTES] __attribute__((aligned(64)));
};

/* Of the process that is marked; makecontext() takes no pointers. */
static struct rewind *marked;

/*
 * In place of the C library's, for callers that find it first, as libphp does: what was there at
 * the mark is not taken away before the process goes back. PHP gives back the memory of its heap,
 * the boot's too, when a request ends.
 */
int munmap(void *address, size_t length)
{
	uintptr_t from = (uintptr_t) address;
	uintptr_t to = from + length;

	for (size_t i = 0; marked && to > from && i < marked->mapping_count; i++) {
		const struct mapping *mapping = &marked->mappings[i];
		if (mapping->to <= from || mapping->from >= to) {
			continue;
		}
		/* What has grown since, or joins it, goes. */
		if (mapping->from > from && syscall(SYS_munmap, from, mapping->from - from) < 0) {
			return -1;
		}
		if (mapping->to >= to) {
			return 0;
		}
		from = mapping->to;
	}
	return (int) syscall(SYS_munmap, from, to - from);
}

static bool is_written_to(const struct mapping *mapping)
{
	return (mapping->bits & (MAPPING_WRITE | MAPPING_SHARED)) == MAPPING_WRITE;
}

static const struct region *region_of(
	const struct image *image, uintptr_t page, const struct region **from)
{
	const struct region *end = image->regions + image->count;

	while (*from < end && (*from)->to <= page) {
		(*from)++;
	}
	return *from < end && (*from)->from <= page ? *from : NULL;
}

/* What the image has of a page; NULL: zeros, or nothing. */
static const char *in_image(
	const struct image *image, uintptr_t page, const struct region **from)
{
	const struct region *region = region_of(image, page, from);
	uint32_t place;

	if (!region) {
		return NULL;
	}
	place = image->places[region->first + (page - region->from) / PAGE_BYTES];
	return place ? image->pages + (size_t) (place - 1) * PAGE_BYTES : NULL;
}

static bool is_zero(const char *page)
{
	static const char zeros[PAGE_BYTES];

	return memcmp(page, zeros, PAGE_BYTES) == 0;
}

static bool read_words(struct rewind *rewind, uintptr_t page, size_t count)
{
	size_t bytes = count * sizeof(uint64_t);
	off_t at = (off_t) (page / PAGE_BYTES * sizeof(uint64_t));

	return pread(rewind->files.pagemap, rewind->words, bytes, at) == (ssize_t) bytes;
}

/* Calls `each` for every page that the process may have written to. */
static bool for_pages(struct rewind *rewind,
	bool (*each)(struct rewind *, const struct mapping *, char *, uint64_t, const char *))
{
	const struct region *region = rewind->image->regions;

	for (size_t i = 0; i < rewind->mapping_count; i++) {
		const struct mapping *mapping = &rewind->mappings[i];
		for (uintptr_t page = mapping->from; is_written_to(mapping) && page < mapping->to;) {
			size_t count = (mapping->to - page) / PAGE_BYTES;
			count = count < WORDS ? count : WORDS;
			if (!read_words(rewind, page, count)) {
				return false;
			}
			for (size_t k = 0; k < count; k++, page += PAGE_BYTES) {
				const char *content = in_image(rewind->image, page, &region);
				if (!each(rewind, mapping, (char *) page, rewind->words[k], content)) {
					return false;
				}
			}
		}
	}
	return true;
}

/* At the mark: remembers what is not as in the image. */
static bool compare(struct rewind *rewind, const struct mapping *mapping, char *page,
	uint64_t word, const char *content)
{
	bool is_there = (word & (PRESENT | SWAPPED)) != 0;

	if (maitred_rewind_is_wiped(rewind->image, (uintptr_t) page)) {
		/*
		 * Zeros are put back, as a fork does. Libraries that keep the state of random numbers there
		 * (the C library's getrandom() from 2.41 on, AWS-LC) would draw the same again without.
		 */
		return true;
	}
	if (mapping->inode && !content) {
		return false;
	}
	if (mapping->inode && (!is_there || (word & OF_FILE))) {
		/* As in its file, and so it was when the image was taken. */
		return true;
	}
	if (!is_there && !content) {
		return true;
	}
	if (content ? memcmp(page, content, PAGE_BYTES) == 0 : is_zero(page)) {
		return true;
	}
	if (rewind->changed_count == CHANGED_MAX) {
		return false;
	}
	memcpy(rewind->contents[rewind->changed_count], page, PAGE_BYTES);
	rewind->changed[rewind->changed_count++] = page;
	return true;
}

static int by_address(const void *key, const void *entry)
{
	uintptr_t page = (uintptr_t) key;
	uintptr_t other = (uintptr_t) * (const char *const *) entry;

	return page < other ? -1 : page > other;
}

static const char *content_at_mark(struct rewind *rewind, char *page, const char *in_image)
{
	const char **found = bsearch(page, rewind->changed, rewind->changed_count,
		sizeof(*rewind->changed), by_address);

	return found ? rewind->contents[found - rewind->changed] : in_image;
}

static bool add_hot(struct rewind *rewind, char *page, const char *content)
{
	if (rewind->hot_count == HOT_MAX) {
		return false;
	}
	rewind->hot[rewind->hot_count++] = (struct hot_page) { page, content };
	return true;
}

/* Later: takes note of what was written to. */
static bool note_hot(struct rewind *rewind, const struct mapping *mapping, char *page,
	uint64_t word, const char *content)
{
	bool is_there = (word & (PRESENT | SWAPPED)) != 0;

	if (maitred_rewind_is_wiped(rewind->image, (uintptr_t) page)) {
		/* It may vanish by itself. */
		return !is_there || add_hot(rewind, page, NULL);
	}
	content = content_at_mark(rewind, page, content);
	if (!is_there) {
		/* Memory with a content does not vanish unless it was unmapped. */
		return mapping->inode || !content || is_zero(content);
	}
	if ((word & PRESENT) && ((word & OF_FILE) || !(word & ALONE))) {
		return true;
	}
	return add_hot(rewind, page, content);
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

/* What is done here may be the first to touch a page, and is looked at once more then. */
static bool find_hot_pages(struct rewind *rewind)
{
	for (int i = 0; i < LOOKS_MAX; i++) {
		long before = faults();
		if (before == rewind->faults) {
			return true;
		}
		rewind->hot_count = 0;
		if (!for_pages(rewind, note_hot)) {
			return false;
		}
		rewind->faults = before;
	}
	return false;
}

/*
 * A mapping that was there at the mark has to be there, whole; heap and stack may have grown. What
 * is new goes if `drops`.
 */
static bool settle(
	struct rewind *rewind, const struct mapping *found, size_t *next, bool drops)
{
	uintptr_t seen = found->from;

	for (; *next < rewind->mapping_count && rewind->mappings[*next].from < found->to; (*next)++) {
		struct mapping *mapping = &rewind->mappings[*next];
		bool is_same = mapping->bits == found->bits && mapping->inode == found->inode
			&& mapping->device == found->device
			&& (!mapping->inode || mapping->offset - mapping->from == found->offset - found->from);
		bool is_stack = mapping->bits & MAPPING_STACK;
		uintptr_t end = mapping->bits & MAPPING_HEAP ? found->to : mapping->to;
		if (!is_same || mapping->from < seen || mapping->to > found->to) {
			rewind->lost = *mapping;
			return false;
		}
		if (is_stack) {
			mapping->from = seen;
		}
		if (drops && mapping->from > seen && munmap((void *) seen, mapping->from - seen) < 0) {
			return false;
		}
		seen = mapping->to = end;
	}
	return !drops || seen == found->to || munmap((void *) seen, found->to - seen) == 0;
}

static bool settle_all(struct rewind *rewind, bool drops)
{
	size_t next = 0;

	for (size_t i = 0; i < rewind->found_count; i++) {
		if (!settle(rewind, &rewind->found[i], &next, drops)) {
			return false;
		}
	}
	if (next < rewind->mapping_count) {
		rewind->lost = rewind->mappings[next];
	}
	return next == rewind->mapping_count;
}

/* Says which mapping is not what it was. */
static const char *name_lost(struct rewind *rewind)
{
	const struct mapping *lost = &rewind->lost;

	snprintf(rewind->reason, sizeof(rewind->reason),
		"its mappings are not what they were (%lx-%lx %c%c%c%c, inode %llu)",
		(unsigned long) lost->from, (unsigned long) lost->to,
		lost->bits & MAPPING_READ ? 'r' : '-', lost->bits & MAPPING_WRITE ? 'w' : '-',
		lost->bits & MAPPING_EXECUTE ? 'x' : '-', lost->bits & MAPPING_SHARED ? 's' : 'p',
		(unsigned long long) lost->inode);
	return rewind->reason;
}

/* Why what is mapped cannot be made what it was; NULL: it can. */
static const char *find_mappings(struct rewind *rewind)
{
	uintptr_t heap_end = (uintptr_t) syscall(SYS_brk, 0);
	ssize_t count;

	if (heap_end < rewind->heap_end) {
		heap_end = (uintptr_t) syscall(SYS_brk, rewind->heap_end);
	}
	if (heap_end < rewind->heap_end) {
		return "its heap has become smaller";
	}
	count = maitred_rewind_mappings(rewind->files.maps, rewind->text, rewind->found);
	if (count < 0) {
		return "its mappings are not known, or too many";
	}
	rewind->heap_end = heap_end;
	rewind->found_count = (size_t) count;
	/* Pages may have gone and others come. */
	rewind->faults = -1;
	return settle_all(rewind, false) ? NULL : name_lost(rewind);
}

/*
 * Why the process cannot go back; NULL: all is ready but its memory. Who does not go back goes on
 * for a moment, and needs the memory that it has: what is new goes last.
 */
static const char *unfit(struct rewind *rewind)
{
	struct sizes sizes;
	bool has_changed;
	const char *why = maitred_rewind_put_back(&rewind->outside);

	if (why) {
		return why;
	}
	/* Always: a thread may run on memory that was there before. */
	if (!maitred_rewind_is_alone(rewind->files.status, rewind->text)) {
		return "it has threads";
	}
	if (!maitred_rewind_sizes(rewind->files.statm, &sizes)) {
		return "its size is not known";
	}
	has_changed = memcmp(&sizes, &rewind->sizes, sizeof(sizes)) != 0;
	if (has_changed) {
		why = find_mappings(rewind);
	}
	if (why) {
		return why;
	}
	if (!find_hot_pages(rewind)) {
		return "it has changed too much memory";
	}
	if (has_changed
		&& (!settle_all(rewind, true)
			|| !maitred_rewind_sizes(rewind->files.statm, &rewind->sizes))) {
		return "its mappings cannot be taken away";
	}
	return NULL;
}

static void go_back(void)
{
	struct rewind *rewind = marked;

	rewind->why = unfit(rewind);
	if (rewind->why) {
		setcontext(&rewind->here);
	}
	for (size_t i = 0; i < rewind->hot_count; i++) {
		if (rewind->hot[i].content) {
			memcpy(rewind->hot[i].page, rewind->hot[i].content, PAGE_BYTES);
		} else {
			memset(rewind->hot[i].page, 0, PAGE_BYTES);
		}
	}
	rewind->state = AGAIN;
	setcontext(&rewind->mark);
}

static int take_mark(struct rewind *rewind)
{
	ssize_t count;

	if (!maitred_rewind_remember(&rewind->outside)) {
		return EMFILE;
	}
	rewind->heap_end = (uintptr_t) syscall(SYS_brk, 0);
	count = maitred_rewind_mappings(rewind->files.maps, rewind->text, rewind->mappings);
	if (count < 0) {
		return EOVERFLOW;
	}
	rewind->mapping_count = (size_t) count;
	if (!maitred_rewind_sizes(rewind->files.statm, &rewind->sizes)) {
		return EINVAL;
	}
	rewind->changed_count = 0;
	rewind->faults = -1;
	return for_pages(rewind, compare) ? 0 : E2BIG;
}

static void mark_aside(void)
{
	struct rewind *rewind = marked;

	rewind->error = take_mark(rewind);
	rewind->state = MARKED;
	setcontext(&rewind->mark);
}

/* Goes on in `function`, on a stack that nothing is put back on. */
static void step_aside(struct rewind *rewind, void (*function)(void))
{
	getcontext(&rewind->aside);
	rewind->aside.uc_stack.ss_sp = rewind->stack;
	rewind->aside.uc_stack.ss_size = sizeof(rewind->stack);
	rewind->aside.uc_link = NULL;
	sigfillset(&rewind->aside.uc_sigmask);
	makecontext(&rewind->aside, function, 0);
	swapcontext(&rewind->here, &rewind->aside);
}

int maitred_rewind_mark(struct rewind *rewind)
{
	rewind->state = MARKING;
	/* It returns here again and again. */
	getcontext(&rewind->mark);
	if (*(volatile enum state *) &rewind->state == MARKING) {
		step_aside(rewind, mark_aside);
	}
	if (rewind->error) {
		return -rewind->error;
	}
	return rewind->state == AGAIN ? 1 : 0;
}

const char *maitred_rewind_back(struct rewind *rewind)
{
	step_aside(rewind, go_back);
	return rewind->why;
}

/* Whether it is the first of all copies that asks. */
bool maitred_rewind_tells(struct image *image)
{
	return __atomic_exchange_n(&image->told, 1, __ATOMIC_RELAXED) == 0;
}

uint64_t *maitred_rewind_carried(struct rewind *rewind)
{
	return rewind->carried;
}

struct rewind *maitred_rewind_prepare(struct image *image, const struct rewind_files *files,
	const int *numbers, size_t count)
{
	struct rewind *rewind;

	if (count > KNOWN_MAX) {
		errno = E2BIG;
		return NULL;
	}
	rewind = mmap(NULL, sizeof(*rewind), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (rewind == MAP_FAILED) {
		return NULL;
	}
	rewind->image = image;
	rewind->files = *files;
	rewind->outside.known_count = count;
	for (size_t i = 0; i < rewind->outside.known_count; i++) {
		rewind->outside.known[i].number = numbers[i];
	}
	marked = rewind;
	return rewind;
}
