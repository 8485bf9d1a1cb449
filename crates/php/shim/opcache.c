/*
 * OPcache statistics, and warming the cache. Both use OPcache's own functions, called by their
 * addresses in its module: `disable_functions` hides them from scripts and `opcache.restrict_api`
 * limits them to a folder, but neither is meant for the server. Every query and every script is a
 * request of its own, which runs no code of the pool and logs nothing.
 */
#include "engine.h"

#include <string.h>

#include <zend_exceptions.h>

/*
 * The share of OPcache's memory and keys that is left to requests, as a divisor: filling either
 * makes OPcache drop everything and start over.
 */
#define RESERVE_PART 8

/* Bytes of OPcache's memory per byte of a script. Code takes one to three; this is the worst case.
 */
#define GROWTH 8

/*
 * Scripts and strings count as full when less than this share is free (a divisor): the next one may
 * not fit. OPcache itself reports full below 64 KB, and until then compiles larger scripts for
 * every request.
 */
#define LEFT_PART 64

/* Memory ran out: PHP must not be called any more. */
static bool exhausted;

/* The compile function below OPcache. */
static zend_op_array *(*compile_before)(zend_file_handle *file, int type);

static void drop_log(
	void *exchange, int level, bool to_client, const char *message, size_t length)
{
	(void) exchange;
	(void) level;
	(void) to_client;
	(void) message;
	(void) length;
}

/* The response counts as finished from the start, so no other callback is called. */
static const struct maitred_callbacks silent = { .log = drop_log };
static const struct maitred_request no_request = { .query_string = "", .content_type = "" };

/* The two messages of the engine's allocator; their error type is the same as a compiler's. */
static bool is_out_of_memory(const char *message)
{
	static const char limit[] = "Allowed memory size of ";
	static const char system[] = "Out of memory";

	return strncmp(message, limit, sizeof(limit) - 1) == 0
		|| strncmp(message, system, sizeof(system) - 1) == 0;
}

static void note_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	(void) file;
	(void) line;
	switch (type & E_ALL) {
	case E_ERROR:
	case E_PARSE:
	case E_CORE_ERROR:
	case E_COMPILE_ERROR:
	case E_USER_ERROR:
	case E_RECOVERABLE_ERROR:
		if (!(type & E_DONT_BAIL)) {
			exhausted = exhausted || is_out_of_memory(ZSTR_VAL(message));
			zend_bailout();
		}
	}
}

static void change_directive(const char *name, const char *value)
{
	zend_string *key = zend_string_init(name, strlen(name), 0);
	zend_string *text = zend_string_init(value, strlen(value), 0);

	zend_alter_ini_entry_ex(key, text, ZEND_INI_SYSTEM, ZEND_INI_STAGE_ACTIVATE, true);
	zend_string_release(text);
	zend_string_release(key);
}

bool maitred_is_exhausted(void)
{
	return exhausted;
}

bool maitred_cache_activate(void)
{
	if (maitred_engine.request != &no_request) {
		return false;
	}
	/* Would start a session with the request, and write it at its end. */
	change_directive("session.auto_start", "0");
	return true;
}

bool maitred_in_quiet_request(void (*work)(void *context), void *context)
{
	const struct maitred_callbacks *callbacks = maitred_engine.callbacks;
	void (*error_cb)(int, zend_string *, const uint32_t, zend_string *) = zend_error_cb;
	volatile bool ended = false;

	exhausted = false;
	maitred_engine.callbacks = &silent;
	maitred_engine.request = &no_request;
	maitred_engine.finished = true;
	zend_error_cb = note_error;
	SG(server_context) = NULL;
	memset(&SG(request_info), 0, sizeof(SG(request_info)));
	zend_first_try {
		if (php_request_startup() == SUCCESS) {
			SG(request_info).no_headers = true;
			zend_unset_timeout();
			work(context);
			php_request_shutdown(NULL);
			ended = true;
		}
	} zend_end_try();
	zend_error_cb = error_cb;
	maitred_engine.request = NULL;
	maitred_engine.callbacks = callbacks;
	return ended;
}

