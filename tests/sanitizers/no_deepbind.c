/* Takes RTLD_DEEPBIND out of dlopen(3): a library that is loaded with it would not see the
 * functions that AddressSanitizer replaces. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *path, int mode)
{
	static void *(*next)(const char *, int);

	if (!next)
		next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	return next(path, mode & ~RTLD_DEEPBIND);
}
