/*
 * The limits of a request. In a worker script the next request is another client's, so a changed
 * limit applies to its own request alone: max_execution_time, which set_time_limit() changes, and
 * memory_limit.
 */
#include "engine.h"

#include <string.h>

static struct {
	zend_long time;                 /* max_execution_time at the start of the request, in seconds */
	zend_ini_entry *memory;         /* memory_limit; NULL: no request has started yet */
	zend_string *memory_found;      /* its value at the start of the request */
} limits;

static void note_memory_limit(void)
{
	if (UNEXPECTED(!limits.memory)) {
		limits.memory = zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("memory_limit"));
	}
	if (EXPECTED(limits.memory->value == limits.memory_found)) {
		return;
	}
	if (limits.memory_found) {
		zend_string_release(limits.memory_found);
	}
	limits.memory_found = zend_string_copy(limits.memory->value);
}

void maitred_limits_begin(void)
{
	note_memory_limit();
	limits.time = INI_INT("max_execution_time");
	zend_set_timeout(limits.time, 0);
}

static void restore_time_limit(void)
{
	char value[MAX_LENGTH_OF_LONG];
	zend_string *name;

	if (EXPECTED(EG(timeout_seconds) == limits.time)) {
		return;
	}
	snprintf(value, sizeof(value), ZEND_LONG_FMT, limits.time);
	name = zend_string_init(ZEND_STRL("max_execution_time"), 0);
	zend_alter_ini_entry_chars(name, value, strlen(value), PHP_INI_USER, PHP_INI_STAGE_RUNTIME);
	zend_string_release(name);
}

void maitred_limits_end(void)
{
	restore_time_limit();
	if (UNEXPECTED(limits.memory->value != limits.memory_found)) {
		/* At this stage PHP accepts a value below its usage, and keeps the previous limit. */
		zend_alter_ini_entry_ex(
			limits.memory->name, limits.memory_found, PHP_INI_USER, PHP_INI_STAGE_DEACTIVATE, false);
	}
}

void maitred_limits_rest(void)
{
	if (EXPECTED(limits.memory)) {
		maitred_limits_end();
	}
}

bool maitred_limit_memory(void)
{
	size_t limit = (size_t) PG(memory_limit);

	if (EXPECTED(zend_memory_usage(true) <= limit)) {
		return zend_set_memory_limit(limit) == SUCCESS;
	}
	zend_mm_gc(zend_mm_get_heap());
	/*
	 * Twice: if cached chunks are what is too much, the first call frees them and reports success,
	 * but sets nothing (zend_set_memory_limit() of php-src; the 8.2.36 of Debian 12 does set it).
	 */
	zend_set_memory_limit(limit);
	return zend_set_memory_limit(limit) == SUCCESS;
}

void maitred_put_memory_limit_back(void)
{
	if (!maitred_limit_memory()) {
		zend_set_memory_limit(zend_memory_usage(true));
	}
}
