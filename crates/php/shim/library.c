/* The version of the loaded libphp, without calling it: of another minor version, its functions and
 * structures may be others. */

#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <main/php_version.h>
#include <string.h>

/* The header that libphp has as a constant (SAPI_PHP_VERSION_HEADER), up to the version. */
#define MARK "X-Powered-By: PHP/"

struct search {
	/* An address in the library. */
	uintptr_t inside;
	char *version;
	size_t size;
};

const char *maitred_php_built(void)
{
	return PHP_VERSION;
}

static bool find_in(const struct dl_phdr_info *object, struct search *search)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) || !(segment->p_flags & PF_R)) {
			continue;
		}
		const char *start = (const char *) (object->dlpi_addr + segment->p_vaddr);
		const char *end = start + segment->p_filesz;
		const char *found = memmem(start, segment->p_filesz, MARK, sizeof(MARK) - 1);
		if (!found) {
			continue;
		}
		found += sizeof(MARK) - 1;
		size_t length = strnlen(found, end - found);
		length = length < search->size ? length : search->size - 1;
		memcpy(search->version, found, length);
		search->version[length] = '\0';
		return true;
	}
	return false;
}

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
	struct search *search = data;

	(void) size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == PT_LOAD && search->inside - start < segment->p_memsz) {
			find_in(object, search);
			return 1;
		}
	}
	return 0;
}

void maitred_php_loaded(char *version, size_t size)
{
	struct search search = {0, version, size};

	version[0] = '\0';
	/* Not its address here, which may be that of a jump in this program. */
	search.inside = (uintptr_t) dlsym(RTLD_DEFAULT, "php_module_startup");
	if (search.inside) {
		dl_iterate_phdr(visit, &search);
	}
}
