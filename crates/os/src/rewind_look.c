/*
 * What a process sees of itself in /proc, read without taking memory: /proc/self/maps, statm and
 * status (proc(5)); and the image of its memory that its copies go back to.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rewind.h"

#define PRESENT_OR_SWAPPED (UINT64_C(3) << 62)
#define OF_FILE (UINT64_C(1) << 61)

static const char *hex(const char *at, uint64_t *number)
{
	for (*number = 0;; at++) {
		unsigned digit = *at >= '0' && *at <= '9' ? (unsigned) (*at - '0')
			: *at >= 'a' && *at <= 'f'            ? (unsigned) (*at - 'a' + 10)
												  : 16;
		if (digit == 16) {
			return at;
		}
		*number = *number << 4 | digit;
	}
}

static const char *decimal(const char *at, uint64_t *number)
{
	for (*number = 0; *at >= '0' && *at <= '9'; at++) {
		*number = *number * 10 + (uint64_t) (*at - '0');
	}
	return at;
}

/* FROM-TO rwxp OFFSET MAJOR:MINOR INODE NAME */
static void parse(const char *line, struct mapping *mapping)
{
	uint64_t from, to, major, minor;
	const char *at = hex(line, &from);

	at = hex(at + 1, &to) + 1;
	mapping->from = (uintptr_t) from;
	mapping->to = (uintptr_t) to;
	mapping->bits = (at[0] == 'r' ? MAPPING_READ : 0) | (at[1] == 'w' ? MAPPING_WRITE : 0)
		| (at[2] == 'x' ? MAPPING_EXECUTE : 0) | (at[3] == 's' ? MAPPING_SHARED : 0);
	at = hex(at + 5, &mapping->offset);
	at = hex(at + 1, &major);
	at = hex(at + 1, &minor);
	mapping->device = major << 32 | minor;
	at = decimal(at + 1, &mapping->inode);
	at += strspn(at, " ");
	mapping->bits |= strcmp(at, "[heap]") == 0 ? MAPPING_HEAP : 0;
	mapping->bits |= strcmp(at, "[stack]") == 0 ? MAPPING_STACK : 0;
}

/* The kernel divides and joins mappings as it likes: those that go on as they are count as one. */
static bool joins(const struct mapping *before, const struct mapping *mapping)
{
	return before->to == mapping->from && before->bits == mapping->bits
		&& before->inode == mapping->inode && before->device == mapping->device
		&& (!before->inode
			|| before->offset + (before->to - before->from) == mapping->offset);
}

/* Reads all mappings; `text` has TEXT_BYTES, `mappings` MAPPINGS_MAX.
 * Returns their number, or -1. */
ssize_t maitred_rewind_mappings(int file, char *text, struct mapping *mappings)
{
	size_t count = 0;
	size_t held = 0;
	off_t offset = 0;

	for (;;) {
		ssize_t got = pread(file, text + held, TEXT_BYTES - 1 - held, offset);
		char *line = text;
		char *end;
		if (got <= 0) {
			return got == 0 && held == 0 ? (ssize_t) count : -1;
		}
		offset += got;
		held += (size_t) got;
		while ((end = memchr(line, '\n', held)) != NULL) {
			struct mapping mapping;
			*end = '\0';
			parse(line, &mapping);
			held -= (size_t) (end + 1 - line);
			line = end + 1;
			if (count > 0 && joins(&mappings[count - 1], &mapping)) {
				mappings[count - 1].to = mapping.to;
				continue;
			}
			if (count == MAPPINGS_MAX) {
				return -1;
			}
			mappings[count++] = mapping;
		}
		memmove(text, line, held);
	}
}

bool maitred_rewind_sizes(int file, struct sizes *sizes)
{
	char text[256];
	ssize_t length = pread(file, text, sizeof(text) - 1, 0);
	const char *at = text;
	uint64_t number = 0;

	if (length <= 0) {
		return false;
	}
	text[length] = '\0';
	at = decimal(at, &sizes->all);
	for (int field = 1; field < 6 && *at == ' '; field++) {
		at = decimal(at + 1, &number);
	}
	sizes->data = number;
	return true;
}