static const zend_function_entry *function_named(const char *name)
{
	const zend_module_entry *module
		= zend_hash_str_find_ptr(&module_registry, ZEND_STRL("zend opcache"));
	const zend_function_entry *entry = module ? module->functions : NULL;

	while (entry && entry->fname && strcmp(entry->fname, name)) {
		entry++;
	}
	return entry && entry->fname ? entry : NULL;
}

/*
 * Calls a function of OPcache with one argument, which stays the caller's. The result is false when
 * there is no such function.
 */
static void call(const char *name, zval *argument, zval *result)
{
	const zend_function_entry *entry = function_named(name);
	zend_function function;
	zend_execute_data *frame;
	char *path;

	ZVAL_FALSE(result);
	if (!entry) {
		return;
	}
	memset(&function, 0, sizeof(function));
	function.internal_function.type = ZEND_INTERNAL_FUNCTION;
	function.internal_function.function_name = zend_string_init(name, strlen(name), 0);
	function.internal_function.handler = entry->handler;
	frame = zend_vm_stack_push_call_frame(ZEND_CALL_TOP_FUNCTION, &function, 1, NULL);
	ZVAL_COPY(ZEND_CALL_ARG(frame, 1), argument);
	frame->prev_execute_data = EG(current_execute_data);
	EG(current_execute_data) = frame;
	/* `opcache.restrict_api` is the prefix of the paths that may call. */
	path = SG(request_info).path_translated;
	SG(request_info).path_translated = (char *) zend_ini_string(ZEND_STRL("opcache.restrict_api"), 0);
	entry->handler(frame, result);
	SG(request_info).path_translated = path;
	EG(current_execute_data) = frame->prev_execute_data;
	zend_vm_stack_free_args(frame);
	zend_vm_stack_free_call_frame(frame);
	if (EG(exception)) {
		/* A parse error. Its trace holds the name of the function. */
		zend_clear_exception();
	}
	zend_string_release(function.internal_function.function_name);
}

static HashTable *member_array(const zval *array, const char *name)
{
	zval *member = NULL;

	if (Z_TYPE_P(array) == IS_ARRAY) {
		member = zend_hash_str_find(Z_ARRVAL_P(array), name, strlen(name));
	}
	return member && Z_TYPE_P(member) == IS_ARRAY ? Z_ARRVAL_P(member) : NULL;
}

static zend_long member_long(HashTable *array, const char *name)
{
	zval *member = array ? zend_hash_str_find(array, name, strlen(name)) : NULL;

	return member && Z_TYPE_P(member) == IS_LONG ? Z_LVAL_P(member) : 0;
}

static bool member_is_true(const zval *array, const char *name)
{
	zval *member = zend_hash_str_find(Z_ARRVAL_P(array), name, strlen(name));

	return member && Z_TYPE_P(member) == IS_TRUE;
}

struct listing {
	maitred_script_visitor *visit;
	void *context;
};

