/*
 * Regular expressions of requests, compiled once for all copies of a booted application. PHP's
 * processes cache compiled expressions across requests, but a copy has served none, or has dropped
 * them. So the children of warm-up requests report which ones they have compiled, and the process
 * that is copied compiles them, too. Scripts only see a difference in time.
 */
#include "engine.h"

#include <ctype.h>
#include <string.h>
#include <sys/mman.h>

#include <ext/pcre/php_pcre.h>
#include <ext/standard/basic_functions.h>

/* Space for the expressions of one child, in bytes. */
#define TOLD_BYTES (256 * 1024)

/* Written by a child, and read after its exit. */
struct told {
	uint32_t used;   /* bytes of `texts`: for each one the length, and the characters */
	char texts[TOLD_BYTES];
};

static struct told *told;

/* With a locale, the cache uses other keys, and the expressions have another meaning. */
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

/* Only keys that cannot be a locale name followed by an expression. */
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
	/* Read once: processes that the child has left behind may still write to it. */
	uint32_t told_of = *(const volatile uint32_t *) &from->used;
	uint32_t used = MIN(told_of, TOLD_BYTES);
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

/* The error state that a script can query, and that of the engine. */
struct errors {
	int reporting, handled, exit_status, response_code, last_type, last_line;
	zend_string *last_message, *last_file;
	php_pcre_error_code of_pcre;
	zend_execute_data *running;
	bool is_unclean, is_gc_protected;
};

/* Suppresses errors from here on. */
static struct errors put_errors_aside(void)
{
	struct errors aside = {
		.reporting = EG(error_reporting),
		.handled = EG(user_error_handler_error_reporting),
		.exit_status = EG(exit_status),
		.response_code = SG(sapi_headers).http_response_code,
		.last_type = PG(last_error_type),
		.last_line = PG(last_error_lineno),
		.last_message = PG(last_error_message),
		.last_file = PG(last_error_file),
		.of_pcre = PCRE_G(error_code),
		.running = EG(current_execute_data),
		.is_unclean = CG(unclean_shutdown),
		.is_gc_protected = gc_protected(),
	};
	PG(last_error_message) = NULL;
	PG(last_error_file) = NULL;
	EG(error_reporting) = 0;
	EG(user_error_handler_error_reporting) = 0;
	return aside;
}

static void put_errors_back(const struct errors *aside)
{
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
	}
	EG(error_reporting) = aside->reporting;
	EG(user_error_handler_error_reporting) = aside->handled;
	EG(exit_status) = aside->exit_status;
	SG(sapi_headers).http_response_code = aside->response_code;
	PG(last_error_type) = aside->last_type;
	PG(last_error_lineno) = aside->last_line;
	PG(last_error_message) = aside->last_message;
	PG(last_error_file) = aside->last_file;
	PCRE_G(error_code) = aside->of_pcre;
	/* A fatal error changes these before the longjmp. */
	EG(current_execute_data) = aside->running;
	CG(unclean_shutdown) = aside->is_unclean;
	gc_protect(aside->is_gc_protected);
}

void maitred_php_patterns_learn(void)
{
	struct errors aside;

	if (!told) {
		return;
	}
	/*
	 * They have compiled before; an error here is not reported. PHP might report exhausted memory
	 * only later, when the script continues, in every copy: so the limit does not apply to the
	 * memory of these expressions, at most TOLD_BYTES.
	 */
	aside = put_errors_aside();
	zend_set_memory_limit((size_t) -1);
	zend_try {
		compile_all(told);
	} zend_end_try();
	maitred_put_memory_limit_back();
	put_errors_back(&aside);
	munmap(told, sizeof(*told));
	told = NULL;
}