static bool has_one_thread(int status, char *text)
{
	ssize_t length = pread(status, text, TEXT_BYTES - 1, 0);
	const char *at;
	uint64_t count = 0;

	if (length <= 0) {
		return false;
	}
	text[length] = '\0';
	at = strstr(text, "\nThreads:\t");
	if (at) {
		decimal(at + strlen("\nThreads:\t"), &count);
	}
	return count == 1;
}

/*
 * Whether this thread alone uses the process's memory. unshare(2) with CLONE_VM has no effect
 * then, and fails with EINVAL otherwise, for a fiftieth of the time that the kernel takes to write
 * /proc/self/status. A container's filter of system calls may refuse it.
 */
bool maitred_rewind_is_alone(int status, char *text)
{
	if (unshare(CLONE_VM) == 0) {
		return true;
	}
	return errno != EINVAL && has_one_thread(status, text);
}

bool maitred_rewind_is_wiped(const struct image *image, uintptr_t page)
{
	for (size_t i = 0; i < image->wiped_count; i++) {
		if (page >= image->wiped[i].from && page < image->wiped[i].to) {
			return true;
		}
	}
	return false;
}

static bool is_taken(const struct mapping *mapping)
{
	return (mapping->bits & (MAPPING_WRITE | MAPPING_READ | MAPPING_SHARED))
		== (MAPPING_WRITE | MAPPING_READ);
}

static size_t pages_of(const struct mapping *mapping)
{
	return (mapping->to - mapping->from) / PAGE_BYTES;
}

static bool take_pages(struct image *image, const struct mapping *mapping, int pagemap,
	uint32_t *places, size_t *next)
{
	for (size_t k = 0; k < pages_of(mapping); k++) {
		const char *page = (const char *) mapping->from + k * PAGE_BYTES;
		off_t at = (off_t) ((uintptr_t) page / PAGE_BYTES * sizeof(uint64_t));
		uint64_t word;
		if (pread(pagemap, &word, sizeof(word), at) != sizeof(word)) {
			return false;
		}
		if (maitred_rewind_is_wiped(image, (uintptr_t) page)) {
			continue;
		}
		/* That of a file may be changed later, and its file has the content until then. */
		if ((word & PRESENT_OR_SWAPPED) || mapping->inode) {
			memcpy(image->pages + *next * PAGE_BYTES, page, PAGE_BYTES);
			places[k] = (uint32_t) ++*next;
		}
	}
	return true;
}

static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/*
 * Takes the image of this process; its copies have it, too. It holds what each page was at some
 * moment: a copy compares all of it at its mark. NULL: it could not be taken.
 */
struct image *maitred_rewind_image(
	const struct rewind_files *files, const struct wiped *wiped, size_t wiped_count)
{
	size_t total = 0;
	size_t next = 0;
	struct mapping *mappings = shared(MAPPINGS_MAX * sizeof(*mappings));
	char *text = shared(TEXT_BYTES);
	struct image *image = shared(sizeof(*image) + MAPPINGS_MAX * sizeof(*image->regions));
	ssize_t count;

	if (!mappings || !text || !image || wiped_count > WIPED_MAX
		|| sysconf(_SC_PAGESIZE) != PAGE_BYTES) {
		return NULL;
	}
	memcpy(image->wiped, wiped, wiped_count * sizeof(*wiped));
	image->wiped_count = wiped_count;
	count = maitred_rewind_mappings(files->maps, text, mappings);
	for (ssize_t i = 0; i < count; i++) {
		total += is_taken(&mappings[i]) ? pages_of(&mappings[i]) : 0;
	}
	image->regions = (struct region *) (image + 1);
	image->places = shared(total * sizeof(*image->places));
	image->pages = shared(total * PAGE_BYTES);
	if (count < 0 || total >= UINT32_MAX || !image->places || !image->pages) {
		return NULL;
	}
	total = 0;
	for (ssize_t i = 0; i < count; i++) {
		const struct mapping *mapping = &mappings[i];
		if (!is_taken(mapping)) {
			continue;
		}
		image->regions[image->count++] = (struct region) { mapping->from, mapping->to, total };
		if (!take_pages(image, mapping, files->pagemap, image->places + total, &next)) {
			return NULL;
		}
		total += pages_of(mapping);
	}
	munmap(mappings, MAPPINGS_MAX * sizeof(*mappings));
	munmap(text, TEXT_BYTES);
	mprotect(image->pages, total * PAGE_BYTES, PROT_READ);
	return image;
}