static void list(void *context)
{
	const struct listing *listing = context;
	HashTable *scripts;
	zval argument;
	zval status;
	zval *script;

	/* Bounded by OPcache's own memory; OPcache holds its lock while it builds the list. */
	zend_set_memory_limit((size_t) -1);
	ZVAL_TRUE(&argument);
	call("opcache_get_status", &argument, &status);
	scripts = member_array(&status, "scripts");
	if (scripts) {
		ZEND_HASH_FOREACH_VAL(scripts, script) {
			zval *path = NULL;

			if (Z_TYPE_P(script) == IS_ARRAY) {
				path = zend_hash_str_find(Z_ARRVAL_P(script), ZEND_STRL("full_path"));
			}
			if (path && Z_TYPE_P(path) == IS_STRING) {
				listing->visit(listing->context, Z_STRVAL_P(path), Z_STRLEN_P(path),
					(uint64_t) member_long(Z_ARRVAL_P(script), "hits"));
			}
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&status);
	zend_set_memory_limit((size_t) PG(memory_limit));
}

bool maitred_php_cached_scripts(maitred_script_visitor *visit, void *context)
{
	struct listing listing = { visit, context };

	return maitred_in_quiet_request(list, &listing);
}

/* A pending restart waits until no process uses OPcache, which never happens with a booted script.
 */
static void note_fullness(
	const zval *status, HashTable *statistics, struct maitred_cache_figures *figures)
{
	HashTable *strings = member_array(status, "interned_strings_usage");
	zend_long megabytes = zend_ini_long(ZEND_STRL("opcache.interned_strings_buffer"), 0);
	uint64_t left;

	figures->keys = (uint64_t) member_long(statistics, "num_cached_keys");
	figures->all_keys = (uint64_t) member_long(statistics, "max_cached_keys");
	figures->full = member_is_true(status, "cache_full") || member_is_true(status, "restart_pending")
		|| figures->free < (figures->used + figures->free + figures->wasted) / LEFT_PART;
	if (strings && megabytes > 0) {
		left = (uint64_t) member_long(strings, "free_memory");
		figures->all_strings = (uint64_t) megabytes << 20;
		figures->strings = left < figures->all_strings ? figures->all_strings - left : 0;
		figures->strings_full = left < figures->all_strings / LEFT_PART;
	}
}

struct look {
	struct maitred_cache_figures *figures;
	bool found;
};

static void look(void *context)
{
	struct look *look = context;
	struct maitred_cache_figures *figures = look->figures;
	HashTable *memory;
	HashTable *statistics;
	zval argument;
	zval status;

	/* Without the list of scripts. */
	ZVAL_FALSE(&argument);
	call("opcache_get_status", &argument, &status);
	memory = member_array(&status, "memory_usage");
	statistics = member_array(&status, "opcache_statistics");
	if (memory && statistics) {
		figures->used = (uint64_t) member_long(memory, "used_memory");
		figures->free = (uint64_t) member_long(memory, "free_memory");
		figures->wasted = (uint64_t) member_long(memory, "wasted_memory");
		figures->scripts = (uint64_t) member_long(statistics, "num_cached_scripts");
		figures->hits = (uint64_t) member_long(statistics, "hits");
		figures->misses = (uint64_t) member_long(statistics, "misses");
		figures->oom_restarts = (uint64_t) member_long(statistics, "oom_restarts");
		figures->hash_restarts = (uint64_t) member_long(statistics, "hash_restarts");
		figures->manual_restarts = (uint64_t) member_long(statistics, "manual_restarts");
		note_fullness(&status, statistics, figures);
		look->found = true;
	}
	zval_ptr_dtor(&status);
}

bool maitred_php_cache_figures(struct maitred_cache_figures *figures)
{
	struct look context = { figures, false };

	return maitred_in_quiet_request(look, &context) && context.found;
}

bool maitred_php_cache_figures_within(struct maitred_cache_figures *figures)
{
	struct look context = { figures, false };

	zend_try {
		look(&context);
	} zend_catch {
		context.found = false;
	} zend_end_try();
	return context.found;
}

/* Scripts that OPcache holds never get here. */
static zend_op_array *compile_and_note(zend_file_handle *file, int type)
{
	maitred_engine.compiled = true;
	maitred_pass_preload_script(file);
	return compile_before(file, type);
}

void maitred_cache_hook(void)
{
	compile_before = zend_compile_file;
	zend_compile_file = compile_and_note;
}

bool maitred_cache_is_full(void)
{
	struct maitred_cache_figures figures = { 0 };
	struct look context = { &figures, false };
	zend_execute_data *running = EG(current_execute_data);
	char *path = SG(request_info).path_translated;

	/*
	 * A pending exception must not be lost. After a bailout PHP may have no memory left, and the
	 * end of the request is still to run. A script that holds more than memory_limit keeps its
	 * current limit.
	 */
	if (EXPECTED(!maitred_engine.compiled) || EG(exception) || CG(unclean_shutdown)
		|| zend_memory_usage(true) > (size_t) PG(memory_limit)) {
		return false;
	}
	maitred_engine.compiled = false;
	/* The script may have used up its limit. This allocation is small, and freed at once. */
	zend_set_memory_limit((size_t) -1);
	zend_try {
		look(&context);
	} zend_catch {
		context.found = false;
		SG(request_info).path_translated = path;
		EG(current_execute_data) = running;
	} zend_end_try();
	maitred_put_memory_limit_back();
	/*
	 * The system is out of memory, too. A script cannot continue after that; the end of a request
	 * can.
	 */
	if (UNEXPECTED(CG(unclean_shutdown)) && running) {
		zend_bailout();
	}
	return context.found && (figures.full || figures.strings_full);
}

/* Whether OPcache has space for a script of this size without filling up. */
static bool has_room(size_t bytes)
{
	HashTable *memory;
	HashTable *statistics;
	zend_long free_memory;
	zend_long all_memory;
	zend_long keys;
	bool has = false;
	zval argument;
	zval status;

	ZVAL_FALSE(&argument);
	call("opcache_get_status", &argument, &status);
	memory = member_array(&status, "memory_usage");
	statistics = member_array(&status, "opcache_statistics");
	if (memory && statistics && member_is_true(&status, "opcache_enabled")
		&& !member_is_true(&status, "cache_full")
		&& !member_is_true(&status, "restart_pending")
		&& !member_is_true(&status, "restart_in_progress")) {
		free_memory = member_long(memory, "free_memory");
		all_memory = free_memory + member_long(memory, "used_memory")
			+ member_long(memory, "wasted_memory");
		keys = member_long(statistics, "max_cached_keys");
		has = free_memory - all_memory / RESERVE_PART >= 0
			&& bytes <= (size_t) (free_memory - all_memory / RESERVE_PART) / GROWTH
			&& member_long(statistics, "num_cached_keys") < keys - keys / RESERVE_PART;
	}
	zval_ptr_dtor(&status);
	return has;
}

static bool is_cached(zval *path)
{
	zval result;

	call("opcache_is_script_cached", path, &result);
	return Z_TYPE(result) == IS_TRUE;
}

/* Whether a `<?` is read alike under every setting: `<?=`, or `<?php` and white space or the end.
 */
static bool is_plain_tag(const char *after, const char *end)
{
	if (after < end && *after == '=') {
		return true;
	}
	if (end - after < 3 || strncasecmp(after, "php", 3) != 0) {
		return false;
	}
	after += 3;
	return after == end || *after == ' ' || *after == '\t' || *after == '\r' || *after == '\n';
}

/*
 * `short_open_tag` may differ by folder (.user.ini), host or request, and the one that will apply
 * is unknown here. Compiled under the wrong one, the source would be sent to clients.
 */
bool maitred_reads_alike(const char *path)
{
	php_stream *stream = php_stream_open_wrapper((char *) path, "rb", 0, NULL);
	zend_string *text;
	const char *end;
	const char *tag;
	bool alike = true;

	if (!stream) {
		return false;
	}
	text = php_stream_copy_to_mem(stream, PHP_STREAM_COPY_ALL, 0);
	php_stream_close(stream);
	if (!text) {
		return false;
	}
	end = ZSTR_VAL(text) + ZSTR_LEN(text);
	tag = zend_memnstr(ZSTR_VAL(text), "<?", 2, end);
	while (tag && alike) {
		alike = is_plain_tag(tag + 2, end);
		tag = zend_memnstr(tag + 2, "<?", 2, end);
	}
	zend_string_release(text);
	return alike;
}

struct compilation {
	const char *path;
	size_t bytes;
	bool compiled;
};

static void compile(void *context)
{
	struct compilation *compilation = context;
	zval path;
	zval result;

	ZVAL_STRING(&path, compilation->path);
	if (!is_cached(&path) && has_room(compilation->bytes) && maitred_reads_alike(compilation->path)) {
		call("opcache_compile_file", &path, &result);
		/*
		 * It reports that the script compiled; the script may still be too large or too new to be
		 * cached.
		 */
		compilation->compiled = !exhausted && is_cached(&path);
	}
	zval_ptr_dtor(&path);
}

int maitred_php_compile_script(const char *path, size_t bytes)
{
	struct compilation compilation = { path, bytes, false };
	bool ended = maitred_in_quiet_request(compile, &compilation);

	if (compilation.compiled) {
		return MAITRED_COMPILED;
	}
	return ended && !exhausted ? MAITRED_PASSED_OVER : MAITRED_EXHAUSTED;
}
