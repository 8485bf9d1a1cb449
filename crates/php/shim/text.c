/* libphp's machine code in memory: where it is, and its replacement by a mapping of a file. */

#include "shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE_BYTES (2u << 20)

struct search {
	/* An address in the library. */
	uintptr_t inside;
	struct maitred_library *library;
};

static void read_build_id(const char *notes, size_t length, struct maitred_library *library)
{
	while (length >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *) notes;
		size_t name = (note->n_namesz + 3) & ~(size_t) 3;
		size_t content = (note->n_descsz + 3) & ~(size_t) 3;

		if (length - sizeof(*note) < name || length - sizeof(*note) - name < content) {
			return;
		}
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof(ELF_NOTE_GNU)
			&& !memcmp(note + 1, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU))) {
			library->build_id = (const unsigned char *) (note + 1) + name;
			library->build_id_bytes = note->n_descsz;
			return;
		}
		notes += sizeof(*note) + name + content;
		length -= sizeof(*note) + name + content;
	}
}

static bool contains(const struct dl_phdr_info *object, uintptr_t address)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == PT_LOAD && address - start < segment->p_memsz) {
			return true;
		}
	}
	return false;
}

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
	struct search *search = data;
	struct maitred_library *library = search->library;

	(void) size;
	if (!contains(object, search->inside)) {
		return 0;
	}
	library->base = object->dlpi_addr;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t end = segment->p_vaddr + segment->p_memsz;
		if (segment->p_type == PT_LOAD && end > library->end) {
			library->end = end;
		}
		if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X)) {
			/* With OPcache as a part of libphp there is a second one, of one function: while that
			 * moves the code to huge pages, it must not be moved itself. */
			if (segment->p_filesz > library->code_bytes) {
				library->code = segment->p_vaddr;
				library->code_bytes = segment->p_filesz;
			}
		} else if (segment->p_type == PT_GNU_RELRO) {
			library->constant = segment->p_vaddr;
			library->constant_bytes = segment->p_memsz;
		} else if (segment->p_type == PT_NOTE && !library->build_id) {
			read_build_id((const char *) object->dlpi_addr + segment->p_vaddr,
				segment->p_memsz, library);
		}
	}
	return 1;
}

void maitred_php_library(struct maitred_library *library)
{
	struct search search = {0, library};

	memset(library, 0, sizeof(*library));
	/* Not its address here, which may be that of a jump in this program. */
	search.inside = (uintptr_t) dlsym(RTLD_DEFAULT, "php_module_startup");
	if (search.inside) {
		dl_iterate_phdr(visit, &search);
	}
}

bool maitred_php_replace_text(uintptr_t start, size_t bytes, int file)
{
	void *mapping = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);

	if (mapping == MAP_FAILED) {
		return false;
	}
	/* In one step: no code is missing in between. */
	if (mremap(mapping, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *) start) == MAP_FAILED) {
		munmap(mapping, bytes);
		return false;
	}
	return true;
}

void maitred_php_join_pages(int file, size_t bytes)
{
	/* The kernel joins pages where address and offset in the file are multiples of this size. */
	char *space = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start;

	if (space == MAP_FAILED) {
		return;
	}
	start = (char *) (((uintptr_t) space + HUGE_PAGE_BYTES - 1) & ~(uintptr_t) (HUGE_PAGE_BYTES - 1));
	if (mmap(start, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED) {
		madvise(start, bytes & ~(size_t) (HUGE_PAGE_BYTES - 1), MADV_COLLAPSE);
	}
	munmap(space, bytes + HUGE_PAGE_BYTES);
}
