/* Whether libphp's calls reach the functions of connections.c, folder.c and timers.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shim.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* The table also keeps the linker from dropping functions that nothing in the program calls. */
static const struct {
	const char *name;
	void *address;
} functions[] = {
	{ "chdir", (void *) chdir },
	{ "connect", (void *) connect },
	{ "fchdir", (void *) fchdir },
	{ "setitimer", (void *) setitimer },
	{ "sigaction", (void *) sigaction },
	{ "sigprocmask", (void *) sigprocmask },
};

static bool all_found(void)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (dlsym(RTLD_DEFAULT, functions[i].name) != functions[i].address) {
			return false;
		}
	}
	return true;
}

bool maitred_php_interposed(void)
{
	static int known = -1;

	if (known < 0) {
		known = all_found();
	}
	return known;
}
