/*
 * The connections that an application's boot has opened: interposes the C library's connect(), as
 * folder.c does with chdir(). A copy must not share such a connection, and the log names the line
 * of the file that has opened it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Most connections of a boot that are remembered, the newest ones. */
#define KEPT 32

static struct {
	int descriptor;
	uint32_t line;
	char file[MAITRED_PATH_BYTES];
} kept[KEPT];

static size_t count;

static void note(int descriptor)
{
	const char *file = zend_get_executed_filename();
	size_t place;

	for (place = 0; place < count && place < KEPT; place++) {
		if (kept[place].descriptor == descriptor) {
			break;
		}
	}
	if (place == count || place == KEPT) {
		place = count++ % KEPT;
	}
	kept[place].descriptor = descriptor;
	kept[place].line = zend_get_executed_lineno();
	strncpy(kept[place].file, file, sizeof(kept[place].file) - 1);
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
	/* Threads of a library do not run the script. */
	if (maitred_engine.boots && EG(current_execute_data) && syscall(SYS_gettid) == getpid()) {
		note(descriptor);
	}
	return (int) syscall(SYS_connect, descriptor, address, length);
}

static int drop_connection(zval *resource)
{
	(void) resource;
	return ZEND_HASH_APPLY_REMOVE;
}

/*
 * opcache.preload runs a script in the process that all workers are forked from: a persistent
 * connection of it would be one for all of them, and each would read replies to others.
 */
void maitred_close_preloaded_connections(void)
{
	const char *script = zend_ini_string("opcache.preload", sizeof("opcache.preload") - 1, 0);

	if (script && *script) {
		zend_hash_reverse_apply(&EG(persistent_list), drop_connection);
	}
}

const char *maitred_php_connected_at(int descriptor, uint32_t *line)
{
	for (size_t i = 0; i < count && i < KEPT; i++) {
		if (kept[i].descriptor == descriptor) {
			*line = kept[i].line;
			return kept[i].file;
		}
	}
	return NULL;
}
