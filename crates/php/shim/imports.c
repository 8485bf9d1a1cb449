/*
 * The functions that a loaded library imports: words of its global offset table, which the dynamic
 * linker fills. PHP loads its extensions so that they find the C library before this program
 * (RTLD_DEEPBIND), so a function that the program exports does not reach them.
 */
#include "imports.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Most words of one library for the same functions; a linker creates one for each, at times two. */
#define WORDS_MAX 8

#if defined(__x86_64__)
#define IS_IMPORT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

#ifdef IS_IMPORT

struct library {
	/* An address in the library. */
	uintptr_t inside;
	uintptr_t base;
	const ElfW(Dyn) *dynamic;
	/* What the dynamic linker has made read-only, in whole pages. */
	uintptr_t constant;
	uintptr_t constant_end;
};

struct imports {
	const struct library *of;
	const char *const *names;
	void **words[WORDS_MAX];
	size_t count;
	/* A word does not have the expected address, or is of an unknown kind. */
	bool is_odd;
};

static int find_library(struct dl_phdr_info *object, size_t size, void *data)
{
	struct library *library = data;
	uintptr_t page_mask;
	bool found = false;

	(void) size;
	for (int i = 0; i < object->dlpi_phnum && !found; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr;
		found = segment->p_type == PT_LOAD && library->inside - start < segment->p_memsz;
	}
	if (!found) {
		return 0;
	}
	library->base = object->dlpi_addr;
	page_mask = ~(uintptr_t) (sysconf(_SC_PAGESIZE) - 1);
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		if (segment->p_type == PT_DYNAMIC) {
			library->dynamic = (const void *) (library->base + segment->p_vaddr);
		} else if (segment->p_type == PT_GNU_RELRO) {
			uintptr_t start = library->base + segment->p_vaddr;
			library->constant = start & page_mask;
			library->constant_end = (start + segment->p_memsz) & page_mask;
		}
	}
	return 1;
}

static ElfW(Xword) value_of(const struct library *library, ElfW(Sxword) tag)
{
	const ElfW(Dyn) *entry = library->dynamic;

	while (entry->d_tag != DT_NULL && entry->d_tag != tag) {
		entry++;
	}
	return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/* The dynamic linker has added the base to addresses, but not on every processor. */
static const void *address_of(const struct library *library, ElfW(Sxword) tag)
{
	uintptr_t value = value_of(library, tag);

	return (const void *) (value && value < library->base ? value + library->base : value);
}

static bool is_wanted(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name)) {
		names++;
	}
	return *names != NULL;
}

static void look_at(struct imports *imports, ElfW(Sxword) table, ElfW(Sxword) table_bytes)
{
	const struct library *library = imports->of;
	const ElfW(Rela) *entry = address_of(library, table);
	const ElfW(Sym) *symbols = address_of(library, DT_SYMTAB);
	const char *strings = address_of(library, DT_STRTAB);
	size_t count = value_of(library, table_bytes) / sizeof(*entry);

	if (!entry || !symbols || !strings) {
		return;
	}
	for (; count > 0; count--, entry++) {
		size_t symbol = ELF64_R_SYM(entry->r_info);
		const char *name = strings + symbols[symbol].st_name;
		void **word = (void **) (library->base + entry->r_offset);

		if (symbol == 0 || !is_wanted(name, imports->names)) {
			continue;
		}
		if (!IS_IMPORT(ELF64_R_TYPE(entry->r_info)) || imports->count == WORDS_MAX
			|| *word != dlsym(RTLD_DEFAULT, name)) {
			imports->is_odd = true;
			return;
		}
		imports->words[imports->count++] = word;
	}
}

static bool write_word(const struct library *library, void **word, void *function)
{
	size_t page_bytes = (size_t) sysconf(_SC_PAGESIZE);
	void *page = (void *) ((uintptr_t) word & ~(uintptr_t) (page_bytes - 1));
	bool is_constant = (uintptr_t) word >= library->constant
		&& (uintptr_t) word < library->constant_end;

	if (is_constant && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
		return false;
	}
	*word = function;
	if (is_constant) {
		mprotect(page, page_bytes, PROT_READ);
	}
	return true;
}

bool maitred_replace_import(const void *inside, const char *const *names, void *function)
{
	struct library library = { .inside = (uintptr_t) inside };
	struct imports imports = { .of = &library, .names = names };
	size_t written = 0;

	if (!dl_iterate_phdr(find_library, &library) || !library.dynamic
		|| (value_of(&library, DT_JMPREL) && value_of(&library, DT_PLTREL) != DT_RELA)) {
		return false;
	}
	look_at(&imports, DT_JMPREL, DT_PLTRELSZ);
	look_at(&imports, DT_RELA, DT_RELASZ);
	if (imports.is_odd || imports.count == 0) {
		return false;
	}
	while (written < imports.count && write_word(&library, imports.words[written], function)) {
		written++;
	}
	return written == imports.count;
}

#else

bool maitred_replace_import(const void *inside, const char *const *names, void *function)
{
	(void) inside;
	(void) names;
	(void) function;
	return false;
}

#endif
