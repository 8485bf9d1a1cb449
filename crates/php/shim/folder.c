/*
 * The working directory. A script runs in its own folder. php-fpm queries the current one, changes
 * it, and changes back for every request; here it is changed only when the script's folder differs
 * from the previous one, or the previous script has changed it itself. The latter is detected by
 * interposing the C library: in a program that is linked with this file and exports its dynamic
 * symbols, libphp's calls of chdir() and fchdir() arrive here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shim.h"

#include "php.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void maitred_folder_enter(const char *script, size_t length);
void maitred_folder_return(void);
void maitred_folder_leave(bool seen);
bool maitred_keeps_folder(void);

/* The directory in which requests start and end, if there is one; empty otherwise. */
static char home[PATH_MAX];

/* It matters only where it is visible: for relative paths, and for code that runs at the end. */
static bool seldom_home;

/*
 * The last folder, and the time of the change. A path may refer to another folder later (a
 * deployment changes a symbolic link), so it is entered again after a second.
 */
static char entered[PATH_MAX];
static size_t entered_length;
static time_t entered_at;

int chdir(const char *path)
{
	entered_length = 0;
	return (int) syscall(SYS_chdir, path);
}

int fchdir(int descriptor)
{
	entered_length = 0;
	return (int) syscall(SYS_fchdir, descriptor);
}

void maitred_folder_enter(const char *script, size_t length)
{
	const char *slash = memrchr(script, '/', length);
	size_t folder_length = slash ? (size_t) (slash - script) : 0;
	time_t now;

	if (!slash || folder_length >= sizeof(entered)) {
		return;
	}
	if (folder_length == 0) {
		folder_length = 1;
	}
	now = time(NULL);
	if (maitred_php_interposed() && folder_length == entered_length && now == entered_at
		&& memcmp(entered, script, folder_length) == 0) {
		return;
	}
	memcpy(entered, script, folder_length);
	entered[folder_length] = '\0';
	entered_at = now;
	entered_length = syscall(SYS_chdir, entered) == 0 ? folder_length : 0;
}

static void go_home(void)
{
	entered_length = 0;
	/* If the folder has been removed, relative paths fail, as in php-fpm. */
	(void) !syscall(SYS_chdir, home);
}

void maitred_folder_return(void)
{
	if (home[0] && !(seldom_home && maitred_php_interposed())) {
		go_home();
	}
}

void maitred_folder_leave(bool seen)
{
	if (home[0] && (seen || !(seldom_home && maitred_php_interposed()))) {
		go_home();
	}
}

/* libphp does not export the limit itself. The directive is one of php.ini (PHP_INI_SYSTEM). */
static uint64_t realpath_limit(void)
{
	const char *text = zend_ini_string(ZEND_STRL("realpath_cache_size"), 0);
	char *unit = NULL;
	long long number = text ? strtoll(text, &unit, 0) : 0;

	if (number <= 0) {
		return 0;
	}
	switch (*unit) {
	case 'k':
	case 'K':
		return (uint64_t) number << 10;
	case 'm':
	case 'M':
		return (uint64_t) number << 20;
	case 'g':
	case 'G':
		return (uint64_t) number << 30;
	default:
		return (uint64_t) number;
	}
}

struct maitred_realpath_cache maitred_php_realpath_cache(void)
{
	static bool is_known;
	static uint64_t limit;
	zend_long used = realpath_cache_size();
	struct maitred_realpath_cache cache = { 0, 0 };

	if (!is_known) {
		limit = realpath_limit();
		is_known = true;
	}
	cache.used = used > 0 ? (uint64_t) used : 0;
	cache.limit = limit;
	return cache;
}

int maitred_php_settle(const char *folder)
{
	size_t length = folder ? strlen(folder) : 0;

	realpath_cache_clean();
	entered_length = 0;
	if (length == 0) {
		seldom_home = maitred_keeps_folder() && getcwd(home, sizeof(home)) != NULL;
		return 0;
	}
	if (length >= sizeof(home)) {
		return ENAMETOOLONG;
	}
	if (syscall(SYS_chdir, folder) != 0) {
		return errno;
	}
	memcpy(home, folder, length + 1);
	return 0;
}
