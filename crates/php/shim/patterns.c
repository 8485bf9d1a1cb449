/*
 * Regular expressions of requests, compiled once for all copies of a booted application. PHP's processes
 * keep what they have compiled from one request to the next, and a copy has served none, or has forgotten
 * it. So children that are asked ahead of clients tell which they have compiled, and the process that is
 * copied does it, too. No script sees a difference but in time.
 */
#include "engine.h"

#include <ctype.h>
#include <string.h>
#include <sys/mman.h>

#include <ext/pcre/php_pcre.h>
#include <ext/standard/basic_functions.h>

/* Room for the expressions of one child, in bytes. */
#define TOLD_BYTES (256 * 1024)

/* Written by a child, and read when it has ended. */
struct told {
	uint32_t used;   /* bytes of `texts`: for each the length, and the characters */
	char texts[TOLD_BYTES];
};

static struct told *told;

/* With a locale, the cache has them under other names, and they mean something else. */
static bool is_in_locale(void)
{
	return BG(ctype_string) != NULL;
}

void maitred_php_patterns_share(void)
{
	void *memory = MAP_FAILED;

	if (!is_in_locale()) {
		memory = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	told = memory == MAP_FAILED ? NULL : memory;
}

void maitred_php_patterns_tell(void)
{
	zend_string *key;

	if (!told || is_in_locale()) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY(&PCRE_G(pcre_cache), key) {
		uint32_t length = (uint32_t) ZSTR_LEN(key);
		if (sizeof(length) + ZSTR_LEN(key) > TOLD_BYTES - told->used) {
			return;
		}
		memcpy(told->texts + told->used, &length, sizeof(length));
		memcpy(told->texts + told->used + sizeof(length), ZSTR_VAL(key), length);
		told->used += sizeof(length) + length;
	} ZEND_HASH_FOREACH_END();
}

/* Only what cannot be the name of a locale with an expression behind it. */
static bool begins_with_delimiter(zend_string *text)
{
	unsigned char first = (unsigned char) ZSTR_VAL(text)[0];

	return ispunct(first) && first != '\\';
}

static void compile(const char *text, size_t length)
{
	zend_string *pattern = zend_string_init(text, length, 0);

	if (begins_with_delimiter(pattern)) {
		/* Does nothing if it is in the cache. */
		pcre_get_compiled_regex_cache(pattern);
	}
	zend_string_release(pattern);
}

static void compile_all(const struct told *from)
{
	uint32_t used = MIN(from->used, TOLD_BYTES);
	uint32_t length;

	for (uint32_t at = 0; at + sizeof(length) <= used; at += length) {
		memcpy(&length, from->texts + at, sizeof(length));
		at += sizeof(length);
		if (length > used - at) {
			return;
		}
		compile(from->texts + at, length);
	}
}

void maitred_php_patterns_learn(void)
{
	int reporting = EG(error_reporting);
	int handled = EG(user_error_handler_error_reporting);

	if (!told) {
		return;
	}
	/* They have been compiled before; should that fail here, nobody need hear of it. */
	EG(error_reporting) = 0;
	EG(user_error_handler_error_reporting) = 0;
	zend_try {
		compile_all(told);
	} zend_end_try();
	EG(error_reporting) = reporting;
	EG(user_error_handler_error_reporting) = handled;
	munmap(told, sizeof(*told));
	told = NULL;
}
